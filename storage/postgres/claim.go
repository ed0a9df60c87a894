package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
)

// Claim implements storage.Storage.
func (s *Storage) Claim(
	ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record,
) ([]storage.Record, error) {
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.mu.RUnlock()
	if c.Max <= 0 {
		return dst, nil
	}
	had := len(dst)
	taken := claims{asking: s.asking(now, &c, min(c.Max, maxRows), false), at: func(i int) *storage.Record {
		if had+i == len(dst) {
			dst = append(dst, storage.Record{})
		}
		return &dst[had+i]
	}}
	if _, err := s.claimAll(ctx, settling{}, &taken); err != nil {
		return dst[:had], wrap(err)
	}
	return dst[:had+taken.had], nil
}

// asking is a claim on its way.
type asking struct {
	s     *Storage
	c     *storage.Claim
	now   int64
	types claimTypes
	asked bool // the caller asks what limits do
	step  bool // the first job ends it that has an enqueue TTL
	most  int
	had   int             // jobs that it has claimed
	leave []string        // queues and types whose limits let no job start
	opens int64           // when time opens one of these; rows.None: never
	start []ojs.RateLimit // of the jobs that it has claimed
	shut  []closedLane
	said
}

// said is what the last statement of a claim has said of limits.
type said struct {
	more  bool  // they have more to say: claimLimited
	held  bool  // jobs are set aside
	over  bool  // a job that may start has ended the claim
	added bool  // keys that were not known
	first int64 // when time opens the first limit of a key; rows.None: never
}

func (s *Storage) asking(now time.Time, c *storage.Claim, most int, step bool) *asking {
	asked := c.Limits != nil
	c.ResetLimits()
	return &asking{
		s: s, c: c, asked: asked, now: rows.Nanos(now), types: typesOf(c.Types), step: step, most: most,
		leave: []string{}, opens: rows.None, said: said{first: rows.None},
	}
}

func (a *asking) left() int { return a.most - a.had }

// reads reads a row that is no job, and reports whether it is one.
func (a *asking) reads(row *stored) bool {
	switch row.ord {
	case -1:
		a.more = true
	case -2:
		a.held, a.first = true, row.seq
	case -3:
		a.over = true
	}
	return row.ord < 0
}

// typeVersion is the version of the type of a job j: as one number, in which those of OJS
// (internal/versions) have their order. -1: no such version.
const (
	versionText = `substr(j.type, strpos(j.type, '@') + 1)`
	typeVersion = `(CASE WHEN ` + versionText + ` ~ '^(0|[1-9][0-9]{0,18})([.](0|[1-9][0-9]{0,18}))?$'
	THEN split_part(` + versionText + `, '.', 1)::numeric * 10000000000000000000
		+ coalesce(nullif(split_part(` + versionText + `, '.', 2), ''), '0')::numeric ELSE -1 END)`
)

// claimable is what every claim asks of a job j. $1 is the time. $3 are the types of jobs
// without a version, NULL for all jobs, and $4 those of jobs with one, which is at least
// $5 and below $6. $7 are the queues and types to leave, as the asking has them.
const claimable = `j.head AND (j.wake IS NULL OR j.wake > $1) AND ($3::text[] IS NULL OR j.type = ANY ($3::text[])
	OR strpos(j.type, '@') > 0 AND EXISTS (
		SELECT FROM unnest($4::text[], $5::text[], $6::text[]) r (name, low, high)
		WHERE r.name = substr(j.type, 1, strpos(j.type, '@') - 1)
		AND ` + typeVersion + ` >= r.low::numeric AND ` + typeVersion + ` < r.high::numeric)) AND (cardinality($7::text[]) = 0
	OR 'queue ' || j.queue <> ALL ($7::text[]) AND 'type ' || split_part(j.type, '@', 1) <> ALL ($7::text[]))`

