package engine

import (
	"log/slog"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Settings are the options of an engine. An option that was not given has its default.
// Engine.Retention and QueueStats.Config have the rest.
type Settings struct {
	Name        string        // WithName
	Slots       int           // WithConcurrency
	Prefetch    int           // how many jobs are claimed before a slot is free, at most; 0: none
	GracePeriod time.Duration // WithGracePeriod
	ClaimLease  time.Duration // WithClaimLease; 0: each job's own
	Queues      []string      // that it works, in the order given; empty: all
	JobLogs     *slog.Level   // from which on lines of handlers are kept; nil: none are

	// Defaults are the options of a job that this engine enqueues, unless the queue, the
	// type or the call has others (WithDefaults).
	Defaults ojs.Options

	Codecs  []string      // their encodings, in their order; empty: args are stored in clear
	Reports time.Duration // how often it reports on itself; 0: it does not

	Storage storage.Capabilities
}

// Settings returns what the engine goes by. Prefetch is that of this moment: while a
// queue or type has a limit or a weight, no job is claimed ahead.
func (e *Engine[T]) Settings() Settings {
	c := e.core
	s := Settings{
		Name: c.name, Slots: c.concurrency, GracePeriod: c.grace, ClaimLease: c.lease,
		Queues: slices.Clone(c.queues.Load().names), Codecs: slices.Clone(c.codecs),
		Defaults: ojs.DefaultOptions(), Storage: c.store.Capabilities(),
	}
	if c.gate.plain.Load() {
		s.Prefetch = c.mostAhead()
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
