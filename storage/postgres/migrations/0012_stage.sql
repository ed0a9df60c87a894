-- A job is two rows. The row of job holds what no claim and no settle changes; the row of stage, in the partition of its state, holds the
-- rest. A job that changes its state leaves one partition for another: rows are inserted and deleted, and those of job stay as they are.

-- Programs of older versions cannot run beside this one.
UPDATE {schema}.migration SET oldest = {version} WHERE version = {before};

CREATE TABLE {schema}.stage (
	seq         bigint   NOT NULL,
	place       bigint   NOT NULL,
	version     bigint   NOT NULL,
	attempt     bigint   NOT NULL,
	other_place bigint,
	wake        bigint,
	deadline    bigint,
	enqueued    bigint,
	started     bigint,
	next_retry  bigint,
	finished    bigint,
	dead        bigint,
	lease_until bigint,
	kept        bigint,
	released    bigint,
	created     bigint,            -- only of a job with a fingerprint
	progress    double precision,  -- NULL: 0
	priority    integer  NOT NULL,
	state       smallint NOT NULL,
	limited     boolean,           -- it has a rate limit or an enqueue TTL; NULL: it has neither
	queue       text     NOT NULL COLLATE "C",
	type        text     NOT NULL COLLATE "C",
	worker      text,              -- NULL: none
	fingerprint text     COLLATE "C",
	rate_key    text     COLLATE "C",
	outcome     bytea,
	checkpoint  bytea
) PARTITION BY LIST (state);

-- Rows stay for a short time in the first three: the dead ones have to go as fast as they come.
CREATE TABLE {schema}.ready PARTITION OF {schema}.stage FOR VALUES IN (3) WITH (
	autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.05
);
CREATE TABLE {schema}.active PARTITION OF {schema}.stage FOR VALUES IN (4) WITH (
	autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.05
);
CREATE TABLE {schema}.waiting PARTITION OF {schema}.stage DEFAULT WITH (
	autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.05
);
CREATE TABLE {schema}.done PARTITION OF {schema}.stage FOR VALUES IN (6, 7, 8) WITH (
	autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.05
);

INSERT INTO {schema}.stage (seq, place, version, attempt, other_place, wake, deadline, enqueued, started, next_retry, finished, dead,
		lease_until, kept, released, created, progress, priority, state, limited, queue, type, worker, fingerprint, rate_key, outcome, checkpoint)
	SELECT seq, place, version, attempt, other_place, wake, deadline, enqueued, started, next_retry, finished, dead,
		lease_until, kept, released, CASE WHEN fingerprint IS NOT NULL THEN created END, nullif(progress, 0), priority, state,
		nullif(rate_key IS NOT NULL OR job IS NOT NULL AND (
			position('"rate_limit":'::bytea IN job) > 0 OR position('"enqueue_ttl":'::bytea IN job) > 0), false),
		queue, type, nullif(worker, ''), fingerprint, rate_key, outcome, checkpoint
	FROM {schema}.job;

CREATE TABLE {schema}.body (
	seq     bigint NOT NULL,
	created bigint,
	lease   bigint NOT NULL,
	id      text   NOT NULL COLLATE "C",
	args    bytea,             -- JSON; NULL: null
	job     bytea              -- JSON: what else no attempt changes
) WITH (
	autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.05
);

INSERT INTO {schema}.body (seq, created, lease, id, args, job) SELECT seq, created, lease, id, args, job FROM {schema}.job;

DROP VIEW {schema}.jobs;
DROP TABLE {schema}.job;
ALTER TABLE {schema}.body RENAME TO job;
ALTER TABLE {schema}.job ADD CONSTRAINT job_pkey PRIMARY KEY (seq);
CREATE UNIQUE INDEX job_id ON {schema}.job (id);

ALTER TABLE {schema}.ready ADD CONSTRAINT ready_pkey PRIMARY KEY (seq);
ALTER TABLE {schema}.active ADD CONSTRAINT active_pkey PRIMARY KEY (seq);
ALTER TABLE {schema}.waiting ADD CONSTRAINT waiting_pkey PRIMARY KEY (seq);
ALTER TABLE {schema}.done ADD CONSTRAINT done_pkey PRIMARY KEY (seq);

-- To claim from a queue, from all of them (see 0001 for the words), and a key's first job.
CREATE INDEX ready_order ON {schema}.ready (queue, priority DESC, place);
CREATE INDEX ready_all ON {schema}.ready (priority DESC, place) WHERE attempt >= 0;
CREATE INDEX ready_key ON {schema}.ready (rate_key, priority DESC, place) WHERE rate_key IS NOT NULL;

-- What comes due, in the words of the statement that looks for it.
CREATE INDEX stage_wake ON {schema}.stage (wake, (CASE WHEN state = 3 THEN coalesce(other_place, place) ELSE place END)) WHERE wake IS NOT NULL;

-- Equal jobs, the newest first.
CREATE INDEX stage_unique ON {schema}.stage (fingerprint, state, created DESC, seq DESC) WHERE fingerprint IS NOT NULL;

-- Jobs that nothing else looks at: see 0008.
CREATE INDEX stage_impossible ON {schema}.stage (seq)
	WHERE state < 1 OR state > 8 OR attempt < 0 OR attempt > 4611686018427387904 OR version < 1 OR version > 4611686018427387904;

-- To prune (see 0002 and 0005), what is kept no longer, and dead letters.
CREATE INDEX done_ended ON {schema}.done (state, num_nonnulls(dead), finished NULLS FIRST, place) WHERE kept IS NULL;
CREATE INDEX done_kept ON {schema}.done (kept) WHERE kept IS NOT NULL;
CREATE INDEX done_released ON {schema}.done (released, seq) WHERE released IS NOT NULL;
CREATE INDEX done_dead ON {schema}.done (place) WHERE dead IS NOT NULL;

-- Statements that name stage are counted by triggers; those that name its partitions count by themselves.
CREATE TRIGGER count_added AFTER INSERT ON {schema}.stage
	REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION {schema}.count_added();
CREATE TRIGGER count_removed AFTER DELETE ON {schema}.stage
	REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION {schema}.count_removed();
CREATE TRIGGER count_moved AFTER UPDATE ON {schema}.stage
	REFERENCING NEW TABLE AS added OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION {schema}.count_moved();

CREATE VIEW {schema}.jobs AS SELECT
	id, queue, type,
	(ARRAY['pending', 'scheduled', 'available', 'active', 'retryable', 'completed', 'cancelled', 'discarded'])[state] AS state,
	priority, attempt,
	to_timestamp(j.created / 1e9) AS created_at,
	to_timestamp(wake / 1e9) AS wakes_at,
	to_timestamp(started / 1e9) AS started_at,
	to_timestamp(finished / 1e9) AS finished_at,
	to_timestamp(dead / 1e9) AS dead_lettered_at,
	coalesce(progress, 0) AS progress, coalesce(worker, '') AS worker,
	{schema}.readable(coalesce(args, 'null')) COLLATE "C" AS args,
	{schema}.readable(job) COLLATE "C" AS job,
	{schema}.readable(outcome) COLLATE "C" AS outcome,
	{schema}.readable(checkpoint) COLLATE "C" AS checkpoint
FROM {schema}.job j JOIN {schema}.stage s USING (seq);
