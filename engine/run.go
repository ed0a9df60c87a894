package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/alarm"
	"github.com/ojsengine/ojs/engine/internal/chores"
	"github.com/ojsengine/ojs/engine/internal/idle"
	"github.com/ojsengine/ojs/engine/internal/pipeline"
	"github.com/ojsengine/ojs/engine/internal/sleeps"
	"github.com/ojsengine/ojs/event"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
)

// unknown stands for a number of available jobs that has not been counted.
const unknown = pipeline.Unknown

// maxNamed bounds how many jobs a log line names.
const maxNamed = 10

// maxClaim bounds how many jobs a worker fetches in one claim.
const maxClaim = 500

// lastCall is how long Run waits, after the grace period, for handlers whose contexts it
// has ended.
const lastCall = time.Second

// run is one call of Run: its pipeline, its timers, and the attempts that it has claimed.
type run struct {
	c     *core
	base  context.Context // of handlers and storage calls: Run's values, no end
	sched *scheduler.Scheduler
	pipe  *pipe
	tick  scheduler.Timer // of the pipeline
	busy  idle.Counter    // of the pipeline and of maintenance

	stopping atomic.Bool // no more claims; set while core.mu is held

	// Guarded by core.mu.
	claiming int           // claims under way
	failures int           // claims that failed in a row
	failure  error         // of the last of them
	stuck    int           // attempts that are reported as stuck
	spare    []*attempt    // memory for the next ones
	attempts []*attempt    // claimed and not stored, or running; two of a job if a lost one goes on
	drained  chan struct{} // closed when stopping, and the pipeline and attempts are empty
	returned []string      // the jobs whose attempts the stop has interrupted

	contexts *internal.Run // what those of the attempts share

	looking   alarm.Alarm // for the attempts
	reopening alarm.Alarm // for when a limit lets jobs in again

	unblocking alarm.Alarm   // for claims, after one that failed
	recovery   alarm.Alarm   // for all that waits, when the storage answers again
	sleeps     sleeps.Sleeps // of handlers, and before calls of the storage are repeated
	reportNow  chan struct{} // has the reporter report if its latest report failed

	closing     chan struct{} // closed when the grace period is over too
	over        chan struct{} // closed when the run has ended
	maintenance maintenance

	terminated    chan struct{} // closed when another process or a closed storage has ended the run
	terminateOnce sync.Once
	closedStore   error // of a call of a closed storage; written before terminated is closed
}

func (c *core) runUntil(ctx context.Context) error {
	r := &run{
		c:       c,
		base:    storage.WithCaller(context.WithoutCancel(ctx), c),
		drained: make(chan struct{}),
		closing: make(chan struct{}),
		over:    make(chan struct{}),

		terminated: make(chan struct{}),
		reportNow:  make(chan struct{}, 1),
	}
	defer c.listen()() // before the first look, or what comes in between would go unnoticed
	c.hold(func(h *holds) { h.quiet = false })
	unread := c.loadHolds(ctx)
	if foreign.Is(unread, ojs.ErrClosed) {
		return unread
	}
	limited := c.setLimits(r.base) // before the first claim
	c.mu.Lock()
	if c.run.Load() != nil {
		c.mu.Unlock()
		return ErrRunning
	}
	r.sched = scheduler.New(c.clock)
	r.sleeps.Sched, r.sleeps.Clock, r.sleeps.Busy, r.sleeps.Virtual = r.sched, c.clock, &r.busy, c.mocked
	r.pipe = r.newPipe()
	r.contexts = internal.NewRun(r.base)
	r.looking.Start(r.sched, r.look)
	r.reopening.Start(r.sched, func(time.Time) { c.available(unknown) })
	r.unblocking.Start(r.sched, func(time.Time) {
		c.available(unknown)
		r.pipe.Unblock()
	})
	r.recovery.Start(r.sched, r.retry)
	r.maintenance.start(r)
	c.run.Store(r)
	c.begins.ring()
	c.started = c.now()
	c.available(unknown)
	c.processes.failed.Store(true) // before: other processes may have had no answers
	k := &r.maintenance
	for _, chore := range []*chores.Chore{
		&k.claims, &k.due, &k.workers, &k.cron, &k.prune, &k.replay, &k.holds} { // a pause may be new
		chore.Poke()
	}
	c.mu.Unlock()
	if set := c.registry.handlers.Load(); set != limited { // registered since
		c.setTypeLimits(r.base, set.all())
	}
	c.warnUnreached()
	c.warnQuarantined(r.base)
	c.log.Debug("engine started", "component", "worker", "category", "lifecycle", "worker_id", c.worker,
		"concurrency", c.concurrency)
	c.emit(event.Event{Type: event.WorkerStarted, Subject: c.worker, WorkerID: c.worker})

	reports := r.report()
	var closed error
	select {
	case <-ctx.Done():
	case <-r.terminated:
		closed = r.closedStore
	}
	err := errors.Join(closed, r.stop(), r.maintenance.stop())
	reports.stop()
	r.sched.Stop()

	c.mu.Lock()
	c.run.Store(nil)
	close(r.over)
	returned := r.returned
	c.mu.Unlock()
	if len(returned) > 0 && !c.durable {
		slices.Sort(returned)
		c.log.Warn("stop gave running jobs back to a storage that is not durable: they are lost when the program ends",
			"component", "worker", "category", "lifecycle", "worker_id", c.worker, "jobs", len(returned),
			"job_ids", returned[:min(len(returned), maxNamed)])
	}
	c.log.Debug("engine stopped", "component", "worker", "category", "lifecycle", "worker_id", c.worker)
	c.emit(event.Event{
		Type: event.WorkerStopped, Subject: c.worker, WorkerID: c.worker,
		Reason: stopReason(ctx, err != nil),
	})
	return err
}

