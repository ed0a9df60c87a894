package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// onFaulty runs f in a bubble with a running engine on a storage that may fail, and that
// tells of nothing.
func onFaulty(t *testing.T, f func(b *rig, s *storagetest.Faulty), opts ...engine.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &storagetest.Faulty{Storage: bare{memory.New()}}
		b := &rig{t: t, ctx: context.Background(), store: s, start: time.Now(), ended: make(chan error, 1)}
		eng, err := engine.New[any](s, append([]engine.Option{quiet}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		b.Engine = eng
		b.run()
		f(b, s)
		s.OnCall(nil)
		b.halt()
	})
}

// gated is a storage with a hook that holds back the answers of claims.
type gated struct {
	*storagetest.Faulty
	hold chan chan struct{} // the next claim takes a gate, if there is one, and returns when that is closed
}

func newGated() *gated {
	g := &gated{hold: make(chan chan struct{}, 1)}
	g.Faulty = hooked(func(c *storagetest.Call) {
		if c.Method != "Claim" {
			return
		}
		c.Do()
		select {
		case gate := <-g.hold:
			<-gate
		default:
		}
	})
	return g
}

// onGated runs f in a bubble with a running engine on a gated storage.
func onGated(t *testing.T, f func(b *rig, s *gated)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newGated()
		b := &rig{t: t, ctx: context.Background(), store: s, start: time.Now(), ended: make(chan error, 1)}
		eng, err := engine.New[any](s, quiet, engine.WithConcurrency(2))
		if err != nil {
			t.Fatal(err)
		}
		b.Engine = eng
		b.run()
		f(b, s)
		b.halt()
	})
}

// A job that the storage claimed for a Fetch whose context ended meanwhile has no worker.
// The engine gives it back before its lease ends.
func TestFetchEndsWhileTheStorageClaims(t *testing.T) {
	s := &storagetest.Faulty{Storage: memory.New()}
	inBubbleOn(t, s, func(b *rig) {
		b.run()
		id := b.enqueue("x", noJitter, ojs.WithLease(time.Minute)).ID
		b.advance(time.Second)
		ctx, cancel := context.WithCancel(b.ctx)
		claimed := 0
		s.OnCall(func(c *storagetest.Call) {
			if c.Method != "Claim" {
				return
			}
			if c.Do(); len(c.Out.([]storage.Record)) > 0 {
				claimed++
				cancel()
				c.Err = c.Context.Err()
			}
		})
		_, err := b.Worker("w", fetch.Config{}).Fetch(ctx)
		if !errors.Is(err, context.Canceled) || claimed != 1 {
			t.Fatalf("Fetch: %v, after %d claims", err, claimed)
		}
		s.OnCall(nil)
		b.advance(59 * time.Second)
		b.want(id, ojs.StateAvailable, 0)
	})
}

// A job that is cancelled after it has been claimed and before its handler runs does not
// run.
func TestCancelBetweenClaimAndRun(t *testing.T) {
	onGated(t, func(b *rig, s *gated) {
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		synctest.Wait() // the new handler has made the engine look
		gate := make(chan struct{})
		s.hold <- gate
		ticket := b.enqueue("x")
		synctest.Wait()
		b.want(ticket.ID, ojs.StateActive, 1)
		if err := b.Cancel(b.ctx, ticket.ID); err != nil {
			t.Fatal(err)
		}
		other := b.enqueue("x")
		close(gate)
		b.advance(time.Second)
		b.want(ticket.ID, ojs.StateCancelled, 1)
		b.want(other.ID, ojs.StateCompleted, 1)
		if len(b.times()) != 1 {
			t.Errorf("%d handlers ran", len(b.times()))
		}
	})
}

// A claim whose answer comes when the grace period is over gives the job back.
func TestClaimAfterGracePeriod(t *testing.T) {
	onGated(t, func(b *rig, s *gated) {
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		synctest.Wait() // the new handler has made the engine look
		gate := make(chan struct{})
		s.hold <- gate
		ticket := b.enqueue("x")
		synctest.Wait()
		time.AfterFunc(engine.DefaultGracePeriod+500*time.Millisecond, func() { close(gate) })
		b.halt()
		if job := b.job(ticket.ID); !job.State.Waiting() || job.Attempt != 0 {
			t.Errorf("job is %s at attempt %d", job.State, job.Attempt)
		}
		if len(b.times()) > 0 {
			t.Error("a handler has run for it")
		}
		b.run()
		b.advance(time.Second)
		b.want(ticket.ID, ojs.StateCompleted, 1)
	})
}

