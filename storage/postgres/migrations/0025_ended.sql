-- Jobs that have ended are walked by the time of their end in one expression, as failed ones are. Programs of older versions would
-- find no index.
UPDATE {schema}.migration SET oldest = {version} WHERE version = {before};

DROP INDEX {schema}.done_ended;
CREATE INDEX done_ended ON {schema}.done (state, num_nonnulls(dead), (coalesce(finished, -9223372036854775808)), place) WHERE kept IS NULL;
DROP INDEX {schema}.done_kept_finished;
CREATE INDEX done_kept_finished ON {schema}.done (state, num_nonnulls(dead), (coalesce(finished, -9223372036854775808)), place)
	WHERE kept IS NOT NULL;

-- The quarantine has each column of stage.
ALTER TABLE {schema}.quarantined_job ADD COLUMN limited boolean;

-- The end of the setting of a key that a claim has found ended while jobs of the key wait: a claim with an earlier clock judges the
-- key again.
ALTER TABLE {schema}.job_limit ADD COLUMN ended bigint;
CREATE INDEX job_limit_ended ON {schema}.job_limit (ended) WHERE ended IS NOT NULL;
