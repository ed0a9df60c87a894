package engine_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
)

// listed returns the ids that a filter selects.
func (b *rig) listed(f inspect.Filter) (ids []string) {
	b.t.Helper()
	for job, err := range b.Jobs().List(b.ctx, f) {
		if err != nil {
			b.t.Fatal(err)
		}
		ids = append(ids, job.ID)
	}
	return ids
}

func TestList(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("mail.send", nothing)
		b.handle("mail.bounce", func(context.Context, *ojs.Job[any]) error {
			return ojs.DeadLetter(ojs.Errorf("smtp.refused", "no"))
		})
		b.run()
		sent := b.enqueue("mail.send", ojs.WithQueue("a")).ID
		bounced := b.enqueue("mail.bounce").ID
		b.advance(time.Minute)
		late := b.enqueue("other", ojs.WithDelay(time.Hour)).ID
		open := b.enqueue("other").ID
		b.advance(0)
		at := func(d time.Duration) time.Time { return b.start.Add(d) }
		for name, tt := range map[string]struct {
			f    inspect.Filter
			want []string
		}{
			"all": {inspect.Filter{}, []string{sent, bounced, late, open}},
			"state": {inspect.Filter{States: []ojs.State{ojs.StateScheduled, ojs.StateCompleted}},
				[]string{sent, late}},
			"queue":         {inspect.Filter{Queues: []string{"a"}}, []string{sent}},
			"type":          {inspect.Filter{Types: []string{"mail.send"}}, []string{sent}},
			"type prefix":   {inspect.Filter{Types: []string{"mail.*"}}, []string{sent, bounced}},
			"error type":    {inspect.Filter{ErrorTypes: []string{"smtp.*"}}, []string{bounced}},
			"dead-lettered": {inspect.Filter{DeadLettered: true}, []string{bounced}},
			"created": {inspect.Filter{CreatedFrom: at(time.Second), CreatedBefore: at(time.Hour)},
				[]string{late, open}},
			"created since": {inspect.Filter{CreatedFrom: at(time.Minute)}, []string{late, open}},
			"created until": {inspect.Filter{CreatedBefore: at(time.Minute)}, []string{sent, bounced}},
			"finished": {inspect.Filter{FinishedFrom: at(0), FinishedBefore: at(1)},
				[]string{sent, bounced}},
			"finished late": {inspect.Filter{FinishedFrom: at(1)}, nil},
			"both": {inspect.Filter{Types: []string{"mail.*"},
				States: []ojs.State{ojs.StateDiscarded}}, []string{bounced}},
		} {
			if got := b.listed(tt.f); !slices.Equal(got, tt.want) {
				t.Errorf("%s: %v, want %v", name, got, tt.want)
			}
		}
		var got []string
		cursor := ""
		for {
			page, err := b.Jobs().Page(b.ctx, inspect.Filter{Types: []string{"*"}}, cursor, 1)
			must(t, err)
			for _, job := range page.Jobs {
				got = append(got, job.ID)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
		if want := []string{sent, bounced, late, open}; !slices.Equal(got, want) {
			t.Errorf("pages: %v, want %v", got, want)
		}
		ids := func(page inspect.Page, err error) (ids []string) {
			must(t, err)
			for _, job := range page.Jobs {
				ids = append(ids, job.ID)
			}
			return ids
		}
		all, err := b.Jobs().Page(b.ctx, inspect.Filter{}, "", 10)
		must(t, err)
		for i, job := range all.Jobs {
			if claimed := job.Attempt > 0; claimed != (all.Workers[i] != "") {
				t.Errorf("job %s, attempt %d: worker %q", job.ID, job.Attempt, all.Workers[i])
			}
		}
		newest := inspect.Filter{Order: inspect.OrderNewest}
		first, err := b.Jobs().Page(b.ctx, newest, "", 3)
		if got, want := ids(first, err), []string{open, late, bounced}; !slices.Equal(got, want) ||
			first.Prev != "" {
			t.Errorf("the newest: %v, want %v", got, want)
		}
		second, err := b.Jobs().Page(b.ctx, newest, first.Next, 3)
		if got := ids(second, err); !slices.Equal(got, []string{sent}) || second.Looked != 1 ||
			second.Next != "" {
			t.Errorf("then %v, %+v", got, second)
		}
		back, err := b.Jobs().Page(b.ctx, newest, second.Prev, 3)
		if got, want := ids(back, err), ids(first, nil); !slices.Equal(got, want) || back.Prev != "" {
			t.Errorf("back to %v, want %v", got, want)
		}
		_, err = b.Jobs().Page(b.ctx, inspect.Filter{Order: "sideways"}, "", 3)
		wantInvalid(t, err, "filter.order")
		_, err = b.Jobs().Page(b.ctx, inspect.Filter{}, "", 0)
		wantInvalid(t, err, "limit")
		_, err = b.Jobs().Page(b.ctx, inspect.Filter{}, "nonsense", 1)
		wantInvalid(t, err, "cursor")
		for _, err := range b.Jobs().List(b.ctx, inspect.Filter{States: []ojs.State{"lost"}}) {
			wantInvalid(t, err, "filter.states")
		}
		for range b.Jobs().List(b.ctx, inspect.Filter{}) {
			break // ends the listing
		}
	})
}