// A job that was cancelled before the answer of its claim came does not start. So it is
// if the Run that has claimed it has ended.
func TestCancelOfAClaimOverAStop(t *testing.T) {
	for name, again := range map[string]bool{"between runs": false, "in the next run": true} {
		t.Run(name, func(t *testing.T) {
			onGated(t, func(b *rig, s *gated) {
				b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
				sub := b.Subscribe(engine.EventFilter{
					Types: []event.Type{event.Started, event.Cancelled},
				})
				defer sub.Close()
				synctest.Wait() // the new handler has made the engine look
				gate := make(chan struct{})
				s.hold <- gate
				ticket := b.enqueue("x")
				synctest.Wait()
				b.stop()
				if err := <-b.ended; !errors.Is(err, engine.ErrUnanswered) {
					t.Errorf("Run: %v", err)
				}
				if again {
					b.run()
				}
				must(t, b.Cancel(b.ctx, ticket.ID))
				close(gate)
				synctest.Wait()
				if !again {
					b.run()
				}
				b.advance(time.Second)
				b.want(ticket.ID, ojs.StateCancelled, 1)
				if ev := <-sub.C(); ev.Type != event.Cancelled || len(sub.C()) > 0 {
					t.Errorf("%s, and %d events after it", ev.Type, len(sub.C()))
				}
			})
		})
	}
}

// A claim that waits for another one while Run ends takes nothing.
func TestClaimThatWaitsOverAStop(t *testing.T) {
	onGated(t, func(b *rig, s *gated) {
		gate := make(chan struct{})
		s.hold <- gate
		ctx, leave := context.WithCancel(b.ctx)
		fetched := make(chan error, 1)
		w := b.Worker("w", fetch.Config{Types: []string{"other"}})
		go func() { _, err := w.Fetch(ctx); fetched <- err }()
		synctest.Wait()
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		ticket := b.enqueue("x")
		synctest.Wait() // the engine's claim waits for that of Fetch
		b.stop()
		if err := <-b.ended; !errors.Is(err, engine.ErrUnanswered) {
			t.Errorf("Run: %v", err)
		}
		close(gate)
		synctest.Wait()
		rec, err := s.Get(b.ctx, ticket.ID)
		if err != nil || rec.State != ojs.StateAvailable || rec.Version != 1 {
			t.Errorf("%s, version %d, %v; want available, version 1", rec.State, rec.Version, err)
		}
		leave()
		<-fetched
		b.run()
		b.advance(time.Second)
		b.want(ticket.ID, ojs.StateCompleted, 1)
	})
}

// A claim whose answer comes late must not take the place of a job that came meanwhile.
func TestLateClaimLosesNoWakeUp(t *testing.T) {
	onGated(t, func(b *rig, s *gated) {
		b.handle("long", func(context.Context, *ojs.Job[any]) error { pace.Virtual(time.Second); return nil })
		b.handle("short", func(context.Context, *ojs.Job[any]) error { return nil })
		b.enqueue("long")
		synctest.Wait()
		gate := make(chan struct{})
		s.hold <- gate
		b.enqueue("short")     // claimed, but the worker does not know yet
		b.advance(time.Second) // the long one ends, and its worker finds nothing
		last := b.enqueue("short")
		close(gate)
		b.advance(time.Second)
		b.want(last.ID, ojs.StateCompleted, 1)
	})
}

// before reports whether less than d has passed.
func before(b *rig, d time.Duration) func() bool { return func() bool { return b.elapsed() < d } }

