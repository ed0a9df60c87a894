-- Jobs are counted by type, too. Programs of older versions would count without.
UPDATE {schema}.migration SET oldest = {version} WHERE version = {before};

-- No program writes between the count and the end.
LOCK TABLE {schema}.job, {schema}.stage, {schema}.tally IN ACCESS EXCLUSIVE MODE;

TRUNCATE {schema}.tally;
ALTER TABLE {schema}.tally ADD COLUMN type text NOT NULL COLLATE "C";
INSERT INTO {schema}.tally
	SELECT queue, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END, count(*), type FROM {schema}.stage GROUP BY 1, 2, 3, 5;

CREATE OR REPLACE FUNCTION {schema}.count_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.tally
		SELECT queue, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END, pg_catalog.count(*), type FROM added GROUP BY 1, 2, 3, 5;
	RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION {schema}.count_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.tally
		SELECT queue, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END, -pg_catalog.count(*), type FROM removed GROUP BY 1, 2, 3, 5;
	RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION {schema}.count_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.tally
		SELECT queue, state, dead, pg_catalog.sum(n), type FROM (
			SELECT queue, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END AS dead, 1 AS n, type FROM added
			UNION ALL
			SELECT queue, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END, -1, type FROM removed
		) moved GROUP BY 1, 2, 3, 5 HAVING pg_catalog.sum(n) <> 0;
	RETURN NULL;
END $$;

-- The workflow that the document of a job names, and the type of the error in an outcome, as far as an index has room. A document
-- with a character that no text has is read without it, and else by a pattern; '' is an error type that the pattern does not find.
CREATE FUNCTION {schema}.workflow_of(document bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog AS $$
BEGIN
	RETURN left(convert_from(document, 'UTF8')::jsonb #>> '{meta,workflow_id}', 255);
EXCEPTION WHEN others THEN
	BEGIN
		RETURN left(replace(convert_from(document, 'UTF8'), '\u0000', '\ufffd')::jsonb #>> '{meta,workflow_id}', 255);
	EXCEPTION WHEN others THEN
		RETURN left(substring(encode(document, 'escape') FROM '"workflow_id":"([^"\\]*)"'), 255);
	END;
END $$;

CREATE FUNCTION {schema}.error_of(outcome bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog AS $$
BEGIN
	RETURN left(convert_from(outcome, 'UTF8')::jsonb #>> '{error,Type}', 255);
EXCEPTION WHEN others THEN
	RETURN coalesce(left(substring(encode(outcome, 'escape') FROM '^\{"error":\{"Attempt":[-0-9]*,"At":"[^"]*","Type":"([^"\\]*)"'), 255), '');
END $$;

-- To list the jobs of rare states by queue and type: as inserted, by when they are due, and the latest end first. The tally says
-- which queues and types there are. seq + 0 keeps the planner from these indexes where it looks for a job by its seq.
CREATE INDEX waiting_inserted ON {schema}.waiting (state, queue, type, (seq + 0));
CREATE INDEX waiting_due ON {schema}.waiting (state, queue, type, wake, place) WHERE wake IS NOT NULL;
CREATE INDEX done_inserted ON {schema}.done (state, queue, type, (seq + 0)) WHERE state > 6;
CREATE INDEX done_finished ON {schema}.done (state, queue, type, (coalesce(finished, -9223372036854775808)), place) WHERE state > 6;
CREATE INDEX done_dead_of ON {schema}.done (queue, type, (place + 0)) WHERE dead IS NOT NULL;

-- Jobs that are kept, by the latest end, have a part for each state and for dead letters, as others have.
DROP INDEX {schema}.done_kept_finished;
CREATE INDEX done_kept_finished ON {schema}.done (state, num_nonnulls(dead), finished NULLS FIRST, place) WHERE kept IS NOT NULL;

-- Failures by the type of their error, the jobs of workflows, and the records of workflows.
CREATE INDEX done_failed ON {schema}.done (({schema}.error_of(outcome) COLLATE "C"), (coalesce(finished, -9223372036854775808)), place)
	WHERE state = 8;
CREATE INDEX job_workflow ON {schema}.job (({schema}.workflow_of(job) COLLATE "C"), (seq + 0)) WHERE position('"workflow_id"'::bytea IN job) > 0;
CREATE INDEX job_keeper ON {schema}.job ((CASE WHEN {schema}.workflow_of(job) COLLATE "C" = id THEN seq END))
	WHERE position('"workflow_id"'::bytea IN job) > 0;
