-- The first job of a rate limit key: a claim that has passed over a key comes back to it when it opens.
CREATE INDEX job_key ON {schema}.job (rate_key, priority DESC, place) WHERE state = 3 AND rate_key IS NOT NULL;
