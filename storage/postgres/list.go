package postgres

import (
	"cmp"
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
		list := t.rows(0, getSQL, id)
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
// finds and reads the jobs that the query may select.
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
	var last, next *stored // the last job that the page may pass, and the one behind it
	var met []bad
	found, stopped := 0, false
	list := t.walk(q, along, scan, read)
	for i := range list {
		h := &list[i]
		switch {
		case h.seq == 0 && int(h.ord) > scan:
			next = h
			continue
		case h.seq == 0:
			last = h
			continue
		}
		if stopped = len(page.Records) == q.Limit || found == read; stopped {
			walk.Stop(h.at)
			break
		}
		found++
		page.Looked = int(h.ord)
		walk.Pass(h.at)
		rec, err := rows.Decode(&h.Columns)
		if err != nil {
			met = append(met, bad{*h, err})
		} else if q.Matches(&rec) {
			page.Records = append(page.Records, rec)
		}
	}
	if !stopped && last != nil {
		page.Looked = int(last.ord)
		if next != nil {
			if !walk.From.Back {
				walk.Pass(last.at)
			}
			walk.Stop(next.at)
		}
	}
	if walk.From.Back {
		slices.Reverse(page.Records)
	}
	fail.If(t.s.setAsideRead(t.ctx, false, met))
}

