package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/sqlite"
)

var limitsBegin = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

// both opens a file twice, as two processes do.
func both(t *testing.T) (a, b *sqlite.Storage) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	list := make([]*sqlite.Storage, 2)
	for i := range list {
		s, err := sqlite.Open(t.Context(), path, sqlite.WithSynchronous(sqlite.Normal))
		must(t, err)
		t.Cleanup(func() { must(t, s.Close()) })
		list[i] = s
	}
	return list[0], list[1]
}

func limited(n int, l ojs.RateLimit) storage.Record {
	r := record(n)
	r.CreatedAt = limitsBegin
	if l.Key != "" {
		r.RateLimit = &l
	}
	return r
}

func obey(t *testing.T, ctx context.Context, s storage.Storage, now time.Time, most int) []storage.Record {
	t.Helper()
	recs, err := s.Claim(ctx, now, storage.Claim{Max: most, Worker: "w", Limits: new(storage.Limited)}, nil)
	must(t, err)
	return recs
}

func ends(ctx context.Context, s storage.Storage, now time.Time, r storage.Record) error {
	r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, now, time.Time{}
	out, err := s.Settle(ctx, now, []storage.Change{{Record: r, AttemptFieldsOnly: true}}, nil)
	if err != nil {
		return err
	}
	return out[0].Err
}

