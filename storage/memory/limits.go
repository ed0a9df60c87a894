package memory

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// limits counts the active jobs and the starts of keys, queues and types
// (storage.Limited).
//
//   - A counter exists for each key of a stored job that is available, active or has
//     started not long ago, and for each limit with a setting or a block.
//   - A lane is a counter with bounds. A key has one for each RateLimit of its available
//     jobs; a queue or type has one. A bucket has jobs of one lane, and a section knows
//     the lanes of its queue and type: these are the nodes of the lanes.
//   - counter.Active is the number of active jobs: place adds a job and displace takes it
//     away.
//   - A closed lane shuts its nodes. A lane without nodes is open, and so is one whose
//     jobs do not wait (ojs.OnLimitDrop).
//   - judge closes and opens a lane. It runs when a job of the limit starts or ends, when
//     the lane gets its first job, after a setting or a block, and when the time in
//     opening has come. So a claim costs the same however many lanes are closed.
//   - judge goes by the time of the latest claim or setting. If that is too early, the
//     lane is in opening, and if it is too late, the lane may be open: so a claim judges
//     the lanes of each job that it takes.
//
// Jobs without a limit meet none of this but two comparisons (job.counts).
type limits struct {
	byName  map[storage.LimitName]*counter
	opening scheduler.Heap[*lane] // closed lanes that open with time
	untold  []*lane               // of keys, that have closed, until a claim tells of them
	closed  int                   // lanes
	now     time.Time             // of the latest claim or setting
	ended   int64                 // no setting of a closed lane had ended later than that
	told    time.Time             // the latest storage.Notice.Opens
	sweep   int                   // the number of counters at which to drop idle ones
}

const firstSweep = 64

// counter counts what has started of a limit.
type counter struct {
	storage.LimitName
	rule.Limit
	starts []int64       // in order; rule.Limit.Started numbers them from 1
	last   ojs.RateLimit // of a key: the bounds of the job that started last
	lanes  []*lane
}

// lane is a limit with the bounds of some jobs.
type lane struct {
	of     *counter
	own    ojs.RateLimit // the limit of its jobs; that of a queue or type: none
	nodes  []*node       // not empty buckets of a key; sections of a queue or type
	n      int           // available jobs in the buckets
	closed bool
	untold bool // it is in limits.untold
	opens  scheduler.Item[*lane]
}

// counts reports whether some limit counts the job.
func (j *job) counts() bool { return j.limit != nil || j.kind.section.lanes != nil }

// used reports whether the lane has buckets or sections.
func (l *lane) used() bool { return len(l.nodes) > 0 }

// counter finds the counter of a limit, or makes it.
func (x *limits) counter(name storage.LimitName) *counter {
	return orMake(x.byName, name, func() *counter {
		if len(x.byName) >= x.sweep {
			ns := x.now.UnixNano()
			maps.DeleteFunc(x.byName, func(_ storage.LimitName, c *counter) bool { return c.idle(ns) })
			x.sweep = max(firstSweep, 2*len(x.byName))
		}
		return newCounter(name)
	})
}

func newCounter(name storage.LimitName) *counter {
	return &counter{LimitName: name, Limit: rule.Limit{Until: rule.None, Blocked: rule.None}}
}

// lane finds the lane of a job's limit, or makes it.
func (x *limits) lane(own *ojs.RateLimit) *lane {
	c := x.counter(storage.LimitName{Kind: storage.LimitKey, Name: own.Key})
	for _, l := range c.lanes {
		if l.own == *own {
			return l
		}
	}
	c.Remember(own)
	return c.add(*own)
}

// add gives a counter a lane.
func (c *counter) add(own ojs.RateLimit) *lane {
	l := &lane{of: c, own: own}
	l.opens.Value = l
	c.lanes = append(c.lanes, l)
	return l
}

// attach gives a lane a node.
func (r *ready) attach(l *lane, n *node) {
	if l.closed {
		n.close(1)
	}
	if l.nodes = append(l.nodes, n); len(l.nodes) == 1 {
		r.judge(l)
	}
}

// detach takes a node out of a lane: a bucket that has become empty, or a section that is
// forgotten.
func (r *ready) detach(l *lane, n *node) {
	if l.closed {
		n.close(-1)
	}
	i, c := slices.Index(l.nodes, n), l.of
	if l.nodes = slices.Delete(l.nodes, i, i+1); l.used() {
		return
	}
	if r.shut(l, false); c.Kind == storage.LimitKey && len(c.lanes) > 1 {
		c.lanes = slices.DeleteFunc(c.lanes, func(other *lane) bool { return other == l })
	}
}

