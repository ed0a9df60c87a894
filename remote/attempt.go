package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/outcome"
	"github.com/ojsengine/ojs/policy"
)

// attempt is one attempt of a job that the worker has fetched. Its handler speaks to it
// by the functions of package handler.
//
//  1. One goroutine runs the handler, settles the attempt, and removes it from the run.
//  2. The attempt's timer, the heartbeats and a stop end its context. The first cause
//     holds.
//  3. If the handler goes on after the last call of a stop, the stop takes the attempt
//     over, and what the handler returns is dropped.
type attempt struct {
	r        *run
	job      *ojs.JobInfo
	handler  *registered
	invalid  error // the job does not decode
	full     bool  // the handler has no free slot
	ctx      context.Context
	cancel   context.CancelCauseFunc
	deadline time.Time // on the worker's clock

	mu         sync.Mutex // guards what follows
	cause      error      // why the context has ended; nil: it has not
	isLost     bool       // the server has given its job to another, or has ended it
	settled    bool       // a goroutine settles it, or has
	result     json.RawMessage
	then       []map[string]any
	checkpoint json.RawMessage // nil: none
	progress   float64
	flushing   bool // a call of flush is due
	header     *ojs.JobHeader
}

// start runs a job in a goroutine of its own, which frees its slot. A job that does not
// decode becomes a dead letter. If the handler is full, the job goes back and start
// returns false.
func (r *run) start(job *ojs.JobInfo, invalid error) bool {
	a := &attempt{r: r, job: job, handler: r.handlers.find(job.Type, job.TypeVersion), invalid: invalid}
	if v, ok := job.Extra["checkpoint"]; ok && string(v) != "null" {
		a.checkpoint = v
	}
	ctx, cancel := context.WithCancelCause(r.base)
	a.ctx, a.cancel = context.WithValue(ctx, internal.Key{}, internal.Attempt(a)), cancel
	limit := job.Timeout
	if job.TotalTimeout > 0 {
		limit = min(cmp.Or(limit, job.TotalTimeout), job.CreatedAt.Add(job.TotalTimeout).Sub(job.StartedAt))
	}
	if limit > 0 {
		a.deadline = r.clock.Now().Add(limit)
	}
	r.mu.Lock()
	before := r.held[job.ID]
	r.held[job.ID] = a
	r.mu.Unlock()
	if before != nil { // its lease has run out, although no heartbeat has said so
		before.lose(ojs.ErrLeaseLost)
	}
	if job.Lease > 0 && job.Lease/3 < beatEvery {
		select {
		case r.shorter <- struct{}{}:
		default: // the loop looks at all attempts
		}
	}
	if a.handler != nil && a.handler.slots != nil && invalid == nil {
		select {
		case a.handler.slots <- struct{}{}:
		default:
			a.full = true
		}
	}
	r.works.Go(a.perform)
	return !a.full
}

// perform runs the handler and settles the attempt, even if the handler calls
// runtime.Goexit.
func (a *attempt) perform() {
	if !a.deadline.IsZero() {
		t := a.r.clock.AfterFunc(max(a.deadline.Sub(a.r.clock.Now()), 1), func() { a.end(ojs.ErrTimeout) })
		defer t.Stop()
	}
	o := policy.Outcome{Kind: policy.Exited, Err: outcome.Exited}
	defer func() {
		a.cancel(context.Canceled) // what the handler has left behind ends, too
		a.settle(o)
		<-a.r.slots
	}()
	o = a.call()
}

// call runs the handler.
func (a *attempt) call() (o policy.Outcome) {
	if a.invalid != nil {
		return policy.Outcome{Kind: policy.Undecodable, Err: a.invalid}
	}
	if a.handler == nil {
		return policy.Outcome{Kind: policy.Returned, Err: ojs.Errorf("no_handler",
			"ojs: worker %s has no handler for job type %s", a.r.id, a.job.Type)}
	}
	switch {
	case a.full: // the job goes back
		return policy.Outcome{Kind: policy.Interrupted}
	case a.handler.slots != nil:
		defer a.r.handlers.release(a.handler)
	}
	header := a.headerCopy()
	err := a.handler.handler.Run(a.ctx, &header, a.job.Args)
	if err == nil {
		return policy.Outcome{Kind: policy.Returned}
	}
	return outcome.Of(err, false, a.handler.given.ArgsType())
}

func (a *attempt) headerCopy() ojs.JobHeader { return a.job.Clone().JobHeader }

