-- To prune: in the order of finished, which is not that of place where clocks differ, or go back. See 0002 for the function.
DROP INDEX {schema}.job_ended;
CREATE INDEX job_ended ON {schema}.job (state, num_nonnulls(dead), finished NULLS FIRST, place) WHERE state >= 6 AND kept IS NULL;
