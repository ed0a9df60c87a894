-- To prune: in the order of finished, which is not that of place where clocks differ, or go back.
DROP INDEX job_ended;
CREATE INDEX job_ended ON job (state, finished, place) WHERE state >= 6 AND dead IS NULL AND kept IS NULL;
DROP INDEX job_dead_prunable;
CREATE INDEX job_dead_prunable ON job (finished, place) WHERE dead IS NOT NULL AND kept IS NULL;
