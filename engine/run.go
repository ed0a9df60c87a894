package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine/internal/alarm"
	"github.com/ojsengine/ojs/engine/internal/attempts"
	"github.com/ojsengine/ojs/engine/internal/chores"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/jobtypes"
	"github.com/ojsengine/ojs/engine/internal/publish"
	"github.com/ojsengine/ojs/engine/internal/reports"
	"github.com/ojsengine/ojs/engine/internal/upkeep"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

// maxNamed bounds how many jobs a log line names.
const maxNamed = 10

// session is what the engine has while Run works: the attempts, and the chores beside
// them.
type session struct {
	chores.Set
	*upkeep.Upkeep
	r       *attempts.Run
	reports *reports.Reporter // nil: there are none

	holds   chores.Chore // the pauses
	workers chores.Chore // those that fetch jobs
	cron    chores.Chore // the recurring jobs
	crons   *cron.Ticker // fires them

	recovery    alarm.Alarm           // for all that waits, when the storage answers again
	closedStore atomic.Pointer[error] // of a call of a closed storage
	terminated  chan struct{}         // closed when another process or a closed storage has ended the run
	once        sync.Once             // for terminate
	over        chan struct{}         // closed when the run has ended
}

// newSession readies what Run needs, and starts the chores.
func (c *parts) newSession(ctx context.Context) *session {
	k := &session{r: c.attempts.NewRun(ctx), terminated: make(chan struct{}), over: make(chan struct{})}
	k.Upkeep = c.upkeep.NewUpkeep(k.r.Base, &k.Set, &k.r.Busy)
	k.recovery.Start(k.r.Sched, func(now time.Time) {
		c.Recovers(now)
		k.r.Retry(now)
		k.Retry()
		if k.reports != nil {
			k.reports.Set.Retry()
		}
	})
	k.crons = c.crons.Ticker(k.cron.Fail, c.Answered,
		func() bool { return k.Quitting() || c.admission.AllPaused() })
	k.holds = chores.Chore{Name: "pauses",
		Run: func(ctx context.Context, _ time.Time) (time.Time, error) { return never, c.loadHolds(ctx) }}
	k.workers = chores.Chore{Name: "look at workers", Run: c.workers.LookAt}
	k.cron = chores.Chore{Name: "recurring jobs", Exact: true,
		Run: func(ctx context.Context, _ time.Time) (next time.Time, err error) {
			if !c.admission.AllPaused() {
				next = k.crons.Tick(ctx)
			}
			return next, nil
		}}
	list := []*chores.Chore{&k.r.Leases, // before those of what is due
		&k.holds, &k.r.Claims, &k.workers, &k.Due, &k.cron}
	list = append(list, k.Chores()...)
	k.Start(k.r.Base, chores.Config{Sched: k.r.Sched, Busy: &k.r.Busy, Now: c.Now, Failed: c.Failed,
		Wait: func(n int) time.Duration { return min(env.StorageBackoff(n), env.ProbeEvery) }}, list...)
	return k
}

// never is the next time of a chore that only Poke runs.
var never time.Time

// loadHolds reads the pauses. When that of everything ends, the recurring jobs wake up.
func (c *parts) loadHolds(ctx context.Context) error {
	resumed, err := c.admission.LoadHolds(ctx)
	if err == nil {
		c.Answered()
	}
	if resumed {
		c.current().cron.Poke()
	}
	return err
}

// noSession stands for the session of an engine that does not run. Only its alarms and
// chores may be used, and they wake nothing.
var noSession = session{Upkeep: new(upkeep.Upkeep)}

// current returns the session of the run, noSession if there is none.
func (c *parts) current() *session { return cmp.Or(c.session.Load(), &noSession) }

// terminate has Run return.
func (k *session) terminate() { k.once.Do(func() { close(k.terminated) }) }

