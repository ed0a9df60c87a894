package attempts

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/joblog"
	"github.com/ojsengine/ojs/engine/internal/jobtypes"
	"github.com/ojsengine/ojs/engine/internal/settle"
	"github.com/ojsengine/ojs/engine/internal/sleeps"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/internal/outcome"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/telemetry"
)

// attempt is one run of a job by this engine. Once its outcome is stored, a later attempt
// may have its memory; see reusable.
type attempt struct {
	rec *storage.Record // as claimed; own[0]
	own [1]storage.Record
	life
}

// life is the part of an attempt that the next one in its memory does not take over.
type life struct {
	r          *Run
	kind       *jobtypes.JobType
	ctx        internal.Frame // the handler's
	context    *internal.Context
	owner      internal.Owner
	header     *ojs.JobHeader    // the handler's copy
	at         int               // in Run.attempts
	settlement settle.Settlement // unless a caller may have the attempt; see decide
	claimed    time.Time         // when it was
	started    atomic.Bool       // its handler may have been called
	late       atomic.Int64      // how many ns after the claim that was

	deadline time.Time // of its timeout, or of the job's total timeout, when it was claimed

	// Guarded by mu of Attempts.
	phase     phase
	cause     error         // why ctx has ended before the handler returned; nil: it has not
	renewAt   time.Time     // when the lease wants renewing
	unrenewed bool          // the storage has failed to renew it
	forceAt   time.Time     // when the job is settled without the handler; zero until the deadline
	sleep     *sleeps.Sleep // what the handler waits in, or has waited in last

	inTx      bool               // a transaction of the handler's may hold the job's row; see Complete
	completed *settle.Settlement // that it stores; nil: none
	stores    storage.Settled    // the result of that

	reported
	stored  float64   // of the progress, in the storage
	flushAt time.Time // when the progress may be stored next; zero: nothing is waiting to be
	flushed time.Time // when it was stored last

	stuckAt  time.Time      // when a handler that has not returned is stuck; zero until its context ends
	stuck    bool           // it is reported as stuck
	returned bool           // the handler has
	kept     bool           // a chore has had it, or a storage that has failed
	shown    *ojs.JobHeader // what handler.Job returns; nil until its first call
}

// phase tells which goroutine may settle an attempt: the first to take it from running.
type phase uint8

const (
	running  phase = iota // the handler's goroutine may take it, or the clock on its behalf
	settling              // a goroutine has taken it
	over                  // it is settled, lost or given back
)

var attempts = sync.Pool{New: func() any {
	a := new(attempt)
	a.rec = &a.own[0]
	return a
}}

// prepare makes an attempt of the claimed job that is in its record.
func (a *attempt) prepare(r *Run) {
	rec := a.rec
	now := rec.StartedAt
	a.r, a.claimed, a.deadline = r, now, env.TimesOut(rec, now)
	a.checkpoint = rec.Checkpoint
	a.kind = r.c.Types.Registry.Lookup(rec.Type, rec.TypeVersion)
	a.ctx = a.kind.Frame()
	a.context, a.header = a.ctx.Parts()
	*a.header = env.Detached(rec)
	var shown time.Time
	if !r.c.Mocked { // a virtual deadline means nothing beside the time of day
		shown = a.deadline
	}
	a.owner = internal.Owner{Run: r.contexts, Attempt: a}
	a.context.Begin(&a.owner, shown)
	a.renewAt = now.Add(a.renewalInterval())
}

// held names the attempt: the job, and the version that its claim gave it.
func (a *attempt) held() storage.Held { return storage.Held{ID: a.rec.ID, Version: a.rec.Version} }

// renewalInterval leaves time for another renewal if one fails.
func (a *attempt) renewalInterval() time.Duration { return a.rec.LeaseFor(a.r.c.Lease) / 3 }

// next is when tick has something to do, zero if never.
func (a *attempt) next() time.Time {
	var at time.Time
	if a.phase == running && a.forceAt.IsZero() {
		at = a.overdue()
	}
	if !a.inTx {
		if a.phase != over {
			at = times.Earliest(at, a.renewAt)
		}
		if a.phase == running {
			at = times.Earliest(at, a.forceAt)
			at = times.Earliest(at, a.flushAt)
		}
	}
	return times.Earliest(at, a.stuckAt)
}

// look does what the clock asks of the attempts.
func (r *Run) look(now time.Time) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	for _, a := range r.attempts {
		a.tick(now)
	}
}

// Punctual makes the timer of the attempts wait for what any of them needs, and for
// nothing else.
func (r *Run) Punctual() {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	var next time.Time
	for _, a := range r.attempts {
		next = times.Earliest(next, a.next())
	}
	r.looking.Exactly(next)
}

// Join counts the attempts of a queue in its limit. No attempt ends meanwhile.
func (c *Attempts) Join(queue string) {
	r := c.Run.Load()
	if r == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []storage.Held
	for _, a := range r.attempts {
		if a.rec.Queue == queue && !(a.phase == over && a.returned) {
			list = append(list, a.held())
		}
	}
	c.Admission.Gate.Join(queue, list)
}

