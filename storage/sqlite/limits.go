package sqlite

import (
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Limits (storage.Limited), counted by what the tables say.
//
//   - The active jobs of a key and of a type are counted in an index, those of a queue in
//     the tally. So nothing can drift.
//   - The table job_start has the starts of limits with a rate or throttle.
//   - Each process remembers the bounds of keys that it has found closed, and its claims
//     skip the jobs that have them (rows.Lane). Of such keys the table job_limit says
//     closed.
//   - The end of a job of a closed key, and a change of a setting, give the key the next
//     number of changes. Before a claim, each process looks again at closed bounds whose
//     key has changed since its last look, and at bounds that time has opened.
//   - The limits of queues and types are looked at when a claim meets a job of them.
//
// A job without a limit meets comparisons only, and no statement.

// limits is what a writer remembers of limits. After a failed transaction it begins anew.
type limits struct {
	closed   *rows.ClosedLanes          // nil: no claim has obeyed limits yet
	changed  int64                      // the number of changes that closed has followed
	wide     map[storage.LimitName]bool // queues and types that have been set or blocked
	settings int64                      // the number of settings that wide has followed
	met      bool                       // the latest claim that wanted more met a closed queue or type
	told     time.Time                  // the latest storage.Notice.Opens
}

// widely reads which queues and types have limits.
func (t *tx) widely() error {
	x := t.limits
	if x.settings == t.settings {
		return nil
	}
	x.wide = make(map[storage.LimitName]bool)
	q := t.query(selectWide)
	for q.next() {
		x.wide[storage.LimitName{Kind: storage.LimitKind(q.text()), Name: q.text()}] = true
	}
	x.settings = t.settings
	return q.close()
}

// limitsOf returns the limits that count a job: those of its queue and type, if any, and
// last that of its key.
func (t *tx) limitsOf(queue, jobType, bounds, key string) (names []storage.LimitName) {
	if len(t.limits.wide) > 0 {
		for _, name := range [...]storage.LimitName{
			{Kind: storage.LimitQueue, Name: queue}, {Kind: storage.LimitType, Name: rows.TypeName(jobType)},
		} {
			if t.limits.wide[name] {
				names = append(names, name)
			}
		}
	}
	if bounds != "" {
		names = append(names, storage.LimitName{Kind: storage.LimitKey, Name: key})
	}
	return names
}

// counter reads what the tables have of a limit.
func (t *tx) counter(name storage.LimitName) (*rows.Counter, error) {
	c, err := readCounter(t.query, name)
	if err == nil && name.Kind == storage.LimitQueue {
		for k, moved := range t.moved { // what this transaction has not written yet
			if k.queue == name.Name && k.state == rows.Active {
				c.Active += moved
			}
		}
	}
	return c, err
}

// asker begins a statement.
type asker func(sql string, args ...any) *statement

func readCounter(ask asker, name storage.LimitName) (*rows.Counter, error) {
	kind := string(name.Kind)
	c := rows.NewCounter(name)
	q := ask(selectLimit, kind, name.Name)
	var setting string
	if c.Stored = q.next(); c.Stored {
		setting, c.Until, c.Blocked, c.Last = q.text(), q.time(), q.time(), q.text()
		c.Window, c.Most, c.Closed = q.int64(), q.int64(), q.int() != 0
	}
	if err := q.close(); err != nil {
		return nil, err
	}
	if setting != "" {
		bounds, err := rows.ReadBounds(setting)
		if err != nil {
			return nil, err
		}
		c.Setting = &bounds
	}
	switch name.Kind {
	case storage.LimitQueue:
		q = ask(activeOfQueue, name.Name)
	case storage.LimitType:
		q = ask(activeOfType, name.Name)
	default:
		q = ask(activeOfKey, name.Name)
	}
	if q.next() {
		c.Active = q.int()
	}
	if err := q.close(); err != nil || c.Window == 0 {
		return c, err
	}
	q = ask(selectLastStart, kind, name.Name)
	if q.next() {
		c.Started, c.LastStart = q.int64(), q.int64()
	}
	return c, q.close()
}

// startOf returns the function that looks up a start of a counter.
func startOf(ask asker, c *rows.Counter) func(n int64) (int64, bool, error) {
	return func(n int64) (at int64, there bool, err error) {
		q := ask(selectStart, string(c.Kind), c.Name, n)
		if there = q.next(); there {
			at = q.int64()
		}
		return at, there, q.close()
	}
}

// spareStarts is how many starts are kept besides the ones that count. An undone claim
// takes its start back, and an older start may then count again.
const spareStarts = 64

// started counts the start of a job.
func (t *tx) started(c *rows.Counter, own *ojs.RateLimit, bounds string, now int64) error {
	c.Active++
	more := own != nil && c.Remember(own)
	if bounds != "" && (more || !c.Stored || c.Last != bounds) {
		if !c.Stored {
			if err := t.forgetIdle(now); err != nil {
				return err
			}
		}
		c.Stored, c.Last = true, bounds
		err := t.exec(upsertLimit, string(c.Kind), c.Name, bounds, c.Window, c.Most, now)
		if err != nil {
			return err
		}
	}
	if c.Window == 0 {
		return nil
	}
	n := c.Started + 1
	if err := t.exec(insertStart, string(c.Kind), c.Name, n, now); err != nil {
		return err
	}
	c.Started = n
	if c.LastStart > now && n > 1 { // clocks differ
		if err := t.sortStart(c, now); err != nil {
			return err
		}
	} else {
		c.LastStart = now
	}
	if n%spareStarts == 0 {
		return t.exec(trimStarts, string(c.Kind), c.Name, n-min(c.Most, math.MaxInt32)-spareStarts)
	}
	return nil
}

// sortStart moves the latest start of a counter to where its time belongs.
func (t *tx) sortStart(c *rows.Counter, now int64) error {
	q := t.query(selectStarts, string(c.Kind), c.Name)
	q.next() // the start itself
	var later []int64
	for q.next() {
		_, at := q.int64(), q.int64()
		if at <= now {
			break
		}
		later = append(later, at)
	}
	if err := q.close(); err != nil {
		return err
	}
	for i, at := range append(later, now) {
		if err := t.exec(moveStart, string(c.Kind), c.Name, c.Started-int64(i), at); err != nil {
			return err
		}
	}
	return nil
}

// takeBack forgets the start of a job whose claim is undone.
func (t *tx) takeBack(r *stored) error {
	if err := t.widely(); err != nil {
		return err
	}
	t.written = true
	for _, name := range t.limitsOf(r.Queue, r.Type, r.Bounds, r.RateKey) {
		var after []int64 // starts after it
		n, found := int64(0), false
		q := t.query(selectStarts, string(name.Kind), name.Name)
		for !found && q.next() {
			i, at := q.int64(), q.int64()
			n = max(n, i)
			if found = at == r.Started; at < r.Started {
				break
			}
			if !found {
				after = append(after, at)
			}
		}
		if err := q.close(); err != nil || !found {
			if err != nil {
				return err
			}
			continue
		}
		for i, at := range after {
			if err := t.exec(moveStart, string(name.Kind), name.Name, n-int64(i)-1, at); err != nil {
				return err
			}
		}
		if err := t.exec(deleteStart, string(name.Kind), name.Name, n); err != nil {
			return err
		}
	}
	return nil
}

// freed notes that a job has ceased to be active, so that others may start.
func (t *tx) freed(r *rows.Columns) error {
	if r.Bounds != "" {
		if err := t.exec(setFreed, r.RateKey, t.changed+1); err != nil {
			return err
		}
		if t.conn.Changes() > 0 {
			t.changed++
			t.given = true
			t.noteFreed()
		}
	}
	if t.notice == nil || t.notice.Available {
		return nil
	}
	if err := t.widely(); err != nil {
		return err
	}
	if len(t.limitsOf(r.Queue, r.Type, "", "")) > 0 {
		t.noteFreed()
	}
	return nil
}

func (t *tx) noteFreed() {
	if t.notice != nil {
		t.notice.Available = true
	}
}

// follow brings the closed bounds up to date, before a claim.
func (t *tx) follow(now int64) error {
	x := t.limits
	if x.closed == nil || x.changed < t.forgotten { // it may have missed a change of a key that is gone
		x.closed = rows.NewClosedLanes()
		x.changed = t.changed
	}
	for l, due := x.closed.Due(rows.Time(now)); due; l, due = x.closed.Due(rows.Time(now)) {
		if err := t.lookAgain(l, now); err != nil {
			return err
		}
	}
	if x.changed == t.changed {
		return nil
	}
	if x.closed.Len() > 0 {
		var names []string
		q := t.query(changedKeys, x.changed)
		for q.next() {
			names = append(names, q.text())
		}
		if err := q.close(); err != nil {
			return err
		}
		for _, name := range names {
			for _, l := range x.closed.OfKey(name) {
				if err := t.lookAgain(l, now); err != nil {
					return err
				}
			}
		}
	}
	x.changed = t.changed
	return nil
}

// lookAgain opens closed bounds if a job may start, or if no job that waits has them.
func (t *tx) lookAgain(l *rows.ClosedLane, now int64) error {
	c, err := t.counter(storage.LimitName{Kind: storage.LimitKey, Name: l.Own.Key})
	if err != nil {
		return err
	}
	at, open, err := c.Open(&l.Own, now, startOf(t.query, c))
	if err != nil {
		return err
	}
	if !open {
		q := t.query(anyOfBounds, l.Name)
		open = !q.next()
		if err := q.close(); err != nil {
			return err
		}
	}
	if open {
		t.limits.closed.Open(l)
		return nil
	}
	t.limits.closed.Close(l.Name, &l.Own, at)
	return t.closed(c, now)
}

// closed remembers that bounds of a key let no job start.
func (t *tx) closed(c *rows.Counter, now int64) error {
	if c.Closed {
		return nil
	}
	c.Closed, c.Stored = true, true
	t.written = true
	return t.exec(setClosed, c.Name, now)
}

// idlePeriod is how long a key that has changed is remembered at least, so that every
// process has time to follow.
const idlePeriod = int64(time.Hour)

// forgetIdle forgets some keys that have neither jobs that wait or are active, nor
// settings, nor starts that count. A key that claims have found closed is forgotten if
// nothing has changed for an idlePeriod. Each new key looks at several, so that keys that
// come and go do not add up.
func (t *tx) forgetIdle(now int64) error {
	type key struct {
		name          string
		changed, idle int64
	}
	var list []key
	q := t.query(idleLimits, now)
	for q.next() {
		list = append(list, key{q.text(), q.int64(), q.int64()})
	}
	if err := q.close(); err != nil {
		return err
	}
	for _, k := range list {
		c, err := t.counter(storage.LimitName{Kind: storage.LimitKey, Name: k.name})
		if err != nil {
			return err
		}
		q := t.query(anyOfKey, k.name)
		needed := q.next()
		if err := q.close(); err != nil {
			return err
		}
		needed = needed || c.InForce(now) != nil || c.Blocked != rows.None && c.Blocked > now ||
			c.Started > 0 && later(c.LastStart, c.Window) > now
		switch {
		case needed:
			err = t.exec(lookLater, k.name, later(now, idlePeriod), int64(-1))
		case (k.changed > 0 || c.Closed) && k.idle != k.changed:
			err = t.exec(lookLater, k.name, later(now, idlePeriod), k.changed)
		default:
			t.forgotten, t.given = max(t.forgotten, k.changed), true
			if err = t.exec(deleteLimit, k.name); err == nil {
				err = t.exec(deleteStarts, k.name)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// later is d after a time, or the end of time.
func later(ns, d int64) int64 {
	if d > 0 && ns > math.MaxInt64-d {
		return math.MaxInt64
	}
	return ns + d
}

// limited is what a claim knows of limits.
type limited struct {
	counters map[storage.LimitName]*rows.Counter
	left     []storage.LimitName // queues and types whose limits keep their jobs
	met      bool                // such a limit
	opens    int64               // when time opens one of them; rows.None: never
}

// counter returns the counter of a limit for the rest of the claim.
func (k *claimer) counter(name storage.LimitName) (*rows.Counter, error) {
	c := k.counters[name]
	if c == nil {
		var err error
		if c, err = k.t.counter(name); err != nil {
			return nil, err
		}
		if k.counters == nil {
			k.counters = make(map[storage.LimitName]*rows.Counter)
		}
		k.counters[name] = c
	}
	return c, nil
}

// leaves reports whether the limit of its queue or type keeps a job, as far as the claim
// has met it.
func (k *claimer) leaves(j *rows.Waiting) bool {
	for _, name := range k.left {
		if name.Name == j.Queue && name.Kind == storage.LimitQueue ||
			name.Kind == storage.LimitType && name.Name == rows.TypeName(j.Type) {
			return true
		}
	}
	return false
}

// leftNames names the lane of claims that leave the same queues and types.
func (k *claimer) leftNames() (names []string) {
	for _, name := range k.left {
		names = append(names, string(name.Kind)+":"+name.Name)
	}
	slices.Sort(names)
	return names
}

// verdict is what limits say of a job that is next.
type verdict int

const (
	mayStart verdict = iota
	isHeld           // it waits
	isGone           // it was dropped or rescheduled
	endsIt           // the claim ends before it
)

// judge asks the limits of a job that is next, and does what its OnLimit says. With ends,
// the claim ends before the job, unless it has to wait.
func (k *claimer) judge(r *stored, row *rows.Row, ends bool) (verdict, error) {
	names := k.t.limitsOf(r.Queue, r.Type, r.Bounds, r.RateKey)
	for _, name := range names {
		c, err := k.counter(name)
		if err != nil {
			return 0, err
		}
		own := new(ojs.RateLimit)
		if name.Kind == storage.LimitKey {
			own = row.RateLimit
		}
		at, open, err := c.Open(own, k.now, startOf(k.t.query, c))
		switch {
		case err != nil:
			return 0, err
		case open:
		case name.Kind != storage.LimitKey:
			k.left, k.met = append(k.left, name), true
			if at != rows.None && (k.opens == rows.None || at < k.opens) {
				k.opens = at
			}
			return isHeld, nil
		case ends && (own.OnLimit == ojs.OnLimitDrop || own.OnLimit == ojs.OnLimitReschedule):
			return endsIt, nil
		case own.OnLimit == ojs.OnLimitDrop:
			return isGone, k.drop(r, row)
		case own.OnLimit == ojs.OnLimitReschedule:
			return isGone, k.postpone(r, row, at)
		default:
			if k.t.limits.closed.Close(r.Bounds, own, at) {
				k.c.Limits.Closed = append(k.c.Limits.Closed, c.Closes(own, k.now))
			}
			return isHeld, k.t.closed(c, k.now)
		}
	}
	n := k.c.Limits.Now
	if ends || len(names) > 0 && n > 0 && len(k.claimed) >= n {
		return endsIt, nil
	}
	return mayStart, nil
}

func (k *claimer) drop(r *stored, row *rows.Row) error {
	now := rows.Time(k.now)
	row.Limit(now)
	if err := k.t.saveAttempt(r.kind(), row); err != nil {
		return err
	}
	to := k.c.Limits
	to.Dropped = append(to.Dropped, row.Record)
	if !r.awaited {
		return nil
	}
	k.t.toCount = append(k.t.toCount, dependency{row.Seq, row.ID, row.State})
	var err error
	to.Moved, err = k.t.countEnds(now, to.Moved)
	return err
}

func (k *claimer) postpone(r *stored, row *rows.Row, at int64) error {
	row.Postpone(rows.Time(k.now), rows.Time(at))
	s, err := encode(&row.Record)
	if err != nil {
		return err
	}
	s.seq, s.place = row.Seq, k.t.nextPlace()
	k.c.Limits.Postponed = append(k.c.Limits.Postponed, row.Record)
	return k.t.save(r.kind(), &s, true)
}

// starts counts the start of a job that the claim takes.
func (k *claimer) starts(r *stored, row *rows.Row) error {
	for _, name := range k.t.limitsOf(r.Queue, r.Type, r.Bounds, r.RateKey) {
		c, err := k.counter(name)
		if err != nil {
			return err
		}
		if name.Kind == storage.LimitKey {
			err = k.t.started(c, row.RateLimit, r.Bounds, k.now)
		} else {
			err = k.t.started(c, nil, "", k.now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tell completes what a claim says of limits.
func (k *claimer) tell() {
	x, to := k.t.limits, k.c.Limits
	left := len(k.claimed) < k.c.Max && !k.over
	if left {
		x.met = k.met
	}
	to.Held = x.closed.Len() > 0 || x.met || k.met
	opens := x.closed.Opens()
	if at := rows.Time(k.opens); !at.IsZero() && (opens.IsZero() || at.Before(opens)) {
		opens = at
	}
	if left {
		to.Opens = opens
	}
	if k.t.notice != nil && !opens.IsZero() && !opens.Equal(x.told) {
		k.t.notice.Opens, x.told = opens, opens
	}
}
