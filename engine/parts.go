package engine

import (
	"context"
	"errors"
	"log/slog"
	rand "math/rand/v2"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/engine/internal/admission"
	"github.com/ojsengine/ojs/engine/internal/attempts"
	"github.com/ojsengine/ojs/engine/internal/caller"
	"github.com/ojsengine/ojs/engine/internal/enqueue"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/ids"
	"github.com/ojsengine/ojs/engine/internal/jobtypes"
	"github.com/ojsengine/ojs/engine/internal/journal"
	"github.com/ojsengine/ojs/engine/internal/logs"
	"github.com/ojsengine/ojs/engine/internal/publish"
	"github.com/ojsengine/ojs/engine/internal/reports"
	"github.com/ojsengine/ojs/engine/internal/settle"
	"github.com/ojsengine/ojs/engine/internal/tracing"
	"github.com/ojsengine/ojs/engine/internal/upkeep"
	"github.com/ojsengine/ojs/engine/internal/waits"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/following"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/telemetry"
)

// Errors of Run.
var (
	// ErrRunning refuses a Run while another one of the same engine works.
	ErrRunning = errors.New("ojs: engine is running")
	// ErrStuck says that Run stopped while handlers were still going on, although their
	// contexts had ended. Their jobs have been given back and may run again beside them.
	ErrStuck = errors.New("ojs: handlers ignored the end of their contexts")
	// ErrUnanswered says that Run stopped while calls of the storage were under way, or
	// before the storage had taken an outcome. The outcome may be stored still; if it is
	// not, its job runs again when the lease has run out.
	ErrUnanswered = errors.New("ojs: the storage has not answered")
)

// parts are the components of an engine, without its type parameter.
type parts struct {
	config
	*env.Env
	types     *jobtypes.Types
	waits     *waits.Waits
	admission *admission.Admission
	enqueuer  *enqueue.Enqueuer
	settler   *settle.Settler
	attempts  *attempts.Attempts
	workers   *fetch.Workers
	upkeep    *upkeep.Engine
	reporting *reports.Engine
	crons     *cron.Entries

	session  atomic.Pointer[session] // nil: not running
	running  atomic.Bool             // Run works
	begins   env.Bell                // rings when a run begins
	listener caller.Listener         // of Run, Wait and Fetch
}

func newParts(s storage.Storage, opts []Option) (*parts, error) {
	const remedy = "make one, with memory.New() for example"
	if s == nil {
		return nil, draft.Invalid("storage", "is nil: "+remedy)
	}
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, draft.Invalid("storage", "is a nil %T: "+remedy, s)
	}
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	can := s.Capabilities()
	c := &parts{config: cfg}
	var jitter uint64 // the seed of delays
	c.Env, jitter = c.newEnv(s)
	_, c.Mocked = c.Clock.(*clock.Mock)
	// Under a virtual clock, which jumps, reports are asked for.
	watches := can.Shared && !c.Mocked || c.reports != nil
	if watches && c.reports == nil && !c.noReports {
		_ = WithReports(Reports{})(&c.config) // which are valid
	}
	c.Meter.CountFailures = c.reports != nil
	c.types = &jobtypes.Types{Env: c.Env, Defaults: cfg.defaults, Hooks: cfg.hooks, Retry: cfg.ownRetryHook,
		Seeded: cfg.rand != nil, Around: cfg.middleware, Runs: c.runs, SetTypeLimits: c.setTypeLimits}
	c.types.Queues.Store(&cfg.queues)
	c.types.Registry.Handlers.Store(new(jobtypes.Handlers))
	c.listener.Store, c.listener.Caller, c.listener.Hear = c.Store, c, c.hear
	c.waits = &waits.Waits{Env: c.Env, Listen: c.listener.Listen}
	c.admission = &admission.Admission{Env: c.Env, Gate: admission.NewGate(&cfg.queues)}
	c.admission.Gate.LimitName = c.types.Registry.LimitName
	c.types.LimitHandler = c.admission.Gate.LimitType
	c.enqueuer = &enqueue.Enqueuer{Env: c.Env, Types: c.types, Waits: c.waits}
	c.settler = &settle.Settler{Env: c.Env, Types: c.types, Enqueue: c.enqueuer, Jitter: jitter}
	c.attempts = attempts.New(&attempts.Attempts{Env: c.Env, Types: c.types, Admission: c.admission,
		Enqueue: c.enqueuer, Settle: c.settler, Prefetch: cfg.prefetch,
		Grace: cfg.grace, JobLogs: cfg.jobLogs, InsertClaims: can.InsertClaims})
	c.attempts.SetSlots(cfg.concurrency)
	c.enqueuer.Reserve, c.settler.Concluded = c.attempts.Reserve, c.attempts.Concluded
	c.workers = fetch.NewWorkers(c.Env, c.admission, c.enqueuer, c.settler, c.listener.Listen, c.watchWorkers)
	c.reporting = &reports.Engine{Env: c.Env, Settle: c.settler, Peers: (*reports.ReportConfig)(c.reports),
		Watches: watches, Attempts: c.attempts}
	c.upkeep = &upkeep.Engine{Env: c.Env, Settle: c.settler, Keep: upkeep.Retention(cfg.retention),
		Rules: cfg.rules, Spare: c.reporting.SpareLeases}
	c.Operator = c.newOperator()
	c.crons = c.newCrons()
	c.TakenAway, c.WorkerLost = c.attempts.TakenAway, c.workers.Lose
	for _, o := range c.observers {
		if r, ok := o.(telemetry.MeterReader); ok {
			r.ReadMeter(c.Meter.Snapshot)
		}
	}
	return c, nil
}