// end ends the attempt's context. The first cause holds.
func (a *attempt) end(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause == nil {
		a.cause = cause
		a.cancel(cause)
	}
}

// lose ends an attempt whose job the server has given to another, or has ended.
func (a *attempt) lose(cause error) {
	a.mu.Lock()
	a.isLost = true
	a.mu.Unlock()
	a.end(cause)
}

// drop ends an attempt that a heartbeat's answer names as lost. Another goroutine asks
// for the cause, so that the heartbeats continue meanwhile.
func (a *attempt) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isLost || a.settled {
		return
	}
	a.isLost = true
	a.r.works.Go(func() { a.end(a.r.lostCause(a)) })
}

// beginSettle reports whether the caller is to settle the attempt: the first that asks.
func (a *attempt) beginSettle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return false
	}
	a.settled = true
	return true
}

// remove takes the attempt out of the run.
func (a *attempt) remove() {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	if a.r.held[a.job.ID] == a {
		delete(a.r.held, a.job.ID)
	}
}

// settle tells the server how the attempt has ended.
func (a *attempt) settle(o policy.Outcome) {
	if !a.beginSettle() {
		a.r.log.Debug("late result refused", a.attrs()...)
		return
	}
	defer a.remove()
	a.mu.Lock()
	cause, lost, result, then := a.cause, a.isLost, a.result, a.then
	a.mu.Unlock()
	if lost {
		a.r.log.Debug("late result refused", append(a.attrs(), "cause", cause)...)
		return
	}
	o = outcome.EndedBy(cause, o)
	if o.Kind == policy.TimedOut && o.Limit == 0 {
		o.Limit = a.job.Timeout
	}
	var hook policy.Hook
	recorded := retryHook{a: a}
	if a.handler != nil && a.handler.given.RetryHook() != nil {
		recorded.hook = a.handler.given.RetryHook()
		hook = &recorded
	}
	d := policy.Decide(a.job, o, a.r.clock.Now(), 0, hook)
	switch {
	case d.State == ojs.StateCompleted:
		a.repeat(func(ctx context.Context) error { return a.ack(ctx, result, then) })
	case d.Refunded:
		body := map[string]any{"requeue": true}
		if snooze := (*ojs.SnoozeError)(nil); foreign.As(o.Err, &snooze) && snooze.For > 0 {
			body["delay_ms"] = milliseconds(snooze.For)
			if has, err := a.r.extended(a.r.calls); err == nil && !has {
				// without the delay the job would be back at once
				body = map[string]any{"error": map[string]any{"type": "snoozed", "code": ojs.CodeRetry,
					"message": snooze.Error()}}
			}
		}
		a.repeat(func(ctx context.Context) error { return a.nack(ctx, body) })
	default:
		body := map[string]any{"error": answer(d, o)}
		after := (*ojs.RetryAfterError)(nil)
		switch {
		case d.State != ojs.StateRetryable:
		case foreign.As(o.Err, &after):
			body["retry_after_ms"] = draft.Milliseconds(max(after.After, 0))
		case recorded.delay > 0:
			body["retry_after_ms"] = milliseconds(recorded.delay)
		}
		a.repeat(func(ctx context.Context) error { return a.nack(ctx, body) })
	}
}

// retryHook asks the hook of a handler, and records the delay that it chooses: without
// one, the server's policy decides. A panic is no opinion, nor is runtime.Goexit.
type retryHook struct {
	a     *attempt
	hook  policy.Hook
	delay time.Duration
}

func (h *retryHook) ShouldRetry(job *ojs.JobInfo, err error) bool {
	retry := true
	h.call("ShouldRetry", func() { retry = h.hook.ShouldRetry(job.Clone(), err) })
	return retry
}

func (h *retryHook) Delay(job *ojs.JobInfo, err error) time.Duration {
	h.call("Delay", func() { h.delay = h.hook.Delay(job.Clone(), err) })
	return h.delay
}

func (h *retryHook) call(method string, f func()) {
	if stop := foreign.Call(f); stop != nil {
		h.a.r.log.Error("retry hook "+stop.How(), append(h.a.attrs(), "method", method, stop.Attr())...)
	}
}

