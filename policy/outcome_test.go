package policy_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/policy"
)

// failureOf is what the history gets of a returned error.
func failureOf(t *testing.T, err error) *ojs.Failure {
	t.Helper()
	f := policy.Decide(job(1, ojs.RetryPolicy{}), policy.Outcome{Err: err}, now, 0, nil).Failure
	if f == nil {
		t.Fatal("no failure")
	}
	return f
}

type typed struct{ typ string }

func (e *typed) Error() string     { return "typed" }
func (e *typed) ErrorType() string { return e.typ }

func TestCodes(t *testing.T) {
	tests := []struct {
		name string
		err  error
		code ojs.Code
		typ  string
	}{
		{"A085 A092 A096 B017 plain error", errBoom, ojs.CodeRetry, "error"},
		{"A086 A151 B017 Discard", ojs.Discard(errBoom), ojs.CodeDiscard, "error"},
		{"A087 A151 B017 DeadLetter", ojs.DeadLetter(errBoom), ojs.CodeDeadLetter, "error"},
		{"A088 B017 Permanent", ojs.Permanent(errBoom), ojs.CodeFail, "error"},
		{"A093 A098 A170 the card_declined example",
			&ojs.Error{Type: "payment.card_declined", Message: "declined", Code: ojs.CodeDiscard,
				Details: map[string]any{}}, ojs.CodeDiscard, "payment.card_declined"},
		{"A094 A096 external.timeout with RETRY", &ojs.Error{Type: "external.timeout", Code: ojs.CodeRetry},
			ojs.CodeRetry, "external.timeout"},
		{"A093 wrapped by fmt", fmt.Errorf("outer: %w", ojs.Discard(ojs.Errorf("a.b", "x"))),
			ojs.CodeDiscard, "a.b"},
		{"A093 the outermost code wins", ojs.DeadLetter(fmt.Errorf("x: %w", ojs.Discard(errBoom))),
			ojs.CodeDeadLetter, "error"},
		{"A093 an outer RETRY wins as well", &ojs.Error{Code: ojs.CodeRetry, Err: ojs.Discard(errBoom)},
			ojs.CodeRetry, "error"},
		{"A094 the first type wins", ojs.Errorf("outer.type", "%w", ojs.Errorf("inner.type", "x")),
			ojs.CodeRetry, "outer.type"},
		{"A093 joined, left to right", errors.Join(ojs.Errorf("a.a", "x"),
			ojs.Discard(ojs.Errorf("b.b", "y")), ojs.Permanent(errBoom)), ojs.CodeDiscard, "a.a"},
		{"A093 joined, depth first", errors.Join(fmt.Errorf("x: %w", ojs.Permanent(errBoom)),
			ojs.Discard(ojs.Errorf("b.b", "y"))), ojs.CodeFail, "b.b"},
		{"A093 beside a nil", errors.Join((*ojs.Error)(nil), ojs.Discard(errBoom)), ojs.CodeDiscard, "error"},
		{"A093 several %w", fmt.Errorf("%w, %w", errBoom, ojs.DeadLetter(errBoom)),
			ojs.CodeDeadLetter, "error"},
		{"A094 a type of its own", fmt.Errorf("x: %w", &typed{"own.type"}), ojs.CodeRetry, "own.type"},
		{"A094 an empty type is none", fmt.Errorf("%w, %w", &typed{""}, &typed{"own.type"}), ojs.CodeRetry,
			"own.type"},
		{"A096 an unknown code is none", &ojs.Error{Code: "MAYBE", Err: ojs.Discard(errBoom)},
			ojs.CodeDiscard, "error"},
		{"A096 case counts", &ojs.Error{Code: "discard"}, ojs.CodeRetry, "error"},
		{"A093 a code inside RetryAfter", ojs.RetryAfter(time.Second, ojs.Discard(errBoom)),
			ojs.CodeDiscard, "error"},
		{"A093 a code outside of Snooze", ojs.Discard(ojs.Snooze(time.Second)), ojs.CodeDiscard, "error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, p := range []ojs.RetryPolicy{{}, {OnExhaustion: ojs.ExhaustionDeadLetter}} {
				d := policy.Decide(job(1, p), policy.Outcome{Err: tt.err}, now, 0, nil)
				if d.Failure == nil || d.Failure.Code != tt.code || d.Failure.Type != tt.typ {
					t.Errorf("failure %+v", d.Failure)
				}
				if ends := tt.code != ojs.CodeRetry; ends != (d.State == ojs.StateDiscarded) {
					t.Errorf("A089 A090 A091: %+v", d)
				}
				if d.DeadLetter != (tt.code == ojs.CodeDeadLetter) {
					t.Errorf("A089 A090 A091: %+v", d)
				}
			}
		})
	}
}

