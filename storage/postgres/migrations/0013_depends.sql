-- Jobs that wait for others. Programs of older versions would end jobs without counting them.
UPDATE {schema}.migration SET oldest = {version} WHERE version = {before};

-- What a job that was stored with DependsOn waits for, as JSON: the condition, and how many jobs have yet to end and have failed.
-- NULL: it was stored without.
ALTER TABLE {schema}.job ADD COLUMN depends bytea;

-- True: edges may lead from the job, which has not ended.
ALTER TABLE {schema}.stage ADD COLUMN awaited boolean;
CREATE INDEX stage_awaited ON {schema}.stage (seq) WHERE awaited;

ALTER TABLE {schema}.quarantined_job ADD COLUMN depends bytea, ADD COLUMN awaited boolean;

-- From a job that has not ended to one that waits for it. Both are the seq of a job.
CREATE TABLE {schema}.edge (
	dependency bigint NOT NULL,
	waiting    bigint NOT NULL,
	PRIMARY KEY (dependency, waiting)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
