-- Jobs with a fairness key go by start tags, and no longer by rounds. Programs of older versions would give them none.
UPDATE {schema}.migration SET oldest = {version} WHERE version = {before};

DROP TRIGGER take_turn ON {schema}.ready;
DROP FUNCTION {schema}.take_turn();
DROP INDEX {schema}.ready_order;
DROP INDEX {schema}.ready_all;
DROP INDEX {schema}.ready_lane;
DROP INDEX {schema}.ready_round;
DROP INDEX {schema}.ready_fair_key;

-- The start tag of a job with a key that is available. It keeps the tag while it is active. NULL: the job has no key, or is elsewhere.
ALTER TABLE {schema}.stage RENAME COLUMN own_place TO tag;
ALTER TABLE {schema}.quarantined_job RENAME COLUMN own_place TO tag;

-- The places of rounds are tags from here on, so that the jobs keep their order.
UPDATE {schema}.ready SET tag = place, place = tag WHERE tag IS NOT NULL;
UPDATE {schema}.active SET tag = other_place, other_place = tag WHERE tag IS NOT NULL;
UPDATE {schema}.quarantined_job SET tag = CASE state WHEN 3 THEN place ELSE other_place END,
	place = CASE state WHEN 3 THEN tag ELSE place END, other_place = CASE state WHEN 3 THEN other_place ELSE tag END
	WHERE tag IS NOT NULL;

-- To claim, the heads and the others of each lane, and the jobs of each key, the latest first.
CREATE INDEX ready_order ON {schema}.ready (queue, head, priority DESC, tag NULLS FIRST, place);
CREATE INDEX ready_all ON {schema}.ready (head, priority DESC, tag NULLS FIRST, place) WHERE attempt >= 0;
CREATE INDEX ready_lane ON {schema}.ready (rate_key, lane, head, priority DESC, tag NULLS FIRST, place) WHERE bounds IS NOT NULL;
CREATE INDEX ready_fair_key ON {schema}.ready (queue, priority, fair_key, (-place)) WHERE fair_key IS NOT NULL;

-- Claims of jobs with a key: the greatest tag, and the greatest finish tag. The virtual time of a queue and priority is the greatest
-- tag there, and a key was charged up to its greatest finish tag.
DELETE FROM {schema}.served;
DROP INDEX {schema}.served_place;
ALTER TABLE {schema}.served RENAME COLUMN place TO tag;
ALTER TABLE {schema}.served ADD COLUMN fair_key text NOT NULL COLLATE "C", ADD COLUMN finish bigint NOT NULL;
CREATE INDEX served_tag ON {schema}.served (queue, priority, tag);
CREATE INDEX served_finish ON {schema}.served (queue, priority, fair_key, finish);

-- The start tag that a job with a key takes in a place. A claim that commits meanwhile moves its jobs from ready to served.
CREATE FUNCTION {schema}.start_tag(of_queue text, of_priority integer, of_key text, before bigint) RETURNS bigint
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	last    bigint; -- the finish tag of the job of the key before the place
	virtual bigint;
	charged bigint;
BEGIN
	SELECT tag + 1048576 / share INTO last FROM {schema}.ready
		WHERE queue = of_queue AND priority = of_priority AND fair_key = of_key AND -place > -before ORDER BY -place LIMIT 1;
	SELECT tag INTO virtual FROM {schema}.served
		WHERE queue = of_queue AND priority = of_priority ORDER BY tag DESC LIMIT 1;
	SELECT finish INTO charged FROM {schema}.served
		WHERE queue = of_queue AND priority = of_priority AND fair_key = of_key ORDER BY finish DESC LIMIT 1;
	RETURN greatest(1, last, virtual, charged);
END $$;

-- A job with a key that becomes available takes a start tag. The transaction has locked the queue (fair.go).
CREATE FUNCTION {schema}.take_tag() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	NEW.tag := {schema}.start_tag(NEW.queue, NEW.priority, NEW.fair_key, NEW.place);
	RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION {schema}.enter_lane() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	plain CONSTANT text := '^\{"Key":"[^"\\]*","Concurrency":(-?[0-9]{1,9})\}$'; -- bounds of concurrency alone
	noted text; -- the key that the transaction has noted last
BEGIN
	NEW.lane := hashtextextended(concat_ws(E'\n', NEW.queue, NEW.type, NEW.bounds), 0);
	NEW.most := CASE WHEN NEW.bounds ~ plain THEN greatest(0, substring(NEW.bounds FROM plain)::integer) END;
	NEW.head := coalesce((SELECT (r.priority, -coalesce(r.tag, 0), -r.place)
			< (NEW.priority, -coalesce(NEW.tag, 0), -NEW.place) FROM {schema}.ready r
		WHERE r.rate_key = NEW.rate_key AND r.lane = NEW.lane AND r.bounds IS NOT NULL AND r.head
		ORDER BY r.priority, r.tag DESC NULLS LAST, r.place DESC LIMIT 1), false);
	noted := concat_ws(' ', '{name}', pg_current_xact_id(), NEW.rate_key);
	IF current_setting('ojs.noted', true) IS DISTINCT FROM noted THEN
		INSERT INTO {schema}.job_judge VALUES (NEW.rate_key);
		PERFORM set_config('ojs.noted', noted, true);
	END IF;
	RETURN NEW;
END $$;

-- The trigger wait_in_lane comes after it: the tag decides about heads.
CREATE TRIGGER take_tag BEFORE INSERT ON {schema}.ready FOR EACH ROW
	WHEN (NEW.fair_key IS NOT NULL AND NEW.tag IS NULL) EXECUTE FUNCTION {schema}.take_tag();
