-- What attempts have logged, by the seq of their job. The version is that of the job after the change that stored the log.
CREATE TABLE {schema}.log (
	seq     bigint NOT NULL,
	version bigint NOT NULL,
	data    bytea  NOT NULL,
	PRIMARY KEY (seq, version)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
