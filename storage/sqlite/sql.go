package sqlite

// Every statement of the package but those of the schema, in migrations.

// written are the columns that the record of a job gives.
const written = `seq, place, id, queue, type, state, priority, attempt, version, wake, deadline, created, enqueued,
	started, next_retry, finished, dead, lease_until, lease, progress, worker, fingerprint, rate_key, args, job, outcome, checkpoint,
	kept, bounds, fair_key, own_place`

const columns = written + `, depends, awaited`

const (
	dataVersion = `PRAGMA data_version`

	selectCounter = `SELECT seq, place, passed, changed, settings, forgotten FROM counter`
	updateCounter = `UPDATE counter SET seq = ?, place = ?, passed = ?, changed = ?, settings = ?, forgotten = ?`

	upsertTally = `INSERT INTO tally (queue, state, class, n) VALUES (?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET n = n + excluded.n`
	trimTally   = `DELETE FROM tally WHERE queue = ? AND state = ? AND class = ? AND n = 0`
	selectTally = `SELECT queue, state, sum(n) FROM tally GROUP BY queue, state`
	sumState    = `SELECT coalesce(sum(n), 0) FROM tally WHERE state = ? AND class = ?`
	sumDepth    = `SELECT coalesce(sum(n), 0) FROM tally WHERE queue = ? AND state < 6`

	insertJob = `INSERT INTO job (` + written + `)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	updateJob = `UPDATE job SET (` + written + `)
		= (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?), released = NULL WHERE seq = ?1`

	// updateAttempt writes the columns that attempts change.
	updateAttempt = `UPDATE job SET place = ?2, state = ?3, attempt = ?4, version = ?5, wake = ?6, enqueued = ?7, started = ?8,
		next_retry = ?9, finished = ?10, dead = ?11, lease_until = ?12, deadline = ?13, progress = ?14, worker = ?15, outcome = ?16,
		checkpoint = ?17, kept = ?18, released = NULL WHERE seq = ?1`

	selectHead  = `SELECT seq, place, state, version, queue, priority, dead, kept, awaited, fair_key, own_place FROM job WHERE id = ?`
	selectBySeq = `SELECT ` + columns + ` FROM job WHERE seq = ?`
	selectByID  = `SELECT ` + columns + ` FROM job WHERE id = ?`

	selectReady = `SELECT seq, priority, place, own_place, queue, type, rate_key, wake, bounds FROM job
		WHERE state = 3 AND queue = ? ORDER BY priority DESC, place, own_place`
	selectReadyAll = `SELECT seq, priority, place, own_place, queue, type, rate_key, wake, bounds
		FROM job INDEXED BY job_ready_all
		WHERE state = 3 ORDER BY priority DESC, place, own_place`
	// The next lower priority, and its jobs from a place on.
	levelIn  = `SELECT priority FROM job WHERE state = 3 AND queue = ?2 AND priority < ?1 ORDER BY priority DESC LIMIT 1`
	levelAll = `SELECT priority FROM job INDEXED BY job_ready_all WHERE state = 3 AND priority < ?1 ORDER BY priority DESC LIMIT 1`
	behindIn = `SELECT seq, priority, place, own_place, queue, type, rate_key, wake, bounds FROM job
		WHERE state = 3 AND queue = ?4 AND priority = ?1 AND (place, own_place) > (?2, ?3) ORDER BY place, own_place`
	behindAll = `SELECT seq, priority, place, own_place, queue, type, rate_key, wake, bounds
		FROM job INDEXED BY job_ready_all
		WHERE state = 3 AND priority = ?1 AND (place, own_place) > (?2, ?3) ORDER BY place, own_place`
	selectBounds = `SELECT seq, priority, place, own_place, queue, type, rate_key, wake, bounds
		FROM job INDEXED BY job_bounds
		WHERE state = 3 AND bounds = ?1 AND (wake IS NULL OR wake > ?2) AND (?3 = '' OR queue = ?3)
		ORDER BY priority DESC, place, own_place`
	selectHolders = `SELECT id, name FROM holder`
	insertHolder  = `INSERT INTO holder (name) VALUES (?)`
	deleteHolder  = `DELETE FROM holder WHERE id = ?`
	// loseLeases makes jobs due since they began, so that they are due at any time.
	loseLeases = `UPDATE job SET wake = min(wake, coalesce(started, 0)) WHERE state = 4 AND holder = ?`
	setHolder  = `UPDATE job SET holder = nullif(?2, 0) WHERE seq = ?1`

	claimJob = `UPDATE job SET state = 4, holder = nullif(?6, 0), ready_place = place, place = ?2, attempt = attempt + 1, version = version + 1, started = ?3, worker = ?4,
		lease_until = ?5, wake = ?5, progress = 0 WHERE seq = ?1`

	setReadyPlace    = `UPDATE job SET ready_place = ?2 WHERE seq = ?1`
	setOwnPlace      = `UPDATE job SET own_place = ?2 WHERE seq = ?1`
	selectReadyPlace = `SELECT ready_place FROM job WHERE seq = ?`

	// A lease ends at the latest at the last time that a column holds.
	// A lease of the default, ?7, is one of ?8 (storage.Record.LeaseFor).
	extendLease = `UPDATE job SET lease_until = ?3 + min(iif(lease = ?7, ?8, lease), 9223372036854775807 - max(?3, 0)),
		wake = ?3 + min(iif(lease = ?7, ?8, lease), 9223372036854775807 - max(?3, 0)), progress = max(progress, ?4),
		checkpoint = coalesce(?5, checkpoint), place = ?6 WHERE id = ?1 AND version = ?2 AND state = 4`

	selectClaimedBy = `SELECT ` + columns + ` FROM job INDEXED BY job_active_type
		WHERE state = 4 AND worker = ?`

	selectDue = `SELECT ` + columns + ` FROM job WHERE wake <= ? ORDER BY wake, max(place, own_place) LIMIT ?`
	nextWake  = `SELECT wake FROM job WHERE wake IS NOT NULL ORDER BY wake LIMIT 1`

	selectOpenPeers   = `SELECT ` + columns + ` FROM job WHERE fingerprint = ? AND state < 6`
	selectNewestEnded = `SELECT ` + columns +
		` FROM job WHERE fingerprint = ? AND state = ? ORDER BY created DESC, seq DESC LIMIT 1`

	// The longest available of each priority come first in the index: those of all
	// priorities are few, or this sorts them.
	selectOldest = `SELECT ` + columns + ` FROM job WHERE state = 3 AND queue = ? AND (deadline IS NULL OR deadline > ?)
		ORDER BY max(place, own_place)`

	deleteJob = `DELETE FROM job WHERE seq = ?`

	insertEdge    = `INSERT INTO edge VALUES (?, ?) ON CONFLICT DO NOTHING`
	setAwaited    = `UPDATE job SET awaited = 1 WHERE seq = ? AND awaited IS NULL`
	clearAwaited  = `UPDATE job SET awaited = NULL WHERE seq = ?`
	setDepends    = `UPDATE job SET depends = ?2 WHERE seq = ?1`
	deleteEdges   = `DELETE FROM edge WHERE dependency = ?`
	forgetEdges   = `DELETE FROM edge WHERE waiting IN (SELECT value FROM json_each(?))`
	selectCounted = `SELECT 1 FROM job WHERE id = ? AND state = 1 AND depends IS NOT NULL`
	selectWaiting = `SELECT ` + columns + ` FROM job
		WHERE seq IN (SELECT waiting FROM edge WHERE dependency = ?) AND state = 1 ORDER BY seq`
	insertLine  = `INSERT INTO line VALUES (?, ?, 0)`
	takeTurn    = `UPDATE line SET turn = 1 WHERE seq = ?`
	deleteLine  = `DELETE FROM line WHERE seq = ? RETURNING key`
	selectTurn  = `SELECT 1 FROM line JOIN job USING (seq) WHERE key = ? AND turn = 1 AND state < 6 LIMIT 1`
	selectFirst = `SELECT ` + columns + ` FROM job
		WHERE seq = (SELECT seq FROM line JOIN job USING (seq) WHERE key = ? AND turn = 0 AND state = 1
		ORDER BY seq LIMIT 1)`
	selectDepends = `SELECT id, state FROM job WHERE id = ?`

	oldestEnded = `SELECT seq, place, finished, id, queue FROM job WHERE state = ?1 AND state >= 6 AND dead IS NULL AND kept IS NULL
		ORDER BY finished, place LIMIT ?2`
	oldestDead = `SELECT seq, place, finished, id, queue FROM job WHERE dead IS NOT NULL AND kept IS NULL ORDER BY finished, place LIMIT ?`

	selectKept = `SELECT seq, queue, state, dead, finished, CASE WHEN instr(job, CAST('"workflow_id"' AS BLOB)) > 0 THEN job END
		FROM job WHERE kept <= ? ORDER BY kept LIMIT ?`
	selectKeeps = `SELECT 1 FROM job WHERE id = ? AND (state < 6 OR kept > ?)`
	keepOn      = `UPDATE job SET kept = ? WHERE seq = ?`
	releaseJob  = `UPDATE job SET released = kept, kept = NULL WHERE seq = ?`

	selectReleased = `SELECT seq, queue, state, dead FROM job WHERE released > ?`
	keepAgain      = `UPDATE job SET kept = released, released = NULL WHERE seq = ?`

	listJobs       = `SELECT ` + columns + ` FROM job WHERE seq > ? ORDER BY seq LIMIT ?`
	listJobsBack   = `SELECT ` + columns + ` FROM job WHERE seq <= ? ORDER BY seq DESC LIMIT ?`
	listNewest     = `SELECT ` + columns + ` FROM job WHERE seq < ? ORDER BY seq DESC LIMIT ?`
	listNewestBack = `SELECT ` + columns + ` FROM job WHERE seq >= ? ORDER BY seq LIMIT ?`

	// The numbers of the active jobs come from an index, and are sorted: they are few.
	listActive = `SELECT ` + columns + ` FROM job WHERE seq IN (SELECT seq FROM job INDEXED BY job_active_type
		WHERE state = 4 AND seq > ?1 ORDER BY seq LIMIT ?2) ORDER BY seq`
	listActiveBack = `SELECT ` + columns + ` FROM job WHERE seq IN (SELECT seq FROM job INDEXED BY job_active_type
		WHERE state = 4 AND seq <= ?1 ORDER BY seq DESC LIMIT ?2) ORDER BY seq DESC`
	listActiveNewest = `SELECT ` + columns + ` FROM job WHERE seq IN (SELECT seq FROM job INDEXED BY job_active_type
		WHERE state = 4 AND seq < ?1 ORDER BY seq DESC LIMIT ?2) ORDER BY seq DESC`
	listActiveNewestBack = `SELECT ` + columns + ` FROM job WHERE seq IN (SELECT seq FROM job INDEXED BY job_active_type
		WHERE state = 4 AND seq >= ?1 ORDER BY seq LIMIT ?2) ORDER BY seq`

	listDead = `SELECT ` + columns + ` FROM job WHERE dead IS NOT NULL AND place > ?
		ORDER BY place LIMIT ?`
	listDeadBack = `SELECT ` + columns + ` FROM job WHERE dead IS NOT NULL AND place <= ?
		ORDER BY place DESC LIMIT ?`
	listLastDead = `SELECT ` + columns + ` FROM job WHERE dead IS NOT NULL AND place < ?
		ORDER BY place DESC LIMIT ?`
	listLastDeadBack = `SELECT ` + columns + ` FROM job WHERE dead IS NOT NULL AND place >= ?
		ORDER BY place LIMIT ?`

	listDue = `SELECT ` + columns + ` FROM job WHERE wake IS NOT NULL AND (wake, max(place, own_place)) > (?, ?)
		ORDER BY wake, max(place, own_place) LIMIT ?`
	listDueBack = `SELECT ` + columns + ` FROM job WHERE wake IS NOT NULL AND (wake, max(place, own_place)) <= (?, ?)
		ORDER BY wake DESC, max(place, own_place) DESC LIMIT ?`

	// The rest of a priority, and all lower or higher ones: two ranges of the index.
	listReady = `SELECT ` + columns + ` FROM job INDEXED BY job_ready_all
		WHERE state = 3 AND priority = ?1 AND (place, own_place) > (?2, ?3)
		UNION ALL SELECT ` + columns + ` FROM job INDEXED BY job_ready_all WHERE state = 3 AND priority < ?1
		ORDER BY priority DESC, place, own_place LIMIT ?4`
	listReadyBack = `SELECT ` + columns + ` FROM job INDEXED BY job_ready_all
		WHERE state = 3 AND priority = ?1 AND (place, own_place) <= (?2, ?3)
		UNION ALL SELECT ` + columns + ` FROM job INDEXED BY job_ready_all WHERE state = 3 AND priority > ?1
		ORDER BY priority, place DESC, own_place DESC LIMIT ?4`

	// The parts of finishedStatement.
	keptFinished = `SELECT ` + columns + ` FROM job INDEXED BY job_kept_finished WHERE kept IS NOT NULL`
	deadFinished = `SELECT ` + columns + ` FROM job INDEXED BY job_dead_prunable
		WHERE dead IS NOT NULL AND kept IS NULL`
	someFinished = `SELECT ` + columns + ` FROM job INDEXED BY job_ended
		WHERE state = %d AND state >= 6 AND dead IS NULL AND kept IS NULL`

	selectQueueStates = `SELECT queue, state FROM queue_state`
	upsertQueueState  = `INSERT INTO queue_state VALUES (?, ?) ON CONFLICT DO UPDATE SET state = excluded.state`
	deleteQueueState  = `DELETE FROM queue_state WHERE queue = ?`

	selectValues = `SELECT key, data, expires FROM value
		WHERE key >= ?1 AND key > ?2 AND key < ?3 AND expires > ?4 ORDER BY key LIMIT ?5`
	upsertValue = `INSERT INTO value VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET data = excluded.data, expires = excluded.expires`
	deleteValue   = `DELETE FROM value WHERE key = ?`
	expiredValues = `SELECT key FROM value WHERE expires <= ? ORDER BY expires LIMIT ?`

	insertLog = `INSERT INTO log VALUES (?, ?, ?)`
	trimLogs  = `DELETE FROM log WHERE seq = ?1 AND version <= (SELECT version FROM log
		WHERE seq = ?1 ORDER BY version DESC LIMIT 1 OFFSET ?2)`
	selectLogs = `SELECT log.version, data FROM job JOIN log USING (seq) WHERE id = ? ORDER BY log.version`
	deleteLogs = `DELETE FROM log WHERE seq = ?`

	listCrons        = `SELECT name, version, entry FROM cron WHERE name > ? ORDER BY name LIMIT ?`
	selectCron       = `SELECT name, version, entry FROM cron WHERE name = ?`
	dueCrons         = `SELECT name, version, entry FROM cron WHERE (next_run, name) > (?1, ?2) AND next_run <= ?3 ORDER BY next_run, name LIMIT ?4`
	nextCron         = `SELECT next_run FROM cron WHERE next_run IS NOT NULL AND (next_run, name) > (?, ?) ORDER BY next_run, name LIMIT 1`
	cronVersion      = `SELECT version FROM cron WHERE name = ?`
	raiseCronVersion = `UPDATE cron_version SET n = n + 1 RETURNING n`
	upsertCron       = `INSERT INTO cron VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET version = excluded.version, entry = excluded.entry`
	deleteCron       = `DELETE FROM cron WHERE name = ?`

	// selectImpossible has the condition of its index, word for word.
	selectImpossible = `SELECT ` + columns + ` FROM job WHERE state < 1 OR state > 8 OR attempt < 0 OR attempt > 4611686018427387904
		OR version < 1 OR version > 4611686018427387904 LIMIT ?`
	clearTally   = `DELETE FROM tally`
	recountTally = `INSERT INTO tally (queue, state, class, n)
		SELECT queue, state, (dead IS NOT NULL) + 2 * (kept IS NOT NULL), count(*) FROM job GROUP BY 1, 2, 3`

	quarantineJob = `INSERT INTO quarantined_job (` + columns + `, ready_place) SELECT ` + columns +
		`, ready_place FROM job WHERE seq = ?`
	// restoreRest restores the columns that the record of a job does not give.
	restoreRest = `UPDATE job SET (ready_place, depends, awaited)
		= (SELECT ready_place, depends, awaited FROM quarantined_job WHERE seq = ?1) WHERE seq = ?1`
	selectQuarantinedJob  = `SELECT ` + columns + ` FROM quarantined_job WHERE seq = ?`
	deleteQuarantinedJob  = `DELETE FROM quarantined_job WHERE seq = ?`
	addQuarantined        = `INSERT INTO quarantine (kind, name, reason, seq) VALUES (?, ?, ?, ?) RETURNING n, at`
	selectQuarantineEntry = `SELECT kind, name, seq, version, body FROM quarantine WHERE n = ?`
	deleteQuarantined     = `DELETE FROM quarantine WHERE n = ?`
	countQuarantined      = `SELECT count(*) FROM quarantine`
	selectQuarantinedID   = `SELECT n, reason FROM quarantine WHERE name = ? AND kind = 'job' ORDER BY n DESC LIMIT 1`
	selectQuarantined     = `SELECT n, kind, name, reason, at, queue, type, state FROM quarantine LEFT JOIN quarantined_job USING (seq)
		WHERE n > ? ORDER BY n LIMIT ?`

	addQuarantinedCron = `INSERT INTO quarantine (kind, name, reason, version, body)
		SELECT 'cron', name, ?3, version, entry FROM cron WHERE name = ?1 AND version = ?2 RETURNING n, at`
	removeCron          = `DELETE FROM cron WHERE name = ? AND version = ?`
	releaseCron         = `INSERT INTO cron VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	addQuarantinedQueue = `INSERT INTO quarantine (kind, name, reason, body)
		SELECT 'queue', queue, ?3, state FROM queue_state WHERE queue = ?1 AND state = ?2 RETURNING n, at`
	removeQueueState  = `DELETE FROM queue_state WHERE queue = ? AND state = ?`
	releaseQueueState = `INSERT INTO queue_state VALUES (?, ?) ON CONFLICT DO NOTHING`

	selectLimit = `SELECT setting, until, blocked, last, period, most, closed FROM job_limit
		WHERE kind = ? AND name = ?`
	selectWide  = `SELECT kind, name FROM job_limit WHERE kind IN ('queue', 'type')`
	upsertLimit = `INSERT INTO job_limit (kind, name, last, period, most, look) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET last = excluded.last, period = excluded.period, most = excluded.most`
	setClosed = `INSERT INTO job_limit (kind, name, closed, look) VALUES ('key', ?1, 1, ?2)
		ON CONFLICT DO UPDATE SET closed = 1`
	setFreed = `UPDATE job_limit SET closed = 0, changed = ?2 WHERE kind = 'key' AND name = ?1
		AND closed = 1`
	setLimit = `INSERT INTO job_limit (kind, name, setting, until, blocked, period, most, changed, look) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET setting = excluded.setting, until = excluded.until, blocked = excluded.blocked,
		period = excluded.period, most = excluded.most, changed = excluded.changed, closed = 0`
	changedKeys = `SELECT name FROM job_limit WHERE changed > ?1 AND changed > 0 AND kind = 'key'`

	selectLastStart = `SELECT n, at FROM job_start WHERE kind = ? AND name = ? ORDER BY n DESC LIMIT 1`
	selectStart     = `SELECT at FROM job_start WHERE kind = ? AND name = ? AND n = ?`
	selectStarts    = `SELECT n, at FROM job_start WHERE kind = ? AND name = ? ORDER BY n DESC`
	countStarts     = `SELECT count(*) FROM job_start WHERE kind = ? AND name = ? AND at > ?`
	insertStart     = `INSERT INTO job_start VALUES (?, ?, ?, ?)`
	moveStart       = `UPDATE job_start SET at = ?4 WHERE kind = ?1 AND name = ?2 AND n = ?3`
	deleteStart     = `DELETE FROM job_start WHERE kind = ? AND name = ? AND n = ?`
	trimStarts      = `DELETE FROM job_start WHERE kind = ? AND name = ? AND n <= ?`

	activeOfKey = `SELECT count(*) FROM job INDEXED BY job_active_key WHERE state = 4
		AND bounds IS NOT NULL AND rate_key = ?`
	activeOfQueue = `SELECT coalesce(sum(n), 0) FROM tally WHERE queue = ? AND state = 4`
	// A version follows the name of a type and an @.
	activeOfType = `SELECT (SELECT count(*) FROM job INDEXED BY job_active_type WHERE state = 4 AND type = ?1)
		+ (SELECT count(*) FROM job INDEXED BY job_active_type WHERE state = 4 AND type > ?1 || '@'
		AND type < ?1 || 'A')`

	waitingOfKey = `SELECT count(*), (SELECT bounds FROM job INDEXED BY job_key WHERE state = 3
		AND rate_key = ?1 AND bounds IS NOT NULL
		AND (wake IS NULL OR wake > ?2) LIMIT 1)
		FROM job INDEXED BY job_key WHERE state = 3 AND rate_key = ?1 AND bounds IS NOT NULL
		AND (wake IS NULL OR wake > ?2)`
	waitingOfQueue = `SELECT (SELECT coalesce(sum(n), 0) FROM tally WHERE state = 3 AND queue = ?1)
		- (SELECT count(*) FROM job WHERE wake <= ?2 AND state = 3 AND queue = ?1)`
	waitingOfType = `SELECT count(*) FROM job INDEXED BY job_ready_all
		WHERE state = 3 AND (type = ?1 OR (type > ?1 || '@' AND type < ?1 || 'A'))
		AND (wake IS NULL OR wake > ?2)`

	anyOfKey = `SELECT 1 FROM job INDEXED BY job_active_key WHERE state = 4 AND bounds IS NOT NULL
		AND rate_key = ?1
		UNION ALL SELECT 1 FROM job INDEXED BY job_key WHERE state = 3 AND rate_key = ?1
		AND rate_key IS NOT NULL LIMIT 1`
	anyOfBounds = `SELECT 1 FROM job INDEXED BY job_bounds WHERE state = 3 AND bounds = ? LIMIT 1`

	nextActiveKey = `SELECT min(rate_key) FROM job INDEXED BY job_active_key WHERE state = 4
		AND bounds IS NOT NULL AND rate_key > ?`
	nextReadyKey = `SELECT rate_key FROM job INDEXED BY job_key WHERE state = 3 AND rate_key > ?
		AND bounds IS NOT NULL ORDER BY rate_key LIMIT 1`
	nextLimit = `SELECT name FROM job_limit WHERE kind = ? AND name > ?
		AND (setting IS NOT NULL OR blocked IS NOT NULL) ORDER BY name LIMIT 1`

	// The latest round of a key, once for each of its jobs there, and the next of any.
	lastRound = `SELECT place FROM job INDEXED BY job_fair_key WHERE state = 3 AND queue = ?1 AND priority = ?2
		AND fair_key = ?3 AND seq <> ?4 ORDER BY place DESC LIMIT ?5`
	nextRound = `SELECT place FROM job INDEXED BY job_round WHERE state = 3 AND fair_key IS NOT NULL
		AND queue = ?1 AND priority = ?2 AND place > ?3 AND seq <> ?4 ORDER BY place LIMIT 1`
	selectServed = `SELECT place FROM served WHERE queue = ? AND priority = ?`
	upsertServed = `INSERT INTO served VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET place = excluded.place`
	deleteServed = `DELETE FROM served WHERE queue = ? AND priority = ?`

	idleLimits = `SELECT name, changed, idle FROM job_limit INDEXED BY job_limit_look WHERE look <= ? AND kind = 'key'
		ORDER BY look LIMIT 4`
	lookLater    = `UPDATE job_limit SET look = ?2, idle = ?3 WHERE kind = 'key' AND name = ?1`
	deleteLimit  = `DELETE FROM job_limit WHERE kind = 'key' AND name = ?`
	deleteStarts = `DELETE FROM job_start WHERE kind = 'key' AND name = ?`
)