func (c *parts) runUntil(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer c.running.Store(false)
	defer c.listener.Listen()() // before the first look, or what comes in between would go unnoticed
	c.admission.SetQuiet(false)
	var unread error
	if err := c.answered(ctx, nil, func() { unread = c.loadHolds(ctx) }); err != nil {
		return err
	}
	if foreign.Is(unread, ojs.ErrClosed) {
		return unread
	}
	k := c.newSession(ctx)
	r := k.r
	var limited *jobtypes.Handlers
	err := c.answered(ctx, nil, func() { limited = c.setLimits(r.Base) }) // before the first claim
	if err != nil {
		<-k.Stop()
		r.Over()
		return err
	}
	if c.reports != nil { // before it, too: other processes see the end of this one
		k.reports = c.reporting.Start(r.Base, k.terminate)
		select {
		case <-k.reports.First:
		case <-ctx.Done():
			r.Quit() // and no claim is made
		}
	}
	r.Busy.Add(1) // until all that there is to do counts
	c.session.Store(k)
	r.Start()
	r.Pipe.Resize(c.attempts.Slots) // SetConcurrency may have been called since newSession
	c.begins.Ring()
	c.Emit(event.Event{Type: event.WorkerStarted, Subject: c.Worker, WorkerID: c.Worker,
		Queues: slices.Clone(c.types.Queues.Load().Names), Slots: c.attempts.Slots()})
	c.available(env.Unknown)
	c.Unanswers.Store(true) // before: other processes may have had no answers
	k.holds.Poke()          // before the recurring jobs: a pause may be new
	for _, chore := range []*chores.Chore{&r.Claims, &k.Due, &k.workers, &k.cron, &k.Prune, &k.Replay} {
		chore.Poke()
	}
	r.Busy.Add(-1)
	c.warnUnreached()
	quit := context.AfterFunc(ctx, r.Quit) // a call may hang: nothing is claimed meanwhile
	err = c.answered(ctx, k.terminated, func() {
		if set := c.types.Registry.Handlers.Load(); set != limited { // registered since
			c.setTypeLimits(r.Base, set.All())
		}
		c.warnQuarantined(r.Base)
	})
	if err != nil {
		k.terminate()
	}
	quit()
	c.Log.Debug("engine started", "component", "worker", "category", "lifecycle", "worker_id", c.Worker,
		"concurrency", c.attempts.Slots())

	select {
	case <-ctx.Done():
	case <-k.terminated:
		if closed := k.closedStore.Load(); closed != nil {
			err = errors.Join(err, *closed)
		}
	}
	err = errors.Join(err, c.stop(k))
	returned := r.Over()
	c.session.Store(nil)
	close(k.over)
	if len(returned) > 0 && !c.Durable {
		slices.Sort(returned)
		c.Log.Warn("stop gave running jobs back to a storage that is not durable: they are lost when the program ends",
			"component", "worker", "category", "lifecycle", "worker_id", c.Worker, "jobs", len(returned),
			"job_ids", returned[:min(len(returned), maxNamed)])
	}
	c.Log.Debug("engine stopped", "component", "worker", "category", "lifecycle", "worker_id", c.Worker)
	c.Emit(event.Event{
		Type: event.WorkerStopped, Subject: c.Worker, WorkerID: c.Worker,
		Reason: stopReason(ctx, err != nil),
	})
	return err
}

// errStart is the error of a Run whose first calls of the storage have not ended.
var errStart = fmt.Errorf("%w: a call at the start", ErrUnanswered)

// answered makes calls of the storage with which a run starts. It fails if they panic, or
// go on LastCall after the end of ctx or of the run.
func (c *parts) answered(ctx context.Context, terminated <-chan struct{}, calls func()) error {
	done := make(chan *foreign.Stop, 1)
	go func() { done <- foreign.Call(calls) }()
	var last <-chan time.Time
	for {
		select {
		case stop := <-done:
			if stop != nil {
				return fmt.Errorf("ojs: a call of the storage at the start %w", stop)
			}
			return nil
		case <-ctx.Done():
		case <-terminated:
		case <-last:
			return errStart
		}
		if last == nil {
			t := c.Clock.Timer(attempts.LastCall)
			defer t.Stop()
			ctx, terminated, last = context.Background(), nil, t.C
		}
	}
}

// stop ends the work of a session. Its error names the handlers and the calls of the
// storage that go on nevertheless.
func (c *parts) stop(k *session) error {
	k.r.Quit()
	c.Emit(event.Event{Type: event.WorkerQuiet, Subject: c.Worker, WorkerID: c.Worker, Held: k.r.Pipe.Busy()})
	err := unfinished(k.r.Stop())
	if !k.r.Wait(k.Stop(), attempts.LastCall) { // the chore that runs ends with its call
		err = errors.Join(err,
			fmt.Errorf("%w: a look at what is due, or the renewal of leases", ErrUnanswered))
	}
	if k.reports != nil {
		k.r.Wait(k.reports.Stop(), attempts.LastCall)
	}
	return err
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
		unstored = slices.Compact(unstored)
		errs = append(errs, fmt.Errorf("%w: outcomes of jobs %v", ErrUnanswered, unstored))
	}
	if claiming {
		errs = append(errs, fmt.Errorf("%w: a claim", ErrUnanswered))
	}
	return errors.Join(errs...)
}

// stopReason says why a Run has stopped: signal if its context was signal.NotifyContext's
// and a signal ended it.
func stopReason(ctx context.Context, stuck bool) string {
	if stuck {
		return publish.StoppedError
	}
	if t := reflect.TypeOf(context.Cause(ctx)); t != nil && t.PkgPath() == "os/signal" {
		return publish.StoppedSignal
	}
	return publish.StoppedShutdown
}

// closedBy ends the run if a call of the storage has failed because the storage has been
// closed, and reports whether it has.
func (c *parts) closedBy(err error) bool {
	k := c.session.Load()
	if k == nil || !foreign.Is(err, ojs.ErrClosed) {
		return false
	}
	k.closedStore.CompareAndSwap(nil, &err)
	k.terminate()
	return true
}

// recoverAt has all that waits for the storage try again at t.
func (c *parts) recoverAt(t time.Time) { c.current().recovery.By(t) }

