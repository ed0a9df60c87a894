-- Jobs of a queue and priority take turns by their fairness key. Programs of older versions would not give their jobs turns, and not
-- note of which round they claim.
UPDATE {schema}.migration SET oldest = {version} WHERE version = {before};

-- The fairness key of the job, and how many jobs of the key have a place in a round. NULL: the job has no key.
ALTER TABLE {schema}.stage ADD COLUMN fair_key text COLLATE "C", ADD COLUMN share integer;
ALTER TABLE {schema}.quarantined_job ADD COLUMN fair_key text COLLATE "C", ADD COLUMN share integer;

-- A job with a key that is available has the place of its round in place, and its own here. It keeps its own while it is active.
-- NULL: the job has one place, or none in a round.
ALTER TABLE {schema}.stage ADD COLUMN own_place bigint;
ALTER TABLE {schema}.quarantined_job ADD COLUMN own_place bigint;

-- To claim, by rounds.
DROP INDEX {schema}.ready_order;
CREATE INDEX ready_order ON {schema}.ready (queue, priority DESC, place, own_place NULLS FIRST);
DROP INDEX {schema}.ready_all;
CREATE INDEX ready_all ON {schema}.ready (priority DESC, place, own_place NULLS FIRST) WHERE attempt >= 0;
DROP INDEX {schema}.ready_key;
CREATE INDEX ready_key ON {schema}.ready (rate_key, priority DESC, place, own_place NULLS FIRST) WHERE rate_key IS NOT NULL;
DROP INDEX {schema}.ready_bounds;
CREATE INDEX ready_bounds ON {schema}.ready (bounds, priority DESC, place, own_place NULLS FIRST) WHERE bounds IS NOT NULL;

-- The rounds of a queue and priority, and those of each key, the latest first. The orders and conditions are such that no other index
-- looks as good to the planner.
CREATE INDEX ready_round ON {schema}.ready (queue, priority, (-place)) WHERE own_place IS NOT NULL;
CREATE INDEX ready_fair_key ON {schema}.ready (queue, priority, fair_key, (-place)) WHERE fair_key IS NOT NULL;

-- Rounds of which jobs were claimed. Of a queue and priority the latest counts, while jobs with a key are available there.
CREATE TABLE {schema}.served (
	queue    text    NOT NULL COLLATE "C",
	priority integer NOT NULL,
	place    bigint  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX served_place ON {schema}.served (queue, priority, place);

-- A job with a key that becomes available joins a round, or begins one in its place. The transaction has locked the queue (fair.go).
CREATE FUNCTION {schema}.take_turn() RETURNS trigger LANGUAGE plpgsql
	SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	past  bigint := 0; -- the latest round that was served
	last  bigint := 0; -- the latest round of the key
	n     bigint := 0; -- and how many of its jobs are there
	joins bigint;
BEGIN
	NEW.own_place := NEW.place;
	NEW.other_place := NEW.place;
	PERFORM FROM {schema}.ready WHERE queue = NEW.queue AND priority = NEW.priority AND own_place IS NOT NULL
		ORDER BY -place LIMIT 1;
	IF NOT FOUND THEN
		DELETE FROM {schema}.served WHERE queue = NEW.queue AND priority = NEW.priority;
		RETURN NEW;
	END IF;
	SELECT place INTO past FROM {schema}.served WHERE queue = NEW.queue AND priority = NEW.priority
		ORDER BY place DESC LIMIT 1;
	past := coalesce(past, 0);
	FOR joins IN SELECT place FROM {schema}.ready
		WHERE queue = NEW.queue AND priority = NEW.priority AND fair_key = NEW.fair_key
		ORDER BY -place LIMIT NEW.share
	LOOP
		EXIT WHEN n > 0 AND joins <> last;
		last := joins;
		n := n + 1;
	END LOOP;
	IF last > past AND n < NEW.share THEN
		NEW.place := last;
		RETURN NEW;
	END IF;
	SELECT place INTO joins FROM {schema}.ready
		WHERE queue = NEW.queue AND priority = NEW.priority AND own_place IS NOT NULL AND -place < -greatest(last, past)
		ORDER BY -place DESC LIMIT 1;
	NEW.place := coalesce(joins, NEW.place);
	RETURN NEW;
END $$;

CREATE TRIGGER take_turn BEFORE INSERT ON {schema}.ready FOR EACH ROW
	WHEN (NEW.fair_key IS NOT NULL AND NEW.own_place IS NULL) EXECUTE FUNCTION {schema}.take_turn();
