-- Until when a job was kept that pruning has released. If the clock goes back, pruning keeps the job again. NULL: the job was
-- never kept, is kept, or was released before this version.
ALTER TABLE job ADD COLUMN released INTEGER;
ALTER TABLE quarantined_job ADD COLUMN released INTEGER;
CREATE INDEX job_released ON job (released) WHERE released IS NOT NULL;
