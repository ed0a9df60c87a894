package postgres

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// tallied is a counter with what a transaction adds to it.
type tallied struct {
	*tx
	rows.Counter
	was    rows.Counter // as it is stored
	starts int64        // that are not stored
}

// countersSQL returns what is stored of the limits of the kinds $1 and names $2. For one
// of a queue or type it reads all active jobs, which are as many as run: an index would
// cost each claim and each end.
var countersSQL = define("counters", `SELECT u.ord, l.kind IS NOT NULL, coalesce(l.setting, ''), coalesce(l.until, {none}), coalesce(l.blocked, {none}),
			coalesce(l.last, ''), coalesce(l.period, 0), coalesce(l.most, 0),
			CASE u.kind WHEN 'key' THEN (SELECT count(*) FROM {schema}.active j WHERE j.rate_key = u.name AND j.bounds IS NOT NULL)
				WHEN 'queue' THEN (SELECT count(*) FROM {schema}.active j WHERE j.queue = u.name)
				ELSE (SELECT count(*) FROM {schema}.active j WHERE split_part(j.type, '@', 1) = u.name) END,
			coalesce(s.n, 0), coalesce(s.at, 0)
		FROM unnest($1::text[], $2::text[]) WITH ORDINALITY u (kind, name, ord)
		LEFT JOIN {schema}.job_limit l ON l.kind = u.kind AND l.name = u.name
		LEFT JOIN LATERAL (SELECT n, at FROM {schema}.job_start j WHERE j.kind = u.kind AND j.name = u.name
			ORDER BY n DESC LIMIT 1) s ON true`)

// counters reads what the tables have of limits.
func (t *tx) counters(of []storage.LimitName) map[storage.LimitName]*tallied {
	found := make(map[storage.LimitName]*tallied, len(of))
	if len(of) == 0 {
		return found
	}
	kinds, names := pair(of)
	var c rows.Counter
	var setting string
	var ord int64
	columns := []any{&ord, &c.Stored, &setting, &c.Until, &c.Blocked, &c.Last, &c.Window, &c.Most,
		&c.Active, &c.Started, &c.LastStart}
	t.query(countersSQL, each(columns, func() {
		l := &tallied{Counter: c, tx: t}
		l.LimitName = of[ord-1]
		if setting != "" {
			bounds := fail.Must(rows.ReadBounds(setting))
			l.Setting = &bounds
		}
		l.was = l.Counter
		found[l.LimitName] = l
	}), kinds, names)
	return found
}

// opens reports whether bounds let a job start, and otherwise when time does: see
// rows.Counter.
func (l *tallied) opens(own *ojs.RateLimit, now int64) (at int64, open bool) {
	at, open, err := l.Open(own, now, l.startOf(now))
	fail.If(err)
	return at, open
}

var startSQL = define("start", `SELECT at FROM {schema}.job_start WHERE kind = $1 AND name = $2 AND n = $3`)

// startOf returns the function that looks up a start of a counter by its number.
func (l *tallied) startOf(now int64) rule.Starts {
	return func(n int64) (at int64, there bool, err error) {
		switch {
		case n > l.was.Started: // of this transaction
			return now, true, nil
		case n == l.was.Started:
			return l.was.LastStart, true, nil
		}
		l.query(startSQL, each([]any{&at}, func() { there = true }), string(l.Kind), l.Name, n)
		return at, there, nil
	}
}

// start counts the start of a job.
func (l *tallied) start(own *ojs.RateLimit, bounds string, now int64) {
	l.Active++
	if own != nil {
		l.Remember(own)
		l.Last = bounds
	}
	if l.Window > 0 {
		l.starts++
		l.Started++
		l.LastStart = max(l.LastStart, now)
	}
}

// late reports whether the counter has a start that is later than now: clocks differ.
func (l *tallied) late(now int64) bool { return l.was.Started > 0 && l.was.LastStart > now }

// spareStarts is how many starts are kept besides the ones that count. An undone claim
// takes its start back, and an older start may then count again.
const spareStarts = 64

var setStartedSQL = define("setStarted", `INSERT INTO {schema}.job_limit (kind, name, last, period, most, look) VALUES ($1, $2, nullif($3, ''), $4, $5, $6)
		ON CONFLICT (kind, name) DO UPDATE SET last = excluded.last, period = excluded.period, most = excluded.most`)

// addStartsSQL adds $4 starts at $5, numbered from $3 + 1 on.
var addStartsSQL = define("addStarts",
	`INSERT INTO {schema}.job_start SELECT $1, $2, $3::bigint + i, $5 FROM generate_series(1, $4::bigint) i`)

var sortStartsSQL = define("sortStarts", `UPDATE {schema}.job_start s SET at = o.at FROM (
			SELECT n.n, a.at FROM
				(SELECT n, row_number() OVER (ORDER BY n) AS i FROM {schema}.job_start WHERE kind = $1 AND name = $2) n JOIN
				(SELECT at, row_number() OVER (ORDER BY at) AS i FROM {schema}.job_start WHERE kind = $1 AND name = $2) a USING (i)) o
		WHERE s.kind = $1 AND s.name = $2 AND s.n = o.n AND s.at <> o.at`)

var trimStartsSQL = define("trimStarts",
	`DELETE FROM {schema}.job_start WHERE kind = $1 AND name = $2 AND n <= $3`)

