package storage_test

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

var (
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	zero  time.Time
)

func after(d time.Duration) time.Time { return epoch.Add(d) }

func TestDeadlines(t *testing.T) {
	tests := []struct {
		name                string
		expires             time.Time
		total, enqueue      time.Duration
		state               ojs.State
		deadline, wake      time.Time
		expiredAt, notYetAt time.Duration
	}{
		{"available", zero, 0, 0, ojs.StateAvailable, zero, zero, -1, time.Hour},
		{"available, expires", after(10), 0, 0, ojs.StateAvailable, after(10), after(10), 10, 9},
		{"available, total", zero, 20, 0, ojs.StateAvailable, after(20), after(20), 20, 19},
		{"available, both", after(10), 20, 0, ojs.StateAvailable, after(10), after(10), 10, 9},
		{"pending, both", after(30), 20, 0, ojs.StatePending, after(20), after(20), 20, 19},
		{"scheduled", zero, 0, 0, ojs.StateScheduled, zero, after(5), -1, time.Hour},
		{"scheduled, expires first", after(3), 0, 0, ojs.StateScheduled, after(3), after(3), 3, 2},
		{"scheduled, expires with it", after(5), 0, 0, ojs.StateScheduled, after(5), after(5), 5, 4},
		{"retryable", zero, 0, 0, ojs.StateRetryable, zero, after(7), -1, time.Hour},
		{"retryable, total first", zero, 6, 0, ojs.StateRetryable, after(6), after(6), 6, 5},
		{"available, enqueue TTL", zero, 0, 15, ojs.StateAvailable, after(15), after(15), 15, 14},
		{"pending, enqueue TTL after the others", after(30), 20, 25, ojs.StatePending,
			after(20), after(20), 20, 19},
		{"scheduled, enqueue TTL first", after(30), 20, 4, ojs.StateScheduled, after(4), after(4), 4, 3},
		{"retryable: its enqueue TTL ended with the first attempt", zero, 0, 6, ojs.StateRetryable,
			zero, after(7), -1, time.Hour},
		{"retryable, total, no enqueue TTL", zero, 6, 5, ojs.StateRetryable, after(6), after(6), 6, 5},
		{"active: its lease, not its deadline", after(1), 1, 0, ojs.StateActive,
			after(1), after(50), -1, time.Hour},
		{"completed", after(1), 1, 0, ojs.StateCompleted, after(1), zero, -1, time.Hour},
	}
	for _, tt := range tests {
		t.Run("P0.5 "+tt.name, func(t *testing.T) {
			var r storage.Record
			r.State, r.CreatedAt = tt.state, epoch
			r.ExpiresAt, r.TotalTimeout, r.EnqueueTTL = tt.expires, tt.total, tt.enqueue
			r.ScheduledAt, r.NextRetryAt, r.LeaseUntil = after(5), after(7), after(50)
			if tt.state == ojs.StateRetryable {
				r.StartedAt = after(1)
			}
			if got := r.Deadline(); !got.Equal(tt.deadline) {
				t.Errorf("deadline %v, want %v", got, tt.deadline)
			}
			if got := r.WakeAt(); !got.Equal(tt.wake) {
				t.Errorf("wakes at %v, want %v", got, tt.wake)
			}
			if r.Expired(after(tt.notYetAt)) || tt.expiredAt >= 0 && !r.Expired(after(tt.expiredAt)) {
				t.Error("Expired")
			}
		})
	}
}

