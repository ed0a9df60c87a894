package keyed

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// rank is where a job is among the available ones of its queue, in the order of claims:
// the highest priority first, and then the round and the place.
func (j *job) rank() key {
	k := key{}.number(^int64(j.Priority))
	if j.round != 0 {
		return k.number(j.round).number(j.Place)
	}
	return k.number(j.Place).number(0)
}

// readyJob is what a claim asks of an available job, so that it need not decode those
// that it skips.
type readyJob struct {
	seq                     []byte
	deadline                time.Time
	queue, jobType, version []byte
	limited                 []byte // the key of its rate limit; nil: it has none
	bounds                  []byte // of its limit
}

// ready is the value of a job in the table ready.
func (j *job) ready() []byte {
	v := key{}.number(j.Seq).time(j.Deadline()).name(j.Queue).name(j.Type).name(j.TypeVersion)
	if j.RateLimit != nil {
		v = v.name(j.RateLimit.Key).text(must(rows.Bounds(j.RateLimit)))
	}
	return v
}

func readReady(v []byte) readyJob {
	r := readyJob{seq: v[:numberLen], deadline: timeOf(v[numberLen:])}
	v = v[numberLen+timeLen:]
	r.queue, v = cutBytes(v)
	r.jobType, v = cutBytes(v)
	if r.version, v = cutBytes(v); len(v) > 0 {
		r.limited, r.bounds = cutBytes(v)
	}
	return r
}

func (r *readyJob) expired(now time.Time) bool {
	return !r.deadline.IsZero() && !now.Before(r.deadline)
}

func (r *readyJob) own() *ojs.RateLimit {
	b := must(rows.ReadBounds(string(r.bounds)))
	return &b
}

// Claim implements storage.Storage. It walks past the available jobs that it may not
// take. Each costs a step of a scan.
func (s *Storage) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	k, err := change(ctx, s, func(t *tx) *claimer {
		k := &claimer{t: t, now: now, c: &c}
		k.claim()
		return k
	})
	if err != nil {
		return dst, err
	}
	if c.Limits != nil {
		k.limits.Now = c.Limits.Now
		*c.Limits = k.limits
	}
	return append(dst, k.claimed...), nil
}

// claimer is a claim at work.
type claimer struct {
	t   *tx
	now time.Time
	c   *storage.Claim

	claimed []storage.Record
	picked  [][]byte   // seqs of jobs without limits that come next
	held    []readyJob // jobs that limits hold back, one of each queue, type and bounds
	isHeld  map[heldJob]bool
	again   bool // a job that was dropped has made others available, perhaps before those that were met
	over    bool // the claim ends before a job that counts (Limited.Now)
	limits  storage.Limited
}

type heldJob struct{ queue, jobType, bounds string }

// left is how many jobs the claim still wants.
func (k *claimer) left() int { return k.c.Max - len(k.claimed) - len(k.picked) }

func (k *claimer) claim() {
	if len(k.c.Queues) == 0 {
		k.walk(k.t.queues)
	}
	for i, q := range k.c.Queues {
		if !slices.Contains(k.c.Queues[:i], q) {
			k.walk(func() []string { return []string{q} })
		}
	}
	if k.left() > 0 && !k.over {
		k.tell()
	}
}

// walk meets the available jobs of queues together, in the order of claims, without those
// of paused queues.
func (k *claimer) walk(queues func() []string) {
	for k.again = true; k.again && k.left() > 0 && !k.over; {
		k.again = false
		var prefixes []key
		for _, q := range queues() {
			if k.t.queueState(q) != ojs.QueuePaused {
				prefixes = append(prefixes, newKey(readyTable).name(q))
			}
		}
		for _, v := range k.t.merged(prefixes, peeking) {
			r := readReady(v)
			if k.meet(&r); k.left() <= 0 || k.again || k.over {
				break
			}
		}
		k.flush()
	}
}

