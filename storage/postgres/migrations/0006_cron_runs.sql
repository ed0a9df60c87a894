-- When a recurring job runs next, in nanoseconds, by what its entry says. NULL: never, or the entry does not decode. Times
-- are those of UTC, so the result does not depend on the session.
CREATE FUNCTION {schema}.next_run(entry bytea) RETURNS bigint LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog AS $$
DECLARE
	t       text;
	seconds bigint;
BEGIN
	t := convert_from(entry, 'UTF8')::json ->> 'NextRun';
	IF t IS NULL THEN
		RETURN NULL;
	END IF;
	seconds := least(greatest(date_part('epoch', "left"(t, 19)::timestamp), -9223372035), 9223372035);
	RETURN seconds * 1000000000 + rpad(coalesce("substring"(t, '\.([0-9]{1,9})'), ''), 9, '0')::bigint;
EXCEPTION WHEN data_exception THEN
	RETURN NULL;
END $$;

ALTER TABLE {schema}.cron ADD COLUMN next_run bigint GENERATED ALWAYS AS ({schema}.next_run(entry)) STORED;

CREATE INDEX cron_runs ON {schema}.cron (next_run, name) WHERE next_run IS NOT NULL;

-- Versions of entries, so that none comes twice.
CREATE SEQUENCE {schema}.cron_version;
SELECT setval('{schema}.cron_version', max(version)) FROM {schema}.cron HAVING max(version) > 0;
