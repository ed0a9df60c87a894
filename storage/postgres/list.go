package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cursor"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// sayable reports whether a text can be one of the database's. No stored one is any
// other.
func sayable(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// sayables are those of texts that can be.
func sayables(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return !sayable(text) })
}

// maxRows is more rows than any storage has, and a number that every statement takes.
const maxRows = 1 << 30

// A page looks at no more than maxScan jobs, found or not, so that no listing keeps the
// database busy for long. It reads no more than maxRead of them whole to find out whether
// the query selects them.
const (
	maxScan = 5000
	maxRead = 1000
)

var getSQL = define("get", `SELECT {columns} FROM {whole} WHERE id = $1`)

// Get implements storage.Storage.
func (s *Storage) Get(ctx context.Context, id string) (rec storage.Record, err error) {
	err = s.in(ctx).run(func(t *tx) {
		if !sayable(id) {
			fail.With(fmt.Errorf("%w: job %q", ojs.ErrNotFound, id))
		}
		list := t.rows(false, getSQL, id)
		if len(list) == 0 {
			fail.With(t.missing(id))
		}
		read, why := rows.Decode(&list[0].Columns)
		if why == nil {
			rec = read
			return
		}
		fail.If(s.setAsideRead(ctx, false, []bad{{list[0], why}}))
		err := t.missing(id)
		if !errors.Is(err, ojs.ErrQuarantined) { // it could not be moved
			err = &ojs.QuarantinedError{ID: id, Reason: rows.Reason(why)}
		}
		fail.With(err)
	})
	return rec, err
}

// List implements storage.Storage. One statement walks along the index of the order and
// finds the jobs that the query may select; another reads them.
func (s *Storage) List(ctx context.Context, q storage.Query) (page storage.Page, err error) {
	walk, err := rule.Begin("postgres", &q)
	if err != nil {
		return page, err
	}
	err = s.in(ctx).run(func(t *tx) { t.page(&page, &q, &walk) })
	page.Prev, page.Next = walk.Ends()
	return page, err
}

// page fills a page.
func (t *tx) page(page *storage.Page, q *storage.Query, walk *cursor.Walk) {
	along := courseOf(q, walk)
	scan, read := along.reach(q.Limit)
	hits, scanned, end := t.walk(q, along, scan, read)
	if scanned == 0 {
		return
	}
	seqs := make([]int64, min(len(hits), read))
	for i := range seqs {
		seqs[i] = hits[i].seq
	}
	list := t.rows(false, bySeqSQL, seqs)
	bySeq := make(map[int64]*stored, len(list))
	for i := range list {
		bySeq[list[i].seq] = &list[i]
	}
	var met []bad
	stopped := false
	for i := range hits {
		h := &hits[i]
		if stopped = len(page.Records) == q.Limit || i == len(seqs); stopped {
			walk.Stop(h.at)
			break
		}
		page.Looked = h.ord
		walk.Pass(h.at)
		r := bySeq[h.seq]
		if r == nil { // deleted meanwhile
			continue
		}
		rec, err := rows.Decode(&r.Columns)
		if err != nil {
			met = append(met, bad{*r, err})
		} else if q.Matches(&rec) {
			page.Records = append(page.Records, rec)
		}
	}
	if !stopped {
		page.Looked = min(scanned, scan)
		if scanned > scan {
			if !walk.From.Back {
				walk.Pass(end[0])
			}
			walk.Stop(end[1])
		}
	}
	if walk.From.Back {
		slices.Reverse(page.Records)
	}
	fail.If(t.s.setAsideRead(t.ctx, false, met))
}

// hit is a job that a page may have.
type hit struct {
	seq int64
	ord int // among those that the page looks at
	at  cursor.Position
}

