package engine

import (
	"context"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
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
