package memory

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
)

// limits counts the active jobs and the starts of keys, queues and types
// (storage.Limited).
//
//   - A counter exists for each key of a stored job that is available, active or has
//     started not long ago, and for each limit with a setting or a block.
//   - A lane is a counter with bounds. A key has one for each RateLimit of its available
//     jobs; a queue or type has one. A bucket has jobs of one lane, and a group knows the
//     lanes of its queue and type.
//   - counter.active is the number of active jobs: place adds a job and displace takes it
//     away.
//   - A closed lane keeps its buckets, or its groups, out of the order of claims. A lane
//     that holds back may be open still: claims look at the lanes of each job that they
//     take. A lane that is closed holds back, unless its counter is in dirty, or the lane
//     is in opening and its time has come. settleLimits looks at these before each job. A
//     lane without jobs is open.
//   - So a claim costs the same however many lanes are closed.
//
// Jobs without a limit meet none of this but two comparisons (job.counts).
type limits struct {
	byName  map[storage.LimitName]*counter
	opening scheduler.Heap[*lane] // closed lanes that open with time
	dirty   []*counter            // whose lanes may be other than they were
	holding int                   // closed lanes
	told    time.Time             // the latest storage.Notice.Opens
	sweep   int                   // the number of counters at which to drop idle ones
	claim   *storage.Limited      // of the claim that is under way; nil: none is
}

const firstSweep = 64

// counter counts what has started of a limit.
type counter struct {
	storage.LimitName
	active  int
	starts  []int64        // in order
	window  int64          // how long a start counts at most
	most    int            // starts that count at most
	setting *ojs.RateLimit // nil: none
	until   instant        // of the setting, if there is one; never: it does not end
	blocked instant        // never: it is not
	last    ojs.RateLimit  // of a key: the bounds of the job that started last
	lanes   []*lane
	dirty   bool
}

// lane is a limit with the bounds of some jobs.
type lane struct {
	of      *counter
	own     ojs.RateLimit // the limit of its jobs; that of a queue or type: none
	buckets []*bucket     // of a key
	groups  []*group      // of a queue or type
	closed  bool
	said    bool // a claim has said so (storage.Limited.Closed); no more once it opens
	opens   scheduler.Item[*lane]
}

// counts reports whether some limit counts the job.
func (j *job) counts() bool {
	return j.kind.group.lanes != nil || j.limit != nil
}

// held reports whether the limit of its queue or type holds the group back.
func (g *group) held() bool {
	for _, l := range g.lanes {
		if l.closed {
			return true
		}
	}
	return false
}

// counter finds the counter of a limit, or makes it.
func (x *limits) counter(name storage.LimitName) *counter {
	c := x.byName[name]
	if c == nil {
		c = &counter{LimitName: name, blocked: never}
		x.byName[name] = c
	}
	return c
}

// lane finds the lane of a job's limit, or makes it.
func (x *limits) lane(own *ojs.RateLimit) *lane {
	c := x.counter(storage.LimitName{Kind: storage.LimitKey, Name: own.Key})
	for _, l := range c.lanes {
		if l.own == *own {
			return l
		}
	}
	l := &lane{of: c, own: *own}
	l.opens.Value = l
	c.lanes = append(c.lanes, l)
	c.remembers(own)
	return l
}

// remembers has the counter keep the starts that bounds count.
func (c *counter) remembers(b *ojs.RateLimit) {
	c.window, c.most = max(c.window, int64(b.Rate.Per)), max(c.most, b.Rate.Limit)
	if b.Throttle.Limit > 0 {
		c.window = max(c.window, storage.Gap(b.Throttle))
	}
}

// join enters a new bucket.
func (x *limits) join(b *bucket) {
	l := b.lane
	b.laneAt = len(l.buckets)
	l.buckets = append(l.buckets, b)
}

// leave takes out a bucket that has become empty.
func (x *limits) leave(b *bucket) {
	l := b.lane
	last := len(l.buckets) - 1
	l.buckets[b.laneAt] = l.buckets[last]
	l.buckets[b.laneAt].laneAt = b.laneAt
	l.buckets[last] = nil
	if l.buckets = l.buckets[:last]; last > 0 {
		return
	}
	x.shut(l, false)
	if c := l.of; len(c.lanes) > 1 {
		c.lanes = slices.DeleteFunc(c.lanes, func(other *lane) bool { return other == l })
	}
}

// shut sets whether a lane is closed. The caller moves its jobs.
func (x *limits) shut(l *lane, closed bool) {
	if closed == l.closed {
		return
	}
	if l.closed = closed; closed {
		x.holding++
		return
	}
	x.holding--
	x.opening.Remove(&l.opens)
	l.said = false
}

// bind gives a group the lanes of its queue and type.
func (x *limits) bind(g *group) {
	name, _, _ := strings.Cut(g.jobType, "@")
	ids := [...]storage.LimitName{
		{Kind: storage.LimitQueue, Name: g.queue}, {Kind: storage.LimitType, Name: name},
	}
	for _, id := range ids {
		if c := x.byName[id]; c != nil {
			l := c.lanes[0]
			g.lanes = append(g.lanes, l)
			l.groups = append(l.groups, g)
		}
	}
}

// unbind takes out a group that is forgotten.
func (x *limits) unbind(g *group) {
	for _, l := range g.lanes {
		l.groups = slices.DeleteFunc(l.groups, func(other *group) bool { return other == g })
		if len(l.groups) == 0 {
			x.shut(l, false)
		}
	}
}