// walk looks at so many jobs behind a cursor, and one more. It returns those that the
// query may select, as many as are read and one more, how many it has looked at, and the
// positions of the last one that the page may pass and of the one behind that.
func (t *tx) walk(
	q *storage.Query, along course, scan, read int,
) (hits []hit, scanned int, end [2]cursor.Position) {
	from := along.from
	states := []int16{} // those of finished jobs, for the order that has only these
	var asked []int16   // nil: all
	for _, code := range rows.Codes(q.States) {
		asked = append(asked, int16(code))
	}
	for _, state := range []int16{rows.Completed, rows.Cancelled, rows.Discarded} {
		if asked == nil || slices.Contains(asked, state) {
			states = append(states, state)
		}
	}
	var queues []string // nil: all
	if len(q.Queues) > 0 {
		queues = sayables(q.Queues)
	}
	types, prefixes := patterns(q.Types)
	errorTypes, errorPrefixes := patterns(cutErrors(q))
	since, until := int64(math.MinInt64), int64(math.MaxInt64)
	if q.Order == storage.OrderFinished {
		if !q.FinishedFrom.IsZero() {
			since = rows.Nanos(q.FinishedFrom)
		}
		if at := before(q); at < until {
			until = at - 1
		}
	}
	var h hit
	var ord int64
	t.query(along.way, each([]any{&h.seq, &ord, &h.at[0], &h.at[1], &h.at[2]}, func() {
		switch h.ord = int(ord); {
		case h.seq > 0:
			hits = append(hits, h)
		case h.ord <= scan:
			scanned, end[0] = max(scanned, h.ord), h.at
		default:
			scanned, end[1] = h.ord, h.at
		}
	}), from[0], from[1], scan+1, states, q.DeadLetters, asked, queues, types, prefixes, scan, read+1,
		from[2], indexed(q.Workflow), errorTypes, errorPrefixes, since, until)
	return hits, scanned, end
}

// patterns are those of names, nil for all of them, and of prefixes.
func patterns(of []string) (names, prefixes []string) {
	prefixes = []string{}
	if len(of) > 0 {
		names = []string{}
	}
	for _, pattern := range sayables(of) {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			prefixes = append(prefixes, prefix)
		} else {
			names = append(names, pattern)
		}
	}
	return names, prefixes
}

// indexed is as much of a text as an index has.
func indexed(text string) string {
	if list := []rune(text); len(list) > 255 {
		return string(list[:255])
	}
	return text
}

// cutErrors returns as much of q.ErrorTypes as an index has.
func cutErrors(q *storage.Query) (cut []string) {
	for _, pattern := range q.ErrorTypes {
		cut = append(cut, indexed(pattern))
	}
	return cut
}

// before is q.FinishedBefore as a column has it, or the greatest time.
func before(q *storage.Query) int64 {
	at := rows.Nanos(q.FinishedBefore)
	if q.FinishedBefore.IsZero() || !rows.Time(at).Equal(q.FinishedBefore) {
		return math.MaxInt64
	}
	return at
}

// course is a statement that walks along an order, and where it begins.
type course struct {
	way  statement
	from cursor.Position

	some  bool // it passes jobs whose state, queue or type the query does not select
	vague bool // it finds jobs that the rest of the query may not select
}

// reach is at how many jobs a page looks at most, and how many it reads whole.
func (c *course) reach(limit int) (scan, read int) {
	scan, read = maxScan, limit
	if c.vague {
		read = maxRead
	}
	if !c.some {
		scan = read
	}
	return scan, read
}

// walking looks at jobs behind the position $1, $2 of an order, up to $3 of them, and
// returns those of the states $6, the queues $7, and the types $8 or types that begin as
// $9, at most $11 among the first $10. With number 0 it returns those two between which
// the page ends at the latest. $4 and $5 are about finished jobs only: their states, and
// whether they are dead letters. {c} is the third number of a position, and $12 the one
// to begin behind, in the order that has one. $13 is a workflow, $14 and $15 types of
// errors and how they begin, $16 and $17 the first and the last time of an end.
const walking = `WITH way AS MATERIALIZED (SELECT row_number() OVER () AS ord, w.* FROM ({way}) w
		WHERE w.a BETWEEN $16::bigint AND $17::bigint),
	about AS (SELECT $1::bigint, $2::bigint, $3::bigint, $4::smallint[], $5::boolean,
		$12::bigint, $13::text, $14::text[], $15::text[])
	SELECT 0::bigint, ord, a, b, {c} FROM way WHERE ord IN ((SELECT least(count(*), $10) FROM way), $10 + 1)
	UNION ALL
	SELECT * FROM (SELECT w.seq, w.ord, w.a, w.b, {c} FROM way w WHERE w.ord <= $10
		AND ($6::smallint[] IS NULL OR w.state = ANY ($6::smallint[]))
		AND ` + asked + `
		ORDER BY w.ord LIMIT $11) hits`

