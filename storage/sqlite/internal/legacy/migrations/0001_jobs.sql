-- Times are nanoseconds since 1970-01-01 UTC. State: 1 pending, 2 scheduled, 3 available, 4 active, 5 retryable,
-- 6 completed, 7 cancelled, 8 discarded.

CREATE TABLE job (
	seq         INTEGER PRIMARY KEY, -- the order of insertion
	id          TEXT NOT NULL,
	queue       TEXT NOT NULL,
	type        TEXT NOT NULL,
	state       INTEGER NOT NULL,
	priority    INTEGER NOT NULL,
	attempt     INTEGER NOT NULL,
	version     INTEGER NOT NULL,
	place       INTEGER NOT NULL, -- the order in which jobs came to where they are now
	wake        INTEGER,          -- when time does something to it
	deadline    INTEGER,          -- when it ends if it still waits
	created     INTEGER,
	enqueued    INTEGER,
	started     INTEGER,
	next_retry  INTEGER,
	finished    INTEGER,
	dead        INTEGER,          -- when it became a dead letter
	lease_until INTEGER,
	lease       INTEGER NOT NULL,
	progress    REAL NOT NULL,
	worker      TEXT NOT NULL,
	fingerprint TEXT,
	rate_key    TEXT,
	args        BLOB,             -- JSON; NULL: null
	job         BLOB,             -- JSON: what else no attempt changes
	outcome     BLOB,             -- JSON: errors and result
	checkpoint  BLOB              -- JSON
) STRICT;

CREATE UNIQUE INDEX job_id ON job (id);

-- To claim. The columns after place are for jobs that a claim passes over, so that it need not fetch them.
CREATE INDEX job_ready ON job (queue, priority DESC, place, type, rate_key, wake) WHERE state = 3;

-- What comes due.
CREATE INDEX job_wake ON job (wake, place) WHERE wake IS NOT NULL;

-- Equal jobs, the newest first.
CREATE INDEX job_unique ON job (fingerprint, state, created DESC, seq DESC) WHERE fingerprint IS NOT NULL;

-- To prune: what finished first, by state.
CREATE INDEX job_ended ON job (state, place, finished) WHERE state >= 6 AND dead IS NULL;
CREATE INDEX job_dead ON job (place, finished) WHERE dead IS NOT NULL;

-- How many jobs a queue has in each state; class 1: dead letters. Written by the transactions that move the jobs.
CREATE TABLE tally (
	queue TEXT NOT NULL,
	state INTEGER NOT NULL,
	dead  INTEGER NOT NULL,
	n     INTEGER NOT NULL,
	PRIMARY KEY (queue, state, dead)
) STRICT, WITHOUT ROWID;

-- The latest seq and place that were given out.
CREATE TABLE counter (
	seq   INTEGER NOT NULL,
	place INTEGER NOT NULL
) STRICT;
INSERT INTO counter VALUES (0, 0);

-- Queues that are paused or draining.
CREATE TABLE queue_state (
	queue TEXT PRIMARY KEY,
	state TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Recurring jobs.
CREATE TABLE cron (
	name    TEXT PRIMARY KEY,
	version INTEGER NOT NULL,
	entry   BLOB NOT NULL -- JSON
) STRICT, WITHOUT ROWID;
