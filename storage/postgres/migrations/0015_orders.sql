-- To list what has ended, the latest first: what is kept. done_ended has the rest.
CREATE INDEX done_kept_finished ON {schema}.done (finished NULLS FIRST, place) WHERE kept IS NOT NULL;
