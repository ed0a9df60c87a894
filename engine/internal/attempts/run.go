// Package attempts runs the attempts of an engine: it claims jobs, calls their handlers,
// renews leases, ends contexts, and has outcomes settled.
//
// # Invariants
//
//  1. An attempt is in the list of its run from its claim until its handler has returned
//     and its outcome is stored, or its job is lost or given back.
//  2. The first goroutine that takes an attempt from the phase running settles it.
//  3. A claim that was lost before its call returned starts no handler.
//  4. After a claim whose answer was lost, the jobs that it may have taken are given
//     back.
//  5. No call of a handler or a storage comes with the lock.
package attempts

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/admission"
	"github.com/ojsengine/ojs/engine/internal/alarm"
	"github.com/ojsengine/ojs/engine/internal/chores"
	"github.com/ojsengine/ojs/engine/internal/claims"
	"github.com/ojsengine/ojs/engine/internal/enqueue"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/idle"
	"github.com/ojsengine/ojs/engine/internal/joblog"
	"github.com/ojsengine/ojs/engine/internal/jobtypes"
	"github.com/ojsengine/ojs/engine/internal/settle"
	"github.com/ojsengine/ojs/engine/internal/sleeps"
	"github.com/ojsengine/ojs/engine/internal/stacks"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/inspect"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/spin"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
)

// Attempts are those of one engine, of all its runs. It is safe for concurrent use.
type Attempts struct {
	*env.Env
	Types     *jobtypes.Types
	Admission *admission.Admission
	Enqueue   *enqueue.Enqueuer
	Settle    *settle.Settler

	Prefetch     int
	Grace        time.Duration
	JobLogs      *slog.Level           // from which on lines of handlers are kept; nil: none are
	Stepper      storage.SettleClaimer // the storage, if it stores and claims in one step; nil: it does not
	InsertClaims bool                  // the storage claims new jobs if asked to

	Run   atomic.Pointer[Run] // nil: not running
	slots atomic.Int64        // how many handlers run at once

	mu spin.Mutex // guards everything below, and the fields of Run and attempt that say so

	book claims.Book // of this run and of those before
}

// LastCall is how long Run waits, after the grace period, for handlers whose contexts it
// has ended.
const LastCall = time.Second

// Run is one call of Run: its pipeline, its timers, and the attempts that it has claimed.
type Run struct {
	c       *Attempts
	Base    context.Context // of handlers and storage calls: Run's values, no end
	Started time.Time
	Sched   *scheduler.Scheduler
	Pipe    *pipe
	tick    scheduler.Timer // of the pipeline
	Busy    idle.Counter    // of the pipeline and of chores

	Leases chores.Chore // of the attempts that are on a list below
	Claims chores.Chore // whose answer was lost

	contexts *internal.Run // what those of the attempts share

	looking    alarm.Alarm   // for the attempts
	Reopening  alarm.Alarm   // for when a limit lets jobs in again
	unblocking alarm.Alarm   // for claims, after one that failed
	sleeps     sleeps.Sleeps // of handlers, and before calls of the storage are repeated

	Stopping atomic.Bool   // no more claims; set with mu
	claiming atomic.Int32  // claims under way
	closing  chan struct{} // closed when the grace period is over too

	// Guarded by mu of Attempts.
	failures   int                 // claims that failed in a row
	failure    error               // of the last of them
	stuck      int                 // attempts that are reported as stuck
	logging    map[string]*attempt // that have lines, by their jobs
	attempts   []*attempt          // claimed and not stored, or running; two of a job if a lost one goes on
	drained    chan struct{}       // closed when stopping, and the pipeline and attempts are empty
	returned   []string            // the jobs whose attempts the stop has interrupted
	unstored   []string            // those whose outcomes it has given up
	renewals   []*attempt
	overrun    []*attempt
	unreported []*attempt // that are stuck
}

// New readies attempts whose exported fields are set, but for Stepper and Run. A Prefetch
// of 0 is the default.
func New(c *Attempts) *Attempts {
	c.Stepper, _ = c.Store.(storage.SettleClaimer)
	if c.Prefetch == 0 {
		c.Prefetch = DefaultPrefetch
		if c.Durable {
			c.Prefetch = DurablePrefetch
		}
	}
	return c
}

// Slots returns how many handlers run at once.
func (c *Attempts) Slots() int { return int(c.slots.Load()) }

