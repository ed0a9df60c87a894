package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

// recorder is a testing.TB that keeps what it is told, and ends its goroutine where a
// test would end.
type recorder struct {
	testing.TB
	mu       sync.Mutex // guards failures
	failures []string
}

func (r *recorder) Helper()           {}
func (r *recorder) Output() io.Writer { return io.Discard }
func (r *recorder) Errorf(format string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, a...))
}
func (r *recorder) Fatalf(format string, a ...any) {
	r.Errorf(format, a...)
	runtime.Goexit()
}

// failure returns what f fails with.
func failure(t *testing.T, f func(tb testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { defer close(done); f(r) }()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.failures, "\n")
}

type note struct {
	mu sync.Mutex // guards at
	at []time.Duration
}

func (n *note) add(d time.Duration) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at = append(n.at, d)
	return len(n.at)
}

func (n *note) times() []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.at)
}

func secs(s ...int) []time.Duration {
	var out []time.Duration
	for _, n := range s {
		out = append(out, time.Duration(n)*time.Second)
	}
	return out
}

// both runs a test on the virtual clock and in a bubble.
func both(t *testing.T, f func(t *testing.T, eng *enginetest.Engine[any])) {
	t.Run("New", func(t *testing.T) { f(t, enginetest.New[any](t)) })
	t.Run("Test", func(t *testing.T) { enginetest.Test(t, f) })
}

// busy keeps every core busy until the test ends.
func busy(t *testing.T) {
	stop := make(chan struct{})
	var done sync.WaitGroup
	for range runtime.NumCPU() {
		done.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if n%1000 == 0 {
					runtime.Gosched() // or each hand-over takes a time slice of 10 ms
				}
			}
		})
	}
	t.Cleanup(func() { close(stop); done.Wait() })
}

