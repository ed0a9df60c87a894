-- What attempts have logged, by the seq of their job. Version is that of the job after the change that stored it.
CREATE TABLE log (
	seq     INTEGER NOT NULL,
	version INTEGER NOT NULL,
	data    BLOB NOT NULL,
	PRIMARY KEY (seq, version)
) STRICT;