func TestReasons(t *testing.T) {
	said := ojs.Errorf("app.bad", "said")
	for _, tt := range []struct {
		kind    policy.OutcomeKind
		err     error
		reason  ojs.Reason
		message string
		timeout string
		listed  ojs.Reason // if the type is one of the non-retryable errors
	}{
		{policy.Returned, said, "HANDLER_ERROR", "said", "", "NON_RETRYABLE_ERROR"},
		{policy.Panicked, said, "HANDLER_PANIC", "said", "", "HANDLER_PANIC"},
		{policy.Exited, nil, "HANDLER_PANIC", "the handler called runtime.Goexit", "", "HANDLER_PANIC"},
		{policy.Undecodable, said, "HANDLER_ERROR", "said", "", "HANDLER_ERROR"},
		{policy.TimedOut, context.DeadlineExceeded, "HANDLER_TIMEOUT",
			"the attempt exceeded its timeout of 1m0s", "execution", "HANDLER_TIMEOUT"},
		{policy.TimedOut, fmt.Errorf("x: %w", ojs.ErrTimeout), "HANDLER_TIMEOUT",
			"the attempt exceeded its timeout of 1m0s", "execution", "HANDLER_TIMEOUT"},
		{policy.TimedOut, said, "HANDLER_TIMEOUT", "the attempt exceeded its timeout of 1m0s: said",
			"execution", "HANDLER_TIMEOUT"},
		{policy.TimedOut, nil, "HANDLER_TIMEOUT", "the attempt exceeded its timeout of 1m0s", "execution",
			"HANDLER_TIMEOUT"},
		{policy.TotalTimedOut, context.Canceled, "HANDLER_TIMEOUT",
			"the job exceeded its total timeout of 1m0s", "total", "HANDLER_TIMEOUT"},
		{policy.LeaseExpired, nil, "VISIBILITY_TIMEOUT",
			"the attempt was not acknowledged within its lease of 1m0s", "stalled", "VISIBILITY_TIMEOUT"},
	} {
		t.Run(fmt.Sprintf("A119 reading 14 kind %d %v", tt.kind, tt.err), func(t *testing.T) {
			o := policy.Outcome{Kind: tt.kind, Err: tt.err, Backtrace: make([]string, 60), Limit: time.Minute,
				Elapsed: 61 * time.Second}
			f := policy.Decide(job(1, ojs.RetryPolicy{}), o, now, 0, nil).Failure
			if f.Reason != tt.reason || f.Message != tt.message || f.Type != typeOf[tt.kind] {
				t.Errorf("failure %+v", f)
			}
			var details map[string]any
			if tt.timeout != "" {
				details = map[string]any{"timeout_kind": tt.timeout, "limit_seconds": 60.0,
					"elapsed_seconds": 61.0}
			}
			if !reflect.DeepEqual(f.Details, details) {
				t.Errorf("details %v", f.Details)
			}
			frames := 0
			if tt.kind == policy.Panicked {
				frames = 50
			}
			if len(f.Backtrace) != frames {
				t.Errorf("%d frames, want %d", len(f.Backtrace), frames)
			}
			f = policy.Decide(job(1, ojs.RetryPolicy{NonRetryableErrors: []string{typeOf[tt.kind]}}), o, now,
				0, nil).Failure
			if f.Reason != tt.listed {
				t.Errorf("listed: %s", f.Reason)
			}
		})
	}
	t.Run("an end of the process is no fault of the lease", func(t *testing.T) {
		o := policy.Outcome{Kind: policy.LeaseExpired, Limit: time.Hour, Elapsed: 250 * time.Millisecond,
			Ended: true}
		f := policy.Decide(job(1, ojs.RetryPolicy{}), o, now, 0, nil).Failure
		want := "the process that held the job has ended, 250ms after the attempt began"
		if f.Message != want || f.Type != policy.ErrorTypeLeaseExpired || f.Reason != ojs.ReasonLeaseExpired {
			t.Errorf("%+v", f)
		}
	})
	t.Run("reading 48 the marker's reason, wherever in the chain it is", func(t *testing.T) {
		for _, err := range []error{marked{true}, fmt.Errorf("x: %w", marked{true}),
			errors.Join(marked{true}, marked{false}), errors.Join(marked{false}, marked{true})} {
			if f := failureOf(t, err); f.Reason != ojs.ReasonNonRetryable {
				t.Errorf("%v: %+v", err, f)
			}
		}
	})
}

