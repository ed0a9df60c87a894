// Package handler defines the functions that run jobs, and the calls that a running
// attempt may make.
package handler

import (
	"context"
	"fmt"
	"reflect"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/policy"
)

// Func runs one attempt of a job. nil completes the job. The response code of an error
// and the job's retry policy decide on the job otherwise.
//
// ctx carries the values of the context that Engine.Run was called with. It ends when the
// attempt must: context.Cause(ctx) is then ojs.ErrTimeout, ErrCancelled, ErrLeaseLost or
// ErrShutdown. A handler that ignores this keeps its worker slot until it returns. After
// the grace period its job is settled without it.
//
// job is the attempt's own copy. A job may run more than once: make its effect
// idempotent.
//
// A panic fails the attempt, and so does runtime.Goexit. A nil pointer returned as the
// error is an error, as always in Go: the attempt fails.
type Func[T any] func(ctx context.Context, job *ojs.Job[T]) error

// Returning makes a Func of a function with a result. The result is stored when the job
// completes. A result that does not encode to JSON fails the attempt.
func Returning[T, R any](f func(ctx context.Context, job *ojs.Job[T]) (R, error)) Func[T] {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, job *ojs.Job[T]) error {
		r, err := f(ctx, job)
		if err != nil {
			return err
		}
		return SetResult(ctx, r)
	}
}

// Handler is a job type and the function that runs it. For makes one.
type Handler struct {
	jobType  string
	defaults []ojs.Option
	args     reflect.Type
	atOnce   int // attempts
	global   ojs.RateLimit
	versions string // "": all
	hook     policy.Hook
	batch    *batching // nil: it runs one job at a time
	frame    func() attempt.Frame
	run      func(ctx context.Context, header *ojs.JobHeader, args ojs.Args) error

	middleware []Middleware // around f, in run
}

// frame is an attempt's context and its job.
type frame[T any] struct {
	attempt.Context
	job ojs.Job[T]
}

// Parts implements attempt.Frame.
func (f *frame[T]) Parts() (*attempt.Context, *ojs.JobHeader) { return &f.Context, &f.job.JobHeader }

// jobIn returns the job to hand to a handler in ctx. A middleware may have put another
// context around the attempt's.
func jobIn[T any](ctx context.Context, header *ojs.JobHeader) *ojs.Job[T] {
	if f, ok := ctx.(*frame[T]); ok && header == &f.job.JobHeader {
		return &f.job
	}
	return &ojs.Job[T]{JobHeader: *header}
}

// Option sets how a program runs a job type. Settings that are stored with each job are
// options of the job type.
type Option func(*Handler)

// WithSlots sets how many attempts of the type run at once in one engine. It panics
// if n is less than 1. By default the engine's concurrency is the limit.
func WithSlots(n int) Option {
	if n < 1 {
		panic(fmt.Sprintf("ojs: handler concurrency %d is less than 1", n))
	}
	return func(h *Handler) { h.atOnce = n }
}

// WithGlobalConcurrency sets how many attempts of the type run at once over all engines
// on the storage, of every version. It panics if n is less than 1. Run stores the number,
// as it does the limit of WithGlobalRateLimit. By default there is no limit.
func WithGlobalConcurrency(n int) Option {
	if n < 1 {
		panic(fmt.Sprintf("ojs: handler global concurrency %d is less than 1", n))
	}
	return func(h *Handler) { h.global.Concurrency = n }
}

// WithGlobalRateLimit bounds the type over all engines on the storage, every version of
// it. Only Concurrency, Rate and Throttle of l count. It panics if l is invalid, bounds
// nothing or has a Key: ojs.WithRateLimit and ojs.WithRateLimitBy, as options of the job
// type, bound parts of the type or several types together.
//
// Run stores the limit, in the place of one that an earlier Run or operate.Limits.Set has
// stored. So does the registration of a handler while the engine runs. Another program
// that runs the type obeys the limit too. A later Run without the option leaves it:
// operate.Limits.Clear removes it.
func WithGlobalRateLimit(l ojs.RateLimit) Option {
	err := l.ValidateBounds()
	switch {
	case err != nil:
		panic(fmt.Errorf("ojs: handler global rate limit: %w", err))
	case l.Key != "":
		panic(fmt.Sprintf("ojs: handler global rate limit has key %q; the limit of a type has none", l.Key))
	case !l.Bounds():
		panic("ojs: handler global rate limit bounds nothing: set Concurrency, Rate or Throttle")
	}
	return func(h *Handler) { h.global = l }
}