func TestSetPriority(t *testing.T) {
	inBubble(t, func(b *rig) {
		var order []any
		b.Handle("x",
			func(_ context.Context,
				job *ojs.Job[any]) error {
				order = append(order, job.Meta["n"])
				return nil
			})
		sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.PriorityChanged}})
		defer sub.Close()
		var ids []string
		for i := range 3 {
			ids = append(ids, b.enqueue("x", ojs.WithMeta("n", i)).ID)
		}
		scheduled := b.enqueue("x", ojs.WithMeta("n", 3), ojs.WithDelay(time.Minute))
		must(t, b.Jobs().SetPriority(b.ctx, ids[2], 5))
		must(t, b.Jobs().SetPriority(b.ctx, ids[2], 5))
		must(t, b.Jobs().SetPriority(b.ctx, scheduled.ID, 7))
		b.run()
		b.advance(time.Second)
		if want := []any{2.0, 0.0, 1.0}; !reflect.DeepEqual(order, want) {
			t.Errorf("P0.4: ran %v, want %v", order, want)
		}
		if job := b.job(scheduled.ID); job.Priority != 7 {
			t.Errorf("priority %d", job.Priority)
		}
		if events := received(sub); len(events) != 2 || events[0].Data()["priority"] != 5 {
			t.Errorf("events %v", events)
		}
		if err := b.Jobs().SetPriority(b.ctx, ids[0], 1); !errors.Is(err, ojs.ErrTransition) ||
			!strings.HasSuffix(err.Error(),
				"is completed; only an available or scheduled job can change its priority") {
			t.Errorf("P0.4: a completed job: %v", err)
		}
		wantInvalid(t, b.Jobs().SetPriority(b.ctx, scheduled.ID, 1<<40), "priority")
		if err := b.Jobs().SetPriority(b.ctx, "nobody", 1); !errors.Is(err, ojs.ErrNotFound) {
			t.Errorf("%v", err)
		}
	}, engine.WithConcurrency(1))
}

func TestReschedule(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("x", func(_ context.Context, job *ojs.Job[any]) error {
			if job.Meta["fails"] != nil && job.Attempt == 1 {
				return ojs.RetryAfter(time.Minute, errBoom)
			}
			return nil
		})
		b.run()
		later := b.enqueue("x", ojs.WithDelay(time.Hour))
		must(t, b.Jobs().Reschedule(b.ctx, later.ID, b.start.Add(2*time.Second)))
		now := b.enqueue("x", ojs.WithDelay(time.Hour))
		must(t, b.Jobs().Reschedule(b.ctx, now.ID, b.start.Add(-time.Hour)))
		b.advance(0)
		retry := b.enqueue("x", ojs.WithMeta("fails", true))
		b.advance(0)
		must(t, b.Jobs().Reschedule(b.ctx, retry.ID, b.start.Add(3*time.Second)))
		waits := b.enqueue("y")
		must(t, b.Jobs().Reschedule(b.ctx, waits.ID, b.start.Add(4*time.Second)))
		b.want(waits.ID, ojs.StateScheduled, 0)
		b.advance(time.Hour)
		b.want(waits.ID, ojs.StateAvailable, 0)
		b.want(retry.ID, ojs.StateCompleted, 2)
		if got, want := b.times(), seconds(0, 0, 2, 3); !reflect.DeepEqual(got, want) {
			t.Errorf("ran at %v, want %v", got, want)
		}
		if err := b.Jobs().Reschedule(b.ctx, now.ID, time.Now()); !errors.Is(err, ojs.ErrTransition) {
			t.Errorf("a completed job: %v", err)
		}
		pending := b.enqueue("x", ojs.WithPending())
		if err := b.Jobs().Reschedule(b.ctx, pending.ID, time.Now()); !errors.Is(err, ojs.ErrTransition) {
			t.Errorf("a pending job: %v", err)
		}
		ends := b.enqueue("y", ojs.WithTTL(time.Minute))
		wantInvalid(t, b.Jobs().Reschedule(b.ctx, ends.ID, time.Now().Add(time.Minute)), "scheduled_at")
		wantInvalid(t, b.Jobs().Reschedule(b.ctx, ends.ID, time.Time{}), "scheduled_at")
	})
}