// newEnv makes what the parts share.
func (c *parts) newEnv(s storage.Storage) (e *env.Env, jitter uint64) {
	e = &env.Env{Lines: &logs.Lines{Log: c.log}, Store: caller.Bind(c, s), Clock: c.clock,
		IDs:  ids.New(c.rand),
		Name: c.name, Lease: c.lease, Durable: s.Capabilities().Durable, Caller: c, Codec: c.codec}
	e.IDs.Pick = c.pick
	if e.Clock == nil {
		e.Clock = following.Of(c.wall, s)
	}
	e.Begin()
	jitter = e.IDs.Uint64()
	eventIDs := ids.New(rand.New(rand.NewPCG(e.IDs.Uint64(), 0)))
	id := e.IDs.Next(e.Now())
	e.Worker = c.name + "-" + id[len(id)-12:]
	e.Tracers = &tracing.Tracers{Lines: e.Lines, All: c.tracers, Worker: e.Worker,
		Backend: s.Capabilities().Name}
	e.Publisher = &publish.Publisher{Lines: e.Lines, Source: "ojs://" + e.Name + "/engine/" + e.Worker,
		EventIDs: eventIDs, Now: e.Now}
	e.Events = eventlog.New(c.observers, c.log, e.IdentifyEvent)
	e.Signals = env.Signals{Available: c.available, WakeAt: c.wakeAt, Ended: c.jobEnded,
		ReturnClaimed: c.returnClaimed, ClosedBy: c.closedBy, RecoverAt: c.recoverAt}
	e.Journal = journal.Journal{Log: e.Events, Uncertain: c.uncertain, Answered: e.Answered,
		Tell: e.DependentEvents, Follow: e.DependentsMoved}
	e.Holding = e.Journal
	e.Holding.Uncertain = c.uncertainHold
	return e, jitter
}

// uncertain follows a failed call that should have changed the storage. It may have
// changed it all the same: look.
func (c *parts) uncertain(err error) {
	c.uncertainHold(err)
	if !env.SaysNo(err) {
		c.waits.Waiters.All()
	}
}

// uncertainHold is uncertain for a call that ends no job: a claim, or the renewal of a
// lease. Callers that wait for a job do not look.
func (c *parts) uncertainHold(err error) {
	if env.SaysNo(err) {
		return
	}
	c.Unanswers.Store(true)
	c.available(env.Unknown)
	c.wakeAt(c.Now().Add(env.StorageBackoff(1)))
}

// available says that n more jobs may be claimed. Without handlers none is claimed ahead,
// and Register says it again.
func (c *parts) available(n int) {
	if n == 0 {
		return
	}
	if r := c.attempts.Run.Load(); r != nil && len(c.types.Registry.Handled()) > 0 {
		r.Pipe.Available(n)
	}
	c.Offers.Ring()
}

// returnClaimed returns the jobs that were claimed ahead to the storage.
func (c *parts) returnClaimed() {
	if r := c.attempts.Run.Load(); r != nil {
		r.Pipe.Return()
	}
}

// jobEnded follows the end of a job.
func (c *parts) jobEnded(rec *storage.Record) {
	c.waits.Waiters.Ended(rec.ID, &rec.JobInfo)
	c.enqueuer.Room.Made(rec.Queue)
	if c.admission.LimitsHold() { // it may have been active elsewhere
		c.available(env.Unknown)
	}
	if k := c.session.Load(); k != nil {
		k.Ended(1)
		if rec.DeadLettered() {
			k.Died(rec)
		}
	}
}

// runs reports whether the engine runs.
func (c *parts) runs() bool { return c.attempts.Run.Load() != nil }

// newCrons makes what package cron needs of the engine.
func (c *parts) newCrons() *cron.Entries {
	return cron.New(cron.Engine{
		Store: c.Store, Codec: c.Codec, Log: c.Log,
		Now: c.Now, NewID: func() string { return c.IDs.Next(c.Now()) },
		CheckTx: c.CheckTx, Draft: c.enqueuer.CronDraft, Check: c.enqueuer.CheckCron,
		Enqueue: c.enqueuer.EnqueueCron,
		Refused: enqueue.Refused, Cancel: c.Operator.Jobs().Cancel, Trace: c.TraceCron, Emit: c.Emit,
		Changed: func() { c.current().cron.Poke() },
	})
}

