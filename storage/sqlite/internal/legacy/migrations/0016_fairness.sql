-- The key by which jobs of a queue and priority take turns. NULL: the job has none.
ALTER TABLE job ADD COLUMN fair_key TEXT;
ALTER TABLE quarantined_job ADD COLUMN fair_key TEXT;

-- An available job with a key has the place of its round in place, and its own in own_place. 0: it has one place.
ALTER TABLE job ADD COLUMN own_place INTEGER NOT NULL DEFAULT 0;
ALTER TABLE quarantined_job ADD COLUMN own_place INTEGER NOT NULL DEFAULT 0;

-- To claim, by rounds. The columns after own_place are for jobs that a claim passes over.
DROP INDEX job_ready;
CREATE INDEX job_ready ON job (queue, priority DESC, place, own_place, type, rate_key, wake, bounds) WHERE state = 3;
DROP INDEX job_ready_all;
CREATE INDEX job_ready_all ON job (priority DESC, place, own_place, queue, type, rate_key, wake, bounds) WHERE state = 3;
DROP INDEX job_key;
CREATE INDEX job_key ON job (rate_key, priority DESC, place, own_place, queue, type, wake, bounds)
	WHERE state = 3 AND rate_key IS NOT NULL;
DROP INDEX job_bounds;
CREATE INDEX job_bounds ON job (bounds, priority DESC, place, own_place, queue, type, rate_key, wake)
	WHERE state = 3 AND bounds IS NOT NULL;

-- What comes due. Rounds do not matter here, and own_place is never after the place of a job that is not available.
DROP INDEX job_wake;
CREATE INDEX job_wake ON job (wake, max(place, own_place)) WHERE wake IS NOT NULL;

-- The rounds of a queue and priority, and those of each key.
CREATE INDEX job_round ON job (queue, priority, place, fair_key) WHERE state = 3 AND fair_key IS NOT NULL;
CREATE INDEX job_fair_key ON job (queue, priority, fair_key, place) WHERE state = 3 AND fair_key IS NOT NULL;

-- The place of the latest round of which a job was claimed. It counts while jobs with a key are available.
CREATE TABLE served (
	queue    TEXT NOT NULL,
	priority INTEGER NOT NULL,
	place    INTEGER NOT NULL,
	PRIMARY KEY (queue, priority)
) STRICT, WITHOUT ROWID;
