package preset_test

import (
	"encoding/json"
	"math"
	"math/big"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/policy/preset"
)

var (
	almostOne = math.Nextafter(1, 0)
	draws     = []float64{0, 0.25, 0.5, 0.75, almostOne}
	retries   = func() []int {
		ns := []int{236, 237, 238, 309, 310, 311, 1000, 1_000_000, math.MaxInt32, math.MaxInt}
		for n := range 100 {
			ns = append(ns, n+1)
		}
		return ns
	}()
)

// seconds are durations of whole and broken seconds.
func seconds(s ...float64) []time.Duration {
	ds := make([]time.Duration, len(s))
	for i, s := range s {
		ds[i] = time.Duration(s * float64(time.Second))
	}
	return ds
}

// rat is an exact fraction.
func rat(f float64) *big.Rat { return new(big.Rat).SetFloat64(f) }

// below is r times n, rounded down: a random integer in [0, n), from an exact product.
func below(r float64, n int64) *big.Int {
	x := new(big.Rat).Mul(rat(r), new(big.Rat).SetInt64(n))
	return new(big.Int).Quo(x.Num(), x.Denom())
}

func pow(base, exponent int64) *big.Int {
	return new(big.Int).Exp(big.NewInt(base), big.NewInt(exponent), nil)
}

// inSeconds is a duration of s seconds, at most the cap.
func inSeconds(s *big.Int, most time.Duration) time.Duration {
	if s.Cmp(big.NewInt(int64(most/time.Second))) >= 0 {
		return most
	}
	return time.Duration(s.Int64()) * time.Second
}

// count^4 + 15 + rand(width)*(count+1), in integers of any size.
func quartic(width int64) func(n int, r float64) time.Duration {
	return func(n int, r float64) time.Duration {
		count := int64(n) - 1
		s := pow(count, 4)
		s.Add(s, big.NewInt(15))
		s.Add(s, new(big.Int).Mul(below(r, width), big.NewInt(n64(n))))
		return inSeconds(s, preset.NoCap)
	}
}

func n64(n int) int64 { return int64(n) }

// doubling is first * 2^(n-1), at most the cap, in integers of any size.
func doubling(first, most time.Duration) func(n int, r float64) time.Duration {
	return func(n int, _ float64) time.Duration {
		d := new(big.Int).Mul(big.NewInt(int64(first)), pow(2, int64(min(n-1, 200))))
		if d.Cmp(big.NewInt(int64(most))) >= 0 {
			return most
		}
		return time.Duration(d.Int64())
	}
}

func always(d time.Duration) func(int, float64) time.Duration {
	return func(int, float64) time.Duration { return d }
}

// e^n in microseconds, from a table.
var exps = []int64{0, 2_718_282, 7_389_056, 20_085_537, 54_598_150, 148_413_159, 403_428_793, 1_096_633_158,
	2_980_957_987, 8_103_083_928, 22_026_465_795}

// computeDelay is the listing of Ratchet's BackoffPolicyHandler, in its milliseconds.
func computeDelay(backoff string, baseMs int64, attempts int) int64 {
	const maxDelay = 24 * 60 * 60 * 1000
	switch backoff {
	case "NONE":
		return 0
	case "FIXED":
		return baseMs
	}
	cappedExponent := min(attempts-1, 20)
	multiplier := int64(1) << cappedExponent
	exponentialDelay := int64(maxDelay)
	if multiplier > 0 && baseMs <= maxDelay/multiplier {
		exponentialDelay = baseMs * multiplier
	}
	return min(exponentialDelay, maxDelay)
}

func ratchet(backoff string, baseMs int64) func(int, float64) time.Duration {
	return func(n int, _ float64) time.Duration {
		return time.Duration(computeDelay(backoff, baseMs, n)) * time.Millisecond
	}
}

func oban(most int64) func(n int, r float64) time.Duration {
	return func(n int, r float64) time.Duration {
		if most > 20 { // round half up, of n/most*20
			n = int((2*20*int64(min(n, 1<<40)) + most) / (2 * most))
		}
		s := pow(2, int64(min(n, 100)))
		s.Add(s, big.NewInt(15))
		x := new(big.Rat).Mul(new(big.Rat).SetInt(s), rat(r))
		x.Mul(x, big.NewRat(1, 10))
		s.Add(s, new(big.Int).Quo(x.Num(), x.Denom()))
		return inSeconds(s, preset.NoCap)
	}
}

