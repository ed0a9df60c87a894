package keyed

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// Lanes (package rule, Limits): the available jobs of one key of a rate limit, queue,
// type, version and bounds.
//
//  1. One job of a lane at most, its head, is in the table ready. The others are in held.
//     The head is the first of the lane.
//  2. After each call, the lanes of each key that it has touched have a head if, and only
//     if, they were ready at the time of the call (rule.Limit.Judge).
//  3. A claim that takes a head gives the lane its next one at once, while it is ready.
//     So it meets the jobs of a lane in their order.
//  4. open has the time at which time alone may open lanes of a key. A claim judges the
//     keys whose time has come before it looks at jobs. If its clock is before the end of
//     a setting that a call has found ended, it judges all keys.
//  5. closed has the keys whose lanes have closed with jobs in them outside of a claim
//     that tells. The next claim that wants more tells of them.
//
// A key that has one lane has it in its counter, so that jobs with keys of their own cost
// no write for it. A second lane moves both to the table lane, until the key has none.

// lane is a lane that the call knows.
type lane struct {
	queue, jobType, version, bounds string

	n      int    // its jobs
	closed bool   // its jobs wait for the limit; claims have told or will
	head   string // rank of the job in ready; "": none is there

	own    ojs.RateLimit // bounds
	stored []byte        // as the table has it
}

// lanes are the limits that a call knows.
type lanes struct {
	known  map[storage.LimitName]*limit
	order  []*limit             // known, in the order in which they came
	now    time.Time            // of the call
	timed  bool                 // now is set
	closed *[]storage.ClosedKey // of the claim that tells; nil: none does
}

// at sets the time of a call that lanes may depend on.
func (t *tx) at(now time.Time) { t.lanes.now, t.lanes.timed = now, true }

// laneID is a lane's part of keys. Lanes of the same bounds are together.
func laneID(bounds, queue, jobType, version string) string {
	return string(key{}.name(bounds).name(string(key{}.string(queue).string(jobType).string(version))))
}

func laneKey(c *limit, id string) key { return append(newKey(laneTable).name(c.Name), id...) }

func (l *lane) id() string { return laneID(l.bounds, l.queue, l.jobType, l.version) }

// heldKey is the key of a job in the table held, without its rank.
func (l *lane) heldKey(c *limit) key {
	rest := key{}.string(l.version).string(c.Name).string(l.bounds)
	return newKey(heldTable).name(l.queue).name(l.jobType).name(string(rest))
}

func (l *lane) readyKey(rank string) key {
	return newKey(readyTable).name(l.queue).name(l.jobType).text(rank)
}

func (l *lane) encode(v key) key {
	v = v.uint(uint64(l.n)).bool(l.closed).string(l.head)
	return v.string(l.queue).string(l.jobType).string(l.version).string(l.bounds)
}

func readLane(v []byte) *lane {
	r := readerOf(v)
	l := &lane{n: int(r.Uint()), closed: r.byte() != 0, head: r.Text(), stored: v}
	l.queue, l.jobType, l.version, l.bounds = r.Text(), r.Text(), r.Text(), r.Text()
	l.own = readBounds(l.bounds)
	return l
}

// appendBounds appends the bounds of a limit, without its key. No limit has none.
func (k key) appendBounds(l *ojs.RateLimit) key {
	if l == nil {
		return k
	}
	for _, n := range [5]int64{int64(l.Concurrency), int64(l.Rate.Limit), int64(l.Rate.Per),
		int64(l.Throttle.Limit), int64(l.Throttle.Per)} {
		k = k.int(n)
	}
	return k.text(string(l.OnLimit))
}

func readBounds(bounds string) (l ojs.RateLimit) {
	r := readerOf([]byte(bounds))
	l.Concurrency = int(r.Int())
	l.Rate = ojs.Rate{Limit: int(r.Int()), Per: time.Duration(r.Int())}
	l.Throttle = ojs.Rate{Limit: int(r.Int()), Per: time.Duration(r.Int())}
	l.OnLimit = ojs.OnLimit(r.B)
	return l
}

