package policy_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	known "github.com/ojsengine/ojs/internal/backoff"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/policy/preset"
)

func init() {
	policy.RegisterBackoff("acme:fibonacci", func(p ojs.RetryPolicy, n int, _ float64) time.Duration {
		a, b := time.Duration(0), p.InitialInterval
		for range n {
			a, b = b, min(a+b, p.MaxInterval)
		}
		return a
	})
	policy.RegisterBackoff("acme:echo", func(_ ojs.RetryPolicy, n int, r float64) time.Duration {
		return time.Duration(n)*time.Hour + time.Duration(r*1000)*time.Millisecond
	})
	policy.RegisterBackoff("acme:nothing", func(ojs.RetryPolicy, int, float64) time.Duration { return 0 })
	policy.RegisterBackoff("acme:negative",
		func(ojs.RetryPolicy, int, float64) time.Duration { return -time.Hour })
	policy.RegisterBackoff("acme:panics",
		func(_ ojs.RetryPolicy, n int, _ float64) time.Duration { panic(n) })
	policy.RegisterBackoff("acme:index", func(p ojs.RetryPolicy, n int, _ float64) time.Duration {
		return seconds(5, 60)[n-1] // a bug, from the third retry on
	})
}

var registered atomic.Int32 // names, also when the tests run several times

