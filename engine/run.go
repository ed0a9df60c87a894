package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
)

// unknown is a number of available jobs that nobody counted: look until nothing is found.
const unknown = 1 << 30

// maxNamed bounds how many jobs a log line names.
const maxNamed = 10

// lastCall is how long Run waits, after the grace period, for handlers whose contexts it has ended.
const lastCall = time.Second

// run is one call of Run: its worker slots, its timers, and what it knows to be left to do.
//
// A slot that has nothing to do has no goroutine. Whoever makes work available calls available, which starts at most
// one worker; a worker that finds a job starts the next one if more may be there. So wake-ups spread as fast as work
// does, and an empty storage is asked once.
type run struct {
	c     *core
	base  context.Context // of handlers and storage calls: Run's values, no end
	sched *scheduler.Scheduler

	// Guarded by core.mu.
	stopping  bool                  // no more claims
	working   int                   // worker goroutines
	asleep    int                   // those of them that wait on the clock
	searching int                   // those of them that look for a job
	left      int                   // available jobs that no claim has looked for, as far as known; at times too many
	news      uint64                // raised whenever left is
	emptied   uint64                // raised whenever a look found nothing and left became 0
	failures  int                   // claims that failed in a row
	failure   error                 // of the last of them
	stuck     int                   // slots that have been replaced
	storing   int                   // workers whose handlers have returned, and whose slots others have while they store the outcome
	blocked   bool                  // until a timer allows another claim
	attempts  []*attempt            // whose handlers run, in no order; of one job several, if a lost one goes on
	lostEarly map[storage.Held]bool // claims that were lost while workers looked for jobs
	drained   chan struct{}         // closed when stopping and no worker is left
	returned  []string              // the jobs whose attempts the stop has interrupted

	mayPile bool         // workers may claim ahead
	procs   int          // processors when the run began; what changes later is not followed
	piles   []*pile      // of workers that claim ahead
	orphans []*attempt   // jobs of theirs that they have had no time for, in the order in which they shall begin
	old     bool         // some of them were there when somebody looked
	behind  atomic.Int32 // how many there are, for goOn
	moves   uint64       // raised whenever a worker begins a job
	seen    uint64       // what it was when somebody looked
	unpiled uint64       // raised whenever all that was claimed ahead is given back
	watched bool         // the watch is armed
	watch   scheduler.Timer

	contexts *internal.Run // what those of the attempts share

	looking   scheduler.Timer // for the attempts
	lookingAt time.Time       // when it fires; zero: not armed

	reopening scheduler.Timer // for when a limit lets jobs in again
	reopensAt time.Time       // when it fires; zero: not armed

	closing chan struct{} // closed when the grace period is over too
	over    chan struct{} // closed when the scheduler has stopped
	keeper  keeper
}

func (c *core) runUntil(ctx context.Context) error {
	r := &run{
		c:         c,
		base:      storage.WithCaller(context.WithoutCancel(ctx), c),
		lostEarly: make(map[storage.Held]bool),
		drained:   make(chan struct{}),
		closing:   make(chan struct{}),
		over:      make(chan struct{}),
	}
	defer c.listen()() // before the first look, or what comes in between would go unnoticed
	c.mu.Lock()
	if c.run != nil {
		c.mu.Unlock()
		return ErrRunning
	}
	r.sched = scheduler.New(c.clock)
	r.mayPile, r.procs = c.mayPile(), runtime.GOMAXPROCS(0)
	r.contexts = internal.NewRun(r.base)
	r.looking.Func = r.look
	r.watch.Func = r.lookAtPiles
	r.reopening.Func = func(time.Time) {
		c.mu.Lock()
		defer c.mu.Unlock()
		r.reopensAt = time.Time{}
		c.available(unknown)
	}
	r.keeper.start(r)
	c.run = r
	c.started = c.now()
	c.available(unknown)
	r.keeper.wantDue()
	r.keeper.wantWorkers()
	r.keeper.wantPrune()
	r.keeper.wantReplay()
	r.keeper.wantCron()
	c.mu.Unlock()
	c.warnUnreached()
	c.warnQuarantined(r.base)
	c.log.Debug("engine started", "component", "worker", "category", "lifecycle", "worker_id", c.worker, "concurrency", c.concurrency)
	c.emit(ojs.Event{Type: ojs.EventWorkerStarted, Subject: c.worker, WorkerID: c.worker})

	<-ctx.Done()
	err := errors.Join(r.stop(), r.keeper.stop())
	r.sched.Stop()
	close(r.over)

	c.mu.Lock()
	c.run = nil
	c.changed()
	returned := r.returned
	c.mu.Unlock()
	if len(returned) > 0 && !c.durable {
		slices.Sort(returned)
		c.log.Warn("stop gave running jobs back to a storage that is not durable: they are lost when the program ends",
			"component", "worker", "category", "lifecycle", "worker_id", c.worker, "jobs", len(returned),
			"job_ids", returned[:min(len(returned), maxNamed)])
	}
	c.log.Debug("engine stopped", "component", "worker", "category", "lifecycle", "worker_id", c.worker)
	c.emit(ojs.Event{
		Type: ojs.EventWorkerStopped, Subject: c.worker, WorkerID: c.worker, Reason: stopReason(ctx, err != nil),
	})
	return err
}