// lane returns a lane of a key. It makes one if there is none.
func (t *tx) lane(c *limit, queue, jobType, version, bounds string) *lane {
	id := laneID(bounds, queue, jobType, version)
	l := c.lanes[id]
	if l == nil && c.many && !c.complete {
		if v := t.get(laneKey(c, id)); v != nil {
			l = readLane(v)
		}
	}
	if l == nil {
		l = &lane{queue: queue, jobType: jobType, version: version, bounds: bounds, own: readBounds(bounds)}
	}
	c.lanes[id] = l
	return l
}

// all returns the lanes of a key that have jobs, in the order of their bounds.
func (t *tx) all(c *limit) []*lane { return t.lanesOf(c, "") }

// group returns the lanes of a key that have jobs and some bounds.
func (t *tx) group(c *limit, bounds string) []*lane { return t.lanesOf(c, string(key{}.name(bounds))) }

// lanesOf returns the lanes of a key that have jobs and whose ids begin with a prefix, in
// the order of the ids. An id begins with the bounds of the lane (laneID).
func (t *tx) lanesOf(c *limit, prefix string) (list []*lane) {
	if c.many && !c.complete {
		for rest, v := range t.scan(laneKey(c, prefix), nil) {
			if id := prefix + string(rest); c.lanes[id] == nil {
				c.lanes[id] = readLane(v)
			}
		}
		c.complete = prefix == ""
	}
	for _, id := range slices.Sorted(maps.Keys(c.lanes)) {
		if l := c.lanes[id]; l.n > 0 && strings.HasPrefix(id, prefix) {
			list = append(list, l)
		}
	}
	return list
}

// inLane reports whether a job is in a lane.
func (j *job) inLane() bool { return j.State == ojs.StateAvailable && limitOf(&j.Record) != "" }

// laneOf returns the key and the lane of a job.
func (t *tx) laneOf(j *job) (*limit, *lane) {
	c := t.key(limitOf(&j.Record))
	bounds := string(key{}.appendBounds(j.RateLimit))
	return c, t.lane(c, j.Queue, j.Type, j.TypeVersion, bounds)
}

// leaveLimit takes a job from the limit of its key that is about to be another. It
// reports whether enterLimit has to count what it has become.
func (t *tx) leaveLimit(before, j *job) (enters bool) {
	if before.State == j.State && (j.State == ojs.StateActive || !j.inLane()) &&
		limitOf(&before.Record) == limitOf(&j.Record) || before.inLane() && j.inLane() && t.stays(before, j) {
		return false
	}
	if before.inLane() && !j.begun {
		c, l := t.laneOf(before)
		t.leaveLane(c, l, string(before.rank(nil)))
	}
	if before.State == ojs.StateActive {
		t.countActive(limitOf(&before.Record), -1)
		t.notice.Available = t.notice.Available || len(t.set(before.Queue, before.Type)) > 0
	}
	return true
}

// enterLimit counts a job for the limit of its key.
func (t *tx) enterLimit(j *job) {
	if j.inLane() {
		t.joinLane(j)
	}
	if j.State == ojs.StateActive && !j.begun {
		t.countActive(limitOf(&j.Record), 1)
	}
	j.begun = false
}

func (t *tx) countActive(name string, by int) {
	if name != "" {
		c := t.key(name)
		c.Active += by
		c.judge, c.dirty = true, true
	}
}

// stays reports whether a job stays in its place in its lane. It brings what claims ask
// of the job up to date then.
func (t *tx) stays(before, j *job) bool {
	c, l := t.laneOf(before)
	other, to := t.laneOf(j)
	rank := string(j.rank(nil))
	if c != other || l != to || string(before.rank(nil)) != rank {
		return false
	}
	if k := l.entry(c, rank); !bytes.Equal(before.ready(nil), j.ready(nil)) {
		t.o.set(k, j.ready(nil))
	}
	return true
}