// bind gives a section the lane of a limit of its queue or type.
func (r *ready) bind(x *section, l *lane) {
	x.lanes = append(x.lanes, l)
	r.attach(l, &x.node)
}

// each calls f with the counters of a job.
func (x *limits) each(j *job, f func(*counter)) {
	for _, l := range j.kind.section.lanes {
		f(l.of)
	}
	if l := j.limit; l != nil {
		f(x.counter(storage.LimitName{Kind: storage.LimitKey, Name: l.Key}))
	}
}

// active counts a job that has become active, or is so no more. It reports whether other
// jobs may have waited for that.
func (r *ready) active(j *job, by int) (awaited bool) {
	r.limits.each(j, func(c *counter) {
		c.Active += by
		awaited = r.judgeAll(c) || awaited
	})
	return awaited
}

// started counts the start of a job.
func (x *limits) started(j *job, now time.Time) {
	at := now.UnixNano()
	x.each(j, func(c *counter) {
		if c.Kind == storage.LimitKey {
			c.last = *j.limit
		}
		i, _ := slices.BinarySearch(c.starts, at)
		starts := slices.Insert(c.starts, i, at)
		if keep := int(min(c.Most, math.MaxInt32)) + spareStarts; len(starts) > 2*keep {
			starts = append(starts[:0], starts[len(starts)-keep:]...)
		}
		c.keep(starts)
	})
}

// spareStarts is how many starts a counter keeps besides those that count: undone claims
// take later ones back.
const spareStarts = 64

// takeBack forgets the start of a job whose claim is undone.
func (x *limits) takeBack(j *job, started time.Time) {
	at := started.UnixNano()
	x.each(j, func(c *counter) {
		if i, found := slices.BinarySearch(c.starts, at); found {
			c.keep(slices.Delete(c.starts, i, i+1))
		}
	})
}

// keep has the counter know these starts and no others.
func (c *counter) keep(starts []int64) {
	c.starts, c.Started = starts, int64(len(starts))
	if len(starts) > 0 {
		c.LastStart = starts[len(starts)-1]
	}
}

// start is a rule.Starts.
func (c *counter) start(n int64) (at int64, known bool, err error) { return c.starts[n-1], true, nil }

// openDue opens the lanes whose time has come.
func (r *ready) openDue(now time.Time) {
	x := &r.limits
	x.now = now
	if now.UnixNano() < x.ended { // the clock has gone back
		x.ended = rule.None
		for _, c := range x.byName {
			r.judgeAll(c)
		}
	}
	for it, due := x.opening.PopDue(now); due; it, due = x.opening.PopDue(now) {
		r.judge(it.Value)
	}
}

// judgeAll judges the lanes of a counter that have jobs. It reports whether one was
// closed.
func (r *ready) judgeAll(c *counter) (closed bool) {
	for _, l := range c.lanes {
		if closed = closed || l.closed; l.used() {
			r.judge(l)
		}
	}
	return closed
}

// judge closes or opens a lane. It returns when time alone opens it (rule.None: never),
// and whether a job of it may start.
func (r *ready) judge(l *lane) (at int64, open bool) {
	r.looked++
	x, c, now := &r.limits, l.of, r.limits.now.UnixNano()
	at, open, _ = c.Open(&l.own, now, c.start)
	closed := !open && rule.Waits(&l.own)
	if r.shut(l, closed); closed && at != rule.None {
		x.opening.Push(&l.opens, time.Unix(0, at))
	} else {
		x.opening.Remove(&l.opens)
	}
	if closed && c.Over(now) {
		x.ended = max(x.ended, c.Until)
	}
	return at, open
}

// shut sets whether a lane is closed.
func (r *ready) shut(l *lane, closed bool) {
	if closed == l.closed {
		return
	}
	x, by := &r.limits, int32(1)
	if l.closed = closed; !closed {
		by = -1
		x.opening.Remove(&l.opens)
	} else if l.of.Kind == storage.LimitKey && !l.untold {
		l.untold = true
		x.untold = append(x.untold, l)
	}
	x.closed += int(by)
	for _, n := range l.nodes {
		n.close(by)
	}
}

// idle reports whether the counter has nothing that a new one would not have.
func (c *counter) idle(now int64) bool {
	set := c.InForce(now) != nil || c.Blocked > now
	return !set && c.Active == 0 && !slices.ContainsFunc(c.lanes, (*lane).used) &&
		(c.Started == 0 || c.LastStart <= now-c.Window)
}