// touch has the lanes of a counter looked at before the next job is claimed.
func (x *limits) touch(c *counter) {
	if !c.dirty {
		c.dirty = true
		x.dirty = append(x.dirty, c)
	}
}

// each calls f with the counters of a job.
func (x *limits) each(j *job, f func(*counter)) {
	for _, l := range j.kind.group.lanes {
		f(l.of)
	}
	if l := j.limit; l != nil {
		f(x.counter(storage.LimitName{Kind: storage.LimitKey, Name: l.Key}))
	}
}

// active counts a job that has become active, or is so no more. It reports whether other
// jobs may wait for that.
func (x *limits) active(j *job, by int) (awaited bool) {
	x.each(j, func(c *counter) {
		c.active += by
		x.touch(c)
		for _, l := range c.lanes {
			if l.closed {
				awaited = true
			}
		}
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
		i := len(c.starts)
		for i > 0 && c.starts[i-1] > at {
			i--
		}
		c.starts = slices.Insert(c.starts, i, at)
		if keep := min(c.most, math.MaxInt32) + spareStarts; len(c.starts) > 2*keep {
			c.starts = append(c.starts[:0], c.starts[len(c.starts)-keep:]...)
		}
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
			c.starts = slices.Delete(c.starts, i, i+1)
		}
	})
}

// settingAt is the setting of the counter that has an effect.
func (c *counter) settingAt(now int64) *ojs.RateLimit {
	if c.until != never && now >= int64(c.until) {
		return nil
	}
	return c.setting
}

// bounds are those of a lane that are in force.
func (l *lane) bounds(now int64) ojs.RateLimit { return storage.Override(l.own, l.of.settingAt(now)) }

// closes tells which bound closes a lane.
func (l *lane) closes(now int64) storage.ClosedKey {
	c, b := l.of, l.bounds(now)
	last := int64(never)
	if n := len(c.starts); n > 0 {
		last = c.starts[n-1]
	}
	return storage.Closes(c.Name, &b, c.active, last, int64(c.blocked), now)
}

// open reports whether the lane lets a job start. If not, at is when time alone does; 0:
// never.
func (l *lane) open(now int64) (at int64, open bool) {
	c, b := l.of, l.bounds(now)
	at, waits := storage.Opens(&b, c.active, c.starts, now)
	if !waits {
		if at = max(at, int64(c.blocked)); at <= now {
			return 0, true
		}
	}
	if c.setting != nil && int64(c.until) > now && (at == 0 || int64(c.until) < at) {
		at = int64(max(c.until, c.blocked)) // the lane has other bounds then
	}
	return at, false
}

// refreshLane has the buckets or groups of a lane follow it.
func (r *ready) refreshLane(l *lane) {
	for _, b := range l.buckets {
		r.refresh(b)
	}
	for _, g := range l.groups {
		r.reindex(g)
	}
}

// refresh closes or opens a bucket, if it is not so.
func (r *ready) refresh(b *bucket) {
	if b.closed == b.lane.closed {
		return
	}
	r.looked++
	g := b.group
	if b.closed = b.lane.closed; b.closed {
		g.buckets.remove(b.at)
	} else {
		g.buckets.push(b)
	}
	r.reindex(g)
}

// settleLimits looks at the lanes that may be other than they were.
func (r *ready) settleLimits(now time.Time) {
	x := &r.limits
	for it, due := x.opening.PopDue(now); due; it, due = x.opening.PopDue(now) {
		r.look(it.Value, now)
	}
	for _, c := range x.dirty {
		c.dirty = false
		for _, l := range c.lanes {
			r.look(l, now)
		}
	}
	clear(x.dirty)
	x.dirty = x.dirty[:0]
	if len(x.byName) >= x.sweep {
		for name, c := range x.byName {
			if c.idle(now.UnixNano()) {
				delete(x.byName, name)
			}
		}
		x.sweep = max(firstSweep, 2*len(x.byName))
	}
}

// waits reports whether the lane's jobs wait when they may not start.
func (l *lane) waits() bool {
	return l.own.OnLimit != ojs.OnLimitDrop && l.own.OnLimit != ojs.OnLimitReschedule
}

// look closes or opens a lane.
func (r *ready) look(l *lane, now time.Time) {
	if len(l.buckets) == 0 && len(l.groups) == 0 {
		return
	}
	x := &r.limits
	at, open := l.open(now.UnixNano())
	if closed := !open && l.waits(); closed != l.closed {
		x.shut(l, closed)
		r.refreshLane(l)
	}
	if !l.closed {
		return
	}
	if !l.said && x.claim != nil && l.of.Kind == storage.LimitKey {
		l.said = true
		x.claim.Closed = append(x.claim.Closed, l.closes(now.UnixNano()))
	}
	if at != 0 {
		x.opening.Push(&l.opens, time.Unix(0, at))
	} else {
		x.opening.Remove(&l.opens)
	}
}

// idle reports whether the counter has nothing that a new one would not have.
func (c *counter) idle(now int64) bool {
	if c.active > 0 || c.settingAt(now) != nil || int64(c.blocked) > now {
		return false
	}
	for _, l := range c.lanes {
		if len(l.buckets) > 0 || len(l.groups) > 0 {
			return false
		}
	}
	return len(c.starts) == 0 || c.starts[len(c.starts)-1] <= now-c.window
}
