package policy_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

func fail(j *ojs.JobInfo, err error) {
	policy.Decide(j, policy.Outcome{Err: err}, now, 0, nil).Apply(j, now)
}

func TestHistory(t *testing.T) {
	t.Run("A117 A121 A177 twelve failures keep the last ten, oldest first", func(t *testing.T) {
		j := job(0, ojs.RetryPolicy{MaxAttempts: 20})
		for n := 1; n <= 12; n++ {
			j.Attempt = n
			fail(j, fmt.Errorf("error %d", n))
		}
		if len(j.Errors) != 10 || policy.HistoryLimit != 10 {
			t.Fatalf("%d entries", len(j.Errors))
		}
		for i, f := range j.Errors {
			if f.Attempt != i+3 || f.Message != fmt.Sprint("error ", i+3) {
				t.Errorf("entry %d is %+v", i, f)
			}
		}
	})
	t.Run("A116 A117 A121 A176 any number of failures", rapid.MakeCheck(func(t *rapid.T) {
		j := job(0, ojs.RetryPolicy{MaxAttempts: 100})
		var all []string
		for n := range rapid.IntRange(0, 30).Draw(t, "failures") {
			j.Attempt = n + 1
			fail(j, fmt.Errorf("error %d", n))
			all = append(all, fmt.Sprint("error ", n))
			want := all[max(0, len(all)-10):]
			if len(j.Errors) != len(want) || j.Error.Message != all[n] {
				t.Fatalf("%+v after %d failures, last %+v", j.Errors, n+1, j.Error)
			}
			for i := range want {
				if j.Errors[i].Message != want[i] {
					t.Fatalf("%+v, want %v", j.Errors, want)
				}
			}
		}
	}))
	t.Run("A121 a longer history is cut", func(t *testing.T) {
		j := job(1, ojs.RetryPolicy{})
		j.Errors = make([]ojs.Failure, 25)
		j.Errors[24].Message = "last"
		if fail(j, errBoom); len(j.Errors) != 10 || j.Errors[8].Message != "last" ||
			j.Errors[9].Message != "boom" {
			t.Errorf("%+v", j.Errors)
		}
	})
	t.Run("A119 A120 an entry in full", func(t *testing.T) {
		j := job(2, ojs.RetryPolicy{})
		fail(j, &ojs.Error{Type: "external.api_timeout", Message: "no answer",
			Details: map[string]any{"endpoint": "/x", "timeout_ms": 5000}})
		want := ojs.Failure{
			Attempt: 2, At: now, Type: "external.api_timeout", Message: "no answer", Code: ojs.CodeRetry,
			Reason:  ojs.ReasonHandlerError,
			Details: map[string]any{"endpoint": "/x", "timeout_ms": 5000.0},
		}
		if !reflect.DeepEqual(j.Errors, []ojs.Failure{want}) || !reflect.DeepEqual(*j.Error, want) {
			t.Errorf("%+v", j.Errors)
		}
	})
}

func TestApply(t *testing.T) {
	later := now.Add(time.Minute)
	for _, tt := range []struct {
		name string
		d    policy.Decision
		want func(*ojs.JobInfo)
	}{
		{"A118 retryable", policy.Decision{State: ojs.StateRetryable, RunAt: later},
			func(j *ojs.JobInfo) { j.NextRetryAt = later }},
		{"A118 unspent", policy.Decision{State: ojs.StateRetryable, RunAt: later, Refunded: true},
			func(j *ojs.JobInfo) { j.Attempt, j.NextRetryAt = 1, later }},
		{"A039 A118 A179 A183 discarded", policy.Decision{State: ojs.StateDiscarded},
			func(j *ojs.JobInfo) { j.FinishedAt = now }},
		{"A040 A118 A179 A183 dead letter", policy.Decision{State: ojs.StateDiscarded, DeadLetter: true},
			func(j *ojs.JobInfo) { j.FinishedAt, j.DeadLetteredAt = now, now }},
		{"A118 completed", policy.Decision{State: ojs.StateCompleted},
			func(j *ojs.JobInfo) { j.FinishedAt, j.Error = now, nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := job(2, ojs.RetryPolicy{})
			j.Error, j.Errors, j.NextRetryAt = &ojs.Failure{Message: "old"}, []ojs.Failure{{Message: "old"}},
				now.Add(-time.Minute)
			want := j.Clone()
			want.State, want.NextRetryAt = tt.d.State, time.Time{}
			tt.want(want)
			if tt.d.Apply(j, now); !reflect.DeepEqual(j, want) {
				t.Errorf("got %+v\nwant %+v", j, want)
			}
		})
	}
	t.Run("A117 copies made before stay as they are", func(t *testing.T) {
		j := job(0, ojs.RetryPolicy{MaxAttempts: 100})
		type pair struct {
			shallow ojs.JobInfo
			deep    *ojs.JobInfo
		}
		var copies []pair
		for n := 1; n <= 25; n++ {
			copies = append(copies, pair{*j, j.Clone()})
			j.Attempt = n
			fail(j, ojs.Errorf("a.b", "error %d", n))
		}
		for i := range j.Errors { // nor does it show there what the job's holder writes
			j.Errors[i].Message = "overwritten"
		}
		j.Error.Message = "overwritten"
		for n, c := range copies {
			if !reflect.DeepEqual(c.shallow.Errors, c.deep.Errors) || !reflect.DeepEqual(c.shallow.Error,
				c.deep.Error) {
				t.Errorf("the copy before attempt %d has changed: %+v", n+1, c.shallow.Errors)
			}
		}
	})
	t.Run("A117 a history's spare room is not written to", func(t *testing.T) {
		j := job(1, ojs.RetryPolicy{})
		j.Errors = make([]ojs.Failure, 1, 4)
		other := *j
		fail(j, errBoom)
		if room := other.Errors[:4]; !reflect.DeepEqual(room, make([]ojs.Failure, 4)) {
			t.Errorf("%+v", room)
		}
		if fail(&other, ojs.Errorf("a.b", "another")); j.Errors[1].Message != "boom" {
			t.Errorf("%+v", j.Errors)
		}
	})
}