// newOperator makes what packages inspect and operate need of the engine.
func (c *parts) newOperator() *operate.Operator {
	c.Jobs = inspect.OpenFor(inspect.Engine{Codec: c.Codec, Missing: c.Missing, Hinders: c.hinders},
		c.Store, c.Clock)
	return operate.New(operate.Engine{
		Store: c.Store, Clock: c.Clock, Inspect: c.Jobs, Codec: c.Codec, Log: c.Log, Now: c.Now,
		NewID:      func() string { return c.IDs.Next(c.Now()) },
		NewOrder:   func() string { return c.EventIDs.Next(c.Now()) },
		RunningLog: c.attempts.LogOf, Logged: c.attempts.Logged, Worker: c.Worker,
		KeepsLogs: c.attempts.JobLogs != nil,
		Enqueuer:  c.enqueuer, Wait: c.waits.Wait,
		TraceCancel: func(ctx context.Context, id string) (context.Context, func(error)) {
			return c.TraceID(ctx, telemetry.OpCancel, id)
		},
		LogJob: func(level slog.Level, msg string, rec *storage.Record, attrs ...any) {
			c.LogJob(level, msg, "lifecycle", rec, "", attrs...)
		},
		ArgsType: func(name, version string) reflect.Type {
			return c.types.Registry.Lookup(name, version).ArgsType()
		},
		Names: c.names, Queues: func() []string { return c.types.Queues.Load().Names },
		Settle: c.settler.SettleChange, Delete: c.settler.Delete, CancelAll: c.settler.CancelAll,
		Revive:   c.settler.Revive,
		QueueSet: c.settler.QueueSet, Paused: c.loadHolds, LimitSet: c.settler.LimitSet,
		Moved: func(from string) { c.enqueuer.Room.Made(from) },
		WorkerSet: func(id string, terminate bool) bool {
			to := fetch.Quiet
			if terminate {
				to = fetch.Terminate
			}
			return c.workers.Set(id, to)
		},
	})
}

// names reports whether the engine names a queue or a type: it serves the queue, or has a
// handler whose jobs go there, or one of the type.
func (c *parts) names(name storage.LimitName) bool {
	set := c.types.Registry.Handlers.Load()
	if name.Kind == storage.LimitType {
		return len(set.Of(name.Name)) > 0
	}
	queues := c.types.Queues.Load()
	return name.Name == ojs.DefaultQueue || queues.Has(name.Name) ||
		slices.ContainsFunc(set.All(), func(t *jobtypes.JobType) bool {
			o, err := c.types.Resolve(queues, t.Given.Defaults(), nil)
			return err == nil && o.Queue == name.Name
		})
}

// hinders returns what the engine has against a job: what keeps it from running here.
func (c *parts) hinders(rec *storage.Record, now time.Time) []inspect.Obstacle {
	var e inspect.Explanation
	r := c.attempts.Run.Load()
	runs := r != nil && !r.Stopping.Load()
	full := runs && r.Pipe.Busy() >= c.attempts.Slots()
	if !runs {
		e.Add(inspect.ObstacleNotRunning, "this engine does not run, or is stopping")
	}
	if c.types.Registry.Handlers.Load().Find(rec.Type, rec.TypeVersion) == nil {
		e.Add(inspect.ObstacleNoHandler, "type %s has no handler in this engine",
			versions.Full(rec.Type, rec.TypeVersion))
	}
	if queues := c.types.Queues.Load(); !queues.Serves(rec.Queue) {
		e.Add(inspect.ObstacleOtherQueues, "this engine takes jobs of the queues %v only", queues.Names)
	}
	c.admission.Gate.Explain(&e, rec, now)
	if full {
		e.Add(inspect.ObstacleNoSlot, "every slot of this engine is busy: %d", c.attempts.Slots())
	}
	return e.Obstacles
}

// partsOf returns the parts of an *Engine of any args.
func partsOf(engine any) *parts { return engine.(interface{ own() *parts }).own() }

// Package fleet reaches its engines so.
func init() {
	bridge.Give(bridge.Engines[Option, ojs.Draft, ojs.Options, clock.Clock]{
		Partitions: func(pick func(random uint64) int) Option {
			return option(true, func(c *config) { c.pick = pick }, "", "")
		},
		NewID: func(engine any, partition int) string {
			c := partsOf(engine)
			return c.IDs.In(c.Now(), partition)
		},
		Resolve: func(engine any, d *ojs.Draft, use func(*ojs.Options) error) error {
			_, p, err := partsOf(engine).types.Plan(d.Type(), d.Defaults(), d.Options(), new(jobtypes.Plan))
			if err != nil {
				return err
			}
			return use(&p.Options)
		},
		Load: func(engine any) (busy int, more bool) {
			if r := partsOf(engine).attempts.Run.Load(); r != nil {
				busy, more = r.Pipe.Busy(), r.Pipe.Full()
			}
			return busy, more
		},
		Refused: enqueue.Refused,
		Clock:   func(engine any) clock.Clock { return partsOf(engine).Clock },
	})
}
