package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// outages is a storage of which every call fails in a period, and which notes when each
// method first succeeds after that.
type outages struct {
	*storagetest.Faulty
	inner      *memory.Storage
	from, till time.Time

	mu    sync.Mutex // guards first
	first map[string]time.Time
}

func newOutage(from, till time.Duration) *outages {
	s := &outages{inner: memory.New(), first: make(map[string]time.Time)}
	s.from, s.till = time.Now().Add(from), time.Now().Add(till)
	s.Faulty = &storagetest.Faulty{Storage: s.inner}
	s.OnCall(func(c *storagetest.Call) {
		now := time.Now()
		switch {
		case now.Before(s.from):
		case now.Before(s.till):
			c.Err = errStorage
		default:
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, m := range []string{c.Method, ""} {
				if s.first[m].IsZero() {
					s.first[m] = now
				}
			}
		}
	})
	return s
}

// Every wait that a failing storage has caused ends within a second of the first call
// that succeeds, however long the backoff is: of outcomes, claims, leases, deadlines,
// recurring jobs, pauses, dead letters, pruning, and reports.
func TestOutageEndsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOutage(10*time.Second, 330*time.Second)
		eng, err := engine.New[any](s, quiet, engine.WithConcurrency(3),
			engine.WithReports(engine.Reports{Every: time.Minute}),
			engine.WithReplayRules(engine.ReplayRule{Name: "again", Delay: 30 * time.Second, MaxReplays: 1}))
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		eng.Handle("short", func(context.Context, *ojs.Job[any]) error {
			pace.Virtual(20 * time.Second)
			return nil
		})
		eng.Handle("long", func(ctx context.Context, _ *ojs.Job[any]) error {
			<-ctx.Done()
			return ctx.Err()
		})
		eng.Handle("dies", func(context.Context, *ojs.Job[any]) error { return errBoom })
		ended := make(chan error, 1)
		go func() { ended <- eng.Run(ctx) }()
		synctest.Wait()

		_, err = eng.Enqueue(ctx, "dies", nil, ojs.WithMaxAttempts(1))
		must(t, err)
		_, err = eng.Enqueue(ctx, "long", nil, ojs.WithLease(9*time.Minute), ojs.WithTimeout(2*time.Hour))
		must(t, err)
		must(t, eng.Cron().Set(ctx, cron.Entry{Name: "e", Schedule: "* * * * *",
			Job: ojs.NewDraft("dies", nil)}))
		var jobs []ojs.Ticket
		for range 6 { // of which two run when the storage fails
			ticket, err := eng.Enqueue(ctx, "short", nil)
			must(t, err)
			jobs = append(jobs, ticket)
		}
		pace.Virtual(20 * time.Second)
		other, err := engine.New[any](s.inner, quiet)
		must(t, err)
		_, err = other.Queues().PauseType(ctx, "other", "")
		must(t, err)

		pace.Virtual(time.Until(s.till) + 2*time.Second)
		synctest.Wait()
		s.mu.Lock()
		calls := maps.Clone(s.first)
		s.mu.Unlock()
		first := calls[""]
		if first.IsZero() || first.Sub(s.till) > time.Second {
			t.Errorf("the first call after the outage is %v late", first.Sub(s.till))
		}
		for _, m := range []string{"Settle", "Claim", "Extend", "Due", "DueDocuments cron", "List", "Prune",
			"PutDocuments value", "Documents value"} {
			if at := calls[m]; at.IsZero() || at.Sub(first) > time.Second {
				t.Errorf("%s: %v after the first call, at %v", m, at.Sub(first), at)
			}
		}
		pace.Virtual(time.Minute)
		synctest.Wait()
		for _, j := range jobs {
			job, err := eng.Get(ctx, j.ID)
			if err != nil || job.State != ojs.StateCompleted || job.Attempt != 1 {
				t.Errorf("%+v, %v", job, err)
			}
		}
		stop()
		<-ended
	})
}

