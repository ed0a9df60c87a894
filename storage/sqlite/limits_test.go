package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/limittest"
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

func TestLimitsOverProcesses(t *testing.T) {
	a, b := both(t)
	limittest.Claims(t, a, b)
}

func TestStartsOverProcesses(t *testing.T) {
	a, b := both(t)
	limittest.Starts(t, a, b)
}

func TestLimitsFollowOtherProcesses(t *testing.T) {
	a, b := both(t)
	limittest.Follows(t, a, b)
}

func TestLimitsOverEngines(t *testing.T) {
	a, b := both(t)
	limittest.Engines(t, a, b)
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

func TestLimitsAreForgotten(t *testing.T) {
	a, _ := both(t)
	limittest.Forgotten(t, a, func() (sum int) {
		for _, table := range []byte{23, 24} { // of package keyed: limits, and their starts
			n, err := a.Keys(table)
			must(t, err)
			sum += n
		}
		return sum
	})
}

func TestLimitsAreExact(t *testing.T) {
	limittest.Exact(t, openForCrash, filepath.Join(t.TempDir(), "jobs.db"))
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
