package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/stored"
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
	_, err := n.order(ctx, id, stored.OrderQuiet)
	return err
}

// Resume ends Quiet of an engine.
func (n *Workers) Resume(ctx context.Context, id string) error {
	_, err := n.order(ctx, id, stored.OrderResume)
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
	_, err := n.order(ctx, id, stored.OrderTerminate)
	return err
}

// Stacks asks an engine for what it runs, with the stacks of the handlers. It answers
// with its next report: give ctx an end. An unknown id gives ojs.ErrNotFound.
func (n *Workers) Stacks(ctx context.Context, id string) ([]inspect.NodeJob, error) {
	key, err := n.order(ctx, id, stored.OrderStacks)
	if err != nil {
		return nil, err
	}
	for {
		v, ok, err := document.Of(n.op.eng.Store).Value(ctx, n.op.eng.Now(), stored.PrefixAnswer+key)
		if err != nil {
			return nil, err
		}
		if ok {
			var jobs []inspect.NodeJob
			err := json.Unmarshal(v.Data, &jobs)
			return jobs, err
		}
		if err := n.op.rest(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// order gives an order to a node. It returns the key of its answer.
func (n *Workers) order(ctx context.Context, id, do string) (key string, err error) {
	e := &n.op.eng
	_, there, err := document.Of(e.Store).Value(ctx, e.Now(), stored.PrefixNode+id)
	if err != nil {
		return "", err
	}
	if !there {
		return "", fmt.Errorf("%w: node %q", ojs.ErrNotFound, id)
	}
	data, err := json.Marshal(stored.Order{Do: do, By: ojs.Actor(ctx)})
	if err != nil {
		return "", err
	}
	key = e.NewOrder()
	return key, document.Of(e.Store).PutValues(ctx, e.Now(), []document.Value{
		{Key: stored.PrefixOrder + id + "/" + key, Data: data, Expires: e.Now().Add(10 * time.Minute)},
	})
}
