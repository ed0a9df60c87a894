package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/policy"
)

// steps is an engine under virtual time whose jobs "step" take one second each, and fail
// if their args are "fails". ran are the args in the order in which the jobs began.
type waitSteps struct {
	*enginetest.Engine[string]
	t   *testing.T
	ran []string
}

func newSteps(t *testing.T) *waitSteps {
	s := &waitSteps{Engine: enginetest.New[string](t), t: t}
	s.Handle("step", func(ctx context.Context, job *ojs.Job[string]) error {
		s.ran = append(s.ran, job.Args)
		if err := handler.Sleep(ctx, time.Second); err != nil {
			return err
		}
		if job.Args == "fails" {
			return ojs.Permanent(errors.New("no"))
		}
		return nil
	}, handler.WithSlots(1))
	return s
}

func waitStep(args string, opts ...ojs.Option) ojs.Draft { return ojs.NewDraft("step", args, opts...) }

// enqueue stores a batch and returns the ids of its jobs.
func (s *waitSteps) enqueue(drafts ...ojs.Draft) (ids []string) {
	s.t.Helper()
	tickets, err := s.EnqueueMany(s.t.Context(), drafts...)
	must(s.t, err)
	for _, ticket := range tickets {
		ids = append(ids, ticket.ID)
	}
	return ids
}

func (s *waitSteps) want(id string, state ojs.State) *ojs.JobInfo { return s.RequireState(id, state) }

func after(names ...string) ojs.Option { return ojs.WithDependsOn(names...) }

// Jobs of a batch run after the jobs that they name, at exact times.
func TestDependsOnOrder(t *testing.T) {
	s := newSteps(t)
	ids := s.enqueue(
		waitStep("report", after("all"), ojs.WithDelay(time.Minute)),
		waitStep("c", after("a", "b")),
		waitStep("a", ojs.WithDraftName("a")),
		waitStep("b", ojs.WithDraftName("b"), after("a")),
		ojs.NewDraft("all", nil, ojs.WithDraftName("all"), after("a", "b"), ojs.WithJoin()),
	)
	if d := s.want(ids[1], ojs.StatePending).Dependencies; d == nil || *d != (ojs.Dependencies{
		Condition: ojs.AllSucceeded, Unfinished: 2}) {
		t.Errorf("c waits for %+v", d)
	}
	s.Advance(time.Second)
	s.want(ids[2], ojs.StateCompleted)
	s.want(ids[3], ojs.StateActive)
	s.Advance(time.Second)
	s.want(ids[1], ojs.StateActive)
	if all := s.want(ids[4], ojs.StateCompleted); !all.FinishedAt.Equal(
		enginetest.Start.Add(2*time.Second)) ||
		all.Attempt != 0 {
		t.Errorf("the join ended at %v after %d attempts", all.FinishedAt, all.Attempt)
	}
	s.want(ids[0], ojs.StateScheduled)
	s.Advance(time.Minute)
	s.want(ids[0], ojs.StateActive)
	s.Advance(time.Second)
	s.want(ids[0], ojs.StateCompleted)
	if want := []string{"a", "b", "c", "report"}; !slices.Equal(s.ran, want) {
		t.Errorf("ran %v, want %v", s.ran, want)
	}
}

// A failed job cancels the jobs that wait for its success, down to the last, and lets
// those run that wait for a failure or for any end.
func TestDependsOnFailure(t *testing.T) {
	s := newSteps(t)
	tickets, err := s.EnqueueMany(t.Context(),
		waitStep("fails", ojs.WithDraftName("f")),
		waitStep("next", ojs.WithDraftName("next"), after("f")),
		waitStep("last", after("next")),
		waitStep("repair", after("f", "next"), ojs.WithCondition(ojs.AnyFailed)),
		waitStep("always", after("f"), ojs.WithCondition(ojs.AllEnded)),
	)
	must(t, err)
	waited := make(chan error, 1)
	go func() {
		_, err := tickets[2].Wait(context.Background())
		waited <- err
	}()
	s.Advance(time.Second)
	var ended *ojs.EndedError
	if err := <-waited; !errors.As(err, &ended) || ended.State != ojs.StateCancelled || ended.Last == nil ||
		ended.Last.Details["dependency"] != tickets[1].ID {
		t.Errorf("waiting for the last job: %v", err)
	}
	next := s.want(tickets[1].ID, ojs.StateCancelled)
	if next.Error.Type != policy.ErrorTypeDependency || next.Error.Details["dependency"] != tickets[0].ID {
		t.Errorf("the failure is %+v", next.Error)
	}
	s.Advance(2 * time.Second)
	s.RequireCompleted(tickets[3].ID)
	s.RequireCompleted(tickets[4].ID)
	if want := []string{"fails", "always", "repair"}; !slices.Equal(s.ran, want) {
		t.Errorf("ran %v, want %v", s.ran, want)
	}
}

