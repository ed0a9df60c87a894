GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT EXECUTE ON FUNCTION {schema}.workflow_of(bytea), {schema}.error_of(bytea) TO {role};
GRANT SELECT ON {schema}.migration, {schema}.queue_state, {schema}.quarantine, {schema}.document, {schema}.job_limit TO {role};
GRANT SELECT, INSERT ON {schema}.tally TO {role};
GRANT SELECT, INSERT ON {schema}.job, {schema}.stage, {schema}.ready TO {role};
GRANT SELECT ON {schema}.done, {schema}.waiting, {schema}.active TO {role};
GRANT USAGE ON SEQUENCE {schema}.place TO {role};
-- For unique jobs and bounded queues, which lock jobs and end some of them. A role that enqueues neither does without.
GRANT UPDATE ON {schema}.job, {schema}.stage TO {role};
GRANT DELETE ON {schema}.stage TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.name_lock TO {role};
-- For jobs that wait for others, which need the same, and for jobs that end while others wait for them.
GRANT SELECT, INSERT, DELETE ON {schema}.edge TO {role};
-- For jobs with an ordering key, which need the same, and for such jobs that end.
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.line TO {role};
-- For jobs with a rate limit.
GRANT SELECT, INSERT ON {schema}.job_judge TO {role};
-- For jobs with a fairness key.
GRANT SELECT, DELETE ON {schema}.served TO {role};
