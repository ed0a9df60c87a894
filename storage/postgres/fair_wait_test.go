package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// holdRounds stores a job with a fairness key in a transaction that stays open. It
// returns the transaction, which the test ends.
func holdRounds(t *testing.T, s storage.Storage, pool *pgxpool.Pool, r storage.Record) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	must(t, insert(postgres.WithTx(t.Context(), tx), s, r))
	return tx
}

// A call in which a job joins a round waits for a transaction that holds the rounds of
// its queue. Calls without such a job do not wait for that call.
func TestOthersDoNotWaitForRounds(t *testing.T) {
	for _, what := range []string{"insert", "settle"} {
		t.Run(what, func(t *testing.T) {
			s, _ := open(t, "")
			pool := connect(t)
			waits, plain := fairRecord(1, "tenant", 1), record(2)
			call := func(r storage.Record) error { return insert(t.Context(), s, r) }
			if what == "settle" {
				waits.State, waits.ScheduledAt = ojs.StateScheduled, time.Now().Add(time.Hour)
				plain.State, plain.ScheduledAt = waits.State, waits.ScheduledAt
				must(t, insert(t.Context(), s, waits, plain))
				call = func(r storage.Record) error {
					got, err := s.Get(t.Context(), r.ID)
					if err != nil {
						return err
					}
					got.State = ojs.StateAvailable
					out, err := s.Settle(t.Context(), time.Now(), []storage.Change{{Record: got}}, nil)
					if err == nil {
						err = out[0].Err
					}
					return err
				}
			}
			tx := holdRounds(t, s, pool, fairRecord(3, "tenant", 1))
			joined, stored := make(chan error, 1), make(chan error, 1)
			go func() { joined <- call(waits) }()
			awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
			go func() { stored <- call(plain) }()
			select {
			case err := <-stored:
				must(t, err)
			case <-time.After(5 * time.Second):
				t.Error("a call without a fairness key waits for one with")
			}
			must(t, tx.Commit(t.Context()))
			must(t, <-joined)
		})
	}
}

// Due promotes other jobs while a transaction holds the rounds of a queue, and those of
// the queue afterwards.
func TestDueBesideHeldRounds(t *testing.T) {
	s, _ := open(t, "", postgres.WithPatience(5*time.Second))
	pool := connect(t)
	now := time.Now()
	waits, plain := fairRecord(1, "tenant", 1), record(2)
	waits.State, waits.ScheduledAt = ojs.StateScheduled, now.Add(-time.Minute)
	plain.State, plain.ScheduledAt = ojs.StateScheduled, now.Add(-time.Second)
	must(t, insert(t.Context(), s, waits, plain))
	tx := holdRounds(t, s, pool, fairRecord(3, "tenant", 1))
	promotes := func(when, id string) {
		t.Helper()
		d, err := s.Due(t.Context(), now, 1, nil)
		must(t, err)
		if len(d.Promoted) != 1 || d.Promoted[0].ID != id {
			t.Fatalf("%s: promoted %v, not %s", when, d.Promoted, id)
		}
	}
	promotes("while rounds are held", plain.ID)
	d, err := s.Due(t.Context(), now, 1, nil)
	must(t, err)
	if len(d.Promoted) > 0 || !d.Next.After(now) {
		t.Fatalf("promoted %v, and the next is due at %v, not after %v", d.Promoted, d.Next, now)
	}
	must(t, tx.Commit(t.Context()))
	promotes("after the commit", waits.ID)
}

// A claim is given back while a transaction holds the rounds of its queue.
func TestUnclaimBesideHeldRounds(t *testing.T) {
	s, _ := open(t, "", postgres.WithPatience(time.Second))
	pool := connect(t)
	must(t, insert(t.Context(), s, fairRecord(1, "tenant", 1)))
	claimed, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 1, Worker: "w"}, nil)
	must(t, err)
	tx := holdRounds(t, s, pool, fairRecord(2, "tenant", 1))
	held := storage.Held{ID: claimed[0].ID, Version: claimed[0].Version}
	n, err := s.Unclaim(t.Context(), time.Now(), []storage.Held{held})
	if must(t, err); n != 1 {
		t.Errorf("%d claims were given back", n)
	}
	must(t, tx.Commit(t.Context()))
}