// The events of a job that waits come once and in order, with those of the job that moved
// it before them.
func TestDependsOnEvents(t *testing.T) {
	s := newSteps(t)
	sub := s.Subscribe(engine.EventFilter{Types: []event.Type{"job.*"}})
	defer sub.Close()
	ids := s.enqueue(
		waitStep("fails", ojs.WithDraftName("f")),
		waitStep("ok", ojs.WithDraftName("ok"), after("f"), ojs.WithCondition(ojs.AnyFailed)),
		ojs.NewDraft("join", nil, ojs.WithDraftName("join"), after("ok"), ojs.WithJoin()),
		waitStep("cancelled", after("f")),
		waitStep("late", after("join"), ojs.WithDelay(time.Hour)),
	)
	s.Advance(2 * time.Hour)
	got := make(map[string][]event.Type)
	for {
		select {
		case ev := <-sub.C():
			got[ev.Subject] = append(got[ev.Subject], ev.Type)
			continue
		default:
		}
		break
	}
	for i, want := range [][]event.Type{
		{event.Enqueued, event.Started, event.Failed, event.Discarded},
		{event.Enqueued, event.Available, event.Started, event.Completed},
		{event.Enqueued, event.Completed},
		{event.Enqueued, event.Cancelled},
		{event.Enqueued, event.Scheduled, event.Started, event.Completed},
	} {
		if !slices.Equal(got[ids[i]], want) {
			t.Errorf("events of draft %d: %v, want %v", i+1, got[ids[i]], want)
		}
	}
}

// Operators' calls, deadlines and follow-ups count, too.
func TestDependsOnEveryEnd(t *testing.T) {
	s := newSteps(t)
	ctx := t.Context()
	waits := s.enqueue(ojs.NewDraft("nobody", nil, ojs.WithPending()))
	expires := s.enqueue(ojs.NewDraft("nobody", nil, ojs.WithTTL(time.Hour)))
	ids := s.enqueue(
		waitStep("cancelled", after(waits[0])),
		waitStep("after", after(waits...), ojs.WithCondition(ojs.AnyFailed)),
		waitStep("expired", after(expires...), ojs.WithCondition(ojs.AllEnded)),
		waitStep("by hand", after(expires...)),
	)
	must(t, s.Cancel(ctx, waits[0]))
	s.Advance(time.Second)
	s.want(ids[0], ojs.StateCancelled)
	s.RequireCompleted(ids[1])
	must(t, s.Jobs().Activate(ctx, ids[3]))
	s.Advance(time.Second)
	s.RequireCompleted(ids[3])
	s.Advance(time.Hour - 2*time.Second)
	s.want(ids[2], ojs.StateActive)
	s.Advance(time.Second)
	if at := s.RequireCompleted(ids[2]).StartedAt; !at.Equal(enginetest.Start.Add(time.Hour)) {
		t.Errorf("the job that waited for an expired one began at %v", at)
	}

	// A job that has ended before counts at the enqueue, and the ticket says so.
	tickets, err := s.EnqueueMany(ctx, waitStep("now", after(ids[1])), waitStep("never", after(ids[0])))
	must(t, err)
	if tickets[0].State != ojs.StateAvailable || tickets[1].State != ojs.StateCancelled {
		t.Errorf("the tickets are %+v", tickets)
	}
}

// A delay and a time to live count from when the job need not wait any longer: by the end
// of others, also of a job that it follows, or by hand (W011).
func TestDependsOnDelay(t *testing.T) {
	s := newSteps(t)
	ctx := t.Context()
	s.Handle("parent", func(ctx context.Context, job *ojs.Job[string]) error {
		second := waitStep("second", after("first", job.ID), ojs.WithDelay(time.Hour),
			ojs.WithTTL(2*time.Hour))
		if err := handler.Then(ctx, waitStep("first", ojs.WithDraftName("first")), second); err != nil {
			return err
		}
		return handler.Sleep(ctx, time.Minute)
	})
	s.enqueue(ojs.NewDraft("parent", ""))
	s.Advance(time.Minute + time.Second)
	for job, err := range s.Jobs().List(ctx, inspect.Filter{States: []ojs.State{ojs.StateScheduled}}) {
		must(t, err)
		free := enginetest.Start.Add(time.Minute + time.Second)
		if !job.ScheduledAt.Equal(free.Add(time.Hour)) || !job.ExpiresAt.Equal(free.Add(2*time.Hour)) {
			t.Errorf("free at %v, the follow-up has the times %v, %v", free, job.ScheduledAt, job.ExpiresAt)
		}
	}
	s.Advance(time.Hour + time.Second)
	if len(s.ran) != 2 {
		t.Errorf("ran %v", s.ran)
	}

	waits := s.enqueue(ojs.NewDraft("nobody", nil, ojs.WithPending()))
	ids := s.enqueue(waitStep("by hand", after(waits...), ojs.WithDelay(time.Minute), ojs.WithTTL(time.Hour)))
	s.Advance(2 * time.Hour)
	s.want(ids[0], ojs.StatePending)
	must(t, s.Jobs().Activate(ctx, ids[0]))
	job, err := s.Get(ctx, ids[0]) // available, or active already
	must(t, err)
	if !job.ExpiresAt.Equal(s.Now().Add(time.Hour)) {
		t.Errorf("activated at %v, the job expires at %v", s.Now(), job.ExpiresAt)
	}

	var refused *ojs.InvalidError
	_, err = s.EnqueueMany(ctx, waitStep("never", after(waits...), ojs.WithDelay(time.Hour),
		ojs.WithTTL(time.Hour)))
	if !errors.As(err, &refused) || refused.Field != "ttl" {
		t.Errorf("a job that expires before its delay is over: %v", err)
	}
}

