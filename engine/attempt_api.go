package engine

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/sleeps"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
)

var _ internal.Attempt = (*attempt)(nil)

// Header implements internal.Attempt.
func (a *attempt) Header() *ojs.JobHeader {
	a.r.c.mu.Lock()
	defer a.r.c.mu.Unlock()
	if a.shown == nil {
		h := detached(a.rec)
		a.shown = &h
	}
	return a.shown
}

// SetResult implements internal.Attempt.
func (a *attempt) SetResult(v json.RawMessage) error {
	v, err := a.r.c.encodeValue(a.r.base, "result", v, ojs.MaxResult)
	if err != nil {
		return err
	}
	a.r.c.mu.Lock()
	defer a.r.c.mu.Unlock()
	a.result = v
	return nil
}

// Now implements internal.Attempt.
func (a *attempt) Now() time.Time { return a.r.c.now() }

// Sleep implements internal.Attempt.
func (a *attempt) Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	c := a.r.c
	c.mu.Lock()
	if a.cause != nil {
		c.mu.Unlock()
		return a.cause
	}
	p := a.park(d, true)
	c.mu.Unlock()
	return p.Wait(ctx)
}

// Park implements internal.Attempt.
func (a *attempt) Park(ctx context.Context, d time.Duration) internal.Parked {
	a.r.c.mu.Lock()
	defer a.r.c.mu.Unlock()
	return a.park(d, ctx.Err() == nil)
}

// park begins a sleep. Goroutines of one handler may sleep side by side. The first of
// them stands for the handler, until that returns. core.mu is held.
func (a *attempt) park(d time.Duration, stands bool) *parked {
	first := a.sleep == nil && !a.returned
	p := &parked{a, a.r.sleeps.New(d, first && stands)}
	if first {
		a.sleep = p.s
	}
	return p
}

// parked is a sleep of an attempt.
type parked struct {
	a *attempt
	s *sleeps.Sleep
}

// Wait implements internal.Parked.
func (p *parked) Wait(ctx context.Context) error {
	err := p.s.Wait(ctx)
	p.a.r.c.mu.Lock()
	defer p.a.r.c.mu.Unlock()
	if p.a.sleep == p.s {
		p.a.sleep = nil
	}
	return err
}

// Wake implements internal.Parked.
func (p *parked) Wake() { p.s.WakeNow() }

// Run implements internal.Attempt.
func (a *attempt) Run() (id any, slots int) { return a.r, a.r.c.concurrency }

// AfterFunc implements internal.Attempt.
func (a *attempt) AfterFunc(d time.Duration, f func()) (stop func()) {
	c := a.r.c
	t := &scheduler.Timer{Func: func(time.Time) {
		c.mu.Lock()
		s := a.sleep
		s.Doubt() // f may end what the handler sleeps in
		c.mu.Unlock()
		f()
		s.Decided()
	}}
	a.r.sched.Set(t, c.clock.Now().Add(d))
	return func() { a.r.sched.Cancel(t) }
}

// progressEvery is how often progress is stored and published at most.
const progressEvery = time.Second

// Progress implements internal.Attempt.
func (a *attempt) Progress(p float64) {
	c := a.r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if math.IsNaN(p) || a.phase != running || p <= a.progress {
		return
	}
	a.progress = min(p, 1)
	if !a.flushAt.IsZero() {
		return
	}
	now := c.now()
	if a.flushAt = a.flushed.Add(progressEvery); !now.Before(a.flushAt) {
		a.renew(now)
	}
	a.arm()
}

// Heartbeat implements internal.Attempt.
func (a *attempt) Heartbeat() error { return a.extend(nil, ojs.EventHeartbeat) }

// SaveCheckpoint implements internal.Attempt.
func (a *attempt) SaveCheckpoint(v json.RawMessage) error {
	v, err := a.r.c.encodeValue(a.r.base, "checkpoint", v, ojs.MaxCheckpoint)
	if err != nil {
		return err
	}
	return a.extend(v, ojs.EventCheckpointed)
}

// Checkpoint implements internal.Attempt.
func (a *attempt) Checkpoint() (json.RawMessage, error) {
	a.r.c.mu.Lock()
	stored := a.checkpoint
	a.r.c.mu.Unlock()
	return a.r.c.decodeValue(a.r.base, a.rec, stored)
}

// extend renews the lease now and stores what the attempt has come to. The handler's
// context does not end it: a handler that has been told to stop may well save where it
// is.
func (a *attempt) extend(checkpoint json.RawMessage, event ojs.EventType) error {
	c := a.r.c
	c.mu.Lock()
	if a.phase != running {
		defer c.mu.Unlock()
		return a.gone()
	}
	if a.inTx {
		defer c.mu.Unlock()
		return errCompleting
	}
	x := storage.Extension{Held: a.held(), Progress: a.progress, Checkpoint: checkpoint, Lease: c.lease}
	c.mu.Unlock()

	now := c.now()
	lost, err := c.extend(a.r.base, now, a.rec, x, event)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if lost {
		a.r.lose(a.held(), ojs.ErrLeaseLost)
		return a.gone()
	}
	a.stored = x.Progress
	a.renewAt = now.Add(a.renewalInterval())
	if checkpoint != nil {
		a.checkpoint = checkpoint
	}
	return nil
}

// extend renews the lease of a job for an attempt, here or of a worker, with an event of
// that. It reports whether the attempt has lost the job.
func (c *core) extend(
	ctx context.Context, now time.Time, rec *storage.Record, x storage.Extension, event ojs.EventType,
) (lost bool, err error) {
	op := c.began(rec, event)
	defer op.End()
	list, err := c.store.Extend(ctx, now, []storage.Extension{x})
	if lost = len(list) > 0; err == nil && !lost && op != nil {
		extended := *rec
		extended.Progress = x.Progress
		c.transition(op, &extended, rec.Version, eventlog.None, now,
			ojs.Event{Type: event, WorkerID: rec.Worker, Until: now.Add(rec.LeaseFor(x.Lease))})
	}
	return lost, err
}

// Lookup implements internal.Attempt.
func (a *attempt) Lookup(ctx context.Context, id string) (*ojs.JobInfo, error) {
	job, err := a.r.c.lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	return a.r.c.jobs().Decode(ctx, job)
}

// gone says why the attempt has lost its job. core.mu is held.
func (a *attempt) gone() error {
	if a.cause != nil {
		return a.cause
	}
	return ojs.ErrLeaseLost
}
