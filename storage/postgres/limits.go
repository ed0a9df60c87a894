package postgres

import (
	"context"
	"strings"
	"sync"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// Limits (storage.Limited), counted by what the tables say.
//
// The column bounds of a job has its rate limit. The available jobs of one queue, type
// and bounds are a lane. Claims look at heads only: all jobs without bounds, and the
// first jobs of each lane, as many as its key lets start. The other jobs of a lane are
// set aside, and cost claims nothing.
//
// A trigger (migration 22) has a job enter its lane, and adds the key to job_judge. So do
// the ends of jobs, settings, and changes of jobs that wait. A transaction that finds
// keys there judges their lanes:
//
//	delete the keys from job_judge, and lock their rows of job_limit
//	make the first jobs of their lanes heads (promote)
//	claim: judge each head once more, and set those aside that may not start
//
// A step that ends jobs with limits does so in its one round trip. The claim statement
// judges keys that have a bound of concurrency alone. The rest is left to claimLimited
// (limitclaim.go). Counters are in limitcount.go, settings in limitstore.go.
//
// Invariants:
//
//  1. A job becomes active, as far as a limit of its key counts it, by a transaction that
//     has locked the key. The active jobs are counted by a later statement than the one
//     that locks, which sees what the holder before has done.
//  2. In each lane the first jobs that may start are heads, or the key is in job_judge,
//     or the time in job_limit.opens has come, or the clock is before job_limit.ended,
//     the end of a setting that a claim has found ended. There may be more heads.
//  3. Only a transaction that has locked a key makes jobs of its lanes heads, or sets
//     heads aside. The statements that do come after the one that locks.
//  4. The end of a job locks no key. Its key is in job_judge when it commits.
//  5. A transaction locks all of its keys with one statement, in their order, behind the
//     jobs that it settles, and skips jobs that others have locked. So claims deadlock
//     with no claim.
//  6. A lane with another OnLimit, or of a key with rates, throttles or a setting, has a
//     head while jobs wait there, unless time opens it.

// wide says whether the limit of its queue or type counts a job j at $1.
const (
	wide = `(j.queue = ANY (ARRAY(SELECT name FROM {schema}.job_limit WHERE kind = 'queue' AND ` + counts + `))
	OR split_part(j.type, '@', 1) = ANY (ARRAY(SELECT name FROM {schema}.job_limit WHERE kind = 'type' AND ` + counts + `)))`
	// counts says whether the limit of a queue or type holds jobs back or keeps starts.
	// A limit that is not set any more does neither, and would cost each claim a
	// transaction.
	counts = `(setting IS NOT NULL AND (until > $1) IS NOT FALSE OR blocked > $1 OR period > 0)`
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
			UNION SELECT name FROM (SELECT name FROM {schema}.job_limit WHERE opens <= $1 ORDER BY opens LIMIT 1000) o
			UNION SELECT name FROM (SELECT name FROM {schema}.job_limit WHERE ended > $1 ORDER BY ended LIMIT 1000) e),
		locked AS (INSERT INTO {schema}.job_limit AS l (kind, name, look)
			SELECT kind, name, {later} FROM (SELECT 'key' AS kind, name FROM due
				{picked}) u ORDER BY kind, name
			ON CONFLICT (kind, name) DO UPDATE SET opens = CASE WHEN l.opens > $1 THEN l.opens END,
				ended = CASE WHEN l.ended <= $1 THEN l.ended END RETURNING kind, name, xmax = 0 AS added)
		SELECT coalesce(array_agg(kind), '{}'), coalesce(array_agg(name), '{}'),
			set_config('ojs.keys', coalesce(array_agg(name) FILTER (WHERE kind = 'key'), '{}')::text, true),
			coalesce(bool_or(added), false), set_config('ojs.due', ARRAY(SELECT name FROM due)::text, true),
			set_config('ojs.noted', '', true) FROM locked`

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

// locks are the statement locking, which locks the limits of jobs that are picked, too.
func locks(picked string) string {
	return strings.NewReplacer("{picked}", picked, "{later}", untilOf("3600000000000")).Replace(locking)
}

// note adds to a notice what a row tells as it is now: also that it leaves a slot of a
// limit, if it has been active.
func (s *Storage) note(n *storage.Notice, c *written) {
	rows.Note(n, c)
	if c.State == rows.Active || n.Available {
		return
	}
	n.Available = c.Bounds != ""
	if wide := *s.wide.Load(); len(wide) > 0 {
		of := limitsOf(c.Queue, c.Type, "", "")
		n.Available = n.Available || wide[of[0]] || wide[of[1]]
	}
}

// limitsOf returns the limits that may count a job: those of its queue and type, and last
// that of its key.
func limitsOf(queue, jobType, bounds, key string) []storage.LimitName {
	names := []storage.LimitName{{Kind: storage.LimitQueue, Name: queue},
		{Kind: storage.LimitType, Name: rows.TypeName(jobType)}}
	if bounds != "" {
		names = append(names, storage.LimitName{Kind: storage.LimitKey, Name: key})
	}
	return names
}

// pair returns the kinds and the names of limits.
func pair(of []storage.LimitName) (kinds, names []string) {
	return listOf(of, func(l *storage.LimitName) string { return string(l.Kind) }),
		listOf(of, func(l *storage.LimitName) string { return l.Name })
}

// lockLimitsSQL locks the limits of the kinds $1 and names $2. Keys among them are
// forgotten after $3 at the earliest.
var lockLimitsSQL = define("lockLimits", `INSERT INTO {schema}.job_limit AS l (kind, name, look)
		SELECT DISTINCT u.kind COLLATE "C", u.name COLLATE "C", CASE u.kind WHEN 'key' THEN $3::bigint END
		FROM unnest($1::text[], $2::text[]) u (kind, name) ORDER BY 1, 2
		ON CONFLICT (kind, name) DO UPDATE SET opens = l.opens`)

// lockLimits locks limits until the transaction ends.
func (t *tx) lockLimits(now int64, of []storage.LimitName) {
	t.checkIsolation()
	kinds, names := pair(of)
	t.exec(lockLimitsSQL, kinds, names, later(now, idlePeriod))
}

// lockedLimits are what a claim has locked.
type lockedLimits struct {
	kinds, names []string
	added        bool // keys that had no row
}

func (l *lockedLimits) read() func(rowSet) error {
	var set string // of the transaction
	return each([]any{&l.kinds, &l.names, &set, &l.added, &set, &set}, func() {})
}

func (l *lockedLimits) list() []storage.LimitName {
	list := make([]storage.LimitName, len(l.names))
	for i := range list {
		list[i] = storage.LimitName{Kind: storage.LimitKind(l.kinds[i]), Name: l.names[i]}
	}
	return list
}

// closedLane is a lane in which jobs wait and none may start.
type closedLane struct {
	own ojs.RateLimit
	key storage.ClosedKey
}

// readLanes reads the result of the statement closed. The lanes have a bound of
// concurrency alone.
func readLanes(to *[]closedLane) func(rowSet) error {
	var bounds string
	var active int
	return each([]any{&bounds, &active}, func() {
		own, err := rows.ReadBounds(bounds)
		if err == nil { // or the job is found as one that does not decode
			key := storage.Closes(own.Key, &own, active, rows.None, rows.None, 0)
			*to = append(*to, closedLane{own, key})
		}
	})
}

// closings are the lanes that a handle knows to be closed.
type closings struct {
	mu   sync.Mutex
	told map[ojs.RateLimit]bool // or to be told: in list
	list []storage.ClosedKey
}

// mostTold is how many closed lanes a handle remembers.
const mostTold = 100_000

// follow adds what a claim has started, and then the lanes that it has found closed. It
// returns what is to be told, if the claim tells it.
func (c *closings) follow(started []ojs.RateLimit, shut []closedLane, tells bool) (list []storage.ClosedKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told == nil || len(c.told) > mostTold {
		c.told, c.list = make(map[ojs.RateLimit]bool), nil
	}
	for _, own := range started {
		delete(c.told, own)
	}
	for i := range shut {
		if l := &shut[i]; !c.told[l.own] {
			c.told[l.own] = true
			c.list = append(c.list, l.key)
		}
	}
	if tells {
		list, c.list = c.list, nil
	}
	return list
}

// tell completes what a claim says of limits.
func (a *asking) tell(ctx context.Context) {
	s, to := a.s, a.c.Limits
	asks := a.left() > 0 && !a.over
	to.Closed = s.closings.follow(a.start, a.shut, asks && a.asked) // or the next claim tells
	if a.added {
		_ = s.forgetIdle(ctx, a.now) // another claim will
	}
	opens := rule.Earlier(a.first, a.opens)
	to.Held = a.held || len(a.leave) > 0
	if asks {
		to.Opens = rows.Time(opens)
	}
	if opens != rows.None && s.openTold.Swap(opens) != opens {
		s.tell(ctx, &storage.Notice{Opens: rows.Time(opens)})
	}
}
