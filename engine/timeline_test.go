package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/operate"
)

// timeline returns the life of a job, and its attempts and notes in words.
// historyNotes is how many notes of its latest changes a job keeps.
const historyNotes = 20

func (b *rig) timeline(id string) (tl *inspect.Timeline, words []string) {
	b.t.Helper()
	tl, err := b.Jobs().Timeline(b.ctx, id)
	must(b.t, err)
	for _, a := range tl.Attempts {
		words = append(words, string(a.Outcome))
	}
	for _, n := range tl.Notes {
		words = append(words, strings.TrimSpace(string(n.What)+" "+n.By+" "+n.Text))
	}
	return tl, words
}

func TestTimeline(t *testing.T) {
	inBubble(t, func(b *rig) {
		runs := 0
		b.handle("a", func(ctx context.Context, _ *ojs.Job[any]) error {
			pace.Virtual(time.Second)
			switch runs++; runs {
			case 1:
				return ojs.Snooze(time.Minute)
			case 2, 3:
				return errBoom
			case 4:
				return ojs.Permanent(errBoom)
			}
			return nil
		})
		retry := ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 4, Jitter: ojs.JitterOff,
			InitialInterval: 10 * time.Second, BackoffCoefficient: 2})
		id := b.enqueue("a", retry, ojs.WithDelay(time.Hour)).ID
		tl, _ := b.timeline(id)
		var due []time.Duration
		for i, n := range tl.Next {
			if due = append(due, n.At.Sub(b.start)); n.N != i+1 {
				t.Errorf("attempt %d: %+v", i+1, n)
			}
		}
		hour := time.Hour
		want := []time.Duration{hour, hour + 10*time.Second, hour + 30*time.Second, hour + 70*time.Second}
		if !slices.Equal(due, want) {
			t.Errorf("to come: %v, want %v", due, want)
		}
		b.run()
		b.advance(time.Hour + time.Second/2)
		tl, words := b.timeline(id)
		if !slices.Equal(words, []string{"running"}) || tl.Worker == "" || !tl.LeaseUntil.After(time.Now()) {
			t.Errorf("running: %v %+v", words, tl)
		}
		if d := tl.Attempts[0].Duration(time.Now()); d != time.Second/2 {
			t.Errorf("runs for %v", d)
		}
		b.advance(5 * time.Minute)
		by := ojs.WithActor(b.ctx, "ann")
		must(t, b.Jobs().Retry(by, id, ojs.WithPriority(3)))
		b.advance(time.Minute)
		tl, words = b.timeline(id)
		outcomes := []string{"snoozed", "failed", "failed", "failed", "completed", "retried ann"}
		if !slices.Equal(words, outcomes) {
			t.Errorf("%v, want %v", words, outcomes)
		}
		for i, a := range tl.Attempts {
			failed := a.Outcome == inspect.OutcomeFailed
			if a.Duration(time.Now()) != time.Second || a.Worker == "" || failed != (a.Failure != nil) {
				t.Errorf("attempt %d: %+v", i, a)
			}
		}
		if len(tl.Next) != 0 || !tl.LeaseUntil.IsZero() {
			t.Errorf("to come: %v", tl.Next)
		}
		if _, err := b.Jobs().Timeline(b.ctx, "none"); !errors.Is(err, ojs.ErrNotFound) {
			t.Errorf("no job: %v", err)
		}
	})
}

// The checkpoint of an attempt is there until the job ends.
func TestTimelineHasTheCheckpoint(t *testing.T) {
	inBubble(t, func(b *rig) {
		runs := 0
		b.handle("a", func(ctx context.Context, _ *ojs.Job[any]) error {
			if runs++; runs > 1 {
				return nil
			}
			must(t, handler.SaveCheckpoint(ctx, 7))
			return ojs.Snooze(time.Minute)
		})
		id := b.enqueue("a").ID
		b.run()
		b.advance(time.Second)
		for _, want := range []string{"7", ""} {
			if tl, _ := b.timeline(id); string(tl.Checkpoint) != want {
				t.Errorf("the checkpoint is %q, want %q", tl.Checkpoint, want)
			}
			b.advance(time.Minute)
		}
	})
}

// A change by a call is noted with the name of the caller, the last 20 changes.
func TestActor(t *testing.T) {
	inBubble(t, func(b *rig) {
		by := ojs.WithActor(b.ctx, "ann")
		id := b.enqueue("a", ojs.WithPending()).ID
		must(t, b.Jobs().Activate(by, id))
		must(t, b.Jobs().SetPriority(by, id, 3))
		must(t, b.Jobs().Reschedule(by, id, b.start.Add(time.Hour)))
		must(t, b.Jobs().Move(by, id, "other"))
		must(t, b.Jobs().Edit(b.ctx, id, operate.Edit{Args: 1, Meta: map[string]any{"k": 1}}))
		must(t, b.Cancel(by, id))
		tl, words := b.timeline(id)
		want := []string{
			"activated ann", "priority ann from 0 to 3", "rescheduled ann", "moved ann from default to other",
			"edited  args, meta.k", "cancelled ann",
		}
		if !slices.Equal(words, want) || !tl.Notes[2].Until.Equal(b.start.Add(time.Hour)) {
			t.Errorf("%q, want %q", words, want)
		}
		many := b.enqueue("a").ID
		for p := range historyNotes + 5 {
			must(t, b.Jobs().SetPriority(b.ctx, many, p+1))
		}
		if job := b.job(many); len(job.History) != historyNotes || job.History[0].Text != "from 5 to 6" {
			t.Errorf("%d notes, the first %+v", len(job.History), job.History[0])
		}
		plain := b.enqueue("a").ID
		must(t, b.Cancel(b.ctx, plain)) // its time is in the job
		if job := b.job(plain); len(job.History) != 0 {
			t.Errorf("%+v", job.History)
		}
		long := ojs.WithActor(b.ctx, strings.Repeat("é", 100))
		if name := ojs.Actor(long); name != strings.Repeat("é", 64) {
			t.Errorf("a long name is cut to %q", name)
		}
	})
}

// An attempt that a stop interrupts is in the timeline.
func TestTimelineReturned(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("a", func(ctx context.Context, _ *ojs.Job[any]) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		b.run()
		id := b.enqueue("a").ID
		b.advance(time.Minute)
		b.halt()
		tl, words := b.timeline(id)
		if !slices.Equal(words, []string{"returned"}) {
			t.Fatalf("%v %+v", words, tl.Attempts)
		}
		if a := tl.Attempts[0]; a.N != 1 || !a.Start.Equal(b.start) || a.Worker == "" {
			t.Errorf("%+v", a)
		}
	}, engine.WithGracePeriod(0))
}
