package postgres

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// tallied is a counter with what a transaction adds to it.
type tallied struct {
	rows.Counter
	was    rows.Counter // as it is stored
	starts int64        // that are not stored
}

// countersSQL returns what is stored of the limits of the kinds $1 and names $2.
var countersSQL = define("counters", `SELECT u.ord, l.kind IS NOT NULL, coalesce(l.setting, ''), coalesce(l.until, {none}), coalesce(l.blocked, {none}),
			coalesce(l.last, ''), coalesce(l.period, 0), coalesce(l.most, 0),
			CASE u.kind WHEN 'key' THEN (SELECT count(*) FROM {schema}.active j WHERE j.rate_key = u.name AND j.bounds IS NOT NULL) ELSE 0 END,
			coalesce(s.n, 0), coalesce(s.at, 0)
		FROM unnest($1::text[], $2::text[]) WITH ORDINALITY u (kind, name, ord)
		LEFT JOIN {schema}.job_limit l ON l.kind = u.kind AND l.name = u.name
		LEFT JOIN LATERAL (SELECT n, at FROM {schema}.job_start j WHERE j.kind = u.kind AND j.name = u.name
			ORDER BY n DESC LIMIT 1) s ON true`)

// activeOfSQL counts the active jobs of queues and types. It reads all active jobs,
// which are as many as run: an index would cost each claim and each end.
var activeOfSQL = define("activeOf", `SELECT u.ord, count(*) FROM unnest($1::text[], $2::text[]) WITH ORDINALITY u (kind, name, ord)
		JOIN {schema}.active j ON CASE u.kind WHEN 'queue' THEN j.queue = u.name
			WHEN 'type' THEN split_part(j.type, '@', 1) = u.name ELSE false END GROUP BY 1`)

// counters reads what the tables have of limits.
func (s *Storage) counters(
	ctx context.Context, q querier, of []storage.LimitName,
) (map[storage.LimitName]*tallied, error) {
	found := make(map[storage.LimitName]*tallied, len(of))
	if len(of) == 0 {
		return found, nil
	}
	kinds, names := pair(of)
	var c rows.Counter
	var setting string
	var ord int64
	var failure error
	columns := []any{&ord, &c.Stored, &setting, &c.Until, &c.Blocked, &c.Last, &c.Window, &c.Most,
		&c.Active, &c.Started, &c.LastStart}
	err := q.query(ctx, s.sql[countersSQL], []any{kinds, names}, each(columns, func() {
		t := &tallied{Counter: c}
		t.LimitName = of[ord-1]
		if setting != "" {
			bounds, err := rows.ReadBounds(setting)
			if err != nil {
				failure = err
			}
			t.Setting = &bounds
		}
		t.was = t.Counter
		found[t.LimitName] = t
	}))
	if err == nil &&
		slices.ContainsFunc(kinds, func(k string) bool { return k != string(storage.LimitKey) }) {
		var n int
		err = q.query(ctx, s.sql[activeOfSQL], []any{kinds, names}, each([]any{&ord, &n}, func() {
			t := found[of[ord-1]]
			t.Active, t.was.Active = n, n
		}))
	}
	return found, cmp.Or(err, failure)
}

// opens reports whether bounds let a job start, and otherwise when time does: see
// rows.Counter.
func (s *Storage) opens(
	ctx context.Context, q querier, t *tallied, own *ojs.RateLimit, now int64,
) (at int64, open bool, err error) {
	return t.Open(own, now, s.startOf(ctx, q, t, now))
}

var startSQL = define("start", `SELECT at FROM {schema}.job_start WHERE kind = $1 AND name = $2 AND n = $3`)

// startOf returns the function that looks up a start of a counter by its number.
func (s *Storage) startOf(
	ctx context.Context, q querier, t *tallied, now int64,
) func(n int64) (int64, bool, error) {
	return func(n int64) (at int64, there bool, err error) {
		switch {
		case n > t.was.Started: // of this transaction
			return now, true, nil
		case n == t.was.Started:
			return t.was.LastStart, true, nil
		}
		err = q.query(ctx, s.sql[startSQL], []any{string(t.Kind), t.Name, n}, one(&there, &at))
		return at, there, err
	}
}

