package handler_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage/memory"
)

var row = ojs.Define[int]("row.store", ojs.WithRetry(ojs.RetryPolicy{
	MaxAttempts: 2, InitialInterval: time.Minute, Jitter: ojs.JitterOff,
	OnExhaustion: ojs.ExhaustionDeadLetter,
}))

// batches records the calls of a BatchFunc: when each was made, and for which args.
type batches struct {
	mu    sync.Mutex
	calls []string
}

func (b *batches) note(at time.Duration, jobs []*ojs.Job[int]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var args []int
	for _, j := range jobs {
		args = append(args, j.Args)
	}
	b.calls = append(b.calls, fmt.Sprint(at, args))
}

func (b *batches) want(t *testing.T, calls ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.calls, calls) {
		t.Errorf("calls %q, want %q", b.calls, calls)
	}
}

// batchRig is an engine whose only handler is a BatchFunc.
func batchRig(t *testing.T, slots int, f handler.BatchFunc[int], opts ...handler.Option) (
	*enginetest.Engine[int], *batches) {
	eng, b := enginetest.New[int](t, engine.WithConcurrency(slots)), new(batches)
	eng.Register(handler.ForBatch(row, func(ctx context.Context, jobs []*ojs.Job[int]) []error {
		b.note(eng.Elapsed(), jobs)
		return f(ctx, jobs)
	}, opts...))
	return eng, b
}

func succeed(context.Context, []*ojs.Job[int]) []error { return nil }

// enqueue stores one job for each number, and returns their ids.
func enqueue(t *testing.T, eng *enginetest.Engine[int], args ...int) (ids []string) {
	t.Helper()
	var drafts []ojs.Draft
	for _, n := range args {
		drafts = append(drafts, row.New(n))
	}
	tickets, err := eng.EnqueueMany(t.Context(), drafts...)
	if err != nil {
		t.Fatal(err)
	}
	for _, ticket := range tickets {
		ids = append(ids, ticket.ID)
	}
	return ids
}

func TestBatchSize(t *testing.T) {
	thirds := handler.BatchBy(func(n int) string { return fmt.Sprint(n % 3) })
	type opts = []handler.Option
	for name, c := range map[string]struct {
		slots int
		opts  opts
		want  []string // when each call was made, and the number of its jobs
	}{
		"the most":           {20, opts{handler.WithBatch(3, time.Second)}, []string{"0s 3", "0s 3", "1s 1"}},
		"the engine's slots": {4, opts{handler.WithBatch(100, time.Second)}, []string{"0s 4", "1s 3"}},
		"the type's slots": {20, opts{handler.WithSlots(5), handler.WithBatch(100, time.Second)},
			[]string{"0s 5", "1s 2"}},
		"the wait":    {20, opts{handler.WithBatch(100, time.Minute)}, []string{"1m0s 7"}},
		"no wait":     {20, opts{handler.WithBatch(100, 0)}, slices.Repeat([]string{"0s 1"}, 7)},
		"one slot":    {1, opts{handler.WithBatch(100, time.Hour)}, slices.Repeat([]string{"0s 1"}, 7)},
		"defaults":    {20, nil, []string{"100ms 7"}},
		"of each key": {20, opts{thirds}, []string{"100ms 2", "100ms 2", "100ms 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			eng, b := batchRig(t, c.slots, succeed, c.opts...)
			ids := enqueue(t, eng, 0, 1, 2, 3, 4, 5, 6)
			eng.Advance(time.Minute)
			for _, id := range ids {
				eng.RequireCompleted(id)
			}
			// Slots take jobs side by side, so their order is not exact.
			var got []string
			for _, c := range b.calls {
				at, args, _ := strings.Cut(c, " ")
				got = append(got, fmt.Sprint(at, " ", strings.Count(args, " ")+1))
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("calls %q, want %q", got, c.want)
			}
		})
	}
}

