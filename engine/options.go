package engine

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/policy"
)

// Defaults of an engine.
const (
	DefaultConcurrency = 10
	DefaultGracePeriod = 25 * time.Second
	DefaultClaimLease  = 90 * time.Second
)

// maxConcurrency bounds WithConcurrency. Each running attempt has a goroutine.
const maxConcurrency = 1_000_000

// Option configures an engine. New refuses what makes no sense.
type Option func(*config) error

type config struct {
	name         string
	concurrency  int
	prefetch     int
	grace        time.Duration
	lease        time.Duration // of claims of jobs without one of their own; 0: the jobs' own
	defaults     []ojs.Option
	queues       queueSet
	clock        clock.Clock // nil: the wall clock, as the storage has it
	wall         clock.Clock
	log          *slog.Logger
	rand         *rand.Rand
	retention    Retention
	replayRules  []replayRule
	middleware   []handler.Middleware
	hooks        []EnqueueHook
	observers    []Observer
	tracers      []Tracer     // those of the observers that are
	ownRetryHook policy.Hook  // nil: none
	codec        *codec.Chain // nil: none
	codecs       []string     // the encodings of codec
	reports      *Reports     // nil: none
	noReports    bool         // not by default either
	jobLogs      *slog.Level  // from which on lines of handlers are kept; nil: none are
}

func newConfig(opts []Option) (config, error) {
	c := config{
		wall:        clock.New(),
		name:        "ojs",
		concurrency: DefaultConcurrency,
		grace:       DefaultGracePeriod,
		lease:       DefaultClaimLease,
		log:         slog.New(atLeast{slog.LevelWarn, guard(slog.Default().Handler())}),
		retention:   defaultRetention,
	}
	for _, opt := range opts {
		if opt == nil {
			return c, invalid("option", "is nil")
		}
		if err := opt(&c); err != nil {
			return c, err
		}
	}
	return c, c.queues.checkWeights()
}

var (
	invalid   = draft.Invalid
	invalidAs = draft.InvalidAs
)

// WithConcurrency sets how many attempts run at once in this engine: 1 to 1,000,000, 10
// by default. A slot that has nothing to do costs nothing. With one slot jobs begin
// exactly in the order in which the storage hands them out.
func WithConcurrency(n int) Option {
	return func(c *config) error {
		if n < 1 || n > maxConcurrency {
			return invalid("concurrency", "%d is not from 1 to %d", n, maxConcurrency)
		}
		c.concurrency = n
		return nil
	}
}

// WithPrefetch sets how many jobs the engine may claim before a slot is free for them: 1
// to 1,000; 1 claims none ahead. The default is 32, and 500 with a durable storage. The
// engine claims none ahead with one slot, under virtual time, if a queue or type has a
// limit or a weight, or if the storage cannot undo claims (storage.SettleClaimer).
//
// Jobs claimed ahead wait in a queue of the engine, from which any free slot takes the
// next. There are as many as have completed in the last 4 to 8 milliseconds, or 20 to 40
// with a durable storage, so that none waits behind handlers that take their time. They
// are active in the storage, and their handlers' timeouts begin when they start. A job
// that has waited for 5 ms goes back to its place in the storage, without a spent
// attempt; with a durable storage after 100 ms, or longer if its calls take longer. So do
// all of them when a queue is paused or the engine stops. If the process is killed, the
// jobs in the queue wait as its running jobs do (Reports.DeadAfter).
//
// A job of a higher priority that is enqueued later runs after those that are claimed
// already. With 1 it is next.
func WithPrefetch(n int) Option {
	return func(c *config) error {
		if n < 1 || n > maxPrefetch {
			return invalid("prefetch", "%d is not from 1 to %d", n, maxPrefetch)
		}
		c.prefetch = n
		return nil
	}
}

