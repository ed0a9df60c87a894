package engine

import (
	"context"
	"fmt"
	"log/slog"
	rand "math/rand/v2"
	"slices"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine/internal/attempts"
	"github.com/ojsengine/ojs/engine/internal/jobtypes"
	"github.com/ojsengine/ojs/engine/internal/logs"
	"github.com/ojsengine/ojs/engine/internal/upkeep"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/telemetry"
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

// option makes an Option that sets something. If it is not ok, New refuses its field with
// a reason.
func option(ok bool, set func(*config), field, reason string, args ...any) Option {
	return func(c *config) error {
		if !ok {
			return draft.Invalid(field, reason, args...)
		}
		set(c)
		return nil
	}
}

type config struct {
	name         string
	concurrency  int
	prefetch     int
	grace        time.Duration
	lease        time.Duration // of claims of jobs without one of their own; 0: the jobs' own
	defaults     []ojs.Option
	queues       jobtypes.QueueSet
	clock        clock.Clock // nil: the wall clock, as the storage has it
	wall         clock.Clock
	log          *slog.Logger
	rand         *rand.Rand
	retention    Retention
	ruleNames    []string            // of all replay rules
	rules        []upkeep.ReplayRule // the enabled ones, in their order
	middleware   []handler.Middleware
	hooks        []func(context.Context, *ojs.Job[any]) error
	observers    []telemetry.Observer
	tracers      []telemetry.Tracer      // those of the observers that are
	ownRetryHook policy.Hook             // nil: none
	codec        *codec.Chain            // nil: none
	codecs       []string                // the encodings of codec
	reports      *Reports                // nil: none
	noReports    bool                    // not by default either
	pick         func(random uint64) int // the partition of an id; nil: ids have none
	jobLogs      *slog.Level             // from which on lines of handlers are kept; nil: none are
}

func newConfig(opts []Option) (config, error) {
	c := config{
		wall:        clock.New(),
		name:        "ojs",
		concurrency: DefaultConcurrency,
		grace:       DefaultGracePeriod,
		lease:       DefaultClaimLease,
		log:         slog.New(logs.Guard(slog.Default().Handler(), slog.LevelWarn)),
		retention:   defaultRetention,
	}
	for _, opt := range opts {
		if opt == nil {
			return c, draft.Invalid("option", "is nil")
		}
		if err := opt(&c); err != nil {
			return c, err
		}
	}
	return c, c.queues.CheckWeights()
}

// WithConcurrency sets how many attempts run at once in this engine: 1 to 1,000,000, 10
// by default. A slot that has nothing to do costs nothing. With one slot jobs begin
// exactly in the order in which the storage hands them out.
func WithConcurrency(n int) Option {
	return option(n >= 1 && n <= maxConcurrency, func(c *config) { c.concurrency = n },
		"concurrency", "%d is not from 1 to %d", n, maxConcurrency)
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
	return option(n >= 1 && n <= attempts.MaxPrefetch, func(c *config) { c.prefetch = n },
		"prefetch", "%d is not from 1 to %d", n, attempts.MaxPrefetch)
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
		return draft.Invalid("queue", "defaults of queue %q name queue %q", name, o.Queue)
	}
	return nil
}