// walk looks at so many jobs behind a cursor, and one more. It returns those that the
// query may select, as many as are read and one more, in their order. Rows without a job
// are the last one that the page may pass and the one behind that.
func (t *tx) walk(q *storage.Query, along course, scan, read int) []stored {
	var asked []int // nil: all
	if len(q.States) > 0 {
		asked = rows.Codes(q.States)
	}
	var queues []string // nil: all
	if len(q.Queues) > 0 {
		queues = sayables(q.Queues)
	}
	types, prefixes := patterns(q.Types)
	errorTypes, errorPrefixes := patterns(listOf(q.ErrorTypes, func(p *string) string { return indexed(*p) }))
	since, until := int64(math.MinInt64), int64(math.MaxInt64)
	if q.Order == storage.OrderFinished {
		if !q.FinishedFrom.IsZero() {
			since = rows.Nanos(q.FinishedFrom)
		}
		if at := before(q); at < until {
			until = at - 1
		}
	}
	from := along.from
	list := t.rows(len(from)+1, along.way, from[0], from[1], scan+1, from[2], q.DeadLetters, asked, queues,
		types, prefixes, scan, read+1, indexed(q.Workflow), errorTypes, errorPrefixes, since, until)
	slices.SortFunc(list, func(a, b stored) int { return cmp.Compare(a.ord, b.ord) })
	return list
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
			names = append(names, prefix)
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

// before is q.FinishedBefore as a column has it, or the greatest time.
func before(q *storage.Query) int64 {
	at := rows.Nanos(q.FinishedBefore)
	if q.FinishedBefore.IsZero() || !rows.Time(at).Equal(q.FinishedBefore) {
		return math.MaxInt64
	}
	return at
}

// way is a statement that walks along an order, up and down.
type way [2]statement

// course is how a page walks, and where it begins.
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

// walking looks at jobs behind the position $1, $2, $4 of an order, up to $3 of them, and
// returns those of the states $6, the queues $7, and the types $8 or types that begin as
// $9, at most $11 among the first $10. Besides, it returns the positions of the two jobs
// between which the page ends at the latest. $5 asks for dead letters only. {c} is the
// third number of a position. $12 is a workflow, $13 and $14 types of errors and how they
// begin, $15 and $16 the first and the last time of an end.
const walking = `WITH way AS MATERIALIZED (SELECT row_number() OVER () AS ord, w.* FROM ({way}) w
		WHERE w.a BETWEEN $15::bigint AND $16::bigint),
	about AS (SELECT $1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::boolean, $12::text, $13::text[], $14::text[])
	SELECT ord, a, b, {c}, {marker} FROM way WHERE ord IN ((SELECT least(count(*), $10) FROM way), $10 + 1)
	UNION ALL
	SELECT w.ord, w.a, w.b, {c}, {columns} FROM (SELECT w.* FROM way w WHERE w.ord <= $10
		AND ($6::smallint[] IS NULL OR w.state = ANY ($6::smallint[]))
		AND ` + asked + `
		ORDER BY w.ord LIMIT $11) w CROSS JOIN LATERAL (SELECT * FROM {whole} WHERE j.seq = w.seq OFFSET 0) j`

// asked says whether a job, a way or a sum w is of a queue and a type of the query.
const asked = `($7::text[] IS NULL OR w.queue = ANY ($7::text[]))
		AND ($8::text[] IS NULL OR split_part(w.type, '@', 1) = ANY ($8::text[]) OR EXISTS (
			SELECT FROM unnest($9::text[]) prefix WHERE starts_with(split_part(w.type, '@', 1), prefix)))`

// These are in the words of the indexes.
const (
	errorOf    = `{schema}.error_of(outcome) COLLATE "C"`
	workflowOf = `{schema}.workflow_of(job) COLLATE "C"`
	finishedAt = `coalesce(finished, {none})`
)

// sections are the queues and types that have jobs of the query in a rare state but for
// active ones.
const sections = `(SELECT w.state, w.queue, w.type FROM {schema}.tally w
		WHERE w.state <> ALL ('{3,4,6}'::smallint[]) AND ($6::smallint[] IS NULL OR w.state = ANY ($6::smallint[]))
		AND ` + asked + ` GROUP BY 1, 2, 3 HAVING sum(w.n) > 0) c`

// inSection says that a job is of a section c.
const inSection = `state = c.state AND queue = c.queue AND type = c.type`

// kinds are the types of errors of discarded jobs. Of an error without a type that can be
// read (the empty text) the page finds out.
const kinds = `(WITH RECURSIVE kinds AS (
		(SELECT ` + errorOf + ` AS t FROM {schema}.done
			WHERE state = 8 AND ` + errorOf + ` IS NOT NULL ORDER BY ` + errorOf + ` LIMIT 1)
		UNION ALL
		SELECT (SELECT ` + errorOf + ` FROM {schema}.done
			WHERE state = 8 AND ` + errorOf + ` > k.t ORDER BY ` + errorOf + ` LIMIT 1)
		FROM kinds k WHERE k.t IS NOT NULL)
	SELECT t FROM kinds WHERE t = '' OR t = ANY ($13::text[])
		OR EXISTS (SELECT FROM unnest($14::text[]) prefix WHERE starts_with(t, prefix))) k`

// ends are the states of finished jobs that a query selects, each with (1) and without
// dead letters.
const ends = `unnest(ARRAY[6, 7, 8]) s JOIN unnest(ARRAY[0, 1]) d
	ON ($6::smallint[] IS NULL OR s = ANY ($6::smallint[])) AND (d = 1 OR NOT $5)`

// ordered is a list of columns of the jobs of a table, in the order of one or two columns
// that have an index. A way up goes on with greater ones ({>}), and one down with lesser.
func ordered(list, of string, by ...string) string {
	from := strings.Join([]string{"$1", "$2"}[:len(by)], ", ")
	return "(SELECT " + list + " FROM {schema}." + of + " AND (" + strings.Join(by, ", ") + ") {>} (" + from +
		") ORDER BY " + strings.Join(by, "{desc}, ") + "{desc} LIMIT $3)"
}

// leg is a part of a way, by columns that are the numbers of a position.
func leg(of string, by ...string) string {
	a, b := by[0], "0::bigint"
	if len(by) > 1 {
		b = by[1]
	}
	return ordered("seq, "+a+" AS a, "+b+" AS b, state, queue, type", of, by...)
}

// along is a way along legs together, for each row of a table.
func along(each string, legs ...string) string {
	return "(SELECT l.* FROM " + each + " CROSS JOIN LATERAL (" + strings.Join(legs, " UNION ALL ") +
		") l" + together
}

// together ends a way that consists of several.
const together = " ORDER BY a{desc}, b{desc} LIMIT $3)"

// ofWorkflows is a way along jobs that workflows have. LIMIT 1 keeps the planner from
// reading all jobs.
func ofWorkflows(where, by string) string {
	return along(ordered("seq", "job WHERE position('\"workflow_id\"'::bytea IN job) > 0"+where, by)+" m",
		"(SELECT seq, seq AS a, 0::bigint AS b, state, queue, type FROM {schema}.stage WHERE seq = m.seq LIMIT 1)")
}

// defineWay defines a way by its two texts.
func defineWay(name string, texts ...string) (w way) {
	for i, text := range texts {
		c := "0::bigint"
		if strings.Contains(text, " AS c,") {
			c = "c"
		}
		w[i] = define(name, strings.NewReplacer("{way}", text, "{c}", c).Replace(walking))
	}
	return w
}

func wayOf(name, text string) way {
	return defineWay(name, strings.NewReplacer("{>}", ">", "{desc}", "").Replace(text),
		strings.NewReplacer("{>}", "<", "{desc}", " DESC").Replace(text))
}

// An index has seq + 0 or place + 0 where the planner is not to take it for another one.
var (
	walkStageSQL = wayOf("walkStage", leg("stage WHERE true", "seq"))
	walkDeadSQL  = wayOf("walkDead", leg("done WHERE dead IS NOT NULL", "place"))
	walkDueSQL   = wayOf("walkDue", leg("stage WHERE wake IS NOT NULL", "wake", "{waits}"))

	walkRareSQL = wayOf("walkRare", "(SELECT * FROM ("+
		along(sections, leg("waiting WHERE "+inSection, "seq + 0"),
			leg("done WHERE state > 6 AND "+inSection, "seq + 0"))+
		" UNION ALL "+leg("active w WHERE 4 = ANY ($6::smallint[]) AND "+asked, "seq + 0")+") r"+together)
	walkRareDueSQL = wayOf("walkRareDue",
		along(sections, leg("waiting WHERE wake IS NOT NULL AND "+inSection, "wake", "place")))
	walkRareFinishedSQL = wayOf("walkRareFinished",
		along(sections, leg("done WHERE state > 6 AND "+inSection, finishedAt, "place")))
	walkDeadOfSQL = wayOf("walkDeadOf", along(sections,
		leg("done WHERE c.state = 8 AND dead IS NOT NULL AND queue = c.queue AND type = c.type", "place + 0")))
	walkFailedSQL = wayOf("walkFailed",
		along(kinds, leg("done WHERE state = 8 AND "+errorOf+" = k.t", finishedAt, "place")))
	walkFinishedSQL = wayOf("walkFinished",
		along(ends, leg("done WHERE kept IS NULL"+ended, finishedAt, "place"),
			leg("done WHERE kept IS NOT NULL"+ended, finishedAt, "place")))

	walkMembersSQL = wayOf("walkMembers", ofWorkflows(" AND "+workflowOf+" = $12", "seq + 0"))
	walkKeepersSQL = wayOf("walkKeepers", ofWorkflows("", "CASE WHEN "+workflowOf+" = id THEN seq END"))
	walkReadySQL   = defineWay("walkReady", walkReady, strings.NewReplacer(
		"(place, own_place) > ($2, $4)", "place <= $2 AND (place < $2 OR coalesce(own_place, 0) < $4)",
		"priority DESC, place, own_place NULLS FIRST", "priority, place DESC, own_place DESC NULLS LAST",
		"priority <", "priority >", "a DESC, b, c", "a, b DESC, c DESC",
	).Replace(walkReady))
)

// ended says that a job is of one of the ends.
const ended = " AND state = s AND num_nonnulls(dead) = d"

// walkReady walks up in the order of claims: the rest of a priority, and all lower ones.
const walkReady = `SELECT r.* FROM unnest(ARRAY[true, false]) h (yes) CROSS JOIN LATERAL (
		(SELECT seq, priority::bigint AS a, place AS b, coalesce(own_place, 0) AS c, state, queue, type FROM {schema}.ready
			WHERE head = h.yes AND attempt >= 0 AND priority = $1::bigint AND (place, own_place) > ($2, $4)
			ORDER BY priority DESC, place, own_place NULLS FIRST LIMIT $3)
		UNION ALL
		(SELECT seq, priority, place, coalesce(own_place, 0), state, queue, type FROM {schema}.ready
			WHERE head = h.yes AND attempt >= 0 AND priority < $1::bigint
			ORDER BY priority DESC, place, own_place NULLS FIRST LIMIT $3)) r ORDER BY a DESC, b, c LIMIT $3`

// courseOf returns how a page walks along an order.
func courseOf(q *storage.Query, w *cursor.Walk) (c course) {
	finished := q.Order == storage.OrderFinished
	down := finished || q.Order == storage.OrderNewest
	c.some = q.Narrowed() || len(q.States) > 0
	var of way
	last := 0 // which number of a position tells two jobs apart
	switch {
	case q.ByError():
		of, last, c.some = walkFailedSQL, 1, q.Narrowed()
		c.vague = q.DeadLetters || slices.ContainsFunc(q.ErrorTypes, func(p string) bool {
			return indexed(p) != p
		})
	case q.TimedRare():
		of, last, c.some = walkRareDueSQL, 1, false
		if finished {
			of = walkRareFinishedSQL
		}
	case finished:
		of, last, c.some = walkFinishedSQL, 1, q.Narrowed()
	case q.Order == storage.OrderDue:
		of, last = walkDueSQL, 1
	case q.Order == storage.OrderClaim:
		of, last = walkReadySQL, 2
	case q.DeadLetters:
		if of = walkDeadSQL; q.Narrowed() {
			of = walkDeadOfSQL
		}
		c.some = len(q.States) > 0 && !slices.Contains(q.States, ojs.StateDiscarded)
	case q.Workflow != "":
		of = walkMembersSQL
	case q.OfRare():
		of, c.some = walkRareSQL, false
	case q.Keepers:
		of = walkKeepersSQL
	default:
		of = walkStageSQL
	}
	timed := !q.FinishedFrom.IsZero() || !q.FinishedBefore.IsZero()
	c.vague = c.vague || q.Where != nil || !q.CreatedFrom.IsZero() || !q.CreatedBefore.IsZero() ||
		timed && !finished || len(q.ErrorTypes) > 0 && !q.ByError() ||
		q.DeadLetters && (q.Order == storage.OrderDue || q.Order == storage.OrderClaim) ||
		q.Keepers && of != walkKeepersSQL ||
		q.Workflow != "" && (of != walkMembersSQL || indexed(q.Workflow) != q.Workflow)
	const least, greatest = math.MinInt64, math.MaxInt64
	at := &c.from[last]
	switch c.from = w.From.After; {
	case w.From.Back && down: // the job at the cursor is on the page, too
		*at = max(*at, least+1) - 1
	case w.From.Back:
		*at = min(*at, greatest-1) + 1
	case !w.First:
	case finished && before(q) < greatest:
		c.from = cursor.Position{before(q), least}
	case down:
		c.from = cursor.Position{greatest, greatest}
	case q.Order == storage.OrderClaim:
		c.from = cursor.Position{greatest, least}
	default:
		c.from = cursor.Position{least, least}
	}
	if c.way = of[0]; down != w.From.Back {
		c.way = of[1]
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
		list, _ := decoded(t.rows(0, claimedBySQL, worker))
		for _, row := range list {
			recs = append(recs, row.Record)
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
