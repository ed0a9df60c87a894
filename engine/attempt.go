package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
)

// attempt is one run of a job by this engine.
type attempt struct {
	r       *run
	rec     storage.Record // as claimed
	handler handler.Handler
	header  ojs.JobHeader // the handler's copy
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   scheduler.Timer // the next of the times below

	deadline time.Time // of its timeout, or of the job's total timeout
	limit    time.Duration
	total    bool

	// Guarded by core.mu.
	phase   phase
	cause   error     // why ctx has ended before the handler returned; nil: it has not
	renewAt time.Time // when the lease wants renewing
	forceAt time.Time // when the job is settled without the handler; zero until the deadline
	sleep   *sleep    // what the handler waits for
	result  json.RawMessage
	traced  context.Context // what tracers made of ctx; nil: there are none

	progress   float64   // as reported
	stored     float64   // of it, in the storage
	flushAt    time.Time // when the progress may be stored next; zero: nothing is waiting to be
	flushed    time.Time // when it was stored last
	checkpoint json.RawMessage

	stuckAt  time.Time // when the handler counts as stuck unless it has returned; zero until its context ends
	replaced bool      // its slot has been
	returned bool      // the handler has
	storing  bool      // its slot is another's while its outcome is stored
}

// phase tells who may settle an attempt: the first who takes it from running.
type phase uint8

const (
	running  phase = iota // the handler, or the clock on its behalf
	settling              // somebody does
	over                  // nobody any more
)

// begin makes an attempt of a claimed job. It wants core.mu.
func (r *run) begin(rec *storage.Record) *attempt {
	now := rec.StartedAt
	a := &attempt{r: r, rec: *rec, limit: rec.Timeout, deadline: now.Add(rec.Timeout)}
	a.checkpoint = rec.Checkpoint
	a.handler, _ = r.c.registry.lookup(rec.Type)
	a.header = rec.Copy().JobHeader
	inner, cancel := context.WithCancelCause(r.base)
	a.ctx, a.cancel = attemptContext{inner, a}, cancel
	if rec.TotalTimeout > 0 {
		if end := rec.CreatedAt.Add(rec.TotalTimeout); !end.After(a.deadline) {
			a.deadline, a.limit, a.total = end, rec.TotalTimeout, true
		}
	}
	a.renewAt = now.Add(renewalInterval(rec.Lease))
	a.timer.Func = a.tick
	r.attempts[a.held()] = a
	if r.closed() {
		a.end(ojs.ErrShutdown)
	}
	r.c.wakeAt(rec.WakeAt())
	a.arm()
	return a
}

// held names the attempt: the job, and the version that its claim gave it.
func (a *attempt) held() storage.Held { return storage.Held{ID: a.rec.ID, Version: a.rec.Version} }

// renewalInterval leaves time for another renewal if one fails.
func renewalInterval(lease time.Duration) time.Duration { return lease / 3 }

// next is when tick has something to do, zero if never.
func (a *attempt) next() time.Time {
	var at time.Time
	if a.phase != over {
		at = a.renewAt
	}
	if a.phase == running {
		if a.forceAt.IsZero() {
			at = earliest(at, a.deadline)
		}
		at = earliest(at, a.forceAt)
		at = earliest(at, a.flushAt)
	}
	return earliest(at, a.stuckAt)
}

// earliest returns the earlier of two times, of which a zero one is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// arm sets the attempt's timer. It wants core.mu.
func (a *attempt) arm() {
	if at := a.next(); !at.IsZero() {
		a.r.sched.Set(&a.timer, at)
	} else {
		a.r.sched.Cancel(&a.timer)
	}
}

// tick does what the clock asks of an attempt: renew its lease, end its context at the deadline, give up on its handler a
// grace period later, and report a handler that goes on after all that.
func (a *attempt) tick(now time.Time) {
	c := a.r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	if a.phase != over && (due(a.renewAt) || due(a.flushAt)) { // also while a storage fails to store the outcome
		a.renew(now)
	}
	if a.phase == running {
		switch {
		case a.forceAt.IsZero() && due(a.deadline):
			a.forceAt = now.Add(c.grace)
			a.end(ojs.ErrTimeout)
		case due(a.forceAt):
			a.phase = settling
			a.r.keeper.force(a)
		}
	}
	if due(a.stuckAt) {
		a.stuckAt = time.Time{}
		a.r.keeper.report(a)
	}
	a.arm()
}

