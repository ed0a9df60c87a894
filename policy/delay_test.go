package policy_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

func seconds(s ...float64) []time.Duration {
	ds := make([]time.Duration, len(s))
	for i := range s {
		ds[i] = time.Duration(s[i] * float64(time.Second))
	}
	return ds
}

func TestDelays(t *testing.T) {
	tests := []struct {
		name string
		p    ojs.RetryPolicy
		want []float64
	}{
		{"A033 A045 B006 none", ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 5 * time.Second,
			BackoffStrategy: ojs.BackoffNone, BackoffCoefficient: 7}, []float64{5, 5, 5, 5}},
		{"A032 A046 B007 linear", ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 5 * time.Second,
			BackoffStrategy: ojs.BackoffLinear, BackoffCoefficient: 7}, []float64{5, 10, 15, 20}},
		{"A030 A047 A048 B008 exponential", ojs.RetryPolicy{MaxAttempts: 11},
			[]float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 300}},
		{"A031 A049 A050 A051 B009 polynomial", ojs.RetryPolicy{MaxAttempts: 6,
			BackoffStrategy: ojs.BackoffPolynomial, BackoffCoefficient: 4}, []float64{1, 16, 81, 256, 300}},
		{"A035 exponential with coefficient 1 is constant",
			ojs.RetryPolicy{MaxAttempts: 4, BackoffCoefficient: 1}, []float64{1, 1, 1}},
		{"reading 4 polynomial with coefficient 1 is linear", ojs.RetryPolicy{MaxAttempts: 4,
			BackoffCoefficient: 1, BackoffStrategy: ojs.BackoffPolynomial}, []float64{1, 2, 3}},
		{"A036 A052 A166 B010 capped whatever the strategy: none",
			ojs.RetryPolicy{MaxAttempts: 3, InitialInterval: time.Minute, MaxInterval: time.Minute,
				BackoffStrategy: ojs.BackoffNone}, []float64{60, 60}},
		{"A052 linear capped", ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 4 * time.Second,
			MaxInterval: 10 * time.Second, BackoffStrategy: ojs.BackoffLinear}, []float64{4, 8, 10, 10}},
		{"A068 section 5.3", ojs.RetryPolicy{MaxAttempts: 7, InitialInterval: 10 * time.Second},
			[]float64{10, 20, 40, 80, 160, 300}},
		{"A100 A133 default", ojs.RetryPolicy{}, []float64{1, 2}},
		{"A134 A135 payment.charge", ojs.RetryPolicy{MaxAttempts: 6, InitialInterval: 15 * time.Second,
			BackoffCoefficient: 4, MaxInterval: time.Hour, BackoffStrategy: ojs.BackoffPolynomial},
			[]float64{15, 240, 1215, 3600, 3600}},
		{"reading 3 payment.charge without a strategy",
			ojs.RetryPolicy{MaxAttempts: 6, InitialInterval: 15 * time.Second, BackoffCoefficient: 4,
				MaxInterval: time.Hour}, []float64{15, 60, 240, 960, 3600}},
		{"A139 integration.sync_crm", ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 30 * time.Second,
			MaxInterval: 15 * time.Minute}, []float64{30, 60, 120, 240}},
		{"A143 A144 B025 polling", ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 10 * time.Second,
			BackoffCoefficient: 1, MaxInterval: 10 * time.Second}, []float64{10, 10, 10, 10}},
		{"A023 one attempt", ojs.RetryPolicy{MaxAttempts: 1}, nil},
		{"A024 no retry", ojs.RetryPolicy{MaxAttempts: ojs.NoRetry}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := policy.Delays(tt.p); !slices.Equal(got, seconds(tt.want...)) {
				t.Errorf("got %v, want %v", got, seconds(tt.want...))
			}
		})
	}
	t.Run("A143 about ten minutes in total", func(t *testing.T) {
		var sum time.Duration
		for _, d := range policy.Delays(ojs.RetryPolicy{MaxAttempts: 60, InitialInterval: 10 * time.Second,
			BackoffCoefficient: 1, MaxInterval: 10 * time.Second}) {
			sum += d
		}
		if sum != 590*time.Second {
			t.Errorf("sum %v", sum)
		}
	})
	t.Run("a billion attempts", func(t *testing.T) {
		if n := len(policy.Delays(ojs.RetryPolicy{MaxAttempts: 1e9})); n != 1000 {
			t.Errorf("%d delays", n)
		}
	})
}