// answer is the error object for a failed attempt.
func answer(d policy.Decision, o policy.Outcome) map[string]any {
	f := d.Failure
	code := f.Code
	switch d.Rule {
	case policy.RuleMarker, policy.RuleArgs:
		code = ojs.CodeDeadLetter
	case policy.RuleHook:
		code = ojs.CodeDiscard
		if d.DeadLetter {
			code = ojs.CodeDeadLetter
		}
	}
	details := f.Details
	if len(f.Backtrace) > 0 {
		details = map[string]any{"backtrace": f.Backtrace}
		for k, v := range f.Details {
			details[k] = v
		}
	}
	e := map[string]any{"type": f.Type, "message": f.Message, "code": code}
	if len(details) > 0 {
		e["details"] = details
	}
	return e
}

// repeat makes a call until the server takes or refuses the outcome. Answers of a proxy,
// or about the key, do neither. An attempt that the server has taken away is over.
func (a *attempt) repeat(call func(ctx context.Context) error) {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := call(a.r.calls)
		switch {
		case err == nil:
			return
		case errors.Is(err, ojs.ErrTransition), errors.Is(err, ojs.ErrNotFound):
			a.r.log.Debug("outcome not taken: the attempt has lost its job, or an earlier try was taken",
				append(a.attrs(), "error", err)...)
			return
		case outcomeRefused(err):
			a.refused(err)
			return
		}
		a.r.log.Warn("outcome not stored; it is sent again", append(a.attrs(), "error", err)...)
		if a.wait(pause) != nil {
			a.r.log.Error("outcome not stored; the job runs again when its worker counts as dead",
				append(a.attrs(), "error", err)...)
			return
		}
	}
}

// outcomeRefused reports whether the server will not take an outcome: it is too large,
// for example, or a job of handler.Then is a duplicate.
func outcomeRefused(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code != codeUnknown && !e.Retryable &&
		(e.Status == http.StatusBadRequest || e.Status == http.StatusRequestEntityTooLarge ||
			e.Status == http.StatusUnprocessableEntity || errors.Is(err, ojs.ErrDuplicate))
}

// wait waits before another try of a settle. A stop's last call ends it.
func (a *attempt) wait(d time.Duration) error {
	select {
	case <-a.r.closing:
		return ojs.ErrShutdown
	default:
	}
	t := a.r.clock.Timer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-a.r.closing:
		return ojs.ErrShutdown
	}
}

// refused fails an attempt whose outcome the server does not accept, such as a result
// that is too large for it.
func (a *attempt) refused(err error) {
	a.r.log.Error("the server refuses an outcome; the attempt has failed", append(a.attrs(), "error", err)...)
	body := map[string]any{"error": map[string]any{"type": policy.ErrorTypeError, "message": err.Error()}}
	if err := a.nack(a.r.calls, body); err != nil {
		a.r.log.Error("outcome not stored; the job runs again when its lease has run out",
			append(a.attrs(), "error", err)...)
	}
}

func (a *attempt) ack(ctx context.Context, result json.RawMessage, then []map[string]any) error {
	body := map[string]any{"job_id": a.job.ID, "worker_id": a.r.id, "attempt": a.job.Attempt}
	if result != nil {
		body["result"] = result
	}
	if then != nil {
		body["then"] = then
	}
	return a.r.do(ctx, &request{method: http.MethodPost, path: "/workers/ack", body: body, most: 1})
}

func (a *attempt) nack(ctx context.Context, body map[string]any) error {
	body["job_id"], body["worker_id"], body["attempt"] = a.job.ID, a.r.id, a.job.Attempt
	return a.r.do(ctx, &request{method: http.MethodPost, path: "/workers/nack", body: body, most: 1})
}

func (a *attempt) attrs() []any {
	return []any{"component", "worker", "ojs.job_id", a.job.ID, "ojs.job_type", a.job.Type,
		"ojs.queue", a.job.Queue, "ojs.attempt", a.job.Attempt}
}

// Header implements internal.Attempt.
func (a *attempt) Header() *ojs.JobHeader {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.header == nil {
		h := a.headerCopy()
		a.header = &h
	}
	return a.header
}

// Logger implements internal.Attempt.
func (a *attempt) Logger() *slog.Logger { return a.r.log.With(a.attrs()[2:]...) }

// SetResult implements internal.Attempt.
func (a *attempt) SetResult(v json.RawMessage) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.result = v
	return nil
}

// Now implements internal.Attempt.
func (a *attempt) Now() time.Time { return a.r.clock.Now() }

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

// parked is a wait of a handler's goroutine.
type parked struct {
	a     *attempt
	d     time.Duration
	woken chan struct{}
}

