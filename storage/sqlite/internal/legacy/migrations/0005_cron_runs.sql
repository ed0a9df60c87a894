-- When a recurring job runs next, in nanoseconds, by what its entry says: to find those that are due. NULL: never, or the entry
-- does not decode.
ALTER TABLE cron ADD COLUMN next_run INTEGER GENERATED ALWAYS AS (
	CASE WHEN json_valid(CAST(entry AS TEXT)) THEN
		max(min(unixepoch(substr(json_extract(CAST(entry AS TEXT), '$.NextRun'), 1, 19)), 9223372035), -9223372035) * 1000000000
		+ CASE WHEN instr(json_extract(CAST(entry AS TEXT), '$.NextRun'), '.') = 20
			THEN CAST(substr(rtrim(substr(json_extract(CAST(entry AS TEXT), '$.NextRun'), 21), 'Z') || '000000000', 1, 9) AS INTEGER)
			ELSE 0 END
	END
) VIRTUAL;

CREATE INDEX cron_runs ON cron (next_run, name) WHERE next_run IS NOT NULL;

-- The latest version that an entry has been given, so that none comes twice.
CREATE TABLE cron_version (n INTEGER NOT NULL) STRICT;
INSERT INTO cron_version SELECT coalesce(max(version), 0) FROM cron;
