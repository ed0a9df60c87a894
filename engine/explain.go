package engine

import (
	"time"

	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
)

// hinders returns what the engine has against a job: what keeps it from running here.
func (c *core) hinders(rec *storage.Record, now time.Time) []inspect.Obstacle {
	var e inspect.Explanation
	r := c.run.Load()
	runs := r != nil && !r.stopping.Load()
	full := runs && r.pipe.Busy() >= c.concurrency
	if !runs {
		e.Add(inspect.ObstacleNotRunning, "this engine does not run, or is stopping")
	}
	if c.registry.handlers.Load().find(rec.Type, rec.TypeVersion) == nil {
		e.Add(inspect.ObstacleNoHandler, "type %s has no handler in this engine",
			versions.Full(rec.Type, rec.TypeVersion))
	}
	if queues := c.queues.Load(); !queues.serves(rec.Queue) {
		e.Add(inspect.ObstacleOtherQueues, "this engine takes jobs of the queues %v only", queues.names)
	}
	c.gate.explain(&e, rec, now)
	if full {
		e.Add(inspect.ObstacleNoSlot, "every slot of this engine is busy: %d", c.concurrency)
	}
	return e.Obstacles
}

// explain adds the limits that keep a job from being claimed now.
func (g *gate) explain(e *inspect.Explanation, rec *storage.Record, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lapse(now)
	if h := &g.holds; h.quiet && !h.all && !h.types[rec.Type] {
		e.Add(inspect.ObstacleNotRunning,
			"this engine takes no more jobs, since it was told to (Workers.Quiet)")
	}
	check := func(l *limiter, what string) {
		if l == nil {
			return
		}
		if at, open := l.open(now); !open {
			e.Add(inspect.ObstacleLimit, "the limit of %s is reached", what).Until = at
		}
	}
	for _, q := range g.queues {
		if q.name == rec.Queue {
			check(&q.limiter, "queue "+rec.Queue)
		}
	}
	check(g.types[g.limitName(rec)], "type "+rec.Type)
}
