package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// The server commits a claim, and the network swallows the answer. The job does not wait
// for its lease: the engine finds it, and runs it as its first attempt.
func TestLostClaim(t *testing.T) {
	t.Parallel()
	s, _, p, direct, name := behindBadNetwork(t, time.Second)
	beside := connect(t)
	logged := make(lines, 1000)
	lost := func() bool {
		for {
			select {
			case line := <-logged:
				if line == "claims whose answer was lost are given back" {
					return true
				}
			default:
				return false
			}
		}
	}

	there := newEngine(t, direct)
	for found := false; !found; found = lost() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		ticket, err := there.Enqueue(ctx, "x", 1)
		must(t, err)
		tx, err := beside.Begin(ctx)
		must(t, err)
		_, err = tx.Exec(ctx, `LOCK TABLE "`+name+`".tally IN SHARE MODE`) // a claim waits for it
		must(t, err)
		eng, err := engine.New[int](s, engine.WithLogger(slog.New(logged)))
		must(t, err)
		eng.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- eng.Run(running) }()
		for waits := false; !waits && err == nil; {
			err = beside.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks
				WHERE NOT granted AND relation = $1::text::regclass)`, `"`+name+`".tally`).Scan(&waits)
		}
		p.swallow()
		if err == nil {
			err = tx.Commit(ctx)
		} else {
			_ = tx.Rollback(ctx)
		}
		for until := time.Now().Add(time.Second); err == nil && time.Now().Before(until); {
			var job *ojs.JobInfo // the server commits, or has been told to cancel
			if job, err = there.Get(ctx, ticket.ID); err == nil && job.State == ojs.StateActive {
				break
			}
		}
		p.spit()
		var done *ojs.JobInfo
		if err == nil {
			done, err = ticket.Wait(ctx) // in less time than the lease
		}
		stop()
		cancel()
		if err := errors.Join(err, <-ended); err != nil {
			t.Fatal(err)
		}
		if done.Attempt != 1 || len(done.Errors) > 0 {
			t.Errorf("attempt %d: %+v", done.Attempt, done.Errors)
		}
	}
}

// A claim that has claimed jobs returns them if its statement for jobs with limits is not
// sent. It makes no difference whether the caller or the pool is at fault.
func TestClaimThatCannotGoOn(t *testing.T) {
	t.Parallel()
	type breaks struct{}
	pool := poolAt(t, server, func(cfg *pgxpool.Config) {
		cfg.PrepareConn = func(ctx context.Context, _ *pgx.Conn) (bool, error) {
			if f, ok := ctx.Value(breaks{}).(func() error); ok {
				return true, f()
			}
			return true, nil
		}
	})
	for name, fault := range map[string]func(stop func()) error{
		"the caller goes away":       func(stop func()) error { stop(); return nil },
		"the pool has no connection": func(func()) error { return net.ErrClosed },
	} {
		t.Run(name, func(t *testing.T) {
			s := openAs(t, pool, schema(t, pool), postgres.WithPoll(time.Hour), postgres.WithLogger(quietLog))
			limited := func(n int) storage.Record {
				r := record(n)
				r.RateLimit = &ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 5, Per: time.Hour}}
				return r
			}
			claim := storage.Claim{Max: 2, Worker: "w"}
			must(t, insert(t.Context(), s, limited(3)))
			_, err := s.Claim(t.Context(), time.Now(), claim, nil) // from here on the limit is known
			must(t, err)
			must(t, insert(t.Context(), s, record(1)))
			must(t, insert(t.Context(), s, limited(2)))
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			loans := 0
			ctx = context.WithValue(ctx, breaks{}, func() error {
				if loans++; loans == 2 {
					return fault(stop)
				}
				return nil
			})
			recs, err := s.Claim(ctx, time.Now(), claim, nil)
			if err != nil || len(recs) != 1 || recs[0].ID != record(1).ID || loans < 2 {
				t.Errorf("%d jobs, %v after %d loans", len(recs), err, loans)
			}
		})
	}
}

// A step that has stored an outcome fails if it has no answer about the jobs with limits
// that it claims: the server may have committed them. pgx says of a commit whose
// connection has closed that it is safe to retry, which it is not.
func TestLostClaimOfLimits(t *testing.T) {
	t.Parallel()
	t.Run("the patience ends", func(t *testing.T) { lostClaimOfLimits(t, 2*time.Second, "SELECT") })
	t.Run("the connection closes", func(t *testing.T) {
		lostClaimOfLimits(t, time.Minute,
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	})
}

// lostClaimOfLimits has the commit of a claim wait for a standby that does not exist. It
// makes a statement again and again until the call has failed.
func lostClaimOfLimits(t *testing.T, patience time.Duration, meanwhile string) {
	t.Parallel()
	server := privateServer(t)
	s := openAs(t, poolAt(t, server.DSN(), nil), "ojs", postgres.WithPatience(patience),
		postgres.WithPoll(time.Hour), postgres.WithLogger(quietLog))
	admin := poolAt(t, server.DSN()+" options='-c synchronous_commit=local'", nil)
	limited := record(2)
	limited.RateLimit = &ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 5, Per: time.Hour}}
	must(t, insert(t.Context(), s, record(1)))
	claim := storage.Claim{Max: 1, Worker: "w"}
	first, err := s.Claim(t.Context(), time.Now(), claim, nil)
	must(t, err)
	done := first[0]
	done.State, done.FinishedAt, done.LeaseUntil = ojs.StateCompleted, time.Now(), time.Time{}
	must(t, insert(t.Context(), s, limited))
	tx, err := admin.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE ojs.job_start IN SHARE MODE") // which limits are counted in
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		_, _, err := s.SettleAndClaim(t.Context(), time.Now(), []*storage.Record{&done}, nil, claim,
			[]*storage.Record{{}})
		ended <- err
	}()
	is := func(condition string) func() bool {
		return func() (is bool) {
			must(t, admin.QueryRow(t.Context(), "SELECT "+condition).Scan(&is))
			return is
		}
	}
	await(t, "the claim waits", is("EXISTS (SELECT FROM pg_locks WHERE NOT granted)"))
	execAll(t, admin, "ALTER SYSTEM SET synchronous_standby_names = 'absent'", "SELECT pg_reload_conf()")
	await(t, "commits wait for a standby", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		conn, err := pgx.Connect(t.Context(), server.DSN())
		must(t, err)
		defer conn.Close(context.WithoutCancel(ctx))
		_, err = conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS probe (); INSERT INTO probe DEFAULT VALUES")
		return err != nil
	})
	must(t, tx.Commit(t.Context()))
	await(t, "the step returns", func() bool {
		execAll(t, admin, meanwhile)
		select {
		case err = <-ended:
			return true
		default:
			return false
		}
	})
	if !errors.Is(err, postgres.ErrUnavailable) {
		t.Errorf("the step returned %v", err)
	}
	execAll(t, admin, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
	await(t, "the job with a limit is active", func() bool {
		recs, err := s.ClaimedBy(t.Context(), "w")
		return err == nil && len(recs) == 1 && recs[0].ID == limited.ID
	})
}
