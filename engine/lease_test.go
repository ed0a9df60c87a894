package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// unheard is a storage whose users do not hear of one another.
type unheard struct{ storage.Storage }

// An engine claims a job again whose lost lease it has not heard of yet. The next renewal
// is for both attempts: only the first one has lost the job.
func TestRenewalOfALostClaimSparesTheNextOne(t *testing.T) {
	store := memory.New()
	inBubbleOn(t, unheard{store}, func(b *rig) {
		causes := make(map[int]error)
		b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
			d := 10 * time.Second
			if job.Attempt == 1 {
				d = time.Minute
			}
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			causes[job.Attempt] = context.Cause(ctx)
			return nil
		})
		b.handle("y", func(context.Context, *ojs.Job[any]) error { return nil })
		b.run()
		ticket := b.enqueue("x", ojs.WithLease(3*time.Second))
		b.advance(time.Second) // the lease is renewed every second

		// Another engine, whose clock is ahead, takes the job and gives it back.
		due, err := store.Due(b.ctx, time.Now().Add(time.Minute), 10, nil)
		if err != nil || len(due.Stalled) != 1 {
			t.Fatalf("%+v, %v", due, err)
		}
		rec := due.Stalled[0]
		rec.State, rec.NextRetryAt, rec.LeaseUntil = ojs.StateRetryable, time.Now(), time.Time{}
		if s, err := store.Settle(b.ctx, time.Now(), []storage.Change{{Record: rec}}, nil); err != nil ||
			s[0].Err != nil {
			t.Fatalf("%+v, %v", s, err)
		}
		if _, err := store.Due(b.ctx, time.Now(), 10, nil); err != nil {
			t.Fatal(err)
		}
		b.enqueue("y") // the engine looks for jobs, and claims this one again
		b.advance(time.Minute)

		b.want(ticket.ID, ojs.StateCompleted, 2)
		b.mu.Lock()
		defer b.mu.Unlock()
		if !errors.Is(causes[1], ojs.ErrLeaseLost) || causes[2] != nil {
			t.Errorf("the first attempt ended with %v, the second with %v", causes[1], causes[2])
		}
	}, engine.WithConcurrency(3))
}
