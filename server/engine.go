package server

import (
	"errors"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
)

// EngineOptions are those of an engine behind a server, so that it keeps the binding's
// rules: a job whose worker has died, or whose reservation has expired, is available at
// once (F163). An engine with a retry hook of its own goes without.
func EngineOptions() []engine.Option {
	return []engine.Option{engine.WithRetryHook(atOnce{})}
}

// atOnce is a policy.Hook.
type atOnce struct{}

// ShouldRetry leaves the decision to the policy of the job.
func (atOnce) ShouldRetry(*ojs.JobInfo, error) bool { return true }

// Delay is the shortest delay after a lost reservation, and otherwise that of the policy.
func (atOnce) Delay(_ *ojs.JobInfo, err error) time.Duration {
	if errors.Is(err, ojs.ErrLeaseLost) {
		return time.Nanosecond
	}
	return 0
}
