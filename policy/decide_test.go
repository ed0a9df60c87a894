package policy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

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

var kinds = []policy.OutcomeKind{
	policy.Returned, policy.Panicked, policy.Exited, policy.Undecodable,
	policy.TimedOut, policy.TotalTimedOut, policy.LeaseExpired, policy.WorkerDied, policy.Interrupted,
}

var codes = []ojs.Code{"", ojs.CodeRetry, ojs.CodeDiscard, ojs.CodeFail, ojs.CodeDeadLetter}

// typeOf is the error type of a failure of each kind, if the handler's error says
// "app.bad".
var typeOf = map[policy.OutcomeKind]string{
	policy.Returned: "app.bad", policy.Interrupted: "app.bad", policy.Panicked: "panic",
	policy.Exited:      "goexit",
	policy.Undecodable: "args_invalid", policy.TimedOut: "timeout", policy.TotalTimedOut: "total_timeout",
	policy.LeaseExpired: "visibility_timeout", policy.WorkerDied: "worker_death",
}

// facts is one row of the decision table.
type facts struct {
	kind   policy.OutcomeKind
	code   ojs.Code
	snooze int // where the error says Snooze: 0 nowhere, 1 before the code, 2 after it
	marker bool
	listed bool // the type is one of the policy's non-retryable errors
	left   bool // attempts are left
	// the total timeout: 0 none, 1 ends just after the next attempt's start, 2 at that
	// very moment
	total int
	dead  bool // on_exhaustion is dead_letter
	after bool // the error says RetryAfter
	hook  int  // 0 none, 1 it defers, 2 it vetoes, 3 it asks for a delay, 4 for one beyond the cap
}

// everyFacts lists every row.
func everyFacts() (rows []facts) {
	sizes := []int{len(kinds), len(codes), 3, 2, 2, 2, 3, 2, 2, 5}
	n := 1
	for _, size := range sizes {
		n *= size
	}
	for row := range n {
		at := make([]int, len(sizes))
		for i, size := range sizes {
			at[i], row = row%size, row/size
		}
		rows = append(rows, facts{
			kind: kinds[at[0]], code: codes[at[1]], snooze: at[2], marker: at[3] == 1, listed: at[4] == 1,
			left: at[5] == 1, total: at[6], dead: at[7] == 1, after: at[8] == 1, hook: at[9],
		})
	}
	return rows
}

const (
	backoff, asked, snoozed = 2 * time.Second, 5 * time.Second, 7 * time.Second
	hooked, most            = 4 * time.Second, 5 * time.Minute
)

// hook is one whose answers are fixed, and which counts how often it is asked.
type hook struct {
	veto          bool
	delay         time.Duration
	asks, delayed int
	err           error
}

func (h *hook) ShouldRetry(_ *ojs.JobInfo, err error) bool {
	h.asks++
	h.err = err
	return !h.veto
}

func (h *hook) Delay(_ *ojs.JobInfo, err error) time.Duration {
	h.delayed++
	h.err = errors.Join(h.err, err)
	return h.delay
}

// says is the row's hook.
func (f facts) says() *hook {
	switch f.hook {
	case 2:
		return &hook{veto: true, delay: hooked}
	case 3:
		return &hook{delay: hooked}
	case 4:
		return &hook{delay: 1<<63 - 1}
	}
	return &hook{}
}

// decide asks Decide, with the row's hook if it has one, and checks how often that was
// asked.
func (f facts) decide(t *testing.T, j *ojs.JobInfo, o policy.Outcome) policy.Decision {
	t.Helper()
	h := f.says()
	var asked policy.Hook
	if f.hook > 0 {
		asked = h
	}
	d := policy.Decide(j, o, now, 0.5, asked)
	asks, delayed := 0, 0
	if f.hook > 0 {
		switch d.Rule {
		case policy.RuleHook, policy.RuleExhausted, policy.RuleTotalTimeout, policy.RuleRetry:
			asks = 1
		}
		if d.Rule == policy.RuleRetry && !f.after {
			delayed = 1
		}
		if d.Rule == policy.RuleTotalTimeout && f.kind != policy.TotalTimedOut && !f.after {
			delayed = 1
		}
	}
	if h.asks != asks || h.delayed != delayed {
		t.Fatalf("E025 reading 44 %+v: asked %d times, for the delay %d times, want %d and %d", f, h.asks,
			h.delayed, asks, delayed)
	}
	if asks > 0 && h.err == nil {
		t.Fatalf("E023 %+v: asked about no error", f)
	}
	return d
}