// Many times, beside as many busy goroutines as there are cores, and with handlers
// that take real time: not one deviation.
func TestExact(t *testing.T) {
	busy(t)
	rounds := 10
	switch {
	case testing.Short():
		rounds = 5
	case os.Getenv("OJS_STORM") != "":
		rounds = 50
	}
	take := func(eng *enginetest.Engine[any]) { // real time; in a bubble none passes
		for end := time.Now().Add(time.Millisecond); time.Now().Before(end) && eng.Elapsed() == 0; {
			runtime.Gosched()
		}
	}
	retry := ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 5, Jitter: ojs.JitterOff,
		OnExhaustion: ojs.ExhaustionDeadLetter})
	stories := map[string]func(t *testing.T, eng *enginetest.Engine[any]){
		"a chain of retries": func(t *testing.T, eng *enginetest.Engine[any]) {
			var ran note
			eng.Handle("x", func(context.Context, *ojs.Job[any]) error {
				ran.add(eng.Elapsed())
				return errBoom
			})
			ticket := eng.MustEnqueue(ojs.NewDraft("x", nil, retry))
			eng.Advance(20 * time.Second)
			if got, want := ran.times(), secs(0, 1, 3, 7, 15); !slices.Equal(got, want) {
				t.Fatalf("ran at %v, want %v", got, want)
			}
			eng.RequireDeadLettered(ticket.ID)
		},
		"a job that rearms itself": func(t *testing.T, eng *enginetest.Engine[any]) {
			var ran note
			eng.Handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
				ran.add(eng.Elapsed())
				take(eng)
				_, err := eng.Enqueue(ctx, "x", nil, ojs.WithDelay(time.Second))
				return err
			})
			eng.MustEnqueue(ojs.NewDraft("x", nil, ojs.WithDelay(time.Second)))
			eng.Advance(60 * time.Second)
			got := ran.times()
			if len(got) != 60 {
				t.Fatalf("ran %d times", len(got))
			}
			for i, at := range got {
				if at != time.Duration(i+1)*time.Second {
					t.Fatalf("ran at %v", got)
				}
			}
		},
		"timeouts, expiry and leases": func(t *testing.T, eng *enginetest.Engine[any]) {
			eng.Handle("slow", func(ctx context.Context,
				_ *ojs.Job[any]) error {
				return handler.Sleep(ctx, time.Hour)
			})
			slow := eng.MustEnqueue(ojs.NewDraft("slow", nil, ojs.WithTimeout(7*time.Second),
				ojs.WithMaxAttempts(1), ojs.WithLease(3*time.Second)))
			expires := eng.MustEnqueue(ojs.NewDraft("nobody", nil, ojs.WithTTL(11*time.Second)))
			if _, err := eng.Worker("w",
				fetch.Config{Types: []string{"foreign"}}).Fetch(func() context.Context {
				eng.MustEnqueue(ojs.NewDraft("foreign", nil, ojs.WithLease(5*time.Second),
					ojs.WithMaxAttempts(1)))
				return context.Background()
			}()); err != nil {
				t.Fatal(err)
			}
			eng.Advance(time.Minute)
			for id, want := range map[string]time.Duration{
				slow.ID: 7 * time.Second, expires.ID: 11 * time.Second,
				eng.RequireEnqueued(ojs.NewDraft("foreign", nil)).ID: 5 * time.Second,
			} {
				job := eng.RequireState(id, ojs.StateDiscarded)
				if job.FinishedAt.Sub(enginetest.Start) != want {
					t.Fatalf("%s ended at %v, want %v", job.Type, job.FinishedAt.Sub(enginetest.Start), want)
				}
			}
		},
		"cron over the change to summer time": func(t *testing.T, eng *enginetest.Engine[any]) {
			var ran note
			eng.Handle("x", func(context.Context, *ojs.Job[any]) error { ran.add(eng.Elapsed()); return nil })
			eng.SetTime(time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC))
			from := eng.Elapsed()
			err := eng.Cron().Set(t.Context(), cron.Entry{Name: "n", Schedule: "0 3 * * *",
				TimeZone: "Europe/Berlin", Job: ojs.NewDraft("x", nil)})
			if err != nil {
				t.Fatal(err)
			}
			eng.Advance(72 * time.Hour)
			var got []time.Duration
			for _, at := range ran.times() {
				got = append(got, at-from)
			}
			if want := []time.Duration{13 * time.Hour, 37 * time.Hour, 61 * time.Hour}; !slices.Equal(got,
				want) {
				t.Fatalf("ran after %v, want %v", got, want)
			}
		},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			for i := range rounds {
				t.Run(fmt.Sprint(i), func(t *testing.T) { both(t, story) })
				if t.Failed() {
					return
				}
			}
		})
	}
	t.Run("retention", func(t *testing.T) {
		for range rounds {
			enginetest.Test(t, func(t *testing.T, eng *enginetest.Engine[any]) {
				eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
				ticket := eng.MustEnqueue(ojs.NewDraft("x", nil))
				eng.Advance(time.Hour - 1)
				eng.RequireCompleted(ticket.ID)
				eng.Advance(time.Millisecond + 1)
				if _, err := eng.Get(t.Context(), ticket.ID); !errors.Is(err, ojs.ErrPruned) {
					t.Fatal("kept for longer than an hour")
				}
			}, engine.WithRetention(engine.Retention{Completed: time.Hour}))
		}
	})
}

func TestSeeds(t *testing.T) {
	delays := func(opts ...engine.Option) (out []time.Duration) {
		t.Run("", func(t *testing.T) {
			eng := enginetest.New[any](t, opts...)
			eng.Handle("x", func(context.Context, *ojs.Job[any]) error {
				out = append(out, eng.Elapsed())
				return errBoom
			})
			eng.MustEnqueue(ojs.NewDraft("x", nil, ojs.WithMaxAttempts(6)))
			eng.Advance(time.Hour)
		})
		return out
	}
	a, b, c := delays(), delays(), delays(engine.WithRand(seeded(7)))
	if len(a) != 6 || !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Errorf("%v\n%v\n%v", a, b, c)
	}
}

// Handlers may wait for anything in a bubble.
func TestBubble(t *testing.T) {
	enginetest.Test(t, func(t *testing.T, eng *enginetest.Engine[string]) {
		ch := make(chan string)
		eng.Handle("channel", func(_ context.Context, job *ojs.Job[string]) error {
			ch <- job.Args
			return nil
		})
		eng.Handle("context", func(ctx context.Context, _ *ojs.Job[string]) error {
			<-ctx.Done()
			return ctx.Err()
		})
		eng.Handle("sleep", func(context.Context, *ojs.Job[string]) error {
			pace.Virtual(time.Hour)
			return nil
		})
		waits := eng.MustEnqueue(ojs.NewDraft("context", "", ojs.WithTimeout(time.Minute),
			ojs.WithMaxAttempts(1)))
		sleeps := eng.MustEnqueue(ojs.NewDraft("sleep", "", ojs.WithTimeout(2*time.Hour)))
		sends := eng.MustEnqueue(ojs.NewDraft("channel", "hello"))
		eng.Drain()
		eng.RequireState(sends.ID, ojs.StateActive)
		if got := <-ch; got != "hello" {
			t.Error(got)
		}
		eng.Drain()
		eng.RequireCompleted(sends.ID)
		eng.Advance(time.Minute)
		eng.RequireState(waits.ID, ojs.StateDiscarded)
		eng.Advance(59*time.Minute - 1)
		eng.RequireState(sleeps.ID, ojs.StateActive)
		eng.Advance(1)
		if job := eng.RequireCompleted(sleeps.ID); job.FinishedAt.Sub(enginetest.Start) != time.Hour {
			t.Errorf("ended at %v", job.FinishedAt)
		}
	})
}