// The wait is the first job's. Later ones do not prolong it.
func TestBatchWaitsForItsFirstJob(t *testing.T) {
	eng, b := batchRig(t, 20, succeed, handler.WithBatch(100, time.Second))
	enqueue(t, eng, 1)
	eng.Advance(900 * time.Millisecond)
	enqueue(t, eng, 2)
	eng.Advance(99 * time.Millisecond)
	b.want(t)
	eng.Advance(time.Millisecond)
	b.want(t, "1s [1 2]")
	enqueue(t, eng, 3)
	eng.Advance(time.Second)
	b.want(t, "1s [1 2]", "2s [3]")
}

// Each job has its own outcome, attempts, result and time.
func TestBatchOutcomes(t *testing.T) {
	eng, b := batchRig(t, 20, func(ctx context.Context, jobs []*ojs.Job[int]) []error {
		errs := make([]error, len(jobs))
		for i, job := range jobs {
			switch job.Args {
			case 1:
				errs[i] = io.EOF
			case 2:
				errs[i] = ojs.Discard(io.EOF)
			case 3:
				errs[i] = ojs.Snooze(2 * time.Hour)
			default:
				if err := handler.SetResult(handler.JobContext(ctx, job), job.Args*10); err != nil {
					errs[i] = err
				}
			}
		}
		return errs
	}, handler.WithBatch(100, time.Second))
	ids := enqueue(t, eng, 0, 1, 2, 3)
	eng.Advance(time.Second)
	if got := string(eng.RequireCompleted(ids[0]).Result); got != "0" {
		t.Errorf("result %s", got)
	}
	eng.RequireState(ids[1], ojs.StateRetryable)
	eng.RequireState(ids[2], ojs.StateDiscarded)
	eng.RequireState(ids[3], ojs.StateRetryable)
	eng.Advance(time.Hour)
	eng.RequireDeadLettered(ids[1])
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.calls) < 2 || b.calls[1] != "1m2s [1]" {
		t.Errorf("calls %q", b.calls)
	}
}

// A fault of the call fails all of its jobs.
func TestBatchFails(t *testing.T) {
	for name, c := range map[string]struct {
		f    func() []error
		want string
	}{
		"panics":                {func() []error { panic("no") }, "panic: no"},
		"exits":                 {func() []error { runtime.Goexit(); return nil }, "runtime.Goexit"},
		"returns too few":       {func() []error { return make([]error, 2) }, "returned 2 errors for 3 jobs"},
		"returns too many":      {func() []error { return make([]error, 4) }, "returned 4 errors for 3 jobs"},
		"returns one of errors": {func() []error { return []error{io.EOF} }, "returned 1 errors for 3 jobs"},
	} {
		t.Run(name, func(t *testing.T) {
			f := func(context.Context, []*ojs.Job[int]) []error { return c.f() }
			eng, _ := batchRig(t, 20, f, handler.WithBatch(3, time.Hour))
			ids := enqueue(t, eng, 1, 2, 3)
			eng.Advance(time.Second)
			for _, id := range ids {
				job := eng.RequireState(id, ojs.StateRetryable)
				if !strings.Contains(job.Error.Message, c.want) || job.Attempt != 1 {
					t.Errorf("attempt %d: %s", job.Attempt, job.Error.Message)
				}
			}
		})
	}
}