// Park implements internal.Attempt.
func (a *attempt) Park(_ context.Context, d time.Duration) internal.Parked {
	return &parked{a, d, make(chan struct{}, 1)}
}

// Wait implements internal.Parked.
func (p *parked) Wait(ctx context.Context) error {
	var over <-chan time.Time
	if p.d >= 0 {
		t := p.a.r.clock.Timer(p.d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-p.woken:
	case <-over:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Wake implements internal.Parked.
func (p *parked) Wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// Run implements internal.Attempt.
func (a *attempt) Run() (id any, slots int) { return a.r, a.r.concurrency }

// AfterFunc implements internal.Attempt.
func (a *attempt) AfterFunc(d time.Duration, f func()) (stop func()) {
	t := a.r.clock.AfterFunc(d, f)
	return func() { t.Stop() }
}

// progressEvery is how often progress is sent at most.
const progressEvery = time.Second

// Progress implements internal.Attempt.
func (a *attempt) Progress(p float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if math.IsNaN(p) || p <= a.progress || a.settled || a.cause != nil {
		return
	}
	a.progress = min(p, 1)
	if !a.flushing {
		a.flushing = true
		a.r.works.Go(a.flush)
	}
}

// flush sends the progress, and again after a second if there is more by then.
func (a *attempt) flush() {
	for sent := 0.0; ; {
		a.mu.Lock()
		p := a.progress
		if p == sent || a.settled {
			a.flushing = false
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		err := a.r.do(a.ctx, &request{method: http.MethodPut, path: "/jobs/" + segment(a.job.ID) +
			"/progress",
			body: map[string]any{"progress": p, "worker_id": a.r.id, "attempt": a.job.Attempt}, most: 1})
		if err != nil {
			a.r.log.Debug("progress not stored", append(a.attrs(), "error", err)...)
		}
		sent = p
		_ = a.r.sleep(a.ctx, progressEvery)
	}
}

// Heartbeat implements internal.Attempt.
func (a *attempt) Heartbeat() error {
	if err := a.lostError(); err != nil {
		return err
	}
	b, err := a.r.sendBeat(a.r.calls, []*attempt{a})
	if err != nil {
		return err
	}
	if slices.Contains(b.Lost, a.job.ID) {
		a.lose(a.r.lostCause(a))
	}
	return a.lostError()
}

// lostError says why the attempt does not hold its job, nil if it does.
func (a *attempt) lostError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.isLost, a.settled:
		return cmp.Or(a.cause, ojs.ErrLeaseLost)
	}
	return nil
}

// SaveCheckpoint implements internal.Attempt.
func (a *attempt) SaveCheckpoint(v json.RawMessage) error {
	if err := a.lostError(); err != nil {
		return err
	}
	err := a.r.do(a.r.calls, &request{method: http.MethodPost, path: "/jobs/" + segment(a.job.ID) +
		"/checkpoint", idempotent: true,
		body: map[string]any{"checkpoint": v, "worker_id": a.r.id, "attempt": a.job.Attempt}})
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.checkpoint = v
		return nil
	}
	if errors.Is(err, ojs.ErrTransition) || errors.Is(err, ojs.ErrNotFound) {
		a.lose(a.r.lostCause(a))
		return a.lostError()
	}
	return err
}

// Checkpoint implements internal.Attempt.
func (a *attempt) Checkpoint() (json.RawMessage, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.checkpoint, nil
}

// Then implements internal.Attempt.
func (a *attempt) Then(ctx context.Context, drafts []ojs.Draft) error {
	if err := a.lostError(); err != nil {
		return err
	}
	if err := a.r.extend(ctx, []string{"then"}); err != nil {
		return err
	}
	var list []map[string]any
	for _, d := range drafts {
		body, _, err := a.r.wire(d)
		if err != nil {
			return err
		}
		list = append(list, body)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.then = append(a.then, list...)
	return nil
}

// Lookup implements internal.Attempt.
func (a *attempt) Lookup(ctx context.Context, id string) (*ojs.JobInfo, error) {
	return a.r.Get(ctx, id)
}

// Complete implements internal.Attempt.
func (a *attempt) Complete(context.Context) error {
	return fmt.Errorf("%w: handler.Complete: a server cannot join a transaction of this program",
		ojs.ErrUnsupported)
}

// Enqueuer implements internal.Attempt.
func (a *attempt) Enqueuer() ojs.Enqueuer { return a.r.enqueuer }

var _ internal.Attempt = (*attempt)(nil)
