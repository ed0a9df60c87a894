-- The oldest version of the schema that a program may be written for and run beside this one. NULL: any.
ALTER TABLE {schema}.migration ADD COLUMN oldest integer;

-- Functions name the schema of what they call, so that no search_path puts another function in its place.
CREATE OR REPLACE FUNCTION {schema}.count_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.tally
		SELECT queue, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END, pg_catalog.count(*) FROM added GROUP BY 1, 2, 3;
	RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION {schema}.count_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.tally
		SELECT queue, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END, -pg_catalog.count(*) FROM removed GROUP BY 1, 2, 3;
	RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION {schema}.count_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.tally
		SELECT queue, state, dead, pg_catalog.sum(n) FROM (
			SELECT queue, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END AS dead, 1 AS n FROM added
			UNION ALL
			SELECT queue, state, CASE WHEN kept IS NULL THEN dead IS NOT NULL END, -1 FROM removed
		) moved GROUP BY 1, 2, 3 HAVING pg_catalog.sum(n) <> 0;
	RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION {schema}.readable(document bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN pg_catalog.convert_from(document, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
	RETURN pg_catalog.encode(document, 'escape');
END $$;