// meet takes a job, or leaves it.
func (k *claimer) meet(r *readyJob) {
	if r.expired(k.now) || len(k.c.Types) > 0 && !k.c.Takes(string(r.jobType), string(r.version)) {
		return
	}
	names := k.t.limitNames(string(r.queue), string(r.jobType), string(r.limited))
	if len(names) > 0 {
		k.flush()
		if !k.mayStart(r) {
			return
		}
	}
	switch l := k.c.Limits; {
	case len(names) == 0:
		k.picked = append(k.picked, r.seq)
	case l != nil && l.Now > 0 && len(k.claimed) >= l.Now:
		k.over = true
	default:
		k.take(k.t.load(r.seq))
	}
}

// mayStart asks the limits of a job, and does what its OnLimit says.
func (k *claimer) mayStart(r *readyJob) bool {
	h := heldJob{string(r.queue), string(r.jobType), string(r.bounds)}
	if k.isHeld[h] {
		return false
	}
	v := k.t.judge(k.now, r)
	switch {
	case v.open:
		return true
	case v.action == "":
		if k.isHeld == nil {
			k.isHeld = make(map[heldJob]bool)
		}
		k.isHeld[h] = true
		k.held = append(k.held, *r)
		return false
	}
	j := k.t.load(r.seq)
	if v.action == ojs.OnLimitDrop {
		k.t.change(j, true, func(r *storage.Record) { r.Limit(k.now) })
		k.limits.Dropped = append(k.limits.Dropped, j.Record)
		n := len(k.limits.Moved)
		k.limits.Moved = k.t.countEnds(k.now, k.limits.Moved)
		k.again = len(k.limits.Moved) > n
		return false
	}
	var opens time.Time
	if v.at != math.MaxInt64 {
		opens = rows.Time(v.at)
	}
	k.t.change(j, true, func(r *storage.Record) { r.Postpone(k.now, opens) })
	k.limits.Postponed = append(k.limits.Postponed, j.Record)
	return false
}

// flush takes the jobs that are picked.
func (k *claimer) flush() {
	k.t.fetchJobs(k.picked)
	k.claimed = slices.Grow(k.claimed, len(k.picked))
	for _, seq := range k.picked {
		k.take(k.t.load(seq))
	}
	k.picked = k.picked[:0]
}

func (k *claimer) take(j *job) {
	k.t.serve(j)
	k.t.started(k.now, &j.Record)
	k.t.change(j, true, func(r *storage.Record) { r.Claim(k.now, k.c.Worker, k.c.Lease) })
	k.claimed = append(k.claimed, j.Record)
}

// tell says which limits hold jobs back, and until when.
func (k *claimer) tell() {
	for i := range k.held {
		r := &k.held[i]
		k.limits.Held = true
		v := k.t.judge(k.now, r)
		at := rows.Time(v.at)
		if v.at != math.MaxInt64 && (k.limits.Opens.IsZero() || at.Before(k.limits.Opens)) {
			k.limits.Opens = at
		}
		if r.limited != nil {
			k.tellClosed(r)
		}
	}
	k.t.notice.Opens = k.limits.Opens
}

// tellClosed tells of the key of a job, if that is closed and no claim has told of it
// since a job with these bounds has started.
func (k *claimer) tellClosed(r *readyJob) {
	told := closedKey(string(r.limited), string(r.bounds))
	if k.t.get(told) != nil {
		return
	}
	c := k.t.limit(storage.LimitName{Kind: storage.LimitKey, Name: string(r.limited)})
	own := r.own()
	_, open, err := c.Open(own, k.now.UnixNano(), k.t.startOf(c))
	check(err)
	if !open {
		k.t.put(told, nil)
		k.limits.Closed = append(k.limits.Closed, c.Closes(own, k.now.UnixNano()))
	}
}

// queues returns the queues with available jobs.
func (t *tx) queues() (names []string) {
	for rest := range t.scan(newKey(countTable).byte(rows.Available), nil) {
		if name, _ := cut(rest); len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return names
}
