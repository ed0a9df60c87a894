package crashtest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// holder is the role of a process that holds a job until it is killed.
const holder = "holder"

// held is the type of its jobs.
const held = "held"

// often are reports that find a dead process soon.
var often = engine.WithReports(engine.Reports{Every: 100 * time.Millisecond, DeadAfter: time.Second})

// hold runs jobs that never end.
func hold(ctx context.Context, s storage.Storage, log *slog.Logger) error {
	eng, err := engine.New[task](s, engine.WithLogger(log), often)
	if err != nil {
		return err
	}
	eng.Handle(held, func(ctx context.Context, _ *ojs.Job[task]) error {
		<-ctx.Done()
		return ctx.Err()
	})
	return eng.Run(ctx)
}

// Killed kills a process that holds a job with the default lease. It wants another one to
// run the job before the lease of the first one ends.
func Killed(t *testing.T, open Open, at string) {
	g := &group{t: t, cfg: &Config{Open: open, At: at}, dir: t.TempDir()}
	defer g.killAll()
	s, release, err := open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer closeStorage(t, s, release)
	eng, err := engine.New[task](s, engine.WithLogger(slog.New(slog.DiscardHandler)), often)
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan int, 1)
	eng.Handle(held, func(_ context.Context, job *ojs.Job[task]) error {
		ran <- job.Attempt
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer wall.AfterFunc(drainTime, cancel).Stop()
	soon := ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Millisecond})
	ticket, err := eng.Enqueue(ctx, held, task{}, soon)
	if err != nil {
		t.Fatal(err)
	}
	g.start(holder)
	claimed, err := s.Get(ctx, ticket.ID)
	var there []inspect.Node // that have reported: of others only the leases tell
	for err == nil && (claimed.State != ojs.StateActive || len(there) == 0) {
		Wait(ctx, lookEvery)
		if claimed, err = s.Get(ctx, ticket.ID); err == nil {
			there, err = eng.Jobs().Nodes(ctx)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if lease := claimed.LeaseUntil.Sub(claimed.StartedAt); lease != engine.DefaultClaimLease ||
		claimed.Lease != ojs.DefaultLease {
		t.Errorf("the job has a lease of %v, and is held for %v", claimed.Lease, lease)
	}
	g.killAll()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(running) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	done, err := ticket.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if n := <-ran; n != 2 || !done.StartedAt.Before(claimed.LeaseUntil) {
		t.Errorf("attempt %d began %v after the end of the lease", n, done.StartedAt.Sub(claimed.LeaseUntil))
	}
	if f := done.Errors; len(f) != 1 || f[0].Type != policy.ErrorTypeLeaseExpired {
		t.Errorf("%+v", f)
	}
	g.checkLog()
}