func attempts(p ojs.RetryPolicy, n int) ojs.RetryPolicy {
	p.MaxAttempts = n
	return p
}

var presets = []struct {
	name string
	p    ojs.RetryPolicy
	runs int
	dead bool
	want func(n int, r float64) time.Duration
	near bool // the formula is one of floating point
}{
	{"D003 D013 reading 39 reading 46 FullJitter", preset.FullJitter(), 4, false,
		func(n int, r float64) time.Duration {
			ceiling := doubling(500*time.Millisecond, 30*time.Second)(n, r)
			x := new(big.Rat).Mul(rat(r), new(big.Rat).SetInt64(int64(ceiling)+1))
			return time.Duration(new(big.Int).Quo(x.Num(), x.Denom()).Int64())
		}, false},
	{"E004 RatchetNone", preset.RatchetNone(3), 4, true, ratchet("NONE", 0), false},
	{"E021 E022 Ratchet's default", preset.RatchetNone(0), 1, true, always(0), false},
	{"E007 RatchetFixed", preset.RatchetFixed(5, 10*time.Second), 6, true, ratchet("FIXED", 10_000), false},
	{"E036 RatchetFixed of nothing", preset.RatchetFixed(5, 0), 6, true, ratchet("FIXED", 0), false},
	{"E012 RatchetFixed beyond a day", preset.RatchetFixed(5, 48*time.Hour), 6, true,
		ratchet("FIXED", 48*3600*1000), false},
	{"E009 E010 RatchetExponential", preset.RatchetExponential(5, time.Second), 6, true,
		ratchet("EXPONENTIAL", 1000), false},
	{"E011 E037 RatchetExponential from 1 ms", preset.RatchetExponential(30, time.Millisecond), 31, true,
		ratchet("EXPONENTIAL", 1), false},
	{"E018 RatchetExponential from 5 s", preset.RatchetExponential(3, 5*time.Second), 4, true,
		ratchet("EXPONENTIAL", 5000), false},
	{"E020 RatchetExponential from 2 s", preset.RatchetExponential(5, 2*time.Second), 6, true,
		ratchet("EXPONENTIAL", 2000), false},
	{"E038 RatchetExponential from 25 h", preset.RatchetExponential(3, 25*time.Hour), 4, true,
		ratchet("EXPONENTIAL", 25*3600*1000), false},
	{"E038 RatchetExponential of the longest", preset.RatchetExponential(3, math.MaxInt64), 4, true,
		always(24 * time.Hour), false},
	{"E036 RatchetExponential of nothing", preset.RatchetExponential(3, 0), 4, true,
		ratchet("EXPONENTIAL", 0), false},
	{"A185 Sidekiq", preset.Sidekiq(), 26, true, quartic(10), false},
	{"A153 Faktory", preset.Faktory(), 26, true, quartic(30), false},
	{"Asynq", preset.Asynq(), 26, true, quartic(30), false},
	{"River", preset.River(), 25, false, func(n int, r float64) time.Duration {
		x := new(big.Rat).Add(big.NewRat(9, 10), new(big.Rat).Mul(rat(r), big.NewRat(1, 5)))
		x.Mul(x, new(big.Rat).SetInt(pow(int64(n), 4)))
		x.Mul(x, new(big.Rat).SetInt64(int64(time.Second)))
		d := new(big.Int).Quo(x.Num(), x.Denom())
		if d.Cmp(big.NewInt(int64(preset.NoCap))) >= 0 {
			return preset.NoCap
		}
		return time.Duration(d.Int64())
	}, true},
	{"A155 Oban", preset.Oban(), 20, false, oban(20), false},
	{"Oban with 15 attempts", attempts(preset.Oban(), 15), 15, false, oban(15), false},
	{"Oban with 25 attempts", attempts(preset.Oban(), 25), 25, false, oban(25), false},
	{"Oban with 1000 attempts", attempts(preset.Oban(), 1000), 1000, false, oban(1000), false},
	{"A150 Temporal", preset.Temporal(), math.MaxInt32, false, doubling(time.Second, 100*time.Second), false},
	{"A185 Celery", preset.Celery(), 4, false, always(180 * time.Second), false},
	{"A152 CeleryBackoff", preset.CeleryBackoff(), 4, false, func(n int, r float64) time.Duration {
		countdown := min(600, pow(2, int64(min(n-1, 60))).Int64())
		return time.Duration(below(r, countdown+1).Int64()) * time.Second
	}, false},
	{"A154 A185 BullMQ", preset.BullMQ(3), 3, true, always(0), false},
	{"BullMQ's default", preset.BullMQ(0), 1, true, always(0), false},
	{"A154 A185 BullMQFixed", preset.BullMQFixed(3, time.Second), 3, true, always(time.Second), false},
	{"BullMQFixed of nothing", preset.BullMQFixed(3, 0), 3, true, always(0), false},
	{"A154 BullMQExponential", preset.BullMQExponential(8, 1500*time.Millisecond), 8, true,
		doubling(1500*time.Millisecond, preset.NoCap), false},
	{"BullMQExponential of nothing", preset.BullMQExponential(8, 0), 8, true, always(0), false},
	{"GraphileWorker", preset.GraphileWorker(), 25, true, func(n int, _ float64) time.Duration {
		return time.Duration(exps[min(n, 10)]) * time.Microsecond
	}, false},
}