func TestBlockedHandler(t *testing.T) {
	defer enginetest.SetPatience(enginetest.SetPatience(100 * time.Millisecond))
	release := make(chan struct{})
	got := failure(t, func(tb testing.TB) {
		eng := enginetest.New[any](tb)
		eng.Handle("blocks", func(context.Context, *ojs.Job[any]) error { <-release; return nil })
		eng.MustEnqueue(ojs.NewDraft("blocks", nil))
		defer close(release)
		eng.Advance(time.Second)
	})
	for _, want := range []string{"still busy", "type blocks, attempt 1", "TestBlockedHandler",
		"handler.Sleep", "enginetest.Test"} {
		if !strings.Contains(got, want) {
			t.Errorf("the failure does not say %q:\n%s", want, got)
		}
	}
}

func TestLeaks(t *testing.T) {
	release := make(chan struct{})
	var got string
	t.Run("", func(t *testing.T) {
		r := &recorder{TB: t}
		t.Cleanup(func() { got = strings.Join(r.failures, "\n") })
		eng := enginetest.New[any](r, engine.WithGracePeriod(time.Second))
		eng.Handle("leaks", func(context.Context, *ojs.Job[any]) error { <-release; return nil })
		eng.MustEnqueue(ojs.NewDraft("leaks", nil))
		for len(eng.Running()) == 0 {
			runtime.Gosched()
		}
	})
	close(release)
	if !strings.Contains(got, "does not stop") {
		t.Errorf("%q", got)
	}
}

func TestFailures(t *testing.T) {
	both(t, func(t *testing.T, eng *enginetest.Engine[any]) {
		var ran note
		eng.Handle("x", func(context.Context, *ojs.Job[any]) error { ran.add(eng.Elapsed()); return nil })
		eng.FailNext("x", errBoom)
		eng.FailNext("x", ojs.Errorf("net.down", "no"))
		ticket := eng.MustEnqueue(ojs.NewDraft("x", nil,
			ojs.WithRetry(ojs.RetryPolicy{Jitter: ojs.JitterOff})))
		eng.Advance(time.Minute)
		job := eng.RequireCompleted(ticket.ID)
		if got := ran.times(); !slices.Equal(got, secs(3)) || len(job.Errors) != 2 ||
			job.Errors[1].Type != "net.down" {
			t.Errorf("P1.9: ran at %v, errors %v", got, job.Errors)
		}
		eng.FailAll("x", ojs.DeadLetter(errBoom))
		for range 2 {
			eng.RequireDeadLettered(func() string {
				id := eng.MustEnqueue(ojs.NewDraft("x", nil)).ID
				eng.Drain()
				return id
			}())
		}
		eng.FailAll("x", nil)
		id := eng.MustEnqueue(ojs.NewDraft("x", nil)).ID
		eng.Drain()
		eng.RequireCompleted(id)
	})
}

