package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
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

// knowsQueue reports whether a queue has jobs, or an engine names it, and warns if not.
func (c *core) knowsQueue(ctx context.Context, name string) bool {
	if name == ojs.DefaultQueue || c.queues.Load().has(name) {
		return true
	}
	for _, t := range c.registry.handlers.Load().all() {
		if o, err := c.resolve(c.queues.Load(), t.given.Defaults(), nil); err == nil && o.Queue == name {
			return true
		}
	}
	counts, err := c.store.Counts(ctx)
	if err != nil || slices.ContainsFunc(counts, func(n storage.Count) bool { return n.Queue == name }) {
		return true // or it cannot be told
	}
	if c.reported(ctx, func(n *Node) bool { return slices.Contains(n.Queues, name) }) {
		return true
	}
	c.log.Warn("the queue of a call is unknown: it has no jobs, and no engine names it; is the name right?",
		"queue", name)
	return false
}

// knowsType reports whether a type has a handler or recent jobs, and warns if not.
func (c *core) knowsType(ctx context.Context, name string) bool {
	if len(c.registry.handlers.Load().of(name)) > 0 {
		return true
	}
	f := inspect.Filter{Types: []string{name}, Order: inspect.OrderNewest}
	page, err := c.jobs().Page(ctx, f, "", 1)
	if err != nil || len(page.Jobs) > 0 {
		return true // or it cannot be told
	}
	if c.reported(ctx, func(n *Node) bool { return slices.Contains(n.Types, name) }) {
		return true
	}
	c.log.Warn("the job type of a call is unknown: no engine has a handler of it, and no recent job is of it; "+
		"is the name right?", "job_type", name)
	return false
}

// reported reports whether an engine that reports on itself is such.
func (c *core) reported(ctx context.Context, such func(*Node) bool) bool {
	nodes, _ := (&Nodes{c}).List(ctx)
	return slices.ContainsFunc(nodes, func(n Node) bool { return such(&n) })
}

// checkTx refuses a change in a context that carries a transaction which is nil or which
// the storage cannot join.
func (c *core) checkTx(ctx context.Context) error {
	tx := storage.Tx(ctx)
	if tx == nil {
		return nil
	}
	if err := storage.CheckTx(ctx); err != nil {
		return err
	}
	if t, ok := storage.As[storage.Transactor](c.store); ok && t.Joins(tx) {
		return nil
	}
	return fmt.Errorf("%w: the context carries a transaction (%T) that storage %s cannot join; use a context without it",
		ojs.ErrUnsupported, tx, c.store.Capabilities().Name)
}
