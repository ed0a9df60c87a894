package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/limittest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// both opens a schema twice, as two processes do.
func both(t *testing.T) (a, b *postgres.Storage, name string) {
	t.Helper()
	a, name = open(t, "")
	b, _ = open(t, name)
	return a, b, name
}

func TestLimitsOverProcesses(t *testing.T) {
	a, b, _ := both(t)
	limittest.Claims(t, a, b)
}

func TestStartsOverProcesses(t *testing.T) {
	a, b, _ := both(t)
	limittest.Starts(t, a, b)
}

func TestLimitsFollowOtherProcesses(t *testing.T) {
	a, b, _ := both(t)
	limittest.Follows(t, a, b)
}

func TestLimitsOverEngines(t *testing.T) {
	a, b, _ := both(t)
	limittest.Engines(t, a, b)
}

func TestLimitsAreForgotten(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	limittest.Forgotten(t, s, func() (n int) {
		for _, table := range []string{"job_limit", "job_start"} {
			var some int
			must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+name+"."+table).Scan(&some))
			n += some
		}
		return n
	})
}

// A transaction that locks a waiting job, and changes nothing, keeps it from becoming the
// head of its lane for as long as it lasts, and not for ever.
func TestLockedJobIsPromotedLater(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	first, second := record(1), record(2)
	for _, r := range []*storage.Record{&first, &second} {
		r.RateLimit = &ojs.RateLimit{Key: "k", Concurrency: 1}
		must(t, insert(t.Context(), s, *r))
	}
	claim := func() []storage.Record {
		t.Helper()
		got, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 2}, nil)
		must(t, err)
		return got
	}
	got := claim()
	if len(got) != 1 {
		t.Fatalf("%d jobs are claimed, and 1 may be", len(got))
	}
	tx, err := pool.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(t.Context(), "SELECT FROM "+name+".ready FOR UPDATE")
	must(t, err)
	got[0].State, got[0].FinishedAt, got[0].LeaseUntil = ojs.StateCompleted, time.Now(), time.Time{}
	settle(t, t.Context(), s, got[0])
	if got := claim(); len(got) > 0 {
		t.Fatalf("%s is claimed, and another transaction has locked it", got[0].ID)
	}
	must(t, tx.Rollback(t.Context()))
	if got := claim(); len(got) != 1 || got[0].ID != second.ID {
		t.Errorf("%d jobs are claimed after the lock is gone, not the one that waits", len(got))
	}
}

// An active job that leaves the quarantine counts as one that a claim starts: its release
// waits for the claim that counts the limit.
func TestReleaseOfACountedJob(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	rec := record(1)
	rec.RateLimit = &ojs.RateLimit{Key: "k", Concurrency: 1}
	must(t, insert(t.Context(), s, rec))
	claimed, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 1, Limits: new(storage.Limited)}, nil)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("%d jobs are claimed, %v", len(claimed), err)
	}
	_, err = pool.Exec(t.Context(), "UPDATE "+name+".job SET args = '{'")
	must(t, err)
	var q *ojs.QuarantinedError
	if _, err := s.Get(t.Context(), rec.ID); !errors.As(err, &q) {
		t.Fatal(err)
	}
	_, err = pool.Exec(t.Context(), "UPDATE "+name+".quarantined_job SET args = '1'")
	must(t, err)
	tx, err := pool.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(context.Background())
	key := storage.LimitName{Kind: storage.LimitKey, Name: "k"}
	must(t, s.BlockLimit(postgres.WithTx(t.Context(), tx), time.Now(), key, time.Now()))
	released := make(chan error, 1)
	go func() { released <- s.ReleaseQuarantined(t.Context(), q.Key) }()
	awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
	must(t, tx.Commit(t.Context()))
	must(t, <-released)
	if r, err := s.Get(t.Context(), rec.ID); err != nil || r.State != ojs.StateActive {
		t.Errorf("the job is %s, %v", r.State, err)
	}
}

func TestLimitsAreExact(t *testing.T) {
	t.Parallel()
	limittest.Exact(t, openForCrash, schema(t, connect(t))+" "+server)
}