func TestWork(t *testing.T) {
	both(t, func(t *testing.T, eng *enginetest.Engine[any]) {
		eng.Handle("fails", func(_ context.Context,
			job *ojs.Job[any]) error {
			return fmt.Errorf("args %v", job.Args)
		})
		eng.Handle("sleeps", func(ctx context.Context,
			_ *ojs.Job[any]) error {
			return handler.Sleep(ctx, time.Minute)
		})
		eng.Handle("snoozes", func(context.Context, *ojs.Job[any]) error { return ojs.Snooze(0) })
		eng.Handle("panics", func(context.Context, *ojs.Job[any]) error { panic("no") })
		w := eng.Work(ojs.NewDraft("fails", 7, ojs.WithDelay(time.Hour), ojs.WithPending(),
			ojs.WithRetry(ojs.RetryPolicy{InitialInterval: 1, MaxInterval: 1})))
		if w.Job.State != ojs.StateRetryable || w.Job.Attempt != 1 || w.Err == nil ||
			w.Err.Error() != "args 7" || w.Job.Error.Message != "args 7" {
			t.Errorf("%+v, %v", w.Job, w.Err)
		}
		var types []string
		for _, ev := range w.Events {
			types = append(types, string(ev.Type))
		}
		if want := []string{"job.enqueued", "job.started", "job.failed", "job.retrying"}; !slices.Equal(types,
			want) {
			t.Errorf("events %v", types)
		}
		if w := eng.Work(ojs.NewDraft("sleeps", nil)); w.Job.State != ojs.StateCompleted ||
			w.Job.FinishedAt.Sub(w.Job.StartedAt) != time.Minute || w.Err != nil {
			t.Errorf("%+v", w)
		}
		if w := eng.Work(ojs.NewDraft("snoozes", nil)); w.Job.State != ojs.StateRetryable ||
			w.Job.Attempt != 0 {
			t.Errorf("%+v", w.Job)
		}
		if w := eng.Work(ojs.NewDraft("panics", nil)); w.Job.Error == nil ||
			w.Job.Error.Type != policy.ErrorTypePanic || w.Err == nil {
			t.Errorf("%+v", w)
		}
		eng.FailNext("sleeps", errBoom)
		if w := eng.Work(ojs.NewDraft("sleeps", nil)); w.Err != errBoom {
			t.Errorf("%+v", w)
		}
		if all := eng.AllEnqueued(); len(all) != 0 {
			t.Errorf("in the queues: %v", all)
		}
	})
	if got := failure(t, func(tb testing.TB) {
		enginetest.New[any](tb).Work(ojs.NewDraft("nobody", nil))
	}); !strings.Contains(got, "nobody has no handler") {
		t.Errorf("%q", got)
	}
}

func TestFake(t *testing.T) {
	t.Parallel()
	eng := enginetest.NewFake[any](t,
		engine.WithEnqueueHook(func(_ context.Context, job *ojs.Job[any]) error {
			job.Meta["seen"] = true
			return nil
		}))
	eng.Handle("x", func(context.Context, *ojs.Job[any]) error { t.Error("P1.9: it ran"); return nil })
	ticket := eng.MustEnqueue(ojs.NewDraft("x", 1))
	eng.Advance(time.Hour)
	eng.RequireState(ticket.ID, ojs.StateAvailable)
	eng.RequireEnqueued(ojs.NewDraft("x", 1, ojs.WithMeta("seen", true)))
	if _, err := eng.Enqueue(t.Context(), "Not A Type", nil); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("P1.9: validation: %v", err)
	}
	if eng.Elapsed() != time.Hour {
		t.Errorf("%v", eng.Elapsed())
	}
}

func TestInline(t *testing.T) {
	t.Parallel()
	eng := enginetest.NewInline[any](t)
	var order []string
	eng.Handle("outer", func(ctx context.Context, job *ojs.Job[any]) error {
		order = append(order, "outer")
		_, err := eng.Enqueue(ctx, "inner", nil)
		order = append(order, "outer again")
		return err
	})
	eng.Handle("inner", func(context.Context, *ojs.Job[any]) error {
		order = append(order, "inner")
		return nil
	})
	eng.Handle("fails", func(_ context.Context, job *ojs.Job[any]) error {
		order = append(order, "fails")
		return errBoom
	})
	eng.Handle("sleeps", func(ctx context.Context,
		_ *ojs.Job[any]) error {
		return handler.Sleep(ctx, time.Minute)
	})
	if _, err := eng.Enqueue(t.Context(), "outer", nil, ojs.WithDelay(time.Hour)); err != nil {
		t.Error(err)
	}
	if want := []string{"outer", "inner", "outer again"}; !slices.Equal(order, want) {
		t.Errorf("P1.9: %v", order)
	}
	if _, err := eng.Enqueue(t.Context(), "fails", nil); err != errBoom {
		t.Errorf("P1.9: errors propagate: %v", err)
	}
	if ticket, err := eng.Enqueue(t.Context(), "sleeps", nil); err != nil || eng.Elapsed() != time.Minute {
		t.Errorf("%+v, %v after %v", ticket, err, eng.Elapsed())
	}
	if n := len(order); n != 4 {
		t.Errorf("P1.9: retried: %v", order)
	}
	if _, err := eng.Enqueue(t.Context(), "nobody", nil); err == nil {
		t.Error("a type without a handler ran")
	}
	if _, err := ojs.Define[any]("inner").Enqueue(t.Context(), eng, nil); err != nil {
		t.Error(err)
	}
}