// An engine that does not report renews its leases at the end of an outage, too.
func TestOutageEndRenewsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOutage(10*time.Second, 330*time.Second)
		eng, err := engine.New[any](s, quiet)
		must(t, err)
		ctx, stop := context.WithTimeout(t.Context(), 332*time.Second)
		defer stop()
		eng.Handle("long", func(ctx context.Context, _ *ojs.Job[any]) error {
			<-ctx.Done()
			return ctx.Err()
		})
		_, err = eng.Enqueue(ctx, "long", nil, ojs.WithLease(9*time.Minute), ojs.WithTimeout(2*time.Hour))
		must(t, err)
		must(t, eng.Run(ctx))
		if first, at := s.first[""], s.first["Extend"]; at.IsZero() || at.Sub(first) > time.Second {
			t.Errorf("the lease is renewed at %v, and the first call is at %v", at, first)
		}
	})
}

// The log has a line when an outage begins, one each minute with the number of failed
// calls, and one when it ends.
func TestOutageInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOutage(10*time.Second, 310*time.Second)
		var out lockedBuffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
		eng, err := engine.New[any](s, engine.WithLogger(log), engine.WithConcurrency(20),
			engine.WithReports(engine.Reports{}))
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		eng.Handle("x", func(context.Context, *ojs.Job[any]) error {
			pace.Virtual(20 * time.Second)
			return nil
		})
		ended := make(chan error, 1)
		go func() { ended <- eng.Run(ctx) }()
		for range 20 {
			_, err := eng.Enqueue(ctx, "x", nil, ojs.WithLease(time.Minute))
			must(t, err)
		}
		pace.Virtual(6 * time.Minute)
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		// at 10 s, after 1, 2, 3 and 4 minutes, and the end
		if len(lines) != 6 || !strings.Contains(lines[0], "the storage fails") ||
			!strings.Contains(lines[1], "failures=") ||
			!strings.Contains(lines[5], "the storage answers again") {
			t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines[:min(len(lines), 12)], "\n"))
		}
		stop()
		must(t, <-ended)
	})
}

// An outcome that the storage does not take keeps no other job from starting, and is
// stored once the storage takes it. If it takes none, as many wait as there are slots,
// and no more jobs start than that.
func TestOutcomeThatWaitsHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the rest
		refused, all := "", false
		s := hooked(func(c *storagetest.Call) {
			mu.Lock()
			defer mu.Unlock()
			if changes, ok := c.In.([]storage.Change); ok {
				for i := range changes {
					if all || changes[i].Record.ID == refused {
						c.Err = errStorage
					}
				}
			}
		})
		eng, err := engine.New[any](s, quiet, engine.WithConcurrency(1))
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ran := 0
		eng.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
			mu.Lock()
			defer mu.Unlock()
			ran++
			if refused == "" {
				refused = job.ID
			}
			return nil
		})
		ended := make(chan error, 1)
		go func() { ended <- eng.Run(ctx) }()
		var ids []string
		for i := range 5 {
			ticket, err := eng.Enqueue(ctx, "x", i)
			must(t, err)
			ids = append(ids, ticket.ID)
		}
		pace.Virtual(20 * time.Second)
		synctest.Wait()
		states := func() string {
			var list []string
			for _, id := range ids {
				job, err := eng.Get(ctx, id)
				must(t, err)
				list = append(list, string(job.State))
			}
			return fmt.Sprint(list)
		}
		if got := states(); got != "[active completed completed completed completed]" {
			t.Errorf("with an outcome that is refused: %s", got)
		}
		mu.Lock()
		refused = "none"
		mu.Unlock()
		pace.Virtual(time.Minute)
		synctest.Wait()
		if got := states(); got != "[completed completed completed completed completed]" || ran != 5 {
			t.Errorf("later: %s, %d handlers ran", got, ran)
		}

		mu.Lock()
		all = true
		mu.Unlock()
		for i := range 10 {
			_, err := eng.Enqueue(ctx, "x", i)
			must(t, err)
		}
		pace.Virtual(time.Minute)
		synctest.Wait()
		mu.Lock()
		if ran-5 > 3 {
			t.Errorf("%d jobs have started whose outcomes are not stored", ran-5)
		}
		all = false
		mu.Unlock()
		pace.Virtual(time.Minute)
		synctest.Wait()
		if ran != 15 {
			t.Errorf("%d handlers ran", ran)
		}
		stop()
		must(t, <-ended)
	})
}
