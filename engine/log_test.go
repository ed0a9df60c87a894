package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
)

// lines decodes what a JSON handler has written.
func lines(t *testing.T, b *bytes.Buffer) (out []map[string]any) {
	t.Helper()
	for line := range strings.Lines(b.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func TestLog(t *testing.T) {
	var logged bytes.Buffer
	logger := func(l slog.Level) engine.Option {
		logged.Reset()
		return engine.WithLogger(slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: l})))
	}
	t.Run("reading 6 a delay that max_interval cuts, once per type", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			for _, name := range []string{"x", "y"} {
				b.handle(name, func(_ context.Context, job *ojs.Job[any]) error {
					if job.Queue == "kept" {
						return ojs.RetryAfter(5*time.Minute, errBoom)
					}
					return ojs.RetryAfter(time.Hour, errBoom)
				})
			}
			b.run()
			cuts := func() (types []string) {
				for _, l := range lines(t, &logged) {
					if a, _ := l["attributes"].(map[string]any); a["asked_seconds"] == 3600.0 &&
						a["max_interval_seconds"] == 300.0 && l["level"] == "INFO" {
						types = append(types, l["ojs"].(map[string]any)["job_type"].(string))
					}
				}
				return types
			}
			b.enqueue("x", ojs.WithQueue("kept"))
			b.advance(time.Hour)
			if got := cuts(); len(got) != 0 {
				t.Errorf("an uncut delay is logged as cut: %v", got)
			}
			id := b.enqueue("x").ID
			b.enqueue("x")
			b.advance(5*time.Minute - 1)
			b.want(id, ojs.StateRetryable, 1)
			b.advance(time.Hour)
			b.enqueue("y")
			b.advance(time.Hour)
			if got := cuts(); !slices.Equal(got, []string{"x", "y"}) {
				t.Errorf("logged for %v", got)
			}
		}, logger(slog.LevelInfo))
	})
	t.Run("P1.11 one line per event, at its level, with its fields", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
				pace.Virtual(250 * time.Millisecond)
				if job.Attempt == 1 {
					return ojs.Errorf("smtp.down", "no")
				}
				return nil
			})
			b.handle("bad", func(context.Context, *ojs.Job[any]) error { return ojs.DeadLetter(errBoom) })
			b.handle("late", func(context.Context, *ojs.Job[any]) error { return nil })
			b.run()
			logged.Reset()
			id := b.enqueue("x", noJitter, ojs.WithMeta("trace_id", "t1"),
				ojs.WithMeta("password", "secret")).ID
			b.advance(time.Minute)
			b.enqueue("bad")
			b.advance(0)
			must(t, b.Cancel(b.ctx, b.enqueue("other", ojs.WithDelay(time.Hour)).ID))
			b.enqueue("other", ojs.WithTTL(time.Second))
			b.advance(time.Minute)
			got := lines(t, &logged)
			var what []string
			for _, l := range got {
				what = append(what, l["level"].(string)+" "+l["msg"].(string))
			}
			want := []string{
				"WARN job type enqueued without a handler in this engine",
				"INFO job enqueued", "DEBUG job started", "WARN attempt failed", "DEBUG job started",
				"INFO job completed",
				"INFO job enqueued", "DEBUG job started", "ERROR job dead-lettered",
				"INFO job enqueued", "INFO job cancelled",
				"INFO job enqueued", "ERROR job discarded",
			}
			slices.Sort(what)
			slices.Sort(want)
			if !slices.Equal(what, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(what, "\n"), strings.Join(want, "\n"))
			}
			begun, failed, completed := got[1], got[2], got[4]
			if begun["ojs"].(map[string]any)["worker_id"] == nil ||
				begun["attributes"].(map[string]any)["queue_wait_ms"] != 0.0 {
				t.Errorf("%v", begun)
			}
			job := failed["ojs"].(map[string]any)
			if failed["component"] != "worker" || failed["category"] != "error" || job["job_id"] != id ||
				job["job_type"] != "x" ||
				job["queue"] != "default" || job["attempt"] != 1.0 || job["state"] != "retryable" ||
				job["worker_id"] == "" ||
				failed["trace"].(map[string]any)["trace_id"] != "t1" {
				t.Errorf("%v", failed)
			}
			attrs := failed["attributes"].(map[string]any)
			want = []string{
				"duration_ms", "error", "error_type", "next_retry_at", "retry_delay_seconds", "why",
			}
			if !slices.Equal(slices.Sorted(maps.Keys(attrs)), want) ||
				attrs["duration_ms"] != 250.0 || attrs["retry_delay_seconds"] != 1.0 ||
				attrs["error_type"] != "smtp.down" {
				t.Errorf("%v", attrs)
			}
			if a := completed["attributes"].(map[string]any); a["duration_ms"] != 250.0 ||
				completed["category"] != "lifecycle" {
				t.Errorf("%v", completed)
			}
		}, logger(slog.LevelDebug))
	})
	t.Run("P1.11 a worker's job starts when it is fetched", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			id := b.enqueue("other").ID
			pace.Virtual(time.Second)
			logged.Reset()
			if _, err := b.Worker("w", fetch.Config{}).Fetch(b.ctx); err != nil {
				t.Fatal(err)
			}
			got := lines(t, &logged)
			if len(got) != 1 || got[0]["msg"] != "job started" {
				t.Fatal(logged.String())
			}
			job, attrs := got[0]["ojs"].(map[string]any), got[0]["attributes"].(map[string]any)
			if job["job_id"] != id || job["worker_id"] != "w" || job["attempt"] != 1.0 ||
				attrs["queue_wait_ms"] != 1000.0 {
				t.Error(logged.String())
			}
		}, logger(slog.LevelDebug))
	})
	t.Run("P1.11 a level that is changed while jobs run", func(t *testing.T) {
		var level slog.LevelVar
		level.Set(slog.LevelError)
		starts := &lineCount{level: &level}
		eng, err := engine.New[int](memory.New(), engine.WithConcurrency(1),
			engine.WithLogger(slog.New(starts)))
		must(t, err)
		const jobs = 20
		done := make(chan struct{})
		eng.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
			switch job.Args {
			case 2:
				level.Set(slog.LevelDebug)
			case jobs - 1:
				close(done)
			}
			return ojs.DeadLetter(errBoom) // after which the worker looks for the next job in the long way
		})
		for i := range jobs {
			_, err := eng.Enqueue(t.Context(), "x", i)
			must(t, err)
		}
		started(t, eng)
		<-done
		if n := starts.n.Load(); n != jobs-3 {
			t.Errorf("%d jobs are said to have started, want the last %d", n, jobs-3)
		}
	})
	t.Run("P1.11 no args, results or meta", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.Handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
				handler.Logger(ctx).Info("mine")
				return handler.SetResult(ctx, "hush-result")
			})
			b.run()
			if _, err := b.Enqueue(b.ctx, "x", "hush-args", ojs.WithMeta("token", "hush-meta")); err != nil {
				t.Fatal(err)
			}
			b.advance(time.Second)
			if strings.Contains(logged.String(), "hush") {
				t.Error(logged.String())
			}
			for _, l := range lines(t, &logged) {
				if l["msg"] == "mine" && l["ojs"].(map[string]any)["job_type"] == "x" {
					return
				}
			}
			t.Error("the handler's logger does not name the job")
		}, logger(slog.LevelDebug))
	})
	t.Run("P1.11 an idle engine writes nothing", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.run()
			b.enqueue("x")
			b.enqueue("x", ojs.WithDelay(10000*time.Hour))
			b.advance(time.Minute)
			logged.Reset()
			b.advance(1000 * time.Hour)
			if logged.Len() > 0 {
				t.Error(logged.String())
			}
		}, logger(slog.LevelDebug))
	})
	t.Run("without a logger, warnings and errors go to slog.Default", func(t *testing.T) {
		before := slog.Default()
		defer slog.SetDefault(before)
		var buf bytes.Buffer
		slog.SetDefault(slog.New(slog.NewJSONHandler(&buf, nil)))
		eng, err := engine.New[any](newMemory(t))
		must(t, err)
		eng.Handle("known", nothing)
		for range 2 {
			_, err = eng.Enqueue(t.Context(), "x", nil)
			must(t, err)
		}
		if got := lines(t, &buf); len(got) != 1 || got[0]["level"] != "WARN" {
			t.Errorf("%v", got)
		}
	})
}
