package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/telemetry"
)

// Stats is what an engine and its storage have at a moment.
type Stats struct {
	Queues []operate.QueueStats // as Queues.List returns them
	Total  map[ojs.State]int

	Running bool          // Run works
	Slots   int           // how many attempts may run at once
	Busy    int           // how many do
	Stuck   int           // how many of them were told to stop long ago
	Workers []fetch.Stats // those that fetch jobs from this engine, sorted by id

	Quarantined int // records of the storage that do not decode (Engine.Quarantine)

	// Notifications is why notices of other processes do not arrive. nil: they arrive, or
	// the storage does not say (storage.NotifyChecker).
	Notifications error
}

// Stats counts jobs per queue and state, and what runs here. Its cost is that of the rows
// it returns, not of the jobs. Beside an error it returns what needs no storage.
func (e *Engine[T]) Stats(ctx context.Context) (s Stats, err error) {
	c := e.parts
	s = Stats{Total: make(map[ojs.State]int), Slots: c.attempts.Slots(), Workers: c.workers.List()}
	if store, ok := storage.As[storage.NotifyChecker](c.Store); ok {
		s.Notifications = store.CheckNotify()
	}
	if r := c.attempts.Run.Load(); r != nil {
		s.Running, s.Busy = true, r.Pipe.Busy()
		_, s.Stuck, _ = r.Trouble()
	}
	if s.Queues, err = e.Queues().List(ctx); err != nil {
		return s, err
	}
	for _, q := range s.Queues {
		for state, n := range q.Counts {
			s.Total[state] += n
		}
	}
	s.Quarantined, err = c.quarantined(ctx)
	return s, err
}

// Meter returns what this engine has counted since it was made, by queue and type in
// alphabetical order. It costs a copy, and counting costs no event: it is always on. It
// is safe for concurrent use.
func (e *Engine[T]) Meter() []telemetry.Meter { return e.parts.Meter.Snapshot() }

// History returns what the engines on the storage that report (WithReports) have counted,
// as telemetry.History does.
func (e *Engine[T]) History(
	ctx context.Context, from, to time.Time, width time.Duration,
) ([]telemetry.Bucket, error) {
	return telemetry.History(ctx, e.parts.Store, e.parts.Now(), from, to, width)
}

// Status is an engine's health in a word (OJS observability).
type Status string

// The three statuses.
const (
	Healthy   Status = "healthy"
	Degraded  Status = "degraded"  // it works, but not as it should: see Health.Problems
	Unhealthy Status = "unhealthy" // it does not run, or its storage does not answer
)

// Health says whether an engine does its work. It encodes to JSON as a health endpoint
// would show it. A process whose engine only enqueues does not call Run: its Status is
// Unhealthy, and Storage says whether it can enqueue.
type Health struct {
	Status   Status        `json:"status"`
	Storage  Status        `json:"storage"`            // Healthy if it answers, else Unhealthy
	Problems []Problem     `json:"problems,omitempty"` // each as its Text
	Backend  string        `json:"backend"`            // the storage's name
	Uptime   time.Duration `json:"-"`                  // since Run was called
	Seconds  float64       `json:"uptime_seconds"`     // the same
	Queues   int           `json:"queues"`
	Busy     int           `json:"busy"`    // attempts that run here, as Stats.Busy
	Workers  int           `json:"workers"` // how many Stats.Workers has

	// Active counts the active jobs of the storage: those that run here, in other engines
	// and in workers, and those of processes that were killed, which wait until the
	// others count them as dead or their leases end. Workers.List shows until when.
	Active int `json:"active"`

	// records of the storage that do not decode (Engine.Quarantine)
	Quarantined int `json:"quarantined,omitempty"`
}

// Problem is one thing that keeps an engine from being healthy. It encodes to JSON as its
// Text.
type Problem struct {
	Code ProblemCode
	Text string // for a person
	N    int    // how many records, handlers, entries or jobs the problem has, if it counts any
	Err  error  // of ProblemStorage, ProblemClaims, ProblemChecks and ProblemNotifications
}

// String returns the text.
func (p Problem) String() string { return p.Text }

// MarshalText returns the text.
func (p Problem) MarshalText() ([]byte, error) { return []byte(p.Text), nil }

// UnmarshalText reads a text, which tells no code.
func (p *Problem) UnmarshalText(text []byte) error {
	*p = Problem{Text: string(text)}
	return nil
}

// ProblemCode names a problem.
type ProblemCode string

