// Package limittest tests limits that a storage counts for several processes, each of
// which has opened it for itself.
package limittest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
)

// begin is the time of claims.
var begin = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// insert stores jobs with a limit at a time.
func insert(t *testing.T, s storage.Storage, now time.Time, jobs int, l ojs.RateLimit) {
	t.Helper()
	batch := make([]storage.Insert, jobs)
	for n := range batch {
		r := &batch[n].Record
		r.ID = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", n)
		r.Type, r.Queue, r.State = "x", "q", ojs.StateAvailable
		r.CreatedAt, r.EnqueuedAt, r.Lease, r.Timeout = now, now, time.Hour, time.Minute
		r.RateLimit = &l
	}
	_, err := s.Insert(t.Context(), now, batch, nil)
	must(t, err)
}

func claim(ctx context.Context, s storage.Storage, now time.Time, most int) ([]storage.Record, error) {
	return s.Claim(ctx, now, storage.Claim{Max: most, Worker: "w", Limits: new(storage.Limited)}, nil)
}

func ends(ctx context.Context, s storage.Storage, now time.Time, r storage.Record) error {
	r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, now, time.Time{}
	out, err := s.Settle(ctx, now, []storage.Change{{Record: r, AttemptFieldsOnly: true}}, nil)
	if err != nil {
		return err
	}
	return out[0].Err
}

// Claims proves L001: claims of two processes never have more jobs of a key than its
// limit, and take all.
func Claims(t *testing.T, a, b storage.Storage) {
	const most, jobs = 5, 60
	insert(t, a, begin, jobs, ojs.RateLimit{Key: "k", Concurrency: most})
	var active, ended atomic.Int32
	var wg sync.WaitGroup
	failure := make(chan error, 6)
	for i := range cap(failure) {
		s := a
		if i%2 == 1 {
			s = b
		}
		wg.Go(func() {
			for ended.Load() < jobs && len(failure) == 0 {
				recs, err := claim(t.Context(), s, begin, 2)
				if n := active.Add(int32(len(recs))); err == nil && n > most {
					err = fmt.Errorf("%d jobs are active at once", n)
				}
				for range 10 { // others claim while these are active
					runtime.Gosched()
				}
				for i := range recs {
					active.Add(-1)
					err = errors.Join(err, ends(t.Context(), s, begin, recs[i]))
					ended.Add(1)
				}
				if err != nil {
					failure <- err
				}
			}
		})
	}
	wg.Wait()
	if len(failure) > 0 {
		t.Fatal(<-failure)
	}
}

// Starts proves L021: claims of two processes never have more starts than a rate allows,
// whichever of them undoes some, and whichever has the earlier clock.
func Starts(t *testing.T, a, b storage.Storage) {
	const most = 7
	insert(t, a, begin, 40, ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: most, Per: time.Minute}})
	var started atomic.Int32
	var wg sync.WaitGroup
	for i, s := range []storage.Storage{a, b, a, b} {
		now := begin.Add(time.Duration(i) * time.Second)
		wg.Go(func() {
			undo, _ := s.(storage.SettleClaimer)
			for n := range 6 {
				recs, err := claim(t.Context(), s, now, 2)
				if err != nil {
					t.Error(err)
				}
				var back []storage.Held
				if n < 3 && undo != nil {
					for _, r := range recs {
						back = append(back, storage.Held{ID: r.ID, Version: r.Version})
					}
				}
				if len(back) > 0 {
					if done, err := undo.Unclaim(t.Context(), now, back); err != nil || done != len(back) {
						t.Errorf("%d claims undone of %d: %v", done, len(back), err)
					}
					continue
				}
				started.Add(int32(len(recs)))
			}
		})
	}
	wg.Wait()
	recs, err := claim(t.Context(), b, begin.Add(5*time.Second), 40)
	must(t, err)
	if n := int(started.Load()) + len(recs); n != most {
		t.Errorf("%d jobs have started, not %d", n, most)
	}
}

