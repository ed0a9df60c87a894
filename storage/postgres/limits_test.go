package postgres_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/limittest"
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

// The keys of ended jobs are dropped with the transactions that all processes have
// followed. A restored dump may have keys of transactions that are still to come.
func TestFreedKeysAreDropped(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	freed := name + ".job_freed"
	_, err := pool.Exec(t.Context(), "INSERT INTO "+freed+" (xact, name) VALUES (5, 'old'), ($1, 'restored')",
		int64(1)<<60)
	must(t, err)
	_, err = pool.Exec(t.Context(), "INSERT INTO "+freed+" (name) VALUES ('new')")
	must(t, err)
	must(t, s.DropFreed(t.Context(), 6))
	var left []string
	must(t, pool.QueryRow(t.Context(), "SELECT array_agg(name) FROM "+freed).Scan(&left))
	if !slices.Equal(left, []string{"new"}) {
		t.Errorf("%v are left", left)
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
	limittest.Exact(t, openForCrash, schema(t, connect(t))+" "+server)
}
