-- Recurring jobs and values are documents. Programs of older versions would look for them elsewhere.
UPDATE {schema}.migration SET oldest = {version} WHERE version = {before};

-- Small documents by their kind and name. due is in nanoseconds since 1970; NULL: never.
CREATE TABLE {schema}.document (
	kind    text   NOT NULL COLLATE "C",
	name    text   NOT NULL COLLATE "C",
	version bigint NOT NULL,
	due     bigint,
	data    bytea  NOT NULL,
	PRIMARY KEY (kind, name)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX document_due ON {schema}.document (kind, due, name) WHERE due IS NOT NULL;

-- No program writes between the copy and the end.
LOCK TABLE {schema}.cron, {schema}.value IN ACCESS EXCLUSIVE MODE;

ALTER SEQUENCE {schema}.cron_version RENAME TO document_version;
INSERT INTO {schema}.document SELECT 'cron', name, version, next_run, entry FROM {schema}.cron;
INSERT INTO {schema}.document
	SELECT 'value', key, nextval('{schema}.document_version'), nullif(expires, 9223372036854775807), data FROM {schema}.value;
DROP TABLE {schema}.cron, {schema}.value;
DROP FUNCTION {schema}.next_run(bytea);
