package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
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