// asked says whether a job, a way or a sum w is of a queue and a type of the query.
const asked = `($7::text[] IS NULL OR w.queue = ANY ($7::text[]))
		AND ($8::text[] IS NULL OR split_part(w.type, '@', 1) = ANY ($8::text[]) OR EXISTS (
			SELECT FROM unnest($9::text[]) prefix WHERE starts_with(split_part(w.type, '@', 1), prefix)))`

// sections are the queues and types that have jobs of the query in a rare state but for
// active ones.
const sections = `(SELECT w.state, w.queue, w.type FROM {schema}.tally w
		WHERE w.state <> ALL ('{3,4,6}'::smallint[]) AND ($6::smallint[] IS NULL OR w.state = ANY ($6::smallint[]))
		AND ` + asked + ` GROUP BY 1, 2, 3 HAVING sum(w.n) > 0) c`

// These are in the words of the indexes.
const (
	errorOf    = `{schema}.error_of(outcome) COLLATE "C"`
	workflowOf = `{schema}.workflow_of(job) COLLATE "C"`
	finishedAt = `coalesce(finished, {none})`
)

// These are the ways along the indexes. A column that has no place in an order is 0.
const (
	walkStage = `SELECT seq, seq AS a, 0::bigint AS b, state, queue, type FROM {schema}.stage
		WHERE {behind} LIMIT $3`
	walkDead = `SELECT seq, place AS a, 0::bigint AS b, state, queue, type FROM {schema}.done
		WHERE dead IS NOT NULL AND {behind} LIMIT $3`
	walkDue = `SELECT seq, wake AS a, {waits} AS b, state, queue, type FROM {schema}.stage
		WHERE wake IS NOT NULL AND {behind} LIMIT $3`

	// The jobs of rare states: of each section as many as a page may need.
	walkRare = `SELECT r.* FROM (
		SELECT l.* FROM ` + sections + ` CROSS JOIN LATERAL (
			(SELECT seq, seq AS a, 0::bigint AS b, state, queue, type FROM {schema}.waiting
				WHERE state = c.state AND queue = c.queue AND type = c.type AND {behind} LIMIT $3)
			UNION ALL
			(SELECT seq, seq, 0::bigint, state, queue, type FROM {schema}.done
				WHERE state > 6 AND state = c.state AND queue = c.queue AND type = c.type AND {behind} LIMIT $3)) l
		UNION ALL
		(SELECT seq, seq, 0::bigint, state, queue, type FROM {schema}.active w
			WHERE 4 = ANY ($6::smallint[]) AND ` + asked + ` AND {behind} LIMIT $3)) r ORDER BY {by} LIMIT $3`
	walkRareDue = `SELECT l.* FROM ` + sections + ` CROSS JOIN LATERAL (
		SELECT seq, wake AS a, place AS b, state, queue, type FROM {schema}.waiting
		WHERE state = c.state AND queue = c.queue AND type = c.type AND wake IS NOT NULL
			AND {behind} LIMIT $3) l ORDER BY {by} LIMIT $3`
	walkRareFinished = `SELECT l.* FROM ` + sections + ` CROSS JOIN LATERAL (
		SELECT seq, ` + finishedAt + ` AS a, place AS b, state, queue, type FROM {schema}.done
		WHERE state > 6 AND state = c.state AND queue = c.queue AND type = c.type
			AND {behind} LIMIT $3) l ORDER BY {by} LIMIT $3`
	walkDeadOf = `SELECT l.* FROM ` + sections + ` CROSS JOIN LATERAL (
		SELECT seq, place AS a, 0::bigint AS b, state, queue, type FROM {schema}.done
		WHERE c.state = 8 AND queue = c.queue AND type = c.type AND dead IS NOT NULL
			AND {behind} LIMIT $3) l ORDER BY {by} LIMIT $3`

	// The discarded jobs, by the types of their errors. Of an error without a type that
	// can be read ('') the page finds out.
	walkFailed = `SELECT l.* FROM (
		WITH RECURSIVE kinds AS (
			(SELECT ` + errorOf + ` AS t FROM {schema}.done
				WHERE state = 8 AND ` + errorOf + ` IS NOT NULL ORDER BY ` + errorOf + ` LIMIT 1)
			UNION ALL
			SELECT (SELECT ` + errorOf + ` FROM {schema}.done
				WHERE state = 8 AND ` + errorOf + ` > k.t ORDER BY ` + errorOf + ` LIMIT 1)
			FROM kinds k WHERE k.t IS NOT NULL)
		SELECT t FROM kinds WHERE t = '' OR t = ANY ($14::text[])
			OR EXISTS (SELECT FROM unnest($15::text[]) prefix WHERE starts_with(t, prefix))
		) k CROSS JOIN LATERAL (
		SELECT seq, ` + finishedAt + ` AS a, place AS b, state, queue, type FROM {schema}.done
		WHERE state = 8 AND ` + errorOf + ` = k.t AND {behind} LIMIT $3) l ORDER BY {by} LIMIT $3`

	// LIMIT 1 keeps the planner from reading all jobs.
	walkKeepers = `SELECT s.* FROM (SELECT seq FROM {schema}.job
			WHERE position('"workflow_id"'::bytea IN job) > 0 AND {behind} LIMIT $3) m
		CROSS JOIN LATERAL (SELECT seq, seq AS a, 0::bigint AS b, state, queue, type FROM {schema}.stage
			WHERE seq = m.seq LIMIT 1) s ORDER BY {by} LIMIT $3`

	// The rest of a priority, and all lower or higher ones.
	walkReady = `SELECT r.* FROM unnest(ARRAY[true, false]) h (yes) CROSS JOIN LATERAL (
		(SELECT seq, priority::bigint AS a, place AS b, coalesce(own_place, 0) AS c, state, queue, type FROM {schema}.ready
			WHERE head = h.yes AND attempt >= 0 AND priority = $1::bigint AND (place, own_place) > ($2, $12)
			ORDER BY priority DESC, place, own_place NULLS FIRST LIMIT $3)
		UNION ALL
		(SELECT seq, priority, place, coalesce(own_place, 0), state, queue, type FROM {schema}.ready
			WHERE head = h.yes AND attempt >= 0 AND priority < $1::bigint
			ORDER BY priority DESC, place, own_place NULLS FIRST LIMIT $3)) r ORDER BY a DESC, b, c LIMIT $3`
)

