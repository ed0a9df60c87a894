package keyed

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
	"github.com/ojsengine/ojs/storage/rule"
)

// rank appends where a job is among the available ones of its queue, in the order of
// claims: the highest priority first, and then the round and the place.
func (j *job) rank(k key) key {
	k = k.number(^int64(j.Priority))
	if j.round != 0 {
		return k.number(j.round).number(j.Place)
	}
	return k.number(j.Place).number(0)
}

// rankLen is how long a rank is.
const rankLen = 3 * numberLen

// readyJob is what a claim asks of an available job, so that it need not decode those
// that it skips.
type readyJob struct {
	seq                     []byte
	deadline                time.Time
	hasTTL                  bool // an enqueue TTL
	queue, jobType, version []byte
	key, bounds             []byte // of its rate limit; key is nil if it has none
}

// ready appends the value of a job in the tables ready and held.
func (j *job) ready(v key) key {
	v = v.number(j.Seq).time(j.Deadline()).bool(j.EnqueueTTL > 0)
	v = v.string(j.Queue).string(j.Type).string(j.TypeVersion)
	if name := limitOf(&j.Record); name != "" {
		v = v.string(name).appendBounds(j.RateLimit)
	}
	return v
}

// readReady reads a value of the tables ready and held. It reports false if the value is
// cut short.
func readReady(v []byte) (j readyJob, whole bool) {
	r := readerOf(v)
	j.seq, j.deadline, j.hasTTL = r.Take(numberLen), timeOf(r.Take(timeLen)), r.byte() != 0
	j.queue, j.jobType, j.version = r.text(), r.text(), r.text()
	if len(r.B) > 0 {
		j.key = r.text()
		j.bounds = r.B
	}
	return j, !r.Short
}

// mustReady is readReady for a claim, which fails if the value is cut short: a lane
// counts no job that is not its own.
func mustReady(v []byte) readyJob {
	j, whole := readReady(v)
	if !whole {
		fail.With(fmt.Errorf("the entry of an available job is cut short: %x", v))
	}
	return j
}

func (r *readyJob) expired(now time.Time) bool {
	return !r.deadline.IsZero() && !now.Before(r.deadline)
}

// laneOfReady returns the key and the lane of a job that has a rate limit.
func (t *tx) laneOfReady(r *readyJob) (*limit, *lane) {
	c := t.key(string(r.key))
	return c, t.lane(c, string(r.queue), string(r.jobType), string(r.version), string(r.bounds))
}

// Claim implements storage.Storage. It meets the jobs that may start. It steps over jobs
// whose deadline has come and over other versions of a type, each a step of a scan.
func (s *Storage) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	k, err := change(ctx, s, func(t *tx) *claimer { return t.claim(now, &c, false) })
	if err != nil {
		return dst, err
	}
	k.report()
	return append(dst, k.claimed...), nil
}

// claim claims jobs. If plain is set, the first job that has an enqueue TTL ends it.
func (t *tx) claim(now time.Time, c *storage.Claim, plain bool) *claimer {
	t.at(now)
	k := &claimer{t: t, now: now, c: c, plain: plain}
	k.claim()
	return k
}

// report tells the caller of the limits that were met.
func (k *claimer) report() {
	if k.c.Limits != nil {
		k.limits.Now = k.c.Limits.Now
		*k.c.Limits = k.limits
	}
}

// claimer is a claim at work.
type claimer struct {
	t     *tx
	now   time.Time
	c     *storage.Claim
	plain bool // see tx.claim

	claimed []storage.Record
	picked  [][]byte // the seqs of the jobs that come next

	// guests are the keys of jobs that are in the table ready during the claim only: they
	// come after heads whose deadline has come.
	guests map[string]bool

	behind map[*lane]*stream // what comes next in a lane that a job was taken from

	again  bool // the walk starts over: jobs ahead of its position have changed
	over   bool // the claim ends before a job that counts (Limited.Now) or has an enqueue TTL
	limits storage.Limited
}

// left is how many jobs the claim still wants.
func (k *claimer) left() int { return k.c.Max - len(k.claimed) - len(k.picked) }

