package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// A call that claims loses its answer. Its jobs do not wait for their leases: they go
// back unspent, and run.
func TestLostClaims(t *testing.T) {
	for _, method := range []string{"Claim", "SettleAndClaim"} {
		t.Run(method, func(t *testing.T) {
			faulty := &storagetest.Faulty{Storage: memory.New()}
			var store storage.Storage = faulty
			if method == "SettleAndClaim" {
				store = faulty.Stepping()
			}
			inBubbleOn(t, store, func(b *rig) {
				b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
				var ids []string
				for range 5 {
					ids = append(ids, b.enqueue("x").ID)
				}
				lost := 0
				faulty.OnCall(func(c *storagetest.Call) {
					if c.Method == method && lost < 2 {
						lost++
						c.Do()
						c.Err = errStorage
					}
				})
				b.run()
				b.advance(time.Second)
				for _, id := range ids {
					b.want(id, ojs.StateCompleted, 1)
				}
				if n := len(b.times()); n != 5 || lost != 2 {
					t.Errorf("%d runs after %d lost claims", n, lost)
				}
			}, engine.WithConcurrency(3))
		})
	}
	t.Run("of a worker that fetches", func(t *testing.T) {
		for _, steps := range []bool{false, true} {
			faulty := &storagetest.Faulty{Storage: memory.New()}
			var store storage.Storage = faulty
			if steps {
				store = faulty.Stepping()
			}
			inBubbleOn(t, store, func(b *rig) {
				b.run()
				w := b.Worker("w1", fetch.Config{})
				held := b.enqueue("x").ID
				d := fetched(b, w)
				id := b.enqueue("x").ID
				fails := true
				faulty.OnCall(func(c *storagetest.Call) {
					if fails && c.Method == "Claim" {
						fails = false
						c.Do()
						c.Err = errStorage
					}
				})
				if _, err := w.FetchWithin(b.ctx, 1, 0); !errors.Is(err, errStorage) {
					t.Fatalf("the fetch returned %v", err)
				}
				b.advance(time.Second)
				b.want(id, ojs.StateAvailable, 0)
				again, err := w.FetchWithin(b.ctx, 1, 0)
				if err != nil || len(again) != 1 || again[0].Job.ID != id || again[0].Job.Attempt != 1 {
					t.Fatalf("%d jobs, %v", len(again), err)
				}
				must(t, again[0].Ack(b.ctx, nil))
				b.want(held, ojs.StateActive, 1) // which was claimed at the same time
				b.advance(2 * time.Minute)       // with all looks
				must(t, d.Ack(b.ctx, nil))
			})
		}
	})
	t.Run("Insert", func(t *testing.T) {
		s := newClaimsNew()
		var mu sync.Mutex
		lost := 0
		store := &losing{claimsNew: s, lose: func() bool {
			mu.Lock()
			defer mu.Unlock()
			lost++
			return lost%3 == 1
		}}
		eng, err := engine.New[int](store, quiet, engine.WithConcurrency(8), keepAll)
		must(t, err)
		eng.Handle("quick", func(context.Context, *ojs.Job[int]) error { return nil })
		started(t, eng)
		for s.claimed.Load() < 5 {
			_, err := eng.Enqueue(t.Context(), "quick", 1)
			if err != nil && !errors.Is(err, errStorage) {
				t.Fatal(err)
			}
			must(t, eng.WaitIdle(t.Context()))
			stats, err := eng.Stats(t.Context())
			must(t, err)
			if n := stats.Total[ojs.StateActive]; n > 0 {
				t.Fatalf("%d jobs wait for their leases", n)
			}
		}
	})
}

// losing loses the answers of inserts that have claimed.
type losing struct {
	*claimsNew
	lose func() bool
}

func (s *losing) Insert(
	ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	out, err := s.claimsNew.Insert(ctx, now, batch, dst)
	if err == nil && len(out) > 0 && out[0].Claimed && s.lose() {
		return dst, errStorage
	}
	return out, err
}

// The server makes a claim that its client has given up, some time later.
func TestLateClaim(t *testing.T) {
	for _, late := range []time.Duration{500 * time.Millisecond, 5 * time.Second, 40 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			inner := memory.New()
			store := &storagetest.Faulty{Storage: inner}
			inBubbleOn(t, store, func(b *rig) {
				b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
				b.run()
				var ask *storage.Claim
				taken := false
				store.OnCall(func(c *storagetest.Call) {
					if q, ok := c.In.(storage.Claim); ok && c.Method == "Claim" {
						if ask == nil {
							ask = &q
							at := time.Now()
							time.AfterFunc(late, func() {
								recs, err := inner.Claim(context.Background(), at, q, nil)
								if err != nil || len(recs) != 1 {
									t.Errorf("%d jobs, %v", len(recs), err)
								}
								taken = true
							})
						}
						c.Err = errStorage
					}
				})
				id := b.enqueue("x").ID
				b.advance(late + time.Millisecond)
				if !taken {
					t.Fatal("the late claim was not made")
				}
				store.OnCall(nil)
				b.advance(72*time.Second - late)
				b.want(id, ojs.StateCompleted, 1)
			})
		})
	}
}