// SetSlots sets how many handlers run at once, with effect at once if the engine runs.
func (c *Attempts) SetSlots(n int) {
	c.slots.Store(int64(n))
	if r := c.Run.Load(); r != nil {
		r.Pipe.Resize(c.Slots)
	}
}

// NewRun makes a run.
func (c *Attempts) NewRun(ctx context.Context) *Run {
	r := &Run{
		c:       c,
		Base:    storage.WithCaller(context.WithoutCancel(ctx), c.Caller),
		Started: c.Now(),
		Sched:   scheduler.New(c.Clock),
		logging: make(map[string]*attempt),
		drained: make(chan struct{}),
		closing: make(chan struct{}),
	}
	r.sleeps.Sched, r.sleeps.Clock, r.sleeps.Busy, r.sleeps.Virtual = r.Sched, c.Clock, &r.Busy, c.Mocked
	r.Pipe = r.newPipe()
	r.contexts = internal.NewRun(r.Base)
	r.looking.Start(r.Sched, r.look)
	r.Reopening.Start(r.Sched, func(time.Time) { c.Available(env.Unknown) })
	r.unblocking.Start(r.Sched, func(time.Time) {
		c.Available(env.Unknown)
		r.Pipe.Unblock()
	})
	r.Leases = chores.Chore{Name: "leases", Run: r.attend}
	r.Claims = chores.Chore{Name: "claims of this engine", Run: r.findClaims}
	return r
}

// Start has the run claim jobs.
func (r *Run) Start() { r.c.Run.Store(r) }

// Over ends the run. It returns the jobs whose attempts the stop has interrupted.
func (r *Run) Over() (returned []string) {
	r.Sched.Stop()
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.Run.Store(nil)
	return r.returned
}

// Quit lets no more jobs be claimed.
func (r *Run) Quit() {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.Stopping.Store(true)
	r.Pipe.Stop()
	r.checkDrained()
}

// Stop ends the attempts of a run that has quit, with a grace period. It returns the jobs
// whose handlers go on nevertheless, those whose outcomes are not stored, and whether a
// claim is under way.
func (r *Run) Stop() (stuck, unstored []string, claiming bool) {
	stuck, claiming = r.end()
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	return stuck, slices.Clone(r.unstored), claiming
}

func (r *Run) end() (stuck []string, claiming bool) {
	mu := &r.c.mu
	if r.c.Grace > 0 && r.Wait(r.drained, r.c.Grace) {
		return nil, false
	}
	mu.Lock()
	close(r.closing)
	for _, a := range r.attempts {
		a.end(ojs.ErrShutdown)
	}
	mu.Unlock()
	if r.Wait(r.drained, LastCall) {
		return nil, false
	}
	mu.Lock()
	if slices.ContainsFunc(r.attempts, func(a *attempt) bool { return a.returned }) {
		mu.Unlock()
		if r.Wait(r.drained, lastStore) {
			return nil, false
		}
		mu.Lock()
	}
	var given []*attempt
	for _, a := range r.attempts {
		r.c.book.Retire(a.rec.ID, a.claimed, true) // the next run does not have it
		if a.returned {
			r.unstored = append(r.unstored, a.rec.ID)
			continue
		}
		if a.started.Load() {
			stuck = append(stuck, a.rec.ID)
		}
		if a.phase == running && !a.inTx {
			a.phase = settling
			given = append(given, a)
		}
	}
	claiming = r.claiming.Load() > 0
	mu.Unlock()
	for _, a := range given { // their handlers go on
		if f, err := r.settleRunning(a, policy.Interrupted); err != nil {
			r.dropped(f, err)
		}
	}
	return stuck, claiming
}

// lastStore is how long Run waits for outcomes of handlers that have returned at the end
// of LastCall. A storage that takes longer has not answered.
const lastStore = time.Millisecond

// closed reports whether the grace period of a stop is over.
func (r *Run) closed() bool {
	select {
	case <-r.closing:
		return true
	default:
		return false
	}
}

// Wait waits until done is closed, for d at most, and reports whether it is.
func (r *Run) Wait(done <-chan struct{}, d time.Duration) bool {
	over := make(chan struct{})
	t := r.Sched.At(r.c.Clock.Now().Add(d), func(time.Time) { close(over) })
	defer r.Sched.Cancel(t)
	select {
	case <-done:
		return true
	case <-over:
		return false
	}
}

// Settled reports whether no timer of the run is due. If one is, it returns what to wait
// for.
func (r *Run) Settled() (bool, <-chan struct{}) {
	r.Punctual()
	return r.Sched.Settled()
}