// QueueConfig is how an engine treats one of its queues. The zero value bounds nothing.
type QueueConfig struct {
	// Concurrency is how many attempts of this queue run at once in this engine,
	// deliveries to its workers included; 0: as many as the engine allows. Attempts are
	// also bounded by WithConcurrency: Run warns if that is less.
	Concurrency int

	// GlobalConcurrency is how many attempts of this queue run at once over all engines
	// on the storage; 0: this engine sets no such limit. GlobalRateLimit bounds the queue
	// in the same way; its Key must be empty. Run stores both, in the place of bounds
	// that an earlier Run or Limits.Set has stored.
	GlobalConcurrency int
	GlobalRateLimit   ojs.RateLimit

	// Weight is the queue's share of the starts while several queues have jobs: with
	// weights 3 and 1, three of four. It is 0 for every queue, which are then served in
	// the order in which they were given, or positive for every queue.
	Weight int

	// RateLimit bounds the queue as it would a key. Its Key must be empty.
	RateLimit ojs.RateLimit

	// MaxDepth is how many jobs that have not ended an enqueue of this engine may fill
	// the queue to; 0: no limit. At 0.8 of it the engine warns, in the log and with
	// event.NearlyFull.
	MaxDepth int

	// Overflow is what happens to an enqueue to a full queue. The default is
	// OverflowReject.
	Overflow Overflow

	// Defaults hold for the jobs enqueued to this queue by this engine. They override the
	// engine's, are overridden by the job type's, and cannot name another queue.
	Defaults []ojs.Option
}

// Overflow is what happens to an enqueue to a full queue.
type Overflow string

// The ways to treat an overflow.
const (
	OverflowReject     Overflow = "reject"      // it fails with an *ojs.QueueError of ojs.ErrQueueFull
	OverflowBlock      Overflow = "block"       // it waits for room until its context ends
	OverflowDropOldest Overflow = "drop_oldest" // the job that has been available longest is discarded for it
)

// validate checks the configuration of a queue of this name.
func (qc *QueueConfig) validate(name string) error {
	if err := ojs.ValidateQueue(name); err != nil {
		return err
	}
	if err := qc.validateBounds(); err != nil {
		return fmt.Errorf("ojs: queue %s: %w", name, err)
	}
	o := ojs.DefaultOptions()
	o.Queue = name
	o.Apply(qc.Defaults...)
	if err := o.Validate(); err != nil {
		return fmt.Errorf("ojs: defaults of queue %s: %w", name, err)
	}
	if o.Queue != name {
		return invalid("queue", "defaults of queue %q name queue %q", name, o.Queue)
	}
	return nil
}

func (qc *QueueConfig) validateBounds() error {
	switch {
	case qc.Concurrency < 0:
		return invalid("concurrency", "%d is negative", qc.Concurrency)
	case qc.GlobalConcurrency < 0:
		return invalid("global_concurrency", "%d is negative", qc.GlobalConcurrency)
	case qc.GlobalRateLimit.Key != "":
		return invalid("rate_limit.key", "the limit of a queue has none")
	case qc.Weight < 0:
		return invalid("weight", "%d is negative", qc.Weight)
	case qc.MaxDepth < 0:
		return invalid("max_depth", "%d is negative", qc.MaxDepth)
	case qc.RateLimit.Key != "":
		return invalid("rate_limit.key", "the limit of a queue has none")
	}
	switch qc.Overflow {
	case "", OverflowReject, OverflowBlock, OverflowDropOldest:
	default:
		return invalid("overflow", "%q is none of reject, block and drop_oldest", qc.Overflow)
	}
	if err := qc.GlobalRateLimit.ValidateBounds(); err != nil {
		return err
	}
	return qc.RateLimit.ValidateBounds()
}

// GlobalBounds returns the bounds of the queue over all engines: GlobalRateLimit, with
// GlobalConcurrency if that is lower than its own.
func (qc *QueueConfig) GlobalBounds() ojs.RateLimit {
	return bounds(qc.GlobalConcurrency, qc.GlobalRateLimit)
}

// Bounds returns the bounds of the queue in this engine: RateLimit, with Concurrency if
// that is lower than its own.
func (qc *QueueConfig) Bounds() ojs.RateLimit { return bounds(qc.Concurrency, qc.RateLimit) }

func bounds(atOnce int, l ojs.RateLimit) ojs.RateLimit {
	if atOnce > 0 && (l.Concurrency == 0 || atOnce < l.Concurrency) {
		l.Concurrency = atOnce
	}
	return l
}

