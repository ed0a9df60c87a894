package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// tight is a retention that keeps next to nothing.
var tight = engine.WithRetention(engine.Retention{MaxFinished: 10, MaxDeadLetters: 10, MinAge: -1})

// drown has 500 other jobs finish, after which retention has pruned what it may.
func drown(b *rig) {
	for range 500 {
		b.enqueue("other")
	}
	b.advance(0)
}

func TestResults(t *testing.T) {
	double := func(ctx context.Context, job *ojs.Job[any]) error {
		return handler.SetResult(ctx, 2*job.Args.(float64))
	}
	start := func(b *rig) {
		b.handle("double", double)
		b.handle("fail", func(context.Context, *ojs.Job[any]) error { return ojs.Permanent(errBoom) })
		b.handle("dead", func(context.Context, *ojs.Job[any]) error { return ojs.DeadLetter(errBoom) })
		b.handle("other", nothing)
		b.run()
	}
	t.Run("P1.4 a program that enqueues first and waits afterwards finds every result", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			start(b)
			tickets := make([]ojs.Ticket, 10_500) // more than retention keeps
			for i := range tickets {
				tickets[i] = must1(b.Enqueue(b.ctx, "double", i))
			}
			b.advance(time.Second)
			for i, ticket := range tickets {
				var got int
				if err := ticket.Result(b.ctx, &got); err != nil || got != 2*i {
					t.Fatalf("job %d: %d, %v", i, got, err)
				}
			}
			b.advance(time.Hour)
			if stats, err := b.Stats(b.ctx); err != nil || stats.Total[ojs.StateCompleted] != 10_000 {
				t.Errorf("an hour later: %v, %v", stats.Total, err)
			}
		})
	})
	t.Run("P1.4 result_ttl keeps a job whatever its number, from its end on", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			start(b)
			keep := ojs.WithResultTTL(time.Hour)
			completed := must1(b.Enqueue(b.ctx, "double", 21, keep))
			late := must1(b.Enqueue(b.ctx, "double", 4, keep, ojs.WithDelay(30*time.Minute)))
			failed, dead := b.enqueue("fail", keep), b.enqueue("dead", keep)
			cancelled := b.enqueue("double", keep, ojs.WithDelay(time.Hour))
			must(t, b.Cancel(b.ctx, cancelled.ID))
			forever := must1(b.Enqueue(b.ctx, "double", 5, ojs.WithResultTTL(ojs.KeepForever)))
			b.advance(time.Hour - time.Millisecond)
			drown(b)
			for range 100 {
				b.enqueue("dead")
			}
			b.advance(0)
			var got int
			if err := completed.Result(b.ctx, &got); err != nil || got != 42 {
				t.Errorf("completed: %d, %v", got, err)
			}
			for name, ticket := range map[string]ojs.Ticket{
				"failed": failed, "dead": dead, "cancelled": cancelled,
			} {
				var ended *ojs.EndedError
				if _, err := ticket.Wait(b.ctx); !errors.As(err, &ended) {
					t.Errorf("%s: %v", name, err)
				}
			}
			b.advance(time.Millisecond)
			drown(b)
			for range 100 {
				b.enqueue("dead")
			}
			b.advance(0)
			for name, ticket := range map[string]ojs.Ticket{
				"completed": completed, "failed": failed, "dead": dead, "cancelled": cancelled,
			} {
				if _, err := ticket.Wait(b.ctx); !errors.Is(err, ojs.ErrPruned) {
					t.Errorf("%s after an hour: %v", name, err)
				}
			}
			if err := late.Result(b.ctx, &got); err != nil || got != 8 {
				t.Errorf("late: %d, %v", got, err)
			}
			b.advance(1000 * 24 * time.Hour)
			if err := forever.Result(b.ctx, &got); err != nil || got != 10 {
				t.Errorf("forever: %d, %v", got, err)
			}
		}, tight)
	})
	t.Run("P1.4 result_ttl is a default of a type", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			kept := ojs.Define[float64]("kept", ojs.WithResultTTL(time.Hour))
			b.Register(handler.For(kept,
				handler.Returning(func(_ context.Context, job *ojs.Job[float64]) (float64,
					error) {
					return 2 * job.Args, nil
				})))
			start(b)
			ticket := must1(kept.Enqueue(b.ctx, b, 21))
			drown(b)
			var got float64
			if err := ticket.Result(b.ctx, &got); err != nil || got != 42 {
				t.Errorf("%v, %v", got, err)
			}
		}, tight)
	})
	t.Run("P1.4 result_ttl 0: the result is not stored", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			start(b)
			ticket := must1(b.Enqueue(b.ctx, "double", 21, ojs.WithResultTTL(0)))
			if job, err := ticket.Wait(b.ctx); err != nil || job.State != ojs.StateCompleted ||
				job.Result != nil {
				t.Errorf("%+v, %v", job, err)
			}
		})
	})
	t.Run("P1.4 pruned is another thing than not found", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			start(b)
			ticket, dead := must1(b.Enqueue(b.ctx, "double", 21)), b.enqueue("dead")
			theirs := must1(b.Enqueue(b.ctx, "double", 22, ojs.WithResultTTL(time.Hour)))
			b.advance(0)
			drown(b)
			must(t, b.DeadLetters().Delete(b.ctx, dead.ID))
			other, err := engine.New[any](b.store, quiet) // which has not deleted the ticket's job
			must(t, err)
			must(t, other.Jobs().Delete(b.ctx, theirs.ID))
			var got int
			_, byTicket := ticket.Wait(b.ctx)
			_, byID := b.Wait(b.ctx, ticket.ID)
			_, lookup := b.Get(b.ctx, ticket.ID)
			_, deleted := b.Get(b.ctx, dead.ID)
			_, elsewhere := other.Wait(b.ctx, ticket.ID)
			for name, tt := range map[string]struct{ err, want error }{
				"a ticket":                  {byTicket, ojs.ErrPruned},
				"a ticket's result":         {ticket.Result(b.ctx, &got), ojs.ErrPruned},
				"a ticket of another's":     {second(theirs.Wait(b.ctx)), ojs.ErrPruned},
				"Wait":                      {byID, ojs.ErrPruned},
				"Get":                       {lookup, ojs.ErrPruned},
				"Get of a deleted job":      {deleted, ojs.ErrPruned},
				"Cancel":                    {b.Cancel(b.ctx, ticket.ID), ojs.ErrPruned},
				"Jobs.Delete":               {b.Jobs().Delete(b.ctx, ticket.ID), ojs.ErrPruned},
				"Jobs.Retry":                {b.Jobs().Retry(b.ctx, ticket.ID), ojs.ErrPruned},
				"Jobs.SetPriority":          {b.Jobs().SetPriority(b.ctx, ticket.ID, 1), ojs.ErrPruned},
				"DeadLetters.Retry":         {b.DeadLetters().Retry(b.ctx, dead.ID), ojs.ErrPruned},
				"DeadLetters.Delete":        {b.DeadLetters().Delete(b.ctx, dead.ID), ojs.ErrPruned},
				"an engine that cannot say": {elsewhere, ojs.ErrNotFound},
				"Get of no job":             {second(b.Get(b.ctx, "nope")), ojs.ErrNotFound},
				"Wait for no job":           {second(b.Wait(b.ctx, "nope")), ojs.ErrNotFound},
				"Cancel of no job":          {b.Cancel(b.ctx, "nope"), ojs.ErrNotFound},
			} {
				for _, err := range []error{ojs.ErrPruned, ojs.ErrNotFound} {
					if errors.Is(tt.err, err) != (err == tt.want) {
						t.Errorf("%s: %v", name, tt.err)
					}
				}
				if tt.err == nil || !strings.Contains(tt.err.Error(), "ojs.WithResultTTL") {
					t.Errorf("%s does not say what to do: %v", name, tt.err)
				}
			}
		}, tight)
	})
	t.Run("P1.4 a Wait that is under way gets the outcome, however fast retention is", func(t *testing.T) {
		inBubbleOn(t, hooked(vanishes), func(b *rig) {
			start(b)
			outcomes := make(chan string)
			for name, ticket := range map[string]ojs.Ticket{
				"double":  must1(b.Enqueue(b.ctx, "double", 21, ojs.WithDelay(time.Second))),
				"dead":    b.enqueue("dead", ojs.WithDelay(time.Second)),
				"expired": b.enqueue("none", ojs.WithTTL(time.Second)),
			} {
				for _, wait := range []func() (*ojs.JobInfo, error){
					func() (*ojs.JobInfo, error) { return ticket.Wait(b.ctx) }, func() (*ojs.JobInfo,
						error) {
						return b.Wait(b.ctx, ticket.ID)
					},
				} {
					go func() {
						job, err := wait()
						var ended *ojs.EndedError
						switch {
						case err == nil:
							outcomes <- name + " " + string(job.Result)
						case errors.As(err, &ended):
							outcomes <- name + " " + job.Error.Type
						default:
							outcomes <- name + ": " + err.Error()
						}
					}()
				}
			}
			b.advance(time.Second)
			got := make(map[string]int)
			for range 6 {
				got[<-outcomes]++
			}
			if got["double 42"] != 2 || got["dead error"] != 2 || got["expired expired"] != 2 {
				t.Errorf("%v", got)
			}
			late := must1(b.Enqueue(b.ctx, "double", 21))
			b.advance(0)
			if _, err := late.Wait(b.ctx); !errors.Is(err, ojs.ErrPruned) {
				t.Errorf("a Wait after the end: %v", err)
			}
		})
	})
}