func TestPresets(t *testing.T) {
	for _, tt := range presets {
		t.Run(tt.name, func(t *testing.T) {
			p, err := policy.Resolve(tt.p)
			if err != nil {
				t.Fatal(err)
			}
			if p.Runs() != tt.runs || (p.OnExhaustion == ojs.ExhaustionDeadLetter) != tt.dead {
				t.Errorf("%d runs, then %s; want %d, dead letter %v", p.Runs(), p.OnExhaustion,
					tt.runs, tt.dead)
			}
			for _, n := range retries {
				for _, r := range draws {
					got, want := policy.Delay(tt.p, n, r), tt.want(n, r)
					slack := time.Duration(0)
					if tt.near {
						slack = 1 + want>>49 // some roundings of a float64
					}
					if got < want-slack || got > want+slack {
						t.Errorf("retry %d with the draw %v after %v, want %v", n, r, got, want)
					}
				}
			}
		})
		t.Run("A162 JSON of "+tt.name, func(t *testing.T) {
			b, err := json.Marshal(tt.p)
			if err != nil {
				t.Fatal(err)
			}
			var got ojs.RetryPolicy
			if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, tt.p) {
				t.Errorf("%s becomes %+v, %v", b, got, err)
			}
		})
		t.Run("reading 46 a whole policy: "+tt.name, func(t *testing.T) {
			base := ojs.RetryPolicy{MaxAttempts: 99, InitialInterval: 99 * time.Hour, BackoffCoefficient: 99,
				MaxInterval: 99 * 24 * time.Hour,
				Jitter:      ojs.JitterOn, BackoffStrategy: ojs.BackoffLinear,
				NonRetryableErrors: []string{"x"}}
			for _, base.OnExhaustion = range []ojs.Exhaustion{ojs.ExhaustionDiscard,
				ojs.ExhaustionDeadLetter} {
				want := tt.p
				want.NonRetryableErrors = base.NonRetryableErrors
				if got := tt.p.Inherit(base); !reflect.DeepEqual(got, want) {
					t.Errorf("inherits %+v", got)
				}
			}
		})
	}
	t.Run("a negative number of retries or attempts is none", func(t *testing.T) {
		for name, p := range map[string]ojs.RetryPolicy{
			"none": preset.RatchetNone(-1), "fixed": preset.RatchetFixed(math.MinInt, 1),
			"exponential": preset.RatchetExponential(-1, 1),
			"BullMQ":      preset.BullMQ(-1), "BullMQFixed": preset.BullMQFixed(math.MinInt, 1),
			"BullMQExponential": preset.BullMQExponential(-1, 1),
		} {
			if p.Runs() != 1 {
				t.Errorf("%s: %d runs", name, p.Runs())
			}
		}
	})
	t.Run("as many retries as there are", func(t *testing.T) {
		if n := preset.RatchetNone(math.MaxInt).Runs(); n != math.MaxInt {
			t.Errorf("%d", n)
		}
	})
	t.Run("a negative delay is none", func(t *testing.T) {
		for _, p := range []ojs.RetryPolicy{preset.RatchetFixed(1, -1),
			preset.RatchetExponential(1, math.MinInt64), preset.BullMQFixed(2, -1),
			preset.BullMQExponential(2, -1)} {
			if d := policy.Delay(p, 1, 0.5); d != 0 {
				t.Errorf("%+v: %v", p, d)
			}
		}
	})
}

