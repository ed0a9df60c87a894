package engine

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/operate"
)

// maxNodeJobs bounds inspect.Node.Running.
const maxNodeJobs = 100

// nodeValue is the engine as a node; gone: without data, which deletes it.
func (c *core) nodeValue(gone bool) document.Value {
	v := document.Value{Key: inspect.PrefixNode + c.worker}
	if gone {
		return v
	}
	now := c.now()
	node := inspect.Node{
		ID: c.worker, PID: os.Getpid(), Version: c.reports.Version, Go: runtime.Version(), Seen: now,
		Queues: c.queues.Load().names, Slots: c.concurrency,
	}
	node.Host, _ = os.Hostname()
	for _, t := range c.registry.handlers.Load().all() {
		node.Types = append(node.Types, t.given.Type())
	}
	c.gate.mu.Lock()
	node.Quiet = c.gate.holds.quiet
	c.gate.mu.Unlock()
	c.mu.Lock()
	node.Started = c.started
	if r := c.run.Load(); r != nil {
		node.Busy = r.pipe.Busy()
		for _, a := range r.attempts {
			if !a.returned && a.started.Load() {
				j := &a.rec.JobHeader
				node.Running = append(node.Running, nodeJob(j, a.began(), ""))
			}
		}
	}
	c.mu.Unlock()
	slices.SortFunc(node.Running, func(a, b inspect.NodeJob) int { return a.Since.Compare(b.Since) })
	node.Running = node.Running[:min(len(node.Running), maxNodeJobs)]
	v.Data, _ = json.Marshal(&node) // which always encodes
	v.Expires = now.Add(3 * c.reports.Every)
	return v
}

// obey does what others have ordered.
func (p *reporter) obey(ctx context.Context) error {
	c := p.r.c
	list, err := document.Of(c.store).Values(ctx, c.now(), operate.PrefixOrder+c.worker+"/", "", 0)
	if err != nil || len(list) == 0 {
		return err
	}
	var done []document.Value
	for _, v := range list {
		done = append(done, document.Value{Key: v.Key})
		var o operate.Order
		if json.Unmarshal(v.Data, &o) != nil {
			continue
		}
		c.log.Info("order taken", "component", "worker", "category", "lifecycle", "worker_id", c.worker,
			"order", o.Do, "actor", o.By)
		switch o.Do {
		case operate.OrderQuiet, operate.OrderResume:
			c.hold(func(h *holds) { h.quiet = o.Do == operate.OrderQuiet })
		case operate.OrderTerminate:
			defer p.r.terminate()
		case operate.OrderStacks:
			key := strings.TrimPrefix(v.Key, operate.PrefixOrder+c.worker+"/")
			done = append(done, document.Value{
				Key: operate.PrefixAnswer + key, Data: p.stacks(), Expires: c.now().Add(time.Minute)})
		}
	}
	return document.Of(c.store).PutValues(ctx, c.now(), done)
}

func nodeJob(j *ojs.JobHeader, since time.Time, stack string) inspect.NodeJob {
	return inspect.NodeJob{ID: j.ID, Type: j.Type, Queue: j.Queue, Attempt: j.Attempt, Since: since,
		Stack: stack}
}

// stacks is what runs, with stacks of 8 KiB at most, as JSON.
func (p *reporter) stacks() []byte {
	jobs := []inspect.NodeJob{}
	for _, r := range (&Engine[any]{p.r.c}).Running() {
		if len(jobs) == maxNodeJobs {
			break
		}
		stack := r.Stack[:min(len(r.Stack), 8<<10)]
		jobs = append(jobs, nodeJob(&r.Job, r.Since, stack))
	}
	b, _ := json.Marshal(jobs) // which always encodes
	return b
}

// terminate has Run return.
func (r *run) terminate() { r.terminateOnce.Do(func() { close(r.terminated) }) }