// Jobs that are kept and that are not have an index each, with a part for each state and
// for dead letters. Jobs without a time of their end come last.
var walkFinished = `SELECT c.* FROM unnest($4::smallint[]) s CROSS JOIN unnest(ARRAY[0, 1]) d CROSS JOIN LATERAL (
		` + unkept + `
		UNION ALL
		` + kept + `) c WHERE d = 1 OR NOT $5 ORDER BY a DESC, b DESC LIMIT $3`

// unkept are the jobs of a state and of dead letters or others that are not kept, and
// kept those that are.
const unkept = `(SELECT seq, coalesce(finished, {none}) AS a, place AS b, state, queue, type FROM {schema}.done
			WHERE state = s AND num_nonnulls(dead) = d AND kept IS NULL AND (finished, place) < ($1, $2)
			ORDER BY finished DESC NULLS LAST, place DESC LIMIT $3)
		UNION ALL
		(SELECT seq, {none}, place, state, queue, type FROM {schema}.done
			WHERE state = s AND num_nonnulls(dead) = d AND kept IS NULL AND finished IS NULL
			AND ($1 > {none} OR place < $2)
			ORDER BY finished DESC NULLS LAST, place DESC LIMIT $3)`

var kept = strings.ReplaceAll(unkept, "kept IS NULL", "kept IS NOT NULL")

