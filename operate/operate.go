// Package operate changes what a storage has, as an operator does: jobs, one or many,
// dead letters, queues, limits, workers, workflows, and records that do not decode. It
// needs a storage and a clock, and no engine, so that a page or a command can use it on
// the database of a program (Open). Engines on the storage notice what is done, as they
// notice one another. An Engine has the same verbs. Its events and its log have what is
// done through these.
//
// # Invariants
//
//  1. A verb makes one change or none, except Jobs.Apply and Workflows.Cancel, which say
//     how far they have come.
//  2. A change is decided on the job as it is stored, and again if the job has moved on
//     before the change was stored.
//  3. No verb changes what a running attempt returns. It may take the attempt away.
//  4. An Operator has no state: it needs no lock.
package operate

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/following"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// decide makes of a job what it shall be, and names the event; "": nothing is to change.
type decide func(rec *storage.Record, now time.Time) (event.Type, error)

// Engine is what the package needs of an engine. Package engine fills it in; Open makes
// one of a storage.
type Engine struct {
	Store   storage.Storage
	Clock   clock.Clock
	Inspect *inspect.Jobs
	Codec   *codec.Chain // nil: none
	Log     *slog.Logger

	Now      func() time.Time // as storages keep times
	NewID    func() string    // of a job
	NewOrder func() string    // of an order, by another source: it changes no id of a job
	Enqueuer ojs.Enqueuer

	// LogJob writes a line about a job.
	LogJob func(level slog.Level, msg string, rec *storage.Record, attrs ...any)

	// ArgsType is what the handler of a type takes; nil: there is no handler.
	ArgsType func(jobType, version string) reflect.Type

	// Names reports whether the engine names a queue or a type, and Queues returns the
	// queues that it works.
	Names  func(name storage.LimitName) bool
	Queues func() []string

	// Settle stores the change of a job that was in a state. It then calls then, unless
	// it is nil.
	Settle func(ctx context.Context, now time.Time, from ojs.State, change []storage.Change,
		typ event.Type, then func(*storage.Record)) error

	// Delete deletes a job that has ended, CancelAll the jobs of a workflow, and Revive
	// makes jobs that have ended begin anew.
	Delete    func(ctx context.Context, rec *storage.Record) error
	CancelAll func(ctx context.Context, ids []string) error
	Revive    func(ctx context.Context, batch []storage.Insert, now time.Time) error

	// TraceCancel begins the cancellation of a job, which end ends.
	TraceCancel func(ctx context.Context, id string) (traced context.Context, end func(error))

	// RunningLog returns the log of an attempt that runs in this engine, as it is stored;
	// nil: there is none. Logged returns how many lines it has had. Worker is the id of
	// the engine, and KeepsLogs reports whether it keeps logs.
	RunningLog func(job string) []byte
	Logged     func(job string) uint64
	Worker     string
	KeepsLogs  bool

	// Wait waits for the end of a job.
	Wait func(ctx context.Context, id string) (*ojs.JobInfo, error)

	// QueueSet, Paused and LimitSet follow a change of a queue's state, of the pauses of
	// types and everything, and of a limit, which may have failed. Moved follows a job's
	// move from a queue. WorkerSet tells a worker that fetches jobs from the engine to
	// become quiet or to end, and reports whether there is one.
	QueueSet  func(name string, was, to ojs.QueueState)
	Paused    func(ctx context.Context) error
	LimitSet  func(name storage.LimitName, until time.Time, reason string, err error)
	Moved     func(from string)
	WorkerSet func(id string, terminate bool) bool
}

// idAt makes a UUIDv7 of a time: ids tell which jobs are new.
func idAt(now time.Time) string {
	u := uuid.Must(uuid.NewV7())
	ms := binary.BigEndian.AppendUint64(nil, uint64(now.UnixMilli()))
	copy(u[:6], ms[2:])
	return u.String()
}

// Operator has an operator's verbs for the jobs of a storage. It is safe for concurrent
// use.
type Operator struct {
	eng  Engine
	only []ojs.State // change refuses jobs in other states; nil: it refuses none
}

// New makes the Operator of an engine.
func New(e Engine) *Operator { return &Operator{eng: e} }