func TestStorageFails(t *testing.T) {
	ok := func(context.Context, *ojs.Job[any]) error { return nil }
	for _, op := range []string{"Claim", "Settle"} {
		t.Run(op+" recovers with backoff", func(t *testing.T) {
			onFaulty(t, func(b *rig, s *storagetest.Faulty) {
				b.handle("x", ok)
				s.OnCall(breaks(op, false, before(b, time.Minute)))
				ticket := b.enqueue("x")
				b.advance(2 * time.Minute)
				job := b.want(ticket.ID, ojs.StateCompleted, 1)
				if len(b.times()) != 1 {
					t.Errorf("ran %d times", len(b.times()))
				}
				took := job.FinishedAt.Sub(b.start)
				if op == "Claim" && (took < time.Minute || took > 100*time.Second) {
					t.Errorf("completed after %v", took)
				}
			})
		})
	}
	t.Run("due recovers with backoff", func(t *testing.T) {
		onFaulty(t, func(b *rig, s *storagetest.Faulty) {
			b.handle("x", ok)
			s.OnCall(breaks("Due", false, before(b, time.Minute)))
			ticket := b.enqueue("x", ojs.WithDelay(10*time.Second))
			b.advance(2 * time.Minute)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		})
	})
	t.Run("a lease that cannot be renewed is lost, and its attempt told", func(t *testing.T) {
		onFaulty(t, func(b *rig, s *storagetest.Faulty) {
			b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
				if job.Attempt == 2 {
					return nil
				}
				<-ctx.Done()
				if context.Cause(ctx) != ojs.ErrLeaseLost || b.elapsed() != time.Minute {
					t.Errorf("cause %v at %v", context.Cause(ctx), b.elapsed())
				}
				return nil // refused
			})
			s.OnCall(breaks("Extend", false, before(b, time.Hour)))
			ticket := b.enqueue("x", ojs.WithLease(time.Minute), noJitter)
			b.advance(time.Minute)
			job := b.want(ticket.ID, ojs.StateRetryable, 1)
			if job.Error.Type != policy.ErrorTypeLeaseExpired {
				t.Errorf("failure %+v", job.Error)
			}
			b.advance(time.Second)
			b.want(ticket.ID, ojs.StateCompleted, 2)
		})
	})
	t.Run("a job that another took over is lost at the next renewal", func(t *testing.T) {
		onFaulty(t, func(b *rig, s *storagetest.Faulty) {
			b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
				<-ctx.Done()
				b.ran()
				return context.Cause(ctx)
			})
			ticket := b.enqueue("x", ojs.WithLease(time.Minute))
			b.advance(time.Second)
			rec, err := s.Get(b.ctx, ticket.ID)
			if err != nil {
				t.Fatal(err)
			}
			rec.State, rec.FinishedAt = ojs.StateCancelled, time.Now() // from another process
			if out, err := s.Settle(b.ctx, time.Now(), []storage.Change{{Record: rec}}, nil); err != nil ||
				out[0].Err != nil {
				t.Fatal(out, err)
			}
			b.advance(20 * time.Second)
			if times := b.times(); len(times) != 2 || times[1] != 20*time.Second {
				t.Errorf("told at %v", times)
			}
			b.want(ticket.ID, ojs.StateCancelled, 1)
		})
	})
	t.Run("an overrun attempt is settled when the storage is back, and others keep their leases", func(t *testing.T) {
		onFaulty(t, func(b *rig, s *storagetest.Faulty) {
			b.handle("stuck",
				func(context.Context, *ojs.Job[any]) error { pace.Virtual(time.Hour); return nil })
			b.handle("long",
				func(context.Context, *ojs.Job[any]) error { pace.Virtual(10 * time.Minute); return nil })
			s.OnCall(breaks("Settle", false, before(b, 5*time.Minute)))
			stuck := b.enqueue("stuck", ojs.WithTimeout(time.Minute), ojs.WithMaxAttempts(1))
			long := b.enqueue("long", ojs.WithLease(time.Second))
			b.advance(4 * time.Minute)
			b.want(stuck.ID, ojs.StateActive, 1)
			b.want(long.ID, ojs.StateActive, 1)
			b.advance(2 * time.Minute)
			if job := b.want(stuck.ID, ojs.StateDiscarded, 1); job.Error.Type != policy.ErrorTypeTimeout {
				t.Errorf("failure %+v", job.Error)
			}
			b.advance(time.Hour)
			b.want(stuck.ID, ojs.StateDiscarded, 1)
			b.want(long.ID, ojs.StateCompleted, 1)
		})
	})
	t.Run("an overrun attempt whose handler returns while its settle fails keeps its lease", func(t *testing.T) {
		onFaulty(t, func(b *rig, s *storagetest.Faulty) {
			b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
				<-ctx.Done()
				<-time.After(26 * time.Second) // a second longer than the grace period
				return nil
			})
			fails := before(b, 5*time.Minute)
			s.OnCall(func(c *storagetest.Call) {
				if c.Method == "Settle" && fails() {
					<-time.After(2 * time.Second)
					c.Err = errStorage
				}
			})
			opts := []ojs.Option{ojs.WithTimeout(time.Minute), ojs.WithMaxAttempts(1)}
			id := b.enqueue("x", append(opts, ojs.WithLease(3*time.Second))...).ID
			b.advance(4 * time.Minute)
			b.want(id, ojs.StateActive, 1)
			b.advance(70 * time.Second)
			if job := b.want(id, ojs.StateDiscarded, 1); job.Error.Type != policy.ErrorTypeTimeout {
				t.Errorf("failure %+v", job.Error)
			}
		})
	})
	t.Run("P1.8 stop while settling fails gives the job up, and says so", func(t *testing.T) {
		onFaulty(t, func(b *rig, s *storagetest.Faulty) {
			b.handle("x", ok)
			s.OnCall(breaks("Settle", false, nil))
			ticket := b.enqueue("x")
			b.advance(time.Second)
			b.stop()
			err := <-b.ended
			if !errors.Is(err, engine.ErrUnanswered) || !strings.Contains(err.Error(), ticket.ID) {
				t.Errorf("Run: %v, of job %s", err, ticket.ID)
			}
			b.want(ticket.ID, ojs.StateActive, 1)
			s.OnCall(nil)
			b.run()
			b.advance(time.Hour) // its lease runs out
			b.want(ticket.ID, ojs.StateCompleted, 2)
		})
	})
}