// entry is the key under which the lane has a job.
func (l *lane) entry(c *limit, rank string) key {
	if rank == l.head {
		return l.readyKey(rank)
	}
	return l.heldKey(c).text(rank)
}

// joinLane adds a job to its lane.
func (t *tx) joinLane(j *job) {
	c, l := t.laneOf(j)
	c.Remember(j.RateLimit)
	rank, value := string(j.rank(nil)), j.ready(nil)
	l.n, c.dirty = l.n+1, true
	switch {
	case l.head != "" && rank < l.head: // it is the first
		head := l.readyKey(l.head)
		t.o.add(l.heldKey(c).text(l.head), t.get(head))
		t.delete(head)
		l.head = rank
	case l.n == 1 && t.lanes.timed:
		v := t.judged(c, l)
		if v.Ready {
			l.head = rank
		}
		t.closes(c, t.group(c, l.bounds), v)
		if v.Closed(&l.own) {
			t.setOpens(c, rule.Earlier(c.opens, v.At))
		}
	case l.n == 1:
		c.judge = true
	}
	k := l.entry(c, rank)
	if t.o.add(k, value); rank == l.head {
		t.entersReady(k)
	}
}

// leaveLane takes a job out of its lane.
func (t *tx) leaveLane(c *limit, l *lane, rank string) {
	t.delete(l.entry(c, rank))
	l.n, c.dirty = l.n-1, true
	if rank == l.head {
		l.head, c.judge = "", true
	}
	c.judge = c.judge || l.n == 0
}

// judged asks the limit of a lane's key about it.
func (t *tx) judged(c *limit, l *lane) rule.Verdict {
	now := t.lanes.now.UnixNano()
	v := fail.Must(c.Judge(&l.own, now, t.startOf(c)))
	if v.Closed(&l.own) && c.Over(now) && c.Until > t.settingsOver() {
		t.setSettingsOver(c.Until)
	}
	return v
}

// settingsOver is a time after which no setting has ended of a closed lane: what set has
// behind its number.
func (t *tx) settingsOver() int64 {
	if _, at := t.counter(meta(setName)); at != nil {
		return number(at)
	}
	return rule.None
}

func (t *tx) setSettingsOver(at int64) {
	t.putNumber(meta(setName), t.number(meta(setName)), key{}.number(at)...)
}

// show gives a lane a head if it is ready, and takes it away if it is not.
func (t *tx) show(c *limit, l *lane, v rule.Verdict) {
	switch held := l.heldKey(c); {
	case v.Ready && l.head == "" && l.n > 0:
		rank, value := t.first(held)
		t.promote(c, l, string(rank), value)
	case !v.Ready && l.head != "":
		ready := l.readyKey(l.head)
		t.o.add(held.text(l.head), t.get(ready))
		t.delete(ready)
		l.head, c.dirty = "", true
	}
}

// promote makes a job that waits the head of its lane.
func (t *tx) promote(c *limit, l *lane, rank string, value []byte) {
	l.head, c.dirty = rank, true
	ready := l.readyKey(rank)
	t.o.add(ready, value)
	t.entersReady(ready)
	t.delete(l.heldKey(c).text(rank))
}

// judgeAll judges the lanes of a key.
func (t *tx) judgeAll(c *limit) {
	c.judge = false
	if !t.lanes.timed { // a claim does
		t.setOpens(c, rule.None+1)
		return
	}
	opens := int64(rule.None)
	for list := t.all(c); len(list) > 0; {
		n := 1
		for n < len(list) && list[n].bounds == list[0].bounds {
			n++
		}
		group := list[:n]
		list = list[n:]
		v := t.judged(c, group[0])
		for _, l := range group {
			t.show(c, l, v)
		}
		t.closes(c, group, v)
		if v.Closed(&group[0].own) {
			opens = rule.Earlier(opens, v.At)
		}
	}
	t.setOpens(c, opens)
}

