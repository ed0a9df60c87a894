package keyed

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Limits (storage.Limited). rows.Counter has the rules.
//
//   - The table limit has the counter of a key that jobs have, and that of a queue or a
//     type that something was set for. start has the starts of a counter, by number.
//   - key has the available jobs of a key. The active ones are counted by their counter,
//     and those of a queue or a type by the table count.
//   - closed has the bounds of a key that claims have told of (Limited.Closed).
//
// A claim judges each limited job that it meets, and the bounds of a key once.

// limit is a counter and how it is stored.
type limit struct {
	rows.Counter
	available int // jobs of the key
}

// kinds are the bytes of the kinds of limits in keys.
var kinds = map[storage.LimitKind]byte{storage.LimitKey: 1, storage.LimitQueue: 2, storage.LimitType: 3}

func limitKey(name storage.LimitName) key {
	return newKey(limitTable).byte(kinds[name.Kind]).text(name.Name)
}

func startKey(c *limit, n int64) key {
	return newKey(startTable).byte(kinds[c.Kind]).name(c.Name).number(n)
}

func closedKey(name, bounds string) key { return newKey(closedTable).name(name).name(bounds) }

// limitOf is the key of a job's limit, "" if it has none.
func limitOf(r *storage.Record) string {
	if r.RateLimit == nil {
		return ""
	}
	return r.RateLimit.Key
}

// limit returns what is known of a limit.
func (t *tx) limit(name storage.LimitName) *limit {
	c := &limit{Counter: rows.Counter{LimitName: name, Until: rows.None, Blocked: rows.None}}
	v := t.get(limitKey(name))
	if v == nil {
		return c
	}
	c.Stored = true
	next := func() int64 {
		n, size := binary.Varint(v)
		v = v[size:]
		return n
	}
	c.Active, c.available = int(next()), int(next())
	c.Started, c.LastStart, c.Window, c.Most = next(), next(), next(), next()
	c.Until, c.Blocked = next(), next()
	c.Last, v = cut(v)
	if setting, _ := cut(v); setting != "" {
		b := must(rows.ReadBounds(setting))
		c.Setting = &b
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
	v := make(key, 0, 96)
	for _, n := range []int64{int64(c.Active), int64(c.available), c.Started, c.LastStart, c.Window, c.Most,
		c.Until, c.Blocked} {
		v = binary.AppendVarint(v, n)
	}
	v = v.name(c.Last).name(must(rows.Bounds(c.Setting)))
	t.o.set(limitKey(c.LimitName), v)
}

// startOf looks up a start of a counter.
func (t *tx) startOf(c *limit) func(n int64) (int64, bool, error) {
	return func(n int64) (int64, bool, error) {
		v := t.get(startKey(c, n))
		return number(v), v != nil, nil
	}
}

// ofKey changes the counter of a key.
func (t *tx) ofKey(name string, f func(c *limit)) {
	if name != "" {
		c := t.limit(storage.LimitName{Kind: storage.LimitKey, Name: name})
		f(c)
		t.keep(c)
	}
}

// countLimits adds a job to the counter of its key, or with -1 takes it away.
func (t *tx) countLimits(j *job, by int) {
	switch j.State {
	case ojs.StateAvailable:
		t.ofKey(limitOf(&j.Record), func(c *limit) { c.available += by })
	case ojs.StateActive:
		t.ofKey(limitOf(&j.Record), func(c *limit) { c.Active += by })
	}
}

// recountLimits counts a job that has changed.
func (t *tx) recountLimits(before, j *job) {
	if before.State == j.State && limitOf(&before.Record) == limitOf(&j.Record) {
		return
	}
	t.countLimits(before, -1)
	t.countLimits(j, 1)
	if before.State == ojs.StateActive && !t.notice.Available {
		t.notice.Available = limitOf(&before.Record) != "" || len(t.counters(&before.Record)) > 0
	}
}

// counters returns the limits that count a job.
func (t *tx) counters(r *storage.Record) []storage.LimitName {
	return t.limitNames(r.Queue, r.Type, limitOf(r))
}

func (t *tx) limitNames(queue, jobType, key string) (names []storage.LimitName) {
	both := [2]storage.LimitName{
		{Kind: storage.LimitQueue, Name: queue}, {Kind: storage.LimitType, Name: jobType},
	}
	if t.number(meta(setName)) > 0 {
		for _, name := range both {
			if t.get(limitKey(name)) != nil {
				names = append(names, name)
			}
		}
	}
	if key != "" {
		names = append(names, storage.LimitName{Kind: storage.LimitKey, Name: key})
	}
	return names
}

// started counts the start of a job that a claim takes.
func (t *tx) started(now time.Time, r *storage.Record) {
	for _, name := range t.counters(r) {
		c := t.limit(name)
		if name.Kind == storage.LimitKey {
			c.Remember(r.RateLimit)
			c.Last = must(rows.Bounds(r.RateLimit))
			if k := closedKey(name.Name, c.Last); t.get(k) != nil {
				t.delete(k)
			}
		}
		t.start(c, now.UnixNano())
		t.keep(c)
	}
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
		if c.Active == 0 && c.available == 0 && c.InForce(now) == nil && !blocked &&
			c.LastStart < now-maxIdle-c.Window {
			idle = append(idle, c)
		}
	}
	t.put(at, last) // at the end it begins anew
	for _, c := range idle {
		t.delete(limitKey(c.LimitName))
		starts := newKey(startTable).byte(kinds[c.Kind]).name(c.Name)
		closed := newKey(closedTable).name(c.Name)
		for _, prefix := range []key{starts, closed} {
			for rest := range t.scan(prefix, nil) {
				t.delete(append(slices.Clone(prefix), rest...))
			}
		}
	}
}