// Trouble returns how many claims have failed in a row, how many attempts are reported as
// stuck, and why the last claim has failed.
func (r *Run) Trouble() (failures, stuck int, failure error) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	return r.failures, r.stuck, r.failure
}

// attend is the run of the chore Leases. It renews leases, settles attempts that have
// overrun their grace period, and reports stuck handlers.
func (r *Run) attend(context.Context, time.Time) (never time.Time, err error) {
	mu := &r.c.mu
	mu.Lock()
	renewals, overrun, stuck := r.renewals, r.overrun, r.unreported
	r.renewals, r.overrun, r.unreported = nil, nil, nil
	mu.Unlock()
	r.extend(renewals)
	for _, a := range overrun {
		r.settleOverrun(a)
	}
	for _, a := range stuck {
		r.reportStuck(a)
	}
	return never, nil
}

// extend renews the leases of running attempts. Attempts that have lost their jobs end. A
// storage that fails is asked again at the next renewal, for which the interval leaves
// time.
func (r *Run) extend(renewals []*attempt) {
	if len(renewals) == 0 {
		return
	}
	c := r.c
	now := c.Now()
	c.mu.Lock()
	renewals = r.newest(renewals)
	held := make([]storage.Extension, len(renewals))
	for i, a := range renewals {
		held[i] = storage.Extension{Held: a.held(), Progress: a.progress, Lease: c.Lease}
	}
	c.mu.Unlock()
	var op *eventlog.Op
	if c.Events.Wants(event.Progress, "", "") {
		ids := make([]string, len(held))
		for i := range held {
			ids[i] = held[i].ID
		}
		op = c.Events.Begin(eventlog.None, ids...)
	}
	var told []storage.Record
	err := c.Holding.Do(op, func() (none []storage.Record, err error) {
		lost, err := c.Store.Extend(r.Base, now, held)
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, a := range renewals {
			switch {
			case err != nil:
				a.unrenewed = true
			case a.inTx: // it may have been committed meanwhile
			case slices.Contains(lost, a.rec.ID):
				r.lose(a.held(), ojs.ErrLeaseLost)
			case a.stored < held[i].Progress:
				a.stored = held[i].Progress
				if op != nil && a.phase == running { // otherwise its record is being decided on
					rec := *a.rec
					rec.Progress = a.stored
					told = append(told, rec)
				}
			}
		}
		return nil, err
	}, func(op *eventlog.Op) {
		for i := range told {
			c.Transition(op, &told[i], told[i].Version, eventlog.None, now,
				event.Event{Type: event.Progress, WorkerID: c.Worker})
		}
	}, nil)
	if err != nil {
		c.Failed("extend", err, "jobs", len(held))
	}
}

// reportStuck says that an attempt's handler goes on although its context ended more than
// a grace period ago.
func (r *Run) reportStuck(a *attempt) {
	c := r.c
	stack := stackIn(stacks.All(), a)
	c.mu.Lock()
	if a.returned {
		c.mu.Unlock()
		return
	}
	a.stuck = true
	r.stuck++
	cause := a.cause
	c.mu.Unlock()
	c.LogJob(slog.LevelError, "handler goes on although its context has ended", "error", a.rec, c.Worker,
		slog.Any("cause", cause), slog.String("stack", stack))
}

// Works lists the attempts that handlers work on, with their stacks or without. Without,
// the headers share their meta and errors with the jobs, and only the rest may be read.
func (c *Attempts) Works(withStacks bool) []inspect.Running {
	// one that is another job's after the stacks were written is not in them
	before := make(map[*attempt]storage.Held)
	r := c.Run.Load()
	if r == nil {
		return nil
	}
	all := ""
	if withStacks {
		c.mu.Lock()
		for _, a := range r.attempts {
			before[a] = a.held()
		}
		c.mu.Unlock()
		all = stacks.All()
	}
	var list []inspect.Running
	c.mu.Lock()
	for _, a := range r.attempts {
		if a.returned || !a.started.Load() {
			continue
		}
		w := inspect.Running{Job: a.rec.JobHeader, Since: a.began(), Asleep: a.sleep.Waits(), Ended: a.cause}
		if withStacks {
			w.Job, w.Stack = env.Detached(a.rec), stacks.NotFound
			if before[a] == a.held() {
				w.Stack = stackIn(all, a)
			}
		}
		list = append(list, w)
	}
	c.mu.Unlock()
	slices.SortFunc(list, func(a, b inspect.Running) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Job.ID, b.Job.ID))
	})
	return list
}