// The first delays, as the systems' own documents list them.
func TestPresetsAsDocumented(t *testing.T) {
	ceilings := func(p ojs.RetryPolicy, n int) (ds []time.Duration) {
		for i := range n {
			ds = append(ds, policy.Delay(p, i+1, almostOne))
		}
		return ds
	}
	first := func(p ojs.RetryPolicy, n int) []time.Duration { return policy.Delays(p)[:n] }
	for _, tt := range []struct {
		name string
		got  []time.Duration
		want []float64
	}{
		{"A003 Sidekiq without its random part", first(preset.Sidekiq(), 7),
			[]float64{15, 16, 31, 96, 271, 640, 1311}},
		{"Sidekiq at the most", ceilings(preset.Sidekiq(), 3), []float64{24, 34, 58}},
		{"Asynq at the most", ceilings(preset.Asynq(), 3), []float64{44, 74, 118}},
		{"Oban without its random part", first(preset.Oban(), 10),
			[]float64{17, 19, 23, 31, 47, 79, 143, 271, 527, 1039}},
		{"Oban at the most", ceilings(preset.Oban(), 4), []float64{18, 20, 25, 34}},
		{"River in the middle", []time.Duration{policy.Delay(preset.River(), 1, 0.5),
			policy.Delay(preset.River(), 2, 0.5), policy.Delay(preset.River(), 3, 0.5)},
			[]float64{1, 16, 81}},
		{"A150 Temporal", first(preset.Temporal(), 9), []float64{1, 2, 4, 8, 16, 32, 64, 100, 100}},
		{"Celery", policy.Delays(preset.Celery()), []float64{180, 180, 180}},
		{"A152 CeleryBackoff at the most", ceilings(preset.CeleryBackoff(), 12),
			[]float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600}},
		{"A154 BullMQExponential", first(preset.BullMQExponential(6, time.Second), 5),
			[]float64{1, 2, 4, 8, 16}},
		{"E002 E004 none", policy.Delays(preset.RatchetNone(3)), []float64{0, 0, 0}},
		{"E005 E007 E039 fixed", policy.Delays(preset.RatchetFixed(5, 10*time.Second)),
			[]float64{10, 10, 10, 10, 10}},
		{"E008 E009 E010 E039 reading 43 exponential",
			policy.Delays(preset.RatchetExponential(5, time.Second)), []float64{1, 2, 4, 8, 16}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if want := seconds(tt.want...); !slices.Equal(tt.got, want) {
				t.Errorf("got %v, want %v", tt.got, want)
			}
		})
	}
	sum := func(p ojs.RetryPolicy) (s time.Duration) {
		for _, d := range policy.Delays(p) {
			s += d
		}
		return s
	}
	t.Run("A003 Sidekiq's 25 retries take some 20 days", func(t *testing.T) {
		if days := sum(preset.Sidekiq()).Hours() / 24; days < 20 || days > 21 {
			t.Errorf("%v days", days)
		}
	})
	t.Run("E009 cumulative 1, 3, 7, 15 s", func(t *testing.T) {
		var total time.Duration
		for n, want := range seconds(1, 3, 7, 15) {
			if total += policy.Delay(preset.RatchetExponential(5, time.Second), n+1, 0.7); total != want {
				t.Errorf("after retry %d: %v, want %v", n+1, total, want)
			}
		}
	})
	for _, tt := range []struct {
		name string
		n    int
		want time.Duration
	}{
		{"E013 retry 10", 10, 512 * time.Second}, {"E014 retry 15", 15, 16384 * time.Second},
		{"reading 42 retry 17", 17, 65536 * time.Second}, {"E012 reading 42 retry 18", 18, 24 * time.Hour},
		{"E015 reading 42 retry 20", 20, 24 * time.Hour}, {"E016 retry 21", 21, 24 * time.Hour},
		{"E016 retry 1000", 1000, 24 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := policy.Delay(preset.RatchetExponential(math.MaxInt, time.Second), tt.n, 0.7)
			if got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
	t.Run("E011 the exponent stops at 20", func(t *testing.T) {
		p := preset.RatchetExponential(100, time.Millisecond)
		for n, want := range map[int]time.Duration{20: 1 << 19, 21: 1 << 20, 22: 1 << 20, 64: 1 << 20,
			65: 1 << 20, 100: 1 << 20} {
			if got := policy.Delay(p, n, 0); got != want*time.Millisecond {
				t.Errorf("retry %d after %v", n, got)
			}
		}
	})
	t.Run("E035 E040 in integers, whatever the base", func(t *testing.T) {
		for base := int64(1); base < 1<<31; base = base*3 + 1 {
			p := preset.RatchetExponential(100, time.Duration(base)*time.Millisecond)
			for n := 1; n <= 30; n++ {
				want := time.Duration(computeDelay("EXPONENTIAL", base, n)) * time.Millisecond
				for range 2 { // the same for the same arguments
					if got := policy.Delay(p, n, 0.3); got != want {
						t.Errorf("base %d ms, retry %d: %v, want %v", base, n, got, want)
					}
				}
			}
		}
	})
}

func TestFullJitterTable(t *testing.T) {
	for _, tt := range []struct {
		name    string
		n       int
		ceiling float64
	}{
		{"D014 failure 1", 1, 0.5}, {"D015 failure 2", 2, 1}, {"D016 failure 3", 3, 2},
		{"D017 failure 4", 4, 4}, {"D018 failure 5", 5, 8},
		{"D019 reading 40 failure 6", 6, 16}, {"D019 reading 40 failure 7", 7, 30}, {"D019 failure 8", 8, 30},
		{"D019 failure 1000", 1000, 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, ceiling := tt.n, tt.ceiling
			p := preset.FullJitter()
			if low, high := policy.Delay(p, n, 0), policy.Delay(p, n, almostOne); low != 0 ||
				high != seconds(ceiling)[0] {
				t.Errorf("from %v to %v, want from 0 to %v s", low, high, ceiling)
			}
			if d := policy.Delay(p, n, 0.5); d != seconds(ceiling)[0]/2 {
				t.Errorf("half way: %v", d)
			}
		})
	}
	t.Run("D009 the next ceiling is twice the one before, at most the cap", func(t *testing.T) {
		p := preset.FullJitter()
		last := policy.Delay(p, 1, almostOne)
		for n := 2; n < 200; n++ {
			next := policy.Delay(p, n, almostOne)
			if next != min(2*last, p.MaxInterval) {
				t.Errorf("%v follows on %v", next, last)
			}
			last = next
		}
	})
	t.Run("D010 a delay of nothing", func(t *testing.T) {
		if d := policy.Delay(preset.FullJitter(), 3, 0); d != 0 {
			t.Errorf("%v", d)
		}
	})
	t.Run("D011 D012 D013 the defaults", func(t *testing.T) {
		p := preset.FullJitter()
		if p.InitialInterval != 500*time.Millisecond || p.MaxInterval != 30*time.Second ||
			p.MaxAttempts-1 != 3 {
			t.Errorf("%+v", p)
		}
	})
	for _, tt := range []struct {
		name       string
		retries    int
		base, most time.Duration
		want       []float64 // ceilings
	}{
		{"D022 D033 conservative", 5, time.Second, time.Minute, []float64{1, 2, 4, 8, 16}},
		{"D022 D034 aggressive", 2, 100 * time.Millisecond, 5 * time.Second, []float64{0.1, 0.2}},
		{"D004 D022 D035 no retry", 0, 500 * time.Millisecond, 30 * time.Second, nil},
		{"D004 many", 1_000_000, 500 * time.Millisecond, 30 * time.Second,
			[]float64{0.5, 1, 2, 4, 8, 16, 30, 30}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := preset.FullJitter()
			p.MaxAttempts, p.InitialInterval, p.MaxInterval = tt.retries+1, tt.base, tt.most
			p, err := policy.Resolve(p)
			if err != nil {
				t.Fatal(err)
			}
			if got := policy.Delays(p); len(got) != min(tt.retries, 1000) || !slices.Equal(got[:len(tt.want)],
				seconds(tt.want...)) {
				t.Errorf("ceilings %v, want %v", got, tt.want)
			}
		})
	}
}