func TestJitterRanges(t *testing.T) {
	p := ojs.RetryPolicy{InitialInterval: 10 * time.Second}
	almost := math.Nextafter(1, 0)
	for n, want := range map[int][2]float64{1: {5, 15}, 2: {10, 30}, 3: {20, 60}, 4: {40, 120},
		5: {80, 240}} {
		t.Run(fmt.Sprintf("A064 A065 A067 A069 A167 B011 B012 retry %d", n), func(t *testing.T) {
			low, high := policy.Delay(p, n, 0), policy.Delay(p, n, almost)
			if low != seconds(want[0])[0] || high >= seconds(want[1])[0] ||
				high < seconds(want[1])[0]-time.Microsecond {
				t.Errorf("from %v to %v, want [%v, %v) s", low, high, want[0], want[1])
			}
		})
	}
	t.Run("A053 A069 A070 A168 A184 B013 capped before and after", func(t *testing.T) {
		if low, high := policy.Delay(p, 6, 0), policy.Delay(p, 6, almost); low != 150*time.Second ||
			high != 300*time.Second {
			t.Errorf("from %v to %v, want [150 s, 300 s]", low, high)
		}
		if d := policy.Delay(p, 6, 0.25); d != 225*time.Second { // of 300, not of 320
			t.Errorf("%v, want 225s", d)
		}
	})
	t.Run("A003 A051 polynomial growth with jitter, as Sidekiq's", func(t *testing.T) {
		p := ojs.RetryPolicy{BackoffStrategy: ojs.BackoffPolynomial, BackoffCoefficient: 4}
		if low, high := policy.Delay(p, 3, 0), policy.Delay(p, 3, almost); low != seconds(40.5)[0] ||
			high >= seconds(121.5)[0] || high < seconds(121.4)[0] {
			t.Errorf("from %v to %v, want [40.5, 121.5) s", low, high)
		}
	})
	t.Run("A037 jitter off ignores the draw", func(t *testing.T) {
		p := ojs.RetryPolicy{Jitter: ojs.JitterOff}
		if a, b := policy.Delay(p, 3, 0), policy.Delay(p, 3, 0.9); a != b || a != 4*time.Second {
			t.Errorf("%v, %v", a, b)
		}
	})
	t.Run("A066 a draw out of range", func(t *testing.T) {
		for _, r := range []float64{-5, 1, 100, math.NaN(), math.Inf(1), math.Inf(-1)} {
			if d := policy.Delay(p, 1, r); d < 5*time.Second || d > 15*time.Second {
				t.Errorf("draw %v gives %v", r, d)
			}
		}
	})
}

// validPolicy draws a policy that Resolve accepts, with intervals from a nanosecond to
// centuries.
func validPolicy(t *rapid.T) ojs.RetryPolicy {
	interval := func(least time.Duration, label string) time.Duration {
		most := max(least, 30*24*time.Hour)
		return time.Duration(rapid.OneOf(
			rapid.Int64Range(int64(least), int64(most)),
			rapid.Int64Range(int64(least), math.MaxInt64)).Draw(t, label))
	}
	p := ojs.RetryPolicy{
		MaxAttempts: rapid.OneOf(rapid.Just(ojs.NoRetry), rapid.IntRange(1, math.MaxInt)).Draw(t,
			"max attempts"),
		InitialInterval: interval(1, "initial"),
		BackoffCoefficient: rapid.OneOf(rapid.Just(1.0), rapid.Float64Range(1, 1.001),
			rapid.Float64Range(1, 100), rapid.Float64Range(1, math.MaxFloat64)).Draw(t, "coefficient"),
		BackoffStrategy: rapid.SampledFrom([]ojs.Backoff{ojs.BackoffNone, ojs.BackoffLinear,
			ojs.BackoffExponential, ojs.BackoffPolynomial}).Draw(t, "strategy"),
		Jitter: rapid.SampledFrom([]ojs.Jitter{ojs.JitterOff, ojs.JitterOn}).Draw(t, "jitter"),
	}
	p.MaxInterval = interval(p.InitialInterval, "max")
	p, err := policy.Resolve(p)
	if err != nil {
		t.Fatalf("%+v: %v", p, err)
	}
	return p
}

var draw = rapid.Float64Range(0, math.Nextafter(1, 0))

