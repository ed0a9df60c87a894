package reports

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/stored"
)

const (
	maxNodeJobs = 100 // of inspect.Node.Running
	maxNodeLogs = 10  // that a report answers with, of 64 KiB at most each
)

// node is the engine as a node; gone: without data, which deletes it.
func (p *Reporter) node(gone bool) document.Value {
	c := p.c
	v := document.Value{Key: stored.PrefixNode + c.Worker}
	if gone {
		return v
	}
	now := c.Now()
	node := inspect.Node{
		ID: c.Worker, Started: p.started, PID: os.Getpid(), Version: c.Peers.Version,
		Go: runtime.Version(), Seen: now,
	}
	node.Host, _ = os.Hostname()
	a := c.Attempts
	node.Queues, node.Slots, node.Quiet = a.Types.Queues.Load().Names, a.Slots(), a.Admission.Quiet()
	node.Logs = a.JobLogs != nil
	for _, t := range a.Types.Registry.Handlers.Load().All() {
		node.Types = append(node.Types, t.Given.Type())
	}
	if r := a.Run.Load(); r != nil {
		node.Busy = r.Pipe.Busy()
	}
	node.Running = append(node.Running, p.jobs(false)...)
	v.Data, _ = json.Marshal(&node) // which always encodes
	v.Expires = now.Add(3 * c.Peers.Every)
	return v
}

// obey carries out the orders of other processes.
func (p *Reporter) obey(ctx context.Context) error {
	c := p.c
	list, err := document.Of(c.Store).Values(ctx, c.Now(), stored.PrefixOrder+c.Worker+"/", "", 0)
	if err != nil || len(list) == 0 {
		return err
	}
	// The oldest first: the others of many logs wait for the next report.
	slices.SortStableFunc(list, func(a, b document.Value) int { return a.Expires.Compare(b.Expires) })
	var done []document.Value
	logs := 0
	for _, v := range list {
		var o stored.Order
		err := json.Unmarshal(v.Data, &o)
		if o.Do == stored.OrderLog && c.Attempts.Logged(o.Job) > 0 { // or the order is forgotten
			if logs++; logs > maxNodeLogs {
				continue
			}
			if log := c.Attempts.LogOf(o.Job); log != nil {
				done = append(done, document.Value{Key: stored.PrefixAnswer + stored.KeyLog(o.Job), Data: log,
					Expires: c.Now().Add(stored.LogFor)})
			}
		}
		if done = append(done, document.Value{Key: v.Key}); err != nil || o.Do == stored.OrderLog {
			continue
		}
		c.Log.Info("order taken", "component", "worker", "category", "lifecycle", "worker_id", c.Worker,
			"order", o.Do, "actor", o.By)
		switch o.Do {
		case stored.OrderQuiet, stored.OrderResume:
			c.Attempts.Admission.SetQuiet(o.Do == stored.OrderQuiet)
		case stored.OrderTerminate:
			defer p.terminate()
		case stored.OrderStacks:
			key := strings.TrimPrefix(v.Key, stored.PrefixOrder+c.Worker+"/")
			data, _ := json.Marshal(p.jobs(true)) // which always encodes
			done = append(done, document.Value{
				Key: stored.PrefixAnswer + key, Data: data, Expires: c.Now().Add(time.Minute)})
		}
	}
	return document.Of(c.Store).PutValues(ctx, c.Now(), done)
}

// jobs lists what runs, with stacks of 8 KiB at most or without.
func (p *Reporter) jobs(stacks bool) []inspect.NodeJob {
	list := []inspect.NodeJob{}
	works := p.c.Attempts.Works(stacks)
	for _, r := range works[:min(len(works), maxNodeJobs)] {
		j := &r.Job
		list = append(list, inspect.NodeJob{ID: j.ID, Type: j.Type, Queue: j.Queue, Attempt: j.Attempt,
			Since: r.Since,
			Stack: r.Stack[:min(len(r.Stack), 8<<10)]})
	}
	return list
}