// storeStarts stores what a transaction has added to counters.
func (t *tx) storeStarts(now int64, counters map[storage.LimitName]*tallied) {
	var list []sent
	for name, l := range counters {
		add := func(of statement, more ...any) {
			list = append(list, t.s.sent(of, nil, append([]any{string(name.Kind), name.Name}, more...)...))
		}
		if l.Last != l.was.Last || l.Window != l.was.Window || l.Most != l.was.Most {
			add(setStartedSQL, l.Last, l.Window, l.Most, later(now, idlePeriod))
		}
		if l.starts == 0 {
			continue
		}
		if add(addStartsSQL, l.was.Started, l.starts, now); l.late(now) {
			add(sortStartsSQL)
		}
		if l.Started/spareStarts > l.was.Started/spareStarts {
			add(trimStartsSQL, l.Started-min(l.Most, math.MaxInt32)-spareStarts)
		}
	}
	t.send(list...)
}

// idlePeriod is after what time a key of which a job has started is looked at, and again,
// to see whether it can be forgotten.
const idlePeriod = int64(time.Hour)

var idleLimitsSQL = define("idleLimits",
	`SELECT name FROM {schema}.job_limit WHERE look <= $1 ORDER BY look LIMIT 8`)

// forgetLimitsSQL forgets those of the keys $1 that nothing counts for at $2. It looks at
// the others again at $3.
var forgetLimitsSQL = define("forgetLimits", `WITH gone AS (DELETE FROM {schema}.job_limit l WHERE l.kind = 'key' AND l.name = ANY ($1::text[])
			AND (l.setting IS NULL OR l.until <= $2) AND (l.blocked IS NULL OR l.blocked <= $2)
			AND NOT EXISTS (SELECT FROM {schema}.ready j WHERE j.rate_key = l.name AND j.bounds IS NOT NULL)
			AND NOT EXISTS (SELECT FROM {schema}.active j WHERE j.rate_key = l.name AND j.bounds IS NOT NULL)
			AND NOT EXISTS (SELECT FROM {schema}.job_start s WHERE s.kind = l.kind AND s.name = l.name AND s.at > $2 - l.period)
			RETURNING l.name),
		others AS (UPDATE {schema}.job_limit SET look = $3 WHERE kind = 'key' AND name = ANY ($1::text[])
			AND name <> ALL (ARRAY(SELECT name FROM gone)))
		DELETE FROM {schema}.job_start WHERE kind = 'key' AND name = ANY (ARRAY(SELECT name FROM gone))`)

// forgetIdle forgets some keys that have neither jobs that wait or are active, nor
// settings, nor starts that count. Each claim that adds a key looks at several, so that
// keys that come and go do not add up.
func (s *Storage) forgetIdle(ctx context.Context, now int64) error {
	var names []string
	err := tuned{s: s}.query(ctx, s.sent(idleLimitsSQL, values(&names), now))
	if err != nil || len(names) == 0 {
		return err
	}
	of := listOf(names, func(name *string) storage.LimitName {
		return storage.LimitName{Kind: storage.LimitKey, Name: *name}
	})
	return s.transact(ctx, tuned{s: s}, func(t *tx) {
		t.lockLimits(now, of)
		t.exec(forgetLimitsSQL, names, now, later(now, idlePeriod))
	})
}

// later is d after a time, or the end of time.
func later(ns, d int64) int64 {
	if d > 0 && ns > math.MaxInt64-d {
		return math.MaxInt64
	}
	return ns + d
}

// takeStartSQL removes a start at $3: the starts behind it move up by one, and the last
// one goes.
var takeStartSQL = define("takeStart", `WITH f AS MATERIALIZED (SELECT n FROM {schema}.job_start WHERE kind = $1 AND name = $2 AND at = $3 ORDER BY n DESC LIMIT 1),
		l AS MATERIALIZED (SELECT n FROM {schema}.job_start WHERE kind = $1 AND name = $2 ORDER BY n DESC LIMIT 1),
		moved AS (UPDATE {schema}.job_start s SET at = b.at FROM {schema}.job_start b
			WHERE s.kind = $1 AND s.name = $2 AND s.n >= (SELECT n FROM f) AND b.kind = $1 AND b.name = $2 AND b.n = s.n + 1)
		DELETE FROM {schema}.job_start WHERE kind = $1 AND name = $2 AND n = (SELECT l.n FROM l, f)`)

// storedLimitsSQL returns those of some limits that are stored: with $3 all, else those
// that keep starts.
var storedLimitsSQL = define("storedLimits", `SELECT l.kind, l.name FROM unnest($1::text[], $2::text[]) u (kind, name)
		JOIN {schema}.job_limit l ON l.kind = u.kind AND l.name = u.name WHERE l.period > 0 OR $3`)

// storedLimits returns those of some limits that are stored: all, or those that keep
// starts.
func (t *tx) storedLimits(of []storage.LimitName, all bool) map[storage.LimitName]bool {
	kinds, names := pair(of)
	there := make(map[storage.LimitName]bool)
	var name storage.LimitName
	read := each([]any{&name.Kind, &name.Name}, func() { there[name] = true })
	t.query(storedLimitsSQL, read, kinds, names, all)
	return there
}

// takeBack forgets the starts of jobs whose claims a transaction undoes. They are as they
// were before.
func (t *tx) takeBack(now int64, undone []storage.Record) {
	var names []storage.LimitName
	var starts []int64
	for i := range undone {
		r, key := &undone[i], ""
		if r.RateLimit != nil {
			key = r.RateLimit.Key
		}
		of := limitsOf(r.Queue, r.Type, key, key)
		names = append(names, of...)
		starts = append(starts, slices.Repeat([]int64{rows.Nanos(r.StartedAt)}, len(of))...)
	}
	keeps := t.storedLimits(names, false)
	if len(keeps) == 0 {
		return
	}
	t.lockLimits(now, slices.Collect(maps.Keys(keeps)))
	for i, name := range names {
		if keeps[name] {
			t.exec(takeStartSQL, string(name.Kind), name.Name, starts[i])
		}
	}
}
