package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/storage"
)

// Worker takes jobs: it is an engine, or a worker that fetches jobs from one.
type Worker struct {
	ID   string // the worker id of its attempts (event.Event.WorkerID)
	Node *Node  // nil: it is no engine that reports on itself

	Jobs int // the active jobs that it holds

	// First and Last are when the first and the last of its leases end. A live worker
	// renews them before. The jobs of a killed one run again then.
	First, Last time.Time

	// Silent is how long its process has not reported; 0: it reports, or it never has.
	Silent time.Duration
}

// Node is an engine that runs on the storage and reports on itself (WithReports).
type Node struct {
	ID, Host    string // ID is that of its worker, as in event.Event.WorkerID
	PID         int
	Version, Go string // of the program, of the toolchain

	Started, Seen time.Time // Run was called; it has reported
	Quiet, Logs   bool      // it takes no more jobs; it keeps what handlers log (WithJobLogs)
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
	Stack           string // of operate.Workers.Stacks; else ""
}

// Running is an attempt that a handler of an engine works on.
type Running struct {
	Job    ojs.JobHeader // with a meta of its own
	Since  time.Time
	Asleep bool   // in handler.Sleep
	Ended  error  // why its context has ended; nil: it has not
	Stack  string // of the goroutine that runs the handler
}

// Workers returns what takes the jobs of the storage: the engines that report on
// themselves (engine.WithReports), by host, process and id, and then all others that hold
// active jobs, in the order in which their leases end. Jobs of a worker whose leases are
// not renewed wait until Last, or until the process has been silent for
// engine.Reports.DeadAfter.
//
// It costs a listing of the active jobs, which storages find without a look at others.
func (j *Jobs) Workers(ctx context.Context) ([]Worker, error) {
	nodes, err := j.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*Worker)
	for i := range nodes {
		byID[nodes[i].ID] = &Worker{ID: nodes[i].ID, Node: &nodes[i]}
	}
	for rec, err := range j.Records(ctx, Filter{States: []ojs.State{ojs.StateActive}}) {
		if err != nil {
			return nil, err
		}
		w := byID[rec.Worker]
		if w == nil {
			w = &Worker{ID: rec.Worker}
			byID[rec.Worker] = w
		}
		if w.Jobs++; w.Jobs == 1 || rec.LeaseUntil.Before(w.First) {
			w.First = rec.LeaseUntil
		}
		if rec.LeaseUntil.After(w.Last) {
			w.Last = rec.LeaseUntil
		}
	}
	err = j.eachValue(ctx, stored.PrefixAlive, func(v document.Value) {
		if w := byID[strings.TrimPrefix(v.Key, stored.PrefixAlive)]; w != nil {
			w.Silent = silence(v, j.Now())
		}
	})
	list := slices.SortedFunc(maps.Values(byID), func(a, b *Worker) int {
		switch {
		case a.Node != nil && b.Node != nil:
			return byProcess(a.Node, b.Node)
		case a.Node != nil:
			return -1
		case b.Node != nil:
			return 1
		}
		return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.ID, b.ID))
	})
	out := make([]Worker, len(list))
	for i, w := range list {
		out[i] = *w
	}
	return out, err
}

// Nodes returns the engines that report on themselves, by host, process and id. It looks
// at no job.
func (j *Jobs) Nodes(ctx context.Context) (list []Node, err error) {
	err = j.eachValue(ctx, stored.PrefixNode, func(v document.Value) {
		var node Node
		if json.Unmarshal(v.Data, &node) == nil { // or it is a later version's
			list = append(list, node)
		}
	})
	slices.SortFunc(list, func(a, b Node) int { return byProcess(&a, &b) })
	return list, err
}

func byProcess(a, b *Node) int {
	return cmp.Or(strings.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID), strings.Compare(a.ID, b.ID))
}

// silenceOf is how long the process of a worker has not reported; 0: it reports in time,
// or never has.
func (j *Jobs) silenceOf(ctx context.Context, worker string) (time.Duration, error) {
	v, ok, err := document.Of(j.source).Value(ctx, j.Now(), stored.PrefixAlive+worker)
	if err != nil || !ok {
		return 0, err
	}
	return silence(v, j.Now()), nil
}

// silence is how long a process has not reported, by its value.
func silence(v document.Value, now time.Time) time.Duration {
	var a stored.Alive
	if json.Unmarshal(v.Data, &a) != nil {
		return 0
	}
	return a.Silence(now)
}

// Pause is a pause of a job type or of everything.
type Pause struct {
	Type   string // "": every type, of every queue
	By     string // the name of who did it (ojs.WithActor)
	Reason string
	At     time.Time
}

// OfAll reports whether it is a pause of everything.
func (p Pause) OfAll() bool { return p.Type == "" }

// Pauses returns the pauses of everything and of types, that of everything first. A
// paused queue is a state of the queue.
func (j *Jobs) Pauses(ctx context.Context) (list []Pause, err error) {
	err = j.eachValue(ctx, stored.PrefixPause, func(v document.Value) {
		var p Pause
		_ = json.Unmarshal(v.Data, &p) // what does not decode is a pause of which no more is known
		p.Type = strings.TrimPrefix(strings.TrimPrefix(v.Key, stored.KeyPauseAll), stored.PrefixPauseType)
		list = append(list, p)
	})
	slices.SortFunc(list, func(a, b Pause) int { return cmp.Compare(a.Type, b.Type) })
	return list, err
}

// eachValue calls f for each value whose key has the prefix, in their order.
func (j *Jobs) eachValue(ctx context.Context, prefix string, f func(document.Value)) error {
	for v, err := range document.Of(j.source).EachValue(ctx, j.Now(), storage.DocumentQuery{Prefix: prefix}) {
		if err != nil {
			return err
		}
		f(v)
	}
	return nil
}
