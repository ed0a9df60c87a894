-- What a job that was stored with DependsOn waits for, as JSON: the condition, and how many jobs have yet to end and have failed.
-- NULL: it was stored without.
ALTER TABLE job ADD COLUMN depends BLOB;
ALTER TABLE quarantined_job ADD COLUMN depends BLOB;

-- 1: edges may lead from the job, which has not ended.
ALTER TABLE job ADD COLUMN awaited INTEGER;
ALTER TABLE quarantined_job ADD COLUMN awaited INTEGER;

-- From a job that has not ended to one that waits for it. Both are the seq of a job.
CREATE TABLE edge (
	dependency INTEGER NOT NULL,
	waiting    INTEGER NOT NULL,
	PRIMARY KEY (dependency, waiting)
) STRICT, WITHOUT ROWID;
