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
	"github.com/ojsengine/ojs/storage"
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
	return n.direct(ctx, id, stored.OrderQuiet)
}

// Resume ends Quiet of an engine.
func (n *Workers) Resume(ctx context.Context, id string) error {
	return n.direct(ctx, id, stored.OrderResume)
}

// Terminate makes Run of an engine return, as if its context had ended, with its next
// report: running handlers may finish within the grace period. The program decides what
// it does then. A worker that fetches from the engine of the call is told to end: its
// Fetch returns fetch.ErrTerminated. An unknown id gives ojs.ErrNotFound.
func (n *Workers) Terminate(ctx context.Context, id string) error {
	return n.direct(ctx, id, stored.OrderTerminate)
}

// direct tells a worker what to do: one that fetches from this engine at once, an engine
// by an order.
func (n *Workers) direct(ctx context.Context, id, do string) error {
	if do != stored.OrderResume && n.op.eng.WorkerSet(id, do == stored.OrderTerminate) {
		return nil
	}
	_, err := n.order(ctx, id, stored.Order{Do: do, By: ojs.Actor(ctx)})
	return err
}

// Stacks asks an engine for what it runs, with the stacks of the handlers. It answers
// with its next report: give ctx an end. An unknown id gives ojs.ErrNotFound.
func (n *Workers) Stacks(ctx context.Context, id string) ([]inspect.NodeJob, error) {
	key, err := n.order(ctx, id, stored.Order{Do: stored.OrderStacks, By: ojs.Actor(ctx)})
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

// Log returns what the running attempt of a job has logged so far. Its End is zero.
// worker holds the job: an engine that keeps logs (engine.WithJobLogs). That of the call
// answers at once. Another one answers with its next report: call again, until then ok is
// false. It stores its answer for a minute, and only after such a call. If the worker
// does not hold the job, or keeps no logs, the error is ojs.ErrNotFound.
func (n *Workers) Log(ctx context.Context, worker, job string) (log inspect.AttemptLog, ok bool, err error) {
	data := []byte(nil)
	if e := &n.op.eng; worker == e.Worker && e.KeepsLogs {
		data = e.RunningLog(job)
	} else if data, err = n.answeredLog(ctx, worker, job); err != nil {
		return log, false, err
	}
	if data == nil {
		return log, false, nil
	}
	log, err = inspect.ReadLog(data)
	return log, err == nil, err
}

// Logged returns how many lines the running attempt of a job has logged so far, for a
// program that calls Log if there are more. It costs less, and has the same errors. In an
// engine that is not that of the call, these are the lines of its latest answer.
func (n *Workers) Logged(ctx context.Context, worker, job string) (lines uint64, err error) {
	if e := &n.op.eng; worker == e.Worker && e.KeepsLogs {
		return e.Logged(job), nil
	}
	data, err := n.answeredLog(ctx, worker, job)
	var log stored.Log
	if err == nil && data != nil {
		err = json.Unmarshal(data, &log)
	}
	return log.N, err
}

// answeredLog is the log of a job that runs in another engine, as that has answered; nil:
// it has not. It asks for the log if the answer is old.
func (n *Workers) answeredLog(ctx context.Context, worker, job string) ([]byte, error) {
	e := &n.op.eng
	rec, err := e.Inspect.Record(ctx, job)
	if err != nil {
		return nil, err
	}
	if rec.State != ojs.StateActive || rec.Worker != worker || worker == e.Worker {
		return nil, fmt.Errorf("%w: log of job %s in worker %q", ojs.ErrNotFound, job, worker)
	}
	values, now := document.Of(e.Store), e.Now()
	answer, ok, err := values.Value(ctx, now, stored.PrefixAnswer+stored.KeyLog(job))
	if err != nil {
		return nil, err
	}
	if ok && !answers(answer.Data, &rec) {
		answer = document.Value{}
	}
	if answer.Expires.Sub(now) >= stored.LogFor-logAge {
		return answer.Data, nil
	}
	_, asked, err := values.Value(ctx, now, stored.PrefixOrder+worker+"/"+stored.KeyLog(job))
	if err != nil || asked {
		return answer.Data, err
	}
	_, err = n.order(ctx, worker, stored.Order{Do: stored.OrderLog, Job: job})
	return answer.Data, err
}

// answers reports whether a log is that of the running attempt of a job. An attempt that
// does not count has the number of the next one.
func answers(data []byte, rec *storage.Record) bool {
	var log stored.Log
	return json.Unmarshal(data, &log) == nil && log.Attempt == rec.Attempt && log.Worker == rec.Worker &&
		!log.Start.Before(rec.StartedAt)
}

// logAge is how old the log of a running attempt is when Log asks for it again.
const logAge = time.Second

// order gives an order to an engine, and returns the key of its answer.
func (n *Workers) order(ctx context.Context, id string, o stored.Order) (key string, err error) {
	e := &n.op.eng
	v, ok, err := document.Of(e.Store).Value(ctx, e.Now(), stored.PrefixNode+id)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", fmt.Errorf("%w: node %q", ojs.ErrNotFound, id)
	}
	if key = stored.KeyLog(o.Job); o.Job == "" {
		key = e.NewOrder()
	} else if node := (inspect.Node{}); json.Unmarshal(v.Data, &node) != nil || !node.Logs {
		return "", fmt.Errorf("%w: node %q that keeps logs", ojs.ErrNotFound, id)
	}
	data, err := json.Marshal(&o)
	if err != nil {
		return "", err
	}
	return key, document.Of(e.Store).PutValues(ctx, e.Now(), []document.Value{
		{Key: stored.PrefixOrder + id + "/" + key, Data: data, Expires: e.Now().Add(10 * time.Minute)},
	})
}
