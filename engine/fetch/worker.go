// Package fetch has workers that fetch jobs from an engine for themselves: goroutines, or
// processes behind a bridge. Engine.Worker returns one.
//
// # Invariants
//
//  1. The book of a worker has each job that it holds, as far as this engine knows, and
//     the storage is asked before a decision is made by the book.
//  2. A job that a worker has lost is named by one of its heartbeats, unless maxLost
//     others were lost since.
package fetch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/admission"
	"github.com/ojsengine/ojs/engine/internal/enqueue"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/settle"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Workers are those of one engine. Package engine makes them.
type Workers struct {
	*engineEnv
	admission *admission.Admission
	enqueue   *enqueue.Enqueuer
	settle    *settle.Settler
	listen    func() (release func()) // to what other engines do
	watch     func(t time.Time)       // has LookAt called then

	workers book
}

type engineEnv = env.Env // which is not for users

// NewWorkers makes the workers of an engine. Package engine calls it.
func NewWorkers(e *env.Env, a *admission.Admission, q *enqueue.Enqueuer, s *settle.Settler,
	listen func() (release func()), watch func(t time.Time)) *Workers {
	return &Workers{engineEnv: e, admission: a, enqueue: q, settle: s, listen: listen, watch: watch,
		workers: book{byID: make(map[string]*worker), held: make(map[storage.Held]*worker)}}
}

// State is what a worker may do (OJS worker protocol). It goes one way only.
type State string

// The states of a worker.
const (
	Running   State = "running"
	Quiet     State = "quiet"     // it gets no more jobs and finishes those it has
	Terminate State = "terminate" // it gets no more jobs and should give back those it has
)

// Errors of Worker.Fetch.
var (
	ErrQuiet      = errors.New("ojs: worker is quiet")
	ErrTerminated = errors.New("ojs: worker is terminated")
)

// Config says which jobs a worker takes.
type Config struct {
	Queues []string // in order of preference; empty: those of the engine, in its order
	Types  []string // empty: all; with versions as "email.send@>=2.0 <3.0" (handler.WithVersions)

	// DeadAfter is how long the worker may be silent while it holds jobs, once it has
	// sent a heartbeat: then it counts as dead and its attempts as failed. 0:
	// DefaultDeadAfter; negative: it never counts as dead, and only its leases run out.
	DeadAfter time.Duration

	// Lease is how long a job is held without a renewal, from a Fetch or a Renew with
	// this Config on. It wins over the lease of the job (ojs.WithLease). 0: as before, or
	// as the job has it.
	Lease time.Duration

	// LeaseElsewhere is the Lease of jobs that the worker has fetched from another engine
	// on the storage. It shortens no lease. 0: as the jobs have it.
	LeaseElsewhere time.Duration
}

// DefaultDeadAfter is how long a worker may be silent (OJS worker protocol). Heartbeats
// are recommended every 5 s.
const DefaultDeadAfter = 30 * time.Second

// Worker takes jobs for a goroutine or a process of yours to run. Pauses and limits of
// queues and keys hold for workers too. Limits of handlers do not. An attempt of a worker
// fails
//
//   - when its lease ends (ojs.WithLease, 30 min by default), which Heartbeat, Progress
//     and SaveCheckpoint renew;
//   - at its timeout, or the job's total timeout. There is no grace period, but an Ack
//     completes the job if the engine has not noticed the timeout yet. The timeout begins
//     when the claim has returned;
//   - when the worker is silent for Config.DeadAfter, 30 s by default, with the
//     error type worker_death. Every call of the worker counts, and a Fetch for as long
//     as it waits. A worker that has never renewed a lease is left to its leases.
//
// Jobs become available to workers as to the engine. But only a Run, of any engine on the
// storage, promotes scheduled jobs and notices lost leases, and only a Run of the engine
// that the worker calls notices timeouts and silence: an engine without handlers can run
// for that. An engine that has been started anew knows a delivery again from the worker's
// next call on it, or the next Heartbeat with its token; until then the lease is the
// bound. A worker may call several engines on one storage: a lease that another engine
// has renewed is a sign of life.
type Worker struct {
	core *Workers
	id   string
	cfg  Config
}

// Worker returns the worker with an id.
func (c *Workers) Worker(id string, cfg Config) *Worker {
	cfg.Queues, cfg.Types = slices.Clone(cfg.Queues), slices.Clone(cfg.Types)
	return &Worker{c, id, cfg}
}

// ID returns the worker's id.
func (w *Worker) ID() string { return w.id }

