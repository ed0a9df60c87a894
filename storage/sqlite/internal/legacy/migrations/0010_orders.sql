-- To list what has ended, the latest first: those that are kept. The others are in job_ended and job_dead_prunable.
CREATE INDEX job_kept_finished ON job (finished, place) WHERE kept IS NOT NULL;
