-- The place that the job had while it was available, which it has again if its claim is undone. NULL: it has not been claimed by
-- this version.
ALTER TABLE job ADD COLUMN ready_place INTEGER;
ALTER TABLE quarantined_job ADD COLUMN ready_place INTEGER;
