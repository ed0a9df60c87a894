package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
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
}

// phase tells who may settle an attempt: the first who takes it from running.
type phase uint8

const (
	running  phase = iota // the handler, or the clock on its behalf
	settling              // somebody does
	over                  // nobody any more
)

// begin makes an attempt of a claimed job. It wants core.mu.
func (r *run) begin(rec *storage.Record, now time.Time) *attempt {
	a := &attempt{r: r, rec: *rec, limit: rec.Timeout, deadline: now.Add(rec.Timeout)}
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
	r.wakeAt(rec.WakeAt())
	r.sched.Set(&a.timer, a.next())
	return a
}

// held names the attempt: the job, and the version that its claim gave it.
func (a *attempt) held() storage.Held { return storage.Held{ID: a.rec.ID, Version: a.rec.Version} }

// renewalInterval leaves time for another renewal if one fails.
func renewalInterval(lease time.Duration) time.Duration { return lease / 3 }

// next is when tick has something to do.
func (a *attempt) next() time.Time {
	at := a.deadline
	if !a.forceAt.IsZero() {
		at = a.forceAt
	}
	if a.renewAt.Before(at) {
		at = a.renewAt
	}
	return at
}

// tick does what the clock asks of an attempt: renew its lease, end its context at the deadline, give up on its handler a
// grace period later.
func (a *attempt) tick(now time.Time) {
	c := a.r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.phase == over {
		return
	}
	if !now.Before(a.renewAt) {
		a.r.keeper.renew(a)
		a.renewAt = now.Add(renewalInterval(a.rec.Lease))
	}
	if a.phase == settling { // a storage that fails: keep the job until its outcome is stored
		a.r.sched.Set(&a.timer, a.renewAt)
		return
	}
	switch {
	case a.forceAt.IsZero() && !now.Before(a.deadline):
		a.forceAt = now.Add(c.grace)
		a.end(ojs.ErrTimeout)
	case !a.forceAt.IsZero() && !now.Before(a.forceAt):
		a.phase = settling
		a.r.keeper.force(a)
	}
	a.r.sched.Set(&a.timer, a.next())
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
	a.cancel(cause)
}

// lose ends an attempt whose job is not its own any more: what its handler returns is dropped. An attempt that is not known
// may have been claimed by a worker that does not know yet; it is then lost when it begins. It wants core.mu.
func (r *run) lose(id string, version uint64, cause error) {
	held := storage.Held{ID: id, Version: version}
	if a := r.attempts[held]; a != nil {
		a.phase = over
		a.end(cause)
	} else if r.searching > 0 {
		r.lostEarly[held] = true
	}
}

// forget takes an attempt whose handler has returned out of the books. It wants core.mu.
func (r *run) forget(a *attempt) {
	r.sched.Cancel(&a.timer)
	delete(r.attempts, a.held())
}

// call runs the handler. If the handler calls runtime.Goexit it does not return.
func (a *attempt) call() (o policy.Outcome) {
	defer a.cancel(context.Canceled) // what the handler left behind ends too
	defer func() {
		if p := recover(); p != nil {
			o = policy.Outcome{Kind: policy.Panicked, Err: fmt.Errorf("panic: %v", p), Backtrace: backtrace()}
		}
	}()
	header := a.header
	err := a.handler.Run(a.ctx, &header, a.rec.Args)
	if bad, ok := err.(*handler.UndecodableError); ok && bad != nil {
		return policy.Outcome{Kind: policy.Undecodable, Err: bad.Err}
	}
	return policy.Outcome{Kind: policy.Returned, Err: err}
}

// backtrace lists the frames of a panic, the one that panicked first, without those of the runtime and of the engine.
func backtrace() []string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	var list []string
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "engine.(*attempt).call") {
			return list
		}
		if len(list) > 0 || !strings.HasPrefix(f.Function, "runtime.") {
			list = append(list, fmt.Sprintf("%s %s:%d", f.Function, f.File, f.Line))
		}
		if !more {
			return list
		}
	}
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

var _ internal.Attempt = (*attempt)(nil)

// Header implements internal.Attempt.
func (a *attempt) Header() *ojs.JobHeader { return &a.header }

// Logger implements internal.Attempt.
func (a *attempt) Logger() *slog.Logger { return a.r.c.jobLog(&a.rec.JobHeader) }

// SetResult implements internal.Attempt.
func (a *attempt) SetResult(v json.RawMessage) {
	a.r.c.mu.Lock()
	defer a.r.c.mu.Unlock()
	a.result = v
}

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
	// Goroutines of one handler may sleep side by side. The first of them stands for the handler.
	s := a.r.newSleep(d, a.sleep == nil)
	if s.counts {
		a.sleep = s
	}
	c.mu.Unlock()
	err := s.wait(ctx)
	c.mu.Lock()
	if a.sleep == s {
		a.sleep = nil
	}
	c.mu.Unlock()
	return err
}
