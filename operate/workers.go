package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
)

// Engines that report on themselves (engine.WithReports) are nodes. Their orders are
// values of the storage:
//
//   - order/ID/KEY: what another process has told the node to do, until it does it;
//   - answer/KEY: what the node has answered.
const (
	PrefixOrder  = "order/"
	PrefixAnswer = "answer/"
)

// Workers are what takes the jobs of a storage, in this process and others: engines, and
// workers that fetch jobs from an engine.
type Workers struct{ op *Operator }

// List returns the workers, as inspect.Jobs.Workers does.
func (n *Workers) List(ctx context.Context) ([]inspect.Worker, error) {
	return n.op.eng.Inspect.Workers(ctx)
}

// Quiet tells a worker to take no more jobs. It goes on with those that it has. An engine
// obeys with its next report. A worker that fetches from the engine of the call gets no
// more jobs from now on: its Fetch returns fetch.ErrQuiet. An unknown id gives
// ojs.ErrNotFound.
func (n *Workers) Quiet(ctx context.Context, id string) error {
	if n.op.eng.WorkerSet(id, false) {
		return nil
	}
	_, err := n.order(ctx, id, OrderQuiet)
	return err
}

// Resume ends Quiet of an engine.
func (n *Workers) Resume(ctx context.Context, id string) error {
	_, err := n.order(ctx, id, OrderResume)
	return err
}

// Terminate makes Run of an engine return, as if its context had ended, with its next
// report: running handlers may finish within the grace period. The program decides what
// it does then. A worker that fetches from the engine of the call is told to end: its
// Fetch returns fetch.ErrTerminated. An unknown id gives ojs.ErrNotFound.
func (n *Workers) Terminate(ctx context.Context, id string) error {
	if n.op.eng.WorkerSet(id, true) {
		return nil
	}
	_, err := n.order(ctx, id, OrderTerminate)
	return err
}

// Stacks asks an engine for what it runs, with the stacks of the handlers. It answers
// with its next report: give ctx an end. An unknown id gives ojs.ErrNotFound.
func (n *Workers) Stacks(ctx context.Context, id string) ([]inspect.NodeJob, error) {
	key, err := n.order(ctx, id, OrderStacks)
	if err != nil {
		return nil, err
	}
	for {
		list, err := document.Of(n.op.eng.Store).Values(ctx, n.op.eng.Now(), PrefixAnswer+key, "", 1)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			var jobs []inspect.NodeJob
			err := json.Unmarshal(list[0].Data, &jobs)
			return jobs, err
		}
		if err := n.op.rest(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// The orders that nodes are given.
const (
	OrderQuiet     = "quiet"
	OrderResume    = "resume"
	OrderTerminate = "terminate"
	OrderStacks    = "stacks"
)

// Order is what a node is told.
type Order struct{ Do, By string }

// order gives an order to a node. It returns the key of its answer.
func (n *Workers) order(ctx context.Context, id, do string) (key string, err error) {
	e := &n.op.eng
	there, err := document.Of(e.Store).Values(ctx, e.Now(), inspect.PrefixNode+id, "", 1)
	if err != nil {
		return "", err
	}
	if len(there) == 0 || there[0].Key != inspect.PrefixNode+id {
		return "", fmt.Errorf("%w: node %q", ojs.ErrNotFound, id)
	}
	data, err := json.Marshal(Order{do, ojs.Actor(ctx)})
	if err != nil {
		return "", err
	}
	key = e.NewOrder()
	return key, document.Of(e.Store).PutValues(ctx, e.Now(), []document.Value{
		{Key: PrefixOrder + id + "/" + key, Data: data, Expires: e.Now().Add(10 * time.Minute)},
	})
}
