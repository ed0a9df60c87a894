package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

// Round after round, 64 goroutines enqueue equal jobs at once, while the engine runs them
// and some of them are cancelled. With every strategy, two of them never coexist in the
// checked states, and none is lost.
func TestUniqueUnderFire(t *testing.T) {
	const goroutines = 64
	rounds := 120
	if !storm() {
		rounds = 20
	}
	for name, tt := range map[string]struct {
		conflicts []ojs.Conflict
		states    []ojs.State // nil: the default
		winners   int         // of each round; 0: any number from 1
	}{
		"C074 C075 C090 reject": {[]ojs.Conflict{ojs.ConflictReject}, ojs.AllStates(), 1},
		"C075 ignore":           {[]ojs.Conflict{ojs.ConflictIgnore}, ojs.AllStates(), 1},
		"C085 C091 replace":     {[]ojs.Conflict{ojs.ConflictReplace}, nil, goroutines},
		"C083 mixed": {[]ojs.Conflict{ojs.ConflictReject, ojs.ConflictIgnore, ojs.ConflictReplace,
			ojs.ConflictReplaceExceptSchedule}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			store := memory.New()
			defer store.Close()
			eng, err := engine.New[int](store, quiet, engine.WithConcurrency(4),
				engine.WithRetention(engine.Retention{MaxFinished: 1000}))
			must(t, err)
			eng.Handle("x", func(context.Context, *ojs.Job[int]) error {
				switch rand.IntN(4) {
				case 0:
					return errBoom
				case 1:
					return ojs.Discard(errBoom)
				}
				return nil
			})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- eng.Run(ctx) }()

			// Only the jobs of one round are ever open, and they are equal: there is at
			// most one.
			var watch sync.WaitGroup
			watch.Go(func() {
				for ctx.Err() == nil {
					counts, err := store.Counts(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					open := 0
					for _, c := range counts {
						if !c.State.Terminal() {
							open += c.N
						}
					}
					if open > 1 {
						t.Errorf("%d equal jobs coexist: %v", open, counts)
						return
					}
					runtime.Gosched()
				}
			})
			for round := range rounds {
				var barrier, done sync.WaitGroup
				barrier.Add(1)
				var winners, losers atomic.Int32
				ids := make(chan string, goroutines)
				for range goroutines {
					done.Go(func() {
						c := tt.conflicts[rand.IntN(len(tt.conflicts))]
						barrier.Wait()
						ticket, err := eng.Enqueue(ctx, "x", round,
							ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs, States: tt.states,
								OnConflict: c}),
							ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 2, InitialInterval: 1,
								MaxInterval: 1}))
						switch {
						case errors.Is(err, ojs.ErrDuplicate) || err == nil && ticket.Deduplicated:
							losers.Add(1)
						case err != nil:
							t.Error(err)
						default:
							winners.Add(1)
							ids <- ticket.ID
						}
						if err == nil && rand.IntN(16) == 0 {
							if err := eng.Cancel(ctx, ticket.ID); err != nil &&
								!errors.Is(err, ojs.ErrTransition) {
								t.Error(err)
							}
						}
					})
				}
				barrier.Done()
				done.Wait()
				close(ids)
				if n := int(winners.Load()); n+int(losers.Load()) != goroutines || n < 1 ||
					tt.winners > 0 && n != tt.winners {
					t.Fatalf("round %d: %d winners, %d losers", round, n, losers.Load())
				}
				for id := range ids {
					if job, err := eng.Wait(ctx, id); job == nil || !job.State.Terminal() {
						t.Fatalf("job %s is lost: %v", id, err)
					}
				}
			}
			stop()
			watch.Wait()
			must(t, <-ended)
		})
	}
}

// BenchmarkEnqueue compares a unique enqueue with a plain one, and shows that neither
// depends on how much is stored.
func BenchmarkEnqueue(b *testing.B) {
	type args struct {
		N int
		S string
	}
	plain := []ojs.Option{}
	whole := []ojs.Option{ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs, OnConflict: ojs.ConflictIgnore})}
	typeOnly := []ojs.Option{ojs.WithUnique(ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore})}
	enqueue := func(b *testing.B, stored int, seed, opts []ojs.Option, arg func(i int) args) {
		store := memory.New()
		defer store.Close()
		eng, err := engine.New[any](store)
		if err != nil {
			b.Fatal(err)
		}
		drafts := make([]ojs.Draft, 0, 1000)
		for i := 0; i < stored; i++ {
			drafts = append(drafts, ojs.NewDraft("x", args{-i, "x"}, seed...))
			if len(drafts) == cap(drafts) || i == stored-1 {
				if _, err := eng.EnqueueMany(b.Context(), drafts...); err != nil {
					b.Fatal(err)
				}
				drafts = drafts[:0]
			}
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			if _, err := eng.Enqueue(b.Context(), "x", arg(i), opts...); err != nil {
				b.Fatal(err)
			}
		}
	}
	fresh := func(i int) args { return args{i, "x"} }
	same := func(int) args { return args{7, "x"} }
	for _, stored := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprintf("plain/stored=%d", stored),
			func(b *testing.B) { enqueue(b, stored, plain, plain, fresh) })
		b.Run(fmt.Sprintf("unique/stored=%d", stored),
			func(b *testing.B) { enqueue(b, stored, whole, whole, fresh) })
		b.Run(fmt.Sprintf("duplicate/stored=%d", stored),
			func(b *testing.B) { enqueue(b, stored, whole, whole, same) })
	}
	// 100,000 terminal jobs of one fingerprint.
	b.Run("duplicate/terminal=100000", func(b *testing.B) {
		store := memory.New()
		defer store.Close()
		eng, err := engine.New[any](store, engine.WithRetention(engine.Retention{MaxFinished: -1}))
		if err != nil {
			b.Fatal(err)
		}
		for range 100_000 {
			ticket, err := eng.Enqueue(b.Context(), "x", args{7, "x"}, typeOnly...)
			if err == nil {
				err = eng.Cancel(b.Context(), ticket.ID)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		also := []ojs.Option{ojs.WithUnique(ojs.UniquePolicy{States: ojs.AllStates(),
			OnConflict: ojs.ConflictIgnore})}
		b.ReportAllocs()
		for b.Loop() {
			if ticket, err := eng.Enqueue(b.Context(), "x", args{7, "x"}, also...); err != nil ||
				!ticket.Deduplicated {
				b.Fatal(ticket, err)
			}
		}
	})
}
