-- The type of a job with a version is type@version, as claims tell versions apart. Programs of older versions name types without it.
UPDATE {schema}.migration SET oldest = {version} WHERE version = {before};

CREATE FUNCTION {schema}.version_in(document bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN pg_catalog.convert_from(document, 'UTF8')::pg_catalog.jsonb OPERATOR(pg_catalog.->>) 'type_version';
EXCEPTION WHEN others THEN
	RETURN NULL;
END $$;

UPDATE {schema}.stage s SET type = type || '@' || {schema}.version_in(b.job) FROM {schema}.job b
	WHERE b.seq = s.seq AND position('"type_version":'::bytea IN b.job) > 0 AND {schema}.version_in(b.job) <> '' AND position('@' IN type) = 0;
UPDATE {schema}.quarantined_job SET type = type || '@' || {schema}.version_in(job)
	WHERE position('"type_version":'::bytea IN job) > 0 AND {schema}.version_in(job) <> '' AND position('@' IN type) = 0;

DROP FUNCTION {schema}.version_in;
