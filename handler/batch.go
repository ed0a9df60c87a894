package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/policy"
)

// BatchFunc runs one attempt of each of several jobs. It returns nil if all have
// completed. Otherwise it returns one error for each job, in the order of jobs, nil for a
// job that has completed. Each error decides on its own job, as the error of a Func does.
// A panic, runtime.Goexit and a slice of any other length fail all attempts.
//
// ctx has the values of the context of one of the jobs. It ends when the contexts of all
// of them have ended. Sleep, Progress, Heartbeat, SaveCheckpoint and SetResult in ctx are
// about all jobs. JobContext has the context of one job, for all that is about that job
// alone, such as Then.
type BatchFunc[T any] func(ctx context.Context, jobs []*ojs.Job[T]) []error

// The limits of a batch without WithBatch.
const (
	DefaultBatchMax  = 100
	DefaultBatchWait = 100 * time.Millisecond
)

// batching is what a program asks of batches.
type batching struct {
	most int
	wait time.Duration
	key  any // func(T) string; nil: one key for all
}

// WithBatch sets how many jobs a call of a BatchFunc gets at most, and how long the first
// of them waits for the others on the engine's clock. A call has max jobs, or its first
// one has waited that long. The defaults are DefaultBatchMax and DefaultBatchWait.
// WithBatch panics if max is less than 1 or wait is negative. With a wait of 0 each job
// is a batch.
func WithBatch(max int, wait time.Duration) Option {
	if max < 1 || wait < 0 {
		panic(fmt.Sprintf("ojs: batch of %d jobs within %v: at least 1 job and 0 s are wanted", max, wait))
	}
	return func(h *Handler) { h.batching().most, h.batching().wait = max, wait }
}

// BatchBy has each call of a BatchFunc get jobs of one key only. It panics if key is nil.
func BatchBy[T any](key func(args T) string) Option {
	if key == nil {
		panic("ojs: batch key is nil")
	}
	return func(h *Handler) { h.batching().key = key }
}

// batching returns the settings of h's batches.
func (h *Handler) batching() *batching {
	if h.batch == nil {
		panic(fmt.Sprintf("ojs: handler for job type %s: it runs one job at a time: use ForBatch", h.jobType))
	}
	return h.batch
}

// ForBatch binds f to a job type whose jobs run in batches: one call of f runs many jobs,
// each with its own outcome, attempts and retries. It panics as For does, and if the
// function of BatchBy is for other args.
//
// A job of a batch takes a slot of its engine, from when it begins to wait for others
// until the call returns. A batch is never larger than engine.WithConcurrency and
// WithSlots allow. Waiting is a part of the attempt: the job's timeout counts it, and
// middlewares run around it, once for each job. Jobs of different engines never share a
// batch. A job whose context ends while it waits leaves the batch.
func ForBatch[T any](t ojs.JobType[T], f BatchFunc[T], opts ...Option) Handler {
	if f == nil {
		panic(fmt.Sprintf("ojs: batch handler for job type %s is nil", t.Name()))
	}
	g := &gatherer[T]{
		jobType: t.Name(),
		f:       f,
		key:     func(T) string { return "" },
		open:    make(map[place]*batch[T]),
	}
	h := bind(t, g.run)
	h.batch = &batching{most: DefaultBatchMax, wait: DefaultBatchWait}
	h = h.with(opts)
	g.most, g.wait = h.batch.most, h.batch.wait
	if h.atOnce > 0 {
		g.most = min(g.most, h.atOnce)
	}
	if k := h.batch.key; k != nil {
		key, ok := k.(func(T) string)
		if !ok {
			panic(fmt.Sprintf("ojs: handler for job type %s: the batch key is a %T, not a func(%v) string",
				t.Name(), k, reflect.TypeFor[T]()))
		}
		g.key = key
	}
	return h
}

// JobContext returns the context of one job of the batch that a BatchFunc runs in ctx. It
// is for SetResult, SaveCheckpoint, Logger and every other call about that job alone. It
// ends when the attempt of that job must. For a job of no batch in ctx, JobContext
// returns ctx.
func JobContext[T any](ctx context.Context, job *ojs.Job[T]) context.Context {
	if b, ok := ctx.Value(batchKey{}).(*batch[T]); ok {
		for _, m := range b.members {
			if m.job == job {
				return m.ctx
			}
		}
	}
	return ctx
}

