package engine

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
)

// dueBatch bounds what one look at the storage's deadlines brings.
const dueBatch = 256

// keeper does what the clock asks of the storage, on one goroutine of its own, so that a slow storage delays no timer:
// promotes what has come due, renews leases, settles what its handler has overrun.
type keeper struct {
	r          *run
	signal     chan struct{}
	quit, done chan struct{}

	// Guarded by core.mu.
	timer    scheduler.Timer
	at       time.Time // when timer fires; zero: not armed
	due      bool      // a look at the deadlines is wanted
	renewals []*attempt
	overrun  []*attempt
	working  bool
	failures int // looks that failed in a row
}

func (k *keeper) start(r *run) {
	k.r = r
	k.signal = make(chan struct{}, 1)
	k.quit, k.done = make(chan struct{}), make(chan struct{})
	k.timer.Func = func(time.Time) {
		k.r.c.mu.Lock()
		defer k.r.c.mu.Unlock()
		k.at = time.Time{}
		k.wantDue()
	}
	go k.loop()
}

func (k *keeper) stop() {
	close(k.quit)
	<-k.done
}

// The methods from here to busy want core.mu.

func (k *keeper) wantDue() {
	k.due = true
	k.poke()
}

func (k *keeper) renew(a *attempt) {
	k.renewals = append(k.renewals, a)
	k.poke()
}

func (k *keeper) force(a *attempt) {
	k.overrun = append(k.overrun, a)
	k.poke()
}

func (k *keeper) poke() {
	select {
	case k.signal <- struct{}{}:
	default:
	}
}

// wakeAt has the keeper look at the deadlines at t, unless it will earlier.
func (k *keeper) wakeAt(t time.Time) {
	if k.at.IsZero() || t.Before(k.at) {
		k.at = t
		k.r.sched.Set(&k.timer, t)
	}
}

// busy reports whether the keeper has something to do now.
func (k *keeper) busy() bool {
	return k.due || k.working || len(k.renewals) > 0 || len(k.overrun) > 0
}

func (k *keeper) loop() {
	defer close(k.done)
	mu := &k.r.c.mu
	for {
		select {
		case <-k.signal:
		case <-k.quit:
			return
		}
		mu.Lock()
		due, renewals, overrun := k.due, k.renewals, k.overrun
		k.due, k.renewals, k.overrun = false, nil, nil
		k.working = true
		mu.Unlock()

		k.extend(renewals) // before due, which takes away what is not renewed
		for _, a := range overrun {
			k.r.settleOverrun(a)
		}
		if due {
			k.look()
		}

		mu.Lock()
		k.working = false
		k.r.c.changed()
		mu.Unlock()
	}
}

// extend renews the leases of running attempts. Those that are lost end. A storage that fails is asked again at the next
// renewal, for which the interval leaves time.
func (k *keeper) extend(renewals []*attempt) {
	if len(renewals) == 0 {
		return
	}
	c := k.r.c
	held := make([]storage.Extension, len(renewals))
	for i, a := range renewals {
		held[i].Held = a.held()
	}
	lost, err := c.store.Extend(k.r.base, c.now(), held)
	if err != nil {
		c.log.Error("lease renewal failed", "error", err, "jobs", len(held))
		return
	}
	if len(lost) == 0 {
		return
	}
	gone := make(map[string]bool, len(lost))
	for _, id := range lost {
		gone[id] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range held {
		if gone[h.ID] {
			k.r.lose(h.ID, h.Version, ojs.ErrLeaseLost)
		}
	}
}

// look does what has come due, batch by batch.
func (k *keeper) look() {
	c := k.r.c
	for {
		now := c.now()
		op := c.hub.begin()
		d, err := c.store.Due(k.r.base, now, dueBatch)
		if op != 0 {
			var expired []*batch
			for i := range d.Expired {
				expired = append(expired, c.batch(&d.Expired[i], d.Expired[i].Version, now, expiredEvents(&d.Expired[i])...))
			}
			c.hub.end(op, expired...)
		}
		c.mu.Lock()
		if err != nil {
			k.failures++
			pause := storageBackoff(k.failures)
			c.log.Error("looking for due jobs failed", "error", err, "retry_in", pause)
			k.wakeAt(now.Add(pause))
			k.r.available(unknown) // what it has promoted all the same
			c.mu.Unlock()
			c.waiters.all()
			return
		}
		k.failures = 0
		for i := range d.Stalled { // ours, if the renewals failed for too long
			k.r.lose(d.Stalled[i].ID, d.Stalled[i].Version-1, ojs.ErrLeaseLost)
		}
		k.r.available(len(d.Promoted))
		c.mu.Unlock()

		for i := range d.Expired {
			c.waiters.ended(d.Expired[i].ID)
		}
		for _, rec := range d.Stalled {
			k.r.settleStalled(rec)
		}
		if d.Next.IsZero() {
			return
		}
		brought := len(d.Promoted) + len(d.Expired) + len(d.Stalled)
		if brought > 0 && !d.Next.After(now) {
			continue
		}
		c.mu.Lock()
		if !d.Next.After(now) { // it has what is due, yet brought nothing: do not spin
			d.Next = now.Add(time.Millisecond)
		}
		k.wakeAt(d.Next)
		c.mu.Unlock()
		return
	}
}