// set makes of f what Decide is given.
func (f facts) set() (*ojs.JobInfo, policy.Outcome) {
	p := ojs.RetryPolicy{MaxAttempts: 3, InitialInterval: backoff, BackoffCoefficient: 1,
		Jitter: ojs.JitterOff}
	if f.dead {
		p.OnExhaustion = ojs.ExhaustionDeadLetter
	}
	if f.listed {
		p.NonRetryableErrors = []string{"other.*", typeOf[f.kind]}
	}
	j := job(3, p)
	if f.left {
		j.Attempt = 2
	}
	delay := backoff
	var err error = &ojs.Error{Type: "app.bad", Code: f.code, Err: marked{f.marker}}
	switch {
	case f.after:
		err, delay = ojs.RetryAfter(asked, err), asked
	case f.hook == 3:
		delay = hooked
	case f.hook == 4:
		delay = most
	}
	switch f.snooze {
	case 1:
		err = errors.Join(ojs.Snooze(snoozed), err)
	case 2:
		err = errors.Join(err, ojs.Snooze(snoozed))
	}
	switch f.total {
	case 1:
		j.TotalTimeout = time.Hour + delay + 1
	case 2:
		j.TotalTimeout = time.Hour + delay
	}
	return j, policy.Outcome{Kind: f.kind, Err: err, Limit: time.Minute, Elapsed: time.Minute}
}

// ladder is reading 48 from its first rule to its last, with what the engine's own kinds
// of ending add to it. The first rung that holds decides.
var ladder = []struct {
	why   policy.Rule
	holds func(facts) bool
	fate  string // retry, back (given back unspent), gone, dead, or as on_exhaustion says: end
}{
	{policy.RuleSnoozed,
		func(f facts) bool {
			return f.snoozes() && (f.kind == policy.Returned || f.kind == policy.Interrupted)
		}, "back"},
	// A snooze that comes too late is still the handler's answer: a code behind it does
	// not count.
	{policy.RuleCode, func(f facts) bool { return f.answer() == "DISCARD" }, "gone"},
	{policy.RuleCode, func(f facts) bool { return f.answer() == "FAIL" }, "gone"},
	{policy.RuleCode, func(f facts) bool { return f.answer() == "DEAD_LETTER" }, "dead"},
	{policy.RuleInterrupted,
		func(f facts) bool { return f.kind == policy.Interrupted && !f.marker && !f.listed }, "back"},
	{policy.RuleMarker, func(f facts) bool { return f.marker }, "dead"},
	{policy.RuleArgs, func(f facts) bool { return f.kind == policy.Undecodable }, "dead"},
	{policy.RuleNonRetryable,
		func(f facts) bool {
			return f.listed && f.kind != policy.LeaseExpired && f.kind != policy.WorkerDied
		}, "end"},
	{policy.RuleHook, func(f facts) bool { return f.hook == 2 }, "end"},
	{policy.RuleTotalTimeout, func(f facts) bool { return f.kind == policy.TotalTimedOut }, "end"},
	{policy.RuleExhausted, func(f facts) bool { return !f.left }, "end"},
	{policy.RuleTotalTimeout, func(f facts) bool { return f.total == 2 }, "end"},
	{policy.RuleRetry, func(facts) bool { return true }, "retry"},
}

// snoozes reports whether the handler's answer is a snooze.
func (f facts) snoozes() bool { return f.snooze == 1 || f.snooze == 2 && f.code == "" }

// answer is the response code that counts.
func (f facts) answer() ojs.Code {
	if f.snooze == 1 {
		return ""
	}
	return f.code
}

