package remote_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

// An operator's calls do what those of an engine do.
func TestOperators(t *testing.T) {
	r := newRig(t)
	w, c := worker[any](r), r.dial()
	w.Register(handler.For(charge, func(_ context.Context, job *ojs.Job[order]) error {
		if job.Args.N == 0 {
			return ojs.DeadLetter(errors.New("no"))
		}
		return nil
	}))
	ctx := within(t)
	enqueue := func(n int, opts ...ojs.Option) ojs.Ticket {
		t.Helper()
		ticket, err := charge.Enqueue(ctx, c, order{n}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	state := func(id string) ojs.State {
		t.Helper()
		job, err := c.Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return job.State
	}
	waiting := enqueue(1, ojs.WithPending(), ojs.WithQueue("elsewhere"))
	later := enqueue(2, ojs.WithDelay(time.Hour))
	dead := enqueue(0)
	runs(r, w)
	if _, err := dead.Wait(ctx); ended(err) == nil || !ended(err).DeadLettered {
		t.Fatalf("%v", err)
	}

	if err := c.Jobs().Activate(ctx, waiting.ID); err != nil || state(waiting.ID) != ojs.StateAvailable {
		t.Errorf("Activate: %v", err)
	}
	if err := c.Jobs().SetPriority(ctx, waiting.ID, 7); err != nil {
		t.Errorf("SetPriority: %v", err)
	}
	if job, err := c.Jobs().Get(ctx, waiting.ID); err != nil || job.Priority != 7 {
		t.Errorf("SetPriority: %+v, %v", job, err)
	}
	if err := c.Jobs().Delete(ctx, later.ID); !errors.Is(err, ojs.ErrTransition) {
		t.Errorf("Delete: %v", err)
	}
	if err := c.Jobs().Cancel(ctx, later.ID); err != nil {
		t.Errorf("Cancel: %v", err)
	}
	if err := c.Jobs().Delete(ctx, later.ID); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if err := c.Jobs().Delete(ctx, later.ID); !errors.Is(err, ojs.ErrNotFound) {
		t.Errorf("Delete: %v", err)
	}
	if err := c.Jobs().Retry(ctx, waiting.ID); !errors.Is(err, ojs.ErrTransition) {
		t.Errorf("Retry: %v", err)
	}

	ids := func(f inspect.Filter) (list []string) {
		t.Helper()
		for job, err := range c.Jobs().List(ctx, f) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, job.ID)
		}
		return list
	}
	for range 150 { // more than a page
		enqueue(1, ojs.WithQueue("many"))
	}
	if got := ids(inspect.Filter{Queues: []string{"many"}, Order: storage.OrderOldest}); len(got) != 150 ||
		!slices.IsSorted(got) {
		t.Errorf("List: %d jobs", len(got))
	}
	if got := ids(inspect.Filter{Queues: []string{"elsewhere"}, States: []ojs.State{ojs.StateAvailable},
		Types: []string{"order.*"}}); !slices.Equal(got, []string{waiting.ID}) {
		t.Errorf("List: %v", got)
	}
	for _, f := range []inspect.Filter{{Error: "x"}, {Queues: []string{"a", "b"}}, {Order: storage.OrderDue},
		{Tags: []string{"x"}},
		{DeadLettered: true, States: []ojs.State{ojs.StateDiscarded}}} {
		for _, err := range c.Jobs().List(ctx, f) {
			if !errors.Is(err, ojs.ErrUnsupported) {
				t.Errorf("List of %s: %v", f, err)
			}
		}
	}

	if got := ids(inspect.Filter{DeadLettered: true}); !slices.Equal(got, []string{dead.ID}) {
		t.Errorf("dead letters: %v", got)
	}
	if err := c.DeadLetters().Retry(ctx, dead.ID, ojs.WithPriority(1)); !errors.Is(err, ojs.ErrUnsupported) {
		t.Errorf("DeadLetters.Retry: %v", err)
	}
	if err := c.DeadLetters().Retry(ctx, dead.ID, ojs.WithQueue("elsewhere"), ojs.WithMeta("k",
		"v")); err != nil {
		t.Errorf("DeadLetters.Retry: %v", err)
	}
	if job, err := c.Get(ctx, dead.ID); err != nil || job.Queue != "elsewhere" || job.Meta["k"] != "v" ||
		job.Attempt != 0 {
		t.Errorf("DeadLetters.Retry: %+v, %v", job, err)
	}
	if err := c.DeadLetters().Delete(ctx, waiting.ID); !errors.Is(err, ojs.ErrNotFound) && !errors.Is(err,
		ojs.ErrTransition) {
		t.Errorf("DeadLetters.Delete: %v", err)
	}

	if err := c.Queues().Pause(ctx, "elsewhere"); err != nil {
		t.Errorf("Pause: %v", err)
	}
	list, err := c.Queues().List(ctx)
	at := slices.IndexFunc(list, func(q operate.QueueStats) bool { return q.Name == "elsewhere" })
	if err != nil || at < 0 || list[at].State != ojs.QueuePaused ||
		list[at].Counts[ojs.StateAvailable] != 2 || list[at].Depth() != 2 {
		t.Errorf("List: %+v, %v", list, err)
	}
	if err := c.Queues().Resume(ctx, "elsewhere"); err != nil {
		t.Errorf("Resume: %v", err)
	}

	entry := cron.Entry{Name: "nightly", Schedule: "0 3 * * *", TimeZone: "Europe/Berlin",
		Job: charge.New(order{5})}
	if err := c.Cron().Set(ctx, entry); err != nil {
		t.Fatalf("Cron.Set: %v", err)
	}
	if err := c.Cron().Pause(ctx, "nightly"); err != nil {
		t.Errorf("Cron.Pause: %v", err)
	}
	got, err := c.Cron().Get(ctx, "nightly")
	if err != nil || got.Schedule != "0 3 * * *" || got.TimeZone != "Europe/Berlin" || !got.Paused ||
		!got.NextRun.IsZero() {
		t.Errorf("Cron.Get: %+v, %v", got, err)
	}
	if list, err := c.Cron().List(ctx); err != nil || len(list) != 1 || list[0].Schedule != got.Schedule ||
		!list[0].Paused {
		t.Errorf("%+v, %v", list, err)
	}
	if err := c.Cron().Resume(ctx, "nightly"); err != nil {
		t.Errorf("Cron.Resume: %v", err)
	}
	if got, err := c.Cron().Get(ctx, "nightly"); err != nil || got.Paused || got.NextRun.IsZero() {
		t.Errorf("Cron.Get: %+v, %v", got, err)
	}
	if err := c.Cron().Remove(ctx, "nightly"); err != nil {
		t.Errorf("Cron.Remove: %v", err)
	}
	if _, err := c.Cron().Get(ctx, "nightly"); !errors.Is(err, ojs.ErrNotFound) {
		t.Errorf("Cron.Get: %v", err)
	}
	entry.RunOnStart = true
	if err := c.Cron().Set(ctx, entry); !errors.Is(err, ojs.ErrUnsupported) {
		t.Errorf("Cron.Set: %v", err)
	}
}