// Claims judge the jobs that are picked, in order, and end at the first job that they
// cannot judge: see limits.go. A claim returns number -1 if limits have more to say, and
// -2 if jobs are set aside, with the time at which time alone opens a limit.
var (
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
		OR EXISTS (SELECT FROM {schema}.job_limit WHERE ended > $1)
		OR EXISTS (SELECT FROM {schema}.ready WHERE bounds IS NOT NULL AND late IS NULL AND wake <= $1)
		OR EXISTS (SELECT FROM {schema}.ready WHERE bounds IS NOT NULL AND late AND wake > $1))`

	// plain takes the jobs before the first one that a limit counts, or that ends a step.
	plain = `,
		numbered AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, p.seq FROM (
			SELECT seq, bool_or(key IS NOT NULL OR wide OR ends) OVER (ROWS UNBOUNDED PRECEDING) AS over FROM picked) p
			WHERE NOT p.over),
		` + take + takenJobs + `
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
		` + take + lastStarted + takenJobs + `
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

// take makes jobs active. $1 is the time, $8 the worker, $9 the lease of a job whose own
// is the default.
var take = `by_seq AS MATERIALIZED (SELECT array_agg(seq ORDER BY seq) AS seqs, array_agg(place ORDER BY seq) AS ords
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
	leased AS (INSERT INTO {schema}.active {standing} SELECT ` +
	standingBut("created", "peer_created", "progress", "NULL", "worker", "nullif(worker, '')") + ` FROM taken),
	served AS (INSERT INTO {schema}.served SELECT queue, priority, max(other_place) FROM taken t WHERE fair_key IS NOT NULL GROUP BY 1, 2
		HAVING max(other_place) > coalesce((SELECT s.place FROM {schema}.served s WHERE s.queue = t.queue AND s.priority = t.priority
			ORDER BY s.place DESC LIMIT 1), 0)),
	counted AS (INSERT INTO {schema}.tally SELECT m.queue, d.state, m.dead, d.sign * m.n, m.type
		FROM (SELECT queue, {alike} AS dead, type, count(*) AS n FROM taken GROUP BY 1, 2, 3) m,
		(VALUES (3::smallint, -1), (4::smallint, 1)) d (state, sign))`

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

// picks are the variants of a statement that looks at the jobs of a claim: from its
// queues, from all, and from all around the paused ones.
type picks struct{ in, all, around statement }

// picking defines a statement that picks jobs, and then does something with them.
// {queues} is the argument with the queues.
func picking(name, ends, limit, queues, then string) picks {
	pick := func(variant, sql string) statement {
		sql = strings.NewReplacer("{looks}", looks, "{limit}", limit, "{queues}", queues).Replace(sql)
		if strings.Contains(limit+then, "FROM judging") {
			asks := "judging AS MATERIALIZED (SELECT {judging} AS yes), picked AS"
			sql = strings.Replace(sql, "picked AS", asks, 1)
		}
		return define(name+variant, strings.ReplaceAll(sql, "{ends}", ends)+then)
	}
	return picks{pick("In", pickIn), pick("All", pickAll), pick("Around", pickAround)}
}

// looking is a statement that looks at up to most jobs, for the queues of the claim, with
// further arguments.
func (a *asking) looking(of picks, most int, read func(rowSet) error, more ...any) sent {
	t := &a.types
	args := append([]any{a.now, most, t.names, t.ranged, t.from, t.until, a.leave}, more...)
	switch {
	case len(a.c.Queues) > 0:
		return a.s.sent(of.in, read, append(args, a.c.Queues)...)
	case len(a.leave) > 0 || a.s.paused.Load():
		return a.s.sent(of.around, read, args...)
	}
	return a.s.sent(of.all, read, args...)
}

var claimSQL = picking("claim", endsNothing, limitClaim, "$10", plain)

var aheadSQL = picking("ahead", endsStep, limitAhead, "$10", plain+refusedBefore)

var claimJudgedSQL = picking("claimJudged", endsNothing, limitPick, "$11", judged)