// Claims of two processes never have more jobs of a key than its limit, and take all.
func TestLimitsOverProcesses(t *testing.T) {
	const most, jobs = 5, 60
	a, b := both(t)
	for n := range jobs {
		must(t, insert(a, limited(n, ojs.RateLimit{Key: "k", Concurrency: most})))
	}
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
				recs, err := s.Claim(t.Context(), limitsBegin,
					storage.Claim{Max: 2, Worker: "w", Limits: new(storage.Limited)}, nil)
				if n := active.Add(int32(len(recs))); err == nil && n > most {
					err = fmt.Errorf("%d jobs are active at once", n)
				}
				for range 10 { // others claim while these are active
					runtime.Gosched()
				}
				for i := range recs {
					active.Add(-1)
					err = errors.Join(err, ends(t.Context(), s, limitsBegin, recs[i]))
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

// A claim follows the changes that another process has made to a limit.
func TestLimitsFollowOtherProcesses(t *testing.T) {
	a, b := both(t)
	ctx, now := t.Context(), limitsBegin
	for n := range 8 {
		must(t, insert(a, limited(n, ojs.RateLimit{Key: "k", Concurrency: 1})))
	}
	holds := func(what string, n int) (recs []storage.Record) {
		t.Helper()
		if recs = obey(t, ctx, b, now, 9); len(recs) != n {
			t.Fatalf("%s: %d jobs, not %d", what, len(recs), n)
		}
		return recs
	}
	first := obey(t, ctx, a, now, 9)
	holds("one is active", 0)
	must(t, ends(ctx, a, now, first[0]))
	second := holds("it has ended", 1)
	if recs := obey(t, ctx, a, now, 9); len(recs) != 0 {
		t.Fatalf("%d jobs of the other process", len(recs))
	}
	key := storage.LimitName{Kind: storage.LimitKey, Name: "k"}
	must(t, a.SetLimit(ctx, now, key, ojs.RateLimit{Concurrency: 3}, time.Time{}))
	holds("the key has a setting", 2)
	must(t, a.BlockLimit(ctx, now, key, now.Add(time.Minute)))
	must(t, ends(ctx, a, now, second[0]))
	holds("the key is blocked", 0)
	must(t, a.BlockLimit(ctx, now, key, time.Time{}))
	third := holds("the block is ended", 1)
	queue := storage.LimitName{Kind: storage.LimitQueue, Name: "q"}
	must(t, a.SetLimit(ctx, now, queue, ojs.RateLimit{Concurrency: 3}, time.Time{}))
	must(t, a.SetLimit(ctx, now, key, ojs.RateLimit{Concurrency: 9}, time.Time{}))
	holds("the queue has a limit", 0)
	must(t, ends(ctx, a, now, third[0]))
	holds("a job of the queue has ended", 1)
}

// A transaction that is undone leaves the limits as they were.
func TestLimitsOfUndoneTransactions(t *testing.T) {
	a, _ := both(t)
	ctx, now := t.Context(), limitsBegin
	for n := range 3 {
		must(t, insert(a, limited(n, ojs.RateLimit{Key: "k", Concurrency: 1,
			Rate: ojs.Rate{Limit: 2, Per: time.Hour}})))
	}
	undo := errors.New("undo")
	within := func(f func(ctx context.Context) error) {
		t.Helper()
		err := a.Within(ctx, func(ctx context.Context, _ *zombiezen.Conn) error {
			must(t, f(ctx))
			return undo
		})
		if !errors.Is(err, undo) {
			t.Fatal(err)
		}
	}
	within(func(ctx context.Context) error {
		if recs := obey(t, ctx, a, now, 9); len(recs) != 1 {
			t.Fatalf("%d jobs, not 1", len(recs))
		}
		return nil
	})
	first := obey(t, ctx, a, now, 9)
	if len(first) != 1 {
		t.Fatalf("%d jobs after a claim that was undone", len(first))
	}
	within(func(ctx context.Context) error {
		must(t, ends(ctx, a, now, first[0]))
		if recs := obey(t, ctx, a, now, 9); len(recs) != 1 {
			t.Fatalf("%d jobs in the transaction", len(recs))
		}
		return nil
	})
	if recs := obey(t, ctx, a, now, 9); len(recs) != 0 {
		t.Fatalf("%d jobs after an end that was undone", len(recs))
	}
	must(t, ends(ctx, a, now, first[0]))
	if recs := obey(t, ctx, a, now, 9); len(recs) != 1 {
		t.Fatalf("%d jobs, not 1: starts that were undone count", len(recs))
	}
}

// Keys that come and go leave no rows behind, or few.
func TestLimitsAreForgotten(t *testing.T) {
	a, _ := both(t)
	ctx, now := t.Context(), limitsBegin
	const keys = 60
	for n := range keys {
		rate := ojs.Rate{Limit: 5, Per: time.Minute}
		l := ojs.RateLimit{Key: fmt.Sprint("k", n), Concurrency: 1, Rate: rate}
		must(t, insert(a, limited(2*n, l), limited(2*n+1, l)))
		for range 2 {
			recs := obey(t, ctx, a, now, 9)
			if len(recs) != 1 {
				t.Fatalf("%d jobs of %s", len(recs), l.Key)
			}
			must(t, ends(ctx, a, now, recs[0]))
		}
		now = now.Add(time.Hour)
	}
	for _, table := range []string{"job_limit", "job_start"} {
		n, err := a.Rows(table)
		must(t, err)
		if n > 12 {
			t.Errorf("%s has %d rows after %d keys, one in an hour", table, n, keys)
		}
	}
}

// A claim costs no statement for a job without a limit, and no more with many closed
// keys than with none.
func BenchmarkLimits(b *testing.B) {
	for _, kind := range []struct {
		name    string
		limited bool
		closed  int
	}{{"unlimited", false, 0}, {"limited", true, 0}, {"unlimited behind 100,000 closed", false, 100_000}} {
		b.Run(kind.name, func(b *testing.B) {
			s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "jobs.db"),
				sqlite.WithSynchronous(sqlite.Normal))
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			n := 0
			add := func(most int, l func(n int) ojs.RateLimit) {
				batch := make([]storage.Insert, most)
				for i := range batch {
					batch[i] = storage.Insert{Record: limited(n, l(n)), IDIsNew: true}
					n++
				}
				if _, err := s.Insert(b.Context(), limitsBegin, batch, nil); err != nil {
					b.Fatal(err)
				}
			}
			for n < kind.closed {
				add(1000, func(n int) ojs.RateLimit {
					return ojs.RateLimit{Key: fmt.Sprint("k", n), Concurrency: ojs.NoneAtOnce}
				})
			}
			ask := storage.Claim{Max: 1, Worker: "w", Limits: new(storage.Limited)}
			if _, err := s.Claim(b.Context(), limitsBegin, ask, nil); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				add(1, func(int) (l ojs.RateLimit) {
					if kind.limited {
						l = ojs.RateLimit{Key: "open", Concurrency: 5}
					}
					return l
				})
				recs, err := s.Claim(b.Context(), limitsBegin, ask, nil)
				if err != nil || len(recs) != 1 {
					b.Fatal(len(recs), err)
				}
				if err := ends(b.Context(), s, limitsBegin, recs[0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
