-- Small values by their keys: what engines tell each other that is about no job. They cease to exist at expires, in nanoseconds since
-- 1970; the largest integer: never.
CREATE TABLE value (
	key     TEXT PRIMARY KEY,
	data    BLOB NOT NULL,
	expires INTEGER NOT NULL
) STRICT;
CREATE INDEX value_expires ON value (expires);
