-- Rows that do not decode are moved out of the way of all others, until a person mends or deletes them.

-- What was set aside, in that order, and why. At is milliseconds since 1970-01-01 UTC. A job is the row of quarantined_job with the
-- seq; of a recurring entry (cron) and of a queue's state (queue), body is what the column entry or state had.
CREATE TABLE quarantine (
	n       INTEGER PRIMARY KEY AUTOINCREMENT,
	kind    TEXT NOT NULL,
	name    TEXT NOT NULL,
	reason  TEXT NOT NULL,
	at      INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
	seq     INTEGER,
	version INTEGER,
	body    BLOB
);
CREATE INDEX quarantine_name ON quarantine (name);

-- The columns of job, with any values. Every column of job has to be here too.
CREATE TABLE quarantined_job AS SELECT * FROM job WHERE false;
CREATE UNIQUE INDEX quarantined_job_seq ON quarantined_job (seq);

-- Jobs that nothing else looks at, since they are in no state that there is, or with numbers that no job comes to.
CREATE INDEX job_impossible ON job (seq)
	WHERE state < 1 OR state > 8 OR attempt < 0 OR attempt > 4611686018427387904 OR version < 1 OR version > 4611686018427387904;

-- No version is above the latest place, by which impossible ones are known.
UPDATE counter SET place = max(place, (SELECT coalesce(max(version), 0) FROM job WHERE version < 9007199254740992));