// The standard's description of the systems that it compares with (OJS retry, section 13
// and appendix B).
func TestPriorArt(t *testing.T) {
	t.Run("A150 Temporal's five fields, and what OJS adds", func(t *testing.T) {
		p := preset.Temporal()
		p.MaxAttempts, p.NonRetryableErrors = 5, []string{"payment.declined"}
		b, err := json.Marshal(p)
		want := `{"max_attempts":5,"initial_interval":"PT1S","backoff_coefficient":2,"max_interval":"PT1M40S","jitter":false,` +
			`"non_retryable_errors":["payment.declined"],"on_exhaustion":"discard"}`
		if err != nil || string(b) != want {
			t.Errorf("%s, %v", b, err)
		}
	})
	t.Run("A152 a policy that says nothing has jitter", func(t *testing.T) {
		p, err := policy.Resolve(ojs.RetryPolicy{})
		if err != nil || p.Jitter != ojs.JitterOn {
			t.Errorf("%s, %v", p.Jitter, err)
		}
	})
	t.Run("A153 Faktory's -1 means nothing in JSON, and its 0 no retry", func(t *testing.T) {
		var p ojs.RetryPolicy
		if err := json.Unmarshal([]byte(`{"max_attempts":-1}`), &p); err == nil {
			t.Error("accepted")
		}
		if err := json.Unmarshal([]byte(`{"max_attempts":0}`), &p); err != nil || p.Runs() != 1 {
			t.Errorf("%+v, %v", p, err)
		}
	})
	t.Run("A154 BullMQ's fixed and exponential are none and exponential", func(t *testing.T) {
		fixed, exponential := preset.BullMQFixed(3, time.Second), preset.BullMQExponential(3, time.Second)
		if fixed.BackoffStrategy != ojs.BackoffNone || exponential.BackoffStrategy != ojs.BackoffExponential {
			t.Errorf("%s, %s", fixed.BackoffStrategy, exponential.BackoffStrategy)
		}
	})
	t.Run("A185 what they count", func(t *testing.T) {
		for name, tt := range map[string][2]int{
			"Celery's max_retries":  {preset.Celery().MaxAttempts, 3 + 1},
			"Sidekiq's retry":       {preset.Sidekiq().MaxAttempts, 25 + 1},
			"Faktory's retry":       {preset.Faktory().MaxAttempts, 25 + 1},
			"asynq's MaxRetry":      {preset.Asynq().MaxAttempts, 25 + 1},
			"BullMQ's attempts":     {preset.BullMQ(7).MaxAttempts, 7},
			"Oban's max_attempts":   {preset.Oban().MaxAttempts, 20}, // A155
			"River's MaxAttempts":   {preset.River().MaxAttempts, 25},
			"Graphile's attempts":   {preset.GraphileWorker().MaxAttempts, 25},
			"Ratchet's maxRetries":  {preset.RatchetNone(7).MaxAttempts, 7 + 1},
			"goqueue's MaxRetries":  {preset.FullJitter().MaxAttempts, 3 + 1},
			"the standard's number": {policy.Default().MaxAttempts, 3},
		} {
			if tt[0] != tt[1] {
				t.Errorf("%s: %d attempts, want %d", name, tt[0], tt[1])
			}
		}
	})
}
