-- The rate limit of the job as JSON. NULL: the job has none, or it is local, so that engines count it.
ALTER TABLE job ADD COLUMN bounds TEXT;
ALTER TABLE quarantined_job ADD COLUMN bounds TEXT;
UPDATE job SET bounds = CASE WHEN json_valid(CAST(job AS TEXT))
	AND json_extract(CAST(job AS TEXT), '$.rate_limit.Local') IS NULL
	THEN json_extract(CAST(job AS TEXT), '$.rate_limit') END
	WHERE rate_key IS NOT NULL;

-- To claim, with the bounds, since a claim passes over jobs by them.
DROP INDEX job_ready;
CREATE INDEX job_ready ON job (queue, priority DESC, place, type, rate_key, wake, bounds) WHERE state = 3;
DROP INDEX job_ready_all;
CREATE INDEX job_ready_all ON job (priority DESC, place, queue, type, rate_key, wake, bounds) WHERE state = 3;
DROP INDEX job_key;
CREATE INDEX job_key ON job (rate_key, priority DESC, place, queue, type, wake, bounds) WHERE state = 3 AND rate_key IS NOT NULL;

-- The first jobs of a rate limit, to which a claim comes back when it opens.
CREATE INDEX job_bounds ON job (bounds, priority DESC, place, queue, type, rate_key, wake) WHERE state = 3 AND bounds IS NOT NULL;

-- To count the active jobs of a key and of a type. The tally has those of a queue.
CREATE INDEX job_active_key ON job (rate_key) WHERE state = 4 AND bounds IS NOT NULL;
CREATE INDEX job_active_type ON job (type) WHERE state = 4;

-- Limits: keys of which a job has started, or that have been set, blocked or found closed; queues and types that have been set or
-- blocked. Times are nanoseconds since 1970.
CREATE TABLE job_limit (
	kind    TEXT NOT NULL,              -- key, queue or type
	name    TEXT NOT NULL,
	setting TEXT,                       -- the bounds that were set, as JSON; NULL: none
	until   INTEGER,                    -- when the setting ends; NULL: never
	blocked INTEGER,                    -- until then no job starts
	last    TEXT,                       -- the bounds of the job of a key that started last
	period  INTEGER NOT NULL DEFAULT 0, -- how long a start counts at most; 0: starts are not kept
	most    INTEGER NOT NULL DEFAULT 0, -- starts that count at most
	closed  INTEGER NOT NULL DEFAULT 0, -- 1: a claim has found that no job of a key may start, and nothing has changed since
	changed INTEGER NOT NULL DEFAULT 0, -- the number of the latest change that may let jobs of a key start; 0: there was none
	look    INTEGER,                    -- when to see whether a key can be forgotten; NULL: not
	idle    INTEGER NOT NULL DEFAULT -1, -- changed as it was when the key was last found to be idle; -1: it was not
	PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_limit_changed ON job_limit (changed) WHERE changed > 0;
CREATE INDEX job_limit_look ON job_limit (look) WHERE look IS NOT NULL;

-- When jobs have started. The numbers of a limit rise by one, and so do the times.
CREATE TABLE job_start (
	kind TEXT NOT NULL,
	name TEXT NOT NULL,
	n    INTEGER NOT NULL,
	at   INTEGER NOT NULL,
	PRIMARY KEY (kind, name, n)
) STRICT, WITHOUT ROWID;

-- The latest number of job_limit.changed, how often a queue or type was set or blocked, and the highest number of a key that was
-- forgotten. A program that does not know of limits and has the file open cannot write any more: it would count none.
ALTER TABLE counter RENAME COLUMN behind TO passed;
ALTER TABLE counter ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE counter ADD COLUMN settings INTEGER NOT NULL DEFAULT 0;
ALTER TABLE counter ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;