// stop ends the work of a run. Its error names the handlers and the calls of the storage that go on nevertheless.
func (r *run) stop() error {
	mu := &r.c.mu
	mu.Lock()
	r.stopping = true
	r.unpile()
	r.checkDrained()
	mu.Unlock()
	r.c.emit(ojs.Event{Type: ojs.EventWorkerQuiet, Subject: r.c.worker, WorkerID: r.c.worker})

	if r.c.grace > 0 && r.waitDrained(r.c.grace) {
		return nil
	}
	mu.Lock()
	close(r.closing)
	for _, a := range r.attempts {
		a.end(ojs.ErrShutdown)
	}
	mu.Unlock()
	if r.waitDrained(lastCall) {
		return nil
	}
	mu.Lock()
	var given []*attempt
	var stuck, unstored []string
	for _, a := range r.attempts {
		if a.returned || a.piled.Load() {
			unstored = append(unstored, a.rec.ID)
			continue
		}
		stuck = append(stuck, a.rec.ID)
		if a.phase == running {
			a.phase = settling
			given = append(given, a)
		}
	}
	claiming := r.searching > 0
	mu.Unlock()
	for _, a := range given {
		r.interrupt(a)
	}
	return unfinished(stuck, unstored, claiming)
}

// unfinished is the error of a stop that has left something behind, nil if nothing.
func unfinished(stuck, unstored []string, claiming bool) error {
	var errs []error
	if len(stuck) > 0 {
		slices.Sort(stuck)
		errs = append(errs, fmt.Errorf("%w: jobs %v", ErrStuck, stuck))
	}
	if len(unstored) > 0 {
		slices.Sort(unstored)
		errs = append(errs, fmt.Errorf("%w: outcomes of jobs %v", ErrUnanswered, unstored))
	}
	if claiming {
		errs = append(errs, fmt.Errorf("%w: a claim", ErrUnanswered))
	}
	return errors.Join(errs...)
}

// closed reports whether the grace period of a stop is over.
func (r *run) closed() bool {
	select {
	case <-r.closing:
		return true
	default:
		return false
	}
}

// waitDrained waits until no worker is left, for d at most.
func (r *run) waitDrained(d time.Duration) bool { return r.wait(r.drained, d) }

// wait waits until done is closed, for d at most, and reports whether it is.
func (r *run) wait(done <-chan struct{}, d time.Duration) bool {
	over := make(chan struct{})
	t := r.sched.At(r.c.clock.Now().Add(d), func(time.Time) { close(over) })
	defer r.sched.Cancel(t)
	select {
	case <-done:
		return true
	case <-over:
		return false
	}
}

// checkDrained: core.mu is held.
func (r *run) checkDrained() {
	if r.stopping && r.working == 0 {
		select {
		case <-r.drained:
		default:
			close(r.drained)
		}
	}
}

// available says that n more jobs may be claimed. core.mu is held.
func (r *run) available(n int) {
	if n == 0 {
		return
	}
	r.left = min(r.left+n, unknown)
	r.news++
	r.wake()
}

// some reports whether there may be a job to begin. core.mu is held.
func (r *run) some() bool { return r.left > 0 || len(r.orphans) > 0 }

// free is how many slots have no worker. core.mu is held.
func (r *run) free() int { return r.c.concurrency - (r.working - r.stuck - r.storing) }

// wake starts a worker if there is something to look for, a slot free, and nobody looking yet. core.mu is held.
func (r *run) wake() {
	if !r.some() || r.searching > 0 || r.stopping || r.blocked || r.free() <= 0 {
		return
	}
	r.working++
	r.searching++
	go r.work(nil)
}

