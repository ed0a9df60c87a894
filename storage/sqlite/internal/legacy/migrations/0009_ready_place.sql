-- The place that the job had while it was available, which it has again if its claim is undone. NULL: it has not been claimed by
-- this version.
ALTER TABLE job ADD COLUMN ready_place INTEGER;
ALTER TABLE quarantined_job ADD COLUMN ready_place INTEGER;

-- How often a job has become available in a place that claims may have passed, or has changed there.
ALTER TABLE counter ADD COLUMN behind INTEGER NOT NULL DEFAULT 0;
