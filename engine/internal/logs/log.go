// Package logs writes the log lines of an engine about jobs.
package logs

import (
	"context"
	"log/slog"
	"math"
	"reflect"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// Lines writes lines. The Log is the engine's.
type Lines struct{ Log *slog.Logger }

// The engine's log lines have the fields of OJS logging: component and category, a group
// ojs that names the job, a group trace if its meta has ids for one, a group attributes
// for the rest.

// guarded is a program's handler. If the handler panics or calls runtime.Goexit, the line
// is lost, and no goroutine of the engine ends.
type guarded struct {
	inner slog.Handler
	least slog.Level // lines below it are dropped
	known bool       // a handler of package slog, which returns: asking for its level needs no goroutine
}

// All is below every level.
const All slog.Level = math.MinInt

// Guard returns a handler of the lines from a level on that a program's handler takes.
func Guard(h slog.Handler, least slog.Level) slog.Handler {
	t := reflect.TypeOf(h)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return guarded{h, least, t.PkgPath() == "log/slog"}
}

func (g guarded) Enabled(ctx context.Context, l slog.Level) bool {
	if l < g.least {
		return false
	}
	if g.known {
		return g.inner.Enabled(ctx, l)
	}
	return g.asks(ctx, l)
}

// asks is Enabled of a handler that may not return. It is apart from Enabled because its
// closure needs memory from the heap, which every job would pay for.
func (g guarded) asks(ctx context.Context, l slog.Level) (enabled bool) {
	foreign.Call(func() { enabled = g.inner.Enabled(ctx, l) })
	return enabled
}

func (g guarded) Handle(ctx context.Context, r slog.Record) (err error) {
	if stop := foreign.Call(func() { err = g.inner.Handle(ctx, r) }); stop != nil {
		return stop
	}
	return err
}

func (g guarded) WithAttrs(as []slog.Attr) slog.Handler {
	return g.with(func() slog.Handler { return g.inner.WithAttrs(as) })
}

func (g guarded) WithGroup(name string) slog.Handler {
	return g.with(func() slog.Handler { return g.inner.WithGroup(name) })
}

func (g guarded) with(f func() slog.Handler) slog.Handler {
	var h slog.Handler
	if foreign.Call(func() { h = f() }); h == nil {
		return g
	}
	return Guard(h, g.least)
}

// jobAttrs names a job.
func (c *Lines) jobAttrs(j *ojs.JobHeader, state ojs.State, worker string) []slog.Attr {
	fields := []any{
		slog.String("job_id", j.ID), slog.String("job_type", j.Type), slog.String("queue", j.Queue),
		slog.Int("attempt", j.Attempt),
	}
	if state != "" {
		fields = append(fields, slog.String("state", string(state)))
	}
	if worker != "" {
		fields = append(fields, slog.String("worker_id", worker))
	}
	attrs := []slog.Attr{slog.Group("ojs", fields...)}
	var trace []any
	for _, key := range []string{"trace_id", "span_id"} {
		if id, ok := j.Meta[key].(string); ok {
			trace = append(trace, slog.String(key, id))
		}
	}
	if trace != nil {
		attrs = append(attrs, slog.Group("trace", trace...))
	}
	return attrs
}

// JobLog is a logger that names a job, for its handler and for what is about it but no
// event of it.
func (c *Lines) JobLog(j *ojs.JobHeader) *slog.Logger {
	return slog.New(c.Log.Handler().WithAttrs(c.jobAttrs(j, "", "")))
}

// LogJob writes the line of an event of a job.
func (c *Lines) LogJob(
	level slog.Level, msg, category string, rec *storage.Record, worker string, attributes ...any,
) {
	ctx := context.Background()
	if !c.Log.Enabled(ctx, level) {
		return
	}
	attrs := append([]slog.Attr{slog.String("component", "worker"), slog.String("category", category)},
		c.jobAttrs(&rec.JobHeader, rec.State, worker)...)
	if len(attributes) > 0 {
		attrs = append(attrs, slog.Group("attributes", attributes...))
	}
	c.Log.LogAttrs(ctx, level, msg, attrs...)
}

// LevelOf is the level of a line about the life of a job: info, or debug for a job that a
// workflow makes for itself.
func LevelOf(rec *storage.Record) slog.Level {
	switch rec.Type {
	case workflow.Type, workflow.JoinType, workflow.AddType:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// Logs reports whether lines of the level are written. Callers ask before they compute
// what a line says.
func (c *Lines) Logs(level slog.Level) bool { return c.Log.Enabled(context.Background(), level) }

// LogDuplicate is at the one level at which a fingerprint may be seen (OJS unique jobs,
// section 12).
func (c *Lines) LogDuplicate(rec, equal *storage.Record) {
	if c.Logs(slog.LevelDebug) {
		c.LogJob(slog.LevelDebug, "job is a duplicate", "lifecycle", equal, "",
			slog.String("fingerprint", rec.Fingerprint))
	}
}

func (c *Lines) LogStarted(rec *storage.Record, worker string, now time.Time) {
	c.LogJob(slog.LevelDebug, "job started", "lifecycle", rec, worker,
		slog.Int64("queue_wait_ms", max(now.Sub(rec.EnqueuedAt), 0).Milliseconds()))
}
