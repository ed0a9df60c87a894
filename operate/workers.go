package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/foreign"
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

// Log returns what the running attempt of a job has logged so far, in an engine that
// keeps logs (engine.WithJobLogs). Its End is zero. worker holds the job: an engine. That
// of the call answers at once. Another one answers with its next report: call again,
// until then ok is false. It stores its answer for a minute, and only after such a call.
func (n *Workers) Log(ctx context.Context, worker, job string) (log inspect.AttemptLog, ok bool, err error) {
	e := &n.op.eng
	data := e.RunningLog(job)
	if data == nil {
		values, now := document.Of(e.Store), e.Now()
		answer, _, err := values.Value(ctx, now, stored.PrefixAnswer+stored.KeyLog(job))
		if err != nil {
			return log, false, err
		}
		data = answer.Data
		if answer.Expires.Sub(now) < stored.LogFor-logAge {
			_, asked, err := values.Value(ctx, now, stored.PrefixOrder+worker+"/"+stored.KeyLog(job))
			if err == nil && !asked {
				_, err = n.give(ctx, worker, stored.KeyLog(job), stored.Order{Do: stored.OrderLog, Job: job})
			}
			if err != nil && !foreign.Is(err, ojs.ErrNotFound) {
				return log, false, err
			}
		}
	}
	if data == nil {
		return log, false, nil
	}
	log, err = inspect.ReadLog(data)
	return log, err == nil, err
}

// logAge is how old the log of a running attempt is when Log asks for it again.
const logAge = time.Second

// order gives an order to a node. It returns the key of its answer.
func (n *Workers) order(ctx context.Context, id, do string) (key string, err error) {
	return n.give(ctx, id, n.op.eng.NewOrder(), stored.Order{Do: do, By: ojs.Actor(ctx)})
}

// give gives an order to a node under a key, and returns the key.
func (n *Workers) give(ctx context.Context, id, key string, o stored.Order) (string, error) {
	e := &n.op.eng
	_, there, err := document.Of(e.Store).Value(ctx, e.Now(), stored.PrefixNode+id)
	if err != nil {
		return "", err
	}
	if !there {
		return "", fmt.Errorf("%w: node %q", ojs.ErrNotFound, id)
	}
	data, err := json.Marshal(&o)
	if err != nil {
		return "", err
	}
	return key, document.Of(e.Store).PutValues(ctx, e.Now(), []document.Value{
		{Key: stored.PrefixOrder + id + "/" + key, Data: data, Expires: e.Now().Add(10 * time.Minute)},
	})
}