// Fetch waits for a job and takes it. It returns ctx's error if that ends first,
// ErrQuiet or ErrTerminated if the worker gets no more, or the error of the
// storage.
func (w *Worker) Fetch(ctx context.Context) (*Delivery, error) {
	ds, err := w.FetchMany(ctx, 1)
	if err != nil {
		return nil, err
	}
	return ds[0], nil
}

// FetchMany waits for a job and takes up to n of those that are available then, at least
// one. It claims them together, unless limits or weights of queues ask for a claim for
// each: then the leases of the first ones age while the others are claimed. Its errors
// are Fetch's.
func (w *Worker) FetchMany(ctx context.Context, n int) ([]*Delivery, error) {
	return w.fetch(ctx, n, nil)
}

// FetchWithin is FetchMany that waits no longer than d on the engine's clock, and then
// returns no job. With a d of 0 or less it takes what is available now.
func (w *Worker) FetchWithin(ctx context.Context, n int, d time.Duration) ([]*Delivery, error) {
	if d <= 0 {
		return w.fetch(ctx, n, past)
	}
	t := w.core.Clock.Timer(d)
	defer t.Stop()
	return w.fetch(ctx, n, t.C)
}

// past is the end of a wait that has no length.
var past = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// fetch is FetchMany until a time comes; nil: none does.
func (w *Worker) fetch(ctx context.Context, n int, until <-chan time.Time) ([]*Delivery, error) {
	if n < 1 {
		return nil, draft.Invalid("max", "%d is less than 1", n)
	}
	if !w.valid() {
		return nil, errWorkerID
	}
	c := w.core
	if until != past {
		defer c.listen()()
	}
	types, err := c.workerTypes(w.cfg.Types)
	if err != nil {
		return nil, err
	}
	ask := admission.Wanted{Queues: w.cfg.Queues, Types: types, All: len(w.cfg.Types) == 0,
		Worker: w.id, Lapses: true, Lease: -max(w.cfg.Lease, 0)}
	for {
		state, changed := w.touch()
		switch state {
		case Quiet:
			return nil, ErrQuiet
		case Terminate:
			return nil, ErrTerminated
		}
		news := c.Offers.Hear() // before the look, or what comes in between would go unnoticed
		claimed, reopens, err := w.claim(ctx, ask, n)
		ds := w.deliverable(ctx, claimed)
		if len(ds) > 0 || err != nil {
			return ds, err
		}
		if len(claimed) > 0 { // the jobs behind them may be available
			continue
		}
		if until == past {
			return nil, nil
		}
		waits := c.workers.waits(w.id)
		over, err := w.wait(ctx, news, changed, reopens, until)
		c.watch(c.workers.waited(waits, c.Now()))
		if err != nil || over {
			return nil, err
		}
	}
}

