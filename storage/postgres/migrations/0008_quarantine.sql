-- Rows that do not decode are moved out of the way of all others, until a person mends or deletes them.

-- What was set aside, in that order, and why. A job is the row of quarantined_job with the seq; of a recurring entry (cron) and of
-- a queue's state (queue), body is what the column entry or state had.
CREATE TABLE {schema}.quarantine (
	n       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	kind    text        NOT NULL,
	name    text        NOT NULL COLLATE "C",
	reason  text        NOT NULL,
	at      timestamptz NOT NULL DEFAULT clock_timestamp(),
	seq     bigint,
	version bigint,
	body    bytea
);
CREATE INDEX quarantine_name ON {schema}.quarantine (name);

-- Jobs as they were, column by column: every column that job gets, this gets too.
CREATE TABLE {schema}.quarantined_job (LIKE {schema}.job);
CREATE UNIQUE INDEX quarantined_job_seq ON {schema}.quarantined_job (seq);

-- Jobs that nothing else looks at, since they are in no state that there is, or with numbers that no job comes to.
CREATE INDEX job_impossible ON {schema}.job (seq)
	WHERE state < 1 OR state > 8 OR attempt < 0 OR attempt > 4611686018427387904 OR version < 1 OR version > 4611686018427387904;
