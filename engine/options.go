package engine

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
)

// Defaults of an engine.
const (
	DefaultConcurrency = 10
	DefaultGracePeriod = 25 * time.Second
)

// Option sets something of an engine. New reports what does not make sense.
type Option func(*config) error

type config struct {
	name        string
	concurrency int
	grace       time.Duration
	defaults    []ojs.Option
	queues      []string // in the order given
	queueConfig map[string]QueueConfig
	clock       clock.Clock
	log         *slog.Logger
	rand        *rand.Rand
}

func newConfig(opts []Option) (config, error) {
	c := config{
		name:        "ojs",
		concurrency: DefaultConcurrency,
		grace:       DefaultGracePeriod,
		queueConfig: make(map[string]QueueConfig),
		clock:       clock.New(),
		log:         slog.Default(),
	}
	for _, opt := range opts {
		if opt == nil {
			return c, invalid("option", "is nil")
		}
		if err := opt(&c); err != nil {
			return c, err
		}
	}
	return c, nil
}

func invalid(field, reason string) error {
	return &ojs.InvalidError{Code: ojs.CodeOptionInvalid, Field: field, Reason: reason}
}

// WithConcurrency sets how many attempts run at once in this engine: at least 1, 10 by default. A slot that has nothing to
// do costs nothing.
func WithConcurrency(n int) Option {
	return func(c *config) error {
		if n < 1 {
			return invalid("concurrency", fmt.Sprintf("%d is less than 1", n))
		}
		c.concurrency = n
		return nil
	}
}

// QueueConfig is how an engine treats one of its queues.
type QueueConfig struct {
	// Defaults hold for the jobs enqueued to this queue by this engine. They go before the engine's and after the job
	// type's, and cannot name another queue.
	Defaults []ojs.Option
}

// WithQueue makes the engine work a queue. Queues are served in the order in which they are given: a job of a later one
// starts only when the earlier ones have none. An engine that is given no queue works every queue, by priority. Jobs may be
// enqueued to any queue in both cases.
func WithQueue(name string, qc QueueConfig) Option {
	return func(c *config) error {
		if err := ojs.ValidateQueue(name); err != nil {
			return err
		}
		if slices.Contains(c.queues, name) {
			return invalid("queue", fmt.Sprintf("%q is given twice", name))
		}
		o := ojs.DefaultOptions()
		o.Queue = name
		o.Apply(qc.Defaults...)
		if err := o.Validate(); err != nil {
			return fmt.Errorf("ojs: defaults of queue %s: %w", name, err)
		}
		if o.Queue != name {
			return invalid("queue", fmt.Sprintf("defaults of queue %q name queue %q", name, o.Queue))
		}
		c.queues = append(c.queues, name)
		qc.Defaults = slices.Clone(qc.Defaults)
		c.queueConfig[name] = qc
		return nil
	}
}

// WithDefaults sets options for every job this engine enqueues. Those of the queue, the job type and the call go before
// them.
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

// WithGracePeriod sets how long a handler may go on after it has been told to stop: after Run's context ended, until its
// own context ends too; and after its timeout, until its job is settled without it. 25 s by default; 0 gives none.
func WithGracePeriod(d time.Duration) Option {
	return func(c *config) error {
		if d < 0 {
			return invalid("grace_period", fmt.Sprintf("%v is negative", d))
		}
		c.grace = d
		return nil
	}
}

// WithName names the engine in the ids of its workers and the source of its events. The default is "ojs".
func WithName(name string) Option {
	return func(c *config) error {
		if err := ojs.ValidateQueue(name); err != nil { // the same alphabet serves
			return invalid("name", fmt.Sprintf("%q does not match [a-z0-9][a-z0-9-.]* in at most 128 characters", name))
		}
		c.name = name
		return nil
	}
}

// WithLogger sets the logger, slog.Default() by default. Args and results are never logged.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error {
		if l == nil {
			return invalid("logger", "is nil")
		}
		c.log = l
		return nil
	}
}

// WithClock sets the clock that everything in the engine goes by: schedules, timeouts, leases, handler.Sleep. The default is
// the system's.
func WithClock(cl clock.Clock) Option {
	return func(c *config) error {
		if cl == nil {
			return invalid("clock", "is nil")
		}
		c.clock = cl
		return nil
	}
}

// WithRand sets the source of every random number: jitter and ids. The engine serialises its use; nothing else may use
// it. The default is seeded by the operating system.
func WithRand(r *rand.Rand) Option {
	return func(c *config) error {
		if r == nil {
			return invalid("rand", "is nil")
		}
		c.rand = r
		return nil
	}
}
