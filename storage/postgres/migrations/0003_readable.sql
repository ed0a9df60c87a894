-- Documents may hold what text may not: bytes that are not UTF-8. The view, which failed on the first such job, shows its documents
-- with those bytes escaped.
CREATE FUNCTION {schema}.readable(document bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN convert_from(document, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
	RETURN encode(document, 'escape');
END $$;

CREATE OR REPLACE VIEW {schema}.jobs AS SELECT
	id, queue, type,
	(ARRAY['pending', 'scheduled', 'available', 'active', 'retryable', 'completed', 'cancelled', 'discarded'])[state] AS state,
	priority, attempt,
	to_timestamp(created / 1e9) AS created_at,
	to_timestamp(wake / 1e9) AS wakes_at,
	to_timestamp(started / 1e9) AS started_at,
	to_timestamp(finished / 1e9) AS finished_at,
	to_timestamp(dead / 1e9) AS dead_lettered_at,
	progress, worker,
	{schema}.readable(coalesce(args, 'null')) COLLATE "C" AS args,
	{schema}.readable(job) COLLATE "C" AS job,
	{schema}.readable(outcome) COLLATE "C" AS outcome,
	{schema}.readable(checkpoint) COLLATE "C" AS checkpoint
FROM {schema}.job;
