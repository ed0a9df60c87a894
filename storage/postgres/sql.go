package postgres

import (
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// statements are all that the package says to the database, but for the schema, in
// migrations.
type statements struct {
	tune, lockName, takeNames, leaveNames, schemaThere, migrated, beside string
	places                                                               string
	advance                                                              []string
	insert, insertFresh, insertClaimIn, insertClaimAll                   string
	stored, peers, locked, oldest, draining, depth                       string
	claimThese, somePaused, lockedIDs                                    string
	claim, ahead, claimJudged, aheadJudged, lockHeads, pickHeads         picks
	settleAttempt, settleStep, endAttempt, endStep                       string
	complete, completeStep                                               string
	settleCounting, endCounting, completeCounting                        string
	settleAll, settleAllCounting                                         string
	takeEdges, waitingJobs, waitingIDs, setDepends, addEdges, setAwaited string
	stillWaiting                                                         string
	setDocuments                                                         string
	lockChanged, lockKnown, heads, forgetEdges                           string
	enterLines, firstInLine, leaveLine, giveTurns                        string
	lockRounds, tryRounds, restRounds, compactServed                     string
	versions, extend                                                     string
	due, nextWake                                                        string
	get, getAll, bySeq, counts, compact, claimedBy                       string
	walkOldest, walkNewest, walkDead, walkLastDead                       [2]string // forward, back
	walkActive, walkActiveNewest                                         [2]string
	walkFinished, walkDue, walkReady                                     [2]string
	remove, keptUntil, keepOn, release, prune                            string
	queueStates, queueState, setQueueState, activateQueue                string
	listen, notify, clock, isolation                                     string
	crons, dueCrons, setCrons, deleteCron                                string
	setAside, undoClaims, impossible, setCronAside, setQueueAside        string
	quarantined, countQuarantined, quarantinedID, quarantineEntry        string
	quarantinedJob, stateOf, releaseJob, releaseCron, releaseQueue       string
	deleteQuarantined                                                    string
	values, putValues, deleteValues, dropValues                          string
	logs, addLogs, trimLogs                                              string
	lockLimits, judgeLimits, promote, shutLanes, closed, held, setOpens  string
	counters, start                                                      string
	setStarted, addStarts, sortStarts, trimStarts, takeStart, keepStarts string
	wide, setLimit, judge                                                string
	idleLimits, forgetLimits, lookLater, countStarts, nextLimit          string
	activeOf, waitingOfKey, waitingOfQueue, waitingOfType                string
}

// picks are the variants of a statement that looks at the jobs of a claim: from its
// queues, from all, and from all around the paused ones.
type picks struct{ in, all, around string }

// columns are those of a job, in the order in which scan reads them.
const columns = `j.seq, j.place, j.id, j.queue, j.type, j.state, j.priority, j.attempt, j.version, j.wake, j.deadline, j.created,
	j.enqueued, j.started, j.next_retry, j.finished, j.dead, j.lease_until, j.lease, j.progress, j.worker, j.fingerprint, j.rate_key,
	j.args, j.job, j.outcome, j.checkpoint, j.depends`

// whole is a job j as it is stored: its row of job, and the row of stage or of one of its
// partitions.
const whole = `(SELECT s.seq, s.place, b.id, s.queue, s.type, s.state, s.priority, s.attempt, s.version, s.wake, s.deadline,
	b.created, s.enqueued, s.started, s.next_retry, s.finished, s.dead, s.lease_until, b.lease,
	coalesce(s.progress, 0) AS progress, coalesce(s.worker, '') AS worker, s.fingerprint, s.rate_key,
	b.args, b.job, s.outcome, s.checkpoint, b.depends, s.kept, s.released, s.other_place, s.awaited, s.own_place
	FROM {schema}.{of} s JOIN {schema}.job b ON b.seq = s.seq) j`

// seqsOfIDs are the numbers of the jobs with the ids $1. A statement that has them sorts
// by number along an index of numbers. With the ids, and without sorts, that index would
// lead it through all jobs.
const seqsOfIDs = `ARRAY(SELECT i.seq FROM {schema}.job i WHERE i.id = ANY ($1::text[]))`

// wide says whether the limit of its queue or type counts a job j at $1.
const (
	wide = `(j.queue = ANY (ARRAY(SELECT name FROM {schema}.job_limit WHERE kind = 'queue' AND ` + counts + `))
	OR split_part(j.type, '@', 1) = ANY (ARRAY(SELECT name FROM {schema}.job_limit WHERE kind = 'type' AND ` + counts + `)))`
	// counts says whether the limit of a queue or type holds jobs back or keeps starts.
	// A limit that is not set any more does neither, and would cost each claim a
	// transaction.
	counts = `(setting IS NOT NULL AND (until > $1) IS NOT FALSE OR blocked > $1 OR period > 0)`
)

// standing are the columns of stage.
const standing = `(seq, place, version, attempt, other_place, wake, deadline, enqueued, started, next_retry, finished, dead,
	lease_until, kept, released, created, progress, priority, state, limited, queue, type, worker, fingerprint, rate_key,
	outcome, checkpoint, awaited, bounds, fair_key, share, own_place)`

// limited says whether a job has a rate limit or an enqueue TTL. It finds such a member
// in meta and extra, too.
const limited = `nullif(rate_key IS NOT NULL OR job IS NOT NULL AND (
	position('"rate_limit":'::bytea IN job) > 0 OR position('"enqueue_ttl":'::bytea IN job) > 0), false)`

// alike is how the tally tells jobs of one queue and state apart.
const alike = `CASE WHEN kept IS NULL THEN dead IS NOT NULL END`

// given are jobs that come as one array for each column, as arguments makes them. A time
// that is not set is the least bigint, and a text that is not set the empty one: arrays
// without NULLs are much cheaper to send.
const given = `(SELECT u.id, u.queue, u.type, u.state, u.priority, u.attempt, u.version, nullif(u.wake, {none}) AS wake,
	nullif(u.deadline, {none}) AS deadline, nullif(u.created, {none}) AS created, nullif(u.enqueued, {none}) AS enqueued,
	nullif(u.started, {none}) AS started, nullif(u.next_retry, {none}) AS next_retry, nullif(u.finished, {none}) AS finished,
	nullif(u.dead, {none}) AS dead, nullif(u.lease_until, {none}) AS lease_until, u.lease, u.progress, u.worker,
	nullif(u.fingerprint, '') AS fingerprint, nullif(u.rate_key, '') AS rate_key, u.args, u.job, u.outcome, u.checkpoint,
	nullif(u.kept, {none}) AS kept, nullif(u.bounds, '') AS bounds, nullif(u.fair_key, '') AS fair_key,
	CASE WHEN u.fair_key <> '' THEN u.share END AS share, u.ord
	FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::integer[], $6::bigint[], $7::bigint[], $8::bigint[],
	$9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[],
	$18::float8[], $19::text[], $20::text[], $21::text[], $22::bytea[], $23::bytea[], $24::bytea[], $25::bytea[], $26::bigint[], $27::text[],
	$28::text[], $29::integer[])
	WITH ORDINALITY AS u (id, queue, type, state, priority, attempt, version, wake, deadline, created, enqueued, started, next_retry,
	finished, dead, lease_until, lease, progress, worker, fingerprint, rate_key, args, job, outcome, checkpoint, kept, bounds, fair_key, share, ord)
	ORDER BY u.ord)`

// version is the version of a job j, of its type: as one number, in which those of OJS
// (internal/versions) have their order. -1: no such version.
const version = `(CASE WHEN {of} ~ '^(0|[1-9][0-9]{0,18})([.](0|[1-9][0-9]{0,18}))?$'
	THEN split_part({of}, '.', 1)::numeric * 10000000000000000000
		+ coalesce(nullif(split_part({of}, '.', 2), ''), '0')::numeric ELSE -1 END)`

// ofTypes asks whether a job j is of the types of a claim. {types} are those of jobs
// without a version, NULL for all jobs; {names} those of jobs with one, which is at least
// {from} and below {until}.
const ofTypes = `({types}::text[] IS NULL OR j.type = ANY ({types}::text[])
	OR strpos(j.type, '@') > 0 AND EXISTS (
		SELECT FROM unnest({names}::text[], {from}::text[], {until}::text[]) r (name, low, high)
		WHERE r.name = substr(j.type, 1, strpos(j.type, '@') - 1)
		AND {version} >= r.low::numeric AND {version} < r.high::numeric))`

// claimable is what every claim asks of a job j: $1 is the time, $3 to $6 are the types,
// $7 are the queues and types to leave, as leftNames has them.
const claimable = `j.head AND (j.wake IS NULL OR j.wake > $1) AND {of_types} AND (cardinality($7::text[]) = 0
	OR 'queue ' || j.queue <> ALL ($7::text[]) AND 'type ' || split_part(j.type, '@', 1) <> ALL ($7::text[]))`

// Claims judge the jobs that are picked, in order, and end at the first job that they
// cannot judge: see limits.go. A claim returns number -1 if limits have more to say, and
// -2 if jobs are set aside, with the time at which time alone opens a limit.
const (
	// looks are what a claim asks of a job that it picks. {ends} says that the job ends a
	// step.
	looks = `j.queue, j.type, j.bounds, j.lane, j.most, CASE WHEN j.bounds IS NOT NULL THEN j.rate_key END AS key,
		{wide} AS wide, {ends} AS ends`
	endsNothing = `false`
	// endsStep is for a step, which cannot return a job with an enqueue TTL.
	endsStep = `(j.limited IS NOT NULL AND (j.bounds IS NULL OR EXISTS (SELECT FROM {schema}.job b
		WHERE b.seq = j.seq AND position('"enqueue_ttl":'::bytea IN b.job) > 0)))`

	// lockedKeys are the keys that the transaction has locked, and dueKeys those of them
	// whose lanes are to be judged.
	lockedKeys = `(SELECT nullif(current_setting('ojs.keys', true), '')::text[])`
	dueKeys    = `(SELECT nullif(current_setting('ojs.due', true), '')::text[])`
	// judging says that lanes are to be judged before a claim.
	judging = `(EXISTS (SELECT FROM {schema}.job_judge) OR EXISTS (SELECT FROM {schema}.job_limit WHERE opens <= $1)
		OR EXISTS (SELECT FROM {schema}.ready WHERE bounds IS NOT NULL AND late IS NULL AND wake <= $1)
		OR EXISTS (SELECT FROM {schema}.ready WHERE bounds IS NOT NULL AND late AND wake > $1))`

	// plain takes the jobs before the first one that a limit counts, or that ends a step.
	plain = `,
		numbered AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, p.seq FROM (
			SELECT seq, bool_or(key IS NOT NULL OR wide OR ends) OVER (ROWS UNBOUNDED PRECEDING) AS over FROM picked) p
			WHERE NOT p.over),
		{take}
		UNION ALL
		SELECT -1, {marker} WHERE (SELECT yes FROM judging)
			OR (SELECT key IS NOT NULL OR wide FROM picked WHERE key IS NOT NULL OR wide OR ends LIMIT 1)` + setAside
	// setAside is the row with number -2.
	setAside = `
		UNION ALL
		SELECT -2, coalesce((SELECT opens FROM {schema}.job_limit WHERE opens IS NOT NULL ORDER BY opens LIMIT 1), {none}), {marker_seq}
		WHERE EXISTS (SELECT FROM {schema}.ready WHERE NOT head AND attempt >= 0)`

	// judged is for a transaction that has locked keys. It says of each job whether it
	// may start. NULL: the statement cannot tell, since its key is not locked, or has
	// other bounds than one of concurrency. $8 is the worker, $9 the lease, and behind
	// $10 jobs no job starts that a limit counts.
	judged = `,
		keys AS MATERIALIZED (SELECT d.key, a.n AS active FROM (
				SELECT DISTINCT key FROM picked WHERE key = ANY ({locked_keys}::text[])) d
			CROSS JOIN LATERAL (SELECT FROM {schema}.job_limit k WHERE k.kind = 'key' AND k.name = d.key
				AND k.setting IS NULL AND k.blocked IS NULL AND k.period = 0 LIMIT 1) k
			CROSS JOIN LATERAL (SELECT count(*) AS n FROM {schema}.active a
				WHERE a.rate_key = d.key AND a.bounds IS NOT NULL) a),
		judged AS MATERIALIZED (SELECT p.seq, p.rn, p.key, p.ends, CASE
				WHEN p.wide OR p.key IS NOT NULL AND (p.most IS NULL OR k.key IS NULL
					OR min(p.most) OVER same <> max(p.most) OVER same) THEN NULL
				WHEN p.key IS NULL THEN true
				ELSE count(*) OVER (same ORDER BY p.rn) + k.active <= p.most END AS may
			FROM (SELECT *, row_number() OVER () AS rn FROM picked) p LEFT JOIN keys k USING (key)
			WINDOW same AS (PARTITION BY p.key)),
		ended AS MATERIALIZED (SELECT seq, rn, may, bool_or(may IS NULL OR may AND (ends
				OR key IS NOT NULL AND before >= $10)) OVER (ORDER BY rn) AS over FROM (
			SELECT *, count(*) FILTER (WHERE may) OVER (ORDER BY rn ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
			FROM judged) j),
		shut AS (UPDATE {schema}.ready SET head = false
			WHERE seq = ANY (ARRAY(SELECT seq FROM ended WHERE NOT may AND NOT over))),
		numbered AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, e.seq FROM (
			SELECT seq FROM ended WHERE may AND NOT over ORDER BY rn) e),
		{take_judged}
		UNION ALL
		SELECT -1, {marker} WHERE (SELECT may IS NULL FROM ended WHERE over ORDER BY rn LIMIT 1)
			OR (SELECT yes FROM judging) OR (SELECT count(*) >= $2 AND bool_or(NOT may) FROM ended)
		UNION ALL
		SELECT -3, {marker} WHERE (SELECT may FROM ended WHERE over ORDER BY rn LIMIT 1)` + setAside
	// refusedBefore returns, as number 0, the jobs whose outcomes the step has refused:
	// as they are before the claim.
	refusedBefore = `
		UNION ALL
		SELECT 0, {columns} FROM {whole}
		WHERE id = ANY (nullif(current_setting('ojs.refused', true), '')::text[])`
	// marker is a row without a job, in the columns of one.
	markerSeq = `0::bigint, '', '', '', 3::smallint, 0, 0::bigint, 0::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
		NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, 0::bigint, 0::float8, '', NULL, NULL,
		NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea`
	marker = `0::bigint, ` + markerSeq
)

// locking locks the keys whose lanes are to be judged, and those of the jobs {picked} for
// a claim, with the limits of their queues and types. It has later statements of the
// transaction know the keys, and returns the limits.
const locking = `noted AS MATERIALIZED (DELETE FROM {schema}.job_judge WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM {schema}.job_judge ORDER BY name LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING name),
		late AS MATERIALIZED (UPDATE {schema}.ready SET head = false, late = true WHERE seq = ANY (ARRAY(
			SELECT seq FROM {schema}.ready WHERE bounds IS NOT NULL AND late IS NULL AND wake <= $1
			ORDER BY wake LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING rate_key),
		again AS MATERIALIZED (UPDATE {schema}.ready SET late = NULL WHERE seq = ANY (ARRAY(
			SELECT seq FROM {schema}.ready WHERE bounds IS NOT NULL AND late AND wake > $1
			ORDER BY wake LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING rate_key),
		due AS MATERIALIZED (SELECT name FROM noted UNION SELECT rate_key FROM late UNION SELECT rate_key FROM again
			UNION SELECT name FROM (SELECT name FROM {schema}.job_limit WHERE opens <= $1 ORDER BY opens LIMIT 1000) o),
		locked AS (INSERT INTO {schema}.job_limit AS l (kind, name, look)
			SELECT kind, name, {later} FROM (SELECT 'key' AS kind, name FROM due
				{picked}) u ORDER BY kind, name
			ON CONFLICT (kind, name) DO UPDATE SET opens = CASE WHEN l.opens > $1 THEN l.opens END RETURNING kind, name, xmax = 0 AS added)
		SELECT coalesce(array_agg(kind), '{}'), coalesce(array_agg(name), '{}'),
			set_config('ojs.keys', coalesce(array_agg(name) FILTER (WHERE kind = 'key'), '{}')::text, true),
			coalesce(bool_or(added), false), set_config('ojs.due', ARRAY(SELECT name FROM due)::text, true) FROM locked`

// lockingPicked are the limits of the jobs of picked.
const lockingPicked = `UNION SELECT 'key', key FROM picked WHERE key IS NOT NULL
				UNION SELECT kind, name FROM {schema}.job_limit WHERE kind IN ('queue', 'type') AND ` + counts + `
				AND name = ANY (ARRAY(SELECT CASE kind WHEN 'queue' THEN queue ELSE split_part(type, '@', 1) END FROM picked))`

// lanes are those of {keys}, with the others of each key found along the index.
const lanes = `WITH RECURSIVE lanes (name, lane) AS (
		SELECT k.name, (SELECT r.lane FROM {schema}.ready r WHERE r.rate_key = k.name AND r.bounds IS NOT NULL
			ORDER BY r.lane LIMIT 1) FROM pg_catalog.unnest({keys}) k (name)
		UNION ALL
		SELECT l.name, (SELECT r.lane FROM {schema}.ready r WHERE r.rate_key = l.name AND r.bounds IS NOT NULL
			AND r.lane > l.lane ORDER BY r.lane LIMIT 1) FROM lanes l WHERE l.lane IS NOT NULL)`

// promote makes the first jobs of each lane heads whose key is due: as many as its bound
// lets start, or $1 if other bounds decide. Keys that are not due have their heads
// (limits.go, 2): so a claim meets no lane twice that it has set aside. It is always a
// later statement than the one that locks. A key of whose jobs other transactions have
// locked some is to be judged again.
const promote = lanes + `,
	wanted AS MATERIALIZED (SELECT l.name, l.lane, w.n - (SELECT count(*) FROM (SELECT FROM {schema}.ready h
			WHERE h.rate_key = l.name AND h.lane = l.lane AND h.bounds IS NOT NULL AND h.head LIMIT w.n) h) AS n FROM lanes l
		CROSS JOIN LATERAL (SELECT r.most FROM {schema}.ready r
			WHERE r.rate_key = l.name AND r.lane = l.lane AND r.bounds IS NOT NULL LIMIT 1) m
		CROSS JOIN LATERAL (SELECT CASE WHEN m.most IS NULL OR EXISTS (SELECT FROM {schema}.job_limit k WHERE k.kind = 'key'
				AND k.name = l.name AND (k.setting IS NOT NULL OR k.blocked IS NOT NULL OR k.period > 0)) THEN $1::bigint
			ELSE greatest(0, m.most - (SELECT count(*) FROM {schema}.active a
				WHERE a.rate_key = l.name AND a.bounds IS NOT NULL)) END AS n) w
		WHERE l.lane IS NOT NULL),
	next AS MATERIALIZED (SELECT c.seq, w.lane FROM wanted w
		CROSS JOIN LATERAL (SELECT r.seq FROM {schema}.ready r
			WHERE r.rate_key = w.name AND r.lane = w.lane AND r.bounds IS NOT NULL AND NOT r.head AND r.late IS NULL
			ORDER BY r.priority DESC, r.place, r.own_place NULLS FIRST LIMIT greatest(0, w.n) FOR UPDATE SKIP LOCKED) c),
	missed AS (INSERT INTO {schema}.job_judge SELECT DISTINCT w.name FROM wanted w
		WHERE w.n > (SELECT count(*) FROM next x WHERE x.lane = w.lane) AND (SELECT r.seq FROM {schema}.ready r
			WHERE r.rate_key = w.name AND r.lane = w.lane AND r.bounds IS NOT NULL AND NOT r.head AND r.late IS NULL
			AND r.seq <> ALL (ARRAY(SELECT seq FROM next)) LIMIT 1) IS NOT NULL)
	UPDATE {schema}.ready SET head = true WHERE seq = ANY (ARRAY(SELECT seq FROM next))`

// closed returns the bounds of the lanes without a head in which jobs wait, and how many
// jobs of the key are active.
const closed = lanes + `
	SELECT c.bounds, (SELECT count(*) FROM {schema}.active a WHERE a.rate_key = l.name AND a.bounds IS NOT NULL) FROM lanes l
		CROSS JOIN LATERAL (SELECT r.bounds FROM {schema}.ready r
			WHERE r.rate_key = l.name AND r.lane = l.lane AND r.bounds IS NOT NULL AND NOT r.head AND r.late IS NULL
			LIMIT 1) c
		WHERE l.lane IS NOT NULL AND (SELECT h.seq FROM {schema}.ready h
			WHERE h.rate_key = l.name AND h.lane = l.lane AND h.bounds IS NOT NULL AND h.head LIMIT 1) IS NULL`

// take makes jobs active. $1 is the time, $8 the worker, $9 the lease of a job whose own
// is the default.
const take = `by_seq AS MATERIALIZED (SELECT array_agg(seq ORDER BY seq) AS seqs, array_agg(place ORDER BY seq) AS ords
		FROM numbered),
	gone AS MATERIALIZED (DELETE FROM {schema}.ready j WHERE j.seq = ANY ((SELECT seqs FROM by_seq)::bigint[])
		RETURNING ` + ordOf + ` AS ord, j.*),
	taken AS MATERIALIZED (SELECT j.ord, j.seq, j.ord AS place, j.place AS other_place, b.id, j.queue, j.type,
			4::smallint AS state, j.priority, {attempt1} AS attempt, {version1} AS version, {until_claimed} AS wake, j.deadline,
			b.created, j.enqueued, $1::bigint AS started, j.next_retry, j.finished, j.dead, {until_claimed} AS lease_until, b.lease,
			0::float8 AS progress, $8::text AS worker, j.fingerprint, j.rate_key, b.args, b.job, j.outcome, j.checkpoint,
			b.depends, j.kept, j.released, j.limited, j.created AS peer_created, j.awaited, j.bounds,
			j.fair_key, j.share, j.own_place
		FROM gone j JOIN {schema}.job b ON b.seq = j.seq),
	leased AS (INSERT INTO {schema}.active {standing} SELECT seq, place, version, attempt, other_place, wake, deadline,
		enqueued, started, next_retry, finished, dead, lease_until, kept, released, peer_created, NULL, priority, state, limited,
		queue, type, nullif(worker, ''), fingerprint, rate_key, outcome, checkpoint, awaited, bounds, fair_key, share, own_place
		FROM taken),
	served AS (INSERT INTO {schema}.served SELECT queue, priority, max(other_place) FROM taken t WHERE fair_key IS NOT NULL GROUP BY 1, 2
		HAVING max(other_place) > coalesce((SELECT s.place FROM {schema}.served s WHERE s.queue = t.queue AND s.priority = t.priority
			ORDER BY s.place DESC LIMIT 1), 0)),
	counted AS (INSERT INTO {schema}.tally SELECT m.queue, d.state, m.dead, d.sign * m.n
		FROM (SELECT queue, {alike} AS dead, count(*) AS n FROM taken GROUP BY 1, 2) m,
		(VALUES (3::smallint, -1), (4::smallint, 1)) d (state, sign))` + takenJobs

const takenJobs = `
	SELECT j.ord, {columns} FROM taken j`

// lastStarted stores the bounds of the job of each key that the claim starts last.
const lastStarted = `,
	last AS (UPDATE {schema}.job_limit k SET last = t.bounds
		FROM (SELECT DISTINCT ON (rate_key) rate_key, bounds FROM taken WHERE bounds IS NOT NULL ORDER BY rate_key, ord DESC) t
		WHERE k.kind = 'key' AND k.name = t.rate_key AND k.last IS DISTINCT FROM t.bounds)`

// These pick the jobs of a claim. $2 is how many. A claim picks none while lanes are to
// be judged, nor if its step has settled nothing (refusedStep).
const (
	limitPick  = `$2`
	limitClaim = `CASE WHEN (SELECT yes FROM judging) THEN 0 ELSE $2 END`
	limitStep  = `CASE WHEN current_setting('ojs.held', true) = 'yes' THEN 0 ELSE $2 END`
	limitAhead = `CASE WHEN current_setting('ojs.held', true) = 'yes' OR (SELECT yes FROM judging) THEN 0 ELSE $2 END`

	// {queues} are the queues in their order.
	pickIn = `WITH picked AS MATERIALIZED (
		SELECT c.* FROM unnest({queues}::text[]) WITH ORDINALITY q (name, ord) CROSS JOIN LATERAL (
			SELECT j.seq, {looks} FROM {schema}.ready j WHERE j.queue = q.name AND {claimable}
			ORDER BY j.priority DESC, j.place, j.own_place NULLS FIRST LIMIT $2 FOR UPDATE SKIP LOCKED) c
		WHERE NOT EXISTS (SELECT FROM {schema}.queue_state s WHERE s.queue = q.name AND s.state = 'paused')
		AND 'queue ' || q.name <> ALL ($7::text[])
		LIMIT {limit})`
	pickAll = `WITH picked AS MATERIALIZED (
		SELECT j.seq, {looks} FROM {schema}.ready j WHERE {claimable} AND j.attempt >= 0
		AND j.queue <> ALL (ARRAY(SELECT queue FROM {schema}.queue_state WHERE state = 'paused'))
		ORDER BY j.priority DESC, j.place, j.own_place NULLS FIRST LIMIT {limit} FOR UPDATE SKIP LOCKED)`
	// pickAround is pickAll without a walk past the backlogs of paused queues: the first
	// jobs of each other queue, and of these the first. More than are wanted, for others
	// may be taking them.
	pickAround = `WITH RECURSIVE q (name) AS (
		(SELECT queue FROM {schema}.ready ORDER BY queue LIMIT 1)
		UNION ALL
		SELECT (SELECT j.queue FROM {schema}.ready j WHERE j.queue > q.name ORDER BY j.queue LIMIT 1)
		FROM q WHERE q.name IS NOT NULL),
	first AS MATERIALIZED (
		SELECT c.seq, c.priority, c.place, c.own_place FROM q CROSS JOIN LATERAL (
			SELECT j.seq, j.priority, j.place, j.own_place FROM {schema}.ready j WHERE j.queue = q.name AND {claimable}
			ORDER BY j.priority DESC, j.place, j.own_place NULLS FIRST LIMIT $2 + 500) c
		WHERE q.name IS NOT NULL AND 'queue ' || q.name <> ALL ($7::text[])
		AND NOT EXISTS (SELECT FROM {schema}.queue_state s WHERE s.queue = q.name AND s.state = 'paused')
		ORDER BY c.priority DESC, c.place, c.own_place NULLS FIRST LIMIT $2 + 500),
	picked AS MATERIALIZED (
		SELECT j.seq, {looks} FROM first JOIN {schema}.ready j USING (seq) WHERE {claimable}
		AND j.queue <> ALL (ARRAY(SELECT queue FROM {schema}.queue_state WHERE state = 'paused'))
		ORDER BY first.priority DESC, first.place, first.own_place NULLS FIRST LIMIT {limit} FOR UPDATE OF j SKIP LOCKED)`
)

// settleAttempt applies changes that are AttemptFieldsOnly, as attemptArguments has them.
// The froms are the states in which each change may find its job, as bits; bit 14 says
// that the job returns to the place before its claim, bit 15 that it keeps its place, and
// those from 16 on how many more steps than one it takes. A version is that after the
// change.
const settleAttempt = settled + `
		AND j.version = ($5::bigint[])[{at}] - 1 - (($2::bigint[])[{at}] >> 16) AND (($2::bigint[])[{at}] >> j.state) & 1 = 1
		RETURNING {at} AS ord, (ARRAY(SELECT place FROM c))[{at}] AS place, ($2::bigint[])[{at}] AS froms, ($3::smallint[])[{at}] AS state,
			nullif(($12::bigint[])[{at}], {none}) AS dead, nullif(($18::bigint[])[{at}], {none}) AS kept,
			j.seq, j.place AS was_place, j.other_place AS was_other, j.state AS was, j.queue, j.type, j.priority,
			j.fingerprint, j.rate_key, j.created, j.limited, j.kept AS was_kept, j.dead AS was_dead, j.awaited, j.bounds,
			j.fair_key, j.share, j.own_place),
	stored AS (INSERT INTO {schema}.{to} {standing} SELECT seq,
		CASE WHEN was = 3 AND state = 3 THEN was_place
			WHEN (froms >> 14) & 1 = 1 THEN coalesce(was_other, place) ELSE place END,
		($5::bigint[])[ord], ($4::bigint[])[ord],
		CASE WHEN (froms >> 14) & 1 = 1 THEN place WHEN was = 3 AND state = 3 THEN was_other
			WHEN was = 3 AND state = 4 THEN was_place END,
		nullif(($6::bigint[])[ord], {none}), nullif(($7::bigint[])[ord], {none}), nullif(($8::bigint[])[ord], {none}), nullif(($9::bigint[])[ord], {none}), nullif(($10::bigint[])[ord], {none}),
		nullif(($11::bigint[])[ord], {none}), dead, nullif(($13::bigint[])[ord], {none}), kept, NULL, created, nullif(($14::float8[])[ord], 0),
		priority, state, limited, queue, type, nullif(($15::text[])[ord], ''), fingerprint, rate_key, ($16::bytea[])[ord], ($17::bytea[])[ord],
		CASE WHEN state < 6 THEN awaited END, bounds, fair_key, share,
		CASE WHEN was = 3 AND state IN (3, 4) OR (froms >> 14) & 1 = 1 THEN own_place END FROM gone)`

// settled begins a statement that applies changes, of which $1 are the ids. A job that
// another transaction has changed meanwhile without raising its version, as Extend does,
// is compared again, which takes arrays: in a join it would not find its other half.
const settled = `WITH c AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, u.id, u.ord,
		(SELECT b.seq FROM {schema}.job b WHERE b.id = u.id) AS seq
		FROM (SELECT u.id, u.ord FROM unnest($1::text[]) WITH ORDINALITY AS u (id, ord) ORDER BY u.ord) u),
	{by_seq}{held},
	gone AS MATERIALIZED (DELETE FROM {schema}.{from} j WHERE j.seq = ANY ((SELECT seqs FROM by_seq)::bigint[]){guard}`

// bySeq has the numbers of the jobs of c in the order of seq, and ordOf finds that of a
// job j among them: a binary search, where array_position would read half of the array.
const (
	bySeq = `by_seq AS MATERIALIZED (SELECT array_agg(seq ORDER BY seq) AS seqs, array_agg(ord ORDER BY seq) AS ords
		FROM c WHERE seq IS NOT NULL)`
	ordOf = `((SELECT ords FROM by_seq))[width_bucket(j.seq, (SELECT seqs FROM by_seq))]`
)

// settleAll applies changes of everything, as arguments has them, with the froms of
// settleAttempt.
const settleAll = `WITH n AS MATERIALIZED (SELECT nextval('{schema}.place') AS new_place, u.*, f.froms FROM {given} u
		JOIN unnest($30::bigint[]) WITH ORDINALITY f (froms, ord) USING (ord) ORDER BY u.ord),
	c AS MATERIALIZED (SELECT n.*, (SELECT b.seq FROM {schema}.job b WHERE b.id = n.id) AS seq FROM n),
	{by_seq}{held},
	taken AS MATERIALIZED (DELETE FROM {schema}.stage j WHERE j.seq = ANY ((SELECT seqs FROM by_seq)::bigint[]){guard}
		AND j.version = ($7::bigint[])[{at}] - 1 - (($30::bigint[])[{at}] >> 16)
		AND (($30::bigint[])[{at}] >> j.state) & 1 = 1
		RETURNING j.seq, j.place, j.other_place, j.state AS was, j.queue AS was_queue, j.priority AS was_priority, j.awaited,
			j.rate_key AS was_key, j.bounds AS was_bounds, j.fair_key AS was_fair_key, j.own_place),
	gone AS MATERIALIZED (SELECT f.*, t.other_place, t.was, t.awaited, t.was_key, t.was_bounds,
		CASE WHEN same_key OR t.was <> 3 OR f.state <> 4 THEN t.place ELSE coalesce(t.own_place, t.place) END AS place,
		CASE WHEN same_key THEN t.own_place WHEN f.fair_key IS NOT NULL THEN coalesce(t.own_place, t.place) END AS own_place,
		(f.froms >> 15) & 1 = 1 OR t.was = 3 AND f.state = 3 AND t.was_queue = f.queue AND t.was_priority = f.priority
			AND same_key AS stays
		FROM c f JOIN taken t ON t.seq = f.seq CROSS JOIN LATERAL (SELECT f.fair_key IS NOT DISTINCT FROM t.was_fair_key AS same_key) k),
	body AS (UPDATE {schema}.job b SET created = g.created, lease = g.lease, args = g.args, job = g.job
		FROM gone g WHERE b.seq = g.seq),
	stored AS (INSERT INTO {schema}.stage {standing} SELECT seq, CASE WHEN stays THEN place ELSE new_place END, version, attempt,
		CASE WHEN stays THEN other_place WHEN was = 3 AND state = 4 THEN place END, wake, deadline, enqueued, started,
		next_retry, finished, dead, lease_until, kept, NULL, CASE WHEN fingerprint IS NOT NULL THEN created END,
		nullif(progress, 0), priority, state, {limited}, queue, type, nullif(worker, ''), fingerprint, rate_key, outcome, checkpoint,
		CASE WHEN state < 6 THEN awaited END, bounds, fair_key, share, CASE WHEN stays OR was = 3 AND state = 4 THEN own_place END
		FROM gone),
	left_lane AS (INSERT INTO {schema}.job_judge SELECT DISTINCT was_key FROM gone WHERE was = 3 AND was_bounds IS NOT NULL)`

// held and guard make a statement that applies changes change nothing if other jobs may
// wait for one of its jobs. See depends.go.
const (
	held = `,
	held AS MATERIALIZED (SELECT EXISTS (SELECT FROM {schema}.{from} a
		WHERE a.awaited AND a.seq = ANY ((SELECT seqs FROM by_seq)::bigint[])) AS yes)`
	guard = ` AND j.awaited IS NULL AND NOT (SELECT yes FROM held)`
)

// completeAll applies plain completions, as completionArguments has them. Most outcomes
// are such.
const completeAll = settled + `
		AND j.version = ($2::bigint[])[{at}] - 1
		RETURNING {at} AS ord, 6::smallint AS state, NULL::bigint AS kept, NULL::bigint AS dead,
			j.seq, j.state AS was, j.queue, j.type, j.priority, j.fingerprint, j.rate_key, j.created, j.limited, j.kept AS was_kept, j.dead AS was_dead,
			j.awaited, j.bounds, j.fair_key, j.share),
	stored AS (INSERT INTO {schema}.done (seq, place, version, attempt, enqueued, started, finished, created,
			progress, priority, state, limited, queue, type, worker, fingerprint, rate_key, bounds, fair_key, share)
		SELECT seq, (ARRAY(SELECT place FROM c))[ord], ($2::bigint[])[ord], ($3::bigint[])[ord], nullif(($4::bigint[])[ord], {none}),
			nullif(($5::bigint[])[ord], {none}), ($6::bigint[])[ord], created, nullif($8::float8, 0), priority, state, limited,
			queue, type, nullif($7::text, ''), fingerprint, rate_key, bounds, fair_key, share FROM gone)`

// Ends of active jobs, which most outcomes are, name the partitions, and count.
const endsCounted = `,
	counted AS (INSERT INTO {schema}.tally SELECT m.queue, m.state, m.dead, m.n FROM (
		SELECT queue, state, {alike} AS dead, count(*) AS n FROM gone GROUP BY 1, 2, 3
		UNION ALL
		SELECT queue, 4, CASE WHEN was_kept IS NULL THEN was_dead IS NOT NULL END, -count(*) FROM gone GROUP BY 1, 2, 3) m)`

// leftLanes notes the keys whose jobs leave their lanes without a claim.
const leftLanes = `,
	left_lane AS (INSERT INTO {schema}.job_judge SELECT DISTINCT rate_key FROM gone WHERE was = 3 AND bounds IS NOT NULL)`

// applied is which changes were applied. Number 0 says that none was, since other jobs
// may wait for one of the jobs.
const applied = `
	SELECT ord FROM gone UNION ALL SELECT 0 FROM held WHERE yes`

// counting is which changes were applied, and to which jobs, and whether other jobs may
// wait for these.
const counting = `
	SELECT ord, seq, coalesce(awaited, false) FROM gone`

// refusedStep is what a step has not applied: the numbers for the caller, the ids for the
// claim that follows in the transaction. If other jobs may wait for one of its jobs, the
// step has applied nothing, and the claim takes nothing.
const refusedStep = `
	SELECT r.ords, CASE WHEN yes THEN set_config('ojs.held', 'yes', true) ELSE set_config('ojs.refused', r.ids, true) END, yes FROM (
		SELECT coalesce(array_agg(c.ord), '{}') AS ords, coalesce(array_agg(c.id)::text, '') AS ids FROM c
		WHERE c.ord NOT IN (SELECT ord FROM gone)) r, held`

// walking looks at jobs behind the position $1, $2 of an order, up to $3 of them, and
// returns those of the states $6, the queues $7, and the types $8 or types that begin as
// $9, at most $11 among the first $10. With number 0 it returns those two between which
// the page ends at the latest. $4 and $5 are about finished jobs only: their states, and
// whether they are dead letters. {c} is the third number of a position, and $12 the one
// to begin behind, in the order that has one.
const walking = `WITH way AS MATERIALIZED (SELECT row_number() OVER () AS ord, w.* FROM ({way}) w),
	about AS (SELECT $1::bigint, $2::bigint, $3::bigint, $4::smallint[], $5::boolean, $12::bigint)
	SELECT 0::bigint, ord, a, b, {c} FROM way WHERE ord IN ((SELECT least(count(*), $10) FROM way), $10 + 1)
	UNION ALL
	SELECT * FROM (SELECT w.seq, w.ord, w.a, w.b, {c} FROM way w WHERE w.ord <= $10
		AND ($6::smallint[] IS NULL OR w.state = ANY ($6::smallint[]))
		AND ($7::text[] IS NULL OR w.queue = ANY ($7::text[]))
		AND ($8::text[] IS NULL OR split_part(w.type, '@', 1) = ANY ($8::text[]) OR EXISTS (
			SELECT FROM unnest($9::text[]) prefix WHERE starts_with(split_part(w.type, '@', 1), prefix)))
		ORDER BY w.ord LIMIT $11) hits`

// These are the ways along the indexes. A column that has no place in an order is 0.
const (
	walkStage = `SELECT seq, seq AS a, 0::bigint AS b, state, queue, type FROM {schema}.stage
		WHERE {behind} LIMIT $3`
	walkActive = `SELECT seq, seq AS a, 0::bigint AS b, state, queue, type FROM {schema}.active
		WHERE {behind} LIMIT $3`
	walkDead = `SELECT seq, place AS a, 0::bigint AS b, state, queue, type FROM {schema}.done
		WHERE dead IS NOT NULL AND {behind} LIMIT $3`
	walkDue = `SELECT seq, wake AS a, {waits} AS b, state, queue, type FROM {schema}.stage
		WHERE wake IS NOT NULL AND {behind} LIMIT $3`

	// The rest of a priority, and all lower or higher ones.
	walkReady = `SELECT r.* FROM unnest(ARRAY[true, false]) h (yes) CROSS JOIN LATERAL (
		(SELECT seq, priority::bigint AS a, place AS b, coalesce(own_place, 0) AS c, state, queue, type FROM {schema}.ready
			WHERE head = h.yes AND attempt >= 0 AND priority = $1::bigint AND (place, own_place) > ($2, $12)
			ORDER BY priority DESC, place, own_place NULLS FIRST LIMIT $3)
		UNION ALL
		(SELECT seq, priority, place, coalesce(own_place, 0), state, queue, type FROM {schema}.ready
			WHERE head = h.yes AND attempt >= 0 AND priority < $1::bigint
			ORDER BY priority DESC, place, own_place NULLS FIRST LIMIT $3)) r ORDER BY a DESC, b, c LIMIT $3`
	walkReadyBack = `SELECT r.* FROM unnest(ARRAY[true, false]) h (yes) CROSS JOIN LATERAL (
		(SELECT seq, priority::bigint AS a, place AS b, coalesce(own_place, 0) AS c, state, queue, type FROM {schema}.ready
			WHERE head = h.yes AND attempt >= 0 AND priority = $1::bigint AND place <= $2 AND (place < $2 OR coalesce(own_place, 0) <= $12)
			ORDER BY priority, place DESC, own_place DESC NULLS LAST LIMIT $3)
		UNION ALL
		(SELECT seq, priority, place, coalesce(own_place, 0), state, queue, type FROM {schema}.ready
			WHERE head = h.yes AND attempt >= 0 AND priority > $1::bigint
			ORDER BY priority, place DESC, own_place DESC NULLS LAST LIMIT $3)) r ORDER BY a, b DESC, c DESC LIMIT $3`

	// Jobs that are kept and that are not have an index each, and the latter a part of it
	// for each state and for dead letters. Jobs without a time of their end come last.
	walkFinished = `SELECT * FROM (
		SELECT c.* FROM unnest($4::smallint[]) s CROSS JOIN unnest(ARRAY[0, 1]) d CROSS JOIN LATERAL (
			(SELECT seq, coalesce(finished, {none}) AS a, place AS b, state, queue, type FROM {schema}.done
				WHERE state = s AND num_nonnulls(dead) = d AND kept IS NULL AND (finished, place) < ($1, $2)
				ORDER BY finished DESC NULLS LAST, place DESC LIMIT $3)
			UNION ALL
			(SELECT seq, {none}, place, state, queue, type FROM {schema}.done
				WHERE state = s AND num_nonnulls(dead) = d AND kept IS NULL AND finished IS NULL
				AND ($1 > {none} OR place < $2)
				ORDER BY finished DESC NULLS LAST, place DESC LIMIT $3)) c WHERE d = 1 OR NOT $5
		UNION ALL
		(SELECT seq, finished, place, state, queue, type FROM {schema}.done
			WHERE kept IS NOT NULL AND (NOT $5 OR dead IS NOT NULL) AND (finished, place) < ($1, $2)
			ORDER BY finished DESC NULLS LAST, place DESC LIMIT $3)
		UNION ALL
		(SELECT seq, {none}, place, state, queue, type FROM {schema}.done
			WHERE kept IS NOT NULL AND (NOT $5 OR dead IS NOT NULL) AND finished IS NULL
				AND ($1 > {none} OR place < $2)
			ORDER BY finished DESC NULLS LAST, place DESC LIMIT $3)
		) f ORDER BY a DESC, b DESC LIMIT $3`
	walkFinishedBack = `SELECT * FROM (
		SELECT c.* FROM unnest($4::smallint[]) s CROSS JOIN unnest(ARRAY[0, 1]) d CROSS JOIN LATERAL (
			(SELECT seq, coalesce(finished, {none}) AS a, place AS b, state, queue, type FROM {schema}.done
				WHERE state = s AND num_nonnulls(dead) = d AND kept IS NULL AND (finished, place) >= ($1, $2)
				ORDER BY finished NULLS FIRST, place LIMIT $3)
			UNION ALL
			(SELECT seq, {none}, place, state, queue, type FROM {schema}.done
				WHERE state = s AND num_nonnulls(dead) = d AND kept IS NULL AND finished IS NULL
				AND $1 = {none} AND place >= $2
				ORDER BY finished NULLS FIRST, place LIMIT $3)) c WHERE d = 1 OR NOT $5
		UNION ALL
		(SELECT seq, finished, place, state, queue, type FROM {schema}.done
			WHERE kept IS NOT NULL AND (NOT $5 OR dead IS NOT NULL) AND (finished, place) >= ($1, $2)
			ORDER BY finished NULLS FIRST, place LIMIT $3)
		UNION ALL
		(SELECT seq, {none}, place, state, queue, type FROM {schema}.done
			WHERE kept IS NOT NULL AND (NOT $5 OR dead IS NOT NULL) AND finished IS NULL
				AND $1 = {none} AND place >= $2
			ORDER BY finished NULLS FIRST, place LIMIT $3)
		) f ORDER BY a, b LIMIT $3`
)

// insertClaim is insertFresh of jobs, with the documents $12, whose worker $10 claims
// them at the times $9 with the lease $13, if it would take them: no queue of theirs is
// paused, no queue or type has a limit, and no other job is available in the queues $11
// of the claim. A job that another transaction has stored and not committed yet comes
// later. It returns whether it has claimed them.
const insertClaim = `WITH free AS MATERIALIZED (SELECT
		NOT EXISTS (SELECT FROM {schema}.queue_state s
			WHERE s.state = 'paused' AND s.queue = ANY ($2::text[]))
		AND NOT EXISTS (SELECT FROM {schema}.job_limit WHERE kind IN ('queue', 'type')
			AND (setting IS NOT NULL AND (until > ANY ($9::bigint[])) IS NOT FALSE
				OR blocked > ANY ($9::bigint[]) OR period > 0))
		AND (SELECT r.seq FROM {schema}.job_judge n CROSS JOIN LATERAL (SELECT r.seq FROM {schema}.ready r
			WHERE r.rate_key = n.name AND r.bounds IS NOT NULL LIMIT 1) r LIMIT 1) IS NULL
		AND (SELECT j.seq FROM {schema}.ready j WHERE j.head AND {in} LIMIT 1) IS NULL AS yes),
	n AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, NULL::text AS rate_key, u.* FROM (
		SELECT u.* FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[],
			$6::bigint[], $7::bigint[], $8::bytea[], $9::bigint[], $12::bytea[]) WITH ORDINALITY
		AS u (id, queue, type, priority, created, enqueued, lease, args, started, job, ord) ORDER BY u.ord) u
		WHERE NOT EXISTS (SELECT FROM {schema}.queue_state s
			WHERE s.state = 'draining' AND s.queue = ANY ($2::text[]))),
	body AS (INSERT INTO {schema}.job (seq, created, lease, id, args, job)
		SELECT place, nullif(created, {none}), lease, id, args, job FROM n),
	counted AS (INSERT INTO {schema}.tally
		SELECT queue, CASE WHEN yes THEN 4 ELSE 3 END, false, count(*) FROM n, free GROUP BY queue, yes),
	queued AS (INSERT INTO {schema}.ready
			(seq, place, version, attempt, enqueued, priority, state, limited, queue, type)
		SELECT place, place, {first}, 0, nullif(enqueued, {none}), priority, 3, {limited}, queue, type
		FROM n, free WHERE NOT yes),
	leased AS (INSERT INTO {schema}.active (seq, place, version, attempt, other_place, wake, enqueued,
			started, lease_until, priority, state, limited, queue, type, worker)
		SELECT place, place, {first} + 1, 1, place, {until_started}, nullif(enqueued, {none}),
			started, {until_started}, priority, 4, {limited}, queue, type, nullif($10::text, '')
		FROM n, free WHERE yes)
	SELECT {first}, yes FROM n, free`

// One more than the greatest number would fail the statement, for all jobs of it. So
// numbers that no job comes to stay as they are.
const (
	attempt1 = `j.attempt + (j.attempt BETWEEN 0 AND {most})::integer`
	version1 = `j.version + (j.version BETWEEN 1 AND {most})::integer`
)

// until is when a lease of a job b ends that begins at $1: at the latest at the last time
// that a column holds.
const until = `$1::bigint + least(b.lease, 9223372036854775807 - greatest($1::bigint, 0))`

// leaseFor is storage.Record.LeaseFor. {lease} is the lease of a claim or a renewal,
// which is the default if none is set.
const leaseFor = `CASE b.lease WHEN {default_lease} THEN {lease}::bigint ELSE b.lease END`

// untilOf is until with another lease of a job b.
func untilOf(lease string) string { return strings.ReplaceAll(until, "b.lease", lease) }

// waits is the order among jobs that wait for the same time.
const waits = `(CASE WHEN state = 3 THEN coalesce(other_place, place) ELSE place END)`

// first is the version in which a job is stored that has drawn a place. Each transition
// of a job raises its version by one and draws a place, or is one of fewer in a call than
// there are versions between two places; so the next place is above every version of a
// job that was deleted. An insert that has drawn its place may wait for that deletion:
// the gap has room for what the job went through meanwhile. Jobs of older versions of
// this package began at 1.
const first = `place * 65536`

// roundsKey names the advisory lock of the rounds of a queue l: see fair.go.
const roundsKey = `hashtextextended('{name} fair ' || l.queue, 3131961357)`

// lockRounds locks the rounds of a queue l until the transaction ends.
const lockRounds = `pg_advisory_xact_lock(` + roundsKey + `)`

// impossible are jobs that no other statement may meet: of no state, or with numbers that
// no job comes to.
const impossible = `(state < 1 OR state > 8 OR attempt < 0 OR attempt > {most} OR version < 1 OR version > {most})`

// quoted is the name of a schema in statements: it may be a word of SQL's.
func quoted(schema string) string { return `"` + schema + `"` }

var (
	functions = regexp.MustCompile(`\b(array_agg|array_position|bool_or|cardinality|clock_timestamp|convert_to|count|` +
		`current_setting|generate_series|hashtextextended|max|min|nextval|num_nonnulls|pg_advisory_xact_lock|pg_current_snapshot|pg_is_in_recovery|pg_notify|pg_sequence_last_value|pg_try_advisory_xact_lock|` +
		`pg_snapshot_xmax|pg_snapshot_xmin|row_number|set_config|setval|split_part|starts_with|strpos|substr|sum|width_bucket)\(`)
	unnestOne = regexp.MustCompile(`\bunnest\((\$\d+::[a-z]+\[\]|ARRAY\[[^\]]*\])\)`)
	types     = regexp.MustCompile(`::(text|bytea|float8|numeric)\b`)
)

// inCatalog names the schema of the functions and types of a statement, so that no
// search_path puts others in their place. PostgreSQL itself does so for an unnest of
// several arrays, and for coalesce and what else its grammar knows.
func inCatalog(sql string) string {
	if known, ok := catalogued.Load(sql); ok {
		return known.(string)
	}
	named := functions.ReplaceAllString(sql, "pg_catalog.$1(")
	named = unnestOne.ReplaceAllString(named, "pg_catalog.unnest($1)")
	named = types.ReplaceAllString(named, "::pg_catalog.$1")
	catalogued.Store(sql, named)
	return named
}

// catalogued holds what inCatalog made of each statement of newStatements, the name of
// the schema still to be put in.
var catalogued sync.Map

func newStatements(schema string) *statements {
	types := func(types, names, from, until string) string {
		version := strings.ReplaceAll(version, "{of}", "substr(j.type, strpos(j.type, '@') + 1)")
		return strings.NewReplacer("{types}", types, "{names}", names, "{from}", from, "{until}", until,
			"{version}", version).Replace(ofTypes)
	}
	var q func(sql string) string
	walked := func(way string) string {
		c := "0::bigint"
		if strings.Contains(way, " AS c,") {
			c = "c"
		}
		return q(strings.NewReplacer("{way}", way, "{c}", c).Replace(walking))
	}
	walk := func(way, forward, back string) [2]string {
		return [2]string{
			walked(strings.ReplaceAll(way, "{behind}", forward)),
			walked(strings.ReplaceAll(way, "{behind}", back)),
		}
	}
	until := func(lease, given string) string {
		return untilOf(strings.NewReplacer("{lease}", given, "b.lease", lease).Replace(leaseFor))
	}
	untilStarted := strings.ReplaceAll(until("n.lease", "$13"), "$1::bigint", "n.started")
	inner := strings.NewReplacer("{impossible}", impossible, "{columns}", columns, "{given}", given,
		"{first}", first, "{lock_rounds}", lockRounds, "{rounds_key}", roundsKey,
		"{claimable}", strings.ReplaceAll(claimable, "{of_types}", types("$3", "$4", "$5", "$6")),
		"{wide}", wide, "{locked_keys}", lockedKeys, "{judging}", judging, "{marker}", marker,
		"{marker_seq}", markerSeq, "{whole_ready}", strings.ReplaceAll(whole, "{of}", "ready"),
		"{waits}", waits, "{standing}", standing, "{limited}", limited, "{alike}", alike,
		"{whole}", strings.ReplaceAll(whole, "{of}", "stage"),
		"{until_started}", untilStarted, "{seqs}", seqsOfIDs,
		"{until_claimed}", until("b.lease", "$9"), "{until_handed}", untilOf("least(b.lease, {most_handed})"),
		"{attempt1}", attempt1, "{version1}", version1)
	outer := strings.NewReplacer("{default_lease}", strconv.FormatInt(int64(ojs.DefaultLease), 10),
		"{most_handed}", strconv.FormatInt(int64(storage.TakeOverLease), 10),
		"{most}", strconv.Itoa(rows.MaxCount), "{columns}", columns, "{none}",
		"-9223372036854775808")
	ours := strings.NewReplacer("{schema}", quoted(schema), "{name}", schema)
	q = func(sql string) string { return ours.Replace(inCatalog(outer.Replace(inner.Replace(sql)))) }
	picking := func(ends, limit, queues, then string) picks {
		pick := func(sql string) string {
			sql = strings.NewReplacer("{looks}", looks, "{limit}", limit, "{queues}", queues).Replace(sql)
			if strings.Contains(limit+then, "FROM judging") {
				asks := "judging AS MATERIALIZED (SELECT {judging} AS yes), picked AS"
				sql = strings.Replace(sql, "picked AS", asks, 1)
			}
			return q(strings.ReplaceAll(sql, "{ends}", ends) + strings.NewReplacer("{take}", take,
				"{take_judged}", strings.TrimSuffix(take, takenJobs)+lastStarted+takenJobs).Replace(then))
		}
		return picks{pick(pickIn), pick(pickAll), pick(pickAround)}
	}
	locks := func(picked string) string {
		return strings.NewReplacer("{picked}", picked, "{later}", untilOf("3600000000000")).Replace(locking)
	}
	at := `array_position(ARRAY(SELECT seq FROM found), j.seq)`
	ending := func(sql, from, to, held, guard string) string {
		sql = strings.NewReplacer("{held}", held, "{guard}", guard, "{by_seq}", bySeq).Replace(sql)
		return q(strings.NewReplacer("{from}", from, "{to}", to, "{at}", ordOf).Replace(sql))
	}
	lease, given := `(ARRAY(SELECT lease FROM found))[`+at+`]`, `(ARRAY(SELECT given FROM found))[`+at+`]`
	extending := strings.NewReplacer("{at}", at, "{progress}", "ARRAY(SELECT progress FROM found)",
		"{until_of}", strings.ReplaceAll(until(lease, given), "$1::", "$5::"))
	return &statements{
		tune: q(`SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
			set_config('enable_sort', 'off', true), set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)`),
		lockName: q(
			`SELECT pg_advisory_xact_lock(hashtextextended(name, 3131961357)) FROM unnest($1::text[]) name`),
		takeNames: q(
			`INSERT INTO {schema}.name_lock SELECT unnest($1::bigint[]) ON CONFLICT (name) DO UPDATE SET name = excluded.name`),
		leaveNames: q(`DELETE FROM {schema}.name_lock WHERE name = ANY ($1::bigint[])`),
		// By a look into the catalog: to_regclass may answer with what its session knew
		// before another process migrated.
		schemaThere: q(`SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relname = 'migration')`),
		migrated: q(`SELECT coalesce(max(version), 0) FROM {schema}.migration`),
		beside:   q(`SELECT max(version), coalesce(max(oldest), 0), pg_is_in_recovery() FROM {schema}.migration`),
		places:   q(places),
		advance:  advancing(q),

		// Nothing is inserted if one of the queues is draining.
		insert: q(`WITH locked AS MATERIALIZED (SELECT count({lock_rounds}) AS n FROM (SELECT DISTINCT u.queue COLLATE "C" AS queue
				FROM unnest($2::text[], $4::smallint[], $28::text[]) u (queue, state, fair_key)
				WHERE u.state = 3 AND u.fair_key <> '' ORDER BY 1) l),
			n AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, u.* FROM {given} u WHERE (SELECT n FROM locked) >= 0
				AND NOT EXISTS (SELECT FROM {schema}.queue_state s WHERE s.state = 'draining' AND s.queue = ANY ($2::text[]))),
			body AS (INSERT INTO {schema}.job (seq, created, lease, id, args, job) SELECT place, created, lease, id, args, job FROM n)
			INSERT INTO {schema}.stage {standing}
			SELECT place, place, CASE version WHEN 0 THEN {first} ELSE version END, attempt, NULL, wake, deadline, enqueued, started,
				next_retry, finished, dead, lease_until, kept, NULL, CASE WHEN fingerprint IS NOT NULL THEN created END,
				nullif(progress, 0), priority, state, {limited}, queue, type, nullif(worker, ''), fingerprint, rate_key, outcome, checkpoint, NULL, bounds, fair_key, share, NULL
			FROM n RETURNING version`),
		// The same for fresh jobs, as freshArguments has them.
		insertFresh: q(`WITH n AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, u.* FROM (
				SELECT u.* FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[],
					$5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[])
				WITH ORDINALITY AS u (id, queue, type, priority, created, enqueued, lease, args, ord) ORDER BY u.ord) u
				WHERE NOT EXISTS (SELECT FROM {schema}.queue_state s
					WHERE s.state = 'draining' AND s.queue = ANY ($2::text[]))),
			body AS (INSERT INTO {schema}.job (seq, created, lease, id, args)
				SELECT place, nullif(created, {none}), lease, id, args FROM n),
			counted AS (INSERT INTO {schema}.tally SELECT queue, 3, false, count(*) FROM n GROUP BY queue)
			INSERT INTO {schema}.ready (seq, place, version, attempt, enqueued, priority, state, queue, type)
			SELECT place, place, {first}, 0, nullif(enqueued, {none}), priority, 3, queue, type FROM n
			RETURNING version`),
		insertClaimIn: q(strings.ReplaceAll(insertClaim, "{in}", "j.queue = ANY ($11::text[])")),
		insertClaimAll: q(strings.ReplaceAll(insertClaim, "{in}",
			"j.attempt >= 0 AND cardinality($11::text[]) = 0")),
		// And a first version for each id.
		stored: q(`SELECT b.id, s.state, 0::bigint FROM {schema}.job b JOIN {schema}.stage s ON s.seq = b.seq WHERE b.id = ANY ($1::text[])
			UNION ALL
			SELECT '', 0::smallint, {first} FROM (SELECT nextval('{schema}.place') AS place FROM generate_series(1, cardinality($1::text[]))) n`),
		peers: q(`SELECT seq FROM {schema}.stage WHERE fingerprint = ANY ($1::text[]) AND state IN (1, 2, 3, 4, 5)
			UNION ALL
			SELECT n.seq FROM unnest($1::text[]) f, unnest(ARRAY[6, 7, 8]) s CROSS JOIN LATERAL (
				SELECT seq FROM {schema}.done WHERE fingerprint = f AND state = s ORDER BY created DESC, seq DESC LIMIT 1) n`),
		// Both rows of a job are locked: what they say then belongs together. A job that
		// another transaction takes to another partition meanwhile is not among them.
		locked:    q(`SELECT {columns} FROM {whole} WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR UPDATE`),
		lockedIDs: q(`SELECT {columns} FROM {whole} WHERE seq = ANY ({seqs}) ORDER BY seq FOR UPDATE`),
		oldest: q(`SELECT {columns} FROM {whole_ready} WHERE seq = ANY (ARRAY(SELECT seq FROM {schema}.ready
				WHERE queue = $1 AND (deadline IS NULL OR deadline > $2)
				AND seq <> ALL (ARRAY(SELECT b.seq FROM {schema}.job b WHERE b.id = ANY ($4::text[])))
				ORDER BY coalesce(own_place, place) LIMIT $3 FOR UPDATE SKIP LOCKED))
			ORDER BY coalesce(own_place, place)`),
		draining: q(`SELECT u.queue FROM unnest($1::text[]) WITH ORDINALITY u (queue, ord) JOIN {schema}.queue_state s USING (queue)
			WHERE s.state = 'draining' ORDER BY u.ord LIMIT 1`),
		depth: q(`SELECT coalesce(sum(n), 0)::bigint FROM {schema}.tally WHERE queue = $1 AND state < 6`),

		claim:       picking(endsNothing, limitClaim, "$10", plain),
		ahead:       picking(endsStep, limitAhead, "$10", plain+refusedBefore),
		claimJudged: picking(endsNothing, limitPick, "$11", judged),
		aheadJudged: picking(endsStep, limitStep, "$11", judged+refusedBefore),

		lockHeads: picking(endsNothing, limitPick, "$8", ", "+locks(lockingPicked)),
		pickHeads: picking(endsStep, limitPick, "$8",
			" SELECT seq, queue, type, coalesce(key, ''), coalesce(bounds, ''), ends, wide FROM picked"),
		// The jobs $4, which the transaction has locked.
		claimThese: q("WITH numbered AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, u.seq" +
			" FROM unnest($4::bigint[]) u (seq)), " + strings.NewReplacer("$8", "$2", "{until_claimed}",
			until("b.lease", "$3")).Replace(take)),
		somePaused: q(`SELECT EXISTS (SELECT FROM {schema}.queue_state WHERE state = 'paused')`),

		settleAttempt: ending(settleAttempt+leftLanes+applied, "stage", "stage", held, guard),
		settleStep:    ending(settleAttempt+leftLanes+refusedStep, "stage", "stage", held, guard),
		endAttempt:    ending(settleAttempt+endsCounted+applied, "active", "done", held, guard),
		endStep:       ending(settleAttempt+endsCounted+refusedStep, "active", "done", held, guard),
		complete:      ending(completeAll+endsCounted+applied, "active", "done", held, guard),
		completeStep:  ending(completeAll+endsCounted+refusedStep, "active", "done", held, guard),
		settleAll:     ending(settleAll+applied, "stage", "stage", held, guard),

		settleCounting:    ending(settleAttempt+leftLanes+counting, "stage", "stage", "", ""),
		endCounting:       ending(settleAttempt+endsCounted+counting, "active", "done", "", ""),
		completeCounting:  ending(completeAll+endsCounted+counting, "active", "done", "", ""),
		settleAllCounting: ending(settleAll+counting, "stage", "stage", "", ""),

		// The jobs $1 have ended. It returns those that wait for them, and the lines that
		// they leave, with the key.
		takeEdges: q(`WITH edges AS (DELETE FROM {schema}.edge WHERE dependency = ANY ($1::bigint[])
				RETURNING dependency, waiting),
			lines AS (DELETE FROM {schema}.line WHERE seq = ANY ($1::bigint[]) RETURNING seq, key, waits)
			SELECT dependency, waiting, '', false FROM edges UNION ALL SELECT seq, 0, key, waits FROM lines`),
		// With 1 if other jobs may wait for the job.
		waitingJobs: q(`SELECT coalesce(awaited, false)::integer::bigint, {columns} FROM {whole}
			WHERE seq = ANY ($1::bigint[]) AND state = 1 ORDER BY seq FOR UPDATE`),
		// The transaction has stored or locked these jobs.
		waitingIDs: q(`SELECT coalesce(awaited, false)::integer::bigint, {columns} FROM {whole}
			WHERE seq = ANY ({seqs}) AND state = 1`),
		stillWaiting: q(`SELECT s.seq FROM {schema}.stage s JOIN {schema}.job b ON b.seq = s.seq
			WHERE s.seq = ANY ($1::bigint[]) AND s.state = 1`),
		// These change jobs that the transaction has locked or stored, so that a join
		// finds each of them.
		setDepends: q(`UPDATE {schema}.job b SET depends = u.depends
			FROM unnest($1::bigint[], $2::bytea[]) u (seq, depends) WHERE b.seq = u.seq`),
		setDocuments: q(`UPDATE {schema}.job b SET job = u.job
			FROM unnest($1::bigint[], $2::bytea[]) u (seq, job) WHERE b.seq = u.seq`),
		addEdges: q(`INSERT INTO {schema}.edge SELECT * FROM unnest($1::bigint[], $2::bigint[])
			ON CONFLICT DO NOTHING`),
		// It walks along the edges: few calls revive jobs.
		forgetEdges: q(`DELETE FROM {schema}.edge WHERE waiting = ANY ($1::bigint[])`),
		// $1 are new jobs, $2 their ordering keys, $3 their dependencies.
		enterLines: q(`WITH n AS MATERIALIZED (SELECT b.seq, u.key, u.depends
				FROM unnest($1::text[], $2::text[], $3::bytea[]) u (id, key, depends)
				JOIN {schema}.job b ON b.id = u.id),
			body AS (UPDATE {schema}.job b SET depends = n.depends FROM n WHERE b.seq = n.seq),
			awaited AS (UPDATE {schema}.stage SET awaited = true
				WHERE seq = ANY (ARRAY(SELECT seq FROM n)) AND state = 1)
			INSERT INTO {schema}.line SELECT seq, key, true FROM n
			WHERE (SELECT s.state FROM {schema}.stage s WHERE s.seq = n.seq) = 1
			ON CONFLICT (seq) DO UPDATE SET key = excluded.key, waits = true`),
		// The first in line of each of the keys $1 of which no job has the turn. $2 are
		// jobs to leave out. A job that has left the state pending has the turn.
		firstInLine: q(`SELECT u.key, l.seq FROM unnest($1::text[]) u (key) CROSS JOIN LATERAL (
				SELECT l.seq, l.waits AND (SELECT s.state FROM {schema}.stage s WHERE s.seq = l.seq) = 1 AS waits
				FROM {schema}.line l WHERE l.key = u.key AND l.seq <> ALL ($2::bigint[])
				AND (SELECT s.state FROM {schema}.stage s WHERE s.seq = l.seq) < 6
				ORDER BY l.waits, l.seq LIMIT 1) l
			WHERE l.waits`),
		leaveLine: q(`UPDATE {schema}.line SET waits = false WHERE seq = ANY ($1::bigint[])`),
		// setDepends of the jobs $1, of which $3 have the turn.
		giveTurns: q(`WITH lines AS (UPDATE {schema}.line SET waits = false WHERE seq = ANY ($3::bigint[]))
			UPDATE {schema}.job b SET depends = u.depends
			FROM unnest($1::bigint[], $2::bytea[]) u (seq, depends) WHERE b.seq = u.seq`),
		setAwaited: q(`UPDATE {schema}.stage SET awaited = true
			WHERE seq = ANY ($1::bigint[]) AND awaited IS NULL`),
		lockChanged: q(`SELECT id, seq, version, state, coalesce(awaited, false) FROM {whole}
			WHERE seq = ANY ({seqs}) ORDER BY seq FOR UPDATE`),
		lockKnown: q(`SELECT id FROM (SELECT s.seq, b.id FROM {schema}.job b JOIN {schema}.stage s ON s.seq = b.seq) j
			WHERE seq = ANY ({seqs}) ORDER BY seq FOR UPDATE`),
		heads: q(
			`SELECT b.id, b.seq, s.state FROM {schema}.job b JOIN {schema}.stage s ON s.seq = b.seq WHERE b.id = ANY ($1::text[])`),

		versions: q(
			`SELECT b.id, s.version, s.state FROM {schema}.job b JOIN {schema}.stage s ON s.seq = b.seq WHERE b.id = ANY ($1::text[])`),
		// Arrays and no join: if another call has extended a lease meanwhile, PostgreSQL
		// compares the changed row again, which in a join would not find its other half.
		extend: q(extending.Replace(`WITH c AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, u.* FROM (
				SELECT * FROM unnest($1::text[], $2::bigint[], $3::float8[], $4::bytea[], $6::bigint[]) WITH ORDINALITY
				u (id, version, progress, checkpoint, given, ord) ORDER BY u.ord) u),
			found AS MATERIALIZED (SELECT c.*, b.seq, b.lease FROM c JOIN {schema}.job b ON b.id = c.id)
			UPDATE {schema}.active j SET lease_until = {until_of}, wake = {until_of},
				progress = greatest(j.progress, nullif(({progress})[{at}], 0)),
				checkpoint = coalesce((ARRAY(SELECT checkpoint FROM found))[{at}], j.checkpoint), place = (ARRAY(SELECT place FROM found))[{at}]
			WHERE j.seq = ANY (ARRAY(SELECT seq FROM found)) AND j.version = (ARRAY(SELECT version FROM found))[{at}]
			RETURNING (ARRAY(SELECT id FROM found))[{at}]`)),

		// Jobs whose deadline has come are left to the caller, which records why they
		// ended. Jobs in states that no due time changes are left to it, too. $3 leaves
		// out jobs that would join rounds, for which the statement waits a short time
		// only. A job that ends and that others may wait for comes alone: it may change
		// those behind it.
		due: q(`WITH found AS MATERIALIZED (
				SELECT seq, state, wake, {waits} AS place, awaited, queue, fair_key,
					state <> 4 AND deadline IS NOT NULL AND deadline <= $1 OR state NOT IN (2, 4, 5) AS expired FROM {schema}.stage
				WHERE wake <= $1 AND NOT ($3 AND fair_key IS NOT NULL AND state IN (2, 5) AND (deadline IS NULL OR deadline > $1))
				ORDER BY wake, {waits} LIMIT $2 FOR UPDATE SKIP LOCKED),
			due AS MATERIALIZED (SELECT * FROM (SELECT *, row_number() OVER () = 1 AS first,
					bool_or(awaited AND expired) OVER (ROWS UNBOUNDED PRECEDING) AS behind FROM found) f
				WHERE first OR behind IS NOT TRUE),
			gone AS MATERIALIZED (DELETE FROM {schema}.stage j WHERE j.seq = ANY (ARRAY(SELECT seq FROM due WHERE NOT expired)) RETURNING j.*),
			locked AS MATERIALIZED (SELECT count({lock_rounds}) AS n FROM (SELECT DISTINCT d.queue FROM due d
				WHERE d.fair_key IS NOT NULL AND d.state <> 4 AND NOT d.expired
				AND set_config('lock_timeout', '200ms', true) <> '' ORDER BY d.queue) l),
			ordered AS MATERIALIZED (
				SELECT nextval('{schema}.place') AS new_place, d.* FROM (SELECT * FROM gone WHERE (SELECT n FROM locked) >= 0 ORDER BY wake, {waits}) d),
			moved AS MATERIALIZED (
				SELECT j.seq, j.new_place AS place, b.id, j.queue, j.type, (CASE j.state WHEN 4 THEN 4 ELSE 3 END)::smallint AS state,
					j.priority, j.attempt, {version1} AS version, CASE j.state WHEN 4 THEN {until_handed} ELSE j.deadline END AS wake, j.deadline,
					b.created, CASE j.state WHEN 4 THEN j.enqueued ELSE coalesce(j.enqueued, $1) END AS enqueued, j.started,
					CASE j.state WHEN 4 THEN j.next_retry END AS next_retry, j.finished, j.dead,
					CASE j.state WHEN 4 THEN {until_handed} ELSE j.lease_until END AS lease_until, b.lease,
					coalesce(j.progress, 0) AS progress, coalesce(j.worker, '') AS worker, j.fingerprint, j.rate_key,
					b.args, b.job, j.outcome, j.checkpoint, b.depends, j.kept, j.released, j.other_place, j.limited, j.created AS peer_created, j.awaited, j.bounds,
					j.fair_key, j.share, CASE j.state WHEN 4 THEN j.own_place END AS own_place
				FROM ordered j JOIN {schema}.job b ON b.seq = j.seq),
			stored AS (INSERT INTO {schema}.stage {standing} SELECT seq, place, version, attempt, other_place, wake, deadline, enqueued,
				started, next_retry, finished, dead, lease_until, kept, released, peer_created, nullif(progress, 0), priority, state,
				limited, queue, type, nullif(worker, ''), fingerprint, rate_key, outcome, checkpoint, awaited, bounds, fair_key, share, own_place
				FROM moved ORDER BY place)
			SELECT j.place AS ord, {columns} FROM moved j
			UNION ALL
			SELECT -d.ord, e.* FROM (SELECT row_number() OVER () AS ord, seq FROM due WHERE expired) d
				CROSS JOIN LATERAL (SELECT {columns} FROM {whole} WHERE j.seq = d.seq OFFSET 0) e`),
		// And whether there are impossible jobs, in the words of their index.
		nextWake: q(`SELECT (SELECT wake FROM {schema}.stage WHERE wake IS NOT NULL ORDER BY wake LIMIT 1),
			EXISTS (SELECT FROM {schema}.stage WHERE {impossible})`),

		get: q(`SELECT {columns} FROM {whole} WHERE id = $1`),
		claimedBy: q("SELECT {columns} FROM " + strings.ReplaceAll(whole, "{of}", "active") +
			" WHERE worker = $1"),
		getAll: q(`SELECT {columns} FROM {whole} WHERE id = ANY ($1::text[])`),
		bySeq:  q(`SELECT {columns} FROM {whole} WHERE seq = ANY ($1::bigint[])`),

		walkOldest: walk(walkStage, "seq > $1 ORDER BY seq", "seq <= $1 ORDER BY seq DESC"),
		walkNewest: walk(walkStage, "seq < $1 ORDER BY seq DESC", "seq >= $1 ORDER BY seq"),
		walkActive: walk(walkActive, "seq > $1 ORDER BY seq", "seq <= $1 ORDER BY seq DESC"),

		walkActiveNewest: walk(walkActive, "seq < $1 ORDER BY seq DESC", "seq >= $1 ORDER BY seq"),

		walkDead:     walk(walkDead, "place > $1 ORDER BY place", "place <= $1 ORDER BY place DESC"),
		walkLastDead: walk(walkDead, "place < $1 ORDER BY place DESC", "place >= $1 ORDER BY place"),
		walkDue: walk(walkDue, "(wake, {waits}) > ($1, $2) ORDER BY wake, {waits}",
			"(wake, {waits}) <= ($1, $2) ORDER BY wake DESC, {waits} DESC"),
		walkReady:    [2]string{walked(walkReady), walked(walkReadyBack)},
		walkFinished: [2]string{walked(walkFinished), walked(walkFinishedBack)},

		counts: q(`SELECT queue, state, sum(n)::bigint FROM {schema}.tally GROUP BY 1, 2 HAVING sum(n) <> 0`),
		// One at a time: who comes second would find rows gone that it has waited for.
		lockRounds: q(`SELECT {lock_rounds} FROM unnest($1::text[]) l (queue)`),
		tryRounds: q(`SELECT l.queue FROM unnest($1::text[]) l (queue)
			WHERE pg_try_advisory_xact_lock({rounds_key})`),
		// $1 are queues, and $2 priorities.
		restRounds: q(`DELETE FROM {schema}.served s USING unnest($1::text[], $2::integer[]) l (queue, priority)
			WHERE s.queue = l.queue AND s.priority = l.priority AND (SELECT j.seq FROM {schema}.ready j
				WHERE j.queue = l.queue AND j.priority = l.priority AND j.own_place IS NOT NULL ORDER BY -j.place LIMIT 1) IS NULL`),
		// All rounds but those that count. Rows are never updated, so a ctid names one.
		compactServed: q(`DELETE FROM {schema}.served WHERE ctid = ANY (ARRAY(SELECT s.ctid FROM {schema}.served s
			WHERE EXISTS (SELECT FROM {schema}.served t
				WHERE t.queue = s.queue AND t.priority = s.priority AND t.place > s.place)
			OR (SELECT j.seq FROM {schema}.ready j WHERE j.queue = s.queue AND j.priority = s.priority
				AND j.own_place IS NOT NULL ORDER BY -j.place LIMIT 1) IS NULL
			FOR UPDATE SKIP LOCKED))`),
		compact: q(`WITH gone AS (DELETE FROM {schema}.tally RETURNING *)
			INSERT INTO {schema}.tally SELECT queue, state, dead, sum(n) FROM gone GROUP BY 1, 2, 3 HAVING sum(n) <> 0`),

		// The jobs asked for are locked, so that they stay as the statement finds them.
		// If some have changed their state meanwhile, nothing is deleted, and the last
		// number says how many.
		remove: q(`WITH there AS MATERIALIZED (SELECT s.seq, b.id FROM {schema}.job b JOIN {schema}.stage s ON s.seq = b.seq
				WHERE b.id = ANY ($1::text[]) AND s.state BETWEEN 1 AND 8),
			asked AS MATERIALIZED (SELECT seq, state FROM {schema}.stage WHERE seq = ANY (ARRAY(SELECT seq FROM there)) ORDER BY seq FOR UPDATE),
			held AS (SELECT t.id, a.state FROM asked a JOIN there t USING (seq) WHERE a.state < 6 ORDER BY array_position($1::text[], t.id) LIMIT 1),
			moved AS (SELECT (SELECT count(*) FROM there) - (SELECT count(*) FROM asked) AS n),
			gone AS (DELETE FROM {schema}.stage WHERE seq = ANY (ARRAY(SELECT seq FROM asked)) AND NOT EXISTS (SELECT FROM held)
				AND (SELECT n FROM moved) = 0 RETURNING seq),
			bodies AS (DELETE FROM {schema}.job WHERE seq = ANY (ARRAY(SELECT seq FROM gone))),
			logs AS (DELETE FROM {schema}.log WHERE seq = ANY (ARRAY(SELECT seq FROM gone)))
			SELECT (SELECT count(*) FROM gone), coalesce((SELECT id FROM held), ''), coalesce((SELECT state FROM held), 0), (SELECT n FROM moved)`),
		// Jobs released by a later clock are kept again, all of them: a prune would
		// delete the rest too early. Calls that release at the same time skip each
		// other's jobs.
		keptUntil: q(`WITH again AS (UPDATE {schema}.stage SET kept = released, released = NULL WHERE seq = ANY (ARRAY(
				SELECT seq FROM {schema}.done WHERE released > $1 ORDER BY released, seq FOR UPDATE)))
			SELECT d.seq, coalesce(d.finished, {none}), (SELECT CASE WHEN position('"workflow_id"'::bytea IN job) > 0 THEN job END FROM {schema}.job WHERE seq = d.seq)
			FROM {schema}.done d WHERE d.kept <= $1 ORDER BY d.kept LIMIT $2`),
		// $1 is the time, $2 are jobs, $3 their workflows, $4 until when.
		keepOn: q(`UPDATE {schema}.done d SET kept = ($4::bigint[])[array_position($2::bigint[], d.seq)]
			WHERE d.kept <= $1 AND d.seq = ANY (ARRAY(
				SELECT d.seq FROM {schema}.done d WHERE d.seq = ANY ($2::bigint[])
				AND EXISTS (SELECT FROM {schema}.job b JOIN {schema}.stage s ON s.seq = b.seq
					WHERE b.id = ($3::text[])[array_position($2::bigint[], d.seq)] AND (s.state < 6 OR s.kept > $1))
				ORDER BY d.seq FOR UPDATE SKIP LOCKED)) RETURNING d.seq`),
		// $2 are jobs.
		release: q(`UPDATE {schema}.stage SET released = kept, kept = NULL WHERE seq = ANY (ARRAY(
			SELECT seq FROM {schema}.done WHERE seq = ANY ($2::bigint[]) AND kept <= $1 ORDER BY seq FOR UPDATE SKIP LOCKED))`),
		// $1 are the states, $2 whether dead letters, $3 before when, $4 beyond how many,
		// $5 how many at most, $6 from when on spared, or the greatest time. A dead
		// letter that is retried meanwhile has left its partition, and stays.
		prune: q(`WITH total AS (SELECT coalesce(sum(n), 0) AS n FROM {schema}.tally WHERE state = ANY ($1::smallint[]) AND dead = $2),
			ended AS (
				SELECT e.* FROM unnest($1::smallint[]) s CROSS JOIN LATERAL (
					SELECT seq, place, finished FROM {schema}.done
					WHERE state = s AND kept IS NULL AND num_nonnulls(dead) = $2::boolean::integer
					ORDER BY finished NULLS FIRST, place LIMIT $5 + 1) e),
			first AS MATERIALIZED (SELECT *, row_number() OVER (ORDER BY finished NULLS FIRST, place) AS nth FROM ended),
			going AS MATERIALIZED (SELECT count(*) AS n FROM first WHERE nth <= $5 AND nth < coalesce((SELECT min(nth) FROM first, total
				WHERE NOT (coalesce(finished, {none}) < $3 OR $4 > 0 AND total.n - (nth - 1) > $4 AND coalesce(finished, {none}) < $6)), $5 + 1)),
			gone AS MATERIALIZED (DELETE FROM {schema}.done WHERE seq = ANY (ARRAY(SELECT seq FROM first, going WHERE nth <= going.n))
				RETURNING seq, queue, state),
			counted AS (INSERT INTO {schema}.tally SELECT queue, state, $2, -count(*) FROM gone GROUP BY 1, 2),
			bodies AS (DELETE FROM {schema}.job WHERE seq = ANY (ARRAY(SELECT seq FROM gone)) RETURNING seq, id),
			logs AS (DELETE FROM {schema}.log WHERE seq = ANY (ARRAY(SELECT seq FROM gone)))
			SELECT coalesce((SELECT array_agg(b.id ORDER BY f.nth) FROM first f JOIN bodies b USING (seq)), '{}'),
				(SELECT n FROM total)::bigint - (SELECT count(*) FROM gone),
				(SELECT finished FROM first, going WHERE nth = going.n + 1)`),

		queueStates: q(`SELECT queue, state FROM {schema}.queue_state`),
		queueState:  q(`SELECT state FROM {schema}.queue_state WHERE queue = $1`),
		setQueueState: q(
			`INSERT INTO {schema}.queue_state VALUES ($1, $2) ON CONFLICT (queue) DO UPDATE SET state = excluded.state`),
		activateQueue: q(`DELETE FROM {schema}.queue_state WHERE queue = $1`),

		values: q(`SELECT key, data, expires FROM {schema}.value
			WHERE key >= $1 AND key > $2 AND key < $3 AND expires > $4 ORDER BY key LIMIT $5`),
		putValues: q(`INSERT INTO {schema}.value
			SELECT u.* FROM unnest($1::text[], $2::bytea[], $3::bigint[]) u (key, data, expires) ORDER BY u.key
			ON CONFLICT (key) DO UPDATE SET data = excluded.data, expires = excluded.expires`),
		deleteValues: q(`DELETE FROM {schema}.value WHERE key = ANY ($1::text[])`),
		dropValues: q(`DELETE FROM {schema}.value WHERE key = ANY (ARRAY(
			SELECT key FROM {schema}.value WHERE expires <= $1 ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED))`),

		logs: q(`SELECT l.version, l.data FROM {schema}.job b JOIN {schema}.log l ON l.seq = b.seq
			WHERE b.id = $1 ORDER BY l.version`),
		addLogs: q(`INSERT INTO {schema}.log SELECT b.seq, u.version, u.data
			FROM unnest($1::text[], $2::bigint[], $3::bytea[]) u (id, version, data) JOIN {schema}.job b ON b.id = u.id`),
		// $2 is how many logs of a job are kept.
		trimLogs: q(`DELETE FROM {schema}.log l WHERE l.seq = ANY ({seqs}) AND l.version <= (
			SELECT n.version FROM {schema}.log n WHERE n.seq = l.seq ORDER BY n.version DESC OFFSET $2 LIMIT 1)`),
		// $1 and $2 are the kinds and names of limits.
		counters: q(`SELECT u.ord, l.kind IS NOT NULL, coalesce(l.setting, ''), coalesce(l.until, {none}), coalesce(l.blocked, {none}),
				coalesce(l.last, ''), coalesce(l.period, 0), coalesce(l.most, 0),
				CASE u.kind WHEN 'key' THEN (SELECT count(*) FROM {schema}.active j WHERE j.rate_key = u.name AND j.bounds IS NOT NULL) ELSE 0 END,
				coalesce(s.n, 0), coalesce(s.at, 0)
			FROM unnest($1::text[], $2::text[]) WITH ORDINALITY u (kind, name, ord)
			LEFT JOIN {schema}.job_limit l ON l.kind = u.kind AND l.name = u.name
			LEFT JOIN LATERAL (SELECT n, at FROM {schema}.job_start j WHERE j.kind = u.kind AND j.name = u.name
				ORDER BY n DESC LIMIT 1) s ON true`),
		// It looks at all active jobs, which are as many as run: an index would cost each
		// claim and each end.
		activeOf: q(`SELECT u.ord, count(*) FROM unnest($1::text[], $2::text[]) WITH ORDINALITY u (kind, name, ord)
			JOIN {schema}.active j ON CASE u.kind WHEN 'queue' THEN j.queue = u.name
				WHEN 'type' THEN split_part(j.type, '@', 1) = u.name ELSE false END GROUP BY 1`),
		start: q(`SELECT at FROM {schema}.job_start WHERE kind = $1 AND name = $2 AND n = $3`),
		setStarted: q(`INSERT INTO {schema}.job_limit (kind, name, last, period, most, look) VALUES ($1, $2, nullif($3, ''), $4, $5, $6)
			ON CONFLICT (kind, name) DO UPDATE SET last = excluded.last, period = excluded.period, most = excluded.most`),
		// $3 is the number before the first of them, $4 how many, $5 when.
		addStarts: q(
			`INSERT INTO {schema}.job_start SELECT $1, $2, $3::bigint + i, $5 FROM generate_series(1, $4::bigint) i`),
		sortStarts: q(`UPDATE {schema}.job_start s SET at = o.at FROM (
				SELECT n.n, a.at FROM
					(SELECT n, row_number() OVER (ORDER BY n) AS i FROM {schema}.job_start WHERE kind = $1 AND name = $2) n JOIN
					(SELECT at, row_number() OVER (ORDER BY at) AS i FROM {schema}.job_start WHERE kind = $1 AND name = $2) a USING (i)) o
			WHERE s.kind = $1 AND s.name = $2 AND s.n = o.n AND s.at <> o.at`),
		trimStarts: q(`DELETE FROM {schema}.job_start WHERE kind = $1 AND name = $2 AND n <= $3`),
		// The starts behind one at $3 move up by one, and the last goes.
		takeStart: q(`WITH f AS MATERIALIZED (SELECT n FROM {schema}.job_start WHERE kind = $1 AND name = $2 AND at = $3 ORDER BY n DESC LIMIT 1),
			l AS MATERIALIZED (SELECT n FROM {schema}.job_start WHERE kind = $1 AND name = $2 ORDER BY n DESC LIMIT 1),
			moved AS (UPDATE {schema}.job_start s SET at = b.at FROM {schema}.job_start b
				WHERE s.kind = $1 AND s.name = $2 AND s.n >= (SELECT n FROM f) AND b.kind = $1 AND b.name = $2 AND b.n = s.n + 1)
			DELETE FROM {schema}.job_start WHERE kind = $1 AND name = $2 AND n = (SELECT l.n FROM l, f)`),
		// Which of some limits keep starts.
		keepStarts: q(`SELECT l.kind, l.name FROM unnest($1::text[], $2::text[]) u (kind, name)
			JOIN {schema}.job_limit l ON l.kind = u.kind AND l.name = u.name WHERE l.period > 0`),
		wide: q(`SELECT kind, name FROM {schema}.job_limit WHERE kind IN ('queue', 'type')`),
		setLimit: q(`INSERT INTO {schema}.job_limit (kind, name, setting, until, blocked, period, most, look)
			VALUES ($1, $2, nullif($3, ''), nullif($4::bigint, {none}), nullif($5::bigint, {none}), $6, $7, $8)
			ON CONFLICT (kind, name) DO UPDATE SET setting = excluded.setting, until = excluded.until,
				blocked = excluded.blocked, period = excluded.period, most = excluded.most`),
		judge: q(`INSERT INTO {schema}.job_judge SELECT unnest($1::text[])`),
		// The limits $1, $2, whose keys are to be forgotten after $3 at the earliest.
		lockLimits: q(`INSERT INTO {schema}.job_limit AS l (kind, name, look)
			SELECT DISTINCT u.kind COLLATE "C", u.name COLLATE "C", CASE u.kind WHEN 'key' THEN $3::bigint END
			FROM unnest($1::text[], $2::text[]) u (kind, name) ORDER BY 1, 2
			ON CONFLICT (kind, name) DO UPDATE SET opens = l.opens`),
		judgeLimits: q("WITH " + locks("")),
		promote:     q(strings.ReplaceAll(promote, "{keys}", dueKeys)),
		closed:      q(strings.ReplaceAll(closed, "{keys}", "{locked_keys}")),
		// The lanes of the keys $1 with the bounds $2 get no heads.
		shutLanes: q(`UPDATE {schema}.ready SET head = false WHERE seq = ANY (ARRAY(
			SELECT c.seq FROM unnest($1::text[], $2::text[]) u (name, bounds) CROSS JOIN LATERAL (
				SELECT r.seq FROM {schema}.ready r
				WHERE r.rate_key = u.name AND r.bounds = u.bounds AND r.head FOR UPDATE SKIP LOCKED) c))`),
		setOpens: q(`UPDATE {schema}.job_limit l SET opens = nullif(u.opens, {none})
			FROM unnest($1::text[], $2::bigint[]) u (name, opens)
			WHERE l.kind = 'key' AND l.name = u.name AND l.opens IS DISTINCT FROM nullif(u.opens, {none})`),
		// Whether jobs are set aside, and when time opens a limit.
		held: q(`SELECT EXISTS (SELECT FROM {schema}.ready WHERE NOT head AND attempt >= 0), {judging},
			coalesce((SELECT opens FROM {schema}.job_limit WHERE opens IS NOT NULL ORDER BY opens LIMIT 1), {none})`),
		idleLimits: q(`SELECT name FROM {schema}.job_limit WHERE look <= $1 ORDER BY look LIMIT 8`),
		forgetLimits: q(`WITH gone AS (DELETE FROM {schema}.job_limit l WHERE l.kind = 'key' AND l.name = ANY ($1::text[])
				AND (l.setting IS NULL OR l.until <= $2) AND (l.blocked IS NULL OR l.blocked <= $2)
				AND NOT EXISTS (SELECT FROM {schema}.ready j WHERE j.rate_key = l.name AND j.bounds IS NOT NULL)
				AND NOT EXISTS (SELECT FROM {schema}.active j WHERE j.rate_key = l.name AND j.bounds IS NOT NULL)
				AND NOT EXISTS (SELECT FROM {schema}.job_start s WHERE s.kind = l.kind AND s.name = l.name AND s.at > $2 - l.period)
				RETURNING l.name)
			DELETE FROM {schema}.job_start WHERE kind = 'key' AND name = ANY (ARRAY(SELECT name FROM gone))`),
		lookLater: q(
			`UPDATE {schema}.job_limit SET look = $2 WHERE kind = 'key' AND name = ANY ($1::text[])`),
		// How many jobs of a limit wait at $2, and the bounds of one of a key.
		waitingOfKey: q(`SELECT count(*), coalesce(min(j.bounds), '') FROM {schema}.ready j
			WHERE j.rate_key = $1 AND j.bounds IS NOT NULL AND (j.wake IS NULL OR j.wake > $2)`),
		waitingOfQueue: q(`SELECT count(*), '' FROM {schema}.ready j
			WHERE j.queue = $1 AND (j.wake IS NULL OR j.wake > $2)`),
		waitingOfType: q(`SELECT count(*), '' FROM {schema}.ready j
			WHERE split_part(j.type, '@', 1) = $1 AND (j.wake IS NULL OR j.wake > $2) AND j.attempt >= 0`),
		countStarts: q(`SELECT count(*) FROM {schema}.job_start WHERE kind = $1 AND name = $2 AND at > $3`),
		// The first limits after a name of which there may be something to tell.
		nextLimit: q(`SELECT name FROM (
			(SELECT name FROM {schema}.job_limit WHERE kind = $1 AND name > $2 AND (setting IS NOT NULL OR blocked IS NOT NULL)
				ORDER BY name LIMIT 1)
			UNION ALL (SELECT rate_key FROM {schema}.active WHERE $1 = 'key' AND bounds IS NOT NULL AND rate_key > $2 ORDER BY rate_key LIMIT 1)
			UNION ALL (SELECT rate_key FROM {schema}.ready WHERE $1 = 'key' AND bounds IS NOT NULL AND rate_key > $2 ORDER BY rate_key LIMIT 1)) n
			ORDER BY name LIMIT 1`),

		listen:    q(`LISTEN "ojs:{name}"`),
		notify:    q(`SELECT pg_notify($1, payload) FROM unnest($2::text[]) payload`),
		clock:     q(`SELECT clock_timestamp()`),
		isolation: q(`SELECT current_setting('transaction_isolation')`),

		crons: q(`SELECT name, version, entry FROM {schema}.cron
			WHERE name > $1 AND ($2::text[] IS NULL OR name = ANY($2)) ORDER BY name LIMIT $3`),
		// The entries that are due, and the first that is not.
		dueCrons: q(`(SELECT name, version, entry FROM {schema}.cron
			WHERE (next_run, name) > ($1, $2) AND next_run <= $3 ORDER BY next_run, name LIMIT $4)
			UNION ALL (SELECT name, version, entry FROM {schema}.cron
			WHERE (next_run, name) > ($1, $2) AND next_run > $3 ORDER BY next_run, name LIMIT 1)`),
		// Calls take turns. Otherwise an entry could be stored under a version that
		// another call has passed and deleted meanwhile.
		setCrons: q(`WITH given AS MATERIALIZED (
				SELECT u.* FROM unnest($1::int[], $2::text[], $3::bigint[], $4::bytea[]) AS u(i, name, version, entry),
					(SELECT pg_advisory_xact_lock(hashtextextended('{name} cron', 3131961357)) OFFSET 0) AS turn ORDER BY name),
			added AS (INSERT INTO {schema}.cron SELECT name, nextval('{schema}.cron_version'), entry FROM given WHERE version = 0
				ON CONFLICT DO NOTHING RETURNING name, version),
			there AS (UPDATE {schema}.cron SET version = nextval('{schema}.cron_version'), entry = given.entry
				FROM given WHERE cron.name = given.name AND cron.version = given.version AND given.version > 0
				RETURNING cron.name, cron.version)
			SELECT given.i, stored.version FROM given JOIN (TABLE added UNION ALL TABLE there) AS stored USING (name)`),
		deleteCron: q(`DELETE FROM {schema}.cron WHERE name = $1`),

		// $1 are the rows as they were read: the seq, $2 the version, $3 the reason. Rows
		// that another transaction has locked are skipped.
		setAside: q(`WITH met AS MATERIALIZED (
				SELECT seq FROM {schema}.stage WHERE seq = ANY ($1::bigint[]) AND version = ($2::bigint[])[array_position($1::bigint[], seq)]
				ORDER BY seq FOR UPDATE SKIP LOCKED),
			gone AS MATERIALIZED (DELETE FROM {schema}.stage j WHERE seq = ANY (ARRAY(SELECT seq FROM met)) RETURNING j.*),
			bodies AS MATERIALIZED (DELETE FROM {schema}.job j WHERE seq = ANY (ARRAY(SELECT seq FROM met)) RETURNING j.*),
			kept AS (INSERT INTO {schema}.quarantined_job (seq, place, id, queue, type, state, priority, attempt, version, wake, deadline,
					created, enqueued, started, next_retry, finished, dead, lease_until, lease, progress, worker, fingerprint, rate_key,
					args, job, outcome, checkpoint, kept, released, other_place, depends, awaited, bounds, fair_key, share, own_place)
				SELECT seq, s.place, b.id, s.queue, s.type, s.state, s.priority, s.attempt, s.version, s.wake, s.deadline,
					b.created, s.enqueued, s.started, s.next_retry, s.finished, s.dead, s.lease_until, b.lease, coalesce(s.progress, 0),
					coalesce(s.worker, ''), s.fingerprint, s.rate_key, b.args, b.job, s.outcome, s.checkpoint, s.kept, s.released, s.other_place, b.depends, s.awaited, s.bounds,
					s.fair_key, s.share, s.own_place
				FROM gone s JOIN bodies b USING (seq) RETURNING id, seq),
			left_lane AS (INSERT INTO {schema}.job_judge SELECT DISTINCT rate_key FROM gone WHERE state = 3 AND bounds IS NOT NULL)
			INSERT INTO {schema}.quarantine (kind, name, seq, reason)
				SELECT 'job', id, seq, ($3::text[])[array_position($1::bigint[], seq)] FROM kept ORDER BY seq RETURNING n, seq, at`),
		// The places before the claims of older versions are unknown: those go by age.
		undoClaims: q(`UPDATE {schema}.quarantined_job SET state = 3, place = coalesce(other_place, seq), other_place = NULL, wake = deadline, lease_until = NULL, worker = '',
				attempt = attempt - (attempt BETWEEN 1 AND {most} + 1)::integer, started = CASE WHEN attempt > 1 THEN started END
			WHERE seq = ANY ($1::bigint[])`),
		impossible: q(`SELECT {columns} FROM {whole} WHERE {impossible} LIMIT $1`),
		setCronAside: q(`WITH gone AS (DELETE FROM {schema}.cron WHERE name = $1 AND version = $2 RETURNING name, version, entry)
			INSERT INTO {schema}.quarantine (kind, name, reason, version, body) SELECT 'cron', name, $3, version, entry FROM gone RETURNING n, at`),
		setQueueAside: q(`WITH gone AS (DELETE FROM {schema}.queue_state WHERE queue = $1 AND state = $2 RETURNING queue, state)
			INSERT INTO {schema}.quarantine (kind, name, reason, body)
				SELECT 'queue', queue, $3, convert_to(state, 'UTF8') FROM gone RETURNING n, at`),
		quarantined: q(`SELECT q.n, q.kind, q.name, q.reason, q.at, coalesce(j.queue, ''), coalesce(j.type, ''), coalesce(j.state, 0::smallint)
			FROM {schema}.quarantine q LEFT JOIN {schema}.quarantined_job j USING (seq) WHERE q.n > $1 ORDER BY q.n LIMIT $2`),
		countQuarantined: q(`SELECT count(*) FROM {schema}.quarantine`),
		quarantinedID: q(
			`SELECT n, reason FROM {schema}.quarantine WHERE name = $1 AND kind = 'job' ORDER BY n DESC LIMIT 1`),
		quarantineEntry: q(
			`SELECT kind, name, coalesce(seq, 0), coalesce(version, 0), body FROM {schema}.quarantine WHERE n = $1 FOR UPDATE`),
		quarantinedJob: q(`SELECT {columns} FROM {schema}.quarantined_job j WHERE seq = $1 FOR UPDATE`),
		stateOf: q(
			`SELECT s.state FROM {schema}.job b JOIN {schema}.stage s ON s.seq = b.seq WHERE b.id = $1`),
		releaseJob: q(`WITH n AS MATERIALIZED (SELECT * FROM {schema}.quarantined_job WHERE seq = $1),
			body AS (INSERT INTO {schema}.job (seq, created, lease, id, args, job, depends) SELECT seq, created, lease, id, args, job, depends FROM n)
			INSERT INTO {schema}.stage {standing} SELECT seq, place, version, attempt, other_place, wake, deadline, enqueued, started,
				next_retry, finished, dead, lease_until, kept, released, CASE WHEN fingerprint IS NOT NULL THEN created END,
				nullif(progress, 0), priority, state, {limited}, queue, type, nullif(worker, ''), fingerprint, rate_key, outcome, checkpoint, awaited, bounds,
				fair_key, share, own_place FROM n`),
		releaseCron:  q(`INSERT INTO {schema}.cron VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`),
		releaseQueue: q(`INSERT INTO {schema}.queue_state VALUES ($1, $2) ON CONFLICT DO NOTHING`),
		// The logs of a job that was released stay, and its place in line.
		deleteQuarantined: q(`WITH gone AS (DELETE FROM {schema}.quarantine WHERE n = $1 RETURNING seq),
			logs AS (DELETE FROM {schema}.log l WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
				AND NOT EXISTS (SELECT FROM {schema}.job b WHERE b.seq = l.seq)),
			lines AS (DELETE FROM {schema}.line l WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
				AND NOT EXISTS (SELECT FROM {schema}.job b WHERE b.seq = l.seq))
			DELETE FROM {schema}.quarantined_job WHERE seq IN (SELECT seq FROM gone)`),
	}
}
