package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// A schema that pg_dump has copied to another server goes on there: what waits runs, what
// ran runs again when its lease ends, and limits, turns and uniqueness hold.
func TestDump(t *testing.T) {
	t.Parallel()
	before, after := privateServer(t), privateServer(t)
	s := openAs(t, poolAt(t, before.DSN(), nil), "ojs")
	old := newEngine(t, s)
	soon := ojs.WithLease(time.Second)
	var tickets []ojs.Ticket
	enqueueAs := func(jobType string, opts ...ojs.Option) ojs.Ticket {
		t.Helper()
		ticket, err := old.Enqueue(t.Context(), jobType, len(tickets), append(opts, soon)...)
		must(t, err)
		tickets = append(tickets, ticket)
		return ticket
	}
	enqueue := func(opts ...ojs.Option) ojs.Ticket { t.Helper(); return enqueueAs("x", opts...) }
	unique := ojs.WithUnique(ojs.UniquePolicy{Key: "only", OnConflict: ojs.ConflictReject})
	one := ojs.WithRateLimit(ojs.RateLimit{Key: "one", Concurrency: 1})
	enqueue(unique)
	for range 5 {
		enqueueAs("limited", one)
		enqueue(ojs.WithOrderingKey("turn"))
		enqueue(ojs.WithFairnessKey("tenant", 1))
	}
	enqueue(ojs.WithDelay(time.Second))
	enqueue(ojs.WithDependsOn(enqueue().ID))
	enqueue(ojs.WithRetry(policy.Default()))
	claimed, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 8, Worker: "gone"}, nil)
	if err != nil || len(claimed) != 8 {
		t.Fatalf("claimed %d jobs: %v", len(claimed), err)
	}
	must(t, before.CopyTo(after, "ojs"))

	eng := newEngine(t, openAs(t, poolAt(t, after.DSN(), nil), "ojs", often), engine.WithConcurrency(20))
	busy := make(chan struct{}, 1)
	eng.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
	eng.Handle("limited", func(context.Context, *ojs.Job[int]) error {
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
		default:
			t.Error("two jobs of a key that lets one run")
		}
		return nil
	})
	if _, err := eng.Enqueue(t.Context(), "x", 0, unique); err == nil {
		t.Error("a second job with a unique key is stored")
	}
	start(t, eng)
	for _, ticket := range tickets {
		info, err := eng.Wait(t.Context(), ticket.ID)
		if err != nil || info.State != ojs.StateCompleted {
			t.Errorf("job %s: %s, %v", ticket.ID, info.State, err)
		}
	}
}