// wait waits until another look may find a job. It reports whether until has come.
func (w *Worker) wait(ctx context.Context, news, changed <-chan struct{}, reopens time.Time,
	until <-chan time.Time) (over bool, err error) {
	var reopened <-chan time.Time
	if !reopens.IsZero() {
		t := w.core.Clock.Timer(max(reopens.Sub(w.core.Now()), 1))
		defer t.Stop()
		reopened = t.C
	}
	select {
	case <-news:
	case <-changed:
	case <-reopened:
	case <-until:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return false, nil
}

// claim takes up to n jobs that are available now. An error after the first of them is
// for the next call to find.
func (w *Worker) claim(
	ctx context.Context, ask admission.Wanted, n int,
) (ds []*Delivery, reopens time.Time, err error) {
	for len(ds) < n {
		ask.Max = min(n-len(ds), maxClaim)
		more, at, err := w.claimOnce(ctx, ask)
		switch ds = append(ds, more...); {
		case err != nil && len(ds) == 0:
			return nil, at, err
		case len(more) == 0:
			return ds, at, nil
		}
	}
	return ds, reopens, nil
}

// claimOnce makes one claim, which the book of the worker's claims has until the jobs are
// held.
func (w *Worker) claimOnce(
	ctx context.Context, ask admission.Wanted,
) (ds []*Delivery, reopens time.Time, err error) {
	c := w.core
	asked := asked{c: c}
	c.workers.with(w.id, func(found *worker) {
		asked.Book, asked.Mu, ask.By = &found.claims, &c.workers.mu, &asked
	})
	defer asked.end()
	recs, reopens, err := c.admission.Claim(ctx, ask, nil)
	if err != nil {
		return nil, reopens, err
	}
	now := c.Now()
	for i := range recs {
		rec := &recs[i]
		cancelled := c.settle.CancelBeforeStart(ctx, rec)
		if !cancelled {
			c.LogStarted(rec, w.id, now)
		}
		if !cancelled && !env.Overdue(rec, now) { // or LookAt would fail it before that
			c.watch(c.workers.hold(w.id, rec, now, rec.LeaseUntil, -max(w.cfg.Lease, 0)))
		}
		c.WakeAt(rec.WakeAt())
		d := c.delivery(rec, w)
		d.began, d.cancelled = now, cancelled
		ds = append(ds, d)
	}
	return ds, reopens, nil
}

// deliverable gives back the deliveries of overdue jobs, and returns the others but for
// those of cancelled jobs. If the storage does not take a job back, the worker loses it
// all the same: heartbeats do not renew its lease.
func (w *Worker) deliverable(ctx context.Context, ds []*Delivery) []*Delivery {
	c := w.core
	return slices.DeleteFunc(ds, func(d *Delivery) bool {
		if d.cancelled {
			return true
		}
		if !env.Overdue(&d.rec, c.Now()) {
			return false
		}
		// which is logged
		if err := d.end(ctx, policy.Outcome{Kind: policy.Interrupted}, nil, nil); err != nil {
			c.Lose(d.held(), nil)
		}
		return true
	})
}

// touch notes that the worker is there. It returns its state, and a channel that is
// closed when that changes.
func (w *Worker) touch() (State, <-chan struct{}) {
	c := w.core
	state, changed, isNew := c.workers.touch(w.id, c.Now(), w.deadAfter())
	if isNew {
		c.Emit(event.Event{Type: event.WorkerStarted, Subject: w.id, WorkerID: w.id})
	}
	return state, changed
}

// deadAfter is how long the worker may be silent, 0 for ever.
func (w *Worker) deadAfter() time.Duration {
	if d := w.cfg.DeadAfter; d != 0 {
		return max(d, 0)
	}
	return DefaultDeadAfter
}

// Delivery finds a job that this worker holds, by the token of its Delivery. It returns
// ojs.ErrLeaseLost if the worker does not hold the job.
func (w *Worker) Delivery(ctx context.Context, token string) (*Delivery, error) {
	held, err := parseToken(token)
	if err != nil {
		return nil, err
	}
	rec, cause, err := w.core.heldRecord(ctx, w.id, held)
	switch {
	case err != nil:
		return nil, err
	case cause != nil:
		return nil, notHeld(held.ID, w.id)
	}
	return w.core.delivery(&rec, w), nil
}

// Beat is the answer to a worker's heartbeat.
type Beat struct {
	State State     // which the worker should be in; Workers may have changed it
	Held  []string  // ids of the jobs whose leases were renewed
	Lost  []LostJob // jobs that the worker has lost, each named once: stop working on them
}

// LostJob is a job that was taken from a worker.
type LostJob struct {
	ID    string
	Token string // of the worker's Delivery
	Cause error  // ojs.ErrCancelled, ojs.ErrReplaced, ojs.ErrTimeout, or ojs.ErrLeaseLost
}

// Heartbeat renews the lease of every job that the worker holds, as Delivery.Heartbeat
// does for one, and names the jobs that it has lost since its last Heartbeat: they were
// cancelled or replaced, their leases ended, or their timeouts passed. The error is the
// storage's, and the call may then be repeated: nothing that is lost goes unnamed.
//
// The engine knows the deliveries that it has made itself. The tokens (Delivery.Token)
// name deliveries of another engine, or from before this engine was started anew. Tokens
// of other deliveries change nothing, so that a worker may hand in those of all its jobs.
// A job that the worker has lost is named again for each Heartbeat with its token. A
// string that is no token is an *ojs.InvalidError.
func (w *Worker) Heartbeat(ctx context.Context, tokens ...string) (Beat, error) {
	c := w.core
	if !w.valid() {
		return Beat{}, errWorkerID
	}
	named := make([]storage.Held, len(tokens))
	for i, token := range tokens {
		var err error
		if named[i], err = parseToken(token); err != nil {
			return Beat{}, err
		}
	}
	state, _ := w.touch()
	b := Beat{State: state}
	all := c.workers.heldBy(w.id)
	known := len(all)
	for _, held := range named {
		if !slices.Contains(all, held) {
			all = append(all, held)
		}
	}
	for i, held := range all {
		rec, cause, err := c.heldRecord(ctx, w.id, held)
		if err == nil && cause == nil {
			err = c.delivery(&rec, w).Heartbeat(ctx)
		}
		switch {
		case foreign.Is(err, ojs.ErrTimeout):
			cause = ojs.ErrTimeout
		case foreign.Is(err, ojs.ErrLeaseLost):
			cause = ojs.ErrLeaseLost
		case err != nil:
			return b, err
		}
		if cause == nil {
			b.Held = append(b.Held, held.ID)
			continue
		}
		if i < known { // another worker may hold what a token names
			c.Lose(held, nil)
		}
		c.workers.tell(w.id, held, cause)
	}
	b.Lost = c.workers.takeLost(w.id)
	w.beaten(&b)
	return b, nil
}

// beaten follows a heartbeat.
func (w *Worker) beaten(b *Beat) {
	w.core.watch(w.core.workers.beat(w.id))
	w.core.Emit(event.Event{Type: event.WorkerHeartbeat, Subject: w.id, WorkerID: w.id,
		State: string(b.State), Held: len(b.Held)})
}

// DeliveryOfRecord is Delivery for callers that have looked the job up and kept no token.
// If the worker has lost the job and fetched it again since, it is the later delivery.
// The record's slices and pointers belong to the delivery from then on.
func (w *Worker) DeliveryOfRecord(rec storage.Record) (*Delivery, error) {
	if rec.State != ojs.StateActive || rec.Worker != w.id {
		return nil, notHeld(rec.ID, w.id)
	}
	return w.core.delivery(&rec, w), nil
}

// Renew renews the leases of jobs that the worker holds, as they were looked up, and
// names those that it does not hold, or has lost by that. Other jobs of the worker stay
// as they are, and Heartbeat still names those that it has lost.
func (w *Worker) Renew(ctx context.Context, jobs ...storage.Record) (Beat, error) {
	if !w.valid() {
		return Beat{}, errWorkerID
	}
	state, _ := w.touch()
	b := Beat{State: state}
	for i := range jobs {
		d, err := w.DeliveryOfRecord(jobs[i])
		if err == nil {
			err = d.Heartbeat(ctx)
		}
		switch {
		case err == nil:
			b.Held = append(b.Held, jobs[i].ID)
		case foreign.Is(err, ojs.ErrLeaseLost), foreign.Is(err, ojs.ErrTimeout):
			b.Lost = append(b.Lost, LostJob{ID: jobs[i].ID, Cause: err})
		default:
			return b, err
		}
	}
	w.beaten(&b)
	return b, nil
}

// Quiet makes the worker get no more jobs. A Fetch that waits returns ErrQuiet.
func (w *Worker) Quiet() { w.become(Quiet) }

// Close ends the worker: it gets no more jobs. It keeps those it holds until it settles
// them or their leases run out.
func (w *Worker) Close() { w.become(Terminate) }

// Forget ends a worker that is quiet or closed, holds no jobs and waits for none. The
// next call with its id is that of a new worker. It does nothing to another worker.
func (w *Worker) Forget() { w.core.workers.remove(w.id) }

// become moves the worker on to a state, which its first Fetch will find if there has
// been none.
func (w *Worker) become(to State) {
	if !w.core.Set(w.id, to) && w.valid() {
		w.touch()
		w.core.Set(w.id, to)
	}
}

var errWorkerID = draft.Invalid("worker", "its id does not have 1 to 255 bytes")

func (w *Worker) valid() bool { return w.id != "" && len(w.id) <= 255 }

// Stats is what is known of a worker.
type Stats struct {
	ID    string
	State State
	Held  int       // jobs
	Seen  time.Time // when its last call was
	Dead  bool      // it was silent for too long, and its attempts have failed; its next call revives it
}

// maxClaim bounds how many jobs a worker fetches in one claim.
const maxClaim = 500

// workerTypes returns how claims name the types of a remote worker, each of which may
// have a range of versions behind an "@".
func (c *Workers) workerTypes(types []string) (list []string, err error) {
	if !slices.ContainsFunc(types, func(t string) bool { return strings.Contains(t, "@") }) {
		return types, nil
	}
	for _, t := range types {
		name, wanted, ranged := strings.Cut(t, "@")
		switch _, err := versions.ParseRange(wanted); {
		case ranged && err != nil:
			return nil, draft.Invalid("types", "versions %q of %s: %v", wanted, name, err)
		case !ranged:
			list = append(list, name)
		default:
			list = append(list, name+"@", t)
		}
	}
	return list, nil
}