// The problems.
const (
	ProblemStorage    ProblemCode = "storage"     // the storage does not answer
	ProblemQuarantine ProblemCode = "quarantine"  // stored records do not decode (Engine.Quarantine)
	ProblemNotRunning ProblemCode = "not_running" // Run has not been called, or has returned
	ProblemClaims     ProblemCode = "claims"      // claims of jobs fail
	ProblemChecks     ProblemCode = "checks"      // checks for due jobs fail
	ProblemStuck      ProblemCode = "stuck"       // handlers go on although their contexts have ended
	ProblemStopping   ProblemCode = "stopping"    // Run is about to return
	ProblemCron       ProblemCode = "cron"        // recurring entries cannot run here
	ProblemSilent     ProblemCode = "silent"      // a process that holds jobs does not report

	// ProblemNotifications: notices of other processes do not arrive. Their jobs start
	// when the engine next looks at the storage.
	ProblemNotifications ProblemCode = "notifications"
)

// Health asks the storage and looks at the engine. Its cost is that of Stats.
func (e *Engine[T]) Health(ctx context.Context) Health {
	c := e.parts
	h := Health{Status: Healthy, Storage: Healthy, Backend: c.Store.Capabilities().Name}
	is := func(s Status, problem Problem) {
		if h.Problems = append(h.Problems, problem); h.Status != Unhealthy {
			h.Status = s
		}
	}
	stats, err := e.Stats(ctx)
	if err == nil {
		err = c.reporting.Silent(ctx, func(id string, silence time.Duration, jobs int) {
			text := fmt.Sprintf("the process that held %d active jobs has been silent for %s: %s",
				jobs, stored.Seconds(silence), id)
			is(Degraded, Problem{Code: ProblemSilent, Text: text, N: jobs})
		})
	}
	if err != nil {
		text := "the storage does not answer: " + foreign.ErrorText(err)
		h.Storage = Unhealthy
		is(Unhealthy, Problem{Code: ProblemStorage, Text: text, Err: err})
	}
	for _, q := range stats.Queues {
		if len(q.Counts) > 0 {
			h.Queues++
		}
	}
	h.Quarantined, h.Busy, h.Workers = stats.Quarantined, stats.Busy, len(stats.Workers)
	h.Active = stats.Total[ojs.StateActive]
	k := c.session.Load()
	if k != nil {
		why, err := k.crons.Unreadable(ctx)
		if err == nil && len(why) > 0 { // Health has noticed an error
			is(Degraded, Problem{Code: ProblemCron, N: len(why), Text: "recurring entries cannot run here: " +
				strings.Join(why[:min(len(why), maxNamed)], "; ")})
		}
	}
	if h.Quarantined > 0 {
		text := fmt.Sprintf("stored records that do not decode are in quarantine: %d", h.Quarantined)
		is(Degraded, Problem{Code: ProblemQuarantine, Text: text, N: h.Quarantined})
	}
	if err := stats.Notifications; err != nil {
		is(Degraded, Problem{Code: ProblemNotifications,
			Text: "notices of other processes do not arrive: " + err.Error(), Err: err})
	}
	if k == nil {
		is(Unhealthy, Problem{Code: ProblemNotRunning, Text: "the engine does not run"})
		return h
	}
	r := k.r
	failures, _, failure := r.Trouble()
	h.Uptime = c.Now().Sub(r.Started)
	h.Seconds = h.Uptime.Seconds()
	if n, err := k.Due.Failing(); n > 0 && failures == 0 {
		text := "checks for due jobs fail: " + foreign.ErrorText(err)
		is(Degraded, Problem{Code: ProblemChecks, Text: text, Err: err})
	}
	if failures > 0 {
		text := "claims of jobs fail: " + foreign.ErrorText(failure)
		is(Degraded, Problem{Code: ProblemClaims, Text: text, Err: failure})
	}
	if stats.Stuck > 0 {
		is(Degraded, Problem{Code: ProblemStuck, Text: "handlers go on although their contexts have ended",
			N: stats.Stuck})
	}
	if r.Stopping.Load() {
		is(Degraded, Problem{Code: ProblemStopping, Text: "the engine is stopping"})
	}
	return h
}

// quarantined returns how many records are in the quarantine.
func (c *parts) quarantined(ctx context.Context) (int, error) {
	if store, ok := storage.As[storage.Quarantiner](c.Store); ok {
		return store.CountQuarantined(ctx)
	}
	return 0, nil
}