// Open makes an Operator for a storage. The clock is that of the engines on it: the wall
// clock follows that of the storage, as engines do. There are no codecs: args that are
// encoded are shown so, and are changed for encoded ones only. Jobs that it copies and
// workflows that it starts are enqueued by the enqueuer, since they need the defaults
// and hooks of an engine; nil: it can do neither.
func Open(s storage.Storage, c clock.Clock, enqueuer ojs.Enqueuer) *Operator {
	if enqueuer == nil {
		enqueuer = noEnqueuer{}
	}
	c = following.IfWall(c, s)
	now := func() time.Time { return c.Now().UTC().Round(0) }
	newID := func() string { return idAt(now()) }
	return New(Engine{
		Store: s, Clock: c, Inspect: inspect.Open(s, c), Log: slog.New(slog.DiscardHandler),
		Now: now, NewID: newID, NewOrder: newID, Enqueuer: enqueuer,
		LogJob:   func(slog.Level, string, *storage.Record, ...any) {},
		ArgsType: func(string, string) reflect.Type { return nil },
		Names:    func(storage.LimitName) bool { return false },
		Queues:   func() []string { return nil },
		Settle: func(ctx context.Context, now time.Time, _ ojs.State, change []storage.Change,
			_ event.Type, _ func(*storage.Record)) error {
			settled, err := s.Settle(ctx, now, change, nil)
			if err == nil {
				err = settled[0].Err
			}
			return err
		},
		Delete: func(ctx context.Context, rec *storage.Record) error {
			n, err := s.Delete(ctx, []string{rec.ID})
			if err == nil && n == 0 {
				return &ojs.PrunedError{ID: rec.ID}
			}
			return err
		},
		CancelAll: func(ctx context.Context, ids []string) error {
			_, _, err := s.CancelAll(ctx, now(), ids)
			return err
		},
		Revive: func(ctx context.Context, batch []storage.Insert, now time.Time) error {
			_, err := s.Revive(ctx, now, batch)
			return err
		},
		TraceCancel: func(ctx context.Context, _ string) (context.Context, func(error)) {
			return ctx, func(error) {}
		},
		Wait: func(context.Context, string) (*ojs.JobInfo, error) {
			return nil, fmt.Errorf("%w: without an engine there is nothing that waits", ojs.ErrUnsupported)
		},
		QueueSet:  func(string, ojs.QueueState, ojs.QueueState) {},
		Paused:    func(context.Context) error { return nil },
		LimitSet:  func(storage.LimitName, time.Time, string, error) {},
		Moved:     func(string) {},
		WorkerSet: func(string, bool) bool { return false },
	})
}

type noEnqueuer struct{}

// EnqueueMany implements ojs.Enqueuer.
func (noEnqueuer) EnqueueMany(context.Context, ...ojs.Draft) ([]ojs.Ticket, error) {
	return nil, fmt.Errorf("%w: jobs are enqueued by an engine: give Open one", ojs.ErrUnsupported)
}

// Jobs gives access to the jobs: list and change them, one or many.
func (o *Operator) Jobs() *Jobs { return &Jobs{o.eng.Inspect, o} }

// DeadLetters gives access to the jobs that were kept for a person.
func (o *Operator) DeadLetters() *DeadLetters { return &DeadLetters{o} }

// Queues gives access to the states of queues.
func (o *Operator) Queues() *Queues { return &Queues{o} }

// Limits gives access to the limits that the storage counts.
func (o *Operator) Limits() *Limits { return &Limits{o} }

// Workers gives access to what takes the jobs.
func (o *Operator) Workers() *Workers { return &Workers{o} }

// Workflows gives access to the workflows.
func (o *Operator) Workflows() *Workflows { return &Workflows{o} }

// Quarantine gives access to the stored records that do not decode.
func (o *Operator) Quarantine() *Quarantine { return &Quarantine{o} }

// change makes the change of a job that decide decides on, and then calls then with the
// changed job; nil: nothing is to follow. If the job moves on in between, decide decides
// again.
func (o *Operator) change(ctx context.Context, id string, then func(*storage.Record), decide decide) error {
	if err := draft.CheckTx(ctx, o.eng.Store); err != nil {
		return err
	}
	for {
		rec, err := o.eng.Inspect.Record(ctx, id)
		if err != nil {
			return err
		}
		if o.only != nil && !slices.Contains(o.only, rec.State) {
			return cannotBe("changed", &rec, "it has left the states that the operation selects")
		}
		from, now := rec.State, o.eng.Now()
		typ, err := decide(&rec, now)
		if err != nil || typ == "" {
			return err
		}
		change := []storage.Change{{Record: rec, AttemptFieldsOnly: typ == event.Cancelled}}
		if err = o.eng.Settle(ctx, now, from, change, typ, then); !foreign.Is(err, storage.ErrFenced) {
			return err
		}
	}
}

// rest waits for d, or until ctx ends.
func (o *Operator) rest(ctx context.Context, d time.Duration) error {
	t := o.eng.Clock.Timer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// byHand writes the line of a change that a person has made.
func (o *Operator) byHand(ctx context.Context, msg string) func(*storage.Record) {
	return func(rec *storage.Record) {
		var attrs []any
		if by := ojs.Actor(ctx); by != "" {
			attrs = append(attrs, slog.String("actor", by))
		}
		o.eng.LogJob(slog.LevelInfo, msg, rec, attrs...)
	}
}

// known reports whether a queue or type has jobs, or an engine names it, and warns if
// not.
func (o *Operator) known(ctx context.Context, name storage.LimitName) bool {
	if o.eng.Names(name) {
		return true
	}
	what, key, naming := "the job type of a call is unknown: no engine has a handler of it, and no job is of it",
		"job_type", func(n inspect.Node) []string { return n.Types }
	f := inspect.Filter{Types: []string{name.Name}}
	if name.Kind == storage.LimitQueue {
		what, key = "the queue of a call is unknown: it has no jobs, and no engine names it", "queue"
		naming = func(n inspect.Node) []string { return n.Queues }
		f = inspect.Filter{Queues: []string{name.Name}}
	}
	if n, err := o.eng.Inspect.Count(ctx, f, 0); err != nil || n.N > 0 {
		return true // or it cannot be told
	}
	nodes, _ := o.eng.Inspect.Nodes(ctx)
	named := slices.ContainsFunc(nodes,
		func(n inspect.Node) bool { return slices.Contains(naming(n), name.Name) })
	if !named {
		o.eng.Log.Warn(what+"; is the name right?", key, name.Name)
	}
	return named
}