// The call that gives the job of a lost claim back loses its answer, too: a worker looks
// for the job all the same.
func TestLostGiveBack(t *testing.T) {
	inner := memory.New()
	faulty := &storagetest.Faulty{Storage: inner}
	inBubbleOn(t, faulty.Stepping(), func(b *rig) {
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		b.run()
		var claims, back atomic.Int32
		faulty.OnCall(func(c *storagetest.Call) {
			q, claim := c.In.(storage.Claim)
			if step, ok := c.In.(storagetest.Step); ok {
				q, claim = step.Claim, true
			}
			switch {
			case claim && claims.Add(1) == 1: // the server makes it later
				at := time.Now()
				q.Max, q.Limits = 1, nil // Limits is the engine's, which has ended the call
				time.AfterFunc(2*time.Second, func() { must1(inner.Claim(context.Background(), at, q, nil)) })
				c.Err = errStorage
			case claim && b.elapsed() < 3*time.Second: // or it would have the job first
				c.Err = errStorage
			case c.Method == "Unclaim" && b.elapsed() < 5*time.Second: // until the workers are idle
				c.Err = errStorage
			case c.Method == "Unclaim" && back.Add(1) == 1:
				c.Do()
				c.Err = errStorage
			}
		})
		id := b.enqueue("x").ID
		b.advance(30 * time.Second)
		if b.want(id, ojs.StateCompleted, 1); back.Load() == 0 {
			t.Error("no claim was undone")
		}
	})
}

// Lost answers make no job run twice, and no job waits for its lease.
func TestLostClaimsAtRandom(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		faulty := &storagetest.Faulty{Storage: memory.New()}
		var store storage.Storage = faulty
		if seed%2 == 0 {
			store = faulty.Stepping()
		}
		inBubbleOn(t, store, func(b *rig) {
			var mu sync.Mutex
			runs := make(map[string]int)
			b.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				mu.Lock()
				runs[job.ID]++
				n := len(runs)
				mu.Unlock()
				pace.Virtual(time.Duration(n%3) * time.Millisecond)
				return nil
			})
			faulty.OnCall(func(c *storagetest.Call) {
				mu.Lock()
				fails, after, slow := r.IntN(4) == 0, r.IntN(2) == 0, r.IntN(3) == 0
				mu.Unlock()
				switch c.Method {
				case "Claim", "SettleAndClaim", "ClaimedBy", "Unclaim":
				default:
					return
				}
				if slow {
					pace.Virtual(time.Millisecond)
				}
				if !fails {
					return
				}
				if after {
					c.Do()
				}
				c.Err = errStorage
			})
			b.run()
			for range 30 {
				for range 5 {
					b.enqueue("x")
				}
				mu.Lock()
				d := time.Duration(r.IntN(3)) * time.Millisecond
				mu.Unlock()
				b.advance(d)
			}
			b.advance(80 * time.Second)
			faulty.OnCall(nil)
			for id, n := range runs {
				if n != 1 {
					t.Errorf("seed %d: job %s ran %d times", seed, id, n)
				}
				b.want(id, ojs.StateCompleted, 1)
			}
			if len(runs) != 150 {
				t.Errorf("seed %d: %d jobs ran, not 150", seed, len(runs))
			}
		}, engine.WithConcurrency(4))
		if t.Failed() {
			return
		}
	}
}

// An attempt loses its lease, and its outcome is not stored. It was claimed at the time
// of a claim whose answer was lost. Its job does not go back unspent: its handler has
// run.
func TestLostLeaseIsNoLostClaim(t *testing.T) {
	faulty := &storagetest.Faulty{Storage: memory.New()}
	inBubbleOn(t, faulty, func(b *rig) {
		b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
			if job.Attempt == 1 {
				<-ctx.Done()
			}
			return nil
		})
		id := b.enqueue("x", noJitter, ojs.WithLease(8*time.Second)).ID
		var claims atomic.Int32
		faulty.OnCall(func(c *storagetest.Call) {
			switch c.Method {
			case "Claim":
				if claims.Add(1) == 2 {
					c.Err = errStorage
				}
			case "Extend":
				c.Err = errStorage
			case "Settle":
				if b.elapsed() < 9*time.Second {
					c.Err = errStorage
				}
			}
		})
		b.run()
		b.advance(15 * time.Second) // a look is at 11 s
		if b.want(id, ojs.StateActive, 1); len(b.times()) != 1 || claims.Load() < 2 {
			t.Errorf("ran at %v, %d claims", b.times(), claims.Load())
		}
		b.advance(time.Minute)
		b.want(id, ojs.StateCompleted, 2)
	}, engine.WithConcurrency(2))
}