// began is when the attempt started; before its start, when it was claimed. Time spent in
// the local queue is not running time.
func (a *attempt) began() time.Time { return a.claimed.Add(time.Duration(a.late.Load())) }

// overdue is when the attempt times out.
func (a *attempt) overdue() time.Time { return env.TimesOut(a.rec, a.began()) }

// perform runs the handler, for tracers too. If the handler calls runtime.Goexit it does
// not return.
func (a *attempt) perform() (o policy.Outcome) {
	if !a.r.c.Tracing() {
		return a.call(a.ctx)
	}
	ctx, end := a.r.c.Trace(a.ctx, telemetry.OpProcess, a.rec)
	a.r.c.mu.Lock()
	a.traced = ctx
	a.r.c.mu.Unlock()
	o.Err = outcome.Exited
	defer func() { end(o.Err) }()
	return a.call(ctx)
}

// call runs the handler in a context made from the attempt's.
func (a *attempt) call(ctx context.Context) (o policy.Outcome) {
	defer a.context.Return() // what the handler left behind ends too
	defer func() {
		if p := recover(); p != nil {
			o = outcome.Panicked(handler.NewPanicError(p))
		}
	}()
	args, decoded, err := a.r.c.PlainArgs(ctx, a.rec)
	if err != nil {
		return policy.Outcome{Kind: policy.Returned, Err: err}
	}
	err = a.kind.Handler.Run(ctx, a.header, args)
	runtime.KeepAlive(a) // stacks must show it until then: see stackIn
	if err == nil {
		return policy.Outcome{Kind: policy.Returned}
	}
	return outcome.Of(err, decoded, a.kind.Handler.ArgsType())
}

// Header implements internal.Attempt.
func (a *attempt) Header() *ojs.JobHeader {
	a.r.c.mu.Lock()
	defer a.r.c.mu.Unlock()
	if a.shown == nil {
		h := env.Detached(a.rec)
		a.shown = &h
	}
	return a.shown
}

// SetResult implements internal.Attempt.
func (a *attempt) SetResult(v json.RawMessage) error {
	v, err := a.r.c.EncodeValue(a.r.Base, "result", v, jsonvalue.MaxResult)
	if err != nil {
		return err
	}
	a.r.c.mu.Lock()
	defer a.r.c.mu.Unlock()
	a.result = v
	return nil
}

// Now implements internal.Attempt.
func (a *attempt) Now() time.Time { return a.r.c.Now() }

// Sleep implements internal.Attempt.
func (a *attempt) Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	return a.Park(ctx, d).Wait(ctx)
}

// Park implements internal.Attempt.
func (a *attempt) Park(ctx context.Context, d time.Duration) internal.Parked {
	a.r.c.mu.Lock()
	defer a.r.c.mu.Unlock()
	return a.park(d, ctx.Err() == nil)
}

// Run implements internal.Attempt.
func (a *attempt) Run() (id any, slots int) { return a.r, a.r.c.Slots() }

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
	a.r.Sched.Set(t, c.Clock.Now().Add(d))
	return func() { a.r.Sched.Cancel(t) }
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
	now := c.Now()
	if a.flushAt = a.flushed.Add(progressEvery); !now.Before(a.flushAt) {
		a.renew(now)
	}
	a.arm()
}

// Heartbeat implements internal.Attempt.
func (a *attempt) Heartbeat() error { return a.extend(nil, event.Heartbeat) }

// SaveCheckpoint implements internal.Attempt.
func (a *attempt) SaveCheckpoint(v json.RawMessage) error {
	v, err := a.r.c.EncodeValue(a.r.Base, "checkpoint", v, jsonvalue.MaxCheckpoint)
	if err != nil {
		return err
	}
	return a.extend(v, event.Checkpointed)
}

// Checkpoint implements internal.Attempt.
func (a *attempt) Checkpoint() (json.RawMessage, error) {
	a.r.c.mu.Lock()
	stored := a.checkpoint
	a.r.c.mu.Unlock()
	return a.r.c.DecodeValue(a.r.Base, a.rec, stored)
}