// A job whose context ends leaves a batch that waits, and stays in one that runs.
func TestBatchCancel(t *testing.T) {
	t.Run("the first while it waits", func(t *testing.T) {
		eng, b := batchRig(t, 20, succeed, handler.WithBatch(100, time.Minute))
		first := enqueue(t, eng, 1)[0]
		eng.Drain()
		other := enqueue(t, eng, 2)[0]
		eng.Advance(time.Second)
		if err := eng.Cancel(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		eng.Drain()
		eng.RequireState(first, ojs.StateCancelled)
		eng.RequireCompleted(other)
		b.want(t, "1s [2]")
	})
	t.Run("another while it waits", func(t *testing.T) {
		eng, b := batchRig(t, 20, succeed, handler.WithBatch(100, time.Minute))
		first := enqueue(t, eng, 1)[0]
		eng.Drain()
		other := enqueue(t, eng, 2)[0]
		eng.Advance(time.Second)
		if err := eng.Cancel(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		eng.Advance(time.Hour)
		eng.RequireCompleted(first)
		eng.RequireState(other, ojs.StateCancelled)
		b.want(t, "1m0s [1]")
	})
	t.Run("the only one", func(t *testing.T) {
		eng, b := batchRig(t, 20, succeed, handler.WithBatch(100, time.Minute))
		first := enqueue(t, eng, 1)[0]
		eng.Drain()
		if err := eng.Cancel(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		eng.Drain()
		other := enqueue(t, eng, 2)[0]
		eng.Advance(time.Hour)
		eng.RequireCompleted(other)
		b.want(t, "1m0s [2]")
	})
	for name, n := range map[string]int{"some of it while it runs": 2, "all of it while it runs": 3} {
		t.Run(name, func(t *testing.T) {
			var slept error
			var eng *enginetest.Engine[int]
			eng, b := batchRig(t, 20, func(ctx context.Context, jobs []*ojs.Job[int]) []error {
				slept = handler.Sleep(ctx, time.Minute)
				for i, job := range jobs {
					if lost := handler.JobContext(ctx, job).Err() != nil; lost != (i < n) {
						t.Errorf("job %d: its context has ended: %t", i, lost)
					}
				}
				return nil
			}, handler.WithBatch(3, time.Hour))
			ids := enqueue(t, eng, 1)
			eng.Drain()
			ids = append(ids, enqueue(t, eng, 2)...)
			eng.Drain()
			ids = append(ids, enqueue(t, eng, 3)...)
			eng.Advance(time.Second)
			for _, id := range ids[:n] {
				if err := eng.Cancel(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				eng.Advance(time.Second)
			}
			eng.Advance(time.Hour)
			for i, id := range ids {
				if i < n {
					eng.RequireState(id, ojs.StateCancelled)
				} else if at := eng.RequireCompleted(id).FinishedAt; at.Sub(enginetest.Start) != time.Minute {
					t.Errorf("job %d completed at %v", i, at)
				}
			}
			if want := n == 3; errors.Is(slept, ojs.ErrCancelled) != want || (slept != nil) != want {
				t.Errorf("the sleep ended with %v", slept)
			}
			b.want(t, "0s [1 2 3]")
		})
	}
}

// Jobs of two engines never meet.
func TestBatchMembers(t *testing.T) {
	var b batches
	h := handler.ForBatch(row, func(_ context.Context, jobs []*ojs.Job[int]) []error {
		b.note(0, jobs)
		return nil
	}, handler.WithBatch(2, time.Second))
	a, other := enginetest.New[any](t), enginetest.New[any](t)
	for _, eng := range []*enginetest.Engine[any]{a, other} {
		eng.Register(h)
		eng.MustEnqueue(row.New(1))
		eng.Drain()
	}
	b.want(t)
	a.MustEnqueue(row.New(2))
	a.Drain()
	b.want(t, "0s [1 2]")
	other.MustEnqueue(row.New(3))
	other.Drain()
	b.want(t, "0s [1 2]", "0s [1 3]")
}

// Progress, results and the rest are those of all jobs, or of one.
func TestBatchAttempts(t *testing.T) {
	eng, _ := batchRig(t, 20, func(ctx context.Context, jobs []*ojs.Job[int]) []error {
		handler.Progress(ctx, 0.5)
		all := errors.Join(handler.Heartbeat(ctx), handler.SaveCheckpoint(ctx, "c"),
			handler.SetResult(ctx, "all"))
		type key struct{}
		ctx = context.WithValue(ctx, key{}, "derived")
		return []error{all, handler.SetResult(handler.JobContext(ctx, jobs[1]), "one")}
	}, handler.WithBatch(2, time.Hour))
	ids := enqueue(t, eng, 1, 2)
	eng.Advance(time.Second)
	var results []string
	for _, id := range ids {
		results = append(results, string(eng.RequireCompleted(id).Result))
	}
	slices.Sort(results)
	if !slices.Equal(results, []string{`"all"`, `"one"`}) {
		t.Errorf("results %q", results)
	}
}

func TestBatchWithoutEngine(t *testing.T) {
	h := handler.ForBatch(row, func(ctx context.Context, jobs []*ojs.Job[int]) []error {
		if handler.JobContext(ctx, jobs[0]).Err() != nil || handler.Heartbeat(ctx) != handler.ErrNoAttempt {
			t.Error("the context has ended, or is of an attempt")
		}
		return []error{fmt.Errorf("%d of %d", jobs[0].Args, len(jobs))}
	})
	args, err := ojs.NewArgs(7)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context(), new(ojs.JobHeader), args); err == nil || err.Error() != "7 of 1" {
		t.Errorf("error %v", err)
	}
	if args, err = ojs.NewArgs("no number"); err != nil {
		t.Fatal(err)
	}
	var bad *handler.UndecodableError
	if err := h.Run(t.Context(), new(ojs.JobHeader), args); !errors.As(err, &bad) {
		t.Errorf("error %v", err)
	}
}

func TestBatchOptions(t *testing.T) {
	one := func(context.Context, *ojs.Job[int]) error { return nil }
	for name, f := range map[string]func(){
		"no function":      func() { handler.ForBatch(row, nil) },
		"no jobs":          func() { handler.WithBatch(0, time.Second) },
		"a negative wait":  func() { handler.WithBatch(1, -1) },
		"no key":           func() { handler.BatchBy[int](nil) },
		"a key of others":  func() { handler.ForBatch(row, succeed, handler.BatchBy(strings.ToLower)) },
		"WithBatch on For": func() { handler.For(row, one, handler.WithBatch(1, time.Second)) },
		"BatchBy on For":   func() { handler.For(row, one, handler.BatchBy(func(int) string { return "" })) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if p := recover(); p == nil || !strings.HasPrefix(fmt.Sprint(p), "ojs: ") {
					t.Errorf("panic %v", p)
				}
			}()
			f()
		})
	}
}

// Under load each job is in one call, and no call has more than it may.
func TestBatchUnderLoad(t *testing.T) {
	defer goleak.VerifyNone(t)
	store := memory.New()
	defer store.Close()
	eng, err := engine.New[int](store, engine.WithConcurrency(50))
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 5000
	var mu sync.Mutex
	seen := make(map[int]int)
	digit := func(n int) string { return fmt.Sprint(n % 10) }
	eng.Register(handler.ForBatch(row, func(_ context.Context, jobs []*ojs.Job[int]) []error {
		mu.Lock()
		defer mu.Unlock()
		errs := make([]error, len(jobs))
		for i, job := range jobs {
			if seen[job.Args]++; len(jobs) > 20 || job.Args%10 != jobs[0].Args%10 {
				errs[i] = ojs.Discard(fmt.Errorf("%d beside %d of %d", job.Args, jobs[0].Args, len(jobs)))
			}
		}
		return errs
	}, handler.WithBatch(20, time.Millisecond), handler.BatchBy(digit)))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	var drafts []ojs.Draft
	for n := range jobs {
		drafts = append(drafts, row.New(n))
	}
	tickets, err := eng.EnqueueMany(ctx, drafts...)
	if err != nil {
		t.Fatal(err)
	}
	for _, ticket := range tickets {
		if job, err := ticket.Wait(ctx); err != nil || job.State != ojs.StateCompleted {
			t.Fatalf("%v: %v", job, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for n := range jobs {
		if seen[n] != 1 {
			t.Errorf("job %d ran %d times", n, seen[n])
		}
	}
}