func TestRegisterBackoff(t *testing.T) {
	p := func(s ojs.Backoff, j ojs.Jitter) ojs.RetryPolicy {
		return ojs.RetryPolicy{MaxAttempts: 10, InitialInterval: time.Second, MaxInterval: time.Minute,
			BackoffStrategy: s, Jitter: j}
	}
	t.Run("reading 46 a strategy of the program's own", func(t *testing.T) {
		q, err := policy.Resolve(p("acme:fibonacci", ojs.JitterOff))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := policy.Delays(q), seconds(1, 1, 2, 3, 5, 8, 13, 21, 34); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		q.MaxAttempts = 100
		if d := policy.Delay(q, 50, 0); d != time.Minute {
			t.Errorf("A036 not capped: %v", d)
		}
	})
	t.Run("it gets the failures, from 1, and the draw, in [0, 1)", func(t *testing.T) {
		q := p("acme:echo", ojs.JitterOff)
		q.MaxInterval = preset.NoCap
		for _, tt := range []struct {
			n    int
			r    float64
			want time.Duration
		}{{1, 0, time.Hour}, {3, 0.5, 3*time.Hour + 500*time.Millisecond},
			{0, 0.25, time.Hour + 250*time.Millisecond}, {-7, -1, time.Hour},
			{2, 1, 2*time.Hour + 999*time.Millisecond}} {
			if d := policy.Delay(q, tt.n, tt.r); d != tt.want {
				t.Errorf("failure %d, draw %v: %v, want %v", tt.n, tt.r, d, tt.want)
			}
		}
	})
	t.Run("it gets every field", func(t *testing.T) {
		p := ojs.RetryPolicy{BackoffStrategy: "acme:fibonacci", Jitter: ojs.JitterOff}
		if d := policy.Delay(p, 4, 0); d != 3*time.Second {
			t.Errorf("%v", d)
		}
	})
	for _, j := range []ojs.Jitter{ojs.JitterOff, ojs.JitterOn, ojs.JitterFull} {
		for _, s := range []ojs.Backoff{"acme:nothing", "acme:negative", "ojs:immediate"} {
			t.Run("E002 E036 zero really is zero: "+string(s)+", jitter "+string(j), func(t *testing.T) {
				for _, r := range []float64{0, 0.25, 0.5, 0.75, math.Nextafter(1, 0)} {
					if d := policy.Delay(p(s, j), 3, r); d != 0 {
						t.Errorf("draw %v: %v", r, d)
					}
				}
			})
		}
	}
	t.Run("A064 jitter is laid over it, and capped", func(t *testing.T) {
		q := p("acme:fibonacci", ojs.JitterOn)
		if low, high := policy.Delay(q, 5, 0), policy.Delay(q, 5, 0.9); low != 2500*time.Millisecond ||
			high != 7*time.Second {
			t.Errorf("%v, %v", low, high)
		}
		if d := policy.Delay(q, 50, 0.9); d != time.Minute {
			t.Errorf("%v", d)
		}
		q.Jitter = ojs.JitterFull
		if d := policy.Delay(q, 5, 0.5); d != 2500*time.Millisecond {
			t.Errorf("%v", d)
		}
	})
	for _, s := range []ojs.Backoff{"acme:unknown", "acme:panics", "acme:index"} {
		t.Run("the exponential strategy in place of "+string(s), func(t *testing.T) {
			for _, r := range []float64{0, 0.25, 0.5, 0.75, math.Nextafter(1, 0)} {
				for n, want := range map[int]float64{3: 4, 4: 8, 6: 32, 7: 60, 1000: 60} {
					if d := policy.Delay(p(s, ojs.JitterOff), n, r); d != seconds(want)[0] {
						t.Errorf("retry %d after %v, want %v s", n, d, want)
					}
				}
			}
		})
	}
	t.Run("A043 A131 P0.10 Resolve refuses a name that this program does not know", func(t *testing.T) {
		_, err := policy.Resolve(p("acme:unknown", ""))
		var invalid *ojs.InvalidError
		if !errors.As(err, &invalid) || invalid.Code != ojs.InvalidCodeRetry ||
			invalid.Field != "retry.backoff_strategy" ||
			err.Error() != `ojs: invalid retry.backoff_strategy: "acme:unknown" is not registered in this program` {
			t.Errorf("%v", err)
		}
		if _, err := policy.Resolve(p("ojs:unknown", "")); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%v", err)
		}
		for _, name := range known.Builtin() {
			if _, err := policy.Resolve(p(ojs.Backoff(name), "")); err != nil {
				t.Error(err)
			}
		}
	})
	nothing := func(ojs.RetryPolicy, int, float64) time.Duration { return 0 }
	for name, f := range map[string]policy.BackoffFunc{
		"": nothing, "fibonacci": nothing, "acme:": nothing, ":x": nothing, "Acme:x": nothing,
		"acme:x:y": nothing, "acme:x y": nothing, "acme:é": nothing,
		"1a:x": nothing, "acme:1": nothing, "acme:fibonacci": nothing, "ojs:mine": nothing,
		"ojs:sidekiq": nothing, "acme:nil": nil,
		"acme:" + strings.Repeat("x", 60): nothing,
	} {
		t.Run("a programmer's error panics: "+name, func(t *testing.T) {
			defer func() {
				if said, ok := recover().(string); !ok || !strings.HasPrefix(said, "ojs: RegisterBackoff: ") {
					t.Errorf("%v", said)
				}
			}()
			policy.RegisterBackoff(name, f)
		})
	}
	t.Run("the longest name", func(t *testing.T) {
		name := "b-2_c.d:" + strings.Repeat("x", 56)
		if !known.Qualified(name) || known.Qualified(name+"x") {
			t.Error("64 bytes are the most")
		}
	})
	t.Run("at once from many goroutines", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				policy.RegisterBackoff(fmt.Sprintf("many:x%d", registered.Add(1)), nothing)
				for n := range 100 {
					policy.Delay(p("many:x1", ojs.JitterOff), n, 0.5)
					policy.Delay(p("acme:fibonacci", ojs.JitterOff), n, 0.5)
				}
			})
		}
		wg.Wait()
	})
	t.Run("every name of the presets is known to the root, and no other", func(t *testing.T) {
		if got := slices.Sorted(maps.Keys(policy.Builtin)); !slices.Equal(got,
			slices.Sorted(slices.Values(names()))) {
			t.Errorf("%v, %v", got, known.Builtin())
		}
	})
}

func names() (bs []ojs.Backoff) {
	for _, name := range known.Builtin() {
		bs = append(bs, ojs.Backoff(name))
	}
	return bs
}