func (qc *QueueConfig) validateBounds() error {
	switch {
	case qc.Concurrency < 0:
		return draft.Invalid("concurrency", "%d is negative", qc.Concurrency)
	case qc.GlobalConcurrency < 0:
		return draft.Invalid("global_concurrency", "%d is negative", qc.GlobalConcurrency)
	case qc.Weight < 0:
		return draft.Invalid("weight", "%d is negative", qc.Weight)
	case qc.MaxDepth < 0:
		return draft.Invalid("max_depth", "%d is negative", qc.MaxDepth)
	case qc.RateLimit.Key != "" || qc.GlobalRateLimit.Key != "":
		return draft.Invalid("rate_limit.key", "the limit of a queue has none")
	case !slices.Contains([]Overflow{"", OverflowReject, OverflowBlock, OverflowDropOldest}, qc.Overflow):
		return draft.Invalid("overflow", "%q is none of reject, block and drop_oldest", qc.Overflow)
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
		if c.queues.Has(name) {
			return draft.Invalid("queue", "%q is given twice", name)
		}
		if err := qc.validate(name); err != nil {
			return err
		}
		c.queues = c.queues.With(name, qc.queue())
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
	return option(d >= 0, func(c *config) { c.grace = d }, "grace_period", "%v is negative", d)
}

// WithClaimLease sets how long a claim of the engine holds a job, unless the job has a
// lease of its own (ojs.WithLease other than ojs.DefaultLease): at least 1 s, 90 s by
// default. The engine renews the lease each time that a third of it is over. If the
// process dies, the job runs again when the lease is over, or when the process has been
// silent for Reports.DeadAfter. 0 holds each job for the job's own lease. Workers that
// fetch for themselves (Engine.Worker) hold jobs for those, too.
func WithClaimLease(d time.Duration) Option {
	return option(d == 0 || d >= time.Second, func(c *config) { c.lease = d },
		"claim_lease", "%v is less than 1s, and not 0", d)
}

// WithName names the engine in the ids of its workers and the source of its events. The
// default is "ojs".
func WithName(name string) Option {
	return func(c *config) error {
		if err := ojs.ValidateQueue(name); err != nil { // the same alphabet serves
			return draft.Invalid("name", "%s", err.(*ojs.InvalidError).Reason)
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
	hasNil := slices.ContainsFunc(ms, func(m handler.Middleware) bool { return m == nil })
	return option(!hasNil, func(c *config) { c.middleware = append(c.middleware, ms...) },
		"middleware", "is nil")
}

// WithLogger sets the logger. Each event of a job is one line: enqueued, started (debug),
// completed, cancelled (info), failed with a retry to come (warn), discarded, stalled
// (error); an idle engine writes nothing. Args, results and meta are never logged. A
// handler that panics or calls runtime.Goexit loses its line. The default writes warnings
// and errors to slog.Default.
func WithLogger(l *slog.Logger) Option {
	return option(l != nil, func(c *config) { c.log = slog.New(logs.Guard(l.Handler(), logs.All)) },
		"logger", "is nil")
}

// WithClock sets the clock that everything in the engine goes by: schedules, timeouts,
// leases, handler.Sleep. The default is the system's, corrected by the storage's if it
// has one (storage.Clocked).
func WithClock(cl clock.Clock) Option {
	return option(cl != nil, func(c *config) { c.clock = cl }, "clock", "is nil")
}

// WithRand sets the source of every random number: jitter and ids. The engine serialises
// its use; nothing else may use it. The default is seeded by the operating system.
func WithRand(r *rand.Rand) Option {
	return option(r != nil, func(c *config) { c.rand = r }, "rand", "is nil")
}

// WithJobLogs keeps what handlers log by handler.Logger, from a level on, with the job,
// for Jobs.Logs. The level of WithLogger does not matter. An attempt keeps its last 64
// KiB of lines, as slog.JSONHandler writes them; lines before are cut. The log is stored
// in the same step as the outcome of the attempt. A job keeps the logs of its last 10
// attempts that have logged, until it is deleted. Attempts that are lost (a crash, a
// lease that ran out) leave no log.
//
// An attempt that logs nothing costs nothing. An attempt that logs costs the writing of
// its lines, and its outcome is not stored in one step with the next claim. WithCodec
// encodes the lines.
func WithJobLogs(level slog.Level) Option {
	return option(true, func(c *config) { c.jobLogs = &level }, "", "")
}

// WithCodec encodes args, results, checkpoints and the details of errors before they
// reach the storage, by the codecs in order, such as codec.Gzip and codec.AES256GCM.
// Handlers get them decoded. So do Wait, Ticket.Result and Jobs.Decode; every other call,
// event, log line and span has the encoded form. docs/encryption.md has the steps.
//
// Fingerprints of unique jobs are made before the encoding. The size limits hold for what
// is encoded. An attempt whose args do not decode fails before its handler is called: for
// good, with a dead letter, or until the key is there (codec.ErrorTypeKeyNotFound).
//
// Without WithCodec jobs are stored in clear, and encoded jobs of other programs are kept
// and handed to workers as they are. The engine's own handlers cannot run them.
func WithCodec(codecs ...codec.Codec) Option {
	return func(c *config) error {
		if c.codec != nil {
			return draft.Invalid("codec", "is given twice: name all codecs in one WithCodec, in their order")
		}
		if len(codecs) == 0 {
			return draft.Invalid("codec", "has no codecs")
		}
		chain, err := codec.NewChain(codecs...)
		if err != nil {
			return draft.Invalid("codec", "%v", err)
		}
		c.codec = chain
		for _, one := range codecs {
			c.codecs = append(c.codecs, one.Encoding())
		}
		return nil
	}
}

// WithEnqueueHook adds hooks after earlier ones.
func WithEnqueueHook(hooks ...EnqueueHook) Option {
	hasNil := slices.ContainsFunc(hooks, func(h EnqueueHook) bool { return h == nil })
	return option(!hasNil, func(c *config) {
		for _, h := range hooks {
			c.hooks = append(c.hooks, h)
		}
	}, "enqueue_hook", "is nil")
}

// WithRetryHook sets the hook that has a say in every retry of this engine's jobs; the
// last one given holds. A hook of the job's handler is asked before it: either may veto,
// and the delay is the first that is not zero.
func WithRetryHook(h policy.Hook) Option {
	return option(h != nil, func(c *config) { c.ownRetryHook = h }, "retry_hook", "is nil")
}

// WithObserver adds observers after earlier ones. An observer that is also a Tracer
// follows the engine's operations too. An EventSelector sees what it selects, and a
// MeterReader gets the engine's Meter. A program that wraps such an observer embeds it,
// so that the engine finds these methods. The wrapper sees what the observer selects. To
// see more, it needs an EventTypes of its own.
func WithObserver(os ...telemetry.Observer) Option {
	return func(c *config) error {
		for _, o := range os {
			if o == nil {
				return draft.Invalid("observer", "is nil")
			}
			if t, ok := o.(telemetry.Tracer); ok {
				c.tracers = append(c.tracers, t)
			}
		}
		c.observers = append(c.observers, os...)
		return nil
	}
}

// queue is the configuration as the parts of an engine need it.
func (qc QueueConfig) queue() jobtypes.Queue {
	qc.Defaults = slices.Clone(qc.Defaults)
	return jobtypes.Queue{Bounds: qc.Bounds(), Weight: qc.Weight, MaxDepth: qc.MaxDepth,
		DropOldest: qc.Overflow == OverflowDropOldest, Blocks: qc.Overflow == OverflowBlock,
		Defaults: qc.Defaults, Given: qc}
}

// configOf returns the configuration of a queue, the zero one if the set does not have
// it.
func configOf(s *jobtypes.QueueSet, name string) (qc QueueConfig) {
	qc, _ = s.Config[name].Given.(QueueConfig)
	return qc
}

// EnqueueHook sees each job that this engine enqueues after its options are known and
// before it is validated and stored. It may change the job's Args, Queue, Priority and
// Meta, which is never nil; other fields are for reading. Args are as the caller gave
// them. A hook that returns ojs.ErrDropped leaves the job out; any other error refuses
// it, and with it the whole batch.
//
// Hooks run in the order in which they were given, for each job of a batch by itself,
// while the enqueue waits. A hook that panics or calls runtime.Goexit refuses the job.
// Hooks may run again for the same draft if the enqueue has to wait for room.
type EnqueueHook func(ctx context.Context, job *ojs.Job[any]) error

// Retention is how long finished jobs are kept, for Ticket.Wait and for lookups. A zero
// field stays as it was, at first the default; a negative one is no limit. Engines that
// share a storage each prune it by their own rule.
//
// A job with ojs.WithResultTTL is kept at least for that time after its end, even if its
// age or number exceeds the limits below. A job whose unique policy counts it after its
// end (ojs.WithThrottle, ojs.WithIdempotencyKey) is kept at least until the policy's
// period is over. A step of a workflow is kept at least as long as the workflow, which is
// kept for its ojs.WithResultTTL after its end. Such jobs do not count for the maxima
// until then, and go with the first pruning after that, steps within another hour.
//
// A job that finished less than MinAge ago is not deleted by number, so that a program
// which enqueues first and waits for its tickets afterwards finds them. That holds for
// ten times the maximum, which bounds memory however fast jobs finish. When younger jobs
// are deleted all the same, the engine logs a warning once in each Run. A lookup of a
// deleted job is ojs.ErrPruned. Finished jobs keep their args and results: with the
// defaults, 100,000 of them at most. A program whose args or results are large lowers
// MaxFinished, or sets MinAge to -1.
//
// Pruning happens beside the work: at the start of Run, when jobs have reached their age
// but at most every five minutes, and when as many have finished as an eighth of the
// lower maximum, or 64 if that is more. In between there may be that many too many, and
// under full load those of the milliseconds for which pruning waits for a processor. No
// event is sent for a single pruned job.
type Retention struct {
	Completed time.Duration // 7 days
	Cancelled time.Duration // 7 days
	Discarded time.Duration // 30 days; dead letters excepted

	DeadLetters time.Duration // 180 days

	MaxFinished    int // the latest 10,000 completed, cancelled and discarded jobs; dead letters excepted
	MaxDeadLetters int // 10,000, the latest

	MinAge time.Duration // 1 minute: number is no reason to delete a younger job, up to ten times the maximum
}

const day = 24 * time.Hour

var defaultRetention = Retention{
	Completed: 7 * day, Cancelled: 7 * day, Discarded: 30 * day, DeadLetters: 180 * day,
	MaxFinished: 10_000, MaxDeadLetters: 10_000, MinAge: time.Minute,
}

// WithRetention sets how long finished jobs are kept.
func WithRetention(r Retention) Option {
	return option(true, func(c *config) {
		bound(&c.retention.Completed, r.Completed)
		bound(&c.retention.Cancelled, r.Cancelled)
		bound(&c.retention.Discarded, r.Discarded)
		bound(&c.retention.DeadLetters, r.DeadLetters)
		bound(&c.retention.MinAge, r.MinAge)
		bound(&c.retention.MaxFinished, r.MaxFinished)
		bound(&c.retention.MaxDeadLetters, r.MaxDeadLetters)
	}, "", "")
}

// bound sets a bound that is given. A negative one is none.
func bound[T int | time.Duration](to *T, given T) {
	if given != 0 {
		*to = max(given, 0)
	}
}

// ReplayRule replays dead letters without a person (OJS dead letter, section 7).
type ReplayRule struct {
	// Name has at most 255 lower-case letters, digits, "-" and "."; the first is a letter
	// or a digit. The replayed job has it in its meta, as "ojs.replay_rule".
	Name string
	// Filter selects the dead letters. The zero Filter selects all. It names no states.
	Filter inspect.Filter
	// Delay is the time from the death of a job to its replay. It is not negative.
	Delay time.Duration
	// MaxReplays is how often a job is replayed at most, and at least 1. Replays by hand
	// and by other rules count.
	MaxReplays int
	// Disabled says that the rule replays nothing. The rules behind it apply.
	Disabled bool
}

// WithReplayRules makes the engine replay dead letters while it runs. For each job the
// first enabled rule that selects it decides. A replay is DeadLetters.Retry without
// options, and publishes event.DeadLetterReplayed. A job that died in another engine
// on the storage may be replayed up to five minutes after it is due, any other up to a
// second. A step of a workflow is replayed with its workflow only (Workflows.Retry).
func WithReplayRules(rules ...ReplayRule) Option {
	return func(c *config) error {
		for _, rule := range rules {
			if err := c.addReplayRule(rule); err != nil {
				return fmt.Errorf("ojs: replay rule %q: %w", foreign.Clip(rule.Name, 64), err)
			}
		}
		return nil
	}
}

func (c *config) addReplayRule(rule ReplayRule) error {
	switch {
	case !cron.ValidName(rule.Name):
		return draft.Invalid("name",
			"%q: use lower-case letters, digits, - and ., at most 255", foreign.Clip(rule.Name, 64))
	case slices.Contains(c.ruleNames, rule.Name):
		return draft.Invalid("name", "is given twice")
	case len(rule.Filter.States) > 0:
		return draft.Invalid("filter.states", "are given: a dead letter is discarded")
	case rule.Delay < 0:
		return draft.Invalid("delay", "%v is negative", rule.Delay)
	case rule.MaxReplays < 1:
		return draft.Invalid("max_replays", "%d is less than 1", rule.MaxReplays)
	}
	f := &rule.Filter
	f.DeadLettered = true
	f.Queues, f.Types, f.ErrorTypes = slices.Clone(f.Queues), slices.Clone(f.Types),
		slices.Clone(f.ErrorTypes)
	q, err := f.Query()
	if err != nil {
		return err
	}
	c.ruleNames = append(c.ruleNames, rule.Name)
	if !rule.Disabled {
		c.rules = append(c.rules, upkeep.ReplayRule{Name: rule.Name, Query: q, Delay: rule.Delay,
			MaxReplays: rule.MaxReplays})
	}
	return nil
}

// Reports say how an engine reports on itself to the others on its storage.
type Reports struct {
	// Every is how often: 100 ms to 1 min; 0: 5 s. A node that has not reported for three
	// times as long is taken for gone.
	Every time.Duration

	// DeadAfter is how long the process may be silent: then the other engines that report
	// count it as dead, and its attempts as failed, as if their leases had ended. Time in
	// which the storage does not answer is no silence. At least three times Every; 0: 30
	// s, or three times Every if that is more.
	DeadAfter time.Duration

	// Version is that of the program, for Node.Version; "": that of its main module, or
	// of its version control, as the Go toolchain has stored it.
	Version string
}

// WithReports has the engine report on itself while Run works: as a node (Workers.List),
// and what it has counted (Engine.History). It takes orders from other processes at the
// same times (Workers.Quiet), and looks for processes that are dead (Reports.DeadAfter).
// Each report is some calls of the storage, of some kilobytes.
//
// Engines on a storage that several processes may share report by default
// (storage.Capabilities.Shared: SQLite and PostgreSQL), except under a virtual clock
// (WithClock). WithoutReports ends that.
func WithReports(r Reports) Option {
	return func(c *config) error {
		if r.Every == 0 {
			r.Every = 5 * time.Second
		}
		if r.Every < 100*time.Millisecond || r.Every > time.Minute {
			return draft.Invalid("reports.every", "%v is not from 100ms to 1m", r.Every)
		}
		if r.DeadAfter == 0 {
			r.DeadAfter = max(30*time.Second, 3*r.Every)
		}
		if r.DeadAfter < 3*r.Every {
			return draft.Invalid("reports.dead_after", "%v is less than three times %v", r.DeadAfter, r.Every)
		}
		if r.Version == "" {
			r.Version = builtVersion("")
		}
		c.reports, c.noReports = &r, false
		return nil
	}
}

// WithoutReports has the engine not report on itself. If its process dies, its jobs wait
// until their leases end (WithClaimLease). It does not look for other processes that are
// dead either.
func WithoutReports() Option {
	return option(true, func(c *config) { c.reports, c.noReports = nil, true }, "", "")
}
