-- Until when a job was kept that pruning has released. If the clock goes back, pruning keeps the job again. NULL: the job was
-- never kept, is kept, or was released before this version.
ALTER TABLE {schema}.job ADD COLUMN released bigint;
ALTER TABLE {schema}.quarantined_job ADD COLUMN released bigint;
CREATE INDEX job_released ON {schema}.job (released, seq) WHERE released IS NOT NULL;