// vanishes is a hook of a storage whose jobs are gone as soon as they have ended.
func vanishes(c *storagetest.Call) {
	if c.Method != "Get" {
		return
	}
	if c.Do(); c.Err == nil && c.Out.(storage.Record).State.Terminal() {
		c.Err = ojs.ErrNotFound
	}
}

func TestMinAge(t *testing.T) {
	var logged bytes.Buffer
	warnings := func() (n int) {
		for _, l := range lines(t, &logged) {
			if msg, _ := l["msg"].(string); strings.Contains(msg, "deleted by number") {
				n++
			}
		}
		return n
	}
	logger := engine.WithLogger(
		slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn})))
	retention := func(minAge time.Duration) []engine.Option {
		return []engine.Option{logger,
			engine.WithRetention(engine.Retention{MaxFinished: 100, MinAge: minAge})}
	}
	completed := func(b *rig) int {
		stats, err := b.Stats(b.ctx)
		must(b.t, err)
		return stats.Total[ojs.StateCompleted]
	}
	run := func(b *rig, n int) {
		for range n {
			b.enqueue("other")
		}
		b.advance(0)
	}
	t.Run("younger jobs are kept beyond the number, until they are old enough", func(t *testing.T) {
		logged.Reset()
		inBubble(t, func(b *rig) {
			b.handle("other", nothing)
			b.run()
			run(b, 900)
			if n := completed(b); n != 900 {
				t.Errorf("%d are kept, not 900", n)
			}
			b.advance(time.Minute + time.Millisecond)
			run(b, 64) // for which there is a look
			if n := completed(b); n < 100 || n > 100+64 {
				t.Errorf("%d are kept after a minute", n)
			}
			if n := warnings(); n != 0 {
				t.Errorf("%d warnings", n)
			}
		}, retention(0)...)
	})
	t.Run("an idle engine prunes them, and then asks nothing more", func(t *testing.T) {
		counted := &storagetest.Faulty{Storage: memory.New()}
		inBubbleOn(t, counted, func(b *rig) {
			b.handle("other", nothing)
			b.run()
			run(b, 900)
			b.advance(5*time.Minute + time.Second)
			if n := completed(b); n != 100 {
				t.Errorf("%d are kept after five minutes", n)
			}
			b.advance(time.Hour)
			before := counted.Calls("Claim", "Due", "Prune")
			b.advance(6 * 24 * time.Hour)
			if n := counted.Calls("Claim", "Due", "Prune") - before; n != 0 {
				t.Errorf("%d more calls of the storage", n)
			}
		}, retention(0)...)
	})
	t.Run("ten times the number is the most, and beyond it there is one warning in each Run", func(t *testing.T) {
		logged.Reset()
		inBubble(t, func(b *rig) {
			b.handle("other", nothing)
			for range 2 {
				b.run()
				run(b, 3000)
				if n := completed(b); n < 1000 || n > 1000+64 {
					t.Errorf("%d are kept", n)
				}
				b.halt()
			}
			if n := warnings(); n != 2 {
				t.Errorf("%d warnings, not 2", n)
			}
		}, retention(0)...)
	})
	t.Run("without it the number alone counts", func(t *testing.T) {
		logged.Reset()
		inBubble(t, func(b *rig) {
			b.handle("other", nothing)
			b.run()
			run(b, 3000)
			if n := completed(b); n < 100 || n > 100+64 {
				t.Errorf("%d are kept", n)
			}
			if n := warnings(); n != 0 {
				t.Errorf("%d warnings", n)
			}
		}, retention(-1)...)
	})
}

func must1[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

func second[V any](_ V, err error) error { return err }