// extend renews the lease now and stores what the attempt has come to. The handler's
// context does not end it: a handler that has been told to stop may well save where it
// is.
func (a *attempt) extend(checkpoint json.RawMessage, typ event.Type) error {
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
	x := storage.Extension{Held: a.held(), Progress: a.progress, Checkpoint: checkpoint, Lease: c.Lease}
	c.mu.Unlock()

	now := c.Now()
	lost, err := c.Settle.Extend(a.r.Base, now, a.rec, x, typ)
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

// Lookup implements internal.Attempt.
func (a *attempt) Lookup(ctx context.Context, id string) (*ojs.JobInfo, error) {
	job, err := a.r.c.Lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	return a.r.c.Jobs.Decode(ctx, job)
}

// Logger implements internal.Attempt.
func (a *attempt) Logger() *slog.Logger {
	c := a.r.c
	log := c.JobLog(&a.rec.JobHeader)
	if c.JobLogs == nil {
		return log
	}
	c.mu.Lock()
	if a.lines == nil {
		if a.lines = new(joblog.Lines); !a.returned {
			a.r.logging[a.rec.ID] = a
		}
	}
	to := a.lines
	c.mu.Unlock()
	return slog.New(to.Tee(log.Handler(), *c.JobLogs, c.Now))
}

// mu is held in the rest.

// begin enters an attempt in r.attempts.
func (r *Run) begin(a *attempt) {
	a.at = len(r.attempts)
	r.attempts = append(r.attempts, a)
	if r.closed() {
		a.end(ojs.ErrShutdown)
	}
	r.c.WakeAt(a.rec.WakeAt())
	r.looking.By(times.Earliest(a.renewAt, a.deadline))
}

// arm sees to it that the attempt is looked at when it has something to do. One timer
// serves all attempts of a run, for the earliest that any of them has asked for. Almost
// all attempts end before their times come, and the timer stays as it is then: it fires
// for nothing now and then, which costs less than setting it for each.
func (a *attempt) arm() {
	a.r.looking.By(a.next())
}

// tick does what the clock asks of an attempt: renew its lease, end its context at the
// deadline, give up on its handler a grace period later, and report a handler that goes
// on after all that.
func (a *attempt) tick(now time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	// Also while a storage fails to store the outcome.
	if a.phase != over && !a.inTx && (due(a.renewAt) || due(a.flushAt)) {
		a.renew(now)
	}
	if a.phase == running && a.started.Load() {
		switch {
		case a.forceAt.IsZero() && due(a.overdue()):
			a.forceAt = now.Add(a.r.c.Grace)
			a.end(ojs.ErrTimeout)
		case due(a.forceAt) && !a.inTx:
			a.phase = settling
			a.r.overrun = append(a.r.overrun, a)
			a.r.Leases.Poke()
		}
	}
	if due(a.stuckAt) {
		a.stuckAt = time.Time{}
		a.kept = true // reportStuck reads its record
		a.r.unreported = append(a.r.unreported, a)
		a.r.Leases.Poke()
	}
	switch {
	case a.started.Load():
		a.arm()
	case a.phase != over: // one that has lost its job wants nothing
		if end := env.TimesOut(a.rec, now); now.Before(end) { // the earliest, since it starts later
			a.r.looking.By(end)
		}
		a.r.looking.By(a.renewAt)
	}
}

// renew has the lease renewed and the progress stored.
func (a *attempt) renew(now time.Time) {
	a.renewAt = now.Add(a.renewalInterval())
	a.flushAt, a.flushed = time.Time{}, now
	a.kept = true
	a.r.renewals = append(a.r.renewals, a)
	a.r.Leases.Poke()
}

// end ends the attempt's context. The first cause holds.
func (a *attempt) end(cause error) {
	if a.cause != nil {
		return
	}
	a.cause = cause
	a.sleep.Doubt() // or it would count as asleep while it wakes up
	a.context.Cancel(cause)
	if !a.returned && a.started.Load() { // if it starts from here on it finds its context ended
		a.stuckAt = a.r.c.Now().Add(max(a.r.c.Grace, LastCall))
		a.arm()
	}
	a.sleep.Decided()
}

// returns notes that the handler has returned. If the handler has left a goroutine behind
// in Sleep, that sleep stands for no goroutine.
func (a *attempt) returns() {
	a.returned, a.stuckAt = true, time.Time{}
	a.sleep.End()
	a.sleep = nil
}

// lose ends an attempt that has lost its job: what its handler returns is dropped. It
// reports whether there is one.
func (r *Run) lose(held storage.Held, cause error) bool {
	for _, a := range r.attempts {
		if a.rec.Version == held.Version && a.rec.ID == held.ID {
			a.phase = over
			a.end(cause)
			a.arm()
			return true
		}
	}
	return false
}

// reusable reports whether another job may have the memory of an attempt that is over and
// not in r.attempts: not if its handler may have it (the settlement is then one of its
// own), nor if the clock, an operator or a stop dealt with it and may have it on a list.
// If so it clears the attempt of what would keep its job alive.
func (a *attempt) reusable(f *settle.Settlement) bool {
	if f != &a.settlement || a.cause != nil || a.kept {
		return false
	}
	a.life = life{}
	r := a.rec
	if r.Meta != nil || r.Errors != nil || r.History != nil || r.Error != nil || r.Result != nil ||
		r.Checkpoint != nil || r.Extra != nil {
		*r = storage.Record{}
	}
	r.Args = ojs.Args{}
	return true
}

// park begins a sleep. Goroutines of one handler may sleep side by side. The first of
// them stands for the handler, until that returns.
func (a *attempt) park(d time.Duration, stands bool) *sleeps.Sleep {
	first := !a.sleep.Waits() && !a.returned
	s := a.r.sleeps.New(d, first && stands)
	if first {
		a.sleep = s
	}
	return s
}

// gone says why the attempt has lost its job.
func (a *attempt) gone() error {
	if a.cause != nil {
		return a.cause
	}
	return ojs.ErrLeaseLost
}