// work is a worker: it runs the attempt it is given, or first looks for one, and then what else it finds.
func (r *run) work(a *attempt) {
	d := desks.Get().(*desk)
	defer d.putBack()
	defer d.pile.off()
	calling := false
	defer func() {
		if !calling {
			return
		}
		// The handler has called runtime.Goexit, which ends this goroutine after its deferred calls. Its slot goes on.
		r.leavePile(d)
		f, err := r.finish(a, policy.Outcome{Kind: policy.Exited})
		r.storePile(d)
		if r.release(a, f, err) {
			go r.work(nil)
		}
	}()
	for {
		if a == nil {
			if a = r.take(&d.net); a == nil {
				return
			}
		}
		o := policy.Outcome{Kind: policy.Interrupted}
		if a.begins(&d.pile) {
			if r.c.logs(slog.LevelDebug) {
				r.c.logStarted(a.rec, r.c.worker, a.began())
			}
			calling = true
			o = a.perform()
			calling = false
		}
		if next := r.goOn(d, a, o); next != nil {
			a = next
			continue
		}
		next, goesOn, done := r.handover(d, a, o)
		if !done {
			r.leavePile(d)
			f, err := r.finish(a, o)
			r.storePile(d)
			goesOn = r.release(a, f, err)
		}
		if !goesOn {
			return
		}
		a = next
	}
}

// maxClaim bounds how many jobs one claim asks for.
const maxClaim = 500

// claimSize is how many jobs a worker claims that looks for one. A claim that may take time is for every free slot. Where claims are
// cheap each worker claims for itself and starts the next: handlers that take no time then keep as few workers busy as there are
// processors, and not all of them, which would only wait for each other. core.mu is held.
func (r *run) claimSize() int {
	if r.c.cheap != nil {
		return 1
	}
	return min(1+max(r.free(), 0), maxClaim)
}

// take claims jobs for a worker that counts as searching: one for it, and others if claimSize says so. It returns nil, and the worker's
// slot is free, if there is none.
func (r *run) take(n *net) *attempt {
	mu := &r.c.mu
	if r.c.durable {
		runtime.Gosched() // for handlers that are about to return: the more slots one claim is for, the fewer claims
	}
	mu.Lock()
	for r.some() && !r.stopping && !r.blocked {
		if a := r.orphan(); a != nil {
			r.looked()
			r.wake()
			mu.Unlock()
			return a
		}
		news, emptied := r.news, r.emptied
		w := wanted{types: r.c.registry.handled(), worker: r.c.worker, max: r.claimSize()}
		mu.Unlock()
		reopens, err := r.claim(n, w)
		mu.Lock()
		switch {
		case err != nil:
			d := r.claimFailed(err)
			mu.Unlock()
			r.tellClaimFailed(err, d)
			mu.Lock()
		case len(n.claimed) == 0:
			r.failures = 0
			if !reopens.IsZero() && (r.reopensAt.IsZero() || reopens.Before(r.reopensAt)) {
				r.reopensAt = reopens
				r.sched.Set(&r.reopening, reopens)
			}
			if r.news == news { // nothing has come since the look began
				r.left = 0
				r.emptied++
			}
		default:
			r.failures = 0
			// If left became 0 since, these jobs are not among those it counts now.
			if r.emptied == emptied && r.left != unknown {
				r.left = max(r.left-len(n.claimed), 0)
			}
			if a := r.share(n.claimed, r.c.now()); a != nil {
				mu.Unlock()
				n.clear()
				return a
			}
		}
	}
	r.looked()
	r.leave()
	mu.Unlock()
	return nil
}

// net is what a claim brings.
type net struct {
	recs    []storage.Record
	claimed []*attempt
}

// maxNet is how large a net is kept for another claim.
const maxNet = 64

// clear empties the net, which would keep alive what is in it.
func (n *net) clear() {
	if cap(n.recs) > maxNet {
		*n = net{}
		return
	}
	clear(n.recs)
	clear(n.claimed)
	n.recs, n.claimed = n.recs[:0], n.claimed[:0]
}

// claim claims jobs and makes their attempts. No lock is held.
func (r *run) claim(n *net, w wanted) (reopens time.Time, err error) {
	n.claimed = n.claimed[:0]
	n.recs, reopens, err = r.c.claim(r.base, w, n.recs[:0])
	if err != nil {
		n.recs = nil // a storage that has given up may still write to it
	}
	r.attemptsOf(n)
	return reopens, err
}