// defineWalk defines a way, forward and back.
func defineWalk(name, forward, back string) (both [2]statement) {
	for i, way := range []string{forward, back} {
		c := "0::bigint"
		if strings.Contains(way, " AS c,") {
			c = "c"
		}
		both[i] = define(name, strings.NewReplacer("{way}", way, "{c}", c).Replace(walking))
	}
	return both
}

// walkBy is defineWalk of a way along the columns that are a and b: {behind} is behind a
// position, and {by} the order of several parts of the way.
func walkBy(name, way string, newest bool, columns ...string) [2]statement {
	along := func(sign string, descends bool) string {
		end := ""
		if descends {
			end = " DESC"
		}
		n := len(columns)
		order := func(names []string) string { return strings.Join(names, end+", ") + end }
		behind := "(" + strings.Join(columns, ", ") + ") " + sign + " (" +
			strings.Join([]string{"$1", "$2"}[:n], ", ") + ") ORDER BY " + order(columns)
		return strings.NewReplacer("{behind}", behind, "{by}", order([]string{"a", "b"}[:n])).Replace(way)
	}
	if newest {
		return defineWalk(name, along("<", true), along(">=", false))
	}
	return defineWalk(name, along(">", false), along("<=", true))
}

// orders are a way in the order of a column, and in the reverse.
type orders struct{ oldest, newest [2]statement }

func ordersOf(name, way, column string) orders {
	return orders{walkBy(name, way, false, column), walkBy(name+"Newest", way, true, column)}
}

// An index has seq + 0 where the planner is not to take it for an index of seq.
var (
	walkStageSQL   = ordersOf("walkStage", walkStage, "seq")
	walkRareSQL    = ordersOf("walkRare", walkRare, "seq + 0")
	walkMembersSQL = ordersOf("walkMembers",
		strings.ReplaceAll(walkKeepers, "{behind}", workflowOf+" = $13 AND {behind}"), "seq + 0")
	walkKeepersSQL = ordersOf("walkKeepers", walkKeepers, "CASE WHEN "+workflowOf+" = id THEN seq END")
	walkDeadSQL    = ordersOf("walkDead", walkDead, "place")
	walkDeadOfSQL  = ordersOf("walkDeadOf", walkDeadOf, "place + 0")

	walkRareFinishedSQL = walkBy("walkRareFinished", walkRareFinished, true, finishedAt, "place")
	walkFailedSQL       = walkBy("walkFailed", walkFailed, true, finishedAt, "place")
	walkRareDueSQL      = walkBy("walkRareDue", walkRareDue, false, "wake", "place")
	walkDueSQL          = walkBy("walkDue", walkDue, false, "wake", "{waits}")
)

var walkReadySQL = defineWalk("walkReady", walkReady, strings.NewReplacer(
	"(place, own_place) > ($2, $12)", "place <= $2 AND (place < $2 OR coalesce(own_place, 0) <= $12)",
	"priority DESC, place, own_place NULLS FIRST", "priority, place DESC, own_place DESC NULLS LAST",
	"priority <", "priority >", "a DESC, b, c", "a, b DESC, c DESC",
).Replace(walkReady))

var walkFinishedSQL = defineWalk("walkFinished", walkFinished, strings.NewReplacer(
	"(finished, place) <", "(finished, place) >=",
	"($1 > {none} OR place < $2)", "$1 = {none} AND place >= $2",
	"finished DESC NULLS LAST, place DESC", "finished NULLS FIRST, place", "a DESC, b DESC", "a, b",
).Replace(walkFinished))

