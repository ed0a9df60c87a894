package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
)

// Nodes are values of the storage:
//
//   - node/ID: the node, until three reports have not come;
//   - order/ID/KEY: what another process has told the node to do, until it does it;
//   - answer/KEY: what the node has answered.

const (
	nodePrefix   = "node/"
	orderPrefix  = "order/"
	answerPrefix = "answer/"
)

// Node is an engine that runs on the storage and reports on itself (WithReports).
type Node struct {
	ID      string // of its worker, as in ojs.Event.WorkerID
	Host    string
	PID     int
	Version string // of the program
	Go      string // of the toolchain

	Started, Seen time.Time // Run was called; it has reported
	Quiet         bool      // it takes no more jobs
	Queues        []string  // that it works; empty: all
	Types         []string  // with a handler
	Slots, Busy   int       // attempts that may run at once, and that do
	Running       []NodeJob // the longest running first, 100 at most
}

// NodeJob is an attempt that runs in a node.
type NodeJob struct {
	ID, Type, Queue string
	Attempt         int
	Since           time.Time
	Stack           string // of Nodes.Stacks; else ""
}

// maxNodeJobs bounds Node.Running.
const maxNodeJobs = 100

// Nodes are the engines on a storage, in this process and others, that report on
// themselves (WithReports).
type Nodes struct{ core *core }

// Nodes gives access to the engines on the storage.
func (e *Engine[T]) Nodes() *Nodes { return &Nodes{e.core} }

// List returns the nodes, sorted by host, process and id.
func (n *Nodes) List(ctx context.Context) (list []Node, err error) {
	err = n.core.eachValue(ctx, nodePrefix, func(v document.Value) {
		var node Node
		if json.Unmarshal(v.Data, &node) == nil { // or it is a later version's
			list = append(list, node)
		}
	})
	slices.SortFunc(list, func(a, b Node) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID), strings.Compare(a.ID, b.ID))
	})
	return list, err
}

// Quiet tells a node to take no more jobs. It goes on with those that it runs. The node
// obeys with its next report. An unknown id gives ojs.ErrNotFound.
func (n *Nodes) Quiet(ctx context.Context, id string) error {
	_, err := n.order(ctx, id, orderQuiet)
	return err
}

// Resume ends Quiet.
func (n *Nodes) Resume(ctx context.Context, id string) error {
	_, err := n.order(ctx, id, orderResume)
	return err
}

// Terminate has Run of a node return, as if its context had ended, with its next report:
// running handlers may finish within the grace period. The program decides what it does
// then. An unknown id gives ojs.ErrNotFound.
func (n *Nodes) Terminate(ctx context.Context, id string) error {
	_, err := n.order(ctx, id, orderTerminate)
	return err
}

// Stacks asks a node for what it runs, with the stacks of the handlers. The node answers
// with its next report: give ctx an end. An unknown id gives ojs.ErrNotFound.
func (n *Nodes) Stacks(ctx context.Context, id string) ([]NodeJob, error) {
	key, err := n.order(ctx, id, orderStacks)
	if err != nil {
		return nil, err
	}
	for {
		list, err := document.Of(n.core.store).Values(ctx, n.core.now(), answerPrefix+key, "", 1)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			var jobs []NodeJob
			err := json.Unmarshal(list[0].Data, &jobs)
			return jobs, err
		}
		if err := n.core.rest(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// The orders.
const (
	orderQuiet     = "quiet"
	orderResume    = "resume"
	orderTerminate = "terminate"
	orderStacks    = "stacks"
)

// order is what a node is told.
type order struct{ Do, By string }

// order gives an order to a node. It returns the key of its answer.
func (n *Nodes) order(ctx context.Context, id, do string) (key string, err error) {
	c := n.core
	there, err := document.Of(c.store).Values(ctx, c.now(), nodePrefix+id, "", 1)
	if err != nil {
		return "", err
	}
	if len(there) == 0 || there[0].Key != nodePrefix+id {
		return "", fmt.Errorf("%w: node %q", ojs.ErrNotFound, id)
	}
	data, err := json.Marshal(order{do, ojs.Actor(ctx)})
	if err != nil {
		return "", err
	}
	key = c.eventIDs.id(c.now()) // of the source that events have: what happens stays as it is
	return key, document.Of(c.store).PutValues(ctx, c.now(), []document.Value{
		{Key: orderPrefix + id + "/" + key, Data: data, Expires: c.now().Add(10 * time.Minute)},
	})
}

// nodeValue is the engine as a node; gone: without data, which deletes it.
func (c *core) nodeValue(gone bool) document.Value {
	v := document.Value{Key: nodePrefix + c.worker}
	if gone {
		return v
	}
	now := c.now()
	node := Node{
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
				node.Running = append(node.Running, NodeJob{j.ID, j.Type, j.Queue, j.Attempt, a.began(), ""})
			}
		}
	}
	c.mu.Unlock()
	slices.SortFunc(node.Running, func(a, b NodeJob) int { return a.Since.Compare(b.Since) })
	node.Running = node.Running[:min(len(node.Running), maxNodeJobs)]
	v.Data, _ = json.Marshal(&node) // which always encodes
	v.Expires = now.Add(3 * c.reports.Every)
	return v
}

// obey does what others have ordered.
func (p *reporter) obey(ctx context.Context) error {
	c := p.r.c
	list, err := document.Of(c.store).Values(ctx, c.now(), orderPrefix+c.worker+"/", "", 0)
	if err != nil || len(list) == 0 {
		return err
	}
	var done []document.Value
	for _, v := range list {
		done = append(done, document.Value{Key: v.Key})
		var o order
		if json.Unmarshal(v.Data, &o) != nil {
			continue
		}
		c.log.Info("order taken", "component", "worker", "category", "lifecycle", "worker_id", c.worker,
			"order", o.Do, "actor", o.By)
		switch o.Do {
		case orderQuiet, orderResume:
			c.hold(func(h *holds) { h.quiet = o.Do == orderQuiet })
		case orderTerminate:
			defer p.r.terminate()
		case orderStacks:
			key := strings.TrimPrefix(v.Key, orderPrefix+c.worker+"/")
			done = append(done, document.Value{
				Key: answerPrefix + key, Data: p.stacks(), Expires: c.now().Add(time.Minute)})
		}
	}
	return document.Of(c.store).PutValues(ctx, c.now(), done)
}

// stacks is what runs, with stacks of 8 KiB at most, as JSON.
func (p *reporter) stacks() []byte {
	jobs := []NodeJob{}
	for _, r := range (&Engine[any]{p.r.c}).Running() {
		if len(jobs) == maxNodeJobs {
			break
		}
		stack := r.Stack[:min(len(r.Stack), 8<<10)]
		jobs = append(jobs, NodeJob{r.Job.ID, r.Job.Type, r.Job.Queue, r.Job.Attempt, r.Since, stack})
	}
	b, _ := json.Marshal(jobs) // which always encodes
	return b
}

// terminate has Run return.
func (r *run) terminate() { r.terminateOnce.Do(func() { close(r.terminated) }) }