// An insert locks the rounds of queues in the order of bytes, as other calls do, in a
// database of any collation.
func TestRoundsAreLockedInOneOrder(t *testing.T) {
	admin := connect(t)
	const database = "ojs_collated"
	_, err := admin.Exec(t.Context(), "CREATE DATABASE "+database+" TEMPLATE template0 ENCODING 'UTF8'"+
		" LOCALE_PROVIDER icu ICU_LOCALE 'en-US-u-ka-shifted' LOCALE 'C'")
	if err != nil && strings.Contains(strings.ToLower(err.Error()), "icu") {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "DROP DATABASE "+database+" WITH (FORCE)")
		must(t, err)
	})
	config := admin.Config().Copy()
	config.ConnConfig.Database = database
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	defer pool.Close()
	s, err := postgres.Open(t.Context(), pool)
	must(t, err)
	defer s.Close()
	const first, second = "a-c", "ab" // the collation ignores the hyphen
	in := func(n int, queue string) storage.Record {
		r := fairRecord(n, "tenant", 1)
		r.Queue = queue
		return r
	}
	tx := holdRounds(t, s, pool, in(1, first))
	done := make(chan error, 1)
	go func() { done <- insert(t.Context(), s, in(2, second), in(3, first)) }()
	awaitBlocked(t, admin, int(tx.Conn().PgConn().PID()))
	tx2, err := pool.Begin(t.Context())
	must(t, err)
	defer tx2.Rollback(context.Background())
	short, cancel := context.WithTimeout(postgres.WithTx(t.Context(), tx2), 5*time.Second)
	defer cancel()
	if err := insert(short, s, in(4, second)); err != nil {
		t.Errorf("an insert that waits for the rounds of %q holds those of %q: %v", first, second, err)
	}
	_ = tx2.Rollback(t.Context())
	must(t, tx.Commit(t.Context()))
	must(t, <-done)
}

// Under any default isolation, a job sees the jobs that joined rounds while its call
// waited.
func TestTurnsUnderDefaultIsolation(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		for _, what := range []string{"insert", "due"} {
			t.Run(level+" "+what, func(t *testing.T) {
				s, name := open(t, "")
				pool := connect(t)
				other, err := postgres.Open(t.Context(), isolated(t, level), postgres.WithSchema(name))
				must(t, err)
				defer other.Close()
				must(t, insert(t.Context(), s, fairRecord(1, "first", 1), fairRecord(2, "first", 1)))
				late := fairRecord(4, "second", 1)
				call := func() error { return insert(t.Context(), other, late) }
				if what == "due" {
					late.State, late.ScheduledAt = ojs.StateScheduled, time.Now().Add(-time.Second)
					must(t, insert(t.Context(), s, late))
					call = func() error {
						_, err := other.Due(t.Context(), time.Now(), 10, nil)
						return err
					}
				}
				tx := holdRounds(t, s, pool, fairRecord(3, "second", 1))
				done := make(chan error, 1)
				go func() { done <- call() }()
				awaitBlocked(t, pool, int(tx.Conn().PgConn().PID()))
				must(t, tx.Commit(t.Context()))
				must(t, <-done)
				var together int
				must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM (SELECT FROM "+name+`.ready
					GROUP BY place, fair_key HAVING count(*) > 1) r`).Scan(&together))
				if together > 0 {
					t.Error("two jobs of a key with weight 1 are in one round")
				}
			})
		}
	}
}

// A job that comes back without its key, to the place of a round, is listed before the
// jobs of the round.
func TestListBesideRound(t *testing.T) {
	s, _ := open(t, "")
	now := time.Now()
	must(t, insert(t.Context(), s, fairRecord(1, "a", 1), fairRecord(2, "b", 1), record(3)))
	r, err := s.Get(t.Context(), record(1).ID)
	must(t, err)
	r.Fairness = ojs.Fairness{}
	r.Claim(now, "w", 0)
	r.Version--
	out, err := s.Settle(t.Context(), now, []storage.Change{{Record: r}}, nil)
	must(t, err)
	_, err = s.Unclaim(t.Context(), now, []storage.Held{{ID: r.ID, Version: out[0].Version}})
	must(t, err)
	q := storage.Query{Order: storage.OrderClaim, Limit: 1}
	for n := 1; n <= 3; n++ {
		page, err := s.List(t.Context(), q)
		must(t, err)
		if len(page.Records) != 1 || page.Records[0].ID != record(n).ID {
			t.Fatalf("page %d has %v, not %s", n, page.Records, record(n).ID)
		}
		if q.Cursor = page.Next; n == 3 {
			q.Cursor = page.Prev
		}
	}
	page, err := s.List(t.Context(), q)
	must(t, err)
	if len(page.Records) != 1 || page.Records[0].ID != record(2).ID {
		t.Errorf("the page before the last has %v", page.Records)
	}
}
