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
	err := q.query(ctx, s.sql.counters, []any{kinds, names}, each(columns, func() {
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
		err = q.query(ctx, s.sql.activeOf, []any{kinds, names}, each([]any{&ord, &n}, func() {
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
		err = q.query(ctx, s.sql.start, []any{string(t.Kind), t.Name, n}, one(&there, &at))
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

// storeStarts stores what a transaction has added to counters.
func (s *Storage) storeStarts(
	ctx context.Context, tx inTx, now int64, counters map[storage.LimitName]*tallied,
) error {
	var b pgx.Batch
	for name, t := range counters {
		kind := string(name.Kind)
		if t.Last != t.was.Last || t.Window != t.was.Window || t.Most != t.was.Most {
			b.Queue(s.sql.setStarted, kind, name.Name, t.Last, t.Window, t.Most, later(now, idlePeriod))
		}
		if t.starts == 0 {
			continue
		}
		b.Queue(s.sql.addStarts, kind, name.Name, t.was.Started, t.starts, now)
		if t.was.LastStart > now && t.was.Started > 0 { // clocks differ
			b.Queue(s.sql.sortStarts, kind, name.Name)
		}
		if t.Started/spareStarts > t.was.Started/spareStarts {
			b.Queue(s.sql.trimStarts, kind, name.Name, t.Started-min(t.Most, math.MaxInt32)-spareStarts)
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

// forgetIdle forgets some keys that have neither jobs that wait or are active, nor
// settings, nor starts that count. Each claim that adds a key looks at several, so that
// keys that come and go do not add up.
func (s *Storage) forgetIdle(ctx context.Context, now int64) error {
	var names []string
	var name string
	add := func() { names = append(names, name) }
	err := tuned{s}.query(ctx, s.sql.idleLimits, []any{now}, each([]any{&name}, add))
	if err != nil || len(names) == 0 {
		return err
	}
	of := make([]storage.LimitName, len(names))
	for i, name := range names {
		of[i] = storage.LimitName{Kind: storage.LimitKey, Name: name}
	}
	return s.within(ctx, func(ctx context.Context) error {
		return begun(ctx, tuned{s}, func(tx transaction) error {
			if err := s.lockLimits(ctx, tx, now, of); err != nil {
				return err
			}
			if err := tx.exec(ctx, s.sql.forgetLimits, names, now); err != nil {
				return err
			}
			return tx.exec(ctx, s.sql.lookLater, names, later(now, idlePeriod))
		})
	})
}

// later is d after a time, or the end of time.
func later(ns, d int64) int64 {
	if d > 0 && ns > math.MaxInt64-d {
		return math.MaxInt64
	}
	return ns + d
}

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
	err := tx.query(ctx, s.sql.keepStarts, []any{kinds, list}, each([]any{&name.Kind, &name.Name}, func() {
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
			err := tx.exec(ctx, s.sql.takeStart, string(name.Kind), name.Name, at)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