func TestPending(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("x", nothing)
		b.run()
		ticket := b.enqueue("x", ojs.WithPending())
		if ticket.State != ojs.StatePending {
			t.Errorf("ticket %+v", ticket)
		}
		b.advance(time.Hour)
		if job := b.want(ticket.ID, ojs.StatePending, 0); !job.EnqueuedAt.IsZero() {
			t.Error("enqueued_at before it is available")
		}
		must(t, b.Jobs().Activate(b.ctx, ticket.ID))
		b.advance(0)
		if job := b.want(ticket.ID, ojs.StateCompleted, 1); job.EnqueuedAt.Sub(b.start) != time.Hour {
			t.Errorf("enqueued at %v", job.EnqueuedAt)
		}
		if err := b.Jobs().Activate(b.ctx, ticket.ID); !errors.Is(err, ojs.ErrTransition) {
			t.Errorf("%v", err)
		}
		later := b.enqueue("x", ojs.WithPending(), ojs.WithDelay(time.Hour))
		must(t, b.Jobs().Activate(b.ctx, later.ID))
		b.advance(time.Hour - 1)
		if job := b.want(later.ID, ojs.StateScheduled, 0); !job.EnqueuedAt.IsZero() {
			t.Error("enqueued_at of a scheduled job")
		}
		b.advance(1)
		b.want(later.ID, ojs.StateCompleted, 1)
		ends := b.enqueue("x", ojs.WithPending(), ojs.WithTTL(time.Minute))
		b.advance(time.Hour)
		b.want(ends.ID, ojs.StateDiscarded, 0)
	})
}

