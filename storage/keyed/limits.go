package keyed

import (
	"cmp"
	"context"
	"fmt"
	"math"
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
//     the table count. So Active of a queue or a type is valid only right after opensIn
//     or limitState, which read it.
//   - A claim looks at no job of a queue or type whose limit is closed.

// limit is a counter and how it is stored.
type limit struct {
	rows.Counter
	opens   int64 // when time alone may open lanes of the key; rule.None: never
	many    bool  // its lanes are in the table lane
	inTable int   // how many
	only    *lane // if they are not: the one that has jobs, or nil

	lanes    map[string]*lane // that the call knows, by id
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

// key returns the limit of a key.
func (t *tx) key(name string) *limit {
	return t.limit(storage.LimitName{Kind: storage.LimitKey, Name: name})
}

// limit returns a limit, the same one throughout a call unless forget drops it. The call
// changes it in memory (keepLimits). Active of a queue or a type is valid only after
// opensIn or limitState.
func (t *tx) limit(name storage.LimitName) *limit {
	x := &t.lanes
	if c := x.known[name]; c != nil {
		return c
	}
	if x.known == nil {
		x.known = make(map[storage.LimitName]*limit)
	}
	c := t.storedLimit(name)
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

// storedLimit returns what is stored of a limit.
func (t *tx) storedLimit(name storage.LimitName) *limit {
	c := &limit{Counter: *rows.NewCounter(name), opens: rule.None, lanes: make(map[string]*lane, 1)}
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
		c.only = readLane(r.B)
		c.only.stored = nil
		c.lanes[c.only.id()] = c.only
	}
	return c
}

// count counts the jobs in a state of a queue or a type.
func (t *tx) count(state byte, of storage.LimitName) (n int) {
	prefix := newKey(countTable).byte(state)
	if of.Kind == storage.LimitQueue {
		prefix = prefix.name(of.Name)
	}
	for rest, count := range t.scan(prefix, nil) {
		if of.Kind == storage.LimitType {
			_, rest = cut(rest)
		}
		if jobType, _ := cut(rest); of.Kind == storage.LimitQueue || jobType == of.Name {
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
		v = v.int(n)
	}
	v = v.string(c.Last).string(string(key{}.appendBounds(c.Setting)))
	if c.only != nil {
		v = c.only.encode(v)
	}
	t.o.set(limitKey(c.LimitName), v)
	c.Stored, c.dirty = true, false
}

// startOf looks up a start of a counter.
func (t *tx) startOf(c *limit) rule.Starts {
	return func(n int64) (int64, bool, error) {
		v := t.get(startKey(c, n))
		return number(v), v != nil, nil
	}
}

// set returns the limits of a queue and a type that something was set for.
func (t *tx) set(queue, jobType string) (limits []*limit) {
	if t.number(meta(setName)) == 0 {
		return nil
	}
	for _, name := range [2]storage.LimitName{
		{Kind: storage.LimitQueue, Name: queue}, {Kind: storage.LimitType, Name: jobType},
	} {
		if t.get(limitKey(name)) != nil {
			limits = append(limits, t.limit(name))
		}
	}
	return limits
}

// opensIn reports whether the limits of a queue and type let a job start. If not, at is
// when time alone opens all of them; math.MaxInt64: never.
func (t *tx) opensIn(limits []*limit) (at int64, open bool) {
	at, open = math.MinInt64, true
	for _, c := range limits {
		c.Active = t.count(rows.Active, c.LimitName)
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

// start counts a start. Starts are in the order of their times, though clocks differ.
func (t *tx) start(c *limit, at int64) {
	c.dirty = true
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
	limits := t.set(j.Queue, j.Type)
	if name := limitOf(&j.Record); name != "" {
		limits = append(limits, t.key(name))
	}
	for _, c := range limits {
		t.unstart(c, rows.Nanos(j.StartedAt))
	}
}

// unstart takes back a start at a time, if there is one.
func (t *tx) unstart(c *limit, at int64) {
	n := c.Started
	for start := t.get(startKey(c, n)); start == nil || number(start) != at; start = t.get(startKey(c, n)) {
		if start == nil || number(start) < at {
			return
		}
		n--
	}
	for ; n < c.Started; n++ {
		t.put(startKey(c, n), t.get(startKey(c, n+1)))
	}
	t.delete(startKey(c, n))
	c.Started--
	c.dirty = true
	if last := t.get(startKey(c, c.Started)); last != nil {
		c.LastStart = number(last)
	}
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
	n, last := 0, key{}
	for name := range t.scan(all, append(append(key{}, t.get(at)...), 0)) {
		if n == 2 {
			break
		}
		n++
		last = append(key{}, name...)
		c := t.storedLimit(storage.LimitName{Kind: storage.LimitKey, Name: string(name)})
		blocked := c.Blocked != rows.None && c.Blocked > now
		if c.Active != 0 || c.only != nil || c.many || c.InForce(now) != nil || blocked ||
			c.LastStart >= now-maxIdle-c.Window {
			continue
		}
		t.delete(limitKey(c.LimitName))
		delete(t.lanes.known, c.LimitName)
		t.deleteAll(newKey(startTable).byte(kinds[c.Kind]).name(c.Name), 0)
		t.deleteAll(closedKey(c.Name, ""), 0)
	}
	if n < 2 { // it has come to the end, and begins anew
		last = key{}
	}
	t.put(at, last)
}

// changeLimit changes what was set of a limit.
func (s *Storage) changeLimit(ctx context.Context, now time.Time, name storage.LimitName,
	bounds ojs.RateLimit, f func(c *limit)) error {
	if err := storage.CheckLimit(name, bounds); err != nil {
		return err
	}
	return s.do(ctx, func(t *tx) {
		t.at(now)
		t.notice.Available = true
		t.setLimit(name, f)
	})
}

// setLimit changes what was set of a limit, and counts the queues and types with such.
func (t *tx) setLimit(name storage.LimitName, f func(c *limit)) {
	c := t.limit(name)
	if name.Kind == storage.LimitKey {
		c.judge = true
	} else if !c.Stored {
		t.add(meta(setName), 1)
	}
	f(c)
	c.Stored, c.dirty = true, true
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
	c := t.limit(name)
	waiting, bounds := 0, ""
	if name.Kind == storage.LimitKey {
		waiting, bounds = t.waiting(now, c)
	} else {
		c.Active = t.count(rows.Active, name)
		waiting = t.count(rows.Available, name) - len(t.expired(now, c))
	}
	own := readBounds(cmp.Or(c.Last, bounds))
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

// covers reports whether a limit is that of a job's key, queue or type.
func (c *limit) covers(r *storage.Record) bool {
	switch c.Kind {
	case storage.LimitQueue:
		return r.Queue == c.Name
	case storage.LimitType:
		return r.Type == c.Name
	default:
		return limitOf(r) == c.Name
	}
}

// expired returns the available jobs of a limit whose deadline has come.
func (t *tx) expired(now time.Time, c *limit) (list []*job) {
	for k, seq := range t.scan(wakeKey(waits), nil) {
		if timeOf(k).After(now) {
			break
		}
		j := t.load(seq)
		if j.State == ojs.StateAvailable && j.Expired(now) && c.covers(&j.Record) {
			list = append(list, j)
		}
	}
	return list
}
