package engine

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
)

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