// Follow-ups of an attempt wait for each other and for the job itself.
func TestDependsOnThen(t *testing.T) {
	s := newSteps(t)
	s.Handle("parent", func(ctx context.Context, job *ojs.Job[string]) error {
		return handler.Then(ctx, waitStep("second", after("first", job.ID)),
			waitStep("first", ojs.WithDraftName("first")))
	})
	s.enqueue(ojs.NewDraft("parent", ""))
	s.Advance(2 * time.Second)
	if want := []string{"first", "second"}; !slices.Equal(s.ran, want) {
		t.Errorf("ran %v, want %v", s.ran, want)
	}
}

func TestDependsOnRefused(t *testing.T) {
	s := newSteps(t)
	ctx := t.Context()
	refused := func(what string, want error, drafts ...ojs.Draft) error {
		t.Helper()
		_, err := s.EnqueueMany(ctx, drafts...)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		return err
	}
	const unknown = "01890a5d-ac96-774b-bcce-000000000001"
	var missing *ojs.DependencyError
	if err := refused("an unknown job", ojs.ErrDependency, waitStep("a", after(unknown))); !errors.As(
		err, &missing) ||
		missing.Dependency != unknown {
		t.Errorf("an unknown job: %v", err)
	}
	refused("an unknown name", ojs.ErrDependency,
		waitStep("a", ojs.WithDraftName("a")), waitStep("b", after("c")))
	refused("two drafts of a name", ojs.ErrInvalid,
		waitStep("a", ojs.WithDraftName("a")), waitStep("b", ojs.WithDraftName("a")),
		waitStep("c", after("a")))
	refused("itself", ojs.ErrInvalid, waitStep("a", ojs.WithDraftName("a"), after("a")))
	refused("a circle", ojs.ErrInvalid,
		waitStep("a", ojs.WithDraftName("a"), after("b")), waitStep("b", ojs.WithDraftName("b"), after("a")))
	refused("a pending job", ojs.ErrInvalid, waitStep("a", ojs.WithPending(), after(unknown)))
	refused("a join of nothing", ojs.ErrInvalid, waitStep("a", ojs.WithJoin()))
	refused("an unknown condition", ojs.ErrInvalid, waitStep("a", after(unknown), ojs.WithCondition("some")))
	refused("an empty id", ojs.ErrInvalid, waitStep("a", after("")))
	refused("a name that is an id", ojs.ErrInvalid, waitStep("a", ojs.WithDraftName(unknown)))
}

// A fan-out of 300 jobs and a fan-in of 300 meet in one join.
func TestDependsOnFan(t *testing.T) {
	const n = 300
	s := &waitSteps{Engine: enginetest.New[string](t), t: t}
	done := 0
	s.Handle("in", func(context.Context, *ojs.Job[string]) error { done++; return nil },
		handler.WithSlots(1))
	s.Handle("out", func(context.Context, *ojs.Job[string]) error {
		if done < n {
			t.Errorf("a job ran after %d of %d", done, n)
		}
		done++
		return nil
	}, handler.WithSlots(1))
	var all []string
	for range n {
		all = append(all, s.enqueue(ojs.NewDraft("in", "", ojs.WithDelay(time.Second)))...)
	}
	join := s.enqueue(ojs.NewDraft("join", nil, after(all...), ojs.WithJoin()))
	var out []ojs.Draft
	for range n {
		out = append(out, ojs.NewDraft("out", "", after(join...)))
	}
	s.enqueue(out...)
	s.Advance(time.Second)
	if done != 2*n {
		t.Errorf("%d jobs ran, want %d", done, 2*n)
	}
}