// start counts the start of a job.
func (t *tallied) start(own *ojs.RateLimit, bounds string, now int64) {
	t.Active++
	if own != nil {
		t.Remember(own)
		t.Last = bounds
	}
	if t.Window == 0 {
		return
	}
	t.starts++
	t.Started++
	t.LastStart = max(t.LastStart, now)
}

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
func (s *Storage) storeStarts(
	ctx context.Context, tx inTx, now int64, counters map[storage.LimitName]*tallied,
) error {
	var b pgx.Batch
	for name, t := range counters {
		kind := string(name.Kind)
		if t.Last != t.was.Last || t.Window != t.was.Window || t.Most != t.was.Most {
			b.Queue(s.sql[setStartedSQL], kind, name.Name, t.Last, t.Window, t.Most, later(now, idlePeriod))
		}
		if t.starts == 0 {
			continue
		}
		b.Queue(s.sql[addStartsSQL], kind, name.Name, t.was.Started, t.starts, now)
		if t.was.LastStart > now && t.was.Started > 0 { // clocks differ
			b.Queue(s.sql[sortStartsSQL], kind, name.Name)
		}
		if t.Started/spareStarts > t.was.Started/spareStarts {
			b.Queue(s.sql[trimStartsSQL], kind, name.Name, t.Started-min(t.Most, math.MaxInt32)-spareStarts)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, &b).Close()
}

// idlePeriod is after what time a key of which a job has started is looked at, and again,
// to see whether it can be forgotten.
const idlePeriod = int64(time.Hour)

var idleLimitsSQL = define("idleLimits",
	`SELECT name FROM {schema}.job_limit WHERE look <= $1 ORDER BY look LIMIT 8`)

var forgetLimitsSQL = define("forgetLimits", `WITH gone AS (DELETE FROM {schema}.job_limit l WHERE l.kind = 'key' AND l.name = ANY ($1::text[])
			AND (l.setting IS NULL OR l.until <= $2) AND (l.blocked IS NULL OR l.blocked <= $2)
			AND NOT EXISTS (SELECT FROM {schema}.ready j WHERE j.rate_key = l.name AND j.bounds IS NOT NULL)
			AND NOT EXISTS (SELECT FROM {schema}.active j WHERE j.rate_key = l.name AND j.bounds IS NOT NULL)
			AND NOT EXISTS (SELECT FROM {schema}.job_start s WHERE s.kind = l.kind AND s.name = l.name AND s.at > $2 - l.period)
			RETURNING l.name)
		DELETE FROM {schema}.job_start WHERE kind = 'key' AND name = ANY (ARRAY(SELECT name FROM gone))`)

var lookLaterSQL = define("lookLater",
	`UPDATE {schema}.job_limit SET look = $2 WHERE kind = 'key' AND name = ANY ($1::text[])`)

// forgetIdle forgets some keys that have neither jobs that wait or are active, nor
// settings, nor starts that count. Each claim that adds a key looks at several, so that
// keys that come and go do not add up.
func (s *Storage) forgetIdle(ctx context.Context, now int64) error {
	var names []string
	var name string
	add := func() { names = append(names, name) }
	err := tuned{s}.query(ctx, s.sql[idleLimitsSQL], []any{now}, each([]any{&name}, add))
	if err != nil || len(names) == 0 {
		return err
	}
	of := make([]storage.LimitName, len(names))
	for i, name := range names {
		of[i] = storage.LimitName{Kind: storage.LimitKey, Name: name}
	}
	return s.transact(ctx, tuned{s}, func(ctx context.Context, tx transaction) error {
		if err := s.lockLimits(ctx, tx, now, of); err != nil {
			return err
		}
		if err := tx.exec(ctx, s.sql[forgetLimitsSQL], names, now); err != nil {
			return err
		}
		return tx.exec(ctx, s.sql[lookLaterSQL], names, later(now, idlePeriod))
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

// keepStartsSQL returns which of some limits keep starts.
var keepStartsSQL = define("keepStarts", `SELECT l.kind, l.name FROM unnest($1::text[], $2::text[]) u (kind, name)
		JOIN {schema}.job_limit l ON l.kind = u.kind AND l.name = u.name WHERE l.period > 0`)

// takeBack forgets the starts of jobs whose claims a transaction undoes. They are as they
// were before.
func (s *Storage) takeBack(ctx context.Context, tx transaction, now int64, undone []storage.Record) error {
	var names []storage.LimitName
	of := make([][]storage.LimitName, len(undone))
	for i := range undone {
		r := &undone[i]
		of[i] = []storage.LimitName{
			{Kind: storage.LimitQueue, Name: r.Queue}, {Kind: storage.LimitType, Name: r.Type},
		}
		if r.RateLimit != nil {
			of[i] = append(of[i], storage.LimitName{Kind: storage.LimitKey, Name: r.RateLimit.Key})
		}
		names = append(names, of[i]...)
	}
	kinds, list := pair(names)
	keeps := make(map[storage.LimitName]bool)
	var name storage.LimitName
	columns := []any{&name.Kind, &name.Name}
	err := tx.query(ctx, s.sql[keepStartsSQL], []any{kinds, list}, each(columns, func() {
		keeps[name] = true
	}))
	if err != nil || len(keeps) == 0 {
		return err
	}
	names = slices.DeleteFunc(names, func(name storage.LimitName) bool { return !keeps[name] })
	if err := s.lockLimits(ctx, tx, now, names); err != nil {
		return err
	}
	for i := range undone {
		for _, name := range of[i] {
			if !keeps[name] {
				continue
			}
			at := rows.Nanos(undone[i].StartedAt)
			err := tx.exec(ctx, s.sql[takeStartSQL], string(name.Kind), name.Name, at)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
