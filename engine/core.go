package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/journal"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/following"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/spin"
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
	// ErrUnanswered says that Run stopped while calls of the storage were under way. An
	// outcome that such a call brings may be stored still; if it is not, its job runs
	// again when the lease has run out.
	ErrUnanswered = errors.New("ojs: the storage has not answered")
)

// core is the engine without its type parameter.
type core struct {
	config
	times   times
	store   storage.Storage
	rnd     *random // ids
	worker  string  // this engine in claims, logs and events
	mocked  bool    // the clock is virtual
	durable bool    // the storage is

	insertClaims bool                  // the storage claims new jobs if asked to
	held         heldBack              // whether limits hold jobs back
	exceeded     exceeded              // the keys whose limits are exceeded
	stepper      storage.SettleClaimer // the storage, if it stores and claims in one step; nil: it does not

	registry  registry
	gate      *gate
	queues    atomic.Pointer[queueSet] // changed while gate.turn is held
	waiters   waiters
	gone      gone
	workflows begun // to publish their starts once
	room      room
	listening listening // for Run, Wait and Fetch
	unserved  sync.Map  // queues of which warnUnserved has warned
	workers   workers
	events    *eventlog.Log
	journal   journal.Journal
	holding   journal.Journal // of calls that end no job
	crons     *cron.Entries
	jobs      *inspect.Jobs
	operator  *operate.Operator
	meter     telemetry.Meters
	history   telemetry.Recorder // the reporter's
	watches   bool               // other processes may report on the storage
	processes processes
	jitter    uint64 // the seed of delays
	outage    outage
	eventIDs  *random // of its own: who listens does not change what happens
	source    string  // of the engine's events

	run     atomic.Pointer[run] // nil: not running; set while mu is held
	begins  bell                // rings when a run begins
	offers  bell                // rings when jobs may be available, for remote workers
	depends atomic.Bool         // this engine has seen a job that waits for others

	mu      spin.Mutex // guards everything below, and the fields of run and attempt that say so
	started time.Time  // of the latest run

	claiming   int                   // claims under way, of this run and of those before
	asking     []int64               // their times
	unanswered []unanswered          // claims that have failed, and may have taken jobs
	handedOn   map[string]int64      // retired jobs that others settle, and when they were claimed
	lostEarly  map[storage.Held]bool // claims that were lost while others were under way
}

func newCore(s storage.Storage, opts []Option) (*core, error) {
	const remedy = "make one, with memory.New() for example"
	if s == nil {
		return nil, invalid("storage", "is nil: "+remedy)
	}
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, invalid("storage", "is a nil %T: "+remedy, s)
	}
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	c := &core{config: cfg, store: s, rnd: newRandom(cfg.rand),
		lostEarly: make(map[storage.Held]bool)}
	c.durable, c.insertClaims = s.Capabilities().Durable, s.Capabilities().InsertClaims
	c.queues.Store(&cfg.queues)
	c.store = c.bind(s)
	c.stepper, _ = c.store.(storage.SettleClaimer)
	if c.prefetch == 0 {
		c.prefetch = defaultPrefetch
		if c.durable {
			c.prefetch = durablePrefetch
		}
	}
	if c.clock == nil {
		c.clock = following.Of(c.wall, s)
	}
	_, c.mocked = c.clock.(*clock.Mock)
	// Under a virtual clock, which jumps, reports are asked for.
	c.watches = s.Capabilities().Shared && !c.mocked || c.reports != nil
	if c.watches && c.reports == nil && !c.noReports {
		_ = WithReports(Reports{})(&c.config) // which are valid
	}
	c.times.start(c.clock)
	c.jitter = c.rnd.r.Uint64()
	c.eventIDs = newRandom(rand.New(rand.NewPCG(c.rnd.r.Uint64(), 0)))
	id := c.rnd.id(c.now())
	c.worker = cfg.name + "-" + id[len(id)-12:]
	observers := make([]eventlog.Observer, len(c.observers))
	for i, o := range c.observers {
		observers[i] = o
	}
	c.source = "ojs://" + c.name + "/engine/" + c.worker
	c.events = eventlog.New(observers, c.log, c.identifyEvent)
	c.journal = journal.Journal{Log: c.events, Uncertain: c.uncertain, Answered: c.answered,
		Tell: c.dependentEvents, Follow: c.dependentsMoved}
	c.holding = c.journal
	c.holding.Uncertain = c.uncertainHold
	c.crons = c.newCrons()
	c.operator = c.newOperator()
	c.gate = newGate(&c.config)
	c.gate.limitName = c.registry.limitName
	c.registry.handlers.Store(new(handlers))
	for _, o := range c.observers {
		if r, ok := o.(MeterReader); ok {
			r.ReadMeter(c.meter.Snapshot)
		}
	}
	return c, nil
}

