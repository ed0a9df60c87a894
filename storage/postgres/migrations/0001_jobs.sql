-- {schema} is the schema's name. Times are nanoseconds since 1970-01-01 UTC. State: 1 pending, 2 scheduled, 3 available,
-- 4 active, 5 retryable, 6 completed, 7 cancelled, 8 discarded. Documents are bytea and not json: what JSON may hold, text may
-- not. The view below shows all of it readably.

-- The order of insertion, and that in which jobs come to where they are.
CREATE SEQUENCE {schema}.place;

CREATE TABLE {schema}.job (
	seq         bigint   NOT NULL PRIMARY KEY,
	id          text     NOT NULL COLLATE "C",
	queue       text     NOT NULL COLLATE "C",
	type        text     NOT NULL COLLATE "C",
	state       smallint NOT NULL,
	priority    integer  NOT NULL,
	attempt     bigint   NOT NULL,
	version     bigint   NOT NULL,
	place       bigint   NOT NULL,
	wake        bigint,            -- when time does something to it
	deadline    bigint,            -- when it ends if it still waits
	created     bigint,
	enqueued    bigint,
	started     bigint,
	next_retry  bigint,
	finished    bigint,
	dead        bigint,            -- when it became a dead letter
	lease_until bigint,
	lease       bigint   NOT NULL,
	progress    double precision NOT NULL,
	worker      text     NOT NULL,
	fingerprint text     COLLATE "C",
	rate_key    text     COLLATE "C",
	args        bytea,             -- JSON; NULL: null
	job         bytea,             -- JSON: what else no attempt changes
	outcome     bytea,             -- JSON: errors and result
	checkpoint  bytea              -- JSON
) WITH (
	-- Every job is updated twice and deleted once: the dead rows have to go as fast as they come.
	autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.05
);

CREATE UNIQUE INDEX job_id ON {schema}.job (id);

-- To claim from a queue, and from all of them. That every attempt is at least 0 is there for the planner, which otherwise takes
-- the second for the first and walks past the jobs of all other queues; who claims from all of them says so.
CREATE INDEX job_ready ON {schema}.job (queue, priority DESC, place) WHERE state = 3;
CREATE INDEX job_ready_all ON {schema}.job (priority DESC, place) WHERE state = 3 AND attempt >= 0;

-- What comes due.
CREATE INDEX job_wake ON {schema}.job (wake, place) WHERE wake IS NOT NULL;

-- Equal jobs, the newest first.
CREATE INDEX job_unique ON {schema}.job (fingerprint, state, created DESC, seq DESC) WHERE fingerprint IS NOT NULL;

-- To prune: what finished first.
CREATE INDEX job_ended ON {schema}.job (state, place) WHERE state >= 6 AND dead IS NULL;
CREATE INDEX job_dead ON {schema}.job (place) WHERE dead IS NOT NULL;

-- How many jobs a queue has in each state: the sum of what was added, so that no two transactions write the same row. Rows are
-- summed up now and then.
CREATE TABLE {schema}.tally (
	queue text     NOT NULL COLLATE "C",
	state smallint NOT NULL,
	dead  boolean  NOT NULL,
	n     bigint   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Triggers count, so that rows which are changed by hand are counted too.
CREATE FUNCTION {schema}.count_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.tally SELECT queue, state, dead IS NOT NULL, count(*) FROM added GROUP BY 1, 2, 3;
	RETURN NULL;
END $$;

CREATE FUNCTION {schema}.count_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.tally SELECT queue, state, dead IS NOT NULL, -count(*) FROM removed GROUP BY 1, 2, 3;
	RETURN NULL;
END $$;

CREATE FUNCTION {schema}.count_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.tally
		SELECT queue, state, dead, sum(n) FROM (
			SELECT queue, state, dead IS NOT NULL AS dead, 1 AS n FROM added
			UNION ALL
			SELECT queue, state, dead IS NOT NULL, -1 FROM removed
		) moved GROUP BY 1, 2, 3 HAVING sum(n) <> 0;
	RETURN NULL;
END $$;

CREATE TRIGGER count_added AFTER INSERT ON {schema}.job
	REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION {schema}.count_added();
CREATE TRIGGER count_removed AFTER DELETE ON {schema}.job
	REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION {schema}.count_removed();
CREATE TRIGGER count_moved AFTER UPDATE ON {schema}.job
	REFERENCING NEW TABLE AS added OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION {schema}.count_moved();

-- Queues that are paused or draining.
CREATE TABLE {schema}.queue_state (
	queue text NOT NULL PRIMARY KEY COLLATE "C",
	state text NOT NULL
);

-- Recurring jobs.
CREATE TABLE {schema}.cron (
	name    text   NOT NULL PRIMARY KEY COLLATE "C",
	version bigint NOT NULL,
	entry   bytea  NOT NULL -- JSON
);

-- For people. Its columns may change; the functions and tables above are none of their business.
CREATE VIEW {schema}.jobs AS SELECT
	id, queue, type,
	(ARRAY['pending', 'scheduled', 'available', 'active', 'retryable', 'completed', 'cancelled', 'discarded'])[state] AS state,
	priority, attempt,
	to_timestamp(created / 1e9) AS created_at,
	to_timestamp(wake / 1e9) AS wakes_at,
	to_timestamp(started / 1e9) AS started_at,
	to_timestamp(finished / 1e9) AS finished_at,
	to_timestamp(dead / 1e9) AS dead_lettered_at,
	progress, worker,
	convert_from(coalesce(args, 'null'), 'UTF8') AS args,
	convert_from(job, 'UTF8') AS job,
	convert_from(outcome, 'UTF8') AS outcome,
	convert_from(checkpoint, 'UTF8') AS checkpoint
FROM {schema}.job;