// LogOf returns what the attempt of a job that a handler works on has logged so far, as
// it is stored; nil: nothing.
func (c *Attempts) LogOf(job string) []byte {
	header, log, lines := c.logging(job)
	return c.Settle.EncodeLog(&header, log, lines)
}

// Logged returns how many lines LogOf has had, those that were cut included.
func (c *Attempts) Logged(job string) uint64 {
	_, _, lines := c.logging(job)
	return lines.N()
}

// logging returns the log of an attempt that a handler works on, without and with its
// lines; nil: there are none.
func (c *Attempts) logging(job string) (header ojs.JobHeader, log stored.Log, lines *joblog.Lines) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.Run.Load(); r != nil {
		if a := r.logging[job]; a != nil && a.started.Load() && !a.returned {
			log = stored.Log{Attempt: a.rec.Attempt, Start: a.began(), Worker: a.rec.Worker}
			return env.Detached(a.rec), log, a.lines
		}
	}
	return header, log, nil
}

// stackIn finds the goroutine that calls the attempt's handler, in whose stack the
// attempt is the receiver of call.
func stackIn(all string, a *attempt) string {
	return stacks.Find(all, fmt.Sprintf(".(*attempt).call(%p", a))
}

// Retry ends all waits of a run that failed calls of the storage have caused.
func (r *Run) Retry(now time.Time) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.sleeps.EndPauses()
	if r.unblocking.Armed() {
		r.unblocking.By(now)
	}
	for _, a := range r.attempts {
		if a.unrenewed && a.phase != over && !a.inTx {
			a.renew(now)
		}
		a.unrenewed = false
	}
}

// asked is a step that claims.
type asked struct {
	claims.Step
	r *Run
}

// asks begins a step, which enter ends, with a claim at now.
func (r *Run) asks(a *asked, now time.Time) {
	a.r, a.Book, a.Mu = r, &r.c.book, &r.c.mu
	r.claiming.Add(1)
	a.Asks(now)
}

func (a *asked) Stopping() bool { return a.r.Stopping.Load() }

func (a *asked) Failed(now time.Time, err error) { a.r.claimFailed("claim", now, err) }

// unanswer has the chore look for what a failed claim at now has taken.
func (r *Run) unanswer(now time.Time, err error) {
	if env.SaysNo(err) {
		return
	}
	r.c.mu.Lock()
	r.c.book.Fail(now, r.c.Now())
	r.c.mu.Unlock()
	if current := r.c.Run.Load(); current != nil {
		current.Claims.Poke()
	}
}

// findClaims gives back the jobs of claims whose answer was lost. It returns when to look
// again.
func (r *Run) findClaims(ctx context.Context, now time.Time) (next time.Time, err error) {
	c := r.c
	return c.Settle.GiveBack(ctx, now, c.Worker, c.Lease, &c.mu, &c.book, func(id string) bool {
		return slices.ContainsFunc(r.attempts, func(a *attempt) bool { return a.rec.ID == id })
	})
}

// TakenAway follows a transition that has ended a claim. It ends the attempt of this
// engine, if there is one, or drops the claim of a remote worker. A step may be claiming
// the job right now, of a run that has ended too: enter then drops the attempt.
func (c *Attempts) TakenAway(held storage.Held, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.Run.Load(); r != nil && r.lose(held, cause) {
		return
	}
	c.book.Lost(held)
	c.WorkerLost(held, cause)
}

// mu is held in the rest.

func (r *Run) checkDrained() {
	if r.Stopping.Load() && len(r.attempts) == 0 && r.Pipe.Drained() {
		select {
		case <-r.drained:
		default:
			close(r.drained)
		}
	}
}

// newest leaves one attempt of each job, the latest. Earlier attempts have lost the job,
// since this engine has claimed it again. Attempts that have completed their job in a
// transaction are left out.
func (r *Run) newest(renewals []*attempt) []*attempt {
	latest := make(map[string]uint64, len(renewals))
	for _, a := range renewals {
		latest[a.rec.ID] = max(latest[a.rec.ID], a.rec.Version)
	}
	return slices.DeleteFunc(renewals, func(a *attempt) bool {
		older := a.rec.Version < latest[a.rec.ID]
		if older {
			r.lose(a.held(), ojs.ErrLeaseLost)
		}
		return older || a.inTx
	})
}
