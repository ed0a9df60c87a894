package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/storage"
)

// Queues is what operators do with queues (OJS queue configuration). The state of a queue
// is the storage's: it holds for every engine on it, and for a queue that no job has been
// in yet.
//
// Pause, Drain and Resume succeed for an unknown queue, too. Its name may be a typing
// error, so that they return false for known and the engine logs a warning. A queue is
// known if it has jobs or a state, or if the engine of the call or one that reports
// (engine.WithReports) names it.
type Queues struct{ op *Operator }

// Pause stops deliveries from a queue. It still accepts jobs, and running ones go on.
func (q *Queues) Pause(ctx context.Context, name string) (known bool, err error) {
	return q.set(ctx, name, ojs.QueuePaused)
}

// Drain makes a queue refuse jobs: an enqueue fails with an *ojs.QueueError of
// ojs.ErrQueueDraining. The jobs that it has are delivered, retries included.
func (q *Queues) Drain(ctx context.Context, name string) (known bool, err error) {
	return q.set(ctx, name, ojs.QueueDraining)
}

// Resume ends a pause or a drain.
func (q *Queues) Resume(ctx context.Context, name string) (known bool, err error) {
	return q.set(ctx, name, ojs.QueueActive)
}

func (q *Queues) set(ctx context.Context, name string, to ojs.QueueState) (known bool, err error) {
	if err := ojs.ValidateQueue(name); err != nil {
		return false, err
	}
	o := q.op
	if err := draft.CheckTx(ctx, o.eng.Store); err != nil {
		return false, err
	}
	was, err := o.eng.Store.SetQueueState(ctx, name, to)
	if err != nil {
		return false, err
	}
	known = was != ojs.QueueActive || o.known(ctx, storage.LimitName{Kind: storage.LimitQueue, Name: name})
	o.eng.QueueSet(name, was, to)
	return known, nil
}

// QueueStats is what a queue has.
type QueueStats struct {
	Name   string
	State  ojs.QueueState
	Counts map[ojs.State]int // without zeros
}

// Depth is how many of its jobs have not ended.
func (s *QueueStats) Depth() int {
	n := 0
	for state, count := range s.Counts {
		if !state.Terminal() {
			n += count
		}
	}
	return n
}

// List returns the queues that have jobs, that the engine of the call works, or that are
// not active, sorted by name. It does not look at the jobs: its cost is that of the rows
// it returns.
func (q *Queues) List(ctx context.Context) ([]QueueStats, error) {
	counts, err := q.op.eng.Store.Counts(ctx)
	if err != nil {
		return nil, err
	}
	states, err := q.op.eng.Store.QueueStates(ctx)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*QueueStats)
	row := func(name string) *QueueStats {
		if byName[name] == nil {
			byName[name] = &QueueStats{Name: name, State: ojs.QueueActive, Counts: make(map[ojs.State]int)}
		}
		return byName[name]
	}
	for _, n := range counts {
		row(n.Queue).Counts[n.State] += n.N
	}
	for _, name := range q.op.eng.Queues() {
		row(name)
	}
	for name, state := range states {
		row(name).State = state
	}
	rows := make([]QueueStats, 0, len(byName))
	for _, r := range byName {
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b QueueStats) int { return cmp.Compare(a.Name, b.Name) })
	return rows, nil
}

// PauseType stops deliveries of jobs of a type, in all queues and for every engine on the
// storage: its handlers get none until ResumeType. Running jobs go on, and jobs of the
// type may be enqueued. An engine in another process obeys as soon as its storage tells
// it: at once in memory and PostgreSQL, after the storage's poll with SQLite. Workers
// that fetch jobs of any type are not bound by it. A pause is not part of a transaction
// of PostgreSQL: a context with one gives ojs.ErrUnsupported.
//
// PauseType and ResumeType succeed for an unknown type, too. Its name may be a typing
// error, so that they return false for known and the engine logs a warning. A type is
// known if it is paused, if the engine of the call or one that reports
// (engine.WithReports) has a handler of it, or if a job is of it.
func (q *Queues) PauseType(ctx context.Context, jobType, reason string) (known bool, err error) {
	return q.op.pauseOfType(ctx, jobType, &inspect.Pause{Type: jobType, Reason: reason})
}

// ResumeType ends a pause of a type. A type that is not paused is no error.
func (q *Queues) ResumeType(ctx context.Context, jobType string) (known bool, err error) {
	return q.op.pauseOfType(ctx, jobType, nil)
}

// PauseAll stops all deliveries of a storage, for maintenance: no engine and no worker
// gets jobs until ResumeAll, and recurring jobs make none but by Trigger: what they miss
// is as if no engine had run (cron.Entry.Missed). Running jobs go on. Jobs may be
// enqueued, and become available when they come due. A queue that is paused stays paused
// after ResumeAll. For the rest it is as PauseType.
func (q *Queues) PauseAll(ctx context.Context, reason string) error {
	return q.op.setPause(ctx, stored.KeyPauseAll, &inspect.Pause{Reason: reason})
}

// ResumeAll ends PauseAll.
func (q *Queues) ResumeAll(ctx context.Context) error {
	return q.op.setPause(ctx, stored.KeyPauseAll, nil)
}

// Pauses returns the pauses, as inspect.Jobs.Pauses does.
func (q *Queues) Pauses(ctx context.Context) ([]inspect.Pause, error) {
	return q.op.eng.Inspect.Pauses(ctx)
}

// pauseOfType pauses or resumes a type, and reports whether it is known.
func (o *Operator) pauseOfType(ctx context.Context, jobType string, p *inspect.Pause) (bool, error) {
	if err := ojs.ValidateType(jobType); err != nil {
		return false, err
	}
	before, _ := o.eng.Inspect.Pauses(ctx) // none, if they cannot be read now
	if err := o.setPause(ctx, stored.PrefixPauseType+jobType, p); err != nil {
		return false, err
	}
	paused := slices.ContainsFunc(before, func(p inspect.Pause) bool { return p.Type == jobType })
	return paused || o.known(ctx, storage.LimitName{Kind: storage.LimitType, Name: jobType}), nil
}

// setPause stores a pause, or deletes it.
func (o *Operator) setPause(ctx context.Context, key string, p *inspect.Pause) error {
	if err := draft.CheckTx(ctx, o.eng.Store); err != nil {
		return err
	}
	v := document.Value{Key: key}
	did, what := "resumed", "all jobs"
	if p != nil {
		did = "paused"
		p.By, p.At = ojs.Actor(ctx), o.eng.Now()
		var err error
		if v.Data, err = json.Marshal(p); err != nil {
			return err
		}
	}
	if err := document.Of(o.eng.Store).PutValues(ctx, o.eng.Now(), []document.Value{v}); err != nil {
		return err
	}
	if jobType, ok := strings.CutPrefix(key, stored.PrefixPauseType); ok {
		what = "jobs of type " + jobType
	}
	o.eng.Log.Info(what+" are "+did, "component", "worker", "category", "lifecycle", "actor", ojs.Actor(ctx))
	return o.eng.Paused(ctx)
}