// renew has the lease renewed and the progress stored. It wants core.mu.
func (a *attempt) renew(now time.Time) {
	a.renewAt = now.Add(renewalInterval(a.rec.Lease))
	a.flushAt, a.flushed = time.Time{}, now
	a.r.keeper.renew(a)
}

// end ends the attempt's context. The first cause holds. It wants core.mu.
func (a *attempt) end(cause error) {
	if a.cause != nil {
		return
	}
	a.cause = cause
	if a.sleep != nil {
		a.sleep.wake() // or it would count as asleep while it wakes up
	}
	if !a.returned {
		a.stuckAt = a.r.c.now().Add(max(a.r.c.grace, lastCall))
		a.arm()
	}
	a.cancel(cause)
}

// lose ends an attempt whose job is not its own any more: what its handler returns is dropped. It reports whether there is
// one. An attempt that is not known may have been claimed by a worker that does not know yet; it is then lost when it begins.
// It wants core.mu.
func (r *run) lose(held storage.Held, cause error) bool {
	if a := r.attempts[held]; a != nil {
		a.phase = over
		a.end(cause)
		a.arm()
		return true
	}
	if r.searching > 0 {
		r.lostEarly[held] = true
	}
	return false
}

// forget takes an attempt whose handler has returned out of the books. It wants core.mu.
func (r *run) forget(a *attempt) {
	r.sched.Cancel(&a.timer)
	delete(r.attempts, a.held())
}

// perform runs the handler, for tracers too. If the handler calls runtime.Goexit it does not return.
func (a *attempt) perform() (o policy.Outcome) {
	if !a.r.c.tracing() {
		return a.call(a.ctx)
	}
	ctx, end := a.r.c.trace(a.ctx, OpProcess, &a.rec)
	a.r.c.mu.Lock()
	a.traced = ctx
	a.r.c.mu.Unlock()
	o.Err = errExited
	defer func() { end(o.Err) }()
	o = a.call(ctx)
	return o
}

var errExited = &ojs.Error{Type: ojs.TypeGoexit, Message: "ojs: the handler called runtime.Goexit"}

// call runs the handler in a context made from the attempt's.
func (a *attempt) call(ctx context.Context) (o policy.Outcome) {
	defer a.cancel(context.Canceled) // what the handler left behind ends too
	defer func() {
		if p := recover(); p != nil {
			o = panicked(handler.NewPanicError(p))
		}
	}()
	header := a.header
	err := a.handler.Run(ctx, &header, a.rec.Args)
	if err == nil {
		return policy.Outcome{Kind: policy.Returned}
	}
	// Middlewares may have wrapped what the engine has to know of. errors.As would follow a circle for ever.
	inner := err
	for range 100 {
		switch e := inner.(type) {
		case *handler.UndecodableError:
			if e != nil {
				return policy.Outcome{Kind: policy.Undecodable, Err: e.Err}
			}
		case *handler.PanicError:
			if e != nil {
				return panicked(e)
			}
		case *handler.TimeoutError:
			if e != nil {
				return policy.Outcome{Kind: policy.TimedOut, Err: e.Err, Limit: e.Limit}
			}
		case interface{ Unwrap() error }:
			inner = e.Unwrap()
			continue
		}
		break
	}
	return policy.Outcome{Kind: policy.Returned, Err: err}
}

// panicError is what a handler panicked with, as an error.
type panicError string

func (e panicError) Error() string   { return string(e) }
func (panicError) ErrorType() string { return ojs.TypePanic }

func panicked(p *handler.PanicError) policy.Outcome {
	// What was panicked with may be an error with a response code; a panic does not answer, so it is not in the chain.
	return policy.Outcome{Kind: policy.Panicked, Err: panicError(p.Error()), Backtrace: p.Backtrace}
}

// attemptContext is a handler's context: it knows its attempt and, on the system's clock, its deadline. A virtual deadline
// would mislead whoever compares it with the time of day.
type attemptContext struct {
	context.Context
	a *attempt
}

func (c attemptContext) Value(key any) any {
	if key == (internal.Key{}) {
		return c.a
	}
	return c.Context.Value(key)
}

func (c attemptContext) Deadline() (time.Time, bool) {
	if c.a.r.c.mocked {
		return time.Time{}, false
	}
	return c.a.deadline, true
}