// gatherer makes batches of the jobs of one handler. Each attempt waits in the goroutine
// of its own handler. The attempt that makes the batch full is the leader and makes the
// call. If the wait of the first attempt is over before, that one is the leader. If the
// first one leaves before, the next one leads at once.
type gatherer[T any] struct {
	jobType string
	f       BatchFunc[T]
	most    int
	wait    time.Duration
	key     func(T) string

	mu   sync.Mutex // guards what follows and the batches, but for what the leader owns
	open map[place]*batch[T]
}

// place is what the jobs of a batch have in common.
type place struct {
	run any // of an engine
	key string
}

type batch[T any] struct {
	at      place
	members []*member[T] // fixed once it runs
	runs    bool
	ctx     context.Context // of the call, once it runs
	over    chan struct{}   // closed when it has run
}

type member[T any] struct {
	ctx    context.Context
	a      attempt.Attempt
	job    *ojs.Job[T]
	parked attempt.Parked // nil: it has not waited
	err    error          // its outcome, once the batch is over
}

// run is one attempt. It returns the job's own error.
func (g *gatherer[T]) run(ctx context.Context, job *ojs.Job[T]) error {
	m := &member[T]{ctx: ctx, a: attempt.From(ctx), job: job}
	b := &batch[T]{members: []*member[T]{m}, over: make(chan struct{})}
	if m.a == nil { // no engine runs it
		g.mu.Lock()
		return g.lead(b, m)
	}
	id, slots := m.a.Run()
	at := place{id, g.key(job.Args)}

	g.mu.Lock()
	if other := g.open[at]; other != nil {
		b = other
		b.members = append(b.members, m)
	} else {
		b.at = at
		g.open[at] = b
	}
	if len(b.members) >= min(g.most, slots) || g.wait == 0 {
		return g.lead(b, m)
	}
	wait := g.wait
	if b.members[0] != m {
		wait = -1 // until it is woken
	}
	return g.follow(b, m, wait)
}

// follow waits for the end of a batch, or leads it if it does not run by then. It is
// called with g.mu held and unlocks it, as lead does.
func (g *gatherer[T]) follow(b *batch[T], m *member[T], wait time.Duration) error {
	for ctx := m.ctx; ; ctx = b.ctx {
		m.parked = m.a.Park(ctx, wait)
		g.mu.Unlock()
		ended := m.parked.Wait(ctx)
		if b.isOver() {
			return m.err
		}
		g.mu.Lock()
		switch {
		case b.runs && ended != nil && ctx != m.ctx: // the whole batch has to end
			g.mu.Unlock()
			<-b.over
			return m.err
		case b.runs:
			wait = -1
		case ended != nil:
			g.leave(b, m)
			g.mu.Unlock()
			return ended
		default:
			return g.lead(b, m)
		}
	}
}

func (b *batch[T]) isOver() bool {
	select {
	case <-b.over:
		return true
	default:
		return false
	}
}

// leave takes a job out of a batch that does not run yet. g.mu is held.
func (g *gatherer[T]) leave(b *batch[T], m *member[T]) {
	first := b.members[0] == m
	b.members = slices.DeleteFunc(b.members, func(o *member[T]) bool { return o == m })
	switch {
	case len(b.members) == 0:
		delete(g.open, b.at)
	case first:
		b.members[0].parked.Wake()
	}
}

// lead runs a batch on m's goroutine and wakes the others. It is called with g.mu held
// and unlocks it.
func (g *gatherer[T]) lead(b *batch[T], m *member[T]) (err error) {
	delete(g.open, b.at)
	b.runs = true
	jobs := make([]*ojs.Job[T], len(b.members))
	for i, o := range b.members {
		jobs[i] = o.job
	}
	ctx, release := b.context(m)
	b.ctx = ctx
	g.mu.Unlock()
	defer release()

	errs := slices.Repeat([]error{errGoexit}, len(jobs))
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for i, o := range b.members {
			o.err = errs[i]
		}
		err = m.err
		close(b.over)
		for _, o := range b.members {
			if o != m && o.parked != nil {
				o.parked.Wake()
			}
		}
	}()
	errs = g.call(ctx, jobs)
	return nil // err is set above
}

