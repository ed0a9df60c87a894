package engine

import (
	"cmp"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Description is what an engine is and goes by. An option that was not given has its
// default.
type Description struct {
	ID          string                 // of its worker, as in event.Event.WorkerID
	Name        string                 // WithName
	Slots       int                    // WithConcurrency
	Prefetch    int                    // how many jobs are claimed before a slot is free, at most; 0: none
	GracePeriod time.Duration          // WithGracePeriod
	ClaimLease  time.Duration          // WithClaimLease; 0: each job's own
	Queues      []string               // that it works, in the order given; empty: all
	Configs     map[string]QueueConfig // of Queues
	Retention   Retention              // WithRetention; a field that is 0 is no limit
	Handlers    []handler.Handler      // as they were registered, sorted by job type
	JobLogs     *slog.Level            // from which on lines of handlers are kept; nil: none are

	// Defaults are the options of a job that this engine enqueues, unless the queue, the
	// type or the call has others (WithDefaults).
	Defaults ojs.Options

	Codecs  []string      // their encodings, in their order; empty: args are stored in clear
	Reports time.Duration // how often it reports on itself; 0: it does not

	Manifest Manifest
	Storage  storage.Capabilities

	// ClockAhead is how far the clock that all users of the storage share is ahead of
	// this process's clock. The engine follows it, unless WithClock gives it a clock. A
	// difference below the time that the server takes to answer counts as none. HasClock
	// is false if the storage has no clock of its own, as memory and SQLite have none:
	// each process goes by its own.
	ClockAhead time.Duration
	HasClock   bool
}

// Describe returns what the engine is and goes by. Prefetch is that of this moment: while
// a queue or type has a limit or a weight, no job is claimed ahead. The call asks no
// server.
func (e *Engine[T]) Describe() Description {
	c := e.parts
	queues := c.types.Queues.Load()
	s := Description{
		ID: c.Worker, Name: c.Name, Slots: c.attempts.Slots(), GracePeriod: c.grace, ClaimLease: c.Lease,
		Queues: slices.Clone(queues.Names), Configs: make(map[string]QueueConfig),
		Codecs:   slices.Clone(c.codecs),
		Defaults: ojs.DefaultOptions(), Storage: c.Store.Capabilities(),
		Retention: c.retention, Manifest: manifest(c.Store.Capabilities()),
	}
	for _, name := range queues.Names {
		cfg := configOf(queues, name)
		cfg.Defaults = slices.Clone(cfg.Defaults)
		s.Configs[name] = cfg
	}
	if c.admission.Unbounded() {
		s.Prefetch = c.attempts.MostAhead()
	}
	for _, t := range c.types.Registry.Handlers.Load().All() {
		s.Handlers = append(s.Handlers, t.Given)
	}
	if shared, ok := storage.As[storage.Clocked](c.Store); ok {
		s.ClockAhead, s.HasClock = shared.ClockOffset(), true
	}
	s.Defaults.Apply(c.defaults...)
	if c.jobLogs != nil {
		s.JobLogs = new(*c.jobLogs)
	}
	if c.reports != nil {
		s.Reports = c.reports.Every
	}
	return s
}

// Manifest is what an engine says of itself (OJS conformance manifest). It encodes to the
// standard's JSON.
type Manifest struct {
	OJSVersion     string `json:"ojs_version"`
	Implementation struct {
		Name     string `json:"name"`
		Version  string `json:"version"`
		Language string `json:"language"`
	} `json:"implementation"`
	ConformanceLevel int    `json:"conformance_level"`
	Backend          string `json:"backend"`
	Capabilities     struct {
		UniqueJobs struct { // how far unique jobs can be relied on (OJS unique jobs, section 8.3)
			Strength  storage.Strength `json:"strength"`
			Mechanism string           `json:"mechanism,omitempty"`
			Unicode   string           `json:"unicode_version"` // by which strings are normalised
		} `json:"unique_jobs"`
		Durable bool `json:"durable"`
	} `json:"capabilities"`
	EventDelivery string `json:"event_delivery"`
}

// level is the highest that is here in full: the next one needs workflows. Unique jobs,
// of level 4, are there.
const level = 2

const modulePath = "github.com/ojsengine/ojs"

// manifest is what an engine on a storage conforms to.
func manifest(s storage.Capabilities) Manifest {
	m := Manifest{OJSVersion: "1.0", ConformanceLevel: level, Backend: s.Name, EventDelivery: "best-effort"}
	m.Implementation.Name, m.Implementation.Version, m.Implementation.Language = "ojs",
		cmp.Or(builtVersion(modulePath), "devel"), runtime.Version()
	unique := &m.Capabilities.UniqueJobs
	unique.Strength, unique.Mechanism, unique.Unicode = s.Unique, s.Mechanism, policy.UnicodeVersion
	m.Capabilities.Durable = s.Durable
	return m
}

// builtVersion is the version of a module in the program, which the toolchain has stored
// there. The module "" is the main one. "": it was built from a work tree.
func builtVersion(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == cmp.Or(module, info.Main.Path) && m.Version != "(devel)" {
			return m.Version
		}
	}
	return ""
}
