package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// claiming inserts a job that the caller would claim next, and returns the result.
func claiming(t *testing.T, s storage.Storage, r storage.Record, c storage.Claim) storage.Inserted {
	t.Helper()
	out, err := s.Insert(t.Context(), time.Now(), []storage.Insert{{Record: r, Claim: &c}}, nil)
	must(t, err)
	return out[0]
}

// An insert claims its jobs if nothing is ahead of them, and never within a transaction
// of its caller.
func TestInsertClaims(t *testing.T) {
	s, _ := open(t, "")
	queues := storage.Claim{Queues: []string{"q", "other"}, Worker: "w"}
	if !claiming(t, s, record(1), queues).Claimed || !claiming(t, s, record(2), storage.Claim{}).Claimed {
		t.Error("an insert into an empty queue claims nothing")
	}
	tx, err := connect(t).Begin(t.Context())
	must(t, err)
	batch := []storage.Insert{{Record: record(3), Claim: &queues}}
	out, err := s.Insert(postgres.WithTx(t.Context(), tx), time.Now(), batch, nil)
	must(t, err)
	must(t, tx.Commit(t.Context()))
	if out[0].Claimed {
		t.Error("an insert in a transaction claims")
	}
	if claiming(t, s, record(4), queues).Claimed {
		t.Error("an insert claims a job that others are ahead of")
	}
}

// An insert leaves the claim to others while a queue or type has a limit, and not when
// the limit is gone.
func TestInsertClaimsWithoutLimits(t *testing.T) {
	s, _ := open(t, "")
	ctx, now := t.Context(), time.Now()
	n := 0
	claims := func(what string, want bool) {
		t.Helper()
		n++
		if _, err := s.Claim(ctx, now, storage.Claim{Max: 9, Worker: "w"}, nil); err != nil {
			t.Fatal(err)
		}
		if got := claiming(t, s, record(n), storage.Claim{Worker: "w"}).Claimed; got != want {
			t.Errorf("%s: an insert claims: %v", what, got)
		}
	}
	one := ojs.RateLimit{Concurrency: 1}
	for _, name := range []storage.LimitName{
		{Kind: storage.LimitQueue, Name: record(1).Queue}, {Kind: storage.LimitType, Name: record(1).Type},
	} {
		claims("before", true)
		must(t, s.SetLimit(ctx, now, name, one, time.Time{}))
		claims("limited", false)
		must(t, s.SetLimit(ctx, now, name, ojs.RateLimit{}, time.Time{}))
		claims("not limited any more", true)
		must(t, s.SetLimit(ctx, now, name, one, now.Add(-time.Second)))
		claims("limited until before", true)
		must(t, s.SetLimit(ctx, now, name, one, now.Add(time.Hour)))
		claims("limited until later", false)
		must(t, s.SetLimit(ctx, now, name, ojs.RateLimit{}, time.Time{}))
		claims("not limited before its end", true) // or the block would have a job ahead
		must(t, s.BlockLimit(ctx, now, name, now.Add(time.Hour)))
		claims("blocked", false)
		must(t, s.BlockLimit(ctx, now, name, time.Time{}))
		claims("not blocked any more", true)
	}
}

// The claims of an insert whose caller has left are undone.
func TestInsertClaimsForNobody(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	tx := lockJobs(t, pool, name)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		batch := []storage.Insert{{Record: record(1), Claim: &storage.Claim{Worker: "w"}}}
		_, err := s.Insert(ctx, time.Now(), batch, nil)
		ended <- err
	}()
	awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
	leave()
	if err := <-ended; err == nil {
		t.Fatal("the insert has ended without an error")
	}
	must(t, tx.Commit(t.Context()))
	await(t, "the claim to be undone", func() bool {
		r, err := s.Get(t.Context(), record(1).ID)
		return err == nil && r.State == ojs.StateAvailable && r.Version&0xffff == 2 && r.Attempt == 0
	})
}

// Inserts that share a statement get the claims that each of them asks for: its worker
// and its lease.
func TestInsertsThatShareAStatementClaimForThemselves(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	for i, asked := range [][2]storage.Claim{
		{{Worker: "a"}, {Worker: "b"}}, {{Worker: "a"}, {Worker: "a", Lease: time.Second}},
	} {
		tx := lockJobs(t, pool, name)
		var calls sync.WaitGroup
		now := time.Now()
		insert := func(n int, c storage.Claim) {
			r := record(10*i + n)
			r.Lease = ojs.DefaultLease
			calls.Go(func() {
				out, err := s.Insert(t.Context(), now, []storage.Insert{{Record: r, Claim: &c}}, nil)
				if err != nil || !out[0].Claimed {
					t.Log(out, err)
					return
				}
				got, err := s.Get(t.Context(), r.ID)
				until := now.Add(r.LeaseFor(c.Lease))
				if err != nil || got.Worker != c.Worker || !got.LeaseUntil.Equal(until) {
					t.Errorf("claimed by %q until %v, %v, not by %q until %v",
						got.Worker, got.LeaseUntil, err, c.Worker, until)
				}
			})
		}
		insert(0, storage.Claim{Worker: "first"}) // which the others wait for
		awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
		insert(1, asked[0])
		insert(2, asked[1])
		for s.Pending() < 2 {
			must(t, t.Context().Err())
		}
		must(t, tx.Rollback(t.Context()))
		calls.Wait()
		_, err := s.Claim(t.Context(), now, storage.Claim{Max: 9, Worker: "rest"}, nil)
		must(t, err)
	}
}
