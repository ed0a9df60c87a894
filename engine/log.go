package engine

import (
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// The engine's log lines have the fields of OJS logging: component and category, a group
// ojs that names the job, a group trace if its meta has ids for one, a group attributes
// for the rest.

// atLeast is a handler that drops lines below a level. An engine without WithLogger
// writes to one.
type atLeast struct {
	level slog.Level
	slog.Handler
}

func (h atLeast) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.level && h.Handler.Enabled(ctx, l)
}
func (h atLeast) WithAttrs(as []slog.Attr) slog.Handler {
	return atLeast{h.level, h.Handler.WithAttrs(as)}
}
func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.level, h.Handler.WithGroup(name)}
}

// guarded is a program's handler. If the handler panics or calls runtime.Goexit, the line
// is lost, and no goroutine of the engine ends.
type guarded struct {
	inner slog.Handler
	known bool // a handler of package slog, which returns: asking for its level needs no goroutine
}

func guard(h slog.Handler) slog.Handler {
	t := reflect.TypeOf(h)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return guarded{h, t.PkgPath() == "log/slog"}
}

func (g guarded) Enabled(ctx context.Context, l slog.Level) bool {
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
	return guard(h)
}

// jobAttrs names a job.
func (c *core) jobAttrs(j *ojs.JobHeader, state ojs.State, worker string) []slog.Attr {
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

// jobLog is a logger that names a job, for its handler and for what is about it but no
// event of it.
func (c *core) jobLog(j *ojs.JobHeader) *slog.Logger {
	return slog.New(c.log.Handler().WithAttrs(c.jobAttrs(j, "", "")))
}

// logJob writes the line of an event of a job.
func (c *core) logJob(
	level slog.Level, msg, category string, rec *storage.Record, worker string, attributes ...any,
) {
	ctx := context.Background()
	if !c.log.Enabled(ctx, level) {
		return
	}
	attrs := append([]slog.Attr{slog.String("component", "worker"), slog.String("category", category)},
		c.jobAttrs(&rec.JobHeader, rec.State, worker)...)
	if len(attributes) > 0 {
		attrs = append(attrs, slog.Group("attributes", attributes...))
	}
	c.log.LogAttrs(ctx, level, msg, attrs...)
}

// levelOf is the level of a line about the life of a job: info, or debug for a job that a
// workflow makes for itself.
func levelOf(rec *storage.Record) slog.Level {
	switch rec.Type {
	case workflow.Type, workflow.JoinType, workflow.AddType:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// logs reports whether lines of the level are written. Callers ask before they compute
// what a line says.
func (c *core) logs(level slog.Level) bool { return c.log.Enabled(context.Background(), level) }

// logDuplicate is at the one level at which a fingerprint may be seen (OJS unique jobs,
// section 12).
func (c *core) logDuplicate(rec, equal *storage.Record) {
	if c.logs(slog.LevelDebug) {
		c.logJob(slog.LevelDebug, "job is a duplicate", "lifecycle", equal, "",
			slog.String("fingerprint", rec.Fingerprint))
	}
}

func (c *core) logStarted(rec *storage.Record, worker string, now time.Time) {
	c.logJob(slog.LevelDebug, "job started", "lifecycle", rec, worker,
		slog.Int64("queue_wait_ms", max(now.Sub(rec.EnqueuedAt), 0).Milliseconds()))
}

// logOutcome writes the line of an attempt whose end has been stored.
func (c *core) logOutcome(f *settlement, worker string) {
	rec, d := f.rec, f.decision
	if d.Asked > 0 {
		c.logCut(f)
	}
	level, msg, category := slog.LevelError, "job discarded", "error"
	switch {
	case rec.State == ojs.StateCompleted:
		level, msg, category = slog.LevelInfo, "job completed", "lifecycle"
	case d.Refunded:
		level, msg, category = slog.LevelDebug, "job waits", "lifecycle"
	case d.DeadLetter:
		msg = "job dead-lettered"
	case d.State == ojs.StateRetryable:
		level, msg = slog.LevelWarn, "attempt failed"
	}
	if !c.logs(level) {
		return
	}
	attrs := []any{slog.Int64("duration_ms", f.took.Milliseconds())}
	if d.State == ojs.StateRetryable {
		attrs = append(attrs, slog.Float64("retry_delay_seconds", d.RunAt.Sub(f.at).Seconds()),
			slog.Time("next_retry_at", d.RunAt))
	}
	if d.Failure != nil {
		attrs = append(append(attrs, slog.String("why", string(d.Rule))), failureAttrs(d.Failure)...)
	}
	c.logJob(level, msg, category, rec, worker, attrs...)
}

// logCut says, once for each job type, that a retry comes earlier than the handler or the
// retry hook asked for.
func (c *core) logCut(f *settlement) {
	if t, err := c.jobType(f.rec.Type); err == nil && !t.cut.Swap(true) {
		c.logJob(slog.LevelInfo,
			"retry delay cut to max_interval; raise it in the retry policy to keep longer delays",
			"lifecycle", f.rec, "",
			slog.Float64("asked_seconds", f.decision.Asked.Seconds()), slog.Float64("max_interval_seconds",
				f.rec.Retry.MaxInterval.Seconds()))
	}
}

func failureAttrs(f *ojs.Failure) []any {
	attrs := []any{slog.String("error_type", f.Type), slog.String("error", f.Message)}
	if f.Backtrace != nil {
		attrs = append(attrs, slog.Any("backtrace", f.Backtrace))
	}
	return attrs
}
