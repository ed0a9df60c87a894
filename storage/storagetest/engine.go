package storagetest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/policy"
)

// RunEngine proves that an engine works over the storage, in real time: jobs are
// enqueued, retried, lost and found, and outlive the stop of the engine. It is a smaller
// suite than Run, and takes a few seconds.
func RunEngine(t *testing.T, cfg Config) {
	t.Helper()
	cases := map[string]func(t *testing.T, e *engineRig){
		"Completes": func(t *testing.T, e *engineRig) {
			e.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
				return handler.SetResult(ctx, job.Args)
			})
			e.run()
			ticket := e.enqueue("x", "result")
			var got string
			if err := ticket.Result(e.ctx, &got); err != nil || got != "result" {
				t.Errorf("result %q, %v", got, err)
			}
		},
		"Retries": func(t *testing.T, e *engineRig) {
			e.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
				n := 0
				if _, err := handler.LoadCheckpoint(ctx, &n); err != nil || n != job.Attempt-1 {
					t.Errorf("attempt %d finds checkpoint %d, %v", job.Attempt, n, err)
				}
				if err := handler.SaveCheckpoint(ctx, job.Attempt); err != nil {
					t.Error(err)
				}
				if job.Attempt < 3 {
					return errors.New("not yet")
				}
				return nil
			})
			e.run()
			job, err := e.enqueue("x", nil,
				ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Millisecond})).Wait(e.ctx)
			if err != nil || job.Attempt != 3 || len(job.Errors) != 2 {
				t.Errorf("%+v, %v", job, err)
			}
		},
		"DeadLetters": func(t *testing.T, e *engineRig) {
			good := make(chan struct{})
			e.handle("x", func(context.Context, *ojs.Job[any]) error {
				select {
				case <-good:
					return nil
				default:
					return ojs.DeadLetter(errors.New("broken"))
				}
			})
			e.run()
			ticket := e.enqueue("x", nil)
			var ended *ojs.EndedError
			if _, err := ticket.Wait(e.ctx); !errors.As(err, &ended) || !ended.DeadLettered {
				t.Errorf("%v", err)
			}
			close(good)
			if err := e.DeadLetters().Retry(e.ctx, ticket.ID); err != nil {
				t.Error(err)
			}
			if _, err := ticket.Wait(e.ctx); err != nil {
				t.Error(err)
			}
		},
		"LosesItsLease": func(t *testing.T, e *engineRig) {
			w := e.Worker("gone", fetch.Config{})
			ticket := e.enqueue("x", nil, ojs.WithLease(200*time.Millisecond),
				ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Millisecond}))
			d, err := w.Fetch(e.ctx)
			if err != nil {
				t.Fatal(err)
			}
			e.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
			e.run()
			job, err := ticket.Wait(e.ctx)
			if err != nil || job.Attempt != 2 || job.Errors[0].Type != policy.ErrorTypeLeaseExpired {
				t.Errorf("%+v, %v", job, err)
			}
			if err := d.Ack(e.ctx, nil); !errors.Is(err, ojs.ErrLeaseLost) {
				t.Errorf("the late result: %v", err)
			}
		},
		"StopsAndResumes": func(t *testing.T, e *engineRig) {
			var mu sync.Mutex
			var attempts []int
			started := make(chan struct{}, 1)
			e.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
				mu.Lock()
				attempts = append(attempts, job.Attempt)
				first := len(attempts) == 1
				mu.Unlock()
				if first {
					started <- struct{}{}
					<-ctx.Done()
				}
				return ctx.Err()
			})
			e.run()
			ticket := e.enqueue("x", nil)
			waiting := e.enqueue("x", nil, ojs.WithDelay(50*time.Millisecond))
			<-started
			e.stop()
			e.run()
			for _, tk := range []ojs.Ticket{ticket, waiting} {
				if _, err := tk.Wait(e.ctx); err != nil {
					t.Error(err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if len(attempts) < 3 || slices.Max(attempts) != 1 {
				t.Errorf("attempts %v: what was stopped is not spent", attempts)
			}
		},
		"Unique": func(t *testing.T, e *engineRig) {
			once := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs, OnConflict: ojs.ConflictIgnore})
			first, second := e.enqueue("x", 1, once), e.enqueue("x", 1, once)
			if second.ID != first.ID || !second.Deduplicated {
				t.Errorf("%+v, %+v", first, second)
			}
		},
	}
	cases["PausesAType"] = func(t *testing.T, e *engineRig) {
		run := func(context.Context, *ojs.Job[any]) error { return nil }
		e.handle("x", run)
		e.handle("y", run)
		if _, err := e.Queues().PauseType(e.ctx, "x", ""); err != nil {
			t.Fatal(err)
		}
		e.run() // after the pause, since a claim under way would not obey it
		paused := e.enqueue("x", nil)
		if _, err := e.enqueue("y", nil).Wait(e.ctx); err != nil { // enqueued last, and it runs
			t.Error(err)
		}
		if info, err := e.Get(e.ctx, paused.ID); err != nil || info.State != ojs.StateAvailable {
			t.Errorf("a job of a paused type: %v, %v", info, err)
		}
		if _, err := e.Queues().ResumeType(e.ctx, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := paused.Wait(e.ctx); err != nil {
			t.Error(err)
		}
	}
	for name, f := range cases {
		t.Run("Engine/"+name, func(t *testing.T) {
			s := cfg.Open(t)
			defer closes(t, s)
			eng, err := engine.New[any](s, engine.WithGracePeriod(0),
				engine.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			late := wall.AfterFunc(watchdog, cancel)
			defer late.Stop()
			e := &engineRig{Engine: eng, t: t, ctx: ctx}
			defer e.stop()
			f(t, e)
		})
	}
}

// engineRig is an engine over the storage of a test.
type engineRig struct {
	*engine.Engine[any]
	t      *testing.T
	ctx    context.Context // ends when the test hangs
	cancel context.CancelFunc
	ended  chan error
}

func (e *engineRig) handle(jobType string, f handler.Func[any]) { e.Handle(jobType, f) }

func (e *engineRig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel, e.ended = cancel, make(chan error, 1)
	go func() { e.ended <- e.Run(ctx) }()
}

func (e *engineRig) stop() {
	e.t.Helper()
	if e.cancel == nil {
		return
	}
	e.cancel()
	e.cancel = nil
	if err := <-e.ended; err != nil {
		e.t.Errorf("Run: %v", err)
	}
}

func (e *engineRig) enqueue(jobType string, args any, opts ...ojs.Option) ojs.Ticket {
	e.t.Helper()
	ticket, err := e.Enqueue(e.ctx, jobType, args, opts...)
	if err != nil {
		e.t.Fatal(err)
	}
	return ticket
}
