-- Small values by their keys: what engines tell each other that is about no job. They cease to exist at expires, in nanoseconds since
-- 1970; the largest bigint: never.
CREATE TABLE {schema}.value (
	key     text   PRIMARY KEY COLLATE "C",
	data    bytea  NOT NULL,
	expires bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX value_expires ON {schema}.value (expires);
