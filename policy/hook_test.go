package policy_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

// smart is the custom policy of Ratchet's document: authentication errors are never
// retried, network errors ten times, others as the job says.
type smart struct{}

var errAuth = errors.New("authentication failed")

func (smart) ShouldRetry(job *ojs.JobInfo, err error) bool {
	var network net.Error
	switch {
	case errors.Is(err, errAuth):
		return false
	case errors.As(err, &network):
		return job.Attempt <= 10
	}
	return true
}

func (smart) Delay(*ojs.JobInfo, error) time.Duration { return 0 }

func TestHookByErrorType(t *testing.T) {
	dns := &net.DNSError{Err: "no such host"}
	for _, tt := range []struct {
		name string
		err  error
		max  int
		runs int
		why  policy.Rule
	}{
		{"E030 authentication errors are never retried", errAuth, 20, 1, policy.RuleHook},
		{"E031 network errors are retried while attempt <= 10", dns, 20, 11, policy.RuleHook},
		{"E031 E049 but no more often than the job may", dns, 4, 4, policy.RuleExhausted},
		{"E032 others are the job's", io.ErrUnexpectedEOF, 3, 3, policy.RuleExhausted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := job(0, ojs.RetryPolicy{MaxAttempts: tt.max, Jitter: ojs.JitterOff})
			for {
				j.Attempt++
				d := policy.Decide(j, policy.Outcome{Err: tt.err}, now, 0, smart{})
				if d.State == ojs.StateRetryable {
					if want := policy.Delay(j.Retry, j.Attempt, 0); d.RunAt.Sub(now) != want {
						t.Errorf("E026 retry %d after %v, want the policy's %v", j.Attempt,
							d.RunAt.Sub(now), want)
					}
					continue
				}
				if j.Attempt != tt.runs || d.Rule != tt.why || d.DeadLetter {
					t.Errorf("ended after %d attempts: %+v", j.Attempt, d)
				}
				break
			}
		})
	}
}

func TestHookVeto(t *testing.T) {
	veto := &hook{veto: true}
	for kind, want := range map[policy.OutcomeKind]ojs.Reason{
		policy.Returned: ojs.ReasonNonRetryable, policy.Panicked: ojs.ReasonHandlerPanic,
		policy.TimedOut: ojs.ReasonHandlerTimeout, policy.LeaseExpired: ojs.ReasonLeaseExpired,
	} {
		for _, dead := range []ojs.Exhaustion{ojs.ExhaustionDiscard, ojs.ExhaustionDeadLetter} {
			j := job(1, ojs.RetryPolicy{OnExhaustion: dead})
			d := policy.Decide(j, policy.Outcome{Kind: kind, Err: errBoom}, now, 0, veto)
			if d.Rule != policy.RuleHook || d.DeadLetter != (dead == ojs.ExhaustionDeadLetter) ||
				d.Failure.Reason != want {
				t.Errorf("E023 E048 kind %d, %s: %+v", kind, dead, d)
			}
		}
	}
}

// The error of a hook for an attempt that the handler did not end.
func TestHookSeesTheCause(t *testing.T) {
	for _, tt := range []struct {
		kind policy.OutcomeKind
		err  error
		is   error // what errors.Is finds
	}{
		{policy.Returned, errBoom, errBoom},
		{policy.Panicked, errBoom, errBoom},
		{policy.TimedOut, errBoom, ojs.ErrTimeout},
		{policy.TimedOut, errBoom, errBoom},
		{policy.TimedOut, nil, ojs.ErrTimeout},
		{policy.TotalTimedOut, nil, ojs.ErrTimeout},
		{policy.LeaseExpired, nil, ojs.ErrLeaseLost},
		{policy.Exited, nil, nil},
	} {
		h := &hook{}
		d := policy.Decide(job(1, ojs.RetryPolicy{}), policy.Outcome{Kind: tt.kind, Err: tt.err}, now, 0, h)
		if h.err == nil || tt.is != nil && !errors.Is(h.err, tt.is) {
			t.Errorf("E023 kind %d: the hook saw %v, want %v", tt.kind, h.err, tt.is)
		}
		if d.Failure == nil || tt.err == nil && d.Failure.Message == "" {
			t.Errorf("kind %d: %+v", tt.kind, d)
		}
	}
}

func TestHookDelay(t *testing.T) {
	for _, tt := range []struct{ ask, want time.Duration }{
		{0, time.Second}, {-time.Minute, time.Second}, {1, 1}, {time.Minute, time.Minute},
		{time.Hour, 5 * time.Minute},
	} {
		j := job(1, ojs.RetryPolicy{Jitter: ojs.JitterOff})
		d := policy.Decide(j, policy.Outcome{Err: errBoom}, now, 0, &hook{delay: tt.ask})
		if d.RunAt.Sub(now) != tt.want {
			t.Errorf("E024 E026 E027 the hook says %v: %v, want %v", tt.ask, d.RunAt.Sub(now), tt.want)
		}
		j = job(1, ojs.RetryPolicy{}) // with jitter
		if d := policy.Decide(j, policy.Outcome{Err: errBoom}, now, 0.9, &hook{delay: tt.ask}); tt.ask > 0 &&
			d.RunAt.Sub(now) != tt.want {
			t.Errorf("E027 the hook says %v: %v, want it as it is", tt.ask, d.RunAt.Sub(now))
		}
	}
}