func TestDelayProperties(t *testing.T) {
	retry := rapid.OneOf(rapid.IntRange(1, 50), rapid.IntRange(1, 20_000), rapid.IntRange(1, math.MaxInt))

	t.Run("A036 A052 A066 A070 A166 A168 between nothing and the cap", rapid.MakeCheck(func(t *rapid.T) {
		p, n := validPolicy(t), retry.Draw(t, "n")
		if d := policy.Delay(p, n, draw.Draw(t, "r")); d < 0 || d > p.MaxInterval {
			t.Fatalf("%v is not in [0, %v]", d, p.MaxInterval)
		}
	}))
	t.Run("A037 without jitter it does not fall", rapid.MakeCheck(func(t *rapid.T) {
		p, n := validPolicy(t), rapid.IntRange(1, 20_000).Draw(t, "n")
		p.Jitter = ojs.JitterOff
		d := policy.Delay(p, n, 0)
		if d < p.InitialInterval {
			t.Fatalf("retry %d after %v, less than the first after %v", n, d, p.InitialInterval)
		}
		for next := n + 1; next <= min(n+20, 20_000); next++ {
			longer := policy.Delay(p, next, 0)
			if longer < d {
				t.Fatalf("retry %d after %v, retry %d after %v", next-1, d, next, longer)
			}
			d = longer
		}
	}))
	t.Run("A053 A064 A065 A067 A070 reading 5 jitter stays in its range", rapid.MakeCheck(func(t *rapid.T) {
		p, n := validPolicy(t), retry.Draw(t, "n")
		p.Jitter = ojs.JitterOff
		d := policy.Delay(p, n, 0)
		p.Jitter = ojs.JitterOn
		j := policy.Delay(p, n, draw.Draw(t, "r"))
		slack := time.Duration(0)
		if d > 1<<53 { // more than a float64 holds exactly, 104 days
			slack = d >> 52
		}
		if j < d/2-slack || j > p.MaxInterval || j-d > (d-1)/2+slack {
			t.Fatalf("%v with jitter %v, cap %v", d, j, p.MaxInterval)
		}
	}))
	t.Run("A064 A067 A167 the delay is in proportion to 0.5 + r", rapid.MakeCheck(func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, int64(30*24*time.Hour)).Draw(t, "d"))
		r := draw.Draw(t, "r")
		p := ojs.RetryPolicy{InitialInterval: d, MaxInterval: 2 * d}
		if j := policy.Delay(p, 1, r); math.Abs(float64(j)-float64(d)*(0.5+r)) > 2 {
			t.Fatalf("%v times 0.5 + %v is %v", d, r, j)
		}
	}))
	t.Run("A063 different draws, different times", func(t *testing.T) {
		seen := make(map[time.Duration]bool)
		for i := range 1000 {
			seen[policy.Delay(ojs.RetryPolicy{}, 1, float64(i)/1000)] = true
		}
		if len(seen) != 1000 {
			t.Errorf("%d delays of 1000 draws", len(seen))
		}
	})
	t.Run("A036 A166 retry 10,000 with coefficient 100 is the cap", func(t *testing.T) {
		for _, s := range []ojs.Backoff{ojs.BackoffExponential, ojs.BackoffPolynomial} {
			for _, most := range []time.Duration{time.Minute, math.MaxInt64} {
				p := ojs.RetryPolicy{BackoffCoefficient: 100, BackoffStrategy: s, MaxInterval: most}
				for _, n := range []int{10_000, math.MaxInt} {
					if d := policy.Delay(p, n, 0.99); d != most {
						t.Errorf("%s, retry %d: %v, want %v", s, n, d, most)
					}
				}
			}
		}
	})
	t.Run("A036 A052 the cap holds for a policy that nobody validated", func(t *testing.T) {
		for _, s := range []ojs.Backoff{ojs.BackoffNone, ojs.BackoffLinear, ojs.BackoffExponential,
			ojs.BackoffPolynomial} {
			for _, j := range []ojs.Jitter{ojs.JitterOff, ojs.JitterOn} {
				p := ojs.RetryPolicy{InitialInterval: time.Hour, MaxInterval: time.Minute,
					BackoffStrategy: s, Jitter: j}
				if d := policy.Delay(p, 1, 0.99); d != time.Minute {
					t.Errorf("%s, jitter %s: %v", s, j, d)
				}
			}
		}
		d := policy.Delay(ojs.RetryPolicy{BackoffCoefficient: math.NaN(), Jitter: ojs.JitterOff}, 2, 0)
		if d != 5*time.Minute {
			t.Errorf("not a number: %v", d)
		}
	})
	t.Run("A036 the last power of two before the overflow, and the first after it", func(t *testing.T) {
		p := ojs.RetryPolicy{InitialInterval: 1, MaxInterval: math.MaxInt64, Jitter: ojs.JitterOff}
		if a, b := policy.Delay(p, 63, 0), policy.Delay(p, 64, 0); a != 1<<62 || b != math.MaxInt64 {
			t.Errorf("%d, %d", a, b)
		}
	})
	t.Run("A036 linear does not overflow", func(t *testing.T) {
		p := ojs.RetryPolicy{InitialInterval: time.Hour, MaxInterval: math.MaxInt64,
			BackoffStrategy: ojs.BackoffLinear, Jitter: ojs.JitterOff}
		if d := policy.Delay(p, math.MaxInt, 0); d != math.MaxInt64 {
			t.Errorf("%v", d)
		}
	})
	t.Run("reading 2 there is no retry before the first", func(t *testing.T) {
		p := ojs.RetryPolicy{Jitter: ojs.JitterOff}
		for _, n := range []int{0, -1, math.MinInt} {
			if d := policy.Delay(p, n, 0); d != time.Second {
				t.Errorf("retry %d after %v", n, d)
			}
		}
	})
	t.Run("A045 A046 A048 A050 Delays lists Delay", rapid.MakeCheck(func(t *rapid.T) {
		p := validPolicy(t)
		list := policy.Delays(p)
		if want := min(p.Runs()-1, 1000); len(list) != want {
			t.Fatalf("%d delays, want %d", len(list), want)
		}
		p.Jitter = ojs.JitterOff
		for i, d := range list {
			if want := policy.Delay(p, i+1, 0); d != want {
				t.Fatalf("delay %d is %v, want %v", i, d, want)
			}
		}
	}))
}