func (f facts) want() policy.Decision {
	for _, rung := range ladder {
		if !rung.holds(f) {
			continue
		}
		d := policy.Decision{Rule: rung.why, State: "discarded"}
		switch rung.fate {
		case "dead":
			d.DeadLetter = true
		case "end":
			d.DeadLetter = f.dead
		case "back":
			d.State, d.Refunded, d.RunAt = "retryable", true, now
			if rung.why == policy.RuleSnoozed {
				d.RunAt = now.Add(snoozed)
			}
		case "retry":
			d.State, d.RunAt = "retryable", now.Add(backoff)
			switch {
			case f.after:
				d.RunAt = now.Add(asked)
			case f.hook == 3:
				d.RunAt = now.Add(hooked)
			case f.hook == 4:
				d.RunAt, d.Asked = now.Add(most), 1<<63-1
			}
		}
		return d
	}
	panic("no rung holds")
}

func TestDecisionTable(t *testing.T) {
	rows := everyFacts()
	if len(rows) != 9*5*3*2*2*2*3*2*2*5 {
		t.Fatalf("%d rows", len(rows))
	}
	seen := make(map[policy.Rule]int)
	t.Run("A005 A011 A038 A041 A082 A083 A084 A092 A109 A110 A111 A112 A169 A170 B016 B018 E024 E026 E027 E028 E046 E047 E048 reading 44 reading 48", func(t *testing.T) {
		for _, row := range rows {
			j, o := row.set()
			attempt := j.Attempt
			got, want := row.decide(t, j, o), row.want()
			seen[got.Rule]++
			f := got.Failure
			got.Failure = nil
			if got != want {
				t.Fatalf("%+v:\n got %+v\nwant %+v", row, got, want)
			}
			if j.Attempt != attempt || j.State != ojs.StateActive || len(j.Errors) != 0 || j.Error != nil {
				t.Fatalf("%+v: to decide is not to apply: %+v", row, j)
			}
			if want.Refunded {
				if f != nil {
					t.Fatalf("%+v: an attempt that is not spent has not failed: %+v", row, f)
				}
				continue
			}
			code := row.answer()
			if code == "" {
				code = ojs.CodeRetry
			}
			if f == nil || f.Type != typeOf[row.kind] || f.Code != code || f.Attempt != attempt ||
				!f.At.Equal(now) || f.Reason == "" || f.Message == "" {
				t.Fatalf("A084 A119 %+v: failure %+v", row, f)
			}
		}
	})
	for _, rung := range ladder {
		if seen[rung.why] == 0 {
			t.Errorf("no row ends by rule %s", rung.why)
		}
	}
}

// The decision on an ending without an error of the handler's: the same table without the
// handler's part.
func TestDecisionWithoutError(t *testing.T) {
	for _, row := range everyFacts() {
		if row.code != "" || row.snooze != 0 || row.marker || row.after {
			continue
		}
		j, o := row.set()
		o.Err = nil
		if row.kind == policy.Interrupted {
			row.listed = false // there is no type that could be
		}
		got := row.decide(t, j, o)
		if row.kind == policy.Returned {
			if got != (policy.Decision{State: ojs.StateCompleted, Rule: policy.RuleCompleted}) {
				t.Fatalf("%+v: %+v", row, got)
			}
			continue
		}
		if f := got.Failure; f != nil && (f.Type != typeOf[row.kind] || f.Code != ojs.CodeRetry) {
			t.Fatalf("A109 %+v: failure %+v", row, f)
		}
		got.Failure = nil
		if want := row.want(); got != want {
			t.Fatalf("%+v:\n got %+v\nwant %+v", row, got, want)
		}
	}
}

// run lets a job of the policy fail, in the way that end says of each attempt, until it
// ends. It returns the number of attempts that were spent and the waits between them.
func run(p ojs.RetryPolicy, end func(attempt int) policy.Outcome) (j *ojs.JobInfo, spent int,
	waits []time.Duration) {
	j = job(0, p)
	for at := now; ; {
		j.Attempt++
		d := policy.Decide(j, end(j.Attempt), at, 0.5, nil)
		d.Apply(j, at)
		if !d.Refunded {
			spent++
		}
		if d.State != ojs.StateRetryable {
			return j, spent, waits
		}
		waits = append(waits, d.RunAt.Sub(at))
		at = d.RunAt
	}
}

