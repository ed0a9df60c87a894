package engine

import (
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// handover ends an attempt that has completed its job and begins the next one of the same worker in one step of the storage: what
// settling and then taking do, for the case that is by far the most frequent, with a third of the locking. It reports false, and
// has done nothing, if the case is another one: somebody listens, limits or weights have a say, the attempt's context has
// ended, or the handler has failed, which others may be asked about. Then it is nil and false if the worker's slot is free.
func (r *run) handover(a *attempt, o policy.Outcome) (next *attempt, goesOn, done bool) {
	c := r.c
	if c.both == nil || o.Kind != policy.Returned || o.Err != nil || a.rec.RateLimit != nil ||
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
	emptied, want := r.emptied, 1
	if r.searching == 0 { // otherwise another one looks for the free slots
		want += max(r.free(), 0)
	}
	r.searching++
	c.mu.Unlock()

	net := nets.Get().(*net)
	defer net.putBack()
	f := r.decide(a, o, said)
	ask := storage.Claim{Queues: c.queues, Types: c.registry.handled(), Max: min(want, maxClaim), Worker: c.worker}
	settled, claimed, err := c.both.SettleAndClaim(r.base, f.at, f.change[:], f.result[:0], ask, net.recs)
	if err != nil {
		f.lent, net.recs = true, nil
		c.mu.Lock()
		r.looked()
		r.claimFailed(err)
		c.mu.Unlock()
		c.uncertain(err)
		return nil, r.release(a, f, r.store(f, 2)), true
	}
	net.recs = claimed
	r.attemptsOf(net)
	err = settled[0].Err
	r.tell(f, err)
	for i := range claimed {
		c.logStarted(&claimed[i], c.worker, f.at)
	}

	c.mu.Lock()
	r.ended(a, f, err)
	if len(claimed) > 0 {
		if r.emptied == emptied && r.left != unknown {
			r.left = max(r.left-len(claimed), 0)
		}
		next = r.share(net.claimed)
	}
	// A look that has found nothing proves nothing: a job with a limit may be next. The worker looks again, by itself.
	c.mu.Unlock()
	a.reuse()
	f.forget()
	return next, true, true
}
