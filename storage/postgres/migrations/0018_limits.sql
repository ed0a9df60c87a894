-- Limits that the step of a claim counts. Programs of older versions would start jobs without counting them.
UPDATE {schema}.migration SET oldest = {version} WHERE version = {before};

-- The rate limit of the job as JSON. NULL: the job has none, or it is local, so that engines count it.
ALTER TABLE {schema}.stage ADD COLUMN bounds text COLLATE "C";
ALTER TABLE {schema}.quarantined_job ADD COLUMN bounds text COLLATE "C";

CREATE FUNCTION {schema}.bounds_in(document bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	found pg_catalog.json;
BEGIN
	found := pg_catalog.convert_from(document, 'UTF8')::pg_catalog.json OPERATOR(pg_catalog.->) 'rate_limit';
	IF found OPERATOR(pg_catalog.->>) 'Local' IS NOT NULL THEN
		RETURN NULL;
	END IF;
	RETURN found::pg_catalog.text;
EXCEPTION WHEN others THEN
	RETURN NULL;
END $$;

UPDATE {schema}.stage s SET bounds = {schema}.bounds_in(b.job) FROM {schema}.job b WHERE b.seq = s.seq AND s.rate_key IS NOT NULL;
UPDATE {schema}.quarantined_job SET bounds = {schema}.bounds_in(job) WHERE rate_key IS NOT NULL;

DROP FUNCTION {schema}.bounds_in;

-- The first jobs with these bounds, to which a claim comes back when they let one start; and to count the active jobs of a key.
CREATE INDEX ready_bounds ON {schema}.ready (bounds, priority DESC, place) WHERE bounds IS NOT NULL;
CREATE INDEX active_bounds ON {schema}.active (rate_key) WHERE bounds IS NOT NULL;

-- Limits: keys of which a job has started, or that were set or blocked; queues and types that were set or blocked. Times are
-- nanoseconds since 1970.
CREATE TABLE {schema}.job_limit (
	kind    text   NOT NULL COLLATE "C", -- key, queue or type
	name    text   NOT NULL COLLATE "C",
	setting text,                        -- the bounds that were set, as JSON; NULL: none
	until   bigint,                      -- when the setting ends; NULL: never
	blocked bigint,                      -- until then no job starts
	last    text,                        -- the bounds of the job of a key that started last
	period  bigint NOT NULL DEFAULT 0,   -- how long a start counts at most; 0: starts are not kept
	most    bigint NOT NULL DEFAULT 0,   -- starts that count at most
	look    bigint,                      -- when to see whether a key can be forgotten; NULL: not
	PRIMARY KEY (kind, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_limit_look ON {schema}.job_limit (look) WHERE look IS NOT NULL;

-- When jobs have started. The numbers of a limit rise by one, and so do the times.
CREATE TABLE {schema}.job_start (
	kind text   NOT NULL COLLATE "C",
	name text   NOT NULL COLLATE "C",
	n    bigint NOT NULL,
	at   bigint NOT NULL,
	PRIMARY KEY (kind, name, n)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Keys of which a job has ceased to be active, or that were set or blocked, and the transaction that has done it. Processes look again at
-- those that they know to be closed.
CREATE TABLE {schema}.job_freed (
	xact bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
	name text   NOT NULL COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_freed_xact ON {schema}.job_freed (xact);