func (k *claimer) claim() {
	defer k.end()
	if k.c.Limits != nil {
		k.t.lanes.closed = &k.limits.Closed
	}
	k.t.open()
	queues := k.c.Queues
	if len(queues) == 0 {
		queues = []string{""}
	}
	for i, q := range queues {
		if !slices.Contains(queues[:i], q) {
			k.walk(q)
		}
	}
	for guest := range k.guests {
		k.t.delete(key(guest))
	}
	k.t.keepLimits()
	if k.left() > 0 && !k.over {
		k.tell(queues)
	}
}

// walk meets the available jobs of a queue, or of all of them together, in the order of
// claims.
func (k *claimer) walk(queue string) {
	for k.again = true; k.again && k.left() > 0 && !k.over; {
		k.again = false
		k.end()
		for rest, v := range k.inOrder(queue) {
			r := mustReady(v)
			if k.meet(&r, rest); k.left() <= 0 || k.again || k.over {
				break
			}
		}
		k.flush()
	}
}

// mayTake asks the limits of the queue and the type of a backlog.
func (k *claimer) mayTake(of []byte) bool {
	at, open := k.t.opensIn(k.t.set(section(of)))
	if !open {
		k.holds(at)
	}
	return open
}

// holds notes that a limit holds jobs back that the claim asks for, until a time.
func (k *claimer) holds(until int64) {
	k.limits.Held = true
	if until != math.MaxInt64 {
		k.limits.Opens = times.Earliest(k.limits.Opens, rows.Time(until))
	}
}

// meet takes a job, or leaves it.
func (k *claimer) meet(r *readyJob, rest []byte) {
	switch {
	case len(k.c.Types) > 0 && !k.c.Takes(string(r.jobType), string(r.version)):
	case r.key != nil:
		k.meetLimited(r, string(rest[len(rest)-rankLen:]))
	case !r.expired(k.now):
		k.take(r, nil, nil, "")
	}
}

// ends ends the claim before a job that it may not take.
func (k *claimer) ends(r *readyJob) bool {
	k.over = k.over || k.plain && r.hasTTL
	return k.over
}

// take picks a job. If it has a lane, it leaves that.
func (k *claimer) take(r *readyJob, c *limit, l *lane, rank string) {
	if k.ends(r) {
		return
	}
	counters := k.t.set(string(r.queue), string(r.jobType))
	counts := len(counters) > 0 || c != nil
	if lim := k.c.Limits; counts && lim != nil && lim.Now > 0 && len(k.claimed)+len(k.picked) >= lim.Now {
		k.over = true
		return
	}
	if c != nil {
		c.Remember(&l.own)
		c.Last = l.bounds
		c.Active++
		c.judge = true
		k.t.start(c, k.now.UnixNano())
		k.t.leaveLane(c, l, rank)
	}
	k.picked = append(k.picked, r.seq)
	if len(counters) > 0 {
		k.flush()
		for _, counter := range counters {
			k.t.start(counter, k.now.UnixNano())
		}
		_, open := k.t.opensIn(counters)
		k.again = !open
	}
}

// meetLimited takes a job that has a rate limit, or leaves it.
func (k *claimer) meetLimited(r *readyJob, rank string) {
	c, l := k.t.laneOfReady(r)
	v := k.t.judged(c, l)
	guest := string(l.readyKey(rank))
	switch {
	case !v.Ready && !k.guests[guest]: // a clock has gone back, or the end of a setting has come
		c.judge = true
		k.t.show(c, l, v)
		return
	case !v.Ready:
	case r.expired(k.now):
	case v.Open:
		if k.take(r, c, l, rank); k.over {
			return
		}
	case rule.Waits(&l.own):
		k.holds(v.At)
		return
	case k.ends(r):
		return
	default:
		k.act(r, l, v)
	}
	if k.guests[guest] && rank != l.head {
		delete(k.guests, guest)
		k.t.delete(key(guest))
	}
	if k.left() > 0 || l.head == "" {
		k.next(c, l, rank)
	}
}