// stop ends the work of a run. Its error names the handlers and the calls of the storage
// that go on nevertheless.
func (r *run) stop() error {
	mu := &r.c.mu
	mu.Lock()
	r.stopping.Store(true)
	r.pipe.Stop()
	r.checkDrained()
	mu.Unlock()
	r.c.emit(event.Event{Type: event.WorkerQuiet, Subject: r.c.worker, WorkerID: r.c.worker})

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
	if slices.ContainsFunc(r.attempts, func(a *attempt) bool { return a.returned }) {
		mu.Unlock()
		if r.waitDrained(lastStore) {
			return nil
		}
		mu.Lock()
	}
	var given []*attempt
	var stuck, unstored []string
	for _, a := range r.attempts {
		if a.returned {
			unstored = append(unstored, a.rec.ID)
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
	claiming := r.claiming > 0
	mu.Unlock()
	for _, a := range given {
		r.interrupt(a)
	}
	return unfinished(stuck, unstored, claiming)
}

// lastStore is how long Run waits for outcomes of handlers that have returned at the end
// of lastCall. A storage that takes longer has not answered.
const lastStore = time.Millisecond

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

// closedBy ends the run if a call of the storage has failed because the storage has been
// closed, and reports whether it has.
func (r *run) closedBy(err error) bool {
	if !foreign.Is(err, ojs.ErrClosed) {
		return false
	}
	r.terminateOnce.Do(func() {
		r.closedStore = err
		close(r.terminated)
	})
	return true
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

// waitDrained waits until the pipeline is empty, for d at most.
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
	if r.stopping.Load() && len(r.attempts) == 0 && r.pipe.Drained() {
		select {
		case <-r.drained:
		default:
			close(r.drained)
		}
	}
}

// storageBackoff is the wait after the n-th failure of a storage in a row: 100 ms
// doubling to 30 s. It ends early when the storage answers again.
func storageBackoff(n int) time.Duration {
	return min(100*time.Millisecond<<min(n-1, 16), 30*time.Second)
}

// wakeAt asks for a look at the storage's deadlines at t, if none is due earlier. Zero
// asks for none.
func (c *core) wakeAt(t time.Time) {
	if r := c.run.Load(); r != nil {
		r.maintenance.due.By(t)
	}
}

// letIn records that a claimed job has stopped running. If a limit of this engine kept
// other jobs out, it wakes a claim.
func (c *core) letIn(held storage.Held) {
	if c.gate.ended(held) {
		c.available(unknown)
	}
}

// NextWake returns when an idle engine has something to do next without a call from
// outside: a job comes due, a lease wants renewing, a limit opens. It reports false if
// nothing is to come, or the engine does not run.
func (e *Engine[T]) NextWake() (time.Time, bool) {
	r := e.core.run.Load()
	if r == nil {
		return time.Time{}, false
	}
	r.punctual()
	return r.sched.Next()
}

func (c *core) waitIdle(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var over, wait <-chan struct{} = nil, c.begins.hear()
		if r := c.run.Load(); r != nil {
			var idle bool
			if idle, wait = r.busy.Idle(r.settled); idle {
				return nil
			}
			over = r.over
		}
		select {
		case <-wait:
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settled reports whether no timer of the run is due. If one is, it returns what to wait
// for.
func (r *run) settled() (bool, <-chan struct{}) {
	r.punctual()
	return r.sched.Settled()
}

// failing says that calls fail which look for jobs, or do so no more; was is what the
// call before has said. Under a clock that moves by itself a run is busy meanwhile, since
// jobs may be due.
func (r *run) failing(was, fails bool) {
	switch {
	case r.c.mocked || was == fails:
	case fails:
		r.busy.Add(1)
	default:
		r.busy.Add(-1)
	}
}

// bell wakes all goroutines that wait for something to happen. The zero bell is ready.
type bell struct{ ch atomic.Pointer[chan struct{}] }

// hear returns a channel that the next ring closes.
func (b *bell) hear() <-chan struct{} {
	for {
		if ch := b.ch.Load(); ch != nil {
			return *ch
		}
		ch := make(chan struct{})
		if b.ch.CompareAndSwap(nil, &ch) {
			return ch
		}
	}
}

func (b *bell) ring() {
	if b.ch.Load() == nil {
		return
	}
	if ch := b.ch.Swap(nil); ch != nil {
		close(*ch)
	}
}