func TestRequire(t *testing.T) {
	type mail struct {
		To      string            `json:"to"`
		Subject string            `json:"subject,omitempty"`
		Vars    map[string]string `json:"vars,omitempty"`
	}
	eng := enginetest.NewFake[any](t)
	monday := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	first := eng.MustEnqueue(ojs.NewDraft("mail",
		mail{"a@b.c", "Welcome", map[string]string{"x": "1", "y": "2"}},
		ojs.WithQueue("low"), ojs.WithDelay(5*time.Minute), ojs.WithMeta("tenant", "t1"),
		ojs.WithMeta("n", 1), ojs.WithPriority(3), ojs.WithMaxAttempts(7)))
	eng.MustEnqueue(ojs.NewDraft("mail", mail{To: "d@e.f"}, ojs.WithScheduledAt(monday)))
	eng.MustEnqueue(ojs.NewDraft("list", []int{1, 2}))
	for name, d := range map[string]ojs.Draft{
		"type": ojs.NewDraft("mail", nil), "args": ojs.NewDraft("mail", mail{To: "a@b.c"}),
		"map":   ojs.NewDraft("mail", map[string]any{"vars": map[string]any{"y": "2"}}),
		"queue": ojs.NewDraft("mail", nil, ojs.WithQueue("low")),
		"delay": ojs.NewDraft("mail", nil, ojs.WithDelay(5*time.Minute)),
		"meta":  ojs.NewDraft("mail", nil, ojs.WithMeta("n", 1)), "attempts": ojs.NewDraft("mail", nil,
			ojs.WithMaxAttempts(7)), "priority": ojs.NewDraft("mail", nil, ojs.WithPriority(3)),
		"time": ojs.NewDraft("mail", nil, ojs.WithScheduledAt(monday)),
		"list": ojs.NewDraft("list", []int{1, 2}), "id": ojs.NewDraft("mail", nil, ojs.WithID(first.ID)),
	} {
		if name == "time" || name == "list" || name == "type" {
			eng.RequireEnqueued(d)
			continue
		}
		if job := eng.RequireEnqueuedN(1, d)[0]; job.ID != first.ID {
			t.Errorf("%s: %+v", name, job)
		}
	}
	for _, d := range []ojs.Draft{
		ojs.NewDraft("other", nil), ojs.NewDraft("mail", mail{To: "x"}),
		ojs.NewDraft("mail", nil, ojs.WithQueue("high")),
		ojs.NewDraft("mail", nil, ojs.WithDelay(time.Minute)),
		ojs.NewDraft("mail", nil, ojs.WithMeta("tenant", "t2")), ojs.NewDraft("list", []int{1}),
		ojs.NewDraft("mail", nil, ojs.WithMaxAttempts(2)),
		ojs.NewDraft("mail", nil, ojs.WithTTL(time.Hour)),
		ojs.NewDraft("mail", nil, ojs.WithTimeout(time.Second)), ojs.NewDraft("mail", nil, ojs.WithPending()),
	} {
		eng.RefuteEnqueued(d)
	}
	eng.RequireEnqueuedN(2, ojs.NewDraft("mail", nil))
	for name, tt := range map[string]struct {
		f    func(eng *enginetest.Engine[any])
		want []string
	}{
		"none is like it": {func(e *enginetest.Engine[any]) {
			e.RequireEnqueued(ojs.NewDraft("mail", mail{To: "z"}, ojs.WithQueue("q")))
		},
			[]string{"no job is like", `type mail, args {"to":"z"}, queue q`, "a@b.c",
				`<- args {"to":"d@e.f"}`, "scheduled 2026-03-02 09:00:00"}},
		"one too many": {func(e *enginetest.Engine[any]) { e.RequireEnqueuedN(1, ojs.NewDraft("mail", nil)) },
			[]string{"2 jobs, not 1, are like"}},
		"unwanted": {func(e *enginetest.Engine[any]) { e.RefuteEnqueued(ojs.NewDraft("list", nil)) },
			[]string{"1 jobs are like", "args [1,2]"}},
		"another state": {func(e *enginetest.Engine[any]) { e.RequireCompleted(first.ID) },
			[]string{"is not completed", "scheduled at attempt 0"}},
		"no dead letter": {func(e *enginetest.Engine[any]) { e.RequireDeadLettered(first.ID) },
			[]string{"no dead letter"}},
		"no such job": {func(e *enginetest.Engine[any]) { e.RequireState("nobody", ojs.StateActive) },
			[]string{"not found", "There are:"}},
		"bad time": {func(e *enginetest.Engine[any]) { e.Advance(-1) },
			[]string{"time does not go back"}},
		"time gone by": {func(e *enginetest.Engine[any]) { e.SetTime(enginetest.Start.Add(-1)) },
			[]string{"time does not go back"}},
		"refused": {func(e *enginetest.Engine[any]) { e.MustEnqueue(ojs.NewDraft("!", nil)) },
			[]string{"enqueue of !", "invalid type"}},
	} {
		got := failure(t, func(tb testing.TB) {
			e := enginetest.NewFake[any](tb)
			for _, job := range eng.AllEnqueued() {
				opts := []ojs.Option{ojs.WithID(job.ID), ojs.WithScheduledAt(job.ScheduledAt),
					ojs.WithQueue(job.Queue)}
				e.MustEnqueue(ojs.NewDraft(job.Type, job.Args, opts...))
			}
			tt.f(e)
		})
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the failure does not say %q:\n%s", name, want, got)
			}
		}
	}
	if got := failure(t, func(tb testing.TB) {
		enginetest.NewFake[any](tb).RequireEnqueued(ojs.NewDraft("x", nil))
	}); !strings.Contains(got, "There are no jobs.") {
		t.Errorf("%q", got)
	}
	if !reflect.DeepEqual(eng.Now(), enginetest.Start) {
		t.Errorf("the clock moved to %v", eng.Now())
	}
}

