-- Available jobs at a limit are set aside. Programs of older versions would claim them.
UPDATE {schema}.migration SET oldest = {version} WHERE version = {before};

-- The lane of an available job that a limit of its key counts: the jobs of one queue, type and bounds. Claims look at the heads
-- only. most is how many jobs of the key may be active for a job of the lane to start. NULL: other bounds decide, too.
-- late says that a claim has found the deadline of the job past: it is set aside, unless the clock goes back.
ALTER TABLE {schema}.stage ADD COLUMN lane bigint, ADD COLUMN most integer, ADD COLUMN head boolean NOT NULL DEFAULT true,
	ADD COLUMN late boolean;

-- When time lets a job of a key start that waits.
ALTER TABLE {schema}.job_limit ADD COLUMN opens bigint;
CREATE INDEX job_limit_opens ON {schema}.job_limit (opens) WHERE opens IS NOT NULL;

-- Keys whose lanes are to be judged: jobs have become available, or have ceased to be active, or a limit has been set.
CREATE TABLE {schema}.job_judge (
	name text NOT NULL COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_judge_name ON {schema}.job_judge (name);

-- Limits that engines have counted by themselves.
CREATE FUNCTION {schema}.bounds_in(document bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog AS $$
BEGIN
	RETURN convert_from(document, 'UTF8')::jsonb -> 'rate_limit' - 'Local';
EXCEPTION WHEN others THEN
	RETURN NULL;
END $$;
UPDATE {schema}.stage s SET bounds = {schema}.bounds_in(b.job) FROM {schema}.job b
	WHERE b.seq = s.seq AND s.rate_key IS NOT NULL AND s.bounds IS NULL AND s.state < 6;
UPDATE {schema}.quarantined_job SET bounds = {schema}.bounds_in(job) WHERE rate_key IS NOT NULL AND bounds IS NULL;
DROP FUNCTION {schema}.bounds_in;

-- An available job enters its lane behind the heads, or becomes one before them: claims judge heads once more.
CREATE FUNCTION {schema}.enter_lane() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	plain CONSTANT text := '^\{"Key":"[^"\\]*","Concurrency":(-?[0-9]{1,9})\}$'; -- bounds of concurrency alone
	noted text; -- the key that the transaction has noted last
BEGIN
	NEW.lane := hashtextextended(concat_ws(E'\n', NEW.queue, NEW.type, NEW.bounds), 0);
	NEW.most := CASE WHEN NEW.bounds ~ plain THEN greatest(0, substring(NEW.bounds FROM plain)::integer) END;
	NEW.head := coalesce((SELECT (r.priority, -r.place, -coalesce(r.own_place, 0))
			< (NEW.priority, -NEW.place, -coalesce(NEW.own_place, 0)) FROM {schema}.ready r
		WHERE r.rate_key = NEW.rate_key AND r.lane = NEW.lane AND r.bounds IS NOT NULL AND r.head
		ORDER BY r.priority, r.place DESC, r.own_place DESC NULLS LAST LIMIT 1), false);
	noted := concat_ws(' ', '{name}', pg_current_xact_id(), NEW.rate_key);
	IF current_setting('ojs.noted', true) IS DISTINCT FROM noted THEN
		INSERT INTO {schema}.job_judge VALUES (NEW.rate_key);
		PERFORM set_config('ojs.noted', noted, true);
	END IF;
	RETURN NEW;
END $$;

CREATE FUNCTION {schema}.leave_limit() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	noted text;
BEGIN
	noted := concat_ws(' ', '{name}', pg_current_xact_id(), OLD.rate_key);
	IF current_setting('ojs.noted', true) IS DISTINCT FROM noted THEN
		INSERT INTO {schema}.job_judge VALUES (OLD.rate_key);
		PERFORM set_config('ojs.noted', noted, true);
	END IF;
	RETURN NULL;
END $$;

UPDATE {schema}.ready SET lane = hashtextextended(concat_ws(E'\n', queue, type, bounds), 0),
	head = false WHERE bounds IS NOT NULL;
INSERT INTO {schema}.job_judge SELECT DISTINCT rate_key FROM {schema}.ready WHERE bounds IS NOT NULL;

-- The trigger take_turn comes before: it gives a job its place.
CREATE TRIGGER wait_in_lane BEFORE INSERT ON {schema}.ready FOR EACH ROW
	WHEN (NEW.bounds IS NOT NULL) EXECUTE FUNCTION {schema}.enter_lane();
CREATE TRIGGER leave_limit AFTER DELETE ON {schema}.active FOR EACH ROW
	WHEN (OLD.bounds IS NOT NULL) EXECUTE FUNCTION {schema}.leave_limit();

-- To claim, and the heads and the others of each lane.
DROP INDEX {schema}.ready_order;
CREATE INDEX ready_order ON {schema}.ready (queue, head, priority DESC, place, own_place NULLS FIRST);
DROP INDEX {schema}.ready_all;
CREATE INDEX ready_all ON {schema}.ready (head, priority DESC, place, own_place NULLS FIRST) WHERE attempt >= 0;
CREATE INDEX ready_lane ON {schema}.ready (rate_key, lane, head, priority DESC, place, own_place NULLS FIRST) WHERE bounds IS NOT NULL;
CREATE INDEX ready_late ON {schema}.ready (late, wake) WHERE bounds IS NOT NULL AND wake IS NOT NULL;
DROP INDEX {schema}.ready_key;
DROP INDEX {schema}.ready_bounds;

DROP TABLE {schema}.job_freed;
