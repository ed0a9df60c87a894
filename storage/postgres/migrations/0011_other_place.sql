-- Of an active job the place that it had in its queue, so that a claim which is undone gives it back. Of an available job whose claim
-- was undone the place that it has among jobs that wait for the same time. NULL: it has one place.
ALTER TABLE {schema}.job ADD COLUMN other_place bigint;
ALTER TABLE {schema}.quarantined_job ADD COLUMN other_place bigint;

-- What comes due, in the words of the statement that looks for it.
DROP INDEX {schema}.job_wake;
CREATE INDEX job_wake ON {schema}.job (wake, (CASE WHEN state = 3 THEN coalesce(other_place, place) ELSE place END)) WHERE wake IS NOT NULL;