func TestDetails(t *testing.T) {
	t.Run("A097 kept, as a copy", func(t *testing.T) {
		details := map[string]any{"list": []any{"a"}, "n": 1}
		f := failureOf(t, fmt.Errorf("x: %w", &ojs.Error{Details: details}))
		details["list"].([]any)[0] = "changed"
		if !reflect.DeepEqual(f.Details, map[string]any{"list": []any{"a"}, "n": 1.0}) {
			t.Errorf("%v", f.Details)
		}
	})
	t.Run("A097 the outermost that has some", func(t *testing.T) {
		inner := &ojs.Error{Details: map[string]any{"inner": true}}
		if f := failureOf(t, &ojs.Error{Err: inner}); f.Details["inner"] != true {
			t.Errorf("%v", f.Details)
		}
		f := failureOf(t, &ojs.Error{Details: map[string]any{"outer": true}, Err: inner})
		if len(f.Details) != 1 || f.Details["outer"] != true {
			t.Errorf("%v", f.Details)
		}
	})
	t.Run("A097 a timeout adds to the handler's", func(t *testing.T) {
		own := map[string]any{"page": 3}
		f := policy.Decide(job(1, ojs.RetryPolicy{}),
			policy.Outcome{Kind: policy.TimedOut, Err: &ojs.Error{Details: own}}, now, 0, nil).Failure
		if f.Details["page"] != 3.0 || f.Details["timeout_kind"] != "execution" || len(own) != 1 {
			t.Errorf("%v of %v", f.Details, own)
		}
	})
	t.Run("A097 what cannot be stored is said", func(t *testing.T) {
		for key, v := range map[string]any{"func": func() {}, "nan": math.NaN(), "chan": make(chan int),
			"panic": badJSON{}} {
			f := failureOf(t, &ojs.Error{Details: map[string]any{"fine": 1, key: v}})
			if s, _ := f.Details["details_error"].(string); !strings.Contains(s, `"`+key+`"`) {
				t.Errorf("%s: %v", key, f.Details)
			}
		}
	})
}

// Details beyond their limit are replaced by their size, for every kind of error. Details
// at the limit are kept.
func TestDetailsAreBounded(t *testing.T) {
	at := jsonvalue.MaxDetails - len(`{"k":""}`)
	for _, tt := range []struct {
		name string
		v    any
		want string // "": kept
	}{
		{"A097 at the limit", strings.Repeat("x", at), ""},
		{"A097 over the limit", strings.Repeat("x", at+1), "more than 65536 bytes of JSON"},
		{"A097 30 MB", strings.Repeat("x", 30<<20), "more than 65536 bytes of JSON"},
		{"A097 what only JSON makes large", strings.Repeat("\x00", at),
			"393176 bytes of JSON, more than 65536"},
		{"A097 its own marshaller", largeJSON{}, "1048584 bytes of JSON, more than 65536"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := failureOf(t, fmt.Errorf("x: %w", &ojs.Error{Details: map[string]any{"k": tt.v}}))
			if got, _ := f.Details["details_error"].(string); got != tt.want {
				t.Errorf("details_error is %q, not %q", got, tt.want)
			}
			if _, kept := f.Details["k"]; kept != (tt.want == "") {
				t.Errorf("kept: %v", kept)
			}
		})
	}
}

type largeJSON struct{}

func (largeJSON) MarshalJSON() ([]byte, error) {
	return []byte(`"` + strings.Repeat("x", 1<<20-len(`{"k":""}`)+8) + `"`), nil
}
