package keyed

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// Limits (storage.Limited). Package rule decides. lanes.go has the jobs that wait.
//
//   - The table limit has the counter of a key that jobs have, and that of a queue or a
//     type that something was set for. start has the starts of a counter, by number.
//   - The active jobs of a key are counted by its counter, those of a queue or a type by
//     the table count.
//   - A claim looks at no job of a queue or type whose limit is closed.

// limit is a counter and how it is stored.
type limit struct {
	rows.Counter
	opens   int64 // when time alone may open lanes of the key; rule.None: never
	many    bool  // its lanes are in the table lane
	inTable int   // how many
	only    *lane // if they are not: the one that has jobs, or nil

	lanes    map[string]*lane // that the call knows
	complete bool             // these are all
	judge    bool             // its lanes may be other than they were
	dirty    bool             // it differs from what is stored
}

// kinds are the bytes of the kinds of limits in keys.
var kinds = map[storage.LimitKind]byte{storage.LimitKey: 1, storage.LimitQueue: 2, storage.LimitType: 3}

func limitKey(name storage.LimitName) key {
	return newKey(limitTable).byte(kinds[name.Kind]).text(name.Name)
}

func startKey(c *limit, n int64) key {
	return newKey(startTable).byte(kinds[c.Kind]).name(c.Name).number(n)
}

// limitOf is the key whose limit the storage counts for a job, "" if there is none.
func limitOf(r *storage.Record) string {
	if r.RateLimit == nil {
		return ""
	}
	return r.RateLimit.Key
}

// key returns the limit of a key. A call changes it in memory (keepLimits).
func (t *tx) key(name string) *limit {
	x := &t.lanes
	if c := x.known[name]; c != nil {
		return c
	}
	if x.known == nil {
		x.known = make(map[string]*limit)
	}
	c := t.limit(storage.LimitName{Kind: storage.LimitKey, Name: name})
	x.known[name] = c
	x.order = append(x.order, c)
	return c
}

// fetchLimits reads the limits of n jobs at once, given the key of each limit. The key is
// "" if a job has none.
func (t *tx) fetchLimits(n int, key func(i int) string) {
	if n < 2 {
		return
	}
	known := map[string]bool{"": true}
	for i := range n {
		if name := key(i); !known[name] {
			known[name] = true
			t.o.ask(limitKey(storage.LimitName{Kind: storage.LimitKey, Name: name}))
		}
	}
	t.o.fetch()
}

// limit returns what is stored of a limit.
func (t *tx) limit(name storage.LimitName) *limit {
	c := &limit{Counter: *rows.NewCounter(name), opens: rule.None}
	v := t.get(limitKey(name))
	if v == nil {
		return c
	}
	c.Stored = true
	r := readerOf(v)
	c.Active, c.Started, c.LastStart, c.Window, c.Most = int(r.Int()), r.Int(), r.Int(), r.Int(), r.Int()
	c.Until, c.Blocked, c.opens, c.inTable = r.Int(), r.Int(), r.Int(), int(r.Int())
	c.Last = r.Text()
	if setting := r.Text(); setting != "" {
		b := readBounds(setting)
		c.Setting = &b
	}
	if c.many = c.inTable > 0; len(r.B) > 0 {
		c.only = readLane(&r)
		c.know(c.only.id(), c.only)
	}
	if c.Kind != storage.LimitKey {
		c.Active = t.active(name)
	}
	return c
}

// active counts the active jobs of a queue or a type.
func (t *tx) active(name storage.LimitName) (n int) {
	prefix := newKey(countTable).byte(rows.Active)
	if name.Kind == storage.LimitQueue {
		prefix = prefix.name(name.Name)
	}
	for rest, count := range t.scan(prefix, nil) {
		if name.Kind == storage.LimitType {
			_, rest = cut(rest)
		}
		if jobType, _ := cut(rest); name.Kind == storage.LimitQueue || jobType == name.Name {
			n += int(number(count))
		}
	}
	return n
}

// keep stores a counter.
func (t *tx) keep(c *limit) {
	v := make(key, 0, 128)
	for _, n := range [9]int64{int64(c.Active), c.Started, c.LastStart, c.Window, c.Most, c.Until, c.Blocked,
		c.opens, int64(c.inTable)} {
		v = binary.AppendVarint(v, n)
	}
	v = v.string(c.Last).string(string(key{}.appendBounds(c.Setting)))
	if c.only != nil {
		v = c.only.encode(v)
	}
	t.o.set(limitKey(c.LimitName), v)
	c.Stored = true
}

// startOf looks up a start of a counter.
func (t *tx) startOf(c *limit) rule.Starts {
	return func(n int64) (int64, bool, error) {
		v := t.get(startKey(c, n))
		return number(v), v != nil, nil
	}
}