// closes notes whether lanes of the same bounds have closed or opened.
func (t *tx) closes(c *limit, group []*lane, v rule.Verdict) {
	was := slices.ContainsFunc(group, func(l *lane) bool { return l.closed })
	closed := v.Closed(&group[0].own)
	for _, l := range group {
		if l.closed != closed {
			l.closed, c.dirty = closed, true
		}
	}
	switch untold := closedKey(c.Name, group[0].bounds); {
	case was && !closed:
		t.notice.Available = true
	case was || !closed:
	case t.lanes.closed == nil:
		t.put(untold, nil)
	default:
		t.tell(c, group[0], untold)
	}
}

// tell has the claim tell that a lane has closed.
func (t *tx) tell(c *limit, l *lane, untold key) {
	if t.get(untold) != nil {
		t.delete(untold)
	}
	*t.lanes.closed = append(*t.lanes.closed, c.Closes(&l.own, t.lanes.now.UnixNano()))
}

// setOpens sets when time alone may open lanes of a key.
func (t *tx) setOpens(c *limit, at int64) {
	if at == c.opens {
		return
	}
	if c.opens != rule.None {
		t.delete(openKey(c))
	}
	if c.opens, c.dirty = at, true; at != rule.None {
		t.put(openKey(c), nil)
	}
}

func openKey(c *limit) key { return newKey(openTable).number(c.opens).text(c.Name) }

func closedKey(name, bounds string) key { return newKey(closedTable).string(name).text(bounds) }

// open judges the keys whose lanes time alone may have opened.
func (t *tx) open() {
	var due []string
	now := t.lanes.now.UnixNano()
	if now < t.settingsOver() { // the clock has gone back
		t.setSettingsOver(rule.None)
		for name := range t.scan(newKey(limitTable).byte(kinds[storage.LimitKey]), nil) {
			due = append(due, string(name))
		}
	}
	all := newKey(openTable)
	for k := range t.pages(all, all, behind(all), 1, peeking) {
		if number(k) > now {
			break
		}
		due = append(due, string(k[numberLen:]))
	}
	for _, name := range due {
		t.judgeAll(t.key(name))
	}
}

// keepLimits judges the keys that need it, and stores what has changed.
func (t *tx) keepLimits() {
	for _, c := range t.lanes.order {
		if c.judge {
			t.judgeAll(c)
		}
		if c.dirty {
			t.keepLanes(c)
			t.keep(c)
		}
	}
}

// keepLanes stores the lanes of a key.
func (t *tx) keepLanes(c *limit) {
	c.only = nil
	live := 0
	for _, l := range c.lanes {
		if l.n > 0 {
			c.only = l
			live++
		}
	}
	if !c.many && live <= 1 {
		return
	}
	c.only = nil
	for _, id := range slices.Sorted(maps.Keys(c.lanes)) {
		l := c.lanes[id]
		var v key
		if l.n > 0 {
			v = l.encode(key{})
		}
		if bytes.Equal(v, l.stored) && (v == nil) == (l.stored == nil) {
			continue
		}
		if v == nil {
			c.inTable--
		} else if l.stored == nil {
			c.inTable++
		}
		t.o.set(laneKey(c, id), v)
		l.stored = v
	}
	c.many = c.inTable > 0
}

// waiting counts the jobs in the lanes of a key whose deadline has not come, and returns
// the bounds of one.
func (t *tx) waiting(now time.Time, c *limit) (n int, bounds string) {
	expired := make(map[*lane]int)
	for _, j := range t.expired(now, c) {
		_, l := t.laneOf(j)
		expired[l]++
	}
	for _, l := range t.all(c) {
		if waits := l.n - expired[l]; waits > 0 {
			n += waits
			bounds = l.bounds
		}
	}
	return n, bounds
}
