package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"github.com/ojsengine/ojs"
)

// Queues is what operators do with queues (OJS queue configuration). The state of a queue
// is the storage's: it holds for every engine on it, and for a queue that no job has been
// in yet.
//
// Pause, Drain and Resume succeed for an unknown queue, too. Its name may be a typing
// error, so that they return false for known and the engine logs a warning. A queue is
// known if it has jobs or a state, or if this engine or one that reports (WithReports)
// names it: as a queue that it works or, in this engine, as that of a handler's type.
type Queues struct{ core *core }

// Pause stops deliveries from a queue. It still accepts jobs, and running ones go on.
func (q *Queues) Pause(ctx context.Context, name string) (known bool, err error) {
	return q.set(ctx, name, ojs.QueuePaused, ojs.EventQueuePaused)
}

// Drain makes a queue refuse jobs: an enqueue fails with an *ojs.QueueError of
// ojs.ErrQueueDraining. The jobs that it has are delivered, retries included.
func (q *Queues) Drain(ctx context.Context, name string) (known bool, err error) {
	return q.set(ctx, name, ojs.QueueDraining, ojs.EventQueueDraining)
}

// Resume ends a pause or a drain.
func (q *Queues) Resume(ctx context.Context, name string) (known bool, err error) {
	return q.set(ctx, name, ojs.QueueActive, ojs.EventQueueResumed)
}

func (q *Queues) set(
	ctx context.Context, name string, to ojs.QueueState, event ojs.EventType,
) (known bool, err error) {
	if err := ojs.ValidateQueue(name); err != nil {
		return false, err
	}
	c := q.core
	if err := c.checkTx(ctx); err != nil {
		return false, err
	}
	was, err := c.store.SetQueueState(ctx, name, to)
	if err != nil {
		return false, err
	}
	known = was != ojs.QueueActive || c.knowsQueue(ctx, name)
	if to == ojs.QueuePaused {
		c.returnClaimed()
	}
	if was == to {
		return known, nil
	}
	c.log.Info("queue is "+string(to), "component", "worker", "category", "lifecycle",
		slog.Group("ojs", "queue", name))
	c.emit(ojs.Event{Type: event, Subject: name, Queue: name})
	if was == ojs.QueuePaused {
		c.available(unknown)
	}
	if was == ojs.QueueDraining {
		c.room.made(name)
	}
	return known, nil
}

// QueueStats is what a queue has.
type QueueStats struct {
	Name   string
	State  ojs.QueueState
	Counts map[ojs.State]int // without zeros

	// Config is how this engine serves the queue; nil: it was given no such queue. It is
	// not in the JSON form.
	Config *QueueConfig `json:"-"`
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

// List returns the queues that have jobs, that this engine declares, or that are not
// active, sorted by name. It does not look at the jobs: its cost is that of the rows it
// returns.
func (q *Queues) List(ctx context.Context) ([]QueueStats, error) {
	c := q.core
	counts, err := c.store.Counts(ctx)
	if err != nil {
		return nil, err
	}
	states, err := c.store.QueueStates(ctx)
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
		row(n.Queue).Counts[n.State] = n.N
	}
	queues := c.queues.Load()
	for _, name := range queues.names {
		qc := queues.config[name]
		qc.Defaults = slices.Clone(qc.Defaults)
		row(name).Config = &qc
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
