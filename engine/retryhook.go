package engine

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

// WithRetryHook sets the hook that has a say in every retry of this engine's jobs; the last one given holds. A hook of the
// job's handler is asked before it: either may veto, and the delay is the first that is not zero.
func WithRetryHook(h policy.Hook) Option {
	return func(c *config) error {
		if h == nil {
			return invalid("retry_hook", "is nil")
		}
		c.policyHook = h
		return nil
	}
}

// retryHook is what has a say in the retries of a job type; nil if nothing has.
func (c *core) retryHook(jobType string) policy.Hook {
	var hooks retryHooks
	for _, hook := range []policy.Hook{c.registry.lookup(jobType).handler.RetryHook(), c.policyHook} {
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

// retryHooks asks several hooks in turn. A job goes to them as a copy, and a panic is no opinion.
type retryHooks struct {
	c     *core
	hooks []policy.Hook
}

func (r retryHooks) ShouldRetry(job *ojs.JobInfo, err error) bool {
	for _, h := range r.hooks {
		if !r.shouldRetry(h, job, err) {
			return false
		}
	}
	return true
}

func (r retryHooks) Delay(job *ojs.JobInfo, err error) time.Duration {
	for _, h := range r.hooks {
		if d := r.delay(h, job, err); d > 0 {
			return d
		}
	}
	return 0
}

func (r retryHooks) shouldRetry(h policy.Hook, job *ojs.JobInfo, err error) (retry bool) {
	defer r.recovered(job, "ShouldRetry", func() { retry = true })
	return h.ShouldRetry(job.Clone(), err)
}

func (r retryHooks) delay(h policy.Hook, job *ojs.JobInfo, err error) (d time.Duration) {
	defer r.recovered(job, "Delay", func() { d = 0 })
	return h.Delay(job.Clone(), err)
}

// recovered is deferred around a call of a hook.
func (r retryHooks) recovered(job *ojs.JobInfo, method string, noOpinion func()) {
	if p := recover(); p != nil {
		r.c.jobLog(&job.JobHeader).Error("retry hook panicked", "method", method, "panic", p)
		noOpinion()
	}
}
