-- Until when an ended job is kept for its unique policy, and not pruned. NULL: it is not, or not any more. Jobs that were stored
-- before are not.
ALTER TABLE {schema}.job ADD COLUMN kept bigint;

-- What is kept no longer.
CREATE INDEX job_kept ON {schema}.job (kept) WHERE state >= 6 AND kept IS NOT NULL;

-- To prune: what finished first and is not kept, dead letters (1) apart from others (0). A function tells them apart so that
-- job_dead, which has those that are kept too, does not look as good to the planner.
DROP INDEX {schema}.job_ended;
CREATE INDEX job_ended ON {schema}.job (state, num_nonnulls(dead), place) WHERE state >= 6 AND kept IS NULL;

-- Kept jobs are counted apart from others: dead is NULL, which it is for none else. A process of an older version, which does not
-- know of them, does not count them for pruning then, and sums them up by themselves.
ALTER TABLE {schema}.tally ALTER COLUMN dead DROP NOT NULL;

CREATE OR REPLACE FUNCTION {schema}.count_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.tally
		SELECT queue, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END, count(*) FROM added GROUP BY 1, 2, 3;
	RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION {schema}.count_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.tally
		SELECT queue, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END, -count(*) FROM removed GROUP BY 1, 2, 3;
	RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION {schema}.count_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.tally
		SELECT queue, state, dead, sum(n) FROM (
			SELECT queue, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END AS dead, 1 AS n FROM added
			UNION ALL
			SELECT queue, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END, -1 FROM removed
		) moved GROUP BY 1, 2, 3 HAVING sum(n) <> 0;
	RETURN NULL;
END $$;