// A stop gives up an outcome that the storage does not take. The attempt was claimed at
// the time of a claim whose answer was lost. Its job does not go back unspent, whether
// its handler has returned or goes on, and whether the call has failed or has no answer.
func TestOutcomeGivenUpIsNoLostClaim(t *testing.T) {
	for name, tt := range map[string]struct {
		handler, fails, hangs time.Duration
	}{
		"returned":          {fails: 4 * time.Second},
		"goes on":           {handler: 5 * time.Second, fails: 4 * time.Second},
		"without an answer": {fails: time.Second, hangs: 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			faulty := &storagetest.Faulty{Storage: memory.New()}
			inBubbleOn(t, faulty, func(b *rig) {
				b.handle("x", func(context.Context, *ojs.Job[any]) error {
					if len(b.times()) == 1 {
						<-time.After(tt.handler)
					}
					return nil
				})
				id := b.enqueue("x", noJitter, ojs.WithLease(time.Minute)).ID
				var claims atomic.Int32
				faulty.OnCall(func(c *storagetest.Call) {
					switch {
					case c.Method == "Claim" && claims.Add(1) == 2:
						c.Err = errStorage
					case c.Method == "Settle" && b.elapsed() < tt.fails:
						<-time.After(tt.hangs)
						c.Err = errStorage
					}
				})
				b.run()
				b.advance(time.Second)
				b.stop()
				<-b.ended
				b.run()
				b.advance(30 * time.Second) // with looks for the jobs of the lost claim
				if b.want(id, ojs.StateActive, 1); len(b.times()) != 1 || claims.Load() < 2 {
					t.Errorf("ran at %v, %d claims", b.times(), claims.Load())
				}
				b.advance(time.Minute)
				b.want(id, ojs.StateCompleted, 2)
			}, engine.WithConcurrency(2), engine.WithGracePeriod(time.Second))
		})
	}
}

// The lease of a job is over that a lost claim has taken, and another engine has it to
// settle (lease-3). It does not go back.
func TestLostClaimIsHandedOver(t *testing.T) {
	faulty := &storagetest.Faulty{Storage: memory.New()}
	inBubbleOn(t, faulty, func(b *rig) {
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		id := b.enqueue("x", noJitter, ojs.WithLease(time.Minute)).ID
		faulty.OnCall(func(c *storagetest.Call) {
			if c.Method == "Claim" {
				c.Do()
				c.Err = errStorage
			} else if c.Method == "ClaimedBy" {
				c.Err = errStorage
			}
		})
		b.run()
		b.advance(time.Second)
		b.stop()
		<-b.ended
		b.advance(2 * time.Minute)
		faulty.OnCall(nil)
		due, err := faulty.Due(b.ctx, time.Now(), 10, nil)
		if err != nil || len(due.Stalled) != 1 {
			t.Fatalf("%+v, %v", due, err)
		}
		b.run()
		b.advance(30 * time.Second)
		b.want(id, ojs.StateActive, 1)
		b.advance(time.Minute)
		b.want(id, ojs.StateCompleted, 2)
	})
}

// The wait that an enqueue TTL bounds has ended with a lost claim: its job is given back
// and runs, though the TTL is over by then.
func TestLostClaimEndsTheEnqueueTTL(t *testing.T) {
	faulty := &storagetest.Faulty{Storage: memory.New()}
	inBubbleOn(t, faulty.Stepping(), func(b *rig) {
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		b.run() // its first claim finds nothing
		var claims atomic.Int32
		faulty.OnCall(func(c *storagetest.Call) {
			switch {
			case c.Method == "Claim" && claims.Add(1) == 1:
				c.Do()
				c.Err = errStorage
			case c.Method == "ClaimedBy" && b.elapsed() < 5*time.Second:
				c.Err = errStorage
			}
		})
		id := b.enqueue("x", ojs.WithEnqueueTTL(2*time.Second)).ID
		b.advance(30 * time.Second)
		if b.want(id, ojs.StateCompleted, 1); claims.Load() < 2 {
			t.Error("no claim was lost")
		}
	})
}