// changeLimit changes what was set of a limit.
func (s *Storage) changeLimit(ctx context.Context, name storage.LimitName, bounds ojs.RateLimit,
	f func(c *limit)) error {
	if err := storage.CheckLimit(name, bounds); err != nil {
		return err
	}
	_, err := change(ctx, s, func(t *tx) struct{} {
		c := t.limit(name)
		if !c.Stored && name.Kind != storage.LimitKey {
			t.add(meta(setName), 1)
		}
		f(c)
		t.keep(c)
		t.notice.Available = true
		return struct{}{}
	})
	return err
}

// SetLimit implements storage.LimitStore.
func (s *Storage) SetLimit(ctx context.Context, now time.Time, name storage.LimitName, bounds ojs.RateLimit,
	until time.Time) error {
	return s.changeLimit(ctx, name, bounds, func(c *limit) { c.Set(bounds, until) })
}

// BlockLimit implements storage.LimitStore.
func (s *Storage) BlockLimit(ctx context.Context, now time.Time, name storage.LimitName,
	until time.Time) error {
	return s.changeLimit(ctx, name, ojs.RateLimit{}, func(c *limit) { c.Block(until) })
}

// GetLimit implements storage.LimitStore.
func (s *Storage) GetLimit(ctx context.Context, now time.Time,
	name storage.LimitName) (storage.Limit, error) {
	if err := storage.CheckLimit(name, ojs.RateLimit{}); err != nil {
		return storage.Limit{}, err
	}
	return view(ctx, s, func(t *tx) storage.Limit {
		state, there := t.limitState(now, name)
		if !there {
			refuse(fmt.Errorf("%w: limit of %s %q", ojs.ErrNotFound, name.Kind, name.Name))
		}
		return state
	})
}

// ListLimits implements storage.LimitStore.
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
			state, there := t.limitState(now, storage.LimitName{Kind: kind, Name: string(name)})
			set := state.Setting != nil || !state.BlockedUntil.IsZero()
			if there && (set || kind == storage.LimitKey) {
				list = append(list, state)
			}
		}
		return list
	})
}

// limitState is the state of a limit. It reports false if there is nothing to tell.
func (t *tx) limitState(now time.Time, name storage.LimitName) (storage.Limit, bool) {
	c := t.limit(name)
	if !c.Stored && name.Kind != storage.LimitKey {
		c.Active = t.active(name)
	}
	waiting, bounds := t.waitingIn(now, name)
	if c.Last != "" {
		bounds = c.Last
	}
	var own ojs.RateLimit
	if bounds != "" {
		own = must(rows.ReadBounds(bounds))
	}
	state, there, err := c.State(own, waiting, now.UnixNano(), t.startOf(c))
	check(err)
	if per := int64(state.Bounds.Rate.Per); state.Bounds.Rate.Limit > 0 {
		for n := c.Started; n > 0; n-- {
			if at := t.get(startKey(c, n)); at == nil || number(at) <= now.UnixNano()-per {
				break
			}
			state.Starts++
		}
	}
	return state, there
}

// waitingIn counts the available jobs of a limit whose deadline has not come, and returns
// the bounds of one of a key.
func (t *tx) waitingIn(now time.Time, name storage.LimitName) (n int, bounds string) {
	if name.Kind == storage.LimitKey {
		for _, v := range t.scan(newKey(keyTable).name(name.Name), nil) {
			if at := timeOf(v); at.IsZero() || now.Before(at) {
				n++
				bounds = string(v[timeLen:])
			}
		}
		return n, bounds
	}
	queues := []string{name.Name}
	if name.Kind == storage.LimitType {
		queues = t.queues()
	}
	for _, q := range queues {
		for _, v := range t.scan(newKey(readyTable).name(q), nil) {
			r := readReady(v)
			if !r.expired(now) && (name.Kind == storage.LimitQueue || string(r.jobType) == name.Name) {
				n++
			}
		}
	}
	return n, ""
}

// verdict is what limits say of a job that a claim meets.
type verdict struct {
	open   bool
	at     int64       // when time alone opens what holds the job back; math.MaxInt64: never
	action ojs.OnLimit // what happens to the job; "": it waits
}

// judge asks the limits of an available job. Its OnLimit acts only if no other limit
// holds it back.
func (t *tx) judge(now time.Time, r *readyJob) verdict {
	waits := verdict{open: true, at: math.MinInt64}
	acts := waits
	for _, name := range t.limitNames(string(r.queue), string(r.jobType), string(r.limited)) {
		own, v := new(ojs.RateLimit), &waits
		if name.Kind == storage.LimitKey {
			own = r.own()
			if own.OnLimit == ojs.OnLimitDrop || own.OnLimit == ojs.OnLimitReschedule {
				v, acts.action = &acts, own.OnLimit
			}
		}
		c := t.limit(name)
		at, open, err := c.Open(own, now.UnixNano(), t.startOf(c))
		check(err)
		if open {
			continue
		}
		if at == rows.None {
			at = math.MaxInt64
		}
		v.open, v.at = false, max(v.at, at)
	}
	if !waits.open {
		return waits
	}
	return acts
}
