package engine

import (
	"context"
	"time"
)

// NextWake returns when an idle engine has something to do next without a call from
// outside: a job comes due, a lease wants renewing, a limit opens. It reports false if
// nothing is to come, or the engine does not run.
func (e *Engine[T]) NextWake() (time.Time, bool) {
	r := e.core.run.Load()
	if r == nil {
		return time.Time{}, false
	}
	r.punctual()
	return r.sched.Next()
}

func (c *core) waitIdle(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var over, wait <-chan struct{} = nil, c.begins.hear()
		if r := c.run.Load(); r != nil {
			var idle bool
			if idle, wait = r.busy.Idle(r.settled); idle {
				return nil
			}
			over = r.over
		}
		select {
		case <-wait:
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settled reports whether no timer of the run is due. If one is, it returns what to wait
// for.
func (r *run) settled() (bool, <-chan struct{}) {
	r.punctual()
	return r.sched.Settled()
}

// failing says that calls fail which look for jobs, or do so no more; was is what the
// call before has said. Under a clock that moves by itself a run is busy meanwhile, since
// jobs may be due.
func (r *run) failing(was, fails bool) {
	switch {
	case r.c.mocked || was == fails:
	case fails:
		r.busy.Add(1)
	default:
		r.busy.Add(-1)
	}
}
