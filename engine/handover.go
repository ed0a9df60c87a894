package engine

import (
	"log/slog"
	"sync"

	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// handover ends an attempt that has completed its job and begins the next one of the same worker in one step of the storage: what
// settling and then taking do, for the case that is by far the most frequent, with a third of the locking. It reports false, and
// has done nothing, if the case is another one: somebody listens, limits or weights have a say, the attempt's context has
// ended, or the handler has failed, which others may be asked about. Then it is nil and false if the worker's slot is free.
func (r *run) handover(d *desk, a *attempt, o policy.Outcome) (next *attempt, goesOn, done bool) {
	c := r.c
	if c.cheap == nil || o.Kind != policy.Returned || o.Err != nil || a.rec.RateLimit != nil ||
		c.tracing() || c.hub.listeners.Load() > 0 || !c.gate.plain.Load() {
		return nil, false, false
	}
	c.mu.Lock()
	if a.phase != running || a.cause != nil || a.replaced || r.left == 0 || r.stopping || r.blocked || r.free() < 0 {
		c.mu.Unlock()
		return nil, false, false
	}
	a.returned, a.phase = true, settling
	said := a.said()
	emptied := r.emptied
	r.searching++
	c.mu.Unlock()

	private := a.context.TakeBack()
	f := r.completed(d, a, o, said, private)
	ask := storage.Claim{Queues: c.queues, Types: c.registry.handled(), Max: 1, Worker: c.worker}
	settled, err := d.exchange(r, f, ask)
	if err != nil {
		c.mu.Lock()
		r.looked()
		r.claimFailed(err)
		c.mu.Unlock()
		c.uncertain(err)
		a.kept = true // the storage may still read its record
		f = f.copied()
		return nil, r.release(a, f, r.store(f, 2)), true
	}
	r.tell(f, settled.Err)
	if c.logs(slog.LevelDebug) {
		for _, n := range d.claimed {
			c.logStarted(n.rec, c.worker, f.at)
		}
	}
	c.mu.Lock()
	r.ended(a, f, settled.Err)
	if n := len(d.claimed); n > 0 {
		if r.emptied == emptied && r.left != unknown {
			r.left = max(r.left-n, 0)
		}
		next = r.share(d.claimed)
	}
	// A look that has found nothing proves nothing: a job with a limit may be next. The worker looks again, by itself.
	c.mu.Unlock()
	if f != &d.fate {
		f.forget()
	}
	switch {
	case !a.reusable(private):
	case d.spare != nil:
		attempts.Put(a)
	default:
		a.lighten()
		d.spare = a
	}
	return next, true, true
}

// desk is what a worker uses again for one job after another.
type desk struct {
	net
	fate  fate     // of a private attempt
	spare *attempt // for the next job; nil: there is none
}

var desks = sync.Pool{New: func() any { return new(desk) }}

// putBack leaves the desk to another worker.
func (d *desk) putBack() {
	d.fate.rec = nil
	d.net.clear()
	desks.Put(d)
}

// completed is the fate of an attempt that has completed its job. Of a private one, its record becomes what it shall be.
func (r *run) completed(d *desk, a *attempt, o policy.Outcome, said said, private bool) (f *fate) {
	if private {
		f = &d.fate
		f.rec, f.worker = a.rec, r.c.worker
	} else {
		f = newFate(a.rec, r.c.worker)
	}
	f.rec.Progress, f.rec.Checkpoint = said.progress, said.checkpoint
	r.c.decide(f, o, r.c.now(), said.result)
	return f
}

// exchange settles a fate and makes the attempt of what is claimed in the same step.
func (d *desk) exchange(r *run, f *fate, ask storage.Claim) (settled storage.Settled, err error) {
	d.claimed = d.claimed[:0]
	next := d.spare // the record goes to where it stays
	if d.spare = nil; next == nil {
		next = attempts.Get().(*attempt)
	}
	settled, recs, err := r.c.cheap.SettleAndClaim(r.base, f.at, f.rec, ask, next.own[:0])
	switch {
	case err != nil:
	case len(recs) == 0:
		d.spare = next
	default:
		if &recs[0] != next.rec { // it need not use what it is offered
			*next.rec = recs[0]
		}
		next.prepare(r)
		d.claimed = append(d.claimed, next)
	}
	return settled, err
}