// set returns the limits of a queue and a type that something was set for.
func (t *tx) set(queue, jobType string) (names []storage.LimitName) {
	if t.number(meta(setName)) == 0 {
		return nil
	}
	for _, name := range [2]storage.LimitName{
		{Kind: storage.LimitQueue, Name: queue}, {Kind: storage.LimitType, Name: jobType},
	} {
		if t.get(limitKey(name)) != nil {
			names = append(names, name)
		}
	}
	return names
}

// opensIn reports whether the limits of a queue and type let a job start. If not, at is
// when time alone opens all of them; math.MaxInt64: never.
func (t *tx) opensIn(names []storage.LimitName) (at int64, open bool) {
	at, open = math.MinInt64, true
	for _, name := range names {
		c := t.limit(name)
		opens, may, err := c.Open(new(ojs.RateLimit), t.lanes.now.UnixNano(), t.startOf(c))
		fail.If(err)
		if may {
			continue
		}
		if open = false; opens == rule.None {
			opens = math.MaxInt64
		}
		at = max(at, opens)
	}
	return at, open
}

// startedIn counts the start of a job for the limits of its queue and type.
func (t *tx) startedIn(names []storage.LimitName) {
	for _, name := range names {
		c := t.limit(name)
		t.start(c, t.lanes.now.UnixNano())
		t.keep(c)
	}
}

// started counts the start of a job of a lane.
func (t *tx) started(c *limit, l *lane) {
	c.Remember(&l.own)
	c.Last = l.bounds
	t.start(c, t.lanes.now.UnixNano())
	c.Active++
	c.judge, c.dirty = true, true
}

// start counts a start. Starts are in the order of their times, though clocks differ.
func (t *tx) start(c *limit, at int64) {
	if c.LastStart = max(c.LastStart, at); c.Window == 0 {
		return
	}
	n := c.Started + 1
	for ; n > 1; n-- {
		before := t.get(startKey(c, n-1))
		if before == nil || number(before) <= at {
			break
		}
		t.put(startKey(c, n), before)
	}
	t.putNumber(startKey(c, n), at)
	c.Started++
	c.LastStart = t.number(startKey(c, c.Started))
	if old := c.Started - c.Most - spareStarts; old > 0 {
		t.delete(startKey(c, old))
	}
}

// takeBack takes back the start of a job whose claim is undone.
func (t *tx) takeBack(j *job) {
	at := rows.Nanos(j.StartedAt)
	for _, name := range t.set(j.Queue, j.Type) {
		if c := t.limit(name); t.unstart(c, at) {
			t.keep(c)
		}
	}
	if name := limitOf(&j.Record); name != "" {
		c := t.key(name)
		c.dirty = t.unstart(c, at) || c.dirty
	}
}

// unstart takes back a start at a time. It reports false if there is none.
func (t *tx) unstart(c *limit, at int64) bool {
	n := c.Started
	for start := t.get(startKey(c, n)); start == nil || number(start) != at; start = t.get(startKey(c, n)) {
		if start == nil || number(start) < at {
			return false
		}
		n--
	}
	for ; n < c.Started; n++ {
		t.put(startKey(c, n), t.get(startKey(c, n+1)))
	}
	t.delete(startKey(c, n))
	c.Started--
	if last := t.get(startKey(c, c.Started)); last != nil {
		c.LastStart = number(last)
	}
	return true
}

// spareStarts is how many starts are kept besides those that the bounds so far count: a
// job may come whose bounds count more.
const spareStarts = 64

// maxIdle is how long a key is remembered that no job has.
const maxIdle = int64(time.Hour)

// forget looks at two keys, others each time, and forgets those that nothing needs. Each
// new key has it called, so that keys that come and go do not add up.
func (t *tx) forget(now int64) {
	all := newKey(limitTable).byte(kinds[storage.LimitKey])
	at := meta(sweptName)
	var idle []*limit
	n := 0
	last := key{}
	for name := range t.scan(all, append(append(key{}, t.get(at)...), 0)) {
		if n == 2 {
			break
		}
		n++
		last = append(key{}, name...)
		c := t.limit(storage.LimitName{Kind: storage.LimitKey, Name: string(name)})
		blocked := c.Blocked != rows.None && c.Blocked > now
		if c.Active == 0 && c.only == nil && !c.many && c.InForce(now) == nil && !blocked &&
			c.LastStart < now-maxIdle-c.Window {
			idle = append(idle, c)
		}
	}
	if n < 2 { // it has come to the end, and begins anew
		last = key{}
	}
	t.put(at, last)
	for _, c := range idle {
		t.delete(limitKey(c.LimitName))
		delete(t.lanes.known, c.Name)
		starts := newKey(startTable).byte(kinds[c.Kind]).name(c.Name)
		closed := closedKey(c.Name, "")
		for _, prefix := range []key{starts, closed} {
			for rest := range t.scan(prefix, nil) {
				t.delete(append(slices.Clone(prefix), rest...))
			}
		}
	}
}