// WithVersions sets the versions of the type (ojs.WithVersion) that the handler runs:
// "*", one version such as "2.0", or bounds such as ">=2.0 <3.0", which a space or a
// comma joins and which all hold. Versions are compared as numbers: 1.10 comes after 1.9.
// It panics if the range is none of these.
//
// A type may have several handlers whose ranges do not overlap. Their args may be of
// different types. A job without a version runs with the first that was registered. A job
// whose version no handler takes waits, for an engine that has one. The default options
// of a type with several handlers do not hold for jobs enqueued by its name alone. By
// default a handler runs every version.
func WithVersions(within string) Option {
	if _, err := versions.ParseRange(within); err != nil {
		panic(fmt.Sprintf("ojs: handler versions %q: %v", within, err))
	}
	return func(h *Handler) { h.versions = within }
}

// WithMiddleware puts middlewares around the handler, the first outermost, inside of the
// engine's. It panics if one is nil.
func WithMiddleware(ms ...Middleware) Option {
	for _, m := range ms {
		if m == nil {
			panic("ojs: middleware is nil")
		}
	}
	return func(h *Handler) { h.middleware = append(h.middleware, ms...) }
}

// WithRetryHook sets a hook for the retries of the type's jobs. It is asked before the
// engine's hook. Either may veto, and the first delay that is not zero counts. It panics
// if h is nil.
func WithRetryHook(hook policy.Hook) Option {
	if hook == nil {
		panic("ojs: retry hook is nil")
	}
	return func(h *Handler) { h.hook = hook }
}

// For binds f to a job type. The type's default options then also hold for jobs enqueued
// by its name alone. It panics if f is nil. With several WithMiddleware, those of later
// ones are further in.
func For[T any](t ojs.JobType[T], f Func[T], opts ...Option) Handler {
	if f == nil {
		panic(fmt.Sprintf("ojs: handler for job type %s is nil", t.Name()))
	}
	return bind(t, f).with(opts)
}

// bind makes a Handler without options.
func bind[T any](t ojs.JobType[T], f Func[T]) Handler {
	return Handler{
		jobType:  t.Name(),
		defaults: t.Defaults(),
		args:     reflect.TypeFor[T](),
		frame:    func() attempt.Frame { return new(frame[T]) },
		run: func(ctx context.Context, header *ojs.JobHeader, args ojs.Args) error {
			job := jobIn[T](ctx, header)
			if err := ojs.DecodeArgs(args, &job.Args); err != nil {
				return &UndecodableError{Err: err}
			}
			return f(ctx, job)
		},
	}
}

// with applies the options.
func (h Handler) with(opts []Option) Handler {
	for _, opt := range opts {
		opt(&h)
	}
	return h.wrap(h.middleware)
}

// Concurrency returns how many attempts may run at once in one engine, 0 for the engine's
// concurrency.
func (h Handler) Concurrency() int { return h.atOnce }

// GlobalRateLimit returns the limit of the type over all engines, without bounds if the
// handler sets none.
func (h Handler) GlobalRateLimit() ojs.RateLimit { return h.global }

// RetryHook returns the hook for the type's retries, nil if there is none.
func (h Handler) RetryHook() policy.Hook { return h.hook }

// Versions returns the range of versions that the handler runs, "" for all.
func (h Handler) Versions() string { return h.versions }

// Type returns the name of the job type.
func (h Handler) Type() string { return h.jobType }

// Defaults returns the default options of the job type.
func (h Handler) Defaults() []ojs.Option { return h.defaults }

// ArgsType returns the Go type of the args.
func (h Handler) ArgsType() reflect.Type { return h.args }

func init() {
	bridge.Give(bridge.Handlers[Handler, Middleware, attempt.Frame]{
		Frames: func(h Handler) func() attempt.Frame { return h.frame },
		Wrap:   Handler.wrap,
	})
}

// Run decodes args and runs the function once. Engines call it; its error is the
// function's, or an *UndecodableError if the function was not called because the args do
// not decode into its type.
func (h Handler) Run(ctx context.Context, header *ojs.JobHeader, args ojs.Args) error {
	return h.run(ctx, header, args)
}

// UndecodableError says that a job's args do not decode into the args type of its
// handler. The job becomes a dead letter at once: this program cannot run it, but another
// version may.
type UndecodableError struct{ Err error }

func (e *UndecodableError) Error() string { return foreign.ErrorText(e.Err) }

// Unwrap returns the decoding error.
func (e *UndecodableError) Unwrap() error { return e.Err }