// Follows proves L026 and L035: a claim follows the changes that another process has made
// to a limit.
func Follows(t *testing.T, a, b storage.Storage) {
	ctx, now := t.Context(), begin
	insert(t, a, begin, 8, ojs.RateLimit{Key: "k", Concurrency: 1})
	takes := func(what string, s storage.Storage, n int) (recs []storage.Record) {
		t.Helper()
		recs, err := claim(ctx, s, now, 9)
		must(t, err)
		if len(recs) != n {
			t.Fatalf("%s: %d jobs, not %d", what, len(recs), n)
		}
		return recs
	}
	first := takes("none is active", a, 1)
	takes("one is active", b, 0)
	must(t, ends(ctx, a, now, first[0]))
	second := takes("it has ended", b, 1)
	takes("one of the other process is active", a, 0)
	key := storage.LimitName{Kind: storage.LimitKey, Name: "k"}
	must(t, a.SetLimit(ctx, now, key, ojs.RateLimit{Concurrency: 3}, time.Time{}))
	takes("the key has a setting", b, 2)
	must(t, a.BlockLimit(ctx, now, key, now.Add(time.Minute)))
	must(t, ends(ctx, a, now, second[0]))
	takes("the key is blocked", b, 0)
	must(t, a.BlockLimit(ctx, now, key, time.Time{}))
	third := takes("the block is ended", b, 1)
	queue := storage.LimitName{Kind: storage.LimitQueue, Name: "q"}
	must(t, a.SetLimit(ctx, now, queue, ojs.RateLimit{Concurrency: 3}, time.Time{}))
	must(t, a.SetLimit(ctx, now, key, ojs.RateLimit{Concurrency: 9}, time.Time{}))
	takes("the queue has a limit", b, 0)
	must(t, ends(ctx, a, now, third[0]))
	takes("a job of the queue has ended", b, 1)
}

// Forgotten proves L052: of keys that come and go few rows are left. rows counts those
// that the storage has of limits and of starts.
func Forgotten(t *testing.T, s storage.Storage, rows func() int) {
	ctx, now := t.Context(), begin
	const keys = 20
	for n := range keys {
		rate := ojs.Rate{Limit: 5, Per: time.Minute}
		l := ojs.RateLimit{Key: fmt.Sprint("k", n), Concurrency: 1, Rate: rate}
		insert(t, s, now, 2, l)
		for range 2 {
			recs, err := claim(ctx, s, now, 9)
			must(t, err)
			if len(recs) != 1 {
				t.Fatalf("%d jobs of %s", len(recs), l.Key)
			}
			must(t, ends(ctx, s, now, recs[0]))
			_, err = s.Delete(ctx, []string{recs[0].ID})
			must(t, err)
		}
		now = now.Add(time.Hour)
	}
	if n := rows(); n > 24 {
		t.Errorf("%d rows after %d keys, one in an hour", n, keys)
	}
}

// Engines proves L001 and L026: engines of several processes never run more jobs of a key
// than its limit, and as many as it allows. The first five jobs wait until there are
// five.
func Engines(t *testing.T, storages ...storage.Storage) {
	const most, jobs = 5, 25
	ctx, stop := context.WithCancel(t.Context())
	var running, peak, done atomic.Int32
	full, all := make(chan struct{}), make(chan struct{})
	fill := sync.OnceFunc(func() { close(full) })
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	var engines []*engine.Engine[int]
	for _, s := range storages {
		eng, err := engine.New[int](s, engine.WithConcurrency(8))
		must(t, err)
		eng.Handle("x", func(ctx context.Context, _ *ojs.Job[int]) error {
			n := running.Add(1)
			defer running.Add(-1)
			for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
			}
			if n >= most {
				fill()
			}
			select {
			case <-full:
			case <-ctx.Done():
			}
			if done.Add(1) == jobs {
				close(all)
			}
			return nil
		})
		engines = append(engines, eng)
		wg.Go(func() {
			if err := eng.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	limit := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: most})
	for n := range jobs {
		_, err := engines[n%len(engines)].Enqueue(ctx, "x", n, limit)
		must(t, err)
	}
	select {
	case <-all:
	case <-ctx.Done():
		t.Fatal("the test has ended")
	}
	if n := peak.Load(); n != most {
		t.Errorf("%d jobs at once, not %d", n, most)
	}
}
