package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
)

// kindOfWork is what the job with a number does.
func kindOfWork(n int) string {
	if n >= 1_000_000 {
		return "child"
	}
	// Few, and at random places, so that most jobs are claimed ahead.
	switch h := uint32(n+1) * 2654435761 >> 8; h % 900 {
	case 7:
		return "fails once"
	case 17:
		return "panics"
	case 27:
		return "exits"
	case 37:
		return "blocks"
	case 47:
		return "sleeps"
	case 57:
		return "result"
	case 67:
		return "checkpoint"
	case 77:
		return "parent"
	case 87:
		return "waits"
	case 97:
		return "asks"
	case 107, 108, 109, 110, 111, 112, 113, 114:
		return "cancelled"
	case 117:
		return "spins"
	case 127:
		return "unique"
	}
	return "quick"
}

// Jobs of all kinds, most of which take next to no time, end as they must, run as often
// as they have attempts, and leave nothing behind.
func TestPrefetchUnderLoad(t *testing.T) {
	total := 15_000
	if !storm() {
		total = 3000
	}
	for _, c := range []struct {
		workers, producers int
		restarts, listens  bool
	}{{2, 1, false, false}, {8, 4, false, false}, {100, 2, false, true}, {8, 2, true, false},
		{2, 3, true, true}, {100, 4, true, false}} {
		t.Run(fmt.Sprintf("%d workers, %d producers, restarts %t, listens %t", c.workers, c.producers,
			c.restarts, c.listens), func(t *testing.T) {
			store := memory.New()
			eng, err := engine.New[int](store, quiet, engine.WithConcurrency(c.workers), keepAll)
			must(t, err)
			var mu sync.Mutex
			runs := make(map[string]int)
			at := make(map[string]bool)
			var children []string
			eng.Handle("work", func(ctx context.Context, job *ojs.Job[int]) error {
				mu.Lock()
				if at[job.ID] {
					t.Errorf("job %d runs twice at once", job.Args)
				}
				at[job.ID] = true
				runs[job.ID]++
				mu.Unlock()
				defer func() {
					mu.Lock()
					delete(at, job.ID)
					mu.Unlock()
				}()
				switch kindOfWork(job.Args) {
				case "fails once":
					if job.Attempt == 1 {
						return errBoom
					}
				case "panics":
					panic("boom")
				case "exits":
					runtime.Goexit()
				case "blocks":
					pace.Work(3 * time.Millisecond)
				case "sleeps":
					if err := handler.Sleep(ctx, 2*time.Millisecond); err != nil {
						return err
					}
				case "result":
					handler.Progress(ctx, 0.5)
					return handler.SetResult(ctx, job.Args)
				case "checkpoint":
					return handler.SaveCheckpoint(ctx, job.Args)
				case "parent", "waits":
					ticket, err := eng.Enqueue(ctx, "work", job.Args+1_000_000)
					if err != nil {
						return err
					}
					mu.Lock()
					children = append(children, ticket.ID)
					mu.Unlock()
					if kindOfWork(job.Args) == "waits" {
						waiting, enough := context.WithTimeout(ctx, 5*time.Millisecond)
						defer enough()
						_, err := ticket.Wait(waiting)
						if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
							return err
						}
					}
				case "asks":
					inner, stop := context.WithCancel(ctx)
					defer stop()
					return inner.Err()
				case "cancelled":
					if job.Args%2 == 0 {
						pace.Work(300 * time.Microsecond)
					}
				case "spins":
					for start := time.Now(); time.Since(start) < 2*time.Millisecond; {
					}
				}
				return nil
			})
			var tickets sync.Map // number: id
			var cancelled sync.Map
			var producers, cancels sync.WaitGroup
			for p := range c.producers {
				producers.Go(func() {
					for n := p; n < total; n += c.producers {
						opts := []ojs.Option{ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 3,
							InitialInterval: time.Millisecond, MaxInterval: time.Millisecond})}
						kind := kindOfWork(n)
						switch kind {
						case "panics", "exits":
							opts = append(opts, ojs.WithMaxAttempts(1))
						case "unique":
							opts = append(opts, ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs}))
						}
						ticket, err := eng.Enqueue(context.Background(), "work", n, opts...)
						if err != nil {
							t.Error(n, err)
							continue
						}
						tickets.Store(n, ticket.ID)
						if kind == "cancelled" {
							wait := time.Duration(rand.IntN(4)) * 500 * time.Microsecond
							cancels.Go(func() {
								pace.Work(wait)
								switch err := eng.Cancel(context.Background(), ticket.ID); {
								case err == nil:
									cancelled.Store(n, true)
								case !errors.Is(err, ojs.ErrTransition): // which says that it came too late
									t.Error(err)
								}
							})
						}
					}
				})
			}
			produced := make(chan struct{})
			go func() { producers.Wait(); cancels.Wait(); close(produced) }()
			if c.restarts {
				for going := true; going; {
					ctx, halt := context.WithTimeout(context.Background(),
						time.Duration(rand.IntN(20))*time.Millisecond)
					if err := eng.Run(ctx); err != nil {
						t.Error("Run:", err)
					}
					halt()
					if stats, err := eng.Stats(t.Context()); err != nil || stats.Total[ojs.StateActive] != 0 {
						t.Errorf("stopped with %v, %v", stats.Total, err)
					}
					select {
					case <-produced:
						going = false
					default:
					}
				}
			}
			stop := started(t, eng)
			if c.listens {
				for range 20 {
					sub := eng.Subscribe(engine.EventFilter{Buffer: 1 << 16})
					pace.Work(2 * time.Millisecond)
					sub.Close()
					for range sub.C() {
					}
					pace.Work(2 * time.Millisecond)
				}
			}
			<-produced
			ctx, enough := context.WithTimeout(t.Context(), time.Minute)
			defer enough()
			// Handlers asleep count as idle. A job that was interrupted comes due again.
			pace.Until(t, "all jobs have ended", func() bool {
				if err := eng.WaitIdle(ctx); err != nil {
					stats, _ := eng.Stats(t.Context())
					t.Fatalf("not idle: %v, %+v", err, stats)
				}
				stats, err := eng.Stats(ctx)
				must(t, err)
				waiting := stats.Total[ojs.StateRetryable] + stats.Total[ojs.StateAvailable] +
					stats.Total[ojs.StateActive]
				if waiting == 0 && (stats.Busy != 0 || stats.Stuck != 0) {
					t.Errorf("idle with %+v", stats)
				}
				return waiting == 0
			})
			if list := eng.Running(); len(list) != 0 {
				t.Errorf("%d handlers seem to run", len(list))
			}
			check := func(n int, id string) {
				job, err := eng.Get(t.Context(), id)
				must(t, err)
				kind := kindOfWork(n)
				state, attempts, ran := ojs.StateCompleted, 1, runs[id]
				switch kind {
				case "fails once":
					attempts = 2
				case "panics", "exits":
					state = ojs.StateDiscarded
				case "cancelled":
					if _, ok := cancelled.Load(n); ok {
						if job.State != ojs.StateCancelled || ran > 1 || job.Attempt < ran {
							t.Errorf("cancelled job %d is %s after %d attempts and %d runs", n, job.State,
								job.Attempt, ran)
						}
						return
					}
				}
				if job.State != state || job.Attempt != attempts || ran != attempts {
					t.Errorf("job %d, which %s, is %s after %d attempts and %d runs", n, kind, job.State,
						job.Attempt, ran)
				}
				if kind == "result" && string(job.Result) != strconv.Itoa(n) {
					t.Errorf("job %d has result %s", n, job.Result)
				}
			}
			for n := range total {
				id, ok := tickets.Load(n)
				if !ok {
					t.Errorf("no ticket of %d", n)
					continue
				}
				check(n, id.(string))
			}
			for _, id := range children {
				check(1_000_000, id)
			}
			stats, err := eng.Stats(ctx)
			must(t, err)
			sum := 0
			for _, n := range stats.Total {
				sum += n
			}
			if sum != total+len(children) {
				t.Errorf("%d jobs in all, not %d", sum, total+len(children))
			}
			stop()
		})
	}
}
