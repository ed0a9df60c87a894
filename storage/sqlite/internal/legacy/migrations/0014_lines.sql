-- The jobs that were stored with an ordering key and have not ended, by seq.
CREATE TABLE line (
	seq  INTEGER PRIMARY KEY,
	key  TEXT NOT NULL,
	turn INTEGER NOT NULL -- 1: the job has the turn of its key; 0: it is in line
) STRICT;

CREATE INDEX line_key ON line (key, turn, seq);