// wakeAt asks for a look at the storage's deadlines at t, if none is due earlier. Zero
// asks for none.
func (c *parts) wakeAt(t time.Time) { c.current().Due.By(t) }

// watchWorkers asks for a look at the workers at t, if it is not zero.
func (c *parts) watchWorkers(t time.Time) { c.current().workers.By(t) }

func (c *parts) waitIdle(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var over, wait <-chan struct{} = nil, c.begins.Hear()
		if k := c.session.Load(); k != nil {
			var idle bool
			if idle, wait = k.r.Busy.Idle(k.r.Settled); idle {
				return nil
			}
			over = k.over
		}
		select {
		case <-wait:
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// setLimits stores the limits over all engines that this engine configures, while its
// queues do not change. It returns the handlers whose limits it has stored.
func (c *parts) setLimits(ctx context.Context) *jobtypes.Handlers {
	if done, err := c.admission.TakeTurn(ctx); err == nil {
		defer done()
	}
	queues := c.types.Queues.Load()
	for _, name := range queues.Names {
		qc := configOf(queues, name)
		c.setLimit(ctx, operate.LimitOfQueue(name), qc.GlobalBounds())
	}
	set := c.types.Registry.Handlers.Load()
	c.setTypeLimits(ctx, set.All())
	return set
}

// setTypeLimits stores the limits over all engines that handlers set.
func (c *parts) setTypeLimits(ctx context.Context, types []*jobtypes.JobType) {
	for _, t := range types {
		c.setLimit(ctx, operate.LimitOfType(t.Given.Type()), t.Given.GlobalRateLimit())
	}
}

// setLimit stores a limit if it has bounds.
func (c *parts) setLimit(ctx context.Context, name storage.LimitName, bounds ojs.RateLimit) {
	if !bounds.Bounds() {
		return
	}
	if err := c.Operator.Limits().Set(ctx, name, bounds, time.Time{}); err != nil {
		c.Log.Error("setting a limit failed", "kind", name.Kind, "name", name.Name, "error", err)
	}
}

// warnUnreached logs, at the start of a run, what the engine is configured for and cannot
// reach: limits above its own concurrency, and handlers of types whose jobs go to queues
// that it does not serve.
func (c *parts) warnUnreached() {
	if len(c.types.Registry.Handled()) == 0 {
		c.Log.Warn("the engine runs without a handler: it starts no job until one is registered")
	}
	queues := c.types.Queues.Load()
	for _, name := range queues.Names {
		c.warnConcurrency(name, configOf(queues, name).Concurrency)
	}
	c.types.WarnUnreached(c.attempts.Slots())
}

func (c *parts) warnConcurrency(queue string, n int) {
	if n > c.attempts.Slots() {
		c.Log.Warn("the concurrency of a queue is above the engine's, which holds for its attempts",
			"queue", queue, "queue_concurrency", n, "concurrency", c.attempts.Slots())
	}
}

// warnQuarantined logs, when the engine starts, that records are in quarantine. An
// operator has to mend or delete them.
func (c *parts) warnQuarantined(ctx context.Context) {
	if n, err := c.quarantined(ctx); err == nil && n > 0 {
		c.warnQuarantine("records are in quarantine", slog.Int("records", n))
	}
}

// setAside takes in what the storage has set aside.
func (c *parts) setAside(list []storage.Quarantined) {
	for _, q := range list {
		attrs := []any{
			slog.String("kind", string(q.Kind)), slog.String("name", q.Name), slog.String("key", q.Key),
			slog.String("reason", q.Reason),
		}
		if q.Kind == storage.KindJob {
			attrs = append(attrs, slog.String("job_type", q.Type), slog.String("queue", q.Queue),
				slog.String("state", string(q.State)))
			c.waits.Waiters.Ended(q.Name, nil) // and their calls fail
			c.enqueuer.Room.Made(q.Queue)
		}
		c.warnQuarantine("record does not decode and is in quarantine", attrs...)
	}
}

func (c *parts) warnQuarantine(msg string, attrs ...any) {
	c.Log.Warn(msg, "component", "worker", "category", "lifecycle", slog.Group("attributes", attrs...))
}

// hear takes in what others have done.
func (c *parts) hear(n storage.Notice) {
	if n.Available || n.Everything {
		c.available(env.Unknown)
	}
	c.wakeAt(n.Due)
	if !n.Opens.IsZero() {
		c.Offers.Ring() // they ask when it opens
	}
	k := c.current()
	if k != &noSession {
		k.r.Reopening.By(n.Opens)
		if len(n.Ended) > 0 {
			k.Ended(len(n.Ended))
		}
	}
	if n.Everything {
		k.Due.Poke()
	}
	if n.Values || n.Everything {
		k.holds.Poke()
	}
	if n.Crons || n.Everything {
		k.cron.Poke()
	}
	for _, t := range n.Taken {
		c.attempts.TakenAway(t.Held, t.Cause)
	}
	for _, id := range n.Ended {
		c.waits.Waiters.Ended(id, nil)
	}
	if n.Everything {
		c.waits.Waiters.All()
	}
	c.setAside(n.Quarantined)
}
