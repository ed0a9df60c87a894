package engine

import (
	"context"
	"slices"

	"github.com/ojsengine/ojs/internal/draft"
)

// warnUnreached logs, at the start of a run, what the engine is configured for and cannot
// reach: limits above its own concurrency, and handlers of types whose jobs go to queues
// that it does not serve.
func (c *core) warnUnreached() {
	if len(c.registry.handled()) == 0 {
		c.log.Warn("the engine runs without a handler: it starts no job until one is registered")
	}
	queues := c.queues.Load()
	for _, name := range queues.names {
		c.warnConcurrency(name, queues.config[name].Concurrency)
	}
	var types, others []string
	for _, t := range c.registry.handlers.Load().all() {
		h, name := t.given, t.given.Type()
		if n := h.Concurrency(); n > c.concurrency {
			c.log.Warn("the concurrency of a handler is above the engine's, which holds",
				"job_type", name, "handler_concurrency", n, "concurrency", c.concurrency)
		}
		if o, err := c.resolve(queues, h.Defaults(), nil); err == nil && !queues.serves(o.Queue) {
			types = append(types, name)
			others = append(others, o.Queue)
		}
	}
	if len(types) > 0 {
		slices.Sort(others)
		c.log.Warn("jobs of handled types go to queues that this engine does not serve, unless they are enqueued to another",
			"job_types", types, "queues", slices.Compact(others))
	}
}

func (c *core) warnConcurrency(queue string, n int) {
	if n > c.concurrency {
		c.log.Warn("the concurrency of a queue is above the engine's, which holds for its attempts",
			"queue", queue, "queue_concurrency", n, "concurrency", c.concurrency)
	}
}

// warnUnserved logs, once for each queue, that jobs are enqueued to a queue that this
// engine does not serve. An engine without handlers is there only to enqueue, and does
// not warn.
func (c *core) warnUnserved(queue string) {
	if len(c.registry.handled()) == 0 {
		return
	}
	if _, again := c.unserved.Load(queue); again {
		return
	}
	if _, again := c.unserved.LoadOrStore(queue, true); !again {
		c.log.Warn(
			"jobs are enqueued to a queue that this engine does not serve; they wait for one that does",
			"queue", queue)
	}
}

// checkTx is draft.CheckTx of the engine's storage.
func (c *core) checkTx(ctx context.Context) error { return draft.CheckTx(ctx, c.store) }
