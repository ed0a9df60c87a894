-- Jobs that have ended are kept for the period of their unique policy. Pruning neither selects nor counts them, and there may be
-- so many that it must not meet them either: they are in none of the indexes that it selects from, and in a class of their own in
-- the tally. Those that had ended before this version are not kept.

-- Until when the job is kept. NULL: it has not ended, or it is not kept, or pruning has found that the time has come.
ALTER TABLE job ADD COLUMN kept INTEGER;

-- What need not be kept any more.
CREATE INDEX job_kept ON job (kept) WHERE kept IS NOT NULL;

-- To prune: what finished first. job_dead stays for the list of dead letters, which has those that are kept too.
DROP INDEX job_ended;
CREATE INDEX job_ended ON job (state, place, finished) WHERE state >= 6 AND dead IS NULL AND kept IS NULL;
CREATE INDEX job_dead_prunable ON job (place, finished) WHERE dead IS NOT NULL AND kept IS NULL;

-- 1: dead letters, 2: kept ones, 3: both. A program that does not know of it and has the file open cannot write any more: it would
-- count wrongly.
ALTER TABLE tally RENAME COLUMN dead TO class;
