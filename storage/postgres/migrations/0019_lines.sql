-- Jobs that take turns by their ordering key. Programs of older versions would end such jobs without giving the turn on.
UPDATE {schema}.migration SET oldest = {version} WHERE version = {before};

-- The jobs that were stored with an ordering key and have not ended, by seq.
CREATE TABLE {schema}.line (
	seq   bigint  NOT NULL PRIMARY KEY,
	key   text    NOT NULL COLLATE "C",
	waits boolean NOT NULL -- true: the job is in line; false: it has the turn of its key
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- The job that has the turn of a key, or else the first in line.
CREATE INDEX line_key ON {schema}.line (key, waits, seq);