// Work returns all events of a transition, however late those after the first come.
func TestWorkWaitsForEvents(t *testing.T) {
	enginetest.Test(t, func(t *testing.T, eng *enginetest.Engine[any]) {
		eng.Handle("fails", func(context.Context, *ojs.Job[any]) error { return errBoom })
		for range 2000 {
			w := eng.Work(ojs.NewDraft("fails", nil))
			if last := w.Events[len(w.Events)-1]; last.Type != event.Retrying {
				t.Fatalf("the last of %d events is %s", len(w.Events), last.Type)
			}
		}
	}, engine.WithLogger(slog.New(slog.DiscardHandler)))
}

// An application registers its handlers on an *engine.Engine, which a test has inside of
// its own.
func TestHandlersOfTheEngineInside(t *testing.T) {
	register := func(eng *engine.Engine[any]) {
		eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return errBoom })
	}
	t.Run("Work", func(t *testing.T) {
		eng := enginetest.New[any](t)
		register(eng.Engine)
		if w := eng.Work(ojs.NewDraft("x", nil)); !errors.Is(w.Err, errBoom) || w.Job.Attempt != 1 {
			t.Errorf("%+v", w)
		}
	})
	t.Run("inline", func(t *testing.T) {
		eng := enginetest.NewInline[any](t)
		register(eng.Engine)
		if _, err := eng.Enqueue(t.Context(), "x", nil); !errors.Is(err, errBoom) {
			t.Errorf("enqueue: %v", err)
		}
	})
}

func TestNewOn(t *testing.T) {
	store := &storagetest.Faulty{Storage: memory.New()}
	t.Run("an engine", func(t *testing.T) {
		eng := enginetest.NewOn[any](t, store)
		eng.Handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
			if job.Attempt == 1 {
				return errBoom
			}
			return nil
		})
		ticket := eng.MustEnqueue(ojs.NewDraft("x", nil, ojs.WithDelay(time.Hour),
			ojs.WithRetry(ojs.RetryPolicy{Jitter: ojs.JitterOff})))
		eng.Advance(time.Hour + 999*time.Millisecond)
		eng.RequireState(ticket.ID, ojs.StateRetryable)
		eng.Advance(time.Millisecond)
		eng.RequireCompleted(ticket.ID)
	})
	counts, err := store.Counts(t.Context())
	if err != nil || len(counts) != 1 || counts[0].State != ojs.StateCompleted || store.Calls("Insert") != 1 {
		t.Errorf("after the test: %v, %v, %d inserts", counts, err, store.Calls("Insert"))
	}
}