func TestRuns(t *testing.T) {
	t.Run("A107 A108 A109 A111 A113 A174 B027 a job that always loses its worker stops", func(t *testing.T) {
		p := ojs.RetryPolicy{MaxAttempts: 4, Jitter: ojs.JitterOff,
			NonRetryableErrors: []string{"visibility_timeout"}}
		j, spent, waits := run(p,
			func(int) policy.Outcome { return policy.Outcome{Kind: policy.LeaseExpired, Limit: time.Minute} })
		if spent != 4 || j.State != ojs.StateDiscarded || j.DeadLettered() ||
			!slices.Equal(waits, seconds(1, 2, 4)) {
			t.Errorf("%d attempts, waits %v, %+v", spent, waits, j)
		}
		if len(j.Errors) != 4 || j.Error.Type != policy.ErrorTypeLeaseExpired ||
			j.Error.Reason != ojs.ReasonLeaseExpired {
			t.Errorf("%+v", j.Errors)
		}
	})
	t.Run("A143 B025 export.check_status waits 59 times 10 s", func(t *testing.T) {
		_, spent, waits := run(polling, func(int) policy.Outcome { return policy.Outcome{Err: errBoom} })
		if spent != 60 || len(waits) != 59 || len(slices.Compact(waits)) != 1 || waits[0] != 10*time.Second {
			t.Errorf("%d attempts, waits %v", spent, waits)
		}
	})
	t.Run("A006 A007 A008 A028 A139 reading 2 retry n follows attempt n", func(t *testing.T) {
		p := crm
		p.Jitter = ojs.JitterOff
		if _, _, waits := run(p, func(int) policy.Outcome {
			return policy.Outcome{Err: errBoom}
		}); !slices.Equal(waits, seconds(30, 60, 120, 240)) {
			t.Errorf("waits %v", waits)
		}
	})
	t.Run("A009 A027 A163 never more attempts than allowed, never fewer", rapid.MakeCheck(func(t *rapid.T) {
		p := ojs.RetryPolicy{MaxAttempts: rapid.OneOf(rapid.Just(ojs.NoRetry),
			rapid.IntRange(1, 40)).Draw(t, "max")}
		_, spent, _ := run(p, func(int) policy.Outcome {
			kind := rapid.SampledFrom([]policy.OutcomeKind{policy.Returned, policy.Panicked, policy.Exited,
				policy.TimedOut, policy.LeaseExpired, policy.Interrupted}).Draw(t, "kind")
			err := rapid.SampledFrom([]error{errBoom, ojs.RetryAfter(0, errBoom), ojs.Snooze(time.Second),
				&ojs.Error{Type: "a.b", Code: ojs.CodeRetry}}).Draw(t, "error")
			return policy.Outcome{Kind: kind, Err: err}
		})
		if spent != p.Runs() {
			t.Fatalf("%d attempts, want %d", spent, p.Runs())
		}
	}))
}

func TestRetryAfter(t *testing.T) {
	for _, tt := range []struct{ ask, want time.Duration }{
		{30 * time.Second, 30 * time.Second}, {time.Nanosecond, time.Nanosecond},
		{5 * time.Minute, 5 * time.Minute},
		{5*time.Minute + 1, 5 * time.Minute}, {1<<63 - 1, 5 * time.Minute}, {0, 0}, {-time.Second, 0},
	} {
		t.Run(fmt.Sprintf("A036 reading 6 after %v", tt.ask), func(t *testing.T) {
			for _, err := range []error{
				ojs.RetryAfter(tt.ask, errBoom), &ojs.RetryAfterError{After: tt.ask, Err: errBoom},
				fmt.Errorf("x: %w", ojs.RetryAfter(tt.ask, errBoom)),
				ojs.RetryAfter(tt.ask, ojs.RetryAfter(time.Minute, errBoom)), // the outer one
			} {
				for _, r := range []float64{0, 0.5, 0.9} { // no jitter
					d := policy.Decide(job(1, ojs.RetryPolicy{}), policy.Outcome{Err: err}, now, r, nil)
					if d.State != ojs.StateRetryable || d.RunAt.Sub(now) != tt.want || d.Failure == nil {
						t.Errorf("draw %v: %+v", r, d)
					}
				}
			}
		})
	}
	t.Run("A027 no attempt is left for it", func(t *testing.T) {
		d := policy.Decide(job(3, ojs.RetryPolicy{}),
			policy.Outcome{Err: ojs.RetryAfter(time.Second, errBoom)}, now, 0, nil)
		if d.Rule != policy.RuleExhausted || d.State != ojs.StateDiscarded || !d.RunAt.IsZero() {
			t.Errorf("decision %+v", d)
		}
	})
}

