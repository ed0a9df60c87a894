-- To claim from all queues. The columns after place are for jobs that a claim passes over.
CREATE INDEX job_ready_all ON job (priority DESC, place, queue, type, rate_key, wake) WHERE state = 3;

-- The first job of a rate limit key: a claim that has passed over a key comes back to it when it opens.
CREATE INDEX job_key ON job (rate_key, priority DESC, place, queue, type, wake) WHERE state = 3 AND rate_key IS NOT NULL;
