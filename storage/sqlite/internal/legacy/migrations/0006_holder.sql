-- The processes that have the file open and hold a lock on a file of their own beside it, by which others see that they live.
CREATE TABLE holder (
	id   INTEGER PRIMARY KEY AUTOINCREMENT, -- never given out twice
	name TEXT NOT NULL                      -- how the name of the file ends
) STRICT;

-- Who claimed the job for an attempt that ends with its process. NULL: it may go on without it.
ALTER TABLE job ADD COLUMN holder INTEGER;
CREATE INDEX job_holder ON job (holder) WHERE state = 4 AND holder IS NOT NULL;