var errGoexit = &ojs.Error{Type: policy.ErrorTypeGoexit,
	Message: "ojs: the batch handler called runtime.Goexit"}

// call calls the function. It returns one error for each job.
func (g *gatherer[T]) call(ctx context.Context, jobs []*ojs.Job[T]) (errs []error) {
	defer func() {
		if p := recover(); p != nil {
			errs = slices.Repeat([]error{NewPanicError(p)}, len(jobs))
		}
	}()
	errs = g.f(ctx, slices.Clone(jobs))
	switch n := len(errs); n {
	case len(jobs):
		return slices.Clone(errs)
	case 0:
		return make([]error, len(jobs))
	default:
		err := fmt.Errorf("ojs: the batch handler for job type %s returned %d errors for %d jobs: "+
			"want none, or one for each", g.jobType, n, len(jobs))
		return slices.Repeat([]error{err}, len(jobs))
	}
}

type batchKey struct{}

// batchContext is the context of a call. The end of the last attempt ends it, at once for
// a call of Err.
type batchContext[T any] struct {
	context.Context
	b *batch[T]
	a attempt.Attempt // nil: no engine runs the batch
}

// context makes the context of a call that m leads.
func (b *batch[T]) context(m *member[T]) (ctx context.Context, release func()) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(m.ctx))
	var left atomic.Int64
	left.Store(int64(len(b.members)))
	stops := make([]func() bool, len(b.members))
	for i, o := range b.members {
		stops[i] = context.AfterFunc(o.ctx, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(o.ctx))
			}
		})
	}
	c := &batchContext[T]{inner, b, nil}
	if m.a != nil {
		c.a = &batchAttempt[T]{m.a, b}
	}
	return c, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(context.Canceled)
	}
}

// Err implements context.Context.
func (c *batchContext[T]) Err() error {
	err := c.Context.Err()
	for _, m := range c.b.members {
		if err != nil {
			return err
		}
		if m.ctx.Err() == nil {
			return nil
		}
	}
	return context.Canceled
}

// Value implements context.Context.
func (c *batchContext[T]) Value(key any) any {
	switch key {
	case batchKey{}:
		return c.b
	case attempt.Key{}:
		if c.a != nil {
			return c.a
		}
	}
	return c.Context.Value(key)
}

// batchAttempt is the attempt of the leader, which speaks for all jobs.
type batchAttempt[T any] struct {
	attempt.Attempt
	b *batch[T]
}

// SetResult implements attempt.Attempt.
func (a *batchAttempt[T]) SetResult(v json.RawMessage) error {
	return a.each(func(a attempt.Attempt) error { return a.SetResult(v) })
}

// Progress implements attempt.Attempt.
func (a *batchAttempt[T]) Progress(p float64) {
	for _, m := range a.b.members {
		m.a.Progress(p)
	}
}

// Heartbeat implements attempt.Attempt.
func (a *batchAttempt[T]) Heartbeat() error { return a.each(attempt.Attempt.Heartbeat) }

// SaveCheckpoint implements attempt.Attempt.
func (a *batchAttempt[T]) SaveCheckpoint(v json.RawMessage) error {
	return a.each(func(a attempt.Attempt) error { return a.SaveCheckpoint(v) })
}

// Then implements attempt.Attempt.
func (a *batchAttempt[T]) Then(context.Context, []ojs.Draft) error {
	return fmt.Errorf("%w: Then for a batch of jobs, which end one by one; use JobContext for one of them", ojs.ErrUnsupported)
}

// Complete implements attempt.Attempt.
func (a *batchAttempt[T]) Complete(ctx context.Context) error {
	return a.each(func(a attempt.Attempt) error { return a.Complete(ctx) })
}

func (a *batchAttempt[T]) each(f func(attempt.Attempt) error) error {
	var errs []error
	for _, m := range a.b.members {
		errs = append(errs, f(m.a))
	}
	return errors.Join(errs...)
}