// A call that has stored outcomes and whose answer was lost is recognised at the next
// try: each job ends once, and each subscriber is told of it.
func TestAnswerOfASettleIsLost(t *testing.T) {
	for _, method := range []string{"Settle", "SettleAndClaim"} {
		t.Run(method, func(t *testing.T) {
			var lost atomic.Bool // the answer of the first call
			s := hooked(func(c *storagetest.Call) {
				if in, step := c.In.(storagetest.Step); c.Method == method && !(step && len(in.To) == 0) &&
					!lost.Swap(true) {
					c.Do()
					c.Err = errStorage
				}
			})
			store := storage.Storage(s)
			if method == "SettleAndClaim" {
				store = s.Stepping()
			}
			inBubbleOn(t, store, func(b *rig) {
				sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.Discarded}})
				defer sub.Close()
				b.handle("x", func(context.Context, *ojs.Job[any]) error { return errBoom })
				ticket, next := b.enqueue("x", ojs.WithMaxAttempts(1)), b.enqueue("x", ojs.WithMaxAttempts(1))
				b.run()
				b.advance(2 * time.Hour) // the lease of the job that the lost answer told of ends
				told := map[string]int{}
				for len(sub.C()) > 0 {
					told[(<-sub.C()).Subject]++
				}
				for _, id := range []string{ticket.ID, next.ID} {
					if job := b.want(id, ojs.StateDiscarded, 1); len(job.Errors) != 1 || told[id] != 1 {
						t.Errorf("told %d times of the errors %+v", told[id], job.Errors)
					}
				}
				if !lost.Load() {
					t.Error("no answer was lost")
				}
			}, engine.WithConcurrency(1))
		})
	}
}

// With every call failing one time in ten, before or after its effect, every job ends,
// and none runs twice at once.
func TestStorageFailsAtRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	onFaulty(t, func(b *rig, s *storagetest.Faulty) {
		rnd, chaos := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
		running := make(map[string]bool)
		var mu sync.Mutex
		b.Handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
			mu.Lock()
			if running[job.ID] {
				t.Errorf("seed %d: job runs twice at once", seed)
			}
			running[job.ID] = true
			sleep, fail := time.Duration(rnd.IntN(3000))*time.Millisecond, rnd.IntN(4) == 0
			mu.Unlock()
			pace.Virtual(sleep)
			mu.Lock()
			delete(running, job.ID)
			mu.Unlock()
			if fail {
				return errBoom
			}
			return nil
		})
		s.OnCall(func(c *storagetest.Call) {
			mu.Lock()
			mood := 2
			switch c.Method {
			case "Claim", "Settle", "Extend", "Due":
				mood = chaos.IntN(20)
			}
			mu.Unlock()
			switch mood {
			case 1:
				c.Do()
				fallthrough
			case 0:
				c.Err = errStorage
			}
		})
		var tickets []ojs.Ticket
		for range 300 {
			mu.Lock()
			delay := time.Duration(rnd.IntN(10)) * time.Second
			mu.Unlock()
			tickets = append(tickets, b.enqueue("x", ojs.WithMaxAttempts(20), ojs.WithLease(time.Minute),
				ojs.WithDelay(delay)))
		}
		b.advance(24 * time.Hour)
		for _, ticket := range tickets {
			if job := b.job(ticket.ID); !job.State.Terminal() {
				t.Errorf("seed %d: job is %s at attempt %d", seed, job.State, job.Attempt)
			}
		}
	})
}