func TestTransitions(t *testing.T) {
	t.Run("A116 Claim counts the attempt and begins the lease", func(t *testing.T) {
		r := storage.Record{Version: 4}
		r.State, r.Attempt, r.Lease = ojs.StateAvailable, 1, time.Minute
		r.Claim(epoch, "w", 0)
		if r.State != ojs.StateActive || r.Attempt != 2 || r.Worker != "w" || r.Version != 5 ||
			!r.StartedAt.Equal(epoch) || !r.LeaseUntil.Equal(epoch.Add(time.Minute)) {
			t.Errorf("%+v", r)
		}
		r.TakeOver(after(time.Hour))
		if r.State != ojs.StateActive || r.Attempt != 2 || r.Version != 6 ||
			!r.LeaseUntil.Equal(after(time.Hour+time.Minute)) {
			t.Errorf("reclaimed %+v", r)
		}
	})
	t.Run("P0.1 Promote notes when the job first became available", func(t *testing.T) {
		var r storage.Record
		r.State, r.NextRetryAt = ojs.StateRetryable, after(1)
		r.Promote(after(2))
		if r.State != ojs.StateAvailable || r.Version != 1 || !r.EnqueuedAt.Equal(after(2)) ||
			!r.NextRetryAt.IsZero() {
			t.Errorf("%+v", r)
		}
		r.State = ojs.StateRetryable
		if r.Promote(after(9)); !r.EnqueuedAt.Equal(after(2)) {
			t.Errorf("enqueued at %v", r.EnqueuedAt)
		}
	})
	t.Run("P0.5 Expire says which deadline it was", func(t *testing.T) {
		for _, tt := range []struct {
			expires                 time.Time
			total, enqueue, started time.Duration
			want, kind              string
		}{
			{after(5), 0, 0, 0, policy.ErrorTypeExpired, ""},
			{after(5), 6, 7, 0, policy.ErrorTypeExpired, ""},
			{zero, 5, 0, 0, policy.ErrorTypeTotalTimeout, "total"},
			{after(6), 5, 7, 0, policy.ErrorTypeTotalTimeout, "total"},
			{zero, 0, 5, 0, policy.ErrorTypeEnqueueTTL, "enqueue_ttl"},
			{after(6), 7, 5, 0, policy.ErrorTypeEnqueueTTL, "enqueue_ttl"},
			{after(6), 0, 6, 1, policy.ErrorTypeExpired, ""},
			{zero, 6, 6, 1, policy.ErrorTypeTotalTimeout, "total"},
		} {
			var r storage.Record
			r.State, r.CreatedAt, r.Retry.OnExhaustion = ojs.StateRetryable, epoch, ojs.ExhaustionDeadLetter
			r.ExpiresAt, r.TotalTimeout, r.EnqueueTTL = tt.expires, tt.total, tt.enqueue
			if tt.started > 0 {
				r.StartedAt = after(tt.started)
			}
			r.Expire(after(7))
			kind, _ := r.Error.Details["timeout_kind"].(string)
			total := tt.want == policy.ErrorTypeTotalTimeout
			if r.Error.Type != tt.want || kind != tt.kind {
				t.Errorf("%+v: %+v", tt, r.Error)
			}
			if r.State != ojs.StateDiscarded || r.DeadLettered() != total || r.Version != 1 ||
				!r.FinishedAt.Equal(after(7)) {
				t.Errorf("%+v: %+v", tt, r.Error)
			}
		}
	})
}

func TestKeptUntil(t *testing.T) {
	finished := epoch.Add(time.Hour)
	policy := &ojs.UniquePolicy{States: ojs.AllStates(), Period: 3 * time.Hour}
	counted := epoch.Add(policy.Period)
	forever := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	for name, tt := range map[string]struct {
		state  ojs.State
		ttl    time.Duration
		unique *ojs.UniquePolicy
		want   time.Time
	}{
		"not at all":                       {ojs.StateCompleted, 0, nil, time.Time{}},
		"P1.4 its result, from its end":    {ojs.StateCompleted, time.Minute, nil, finished.Add(time.Minute)},
		"P1.4 cancelled":                   {ojs.StateCancelled, time.Minute, nil, finished.Add(time.Minute)},
		"P1.4 discarded":                   {ojs.StateDiscarded, time.Minute, nil, finished.Add(time.Minute)},
		"P1.4 not before its end":          {ojs.StateActive, time.Minute, nil, time.Time{}},
		"P1.4 a result that is not stored": {ojs.StateCompleted, ojs.NoResult, nil, time.Time{}},
		"P1.4 forever":                     {ojs.StateCompleted, ojs.KeepForever, nil, forever},
		"C063 its unique policy":           {ojs.StateCompleted, 0, policy, counted},
		"C063 P1.4 the policy, if later":   {ojs.StateCompleted, time.Hour, policy, counted},
		"C063 P1.4 the result, if later": {ojs.StateCompleted, 5 * time.Hour, policy,
			finished.Add(5 * time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			var r storage.Record
			r.State, r.CreatedAt, r.ResultTTL, r.Unique = tt.state, epoch, tt.ttl, tt.unique
			if tt.state.Terminal() {
				r.FinishedAt = finished
			}
			if got := r.KeptUntil(); !got.Equal(tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// A step of a workflow that takes over the meta of an equal job stays a step: it is
// cancelled, kept and listed with its workflow.
func TestUpdatedStepStays(t *testing.T) {
	job := ojs.NewDraft("x", nil, ojs.WithMeta("own", 1))
	w := workflow.New("name", workflow.Chain(workflow.Step("first", job), workflow.Batch(
		workflow.Group(workflow.Step("a", job), workflow.Step("b", job)), workflow.OnComplete(job))))
	drafts, err := w.Drafts("0197f000-0000-7000-8000-000000000001")
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, d := range drafts {
		var o ojs.Options
		o.Apply(d.Options()...)
		for _, given := range []map[string]any{{"new": 2.0, workflow.MetaStep: "another"}, nil} {
			var step, from storage.Record
			step.State, step.Meta, from.Meta = ojs.StateScheduled, o.Meta, given
			step.Update(&from)
			if d.Type() == "x" && step.Meta["own"] != nil || given != nil && step.Meta["new"] != 2.0 {
				t.Errorf("C050 unique §5.3 %s: meta %v", d.Type(), step.Meta)
			}
			for key, value := range o.Meta {
				if kept++; key != "own" && step.Meta[key] != value {
					t.Errorf("W051 %s of %v is %v after an update", key, o.Meta, step.Meta[key])
				}
			}
		}
	}
	if kept < 20 {
		t.Errorf("only %d entries", kept)
	}
}