// next has the walk meet the job of a lane that comes after one that was met: the lane's
// next head, or a guest if the head stays, since its deadline has come.
func (k *claimer) next(c *limit, l *lane, rank string) {
	waits := l.n
	if l.head != "" {
		waits--
	}
	if waits == 0 || !k.t.judged(c, l).Ready {
		return
	}
	next := k.behind[l]
	if next == nil {
		held := l.heldKey(c)
		from := append(slices.Clone(held), rank+"\x00"...)
		next = newStream(k.t.pages(held, from, behind(held), 4, forward))
		if k.behind == nil {
			k.behind = make(map[*lane]*stream)
		}
		k.behind[l] = next
	}
	for next.read() {
		if l.head == "" {
			k.t.promote(c, l, string(next.rest), next.value)
			return
		}
		if r := mustReady(next.value); !r.expired(k.now) {
			guest := l.readyKey(string(next.rest))
			k.t.o.add(guest, next.value)
			if k.guests == nil {
				k.guests = make(map[string]bool)
			}
			k.guests[string(guest)] = true
			return
		}
	}
}

// end forgets what comes next in lanes: jobs may have come before it.
func (k *claimer) end() {
	for _, next := range k.behind {
		next.stop()
	}
	k.behind = nil
}

// act does what the OnLimit of a job says.
func (k *claimer) act(r *readyJob, l *lane, v rule.Verdict) {
	k.flush()
	j := k.t.load(r.seq)
	if l.own.OnLimit == ojs.OnLimitDrop {
		k.t.change(j, true, func(r *storage.Record) { r.Limit(k.now) })
		k.limits.Dropped = append(k.limits.Dropped, j.Record)
		n := len(k.limits.Moved)
		k.limits.Moved = depend.Count(k.t, k.now, k.limits.Moved)
		k.again = len(k.limits.Moved) > n // new available jobs may rank before the walk's position
		return
	}
	k.t.change(j, true, func(r *storage.Record) { r.Postpone(k.now, rows.Time(v.At)) })
	k.limits.Postponed = append(k.limits.Postponed, j.Record)
}

// flush claims the jobs that are picked.
func (k *claimer) flush() {
	for _, seq := range k.picked {
		k.t.o.ask(jobKey(seq))
	}
	k.t.o.fetch()
	k.claimed = slices.Grow(k.claimed, len(k.picked))
	for _, seq := range k.picked {
		j := k.t.load(seq)
		j.begun = j.inLane()
		k.t.serve(j)
		if !k.c.Remote {
			j.handle = k.t.s.handle.Load()
		}
		k.t.attempt(j, true, func(r *storage.Record) { r.Claim(k.now, k.c.Worker, k.c.Lease) })
		k.claimed = append(k.claimed, j.Record)
	}
	k.picked = k.picked[:0]
}

// maxTold is how many keys a claim tells of that have closed outside of a claim.
const maxTold = 64

// tell says whether limits hold jobs of queues back, and until when.
func (k *claimer) tell(queues []string) {
	if slices.ContainsFunc(queues, k.held) {
		k.limits.Held = true
		if at, _ := k.t.first(newKey(openTable)); at != nil {
			k.holds(number(at))
		}
	}
	k.t.notice.Opens = k.limits.Opens
	if k.c.Limits != nil {
		k.tellClosed()
	}
}

// held reports whether limits hold jobs of a queue back, or of any, that the claim asks
// for.
func (k *claimer) held(queue string) bool {
	var in key
	if queue != "" {
		in = in.name(queue)
	}
	for of := range k.t.groups(heldTable, in, 2) {
		if k.asks(of) {
			return true
		}
	}
	return false
}

// tellClosed tells of keys that have closed outside of a claim.
func (k *claimer) tellClosed() {
	n := 0
	for rest := range k.t.scan(newKey(closedTable), nil) {
		if n++; n > maxTold {
			break
		}
		r := readerOf(rest)
		name := r.Text()
		bounds := string(r.B)
		untold := closedKey(name, bounds)
		k.t.delete(untold)
		c := k.t.key(name)
		for _, l := range k.t.group(c, bounds) {
			if l.closed && k.t.judged(c, l).Closed(&l.own) {
				k.t.tell(c, l, untold)
				break
			}
		}
	}
}
