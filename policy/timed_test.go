package policy_test

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

func TestTimed(t *testing.T) {
	const timeout = time.Minute
	returned := policy.Outcome{Kind: policy.Returned, Err: errBoom}
	for name, tt := range map[string]struct {
		o     policy.Outcome
		total time.Duration // after the attempt's start
		after time.Duration // the end, after the attempt's start
		kind  policy.OutcomeKind
		limit time.Duration // 0: as it was
	}{
		"completed late":          {policy.Outcome{}, 0, time.Hour, policy.Returned, 0},
		"an error in time":        {returned, 0, timeout - 1, policy.Returned, 0},
		"an error at the timeout": {returned, 0, timeout, policy.TimedOut, timeout},
		"an error at the timeout, total later": {returned, timeout + 1, time.Hour,
			policy.TimedOut, timeout},
		"an error at the total timeout": {returned, time.Second, time.Second, policy.TotalTimedOut,
			time.Second + time.Hour},
		"an error before the total timeout": {returned, time.Second, time.Second - 1,
			policy.Returned, 0},
		"both timeouts at once": {returned, timeout, timeout, policy.TotalTimedOut,
			timeout + time.Hour},
		"interrupted in time": {policy.Outcome{Kind: policy.Interrupted}, 0, timeout - 1,
			policy.Interrupted, 0},
		"interrupted after the timeout": {policy.Outcome{Kind: policy.Interrupted}, 0, timeout,
			policy.TimedOut, timeout},
		"a timer was first, and the clock is back": {policy.Outcome{Kind: policy.TimedOut}, 0, time.Second,
			policy.TimedOut, timeout},
		"the same with a total timeout": {policy.Outcome{Kind: policy.TimedOut}, time.Second, 1,
			policy.TotalTimedOut, time.Second + time.Hour},
		"the limit of a middleware": {policy.Outcome{Kind: policy.TimedOut, Limit: 5}, 0, time.Hour,
			policy.TimedOut, 5},
		"a panic after the timeout": {policy.Outcome{Kind: policy.Panicked, Err: errBoom}, 0,
			time.Hour, policy.Panicked, 0},
		"runtime.Goexit after the timeout": {policy.Outcome{Kind: policy.Exited}, 0, time.Hour,
			policy.Exited, 0},
		"a lost lease": {policy.Outcome{Kind: policy.LeaseExpired, Limit: 7}, 0, time.Hour,
			policy.LeaseExpired, 7},
	} {
		t.Run("P0.5 "+name, func(t *testing.T) {
			j := &ojs.JobInfo{}
			j.CreatedAt, j.Timeout = now.Add(-time.Hour), timeout
			if tt.total > 0 {
				j.TotalTimeout = tt.total + time.Hour
			}
			got := policy.Timed(j, tt.o, now, now.Add(tt.after))
			limit, elapsed := tt.limit, tt.o.Elapsed
			if limit == 0 {
				limit = tt.o.Limit
			}
			switch got.Kind {
			case policy.TimedOut:
				elapsed = tt.after
			case policy.TotalTimedOut:
				elapsed = tt.after + time.Hour
			}
			if got.Kind != tt.kind || got.Limit != limit || got.Elapsed != elapsed || got.Err != tt.o.Err {
				t.Errorf("%+v", got)
			}
		})
	}
}