// WithQueueConfig makes the engine work a queue. Queues are served in the order in which
// they are given, a job of a later one starting only when the earlier ones have none to
// start, or by their weights. An engine that is given no queue works every queue, by
// priority. Jobs may be enqueued to any queue in both cases. An engine with handlers
// warns, once for each queue, of an enqueue to a queue that it does not serve, and at the
// start of Run of handlers whose jobs go to such queues.
func WithQueueConfig(name string, qc QueueConfig) Option {
	return func(c *config) error {
		if c.queues.has(name) {
			return invalid("queue", "%q is given twice", name)
		}
		if err := qc.validate(name); err != nil {
			return err
		}
		c.queues = c.queues.with(name, qc)
		return nil
	}
}

// WithDefaults sets options for every job this engine enqueues. Options of the queue, the
// job type and the call override them.
func WithDefaults(opts ...ojs.Option) Option {
	return func(c *config) error {
		o := ojs.DefaultOptions()
		o.Apply(opts...)
		if err := o.Validate(); err != nil {
			return fmt.Errorf("ojs: defaults of the engine: %w", err)
		}
		c.defaults = append(c.defaults, opts...)
		return nil
	}
}

// WithGracePeriod sets how long a handler may go on after it has been told to stop: after
// Run's context ended, until its own context ends too; and after its timeout, until its
// job is settled without it. 25 s by default; 0 gives none.
func WithGracePeriod(d time.Duration) Option {
	return func(c *config) error {
		if d < 0 {
			return invalid("grace_period", "%v is negative", d)
		}
		c.grace = d
		return nil
	}
}

// WithClaimLease sets how long a claim of the engine holds a job, unless the job has a
// lease of its own (ojs.WithLease other than ojs.DefaultLease): at least 1 s, 90 s by
// default. The engine renews the lease each time that a third of it is over. If the
// process dies, the job runs again when the lease is over, or when the process has been
// silent for Reports.DeadAfter. 0 holds each job for the job's own lease. Workers that
// fetch for themselves (Engine.Worker) hold jobs for those, too.
func WithClaimLease(d time.Duration) Option {
	return func(c *config) error {
		if d != 0 && d < time.Second {
			return invalid("claim_lease", "%v is less than 1s, and not 0", d)
		}
		c.lease = d
		return nil
	}
}

// WithName names the engine in the ids of its workers and the source of its events. The
// default is "ojs".
func WithName(name string) Option {
	return func(c *config) error {
		if err := ojs.ValidateQueue(name); err != nil { // the same alphabet serves
			return invalid("name", "%s", err.(*ojs.InvalidError).Reason)
		}
		c.name = name
		return nil
	}
}

// WithMiddleware puts middlewares around every attempt, the first outermost, outside of
// the handlers' own. The middlewares of a later WithMiddleware are further in. A panic
// further in is a *handler.PanicError to all of them. A handler.Chain puts a list
// together by name.
func WithMiddleware(ms ...handler.Middleware) Option {
	return func(c *config) error {
		if slices.ContainsFunc(ms, func(m handler.Middleware) bool { return m == nil }) {
			return invalid("middleware", "is nil")
		}
		c.middleware = append(c.middleware, ms...)
		return nil
	}
}

// WithLogger sets the logger. Each event of a job is one line: enqueued, started (debug),
// completed, cancelled (info), failed with a retry to come (warn), discarded, stalled
// (error); an idle engine writes nothing. Args, results and meta are never logged. A
// handler that panics or calls runtime.Goexit loses its line. The default writes warnings
// and errors to slog.Default.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error {
		if l == nil {
			return invalid("logger", "is nil")
		}
		c.log = slog.New(guard(l.Handler()))
		return nil
	}
}

// WithClock sets the clock that everything in the engine goes by: schedules, timeouts,
// leases, handler.Sleep. The default is the system's, corrected by the storage's if it
// has one (storage.Clocked).
func WithClock(cl clock.Clock) Option {
	return func(c *config) error {
		if cl == nil {
			return invalid("clock", "is nil")
		}
		c.clock = cl
		return nil
	}
}

// WithRand sets the source of every random number: jitter and ids. The engine serialises
// its use; nothing else may use it. The default is seeded by the operating system.
func WithRand(r *rand.Rand) Option {
	return func(c *config) error {
		if r == nil {
			return invalid("rand", "is nil")
		}
		c.rand = r
		return nil
	}
}
