-- What the version of this package with two migrations stored: package internal/test/upgradetest says what it is.

DELETE FROM counter;
INSERT INTO job (seq, id, queue, type, state, priority, attempt, version, place, wake, deadline, created, enqueued, started, next_retry, finished, dead, lease_until, lease, progress, worker, fingerprint, rate_key, args, job, outcome, checkpoint, kept) VALUES
	(1, '01890a5d-ac96-774b-bcce-000000000006', 'work', 'x', 6, 0, 1, 3, 3, NULL, NULL, 1767312000000000000, 1767312000000000000, 1767312000000000000, NULL, 1767312000000000000, NULL, 1767312060000000000, 60000000000, 0.0, 'old', NULL, NULL, CAST('{"n":6}' AS BLOB), CAST('{"meta":{"n":6},"retry":{"MaxAttempts":0,"InitialInterval":0,"BackoffCoefficient":0,"MaxInterval":0},"timeout":60000000000}' AS BLOB), NULL, NULL, NULL),
	(2, '01890a5d-ac96-774b-bcce-000000000007', 'work', 'x', 6, 0, 1, 3, 6, NULL, NULL, 1767312000000000000, 1767312000000000000, 1767312000000000000, NULL, 1767312000000000000, NULL, 1767312060000000000, 60000000000, 0.0, 'old', 'f7', NULL, CAST('{"n":7}' AS BLOB), CAST('{"meta":{"n":7},"retry":{"MaxAttempts":0,"InitialInterval":0,"BackoffCoefficient":0,"MaxInterval":0},"timeout":60000000000,"unique":{"Period":86400000000000,"States":["scheduled","available","pending","active","retryable","completed","cancelled","discarded"]}}' AS BLOB), CAST('{"result":42}' AS BLOB), NULL, 1767398400000000000),
	(3, '01890a5d-ac96-774b-bcce-000000000008', 'work', 'x', 8, 0, 1, 3, 9, NULL, NULL, 1767312000000000000, 1767312000000000000, 1767312000000000000, NULL, 1767312000000000000, 1767312000000000000, 1767312060000000000, 60000000000, 0.0, 'old', NULL, NULL, CAST('{"n":8}' AS BLOB), CAST('{"meta":{"n":8},"retry":{"MaxAttempts":0,"InitialInterval":0,"BackoffCoefficient":0,"MaxInterval":0},"timeout":60000000000}' AS BLOB), NULL, NULL, NULL),
	(4, '01890a5d-ac96-774b-bcce-00000000000b', 'work', 'x', 7, 0, 1, 3, 12, NULL, NULL, 1767312000000000000, 1767312000000000000, 1767312000000000000, NULL, 1767312000000000000, NULL, 1767312060000000000, 60000000000, 0.0, 'old', NULL, NULL, CAST('{"n":11}' AS BLOB), CAST('{"meta":{"n":11},"retry":{"MaxAttempts":0,"InitialInterval":0,"BackoffCoefficient":0,"MaxInterval":0},"timeout":60000000000}' AS BLOB), NULL, NULL, NULL),
	(5, '01890a5d-ac96-774b-bcce-000000000005', 'work', 'x', 5, 0, 1, 3, 15, 1767312600000000000, NULL, 1767312000000000000, 1767312000000000000, 1767312000000000000, 1767312600000000000, NULL, NULL, 1767312060000000000, 60000000000, 0.0, 'old', NULL, NULL, CAST('{"n":5}' AS BLOB), CAST('{"meta":{"n":5},"retry":{"MaxAttempts":0,"InitialInterval":0,"BackoffCoefficient":0,"MaxInterval":0},"timeout":60000000000}' AS BLOB), CAST('{"error":{"Attempt":1,"At":"2026-01-02T00:00:00Z","Type":"boom","Message":"it broke","Code":"RETRY"},"errors":[{"Attempt":1,"At":"2026-01-02T00:00:00Z","Type":"boom","Message":"it broke","Code":"RETRY"}]}' AS BLOB), NULL, NULL),
	(6, '01890a5d-ac96-774b-bcce-000000000004', 'work', 'x', 4, 0, 1, 2, 18, 1767312060000000000, NULL, 1767312000000000000, 1767312000000000000, 1767312000000000000, NULL, NULL, NULL, 1767312060000000000, 60000000000, 0.5, 'old', NULL, NULL, CAST('{"n":4}' AS BLOB), CAST('{"meta":{"n":4},"retry":{"MaxAttempts":0,"InitialInterval":0,"BackoffCoefficient":0,"MaxInterval":0},"timeout":60000000000}' AS BLOB), NULL, CAST('{"at":5}' AS BLOB), NULL),
	(7, '01890a5d-ac96-774b-bcce-000000000001', 'work', 'x', 3, 0, 0, 1, 19, NULL, NULL, 1767312000000000000, 1767312000000000000, NULL, NULL, NULL, NULL, NULL, 60000000000, 0.0, '', NULL, NULL, CAST('{"n":1}' AS BLOB), CAST('{"meta":{"n":1},"retry":{"MaxAttempts":0,"InitialInterval":0,"BackoffCoefficient":0,"MaxInterval":0},"timeout":60000000000}' AS BLOB), NULL, NULL, NULL),
	(8, '01890a5d-ac96-774b-bcce-000000000002', 'work', 'x', 2, 0, 0, 1, 20, 1767315600000000000, NULL, 1767312000000000000, NULL, NULL, NULL, NULL, NULL, NULL, 60000000000, 0.0, '', NULL, NULL, CAST('{"n":2}' AS BLOB), CAST('{"meta":{"n":2},"scheduled_at":"2026-01-02T01:00:00Z","retry":{"MaxAttempts":0,"InitialInterval":0,"BackoffCoefficient":0,"MaxInterval":0},"timeout":60000000000}' AS BLOB), NULL, NULL, NULL),
	(9, '01890a5d-ac96-774b-bcce-000000000003', 'work', 'x', 1, 0, 0, 1, 21, NULL, NULL, 1767312000000000000, NULL, NULL, NULL, NULL, NULL, NULL, 60000000000, 0.0, '', NULL, NULL, CAST('{"n":3}' AS BLOB), CAST('{"meta":{"n":3},"retry":{"MaxAttempts":0,"InitialInterval":0,"BackoffCoefficient":0,"MaxInterval":0},"timeout":60000000000}' AS BLOB), NULL, NULL, NULL),
	(10, '01890a5d-ac96-774b-bcce-000000000009', 'work', 'x', 3, 0, 0, 1, 22, NULL, NULL, 1767312000000000000, 1767312000000000000, NULL, NULL, NULL, NULL, NULL, 60000000000, 0.0, '', 'f9', NULL, CAST('{"n":9}' AS BLOB), CAST('{"meta":{"n":9},"retry":{"MaxAttempts":0,"InitialInterval":0,"BackoffCoefficient":0,"MaxInterval":0},"timeout":60000000000,"unique":{"Period":86400000000000,"States":["scheduled","available","pending","active","retryable","completed","cancelled","discarded"]}}' AS BLOB), NULL, NULL, NULL),
	(11, '01890a5d-ac96-774b-bcce-00000000000a', 'paused', 'x', 3, 0, 0, 1, 23, NULL, NULL, 1767312000000000000, 1767312000000000000, NULL, NULL, NULL, NULL, NULL, 60000000000, 0.0, '', NULL, NULL, CAST('{"n":10}' AS BLOB), CAST('{"meta":{"n":10},"retry":{"MaxAttempts":0,"InitialInterval":0,"BackoffCoefficient":0,"MaxInterval":0},"timeout":60000000000}' AS BLOB), NULL, NULL, NULL),
	(12, '01890a5d-ac96-774b-bcce-00000000000c', 'work', 'x', 3, 5, 0, 1, 24, NULL, NULL, 1767312000000000000, 1767312000000000000, NULL, NULL, NULL, NULL, NULL, 60000000000, 0.0, '', NULL, 'k', CAST('{"n":12}' AS BLOB), CAST('{"meta":{"n":12},"retry":{"MaxAttempts":0,"InitialInterval":0,"BackoffCoefficient":0,"MaxInterval":0},"timeout":60000000000,"rate_limit":{"Key":"k","Concurrency":1}}' AS BLOB), NULL, NULL, NULL),
	(13, '01890a5d-ac96-774b-bcce-00000000000d', 'expires', 'x', 3, 0, 0, 1, 25, 1767313200000000000, 1767313200000000000, 1767312000000000000, 1767312000000000000, NULL, NULL, NULL, NULL, NULL, 60000000000, 0.0, '', NULL, NULL, CAST('{"n":13}' AS BLOB), CAST('{"meta":{"n":13},"expires_at":"2026-01-02T00:20:00Z","retry":{"MaxAttempts":0,"InitialInterval":0,"BackoffCoefficient":0,"MaxInterval":0},"timeout":60000000000}' AS BLOB), NULL, NULL, NULL);
INSERT INTO tally (queue, state, class, n) VALUES
	('expires', 3, 0, 1),
	('paused', 3, 0, 1),
	('work', 1, 0, 1),
	('work', 2, 0, 1),
	('work', 3, 0, 3),
	('work', 4, 0, 1),
	('work', 5, 0, 1),
	('work', 6, 0, 1),
	('work', 6, 2, 1),
	('work', 7, 0, 1),
	('work', 8, 1, 1);
INSERT INTO counter (seq, place) VALUES
	(13, 25);
INSERT INTO queue_state (queue, state) VALUES
	('paused', 'paused');
INSERT INTO cron (name, version, entry) VALUES
	('hourly', 2, CAST('{"Name":"hourly","Schedule":"0 * * * *","TimeZone":"UTC","Type":"x","Args":"null","CreatedAt":"2026-01-02T00:00:00Z","NextRun":"2026-01-02T01:00:00Z"}' AS BLOB));
