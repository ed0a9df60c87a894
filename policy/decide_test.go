package policy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

var (
	now     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	errBoom = errors.New("boom")
)

// job is a job in its n-th attempt.
func job(n int, p ojs.RetryPolicy) *ojs.JobInfo {
	p, err := policy.Resolve(p)
	if err != nil {
		panic(err)
	}
	j := &ojs.JobInfo{State: ojs.StateActive, Retry: p}
	j.Attempt, j.MaxAttempts, j.CreatedAt = n, p.Runs(), now.Add(-time.Hour)
	return j
}

type marked struct{ stop bool }

func (m marked) Error() string    { return "marked" }
func (m marked) DoNotRetry() bool { return m.stop }

// The decision order of reading 48, over everything that it looks at.
func TestDecisionOrder(t *testing.T) {
	codes := []ojs.Code{"", ojs.CodeRetry, ojs.CodeDiscard, ojs.CodeFail, ojs.CodeDeadLetter}
	kinds := []policy.Kind{policy.Returned, policy.Panicked, policy.Exited, policy.Undecodable, policy.TimedOut, policy.TotalTimedOut, policy.LeaseExpired, policy.Interrupted}
	types := map[policy.Kind]string{
		policy.Returned: "app.bad", policy.Interrupted: "app.bad", policy.Panicked: "panic", policy.Exited: "goexit", policy.Undecodable: "args_invalid",
		policy.TimedOut: "timeout", policy.TotalTimedOut: "total_timeout", policy.LeaseExpired: "visibility_timeout",
	}
	cases := 0
	for _, kind := range kinds {
		for _, code := range codes {
			for _, marker := range []bool{false, true} {
				for _, listed := range []bool{false, true} {
					for _, left := range []bool{false, true} {
						for _, late := range []bool{false, true} {
							for _, exhaustion := range []ojs.Exhaustion{ojs.ExhaustionDiscard, ojs.ExhaustionDeadLetter} {
								for _, after := range []bool{false, true} {
									cases++
									p := ojs.RetryPolicy{MaxAttempts: 3, Jitter: ojs.JitterOff, OnExhaustion: exhaustion}
									if listed {
										p.NonRetryableErrors = []string{types[kind]}
									}
									j := job(3, p)
									if left {
										j.Attempt = 2
									}
									if late {
										j.TotalTimeout = time.Hour + time.Second // one second is left; the backoff is two
									}
									var err error = &ojs.Error{Type: "app.bad", Code: code, Err: marked{marker}}
									delay := 2 * time.Second
									if after {
										err, delay = ojs.RetryAfter(5*time.Second, err), 5*time.Second
									}
									name := fmt.Sprintf("kind %d code %q marker %v listed %v left %v late %v %s after %v", kind, code, marker, listed, left, late, exhaustion, after)

									dead := exhaustion == ojs.ExhaustionDeadLetter
									want := policy.Decision{State: ojs.StateDiscarded}
									switch {
									case code == ojs.CodeDiscard || code == ojs.CodeFail:
										want.Why = policy.WhyCode
									case code == ojs.CodeDeadLetter:
										want.Why, want.DeadLetter = policy.WhyCode, true
									case kind == policy.Interrupted:
										want = policy.Decision{State: ojs.StateRetryable, Unspent: true, RunAt: now, Why: policy.WhyInterrupted}
									case marker:
										want.Why, want.DeadLetter = policy.WhyMarker, true
									case kind == policy.Undecodable:
										want.Why, want.DeadLetter = policy.WhyArgs, true
									case listed && kind != policy.LeaseExpired:
										want.Why, want.DeadLetter = policy.WhyNonRetryable, dead
									case kind == policy.TotalTimedOut:
										want.Why, want.DeadLetter = policy.WhyTotalTimeout, dead
									case !left:
										want.Why, want.DeadLetter = policy.WhyExhausted, dead
									case late:
										want.Why, want.DeadLetter = policy.WhyTotalTimeout, dead
									default:
										want = policy.Decision{State: ojs.StateRetryable, RunAt: now.Add(delay), Why: policy.WhyRetry}
									}
									got := policy.Decide(j, policy.Outcome{Kind: kind, Err: err}, now, 0.5)
									f := got.Failure
									got.Failure = nil
									if got != want {
										t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
									}
									if want.Unspent {
										if f != nil {
											t.Errorf("%s: an attempt that is not spent has not failed: %+v", name, f)
										}
										continue
									}
									wantCode := code
									if code == "" {
										wantCode = ojs.CodeRetry
									}
									if f == nil || f.Type != types[kind] || f.Code != wantCode || f.Attempt != j.Attempt || !f.At.Equal(now) || f.Reason == "" || f.Message == "" {
										t.Errorf("%s: failure %+v", name, f)
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if cases != 8*5*2*2*2*2*2*2 {
		t.Errorf("%d cases", cases)
	}
}

func TestCodes(t *testing.T) {
	custom := func(typ string) error { return &typed{typ} }
	tests := []struct {
		name string
		err  error
		code ojs.Code
		typ  string
	}{
		{"A085 A092 plain error", errBoom, ojs.CodeRetry, "error"},
		{"A086 Discard", ojs.Discard(errBoom), ojs.CodeDiscard, "error"},
		{"A087 DeadLetter", ojs.DeadLetter(errBoom), ojs.CodeDeadLetter, "error"},
		{"A088 Permanent", ojs.Permanent(errBoom), ojs.CodeFail, "error"},
		{"A093 A098 the card_declined example", &ojs.Error{Type: "payment.card_declined", Message: "declined", Code: ojs.CodeDiscard, Details: map[string]any{}}, ojs.CodeDiscard, "payment.card_declined"},
		{"A148 external.timeout with RETRY", &ojs.Error{Type: "external.timeout", Code: ojs.CodeRetry}, ojs.CodeRetry, "external.timeout"},
		{"wrapped by fmt", fmt.Errorf("outer: %w", ojs.Discard(ojs.Errorf("a.b", "x"))), ojs.CodeDiscard, "a.b"},
		{"the outermost code wins", ojs.DeadLetter(fmt.Errorf("x: %w", ojs.Discard(errBoom))), ojs.CodeDeadLetter, "error"},
		{"the first type wins", ojs.Errorf("outer.type", "%w", ojs.Errorf("inner.type", "x")), ojs.CodeRetry, "outer.type"},
		{"joined, left to right", errors.Join(ojs.Errorf("a.a", "x"), ojs.Discard(ojs.Errorf("b.b", "y")), ojs.Permanent(errBoom)), ojs.CodeDiscard, "a.a"},
		{"a type of its own", fmt.Errorf("x: %w", custom("own.type")), ojs.CodeRetry, "own.type"},
		{"an unknown code is none", &ojs.Error{Code: "MAYBE", Err: ojs.Discard(errBoom)}, ojs.CodeDiscard, "error"},
		{"a code inside RetryAfter", ojs.RetryAfter(time.Second, ojs.Discard(errBoom)), ojs.CodeDiscard, "error"},
		{"a code outside of Snooze", ojs.Discard(ojs.Snooze(time.Second)), ojs.CodeDiscard, "error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := policy.Decide(job(1, ojs.RetryPolicy{}), policy.Outcome{Err: tt.err}, now, 0)
			if d.Failure == nil || d.Failure.Code != tt.code || d.Failure.Type != tt.typ {
				t.Errorf("failure %+v", d.Failure)
			}
			if ends := tt.code != ojs.CodeRetry; ends != (d.State == ojs.StateDiscarded) {
				t.Errorf("decision %+v", d)
			}
		})
	}
}

type typed struct{ typ string }

func (e *typed) Error() string     { return "typed" }
func (e *typed) ErrorType() string { return e.typ }

// The policies of the examples (OJS retry, sections 12.3 and 12.4).
var (
	payment = ojs.RetryPolicy{
		MaxAttempts: 25, InitialInterval: 15 * time.Second, BackoffCoefficient: 4, MaxInterval: time.Hour,
		NonRetryableErrors: []string{"payment.card_stolen", "payment.card_expired", "validation.*"}, OnExhaustion: ojs.ExhaustionDeadLetter,
	}
	crm = ojs.RetryPolicy{
		MaxAttempts: 5, InitialInterval: 30 * time.Second, MaxInterval: 15 * time.Minute,
		NonRetryableErrors: []string{"auth.invalid_credentials", "resource.not_found"}, OnExhaustion: ojs.ExhaustionDeadLetter,
	}
)

func TestExamples(t *testing.T) {
	tests := []struct {
		name    string
		p       ojs.RetryPolicy
		attempt int
		typ     string
		state   ojs.State
		dead    bool
	}{
		{"A132 B022 analytics.page_view", ojs.RetryPolicy{MaxAttempts: 1}, 1, "x.y", ojs.StateDiscarded, false},
		{"A133 email.send_welcome, second attempt", ojs.RetryPolicy{}, 2, "x.y", ojs.StateRetryable, false},
		{"A133 email.send_welcome, third", ojs.RetryPolicy{}, 3, "x.y", ojs.StateDiscarded, false},
		{"A136 card_stolen", payment, 1, "payment.card_stolen", ojs.StateDiscarded, true},
		{"A136 card_expired", payment, 1, "payment.card_expired", ojs.StateDiscarded, true},
		{"A137 B023 validation.amount", payment, 1, "validation.amount", ojs.StateDiscarded, true},
		{"A138 payment.charge, 24th", payment, 24, "external.timeout", ojs.StateRetryable, false},
		{"A138 payment.charge, 25th", payment, 25, "external.timeout", ojs.StateDiscarded, true},
		{"A140 auth.invalid_credentials", crm, 1, "auth.invalid_credentials", ojs.StateDiscarded, true},
		{"A141 resource.not_found", crm, 1, "resource.not_found", ojs.StateDiscarded, true},
		{"A142 service_unavailable", crm, 1, "external.crm.service_unavailable", ojs.StateRetryable, false},
		{"A145 compliance.generate_report", ojs.RetryPolicy{MaxAttempts: 1, OnExhaustion: ojs.ExhaustionDeadLetter}, 1, "x.y", ojs.StateDiscarded, true},
		{"A024 B003 max_attempts 0", ojs.RetryPolicy{MaxAttempts: ojs.NoRetry}, 1, "x.y", ojs.StateDiscarded, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := policy.Decide(job(tt.attempt, tt.p), policy.Outcome{Err: ojs.Errorf(tt.typ, "x")}, now, 0.5)
			if d.State != tt.state || d.DeadLetter != tt.dead {
				t.Errorf("decision %+v", d)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	j := job(1, ojs.RetryPolicy{MaxAttempts: 2})
	for d, want := range map[time.Duration]time.Duration{
		30 * time.Second: 30 * time.Second, time.Hour: 5 * time.Minute, 0: 0, -time.Second: 0,
	} {
		if got := policy.Decide(j, policy.Outcome{Err: ojs.RetryAfter(d, errBoom)}, now, 0.9); got.RunAt.Sub(now) != want {
			t.Errorf("reading 6: RetryAfter(%v) runs after %v, want %v", d, got.RunAt.Sub(now), want)
		}
	}
	j.Attempt = 2
	if got := policy.Decide(j, policy.Outcome{Err: ojs.RetryAfter(time.Second, errBoom)}, now, 0); got.Why != policy.WhyExhausted {
		t.Errorf("decision %+v", got)
	}
}

func TestSnooze(t *testing.T) {
	j := job(3, ojs.RetryPolicy{})
	d := policy.Decide(j, policy.Outcome{Err: fmt.Errorf("later: %w", ojs.Snooze(time.Hour))}, now, 0)
	if d.State != ojs.StateRetryable || !d.Unspent || d.Failure != nil || d.RunAt.Sub(now) != time.Hour {
		t.Errorf("decision %+v", d)
	}
}

func TestHostileErrors(t *testing.T) {
	cycle := &wraps{}
	cycle.err = cycle
	var nilError *ojs.Error
	var nilTyped *typed
	var nilMap mapError
	deep := errBoom
	for range 10_000 {
		deep = fmt.Errorf("%w", deep)
	}
	for name, err := range map[string]error{
		"nil *ojs.Error": nilError, "nil pointer": nilTyped, "nil map": nilMap, "wrapped nil": fmt.Errorf("x: %w", nilTyped),
		"nil inside Discard": ojs.Permanent(nilTyped),
		"Error panics":       hostile{"Error"}, "Unwrap panics": hostile{"Unwrap"}, "ErrorType panics": hostile{"ErrorType"},
		"DoNotRetry panics": hostile{"DoNotRetry"}, "Is panics": hostile{"Is"}, "cycle": cycle, "deep": deep,
		"joined cycle":   errors.Join(cycle, cycle),
		"huge message":   errors.New(strings.Repeat("ü", 100_000)),
		"bad UTF-8":      errors.New("a\xffb"),
		"empty":          errors.New(""),
		"details":        &ojs.Error{Details: map[string]any{"f": func() {}}},
		"zero ojs.Error": &ojs.Error{},
	} {
		for _, kind := range []policy.Kind{policy.Returned, policy.TimedOut, policy.Panicked} {
			d := policy.Decide(job(1, ojs.RetryPolicy{MaxAttempts: 1}), policy.Outcome{Kind: kind, Err: err, Limit: time.Second}, now, 0)
			f := d.Failure
			if d.State != ojs.StateDiscarded || f == nil || f.Type == "" || len(f.Message) > 10_003 || !utf8.ValidString(f.Message) {
				t.Errorf("%s: %+v", name, d)
			}
		}
	}
	t.Run("an error type is storable, too", func(t *testing.T) {
		d := policy.Decide(job(1, ojs.RetryPolicy{}), policy.Outcome{Err: ojs.Errorf("a\xff"+strings.Repeat("\xfe.", 10_000), "x")}, now, 0)
		if typ := d.Failure.Type; !utf8.ValidString(typ) || len(typ) > 10_000 || !strings.HasPrefix(typ, "a\ufffd") {
			t.Errorf("%d bytes, valid %v", len(typ), utf8.ValidString(typ))
		}
	})
	t.Run("what cannot be stored of details is said", func(t *testing.T) {
		d := policy.Decide(job(1, ojs.RetryPolicy{}), policy.Outcome{Err: &ojs.Error{Details: map[string]any{"f": func() {}}}}, now, 0)
		if s, _ := d.Failure.Details["details_error"].(string); !strings.Contains(s, `"f"`) {
			t.Errorf("%v", d.Failure.Details)
		}
	})
	t.Run("A097 details are kept, as a copy", func(t *testing.T) {
		details := map[string]any{"list": []any{"a"}}
		d := policy.Decide(job(1, ojs.RetryPolicy{}), policy.Outcome{Err: &ojs.Error{Details: details}}, now, 0)
		details["list"].([]any)[0] = "changed"
		if d.Failure.Details["list"].([]any)[0] != "a" {
			t.Errorf("%v", d.Failure.Details)
		}
	})
}

type wraps struct{ err error }

func (w *wraps) Error() string { return "wraps" }
func (w *wraps) Unwrap() error { return w.err }

type mapError map[string]int

func (m mapError) Error() string { return fmt.Sprint(len(m)) }

type hostile struct{ method string }

func (h hostile) Error() string {
	if h.method == "Error" {
		panic("Error")
	}
	return "hostile"
}

func (h hostile) Unwrap() error {
	if h.method == "Unwrap" {
		panic("Unwrap")
	}
	return nil
}

func (h hostile) ErrorType() string {
	if h.method == "ErrorType" {
		panic("ErrorType")
	}
	return ""
}

func (h hostile) DoNotRetry() bool {
	if h.method == "DoNotRetry" {
		panic("DoNotRetry")
	}
	return false
}

func (h hostile) Is(error) bool {
	if h.method == "Is" {
		panic("Is")
	}
	return false
}

func TestTimeoutFailure(t *testing.T) {
	o := policy.Outcome{Kind: policy.TimedOut, Err: context.Canceled, Limit: time.Minute, Elapsed: 61 * time.Second}
	f := policy.Decide(job(1, ojs.RetryPolicy{}), o, now, 0).Failure
	if f.Message != "the attempt exceeded its timeout of 1m0s" || f.Details["timeout_kind"] != "execution" ||
		f.Details["limit_seconds"] != 60.0 || f.Details["elapsed_seconds"] != 61.0 || f.Reason != ojs.ReasonHandlerTimeout {
		t.Errorf("P0.5: %+v", f)
	}
	o.Err = errors.New("rolled back")
	if f := policy.Decide(job(1, ojs.RetryPolicy{}), o, now, 0).Failure; !strings.HasSuffix(f.Message, "1m0s: rolled back") {
		t.Errorf("what the handler said is lost: %q", f.Message)
	}
}

func TestApply(t *testing.T) {
	t.Run("A116 A117 A121 A176 A177 history", func(t *testing.T) {
		j := job(0, ojs.RetryPolicy{MaxAttempts: 20})
		var copies []*ojs.JobInfo
		for n := 1; n <= 13; n++ {
			j.Attempt = n
			copies = append(copies, j.Clone())
			shallow := *j
			d := policy.Decide(j, policy.Outcome{Err: fmt.Errorf("error %d", n)}, now, 0)
			d.Apply(j, now)
			if j.State != ojs.StateRetryable || !j.NextRetryAt.Equal(d.RunAt) || j.Error.Message != fmt.Sprint("error ", n) {
				t.Fatalf("A118: %+v", j)
			}
			if !slices.EqualFunc(shallow.Errors, copies[n-1].Errors, func(a, b ojs.Failure) bool { return a.Message == b.Message }) {
				t.Fatal("a copy made before has changed")
			}
		}
		if len(j.Errors) != policy.HistoryLimit || j.Errors[0].Message != "error 4" || j.Errors[9].Message != "error 13" {
			t.Errorf("%+v", j.Errors)
		}
	})
	t.Run("A118 next_retry_at only while retryable, error cleared by success", func(t *testing.T) {
		j := job(2, ojs.RetryPolicy{})
		j.Error, j.Errors, j.NextRetryAt = &ojs.Failure{}, []ojs.Failure{{}}, now
		policy.Decide(j, policy.Outcome{}, now, 0).Apply(j, now)
		if j.State != ojs.StateCompleted || j.Error != nil || !j.NextRetryAt.IsZero() || !j.FinishedAt.Equal(now) || len(j.Errors) != 1 {
			t.Errorf("%+v", j)
		}
	})
	t.Run("A039 A040 A183 discarded, and a dead letter or not", func(t *testing.T) {
		for _, dead := range []bool{false, true} {
			j := job(1, ojs.RetryPolicy{})
			policy.Decision{State: ojs.StateDiscarded, DeadLetter: dead, Failure: &ojs.Failure{}}.Apply(j, now)
			if j.State != ojs.StateDiscarded || j.DeadLettered() != dead || !j.FinishedAt.Equal(now) {
				t.Errorf("%+v", j)
			}
		}
	})
	t.Run("an attempt that is not spent", func(t *testing.T) {
		j := job(3, ojs.RetryPolicy{})
		policy.Decide(j, policy.Outcome{Kind: policy.Interrupted, Err: errBoom}, now, 0).Apply(j, now)
		if j.Attempt != 2 || j.State != ojs.StateRetryable || !j.NextRetryAt.Equal(now) || len(j.Errors) != 0 {
			t.Errorf("%+v", j)
		}
	})
}
