package engine

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/operate"
)

// queueSet is the queues that an engine was given. It is not changed once it is made.
type queueSet struct {
	names  []string // in the order given; empty: the engine serves every queue
	config map[string]QueueConfig
}

func (s *queueSet) has(name string) bool {
	_, ok := s.config[name]
	return ok
}

// serves reports whether the engine takes jobs from a queue.
func (s *queueSet) serves(queue string) bool { return len(s.names) == 0 || s.has(queue) }

// with returns the set with a queue, which is the last if it is new.
func (s *queueSet) with(name string, qc QueueConfig) queueSet {
	to := queueSet{slices.Clone(s.names), maps.Clone(s.config)}
	if to.config == nil {
		to.config = make(map[string]QueueConfig)
	}
	if !s.has(name) {
		to.names = append(to.names, name)
	}
	qc.Defaults = slices.Clone(qc.Defaults)
	to.config[name] = qc
	return to
}

// without returns the set without a queue.
func (s *queueSet) without(name string) queueSet {
	to := queueSet{slices.Clone(s.names), maps.Clone(s.config)}
	to.names = slices.DeleteFunc(to.names, func(n string) bool { return n == name })
	delete(to.config, name)
	return to
}

func (s *queueSet) hasNoDefaults(queues ...string) bool {
	return !slices.ContainsFunc(queues, func(name string) bool { return len(s.config[name].Defaults) > 0 })
}

// checkWeights wants a weight for each queue or for none.
func (s *queueSet) checkWeights() error {
	for _, name := range s.names {
		if (s.config[name].Weight > 0) != (s.config[s.names[0]].Weight > 0) {
			return invalid("weight", "of queues %q and %q only one has a weight", s.names[0], name)
		}
	}
	return nil
}

// AddQueue makes the engine serve one more queue, after its other queues. The engine must
// have been given queues (WithQueueConfig): without any it serves every queue already.
// Other engines and later runs of the program do not know of it. Like ConfigureQueue and
// RemoveQueue, it may be called before Run and during it.
func (e *Engine[T]) AddQueue(ctx context.Context, name string, qc QueueConfig) error {
	return e.core.serve(ctx, name, "added", func(s *queueSet) (queueSet, error) {
		switch {
		case len(s.names) == 0:
			return queueSet{}, invalid("queue",
				"%q cannot be added, since this engine serves every queue; give New its queues "+
					"with WithQueueConfig", name)
		case s.has(name):
			return queueSet{}, invalid("queue",
				"%q is served already; Engine.ConfigureQueue changes it", name)
		}
		return s.with(name, qc), qc.validate(name)
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
	return e.core.serve(ctx, name, "configured", func(s *queueSet) (queueSet, error) {
		if !s.has(name) {
			return queueSet{}, notServed(name)
		}
		return s.with(name, qc), qc.validate(name)
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
	return e.core.serve(ctx, name, "removed", func(s *queueSet) (queueSet, error) {
		switch {
		case !s.has(name):
			return queueSet{}, notServed(name)
		case len(s.names) == 1:
			return queueSet{}, invalid("queue",
				"%q is the last that this engine serves; Queues.Pause stops its deliveries", name)
		}
		return s.without(name), nil
	})
}

func notServed(queue string) error {
	return fmt.Errorf("%w: queue %q is none of this engine's; Engine.AddQueue adds it",
		ojs.ErrNotFound, queue)
}

// serve changes how the engine serves a queue. No claim of the gate is under way
// meanwhile. The jobs of claims past the gate, and those claimed ahead, go back.
func (c *core) serve(ctx context.Context, name, did string, change func(*queueSet) (queueSet, error)) error {
	g := c.gate
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	was := c.queues.Load()
	to, err := change(was)
	if err != nil {
		return err
	}
	if err := to.checkWeights(); err != nil {
		return err
	}
	qc := to.config[name]
	before := was.config[name]
	bounds, bounded := qc.GlobalBounds(), before.GlobalBounds()
	if to.has(name) && (bounds.Bounds() || bounded.Bounds()) {
		if err := c.operator.Limits().Set(ctx, operate.LimitOfQueue(name), bounds, time.Time{}); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.queues.Store(&to)
	g.mu.Lock()
	g.serve(&to)
	if r := c.run.Load(); r != nil {
		r.pipe.Return()
		for _, a := range r.attempts {
			g.join(name, a)
		}
	}
	g.mu.Unlock()
	c.mu.Unlock()
	c.available(unknown)
	c.room.made(name) // an enqueue that waits asks again
	c.log.Info("queue "+did, "component", "worker", "category", "lifecycle", "actor", ojs.Actor(ctx),
		slog.Group("ojs", "queue", name))
	c.warnConcurrency(name, qc.Concurrency)
	return nil
}

// serve has the gate ask for the queues of a set. Running attempts of a queue still
// count. mu is held.
func (g *gate) serve(to *queueSet) {
	known := make(map[string]*queueGate)
	for _, q := range g.queues {
		known[q.name] = q
	}
	maps.Copy(known, g.past)
	g.queues, g.looksAfterEach = nil, len(g.types) > 0
	for _, name := range to.names {
		qc := to.config[name]
		q := known[name]
		if delete(known, name); q == nil {
			q = &queueGate{name: name}
		}
		bounds := qc.Bounds()
		q.weight, q.credit = qc.Weight, 0
		if q.bounds.Rate.Limit == 0 && q.bounds.Throttle.Limit == 0 {
			q.starts = nil // nothing has counted them
		}
		q.rebound(bounds)
		if bounds.Bounds() || qc.Weight > 0 {
			g.looksAfterEach = true
		}
		g.queues = append(g.queues, q)
	}
	maps.DeleteFunc(known, func(_ string, q *queueGate) bool { return q.running == 0 })
	g.past = known
	g.plain.Store(!g.looksAfterEach && !g.holds.any())
}

// join counts an attempt of a queue that was claimed past the gate, or while the gate did
// not know the queue. mu is held.
func (g *gate) join(queue string, a *attempt) {
	held := a.held()
	if a.rec.Queue != queue || a.phase == over && a.returned {
		return
	}
	for _, q := range g.queues {
		if q.name != queue {
			continue
		}
		h := g.held[held]
		if slices.Contains(h.limiters, &q.limiter) {
			return
		}
		q.running++
		h.limiters = append(h.limiters, &q.limiter)
		g.held[held] = h
	}
}