// attemptsOf makes the attempts of a net's jobs.
func (r *run) attemptsOf(n *net) {
	for i := range n.recs {
		n.claimed = append(n.claimed, r.newAttempt(&n.recs[i]))
	}
}

// share begins the attempts of a claim: the first is the caller's, the others get workers. It returns nil if all of them were
// lost meanwhile. The claim, which returned now, took none of their time. core.mu is held.
func (r *run) share(claimed []*attempt, now time.Time) (mine *attempt) {
	for _, a := range claimed {
		a.putOff(now)
	}
	claimed = r.beginAll(claimed)
	if len(claimed) == 0 {
		return nil
	}
	r.looked()
	r.moves++
	for _, a := range claimed[1:] {
		r.working++
		go r.work(a)
	}
	r.wake()
	return claimed[0]
}

// beginAll begins the attempts of a claim, and drops from the list those lost meanwhile. core.mu is held.
func (r *run) beginAll(claimed []*attempt) []*attempt {
	begun := claimed[:0]
	for _, a := range claimed {
		if held := a.held(); len(r.lostEarly) > 0 && r.lostEarly[held] {
			r.c.letIn(held)
			continue
		}
		r.begin(a)
		begun = append(begun, a)
	}
	return begun
}

// looked says that a worker no longer looks for a job. core.mu is held.
func (r *run) looked() {
	if r.searching--; r.searching == 0 {
		clear(r.lostEarly)
	}
}

// leave frees a worker's slot. core.mu is held.
func (r *run) leave() {
	r.working--
	r.wake() // for what came while the worker was on its way out
	r.checkDrained()
	r.c.changed()
}

// release retires an attempt, with what was stored of it if its job was its own. It reports whether its worker looks for the
// next one: not if another worker does, which sees to this slot too.
func (r *run) release(a *attempt, f *fate, err error) bool {
	r.retire(a, f, err)
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.searching > 0 || !r.some() || r.stopping || r.blocked || r.free() < 0 {
		r.leave()
		return false
	}
	r.searching++
	return true
}

// retire is what release does to the attempt.
func (r *run) retire(a *attempt, f *fate, err error) {
	var to *storage.Record
	if f != nil {
		r.tell(f, err)
		defer f.forget()
		to = f.rec
	}
	private := a.context.TakeBack()
	r.c.mu.Lock()
	defer func() {
		r.c.mu.Unlock()
		if a.reusable(private) {
			attempts.Put(a)
		}
	}()
	r.ended(a, to, err)
	if a.replaced {
		a.replaced = false
		r.stuck--
	}
	if a.storing {
		a.storing = false
		r.storing--
	}
	r.c.letIn(a.held())
}

// ended takes an attempt out of r.attempts, and follows what was stored of it: to is its job as it is now, nil if that was no
// longer its own. core.mu is held.
func (r *run) ended(a *attempt, to *storage.Record, err error) {
	if to != nil {
		a.phase = over
		if err == nil {
			r.c.settled(to)
		}
	}
	r.forget(a)
}

// tellClaimFailed logs a claim that failed. No lock is held.
func (r *run) tellClaimFailed(err error, pause time.Duration) {
	r.c.log.Error("claim failed", "error", err, "retry_in", pause)
}

// claimFailed keeps workers from the storage for a while, and returns for how long. core.mu is held.
func (r *run) claimFailed(err error) (d time.Duration) {
	r.failures++
	r.failure = err
	d = storageBackoff(r.failures)
	r.blocked = true
	r.keeper.wakeAt(r.c.now().Add(d)) // if it has claimed a job all the same, that has a lease to run out
	r.sched.At(r.c.clock.Now().Add(d), func(time.Time) {
		r.c.mu.Lock()
		defer r.c.mu.Unlock()
		r.blocked = false
		r.c.available(unknown)
	})
	return d
}

// storageBackoff is the wait after the n-th failure of a storage in a row: 100 ms doubling to 30 s.
func storageBackoff(n int) time.Duration {
	return min(100*time.Millisecond<<min(n-1, 16), 30*time.Second)
}

// wakeAt asks for a look at the storage's deadlines at t, if none is due earlier. Zero asks for none. mu is held.
func (c *core) wakeAt(t time.Time) {
	if c.run != nil && !t.IsZero() {
		c.run.keeper.wakeAt(t)
	}
}

// letIn says that a claimed job no longer runs, which may let in others that a limit kept out. mu is held.
func (c *core) letIn(held storage.Held) {
	if c.gate.ended(held) {
		c.available(unknown)
	}
}