// courseOf returns how a page walks along an order.
func courseOf(q *storage.Query, w *cursor.Walk) (c course) {
	least := cursor.Position{math.MinInt64, math.MinInt64}
	greatest := cursor.Position{math.MaxInt64, math.MaxInt64}
	begin := least
	var way [2]statement // forward, back
	var either orders
	c.some = q.Narrowed() || len(q.States) > 0
	switch {
	case q.Order == storage.OrderFinished:
		begin = greatest
		if at := before(q); at < math.MaxInt64 {
			begin = cursor.Position{at, math.MinInt64}
		}
		c.some = q.Narrowed()
		switch {
		case q.ByError():
			way = walkFailedSQL
			c.vague = q.DeadLetters || slices.ContainsFunc(q.ErrorTypes, func(p string) bool {
				return indexed(p) != p
			})
		case q.TimedRare():
			way, c.some = walkRareFinishedSQL, false
		default:
			way = walkFinishedSQL
		}
	case q.Order == storage.OrderDue && q.TimedRare():
		way, c.some = walkRareDueSQL, false
	case q.Order == storage.OrderDue:
		way = walkDueSQL
	case q.Order == storage.OrderClaim:
		way, begin = walkReadySQL, cursor.Position{math.MaxInt64, math.MinInt64}
	case q.DeadLetters:
		if either = walkDeadSQL; q.Narrowed() {
			either = walkDeadOfSQL
		}
		c.some = len(q.States) > 0 && !slices.Contains(q.States, ojs.StateDiscarded)
	case q.Workflow != "":
		either = walkMembersSQL
	case q.OfRare():
		either, c.some = walkRareSQL, false
	case q.Keepers:
		either = walkKeepersSQL
	default:
		either = walkStageSQL
	}
	finished := !q.FinishedFrom.IsZero() || !q.FinishedBefore.IsZero()
	c.vague = c.vague || q.Where != nil || !q.CreatedFrom.IsZero() || !q.CreatedBefore.IsZero() ||
		finished && q.Order != storage.OrderFinished || len(q.ErrorTypes) > 0 && !q.ByError() ||
		q.DeadLetters && (q.Order == storage.OrderDue || q.Order == storage.OrderClaim) ||
		q.Keepers && either != walkKeepersSQL ||
		q.Workflow != "" && (either != walkMembersSQL || indexed(q.Workflow) != q.Workflow)
	switch {
	case either == orders{}:
	case q.Order == storage.OrderNewest:
		way, begin = either.newest, greatest
	default:
		way = either.oldest
	}
	if c.from = w.From.After; w.First && !w.From.Back {
		c.from = begin
	}
	c.way = way[0]
	if w.From.Back {
		c.way = way[1]
	}
	return c
}

var claimedBySQL = define("claimedBy", "SELECT {columns} FROM "+strings.ReplaceAll(whole, "{of}", "active")+
	" WHERE worker = $1")

// ClaimedBy implements storage.Storage. It leaves out rows that do not decode.
func (s *Storage) ClaimedBy(ctx context.Context, worker string) (recs []storage.Record, err error) {
	err = s.in(ctx).run(func(t *tx) {
		if !sayable(worker) {
			return
		}
		list := t.rows(false, claimedBySQL, worker)
		for i := range list {
			if rec, err := rows.Decode(&list[i].Columns); err == nil {
				recs = append(recs, rec)
			}
		}
	})
	return recs, err
}

var countsSQL = define("counts",
	`SELECT queue, split_part(type, '@', 1), state, sum(n)::bigint FROM {schema}.tally
		GROUP BY 1, 2, 3 HAVING sum(n) <> 0`)

// Counts implements storage.Storage.
func (s *Storage) Counts(ctx context.Context) (counts []storage.Count, err error) {
	err = s.in(ctx).run(func(t *tx) {
		var c storage.Count
		var state int16
		t.query(countsSQL, each([]any{&c.Queue, &c.Type, &state, &c.N}, func() {
			if c.State = rows.State(int(state)); c.State != "" { // or it is for the quarantine
				counts = append(counts, c)
			}
		}))
	})
	return counts, err
}
