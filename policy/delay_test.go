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
		{"A033 A045 B006 none", ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 5 * time.Second, BackoffStrategy: ojs.BackoffNone, BackoffCoefficient: 7}, []float64{5, 5, 5, 5}},
		{"A032 A046 B007 linear", ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 5 * time.Second, BackoffStrategy: ojs.BackoffLinear, BackoffCoefficient: 7}, []float64{5, 10, 15, 20}},
		{"A030 A047 A048 B008 exponential", ojs.RetryPolicy{MaxAttempts: 11}, []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 300}},
		{"A031 A049 A050 A051 B009 polynomial", ojs.RetryPolicy{MaxAttempts: 6, BackoffStrategy: ojs.BackoffPolynomial, BackoffCoefficient: 4}, []float64{1, 16, 81, 256, 300}},
		{"A035 exponential with coefficient 1 is constant", ojs.RetryPolicy{MaxAttempts: 4, BackoffCoefficient: 1}, []float64{1, 1, 1}},
		{"reading 4 polynomial with coefficient 1 is linear", ojs.RetryPolicy{MaxAttempts: 4, BackoffCoefficient: 1, BackoffStrategy: ojs.BackoffPolynomial}, []float64{1, 2, 3}},
		{"A036 A052 A166 B010 capped whatever the strategy: none", ojs.RetryPolicy{MaxAttempts: 3, InitialInterval: time.Minute, MaxInterval: time.Minute, BackoffStrategy: ojs.BackoffNone}, []float64{60, 60}},
		{"A052 linear capped", ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 4 * time.Second, MaxInterval: 10 * time.Second, BackoffStrategy: ojs.BackoffLinear}, []float64{4, 8, 10, 10}},
		{"A068 section 5.3", ojs.RetryPolicy{MaxAttempts: 7, InitialInterval: 10 * time.Second}, []float64{10, 20, 40, 80, 160, 300}},
		{"A100 A133 default", ojs.RetryPolicy{}, []float64{1, 2}},
		{"A134 A135 payment.charge", ojs.RetryPolicy{MaxAttempts: 6, InitialInterval: 15 * time.Second, BackoffCoefficient: 4, MaxInterval: time.Hour, BackoffStrategy: ojs.BackoffPolynomial}, []float64{15, 240, 1215, 3600, 3600}},
		{"reading 3 payment.charge without a strategy", ojs.RetryPolicy{MaxAttempts: 6, InitialInterval: 15 * time.Second, BackoffCoefficient: 4, MaxInterval: time.Hour}, []float64{15, 60, 240, 960, 3600}},
		{"A139 integration.sync_crm", ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 30 * time.Second, MaxInterval: 15 * time.Minute}, []float64{30, 60, 120, 240}},
		{"A143 A144 B025 polling", ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 10 * time.Second, BackoffCoefficient: 1, MaxInterval: 10 * time.Second}, []float64{10, 10, 10, 10}},
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
		for _, d := range policy.Delays(ojs.RetryPolicy{MaxAttempts: 60, InitialInterval: 10 * time.Second, BackoffCoefficient: 1, MaxInterval: 10 * time.Second}) {
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
	for n, want := range map[int][2]float64{1: {5, 15}, 2: {10, 30}, 3: {20, 60}, 4: {40, 120}, 5: {80, 240}} {
		t.Run(fmt.Sprintf("A064 A065 A067 A069 A167 B011 B012 retry %d", n), func(t *testing.T) {
			low, high := policy.Delay(p, n, 0), policy.Delay(p, n, almost)
			if low != seconds(want[0])[0] || high >= seconds(want[1])[0] || high < seconds(want[1])[0]-time.Microsecond {
				t.Errorf("from %v to %v, want [%v, %v) s", low, high, want[0], want[1])
			}
		})
	}
	t.Run("A053 A069 A070 A168 A184 B013 capped before and after", func(t *testing.T) {
		if low, high := policy.Delay(p, 6, 0), policy.Delay(p, 6, almost); low != 150*time.Second || high != 300*time.Second {
			t.Errorf("from %v to %v, want [150 s, 300 s]", low, high)
		}
		if d := policy.Delay(p, 6, 0.25); d != 225*time.Second { // of 300, not of 320
			t.Errorf("%v, want 225s", d)
		}
	})
	t.Run("A003 A051 polynomial growth with jitter, as Sidekiq's", func(t *testing.T) {
		p := ojs.RetryPolicy{BackoffStrategy: ojs.BackoffPolynomial, BackoffCoefficient: 4}
		if low, high := policy.Delay(p, 3, 0), policy.Delay(p, 3, almost); low != seconds(40.5)[0] || high >= seconds(121.5)[0] || high < seconds(121.4)[0] {
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

func TestDelayProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := ojs.RetryPolicy{
			InitialInterval:    time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "initial")),
			BackoffCoefficient: rapid.OneOf(rapid.Float64Range(1, 100), rapid.Float64Range(1, math.MaxFloat64)).Draw(t, "coefficient"),
			BackoffStrategy:    rapid.SampledFrom([]ojs.Backoff{ojs.BackoffNone, ojs.BackoffLinear, ojs.BackoffExponential, ojs.BackoffPolynomial}).Draw(t, "strategy"),
		}
		p.MaxInterval = time.Duration(rapid.Int64Range(int64(p.InitialInterval), math.MaxInt64).Draw(t, "max"))
		n := rapid.OneOf(rapid.IntRange(1, 50), rapid.IntRange(1, math.MaxInt)).Draw(t, "n")

		p.Jitter = ojs.JitterOff
		d := policy.Delay(p, n, 0)
		if d <= 0 || d > p.MaxInterval {
			t.Fatalf("delay %v out of (0, %v]", d, p.MaxInterval)
		}
		if n < math.MaxInt {
			if next := policy.Delay(p, n+1, 0); next < d {
				t.Fatalf("delay falls from %v to %v", d, next)
			}
		}
		p.Jitter = ojs.JitterOn
		j := policy.Delay(p, n, rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "r"))
		slack := 2 + time.Duration(float64(d)*1e-15) // a float64's rounding of a duration of centuries
		if j < d/2-slack || j > p.MaxInterval || float64(j) > 1.5*float64(d)+float64(slack) {
			t.Fatalf("delay %v with jitter %v, cap %v", d, j, p.MaxInterval)
		}
	})
	t.Run("A036 retry 10,000 with coefficient 100 is the cap", func(t *testing.T) {
		for _, s := range []ojs.Backoff{ojs.BackoffExponential, ojs.BackoffPolynomial} {
			p := ojs.RetryPolicy{BackoffCoefficient: 100, BackoffStrategy: s, MaxInterval: math.MaxInt64}
			for _, n := range []int{10_000, math.MaxInt} {
				if d := policy.Delay(p, n, 0.99); d != math.MaxInt64 {
					t.Errorf("%s: %v", s, d)
				}
			}
		}
	})
}
