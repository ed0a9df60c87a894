package policy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/policy/preset"
)

// kolmogorov is the largest distance between the distribution of the samples and the
// uniform one on [0, 1), times the square root of their number: above 1.63 in one of a
// hundred samples that are uniform, above 1.95 in one of a thousand.
func kolmogorov(samples []float64) float64 {
	slices.Sort(samples)
	n, d := float64(len(samples)), 0.0
	for i, x := range samples {
		d = max(d, x-float64(i)/n, float64(i+1)/n-x)
	}
	return d * math.Sqrt(n)
}

func TestKolmogorov(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	samples := func(f func(float64) float64) []float64 {
		s := make([]float64, 20_000)
		for i := range s {
			s[i] = f(rnd.Float64())
		}
		return s
	}
	for name, f := range map[string]func(float64) float64{
		"a square":     func(x float64) float64 { return x * x },
		"a little off": func(x float64) float64 { return x*0.97 + 0.015 },
		"ten values":   func(x float64) float64 { return math.Floor(x*10) / 10 },
	} {
		if k := kolmogorov(samples(f)); k < 1.95 {
			t.Errorf("%s passes for uniform: %v", name, k)
		}
	}
	if k := kolmogorov(samples(func(x float64) float64 { return x })); k > 1.63 {
		t.Errorf("uniform does not pass: %v", k)
	}
}

// Delays in a range are spread evenly over it.
func TestJitterDistribution(t *testing.T) {
	const samples = 20_000
	standard := ojs.RetryPolicy{InitialInterval: 10 * time.Second}
	for _, tt := range []struct {
		name      string
		p         ojs.RetryPolicy
		n         int
		low, high time.Duration
	}{
		{"A063 A064 A067 the standard's", standard, 3, 20 * time.Second, 60 * time.Second},
		{"D009 D014 D020 D021 reading 39 full, first", preset.FullJitter(), 1, 0, 500 * time.Millisecond},
		{"D009 D017 D020 D021 full, fourth", preset.FullJitter(), 4, 0, 4 * time.Second},
		{"D009 D019 D020 D021 full, at the cap", preset.FullJitter(), 1000, 0, 30 * time.Second},
		{"River, second", preset.River(), 2, 14400 * time.Millisecond, 17600 * time.Millisecond},
		{"River, 25th", preset.River(), 25, 351562500 * time.Millisecond, 429687500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(3) {
				rnd := rand.New(rand.NewPCG(seed, 12))
				width := float64(tt.high - tt.low)
				u := make([]float64, samples)
				sum := 0.0
				for i := range u {
					d := policy.Delay(tt.p, tt.n, rnd.Float64())
					if d < tt.low || d > tt.high {
						t.Fatalf("%v is not in [%v, %v]", d, tt.low, tt.high)
					}
					u[i] = float64(d-tt.low) / width
					sum += u[i]
				}
				// The mean of so many has a standard deviation of 1/sqrt(12*20000) =
				// 0.002.
				if mean := sum / samples; math.Abs(mean-0.5) > 0.008 {
					t.Errorf("seed %d: mean at %v of the range", seed, mean)
				}
				if k := kolmogorov(u); k > 1.95 {
					t.Errorf("seed %d: not uniform, %v", seed, k)
				}
			}
		})
	}
	// Whole numbers: as often each, which chi-square measures.
	for _, tt := range []struct {
		name   string
		p      ojs.RetryPolicy
		n      int
		base   int64 // seconds
		step   int64
		values int
	}{
		{"Sidekiq: 10 values", preset.Sidekiq(), 3, 31, 3, 10},
		{"Faktory: 30 values", preset.Faktory(), 2, 16, 2, 30},
		{"asynq: 30 values", preset.Asynq(), 5, 271, 5, 30},
		{"A152 Celery: 0 to 32", preset.CeleryBackoff(), 6, 0, 1, 33},
		{"A152 Celery: 0 to 600", preset.CeleryBackoff(), 20, 0, 1, 601},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(3, 12))
			counts := make([]float64, tt.values)
			for range samples {
				d := policy.Delay(tt.p, tt.n, rnd.Float64())
				i := (int64(d/time.Second) - tt.base) / tt.step
				if i < 0 || i >= int64(tt.values) || d != time.Duration(tt.base+i*tt.step)*time.Second {
					t.Fatalf("%v is none of them", d)
				}
				counts[i]++
			}
			want, chi := float64(samples)/float64(tt.values), 0.0
			for _, c := range counts {
				chi += (c - want) * (c - want) / want
			}
			// Its mean is values-1, its variance twice that.
			if free := float64(tt.values - 1); chi > free+4*math.Sqrt(2*free) {
				t.Errorf("chi-square %v of %v degrees", chi, free)
			}
		})
	}
	t.Run("Oban: up to a tenth more", func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(4, 12))
		u := make([]float64, samples)
		for i := range u {
			d := policy.Delay(preset.Oban(), 20, rnd.Float64())
			u[i] = float64(d-1048591*time.Second) / float64(104859*time.Second)
			if u[i] < 0 || u[i] >= 1 || d%time.Second != 0 {
				t.Fatalf("%v", d)
			}
		}
		if k := kolmogorov(u); k > 1.95 {
			t.Errorf("not uniform: %v", k)
		}
	})
	t.Run("D020 jobs that failed together retry apart", func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(5, 12))
		busiest, counts := 0, make(map[string]int)
		for range 10_000 {
			// a hundredth of the ceiling
			at := policy.Delay(preset.FullJitter(), 5, rnd.Float64()).Truncate(80 * time.Millisecond)
			counts[fmt.Sprint(at)]++
			busiest = max(busiest, counts[fmt.Sprint(at)])
		}
		if busiest > 150 { // 100 on average, with a standard deviation of 10
			t.Errorf("%d of 10,000 in a hundredth of the time", busiest)
		}
	})
}
