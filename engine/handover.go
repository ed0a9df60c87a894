package engine

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// handover ends an attempt that has completed its job, and those piled up before it, and begins the next one of the same worker in
// one step of the storage: what settling and then taking do, for by far the most frequent case, with a third of the locking. done
// is false, and it has done nothing, in any other case: somebody listens, limits or weights have a say, the attempt's context has
// ended, or the handler has failed, which others may be asked about. If done, nil and false say that the worker has given up its
// slot.
func (r *run) handover(d *desk, a *attempt, o policy.Outcome) (next *attempt, goesOn, done bool) {
	c := r.c
	if !r.plain(a, o) {
		d.pace.broken()
		return nil, false, false
	}
	c.mu.Lock()
	if a.phase != running || a.cause != nil || a.replaced || !r.some() || r.stopping || r.blocked || r.free() < 0 {
		c.mu.Unlock()
		return nil, false, false
	}
	a.returns()
	a.phase = settling
	said := a.said()
	if d.ended = d.ended[:0]; d.pile.listed {
		r.abandon(&d.pile) // what it had to pass over; it comes next
		d.ended = r.settling(d.pile.takeDone(d.ended))
	}
	emptied, unpiled := r.emptied, r.unpiled
	r.searching++
	d.pace.completed(c.now())
	n := r.claimsAhead(d)
	c.mu.Unlock()

	for _, x := range d.ended {
		d.fate.rec, d.fate.worker = x.rec, c.worker
		c.decide(&d.fate, policy.Outcome{Kind: policy.Returned}, x.began(), x.doneAt, nil)
	}
	private := a.context.TakeBack()
	f := r.completed(d, a, o, said, private)
	ask := storage.Claim{Queues: c.queues, Types: c.registry.handled(), Max: n, Worker: c.worker}
	if err := d.exchange(r, f, ask); err != nil {
		c.mu.Lock()
		r.looked()
		pause := r.claimFailed(err)
		for _, x := range append(d.ended, a) { // the storage may still read their records
			x.kept = true
		}
		c.mu.Unlock()
		r.tellClaimFailed(err, pause)
		c.uncertain(err)
		f = f.copied()
		r.storeEach(d.ended, 2)
		return nil, r.release(a, f, r.store(f, 2)), true
	}
	err := d.settled[len(d.ended)].Err
	for i, x := range d.ended {
		if err := d.settled[i].Err; err != nil || c.logs(slog.LevelInfo) {
			f := c.pastFate(x)
			r.tell(f, err)
			f.forget()
		}
	}
	r.tell(f, err)
	c.mu.Lock()
	for i, x := range d.ended {
		r.ended(x, x.rec, d.settled[i].Err)
	}
	r.ended(a, f.rec, err)
	if n := len(d.claimed); n > 0 {
		if r.emptied == emptied && r.left != unknown {
			r.left = max(r.left-n, 0)
		}
		next = r.deal(d, f.at, unpiled)
	}
	// A look that has found nothing proves nothing: a job with a limit may be next. The worker looks again, by itself.
	c.mu.Unlock()
	if f != &d.fate {
		f.forget()
	}
	d.recycle(a, private)
	for _, x := range d.ended {
		d.recycle(x, true)
	}
	// Or the worker would keep them alive for as long as the next handler takes.
	d.fate.rec = nil
	clear(d.ended)
	clear(d.claimed)
	clear(d.to)
	clear(d.into)
	return next, true, true
}

// plain reports whether an outcome is one that handover is for, as far as can be told without a lock.
func (r *run) plain(a *attempt, o policy.Outcome) bool {
	c := r.c
	return c.cheap != nil && o.Kind == policy.Returned && o.Err == nil && a.rec.RateLimit == nil &&
		!c.tracing() && !c.events.Wants(ojs.EventStarted, "", "") && !c.events.Wants(ojs.EventCompleted, "", "") && c.gate.plain.Load()
}

// deal begins the attempts that the desk has claimed: the first is its worker's now, the others are piled up, or given back if all
// others have been since r.unpiled was unpiled. It returns nil if all of them were lost meanwhile. core.mu is held.
func (r *run) deal(d *desk, now time.Time, unpiled uint64) *attempt {
	claimed := r.beginAll(d.claimed)
	if len(claimed) == 0 {
		return nil
	}
	r.looked()
	r.moves++
	if d.ahead = len(claimed) > 1; d.ahead {
		d.pile.put(r, claimed[1:], now)
		if r.unpiled != unpiled {
			r.clearAway(nil, d.pile.takeWaiting(nil))
		}
	}
	r.wake()
	return claimed[0]
}

// desk is what a worker uses again for one job after another.
type desk struct {
	net
	fate   fate       // of a private attempt
	spare  []*attempt // for the next jobs
	frames frames     // for those that are claimed together

	pile  pile
	ahead bool // something was piled up, and may still be
	pace  pace

	ended   []*attempt // of a pile, being settled
	settled []storage.Settled
	to      []*storage.Record
	into    []*storage.Record
}

var desks = sync.Pool{New: func() any { return new(desk) }}

// putBack leaves the desk to another worker.
func (d *desk) putBack() {
	d.fate.rec, d.frames = nil, frames{}
	d.pace, d.ahead, d.pile.cleared = pace{}, false, false
	d.net.clear()
	desks.Put(d)
}

// recycle keeps the memory of an attempt that is over and forgotten for another job, if that may have it.
func (d *desk) recycle(a *attempt, private bool) {
	most := a.r.c.prefetch
	if !a.reusable(private) {
		return
	}
	if len(d.spare) < most {
		d.spare = append(d.spare, a)
	} else {
		attempts.Put(a)
	}
}

// completed is the fate of an attempt that has completed its job. A private one's record becomes the outcome itself.
func (r *run) completed(d *desk, a *attempt, o policy.Outcome, said said, private bool) (f *fate) {
	if private {
		f = &d.fate
		f.rec, f.worker = a.rec, r.c.worker
	} else {
		f = newFate(a.rec, r.c.worker)
	}
	r.c.decide(f, o, a.began(), r.c.now(), said.result)
	return f
}

// exchange settles a fate, after those of the piled attempts, and makes the attempts of what is claimed in the same step.
func (d *desk) exchange(r *run, f *fate, ask storage.Claim) (err error) {
	d.to, d.into, d.claimed = d.to[:0], d.into[:0], d.claimed[:0]
	for _, a := range d.ended {
		d.to = append(d.to, a.rec)
	}
	d.to = append(d.to, f.rec)
	for len(d.spare) < ask.Max {
		d.spare = append(d.spare, attempts.Get().(*attempt))
	}
	next := d.spare[:ask.Max]
	for _, a := range next { // the records go to where they stay
		d.into = append(d.into, a.rec)
	}
	var n int
	if d.settled, n, err = r.c.cheap.SettleAndClaim(r.base, f.at, d.to, d.settled[:0], ask, d.into); err != nil {
		// What it was given is left to the storage, which may still use it.
		d.spare, d.to, d.into, d.settled = nil, nil, nil, nil
		return err
	}
	var shared *frames
	if n > 1 {
		shared = &d.frames
	}
	for _, a := range next[:n] {
		a.prepare(r, shared)
	}
	d.claimed = append(d.claimed, next[:n]...)
	d.spare = slices.Delete(d.spare, 0, n)
	return nil
}
