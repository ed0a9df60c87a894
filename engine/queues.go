package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/jobtypes"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/operate"
)

// AddQueue makes the engine serve one more queue, after its other queues. The engine must
// have been given queues (WithQueueConfig): without any it serves every queue already.
// Other engines and later runs of the program do not know of it. Like ConfigureQueue and
// RemoveQueue, it may be called before Run and during it.
func (e *Engine[T]) AddQueue(ctx context.Context, name string, qc QueueConfig) error {
	return e.parts.serve(ctx, name, "added", func(s *jobtypes.QueueSet) (jobtypes.QueueSet, error) {
		switch {
		case len(s.Names) == 0:
			return jobtypes.QueueSet{}, draft.Invalid("queue",
				"%q cannot be added, since this engine serves every queue; give New its queues with WithQueueConfig", name)
		case s.Has(name):
			return jobtypes.QueueSet{}, draft.Invalid("queue",
				"%q is served already; Engine.ConfigureQueue changes it", name)
		}
		return s.With(name, qc.queue()), qc.validate(name)
	})
}

// ConfigureQueue makes the engine serve one of its queues in another way, with effect at
// once. The configuration takes the place of the one before, which Describe shows:
//
//   - Running attempts go on and count: with a concurrency below their number, none
//     starts until enough have ended. Jobs that workers fetched while the queue had no
//     limit do not count. A new rate counts the starts that the old rate has counted,
//     and all from now on.
//   - Jobs that are waiting already keep the Defaults that they were enqueued with.
//   - Limits over all engines are stored. If the configuration has none and the one
//     before had, the stored one is cleared.
//   - Weights are positive for all queues of the engine, or 0 for all.
//
// A queue that the engine was not given is ojs.ErrNotFound.
func (e *Engine[T]) ConfigureQueue(ctx context.Context, name string, qc QueueConfig) error {
	return e.parts.serve(ctx, name, "configured", func(s *jobtypes.QueueSet) (jobtypes.QueueSet, error) {
		if !s.Has(name) {
			return jobtypes.QueueSet{}, notServed(name)
		}
		return s.With(name, qc.queue()), qc.validate(name)
	})
}

// RemoveQueue makes the engine take no more jobs from one of its queues. Running attempts
// go on, and jobs that were claimed ahead go back, without a spent attempt. The jobs of
// the queue wait for another engine, or for AddQueue. Workers that name the queue in
// their fetches still get them. Limits over all engines stay stored: Limits.Clear removes
// them.
//
// The last queue cannot be removed: Queues.Pause stops its deliveries. A queue that the
// engine was not given is ojs.ErrNotFound.
func (e *Engine[T]) RemoveQueue(ctx context.Context, name string) error {
	return e.parts.serve(ctx, name, "removed", func(s *jobtypes.QueueSet) (jobtypes.QueueSet, error) {
		switch {
		case !s.Has(name):
			return jobtypes.QueueSet{}, notServed(name)
		case len(s.Names) == 1:
			return jobtypes.QueueSet{}, draft.Invalid("queue",
				"%q is the last that this engine serves; Queues.Pause stops its deliveries", name)
		}
		return s.Without(name), nil
	})
}

func notServed(queue string) error {
	return fmt.Errorf("%w: queue %q is none of this engine's; Engine.AddQueue adds it",
		ojs.ErrNotFound, queue)
}

// serve changes how the engine serves a queue. No claim of the gate is under way
// meanwhile. The jobs of claims past the gate, and those claimed ahead, go back.
func (c *parts) serve(
	ctx context.Context, name, did string, change func(*jobtypes.QueueSet) (jobtypes.QueueSet, error),
) error {
	done, err := c.admission.TakeTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	was := c.types.Queues.Load()
	to, err := change(was)
	if err != nil {
		return err
	}
	if err := to.CheckWeights(); err != nil {
		return err
	}
	qc, before := configOf(&to, name), configOf(was, name)
	bounds, bounded := qc.GlobalBounds(), before.GlobalBounds()
	if to.Has(name) && (bounds.Bounds() || bounded.Bounds()) {
		if err := c.Operator.Limits().Set(ctx, operate.LimitOfQueue(name), bounds, time.Time{}); err != nil {
			return err
		}
	}
	c.types.Queues.Store(&to)
	c.admission.Gate.Serve(&to)
	c.returnClaimed() // before the look at the attempts: those that come after it count already, or go back
	c.attempts.Join(name)
	c.available(env.Unknown)
	c.enqueuer.Room.Made(name) // an enqueue that waits asks again
	c.Log.Info("queue "+did, "component", "worker", "category", "lifecycle", "actor", ojs.Actor(ctx),
		slog.Group("ojs", "queue", name))
	c.warnConcurrency(name, qc.Concurrency)
	return nil
}