var aheadJudgedSQL = picking("aheadJudged", endsStep, limitStep, "$11", judged+refusedBefore)

// claiming is the statement that claims what the claim lacks. The transaction may have
// locked keys.
func (a *asking) claiming(locked bool, read func(rowSet) error) sent {
	args := []any{a.c.Worker, givenLease(a.c.Lease)}
	of := claimSQL
	switch {
	case locked && a.step:
		of = aheadJudgedSQL
	case locked:
		of = claimJudgedSQL
	case a.step:
		of = aheadSQL
	}
	if locked {
		args = append(args, a.startsLeft())
	}
	return a.looking(of, a.left(), read, args...)
}

// startsLeft is how many more jobs start at once (storage.Limited.Now).
func (a *asking) startsLeft() int {
	if a.c.Limits.Now == 0 {
		return math.MaxInt32
	}
	return a.c.Limits.Now - a.had
}

var tuneSQL = define("tune", `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
		set_config('enable_sort', 'off', true), set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)`)

var lockHeadsSQL = picking("lockHeads", endsNothing, limitPick, "$8", ", "+locks(lockingPicked))

var judgeLimitsSQL = define("judgeLimits", "WITH "+locks(""))

var promoteSQL = define("promote", strings.ReplaceAll(promote, "{keys}", dueKeys))

var closedSQL = define("closed", strings.ReplaceAll(closed, "{keys}", "{locked_keys}"))

// send makes statements and then that of the claim, in one transaction and one round
// trip. If jobs with limits are known to be about, or end by the statements, it locks
// their keys in between.
func (a *asking) send(ctx context.Context, ends bool, before []sent, read func(rowSet) error) error {
	s := a.s
	a.said = said{first: rows.None}
	heads := s.limited.Load()
	limits := heads || ends
	list := append([]sent{s.sent(tuneSQL, nil)}, before...)
	var locked lockedLimits
	if limits {
		lock := s.sent(judgeLimitsSQL, locked.read(), a.now)
		if heads {
			lock = a.looking(lockHeadsSQL, a.left(), locked.read())
		}
		list = append(list, lock, s.sent(promoteSQL, nil, 1))
	}
	list = append(list, a.claiming(limits, read))
	var shut []closedLane
	if limits {
		list = append(list, s.sent(closedSQL, readLanes(&shut)))
	}
	if err := s.together(ctx, limits, list); err != nil {
		return err
	}
	a.added = locked.added
	s.limited.Store(a.more || len(locked.names) > 0)
	a.shut = append(a.shut, shut...)
	return nil
}

// claimTypes are the types of a claim as statements take them: see claimable.
type claimTypes struct {
	names               []string // nil: all
	ranged, from, until []string
}

// givenLease is the lease of a claim or a renewal as statements take it (leaseFor).
func givenLease(lease time.Duration) int64 { return int64(cmp.Or(lease, ojs.DefaultLease)) }

// typesOf reads the Types of a claim (storage.Claim.Takes).
func typesOf(patterns []string) (t claimTypes) {
	t.ranged, t.from, t.until = []string{}, []string{}, []string{}
	for _, pattern := range patterns {
		name, wanted, ranged := strings.Cut(pattern, "@")
		if wanted == "" {
			t.names = append(t.names, name)
		}
		from, until := "-1", "Infinity"
		if ranged {
			r, err := versions.ParseRange(wanted)
			if err != nil { // it has no version
				continue
			}
			if from = numeric(r.From); !r.Open {
				until = numeric(r.Until)
			}
		}
		t.ranged, t.from, t.until = append(t.ranged, name), append(t.from, from), append(t.until, until)
	}
	if len(patterns) > 0 && t.names == nil {
		t.names = []string{}
	}
	return t
}

// numeric is a version as typeVersion has it.
func numeric(v versions.Version) string { return fmt.Sprintf("%d%019d", v.Major, v.Minor) }
