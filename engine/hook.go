package engine

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
)

// EnqueueHook sees each job that this engine enqueues after its options are known and
// before it is validated and stored. It may change the job's Args, Queue, Priority and
// Meta, which is never nil; other fields are for reading. Args are as the caller gave
// them. A hook that returns ojs.ErrDropped leaves the job out; any other error refuses
// it, and with it the whole batch.
//
// Hooks run in the order in which they were given, for each job of a batch by itself,
// while the enqueue waits. A hook that panics or calls runtime.Goexit refuses the job.
// Hooks may run again for the same draft if the enqueue has to wait for room.
type EnqueueHook func(ctx context.Context, job *ojs.Job[any]) error

// WithEnqueueHook adds hooks after earlier ones.
func WithEnqueueHook(hooks ...EnqueueHook) Option {
	return func(c *config) error {
		for _, h := range hooks {
			if h == nil {
				return invalid("enqueue_hook", "is nil")
			}
		}
		c.hooks = append(c.hooks, hooks...)
		return nil
	}
}

func runHook(ctx context.Context, h EnqueueHook, job *ojs.Job[any]) (err error) {
	stop := foreign.Call(func() {
		switch err = h(ctx, job); {
		case err == nil:
		case foreign.Is(err, ojs.ErrDropped):
			err = ojs.ErrDropped
		default:
			err = &hookError{foreign.Ending(err)}
		}
	})
	if stop != nil {
		return &hookError{stop}
	}
	return err
}

// hookError is the refusal of a hook.
type hookError struct{ err error }

func (e *hookError) Error() string { return "ojs: enqueue hook: " + foreign.ErrorText(e.err) }
func (e *hookError) Unwrap() error { return e.err }

// WithRetryHook sets the hook that has a say in every retry of this engine's jobs; the
// last one given holds. A hook of the job's handler is asked before it: either may veto,
// and the delay is the first that is not zero.
func WithRetryHook(h policy.Hook) Option {
	return func(c *config) error {
		if h == nil {
			return invalid("retry_hook", "is nil")
		}
		c.ownRetryHook = h
		return nil
	}
}

// retryHook is what has a say in the retries of a job; nil if nothing has.
func (c *core) retryHook(j *ojs.JobHeader) policy.Hook {
	var hooks retryHooks
	handlers := c.registry.lookup(j.Type, j.TypeVersion).handler.RetryHook()
	for _, hook := range []policy.Hook{handlers, c.ownRetryHook} {
		if hook != nil {
			hooks.hooks = append(hooks.hooks, hook)
		}
	}
	if hooks.hooks == nil {
		return nil
	}
	hooks.c = c
	return hooks
}

// retryHooks asks several hooks in turn. A job goes to them as a copy; a panic is no
// opinion, nor is runtime.Goexit.
type retryHooks struct {
	c     *core
	hooks []policy.Hook
}

func (r retryHooks) ShouldRetry(job *ojs.JobInfo, err error) bool {
	for _, h := range r.hooks {
		retry := true
		r.apart(job, "ShouldRetry", func() { retry = h.ShouldRetry(job.Clone(), err) })
		if !retry {
			return false
		}
	}
	return true
}

func (r retryHooks) Delay(job *ojs.JobInfo, err error) time.Duration {
	for _, h := range r.hooks {
		var d time.Duration
		if r.apart(job, "Delay", func() { d = h.Delay(job.Clone(), err) }); d > 0 {
			return d
		}
	}
	return 0
}

// apart calls a hook, for an attempt that failed.
func (r retryHooks) apart(job *ojs.JobInfo, method string, call func()) {
	if stop := foreign.Call(call); stop != nil {
		r.c.jobLog(&job.JobHeader).Error("retry hook "+stop.How(), "method", method, stop.Attr())
	}
}