func TestBulk(t *testing.T) {
	fails := ojs.WithMaxAttempts(1)
	ids := func(rs []operate.Result) (out []string) {
		for _, r := range rs {
			if r.Err == nil {
				out = append(out, r.ID)
			}
		}
		return out
	}
	dead := inspect.Filter{DeadLettered: true}
	t.Run("P1.7 cancel what waits", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.Handle("busy", func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return nil })
			b.handle("done", nothing)
			b.run()
			done := b.enqueue("done").ID
			busy := b.enqueue("busy").ID
			b.advance(0)
			a, p, s := b.enqueue("x").ID, b.enqueue("x", ojs.WithPending()).ID,
				b.enqueue("x", ojs.WithDelay(time.Hour)).ID
			rs, err := results(b.Jobs().Apply(b.ctx, operate.Bulk{Do: operate.CancelJobs()}))
			if want := []string{a, p, s}; err != nil || !slices.Equal(ids(rs), want) {
				t.Errorf("%v, %v, want %v", rs, err, want)
			}
			b.want(busy, ojs.StateActive, 1)
			b.want(done, ojs.StateCompleted, 1)
			rs, err = results(b.Jobs().Apply(b.ctx, operate.Bulk{Do: operate.CancelJobs(),
				On: inspect.Filter{States: []ojs.State{ojs.StateActive}}}))
			if err != nil || !slices.Equal(ids(rs), []string{busy}) {
				t.Errorf("%v, %v", rs, err)
			}
			b.advance(0)
			b.want(busy, ojs.StateCancelled, 1)
			_, err = results(b.Jobs().Apply(b.ctx, operate.Bulk{Do: operate.CancelJobs(),
				On: inspect.Filter{States: []ojs.State{ojs.StateCompleted}}}))
			wantInvalid(t, err, "filter.states")
		})
	})
	t.Run("P1.7 retry what was discarded", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			good := false
			b.handle("x", func(context.Context, *ojs.Job[any]) error {
				if good {
					return nil
				}
				return errBoom
			})
			b.run()
			var all []string
			for range 3 {
				all = append(all, b.enqueue("x", fails).ID)
			}
			waits := b.enqueue("x",
				ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Minute, Jitter: ojs.JitterOff})).ID
			b.advance(0)
			b.want(all[0], ojs.StateDiscarded, 1)
			b.want(waits, ojs.StateRetryable, 1)
			good = true
			rs, err := results(b.Jobs().Apply(b.ctx, operate.Bulk{Do: operate.RetryJobs()}))
			if err != nil || !slices.Equal(ids(rs), all) {
				t.Errorf("%v, %v", rs, err)
			}
			b.advance(0)
			for _, id := range all {
				b.want(id, ojs.StateCompleted, 1)
			}
			must(t, b.Jobs().Retry(b.ctx, waits))
			b.advance(0)
			b.want(waits, ojs.StateCompleted, 2)
			if err := b.Jobs().Retry(b.ctx, waits); !errors.Is(err, ojs.ErrTransition) {
				t.Errorf("%v", err)
			}
		})
	})
	t.Run("P1.7 delete what has ended", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", nothing)
			b.run()
			done := b.enqueue("x").ID
			waits := b.enqueue("y").ID
			b.advance(time.Second)
			rs, err := results(b.Jobs().Apply(b.ctx, operate.Bulk{Do: operate.DeleteJobs()}))
			if err != nil || !slices.Equal(ids(rs), []string{done}) ||
				!slices.Equal(b.listed(inspect.Filter{}), []string{waits}) {
				t.Errorf("%v, %v", rs, err)
			}
			if err := b.Jobs().Delete(b.ctx, waits); !errors.Is(err, ojs.ErrTransition) {
				t.Errorf("%v", err)
			}
			if err := b.Jobs().Delete(b.ctx, done); !errors.Is(err, ojs.ErrPruned) {
				t.Errorf("%v", err)
			}
		})
	})
	t.Run("P0.7 dead letters: stats, replay at a rate with overrides, delete", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			good := false
			b.handle("x", func(context.Context, *ojs.Job[any]) error {
				if good {
					return nil
				}
				return ojs.DeadLetter(ojs.Errorf("smtp.down", "no"))
			})
			b.handle("y", func(context.Context, *ojs.Job[any]) error { return ojs.DeadLetter(errBoom) })
			b.run()
			var xs []string
			for range 3 {
				xs = append(xs, b.enqueue("x").ID)
				b.advance(time.Second)
			}
			b.enqueue("y", ojs.WithQueue("q"))
			b.advance(0)
			s, err := b.DeadLetters().Stats(b.ctx)
			want := operate.DeadLetterStats{
				Total: 4, ByQueue: map[string]int{"default": 3, "q": 1},
				ByType:      map[string]int{"x": 3, "y": 1},
				ByErrorType: map[string]int{"smtp.down": 3, "error": 1}, Oldest: b.start.UTC(),
				Newest: b.start.Add(3 * time.Second).UTC(),
			}
			if err != nil || !reflect.DeepEqual(s, want) {
				t.Errorf("%+v, %v", s, err)
			}
			good = true
			before := len(b.times())
			rs, err := results(b.Jobs().Apply(b.ctx, operate.Bulk{
				Do:    operate.RetryJobs(ojs.WithQueue("again")),
				On:    inspect.Filter{DeadLettered: true, ErrorTypes: []string{"smtp.*"}},
				Every: 10 * time.Second}))
			if err != nil || !slices.Equal(ids(rs), xs) {
				t.Errorf("%v, %v", rs, err)
			}
			synctest.Wait()
			if got, want := b.times()[before:], seconds(3, 13, 23); !reflect.DeepEqual(got, want) {
				t.Errorf("replayed at %v, want %v", got, want)
			}
			if job := b.want(xs[0], ojs.StateCompleted, 1); job.Queue != "again" {
				t.Errorf("queue %s", job.Queue)
			}
			rs, err = results(b.Jobs().Apply(b.ctx, operate.Bulk{Do: operate.DeleteJobs(), On: dead}))
			if err != nil || len(ids(rs)) != 1 || b.deadLetters() != nil {
				t.Errorf("%v, %v", rs, err)
			}
		})
	})
	t.Run("P0.7 a replay of what dies again retries each once", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return ojs.DeadLetter(errBoom) })
			b.run()
			const n = 1001 // a page of a listing, and one
			for range n {
				b.enqueue("x")
			}
			b.advance(time.Second)
			ctx, cancel := context.WithTimeout(b.ctx, time.Hour)
			defer cancel()
			rs, err := results(b.Jobs().Apply(ctx, operate.Bulk{
				Do: operate.RetryJobs(), On: dead, Every: time.Second}))
			if err != nil || len(ids(rs)) != n || b.elapsed() != n*time.Second {
				t.Errorf("%d retried after %v, %v", len(ids(rs)), b.elapsed(), err)
			}
			synctest.Wait()
			if got := len(b.times()); got != 2*n {
				t.Errorf("%d runs of %d jobs", got, n)
			}
		})
	})
	t.Run("P0.7 a replay ends with its context", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return ojs.DeadLetter(errBoom) })
			b.run()
			b.enqueue("x")
			b.enqueue("x")
			b.advance(0)
			ctx, cancel := context.WithTimeout(b.ctx, time.Second)
			defer cancel()
			rs, err := results(b.Jobs().Apply(ctx, operate.Bulk{
				Do: operate.RetryJobs(), On: dead, Every: time.Minute}))
			if !errors.Is(err, context.DeadlineExceeded) || len(rs) != 2 || rs[0].Err != nil ||
				rs[1].Err == nil {
				t.Errorf("%v, %v", rs, err)
			}
			b.advance(time.Second)
		})
	})
}