// unsupported is the error that says what the storage does not do.
func (c *core) unsupported(lacks string) error {
	return fmt.Errorf("%w: storage %s %s", ojs.ErrUnsupported, c.store.Capabilities().Name, lacks)
}

func (c *core) get(ctx context.Context, id string) (*ojs.JobInfo, error) {
	rec, err := c.store.Get(ctx, id)
	if err != nil {
		return nil, c.missing(id, err)
	}
	return &rec.JobInfo, nil
}

// lookup is get for a caller of the engine, with a trace.
func (c *core) lookup(ctx context.Context, id string) (job *ojs.JobInfo, err error) {
	ctx, end := c.traceID(ctx, OpGet, id)
	defer func() { end(err) }()
	return c.get(ctx, id)
}

// uncertain follows a failed call that should have changed the storage. It may have
// changed it all the same: look.
func (c *core) uncertain(err error) {
	c.uncertainHold(err)
	if !saysNo(err) {
		c.waiters.all()
	}
}

// uncertainHold is uncertain for a call that ends no job: a claim, or the renewal of a
// lease. Callers that wait for a job do not look.
func (c *core) uncertainHold(err error) {
	if saysNo(err) {
		return
	}
	c.processes.failed.Store(true)
	c.available(unknown)
	c.wakeAt(c.now().Add(storageBackoff(1)))
}

// saysNo reports whether an error is an answer: the storage has changed nothing.
func saysNo(err error) bool {
	return foreign.Is(err, ojs.ErrDuplicate) || foreign.Is(err, ojs.ErrInvalid) ||
		foreign.Is(err, ojs.ErrClosed)
}

// available says that n more jobs may be claimed.
func (c *core) available(n int) {
	if n == 0 {
		return
	}
	if r := c.run.Load(); r != nil {
		r.pipe.Available(n)
	}
	c.offers.ring()
}

// returnClaimed returns the jobs that were claimed ahead to the storage.
func (c *core) returnClaimed() {
	if r := c.run.Load(); r != nil {
		r.pipe.Return()
	}
}

// endedOtherwise follows the ends of jobs that did not come with the end of an attempt:
// they were cancelled, replaced, dropped or have expired, or have waited for others only.
func (c *core) endedOtherwise(recs []storage.Record) {
	for i := range recs {
		r := &recs[i]
		c.meter.EndedOtherwise(r)
		switch r.State {
		case ojs.StateCancelled:
			c.logJob(levelOf(r), "job cancelled", "lifecycle", r, "")
		case ojs.StateDiscarded:
			c.logJob(slog.LevelError, "job discarded", "error", r, "", failureAttrs(r.Error)...)
		}
		c.jobEnded(r)
	}
}

// jobEnded follows the end of a job.
func (c *core) jobEnded(rec *storage.Record) {
	c.waiters.ended(rec.ID, &rec.JobInfo)
	c.room.made(rec.Queue)
	if c.held.now() { // it may have been active elsewhere
		c.available(unknown)
	}
	if r := c.run.Load(); r != nil {
		r.maintenance.ended(1)
		if rec.DeadLettered() {
			r.maintenance.died(rec)
		}
	}
}