// changeLimit changes what was set of a limit.
func (s *Storage) changeLimit(ctx context.Context, now time.Time, name storage.LimitName,
	bounds ojs.RateLimit, f func(c *limit)) error {
	if err := storage.CheckLimit(name, bounds); err != nil {
		return err
	}
	_, err := change(ctx, s, func(t *tx) struct{} {
		t.at(now)
		t.notice.Available = true
		if name.Kind == storage.LimitKey {
			c := t.key(name.Name)
			f(c)
			c.judge, c.dirty = true, true
			return struct{}{}
		}
		c := t.limit(name)
		if !c.Stored {
			t.add(meta(setName), 1)
		}
		f(c)
		t.keep(c)
		return struct{}{}
	})
	return err
}

// SetLimit implements storage.Storage.
func (s *Storage) SetLimit(ctx context.Context, now time.Time, name storage.LimitName, bounds ojs.RateLimit,
	until time.Time) error {
	return s.changeLimit(ctx, now, name, bounds, func(c *limit) { c.Set(bounds, until) })
}

// BlockLimit implements storage.Storage.
func (s *Storage) BlockLimit(ctx context.Context, now time.Time, name storage.LimitName,
	until time.Time) error {
	return s.changeLimit(ctx, now, name, ojs.RateLimit{}, func(c *limit) { c.Block(until) })
}

// GetLimit implements storage.Storage.
func (s *Storage) GetLimit(ctx context.Context, now time.Time,
	name storage.LimitName) (storage.Limit, error) {
	if err := storage.CheckLimit(name, ojs.RateLimit{}); err != nil {
		return storage.Limit{}, err
	}
	return view(ctx, s, func(t *tx) storage.Limit {
		state := t.limitState(now, name)
		if !rule.Known(&state) {
			fail.With(fmt.Errorf("%w: limit of %s %q", ojs.ErrNotFound, name.Kind, name.Name))
		}
		return state
	})
}

// ListLimits implements storage.Storage.
func (s *Storage) ListLimits(ctx context.Context, now time.Time, kind storage.LimitKind, after string,
	most int) ([]storage.Limit, error) {
	if err := storage.CheckLimit(storage.LimitName{Kind: kind, Name: "any"}, ojs.RateLimit{}); err != nil {
		return nil, err
	}
	return view(ctx, s, func(t *tx) (list []storage.Limit) {
		for name := range t.scan(newKey(limitTable).byte(kinds[kind]), key(after+"\x00")) {
			if len(list) >= most {
				break
			}
			state := t.limitState(now, storage.LimitName{Kind: kind, Name: string(name)})
			if rule.Listed(&state) {
				list = append(list, state)
			}
		}
		return list
	})
}

// limitState is the state of a limit.
func (t *tx) limitState(now time.Time, name storage.LimitName) storage.Limit {
	var c *limit
	if name.Kind == storage.LimitKey {
		c = t.key(name.Name)
	} else if c = t.limit(name); !c.Stored {
		c.Active = t.active(name)
	}
	waiting, bounds := t.waitingIn(now, c)
	if c.Last != "" {
		bounds = c.Last
	}
	var own ojs.RateLimit
	if bounds != "" {
		own = readBounds(bounds)
	}
	state := fail.Must(c.State(own, waiting, now.UnixNano(), t.startOf(c)))
	if per := int64(state.Bounds.Rate.Per); state.Bounds.Rate.Limit > 0 {
		for n := c.Started; n > 0; n-- {
			if at := t.get(startKey(c, n)); at == nil || number(at) <= now.UnixNano()-per {
				break
			}
			state.Starts++
		}
	}
	return state
}

// waitingIn counts the available jobs of a limit whose deadline has not come, and returns
// the bounds of one of a key.
func (t *tx) waitingIn(now time.Time, c *limit) (n int, bounds string) {
	if c.Kind == storage.LimitKey {
		return t.waiting(now, c)
	}
	queue, jobType := c.Name, ""
	if c.Kind == storage.LimitType {
		queue, jobType = "", c.Name
	}
	for _, k := range t.backlogs(queue) {
		if jobType == "" || k.jobType == jobType {
			n += k.n
		}
	}
	for j := range t.expired(now) {
		if queue != "" && j.Queue == queue || jobType != "" && j.Type == jobType {
			n--
		}
	}
	return n, ""
}

// expired yields the available jobs whose deadline has come.
func (t *tx) expired(now time.Time) iter.Seq[*job] {
	return func(yield func(*job) bool) {
		for k, seq := range t.scan(wakeKey(waits), nil) {
			if timeOf(k).After(now) {
				return
			}
			j := t.load(seq)
			if j.State == ojs.StateAvailable && j.Expired(now) && !yield(j) {
				return
			}
		}
	}
}