func TestUnspent(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    policy.Outcome
		wait time.Duration
	}{
		{"reading 6 Snooze, beyond max_interval", policy.Outcome{Err: ojs.Snooze(time.Hour)}, time.Hour},
		{"reading 6 Snooze, wrapped", policy.Outcome{Err: fmt.Errorf("later: %w", ojs.Snooze(time.Second))},
			time.Second},
		{"reading 6 Snooze, at once", policy.Outcome{Err: ojs.Snooze(-time.Second)}, 0},
		{"interrupted", policy.Outcome{Kind: policy.Interrupted, Err: ojs.Errorf("net.reset", "no")}, 0},
		{"interrupted, the handler left running", policy.Outcome{Kind: policy.Interrupted}, 0},
		{"interrupted, with the context's error under a listed type", policy.Outcome{Kind: policy.Interrupted,
			Err: ojs.Errorf("error", "query: %w", context.Canceled)}, 0},
		{"interrupted, with its cause under a listed type", policy.Outcome{Kind: policy.Interrupted,
			Err: ojs.Errorf("error", "query: %w", ojs.ErrShutdown)}, 0},
		{"interrupted, with the context's error and a marker", policy.Outcome{Kind: policy.Interrupted,
			Err: fmt.Errorf("%w: %w", marked{true}, context.Canceled)}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for attempt := 1; attempt <= 3; attempt++ { // the last one too
				j := job(attempt, ojs.RetryPolicy{OnExhaustion: ojs.ExhaustionDeadLetter,
					NonRetryableErrors: []string{"error"}})
				policy.Decide(j, tt.o, now, 0.9, nil).Apply(j, now)
				if j.State != ojs.StateRetryable || j.Attempt != attempt-1 ||
					!j.NextRetryAt.Equal(now.Add(tt.wait)) || len(j.Errors) != 0 || j.Error != nil {
					t.Errorf("attempt %d: %+v", attempt, j)
				}
			}
		})
	}
	t.Run("A093 an interrupted handler's code is respected", func(t *testing.T) {
		j := job(1, ojs.RetryPolicy{})
		policy.Decide(j, policy.Outcome{Kind: policy.Interrupted, Err: ojs.Discard(errBoom)}, now, 0,
			nil).Apply(j, now)
		if j.State != ojs.StateDiscarded || j.Attempt != 1 || len(j.Errors) != 1 {
			t.Errorf("%+v", j)
		}
	})
	t.Run("A011 E047 an interrupted handler's error that forbids a retry is respected", func(t *testing.T) {
		for _, err := range []error{marked{true}, ojs.Errorf("auth.forbidden", "no: %w", errBoom),
			errBoom, (*wraps)(nil)} { // an error without a type has the type error
			j := job(1, ojs.RetryPolicy{NonRetryableErrors: []string{"auth.*", policy.ErrorTypeError}})
			policy.Decide(j, policy.Outcome{Kind: policy.Interrupted, Err: err}, now, 0, nil).Apply(j, now)
			if j.State != ojs.StateDiscarded || j.Attempt != 1 || len(j.Errors) != 1 ||
				j.Error.Reason != ojs.ReasonNonRetryable {
				t.Errorf("%v: %+v", err, j)
			}
		}
	})
}
