package rows

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// Limits that a storage counts (storage.Limited), as far as databases have them in
// common.
//
//   - The bounds of a job are its RateLimit as text. The text names the lane of the jobs
//     with that key and those bounds.
//   - A handle of the database has the lanes that it has found closed in a ClosedLanes.
//     Claims skip their jobs (Lane). A lane that may have opened is looked at again:
//     because of the time, or because the database says that its key has changed.

// Bounds returns the text of a limit, "" if there is none.
func Bounds(l *ojs.RateLimit) (string, error) {
	if l == nil {
		return "", nil
	}
	b, err := json.Marshal((*rateLimit)(l))
	return string(b), err
}

// ReadBounds returns the limit of a text.
func ReadBounds(text string) (ojs.RateLimit, error) {
	var l rateLimit
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return ojs.RateLimit{}, fmt.Errorf("bounds: %w", err)
	}
	return ojs.RateLimit(l), nil
}

// ClosedLanes are the lanes that a handle of a database knows to be closed.
type ClosedLanes struct {
	byName  map[string]*ClosedLane
	byKey   map[string][]*ClosedLane
	opening scheduler.Heap[*ClosedLane]
	log     []string // names of lanes that were closed or opened
	first   uint64   // the moment of log[0]
}

// ClosedLane is a lane that lets no job start.
type ClosedLane struct {
	Name  string        // its bounds, as text
	Own   ojs.RateLimit // its bounds
	opens scheduler.Item[*ClosedLane]
}

// NewClosedLanes returns an empty set of lanes.
func NewClosedLanes() *ClosedLanes {
	return &ClosedLanes{byName: make(map[string]*ClosedLane), byKey: make(map[string][]*ClosedLane)}
}

// Len returns the number of closed lanes.
func (c *ClosedLanes) Len() int { return len(c.byName) }

func (c *ClosedLanes) has(name string) bool { return c.byName[name] != nil }

// changed notes a change. Of many it forgets the older half.
func (c *ClosedLanes) changed(name string) {
	c.log = append(c.log, name)
	if n := len(c.log); n > 1024+2*len(c.byName) {
		c.first += uint64(n / 2)
		c.log = slices.Clone(c.log[n/2:])
	}
}

// now is the moment after the latest change.
func (c *ClosedLanes) now() uint64 { return c.first + uint64(len(c.log)) }

// changes returns the names of the lanes that were closed or opened since a moment. ok is
// false if c does not remember as far back.
func (c *ClosedLanes) changes(since uint64) (names []string, ok bool) {
	if since < c.first {
		return nil, false
	}
	return c.log[since-c.first:], true
}

// Close closes a lane. at is when time alone opens it; None: never. It reports whether
// the lane was open.
func (c *ClosedLanes) Close(name string, own *ojs.RateLimit, at int64) (news bool) {
	l := c.byName[name]
	if news = l == nil; news {
		l = &ClosedLane{Name: name, Own: *own}
		l.opens.Value = l
		c.byName[name] = l
		c.byKey[own.Key] = append(c.byKey[own.Key], l)
		c.changed(name)
	}
	c.opening.Remove(&l.opens)
	if at != None {
		c.opening.Push(&l.opens, Time(at))
	}
	return news
}

// Open opens a closed lane.
func (c *ClosedLanes) Open(l *ClosedLane) {
	c.opening.Remove(&l.opens)
	delete(c.byName, l.Name)
	c.changed(l.Name)
	others := slices.DeleteFunc(c.byKey[l.Own.Key], func(other *ClosedLane) bool { return other == l })
	if c.byKey[l.Own.Key] = others; len(others) == 0 {
		delete(c.byKey, l.Own.Key)
	}
}

// OfKey returns the closed lanes of a key.
func (c *ClosedLanes) OfKey(key string) []*ClosedLane {
	return slices.Clone(c.byKey[key])
}

// Some returns up to n closed lanes, others each time.
func (c *ClosedLanes) Some(n int) (list []*ClosedLane) {
	for _, l := range c.byName {
		if len(list) == n {
			break
		}
		list = append(list, l)
	}
	return list
}

// Due returns a lane that time may have opened, and no more unless it is closed again.
func (c *ClosedLanes) Due(now time.Time) (l *ClosedLane, some bool) {
	it, some := c.opening.PopDue(now)
	if !some {
		return nil, false
	}
	return it.Value, true
}

// Opens returns when time opens the next lane, the zero time if none.
func (c *ClosedLanes) Opens() time.Time {
	at, _ := c.opening.Next()
	return at
}

// Counter is what a database has of a limit: who is active, what has started, and what
// has been set.
type Counter struct {
	storage.LimitName
	rule.Limit
	Stored bool   // it has a row
	Last   string // the bounds of the job of the key that started last
	Closed bool   // a handle has found it closed
}

// NewCounter returns the counter of a limit of which nothing is known.
func NewCounter(name storage.LimitName) *Counter {
	return &Counter{LimitName: name, Limit: rule.Limit{Until: None, Blocked: None}}
}

// Set gives a limit bounds until a time, or takes them away if they bound nothing.
func (c *Counter) Set(bounds ojs.RateLimit, until time.Time) { c.Limit.Set(bounds, Nanos(until)) }

// Block lets no job of a limit start before a time. A block that lasts longer stays, and
// the zero time ends a block.
func (c *Counter) Block(until time.Time) { c.Limit.Block(Nanos(until)) }

// Closes tells which bound keeps a job with bounds from starting.
func (c *Counter) Closes(own *ojs.RateLimit, now int64) storage.ClosedKey {
	return c.Limit.Closes(c.Name, own, now)
}

// State is what GetLimit tells of the counter, but for the jobs that wait. own are the
// bounds of the job of the key that started last, or of one that waits.
func (c *Counter) State(own ojs.RateLimit, waiting int, now int64,
	start func(n int64) (int64, bool, error)) (state storage.Limit, there bool, err error) {
	state = storage.Limit{LimitName: c.LimitName, Active: c.Active, Waiting: waiting}
	if set := c.InForce(now); set != nil {
		kept := *set
		state.Setting, state.Until = &kept, Time(c.Until)
	}
	if c.Blocked != None && c.Blocked > now {
		state.BlockedUntil = Time(c.Blocked)
	}
	own.Key, own.OnLimit = "", ""
	state.Bounds = storage.Override(own, state.Setting)
	at, waits, err := c.Opens(state.Bounds, now, start)
	if !state.BlockedUntil.IsZero() {
		at = max(at, c.Blocked)
	}
	if !waits && at > now {
		state.Opens = Time(at)
	}
	set := state.Setting != nil || !state.BlockedUntil.IsZero()
	return state, state.Active > 0 || state.Waiting > 0 || set, err
}
