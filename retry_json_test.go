package ojs_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

const sevenFields = `{"max_attempts":3,"initial_interval":"PT1S","backoff_coefficient":2,"max_interval":"PT5M",` +
	`"jitter":true,"non_retryable_errors":[],"on_exhaustion":"discard"}`

func TestRetryPolicyJSON(t *testing.T) {
	t.Run("A021 A013 the seven fields are the default, and it is them", func(t *testing.T) {
		var p ojs.RetryPolicy
		if err := json.Unmarshal([]byte(sevenFields), &p); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(p, policy.Default()) {
			t.Errorf("%+v", p)
		}
		if got, err := json.Marshal(policy.Default()); err != nil || string(got) != sevenFields {
			t.Errorf("%s, %v", got, err)
		}
	})
	good := []struct {
		name, in string
		want     ojs.RetryPolicy
	}{
		{"A162 nothing", `{}`, ojs.RetryPolicy{}},
		{"A014", `{"max_attempts":25}`, ojs.RetryPolicy{MaxAttempts: 25}},
		{"A015 A056", `{"initial_interval":"PT0.5S"}`,
			ojs.RetryPolicy{InitialInterval: 500 * time.Millisecond}},
		{"A016 A159 the least", `{"backoff_coefficient":1}`, ojs.RetryPolicy{BackoffCoefficient: 1}},
		{"A017", `{"max_interval":"PT24H"}`, ojs.RetryPolicy{MaxInterval: 24 * time.Hour}},
		{"A018", `{"jitter":true}`, ojs.RetryPolicy{Jitter: ojs.JitterOn}},
		{"A019", `{"non_retryable_errors":["auth.*"]}`,
			ojs.RetryPolicy{NonRetryableErrors: []string{"auth.*"}}},
		{"A020", `{"on_exhaustion":"discard"}`, ojs.RetryPolicy{OnExhaustion: ojs.ExhaustionDiscard}},
		{"A128 A144 equal intervals", `{"initial_interval":"PT10S","max_interval":"PT10S"}`,
			ojs.RetryPolicy{InitialInterval: 10 * time.Second, MaxInterval: 10 * time.Second}},
		{"reading 17 null is absent",
			`{"max_attempts":null,"jitter":null,"initial_interval":null,"non_retryable_errors":null}`,
			ojs.RetryPolicy{}},
		{"A024 max_attempts 0", `{"max_attempts":0}`, ojs.RetryPolicy{MaxAttempts: ojs.NoRetry}},
		{"A102 jitter false", `{"jitter":false}`, ojs.RetryPolicy{Jitter: ojs.JitterOff}},
		{"A102 an empty list", `{"non_retryable_errors":[]}`,
			ojs.RetryPolicy{NonRetryableErrors: []string{}}},
		{"A103", `{"max_attempts":10,"on_exhaustion":"dead_letter"}`,
			ojs.RetryPolicy{MaxAttempts: 10, OnExhaustion: ojs.ExhaustionDeadLetter}},
		{"A044 reading 3 strategy", `{"backoff_strategy":"polynomial"}`,
			ojs.RetryPolicy{BackoffStrategy: ojs.BackoffPolynomial}},
		{"an explicit exponential", `{"backoff_strategy":"exponential"}`,
			ojs.RetryPolicy{BackoffStrategy: ojs.BackoffExponential}},
		{"B005 constant is none", `{"backoff_strategy":"constant"}`,
			ojs.RetryPolicy{BackoffStrategy: ojs.BackoffNone}},
		{"reading 22 duplicates count once", `{"non_retryable_errors":["a","b","a"]}`,
			ojs.RetryPolicy{NonRetryableErrors: []string{"a", "b"}}},
		{"A157 3.0 is an integer", `{"max_attempts":3.0}`, ojs.RetryPolicy{MaxAttempts: 3}},
		{"A157 so is 30e-1", `{"max_attempts":30e-1}`, ojs.RetryPolicy{MaxAttempts: 3}},
		{"A157 and 0.0003E+4", `{"max_attempts":0.0003E+4}`, ojs.RetryPolicy{MaxAttempts: 3}},
		{"A157 and 0e-400", `{"max_attempts":0e-400}`, ojs.RetryPolicy{MaxAttempts: ojs.NoRetry}},
		{"A035 100e-2 is 1", `{"backoff_coefficient":100e-2}`, ojs.RetryPolicy{BackoffCoefficient: 1}},
		{"reading 16 weeks", `{"max_interval":"P1W"}`, ojs.RetryPolicy{MaxInterval: 168 * time.Hour}},
		{"reading 46 full jitter", `{"jitter":"full"}`, ojs.RetryPolicy{Jitter: ojs.JitterFull}},
		{"reading 46 a strategy by name", `{"backoff_strategy":"ojs:sidekiq"}`,
			ojs.RetryPolicy{BackoffStrategy: "ojs:sidekiq"}},
		{"reading 46 a strategy that another program knows", `{"backoff_strategy":"acme:nobody-knows_it.2"}`,
			ojs.RetryPolicy{BackoffStrategy: "acme:nobody-knows_it.2"}},
		{"A134 payment.charge",
			`{"max_attempts":25,"initial_interval":"PT15S","backoff_coefficient":4.0,"max_interval":"PT1H",` +
				`"non_retryable_errors":["payment.card_stolen","validation.*"],"on_exhaustion":"dead_letter"}`,
			ojs.RetryPolicy{MaxAttempts: 25, InitialInterval: 15 * time.Second, BackoffCoefficient: 4,
				MaxInterval:        time.Hour,
				NonRetryableErrors: []string{"payment.card_stolen", "validation.*"},
				OnExhaustion:       ojs.ExhaustionDeadLetter}},
	}
	for _, tt := range good {
		t.Run(tt.name, func(t *testing.T) {
			var p ojs.RetryPolicy
			if err := json.Unmarshal([]byte(tt.in), &p); err != nil || !reflect.DeepEqual(p, tt.want) {
				t.Errorf("%+v, %v", p, err)
			}
			out, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			var again ojs.RetryPolicy
			if err := json.Unmarshal(out, &again); err != nil || !reflect.DeepEqual(again, p) {
				t.Errorf("%s comes back as %+v, %v", out, again, err)
			}
		})
	}
	bad := []struct{ name, in, field string }{
		{"A002 true", `true`, "retry"},
		{"A002 false", `false`, "retry"},
		{"A002 25", `25`, "retry"},
		{"A002 a string", `"25"`, "retry"},
		{"A002 A153 -1", `-1`, "retry"},
		{"A002 a list", `[]`, "retry"},
		{"A123 negative", `{"max_attempts":-1}`, "retry.max_attempts"},
		{"A123 fraction", `{"max_attempts":2.5}`, "retry.max_attempts"},
		{"A123 a fraction below every float64", `{"max_attempts":1e-400}`, "retry.max_attempts"},
		{"A123 a fraction that float64 rounds away", `{"max_attempts":3.0000000000000000001}`,
			"retry.max_attempts"},
		{"A123 a fraction behind an exponent", `{"max_attempts":31e-1}`, "retry.max_attempts"},
		{"A123 an exponent beyond an int64", `{"max_attempts":1e9223372036854775808}`, "retry.max_attempts"},
		{"A123 a negative exponent beyond an int64", `{"max_attempts":1e-9223372036854775809}`,
			"retry.max_attempts"},
		{"A123 an int64 more", `{"max_attempts":9223372036854775808}`, "retry.max_attempts"},
		{"A034 A126 less than 1 by less than float64 tells", `{"backoff_coefficient":0.99999999999999999999}`,
			"retry.backoff_coefficient"},
		{"A034 A126 the same with an exponent", `{"backoff_coefficient":99999999999999999999e-20}`,
			"retry.backoff_coefficient"},
		{"A123 string", `{"max_attempts":"3"}`, "retry.max_attempts"},
		{"A123 beyond an int", `{"max_attempts":1e30}`, "retry.max_attempts"},
		{"A123 boolean", `{"max_attempts":true}`, "retry.max_attempts"},
		{"A124 empty", `{"initial_interval":""}`, "retry.initial_interval"},
		{"A124 negative", `{"initial_interval":"-PT1S"}`, "retry.initial_interval"},
		{"A124 beyond a duration", `{"initial_interval":"P300Y"}`, "retry.initial_interval"},
		{"A158 PT1.5H", `{"initial_interval":"PT1.5H"}`, "retry.initial_interval"},
		{"A127 zero", `{"max_interval":"PT0S"}`, "retry.max_interval"},
		{"A127 a number", `{"max_interval":300}`, "retry.max_interval"},
		{"A124 no ISO 8601", `{"initial_interval":"1s"}`, "retry.initial_interval"},
		{"A029 a number", `{"initial_interval":1}`, "retry.initial_interval"},
		{"A158 P", `{"initial_interval":"P"}`, "retry.initial_interval"},
		{"A158 PT", `{"initial_interval":"PT"}`, "retry.initial_interval"},
		{"A158 P1DT", `{"max_interval":"P1DT"}`, "retry.max_interval"},
		{"A125 zero", `{"initial_interval":"PT0S"}`, "retry.initial_interval"},
		{"A126 A159 0.99", `{"backoff_coefficient":0.99}`, "retry.backoff_coefficient"},
		{"A034 0", `{"backoff_coefficient":0}`, "retry.backoff_coefficient"},
		{"A126 string", `{"backoff_coefficient":"2"}`, "retry.backoff_coefficient"},
		{"A126 overflow", `{"backoff_coefficient":1e999}`, "retry.backoff_coefficient"},
		{"A127", `{"max_interval":"5m"}`, "retry.max_interval"},
		{"A128", `{"initial_interval":"PT2S","max_interval":"PT1S"}`, "retry.max_interval"},
		{"A129", `{"jitter":"true"}`, "retry.jitter"},
		{"A129 1", `{"jitter":1}`, "retry.jitter"},
		{"A129 another word", `{"jitter":"FULL"}`, "retry.jitter"},
		{"A129 on", `{"jitter":"on"}`, "retry.jitter"},
		{"A130", `{"non_retryable_errors":"auth.*"}`, "retry.non_retryable_errors"},
		{"A130 numbers", `{"non_retryable_errors":[1]}`, "retry.non_retryable_errors"},
		{"A130 null entry", `{"non_retryable_errors":[null]}`, "retry.non_retryable_errors"},
		{"A160 empty entry", `{"non_retryable_errors":[""]}`, "retry.non_retryable_errors"},
		{"A131 A161", `{"on_exhaustion":"requeue"}`, "retry.on_exhaustion"},
		{"A131 empty", `{"on_exhaustion":""}`, "retry.on_exhaustion"},
		{"A043 strategy", `{"backoff_strategy":"fibonacci"}`, "retry.backoff_strategy"},
		{"A043 no vendor", `{"backoff_strategy":":x"}`, "retry.backoff_strategy"},
		{"A043 no name", `{"backoff_strategy":"acme:"}`, "retry.backoff_strategy"},
		{"A043 upper case", `{"backoff_strategy":"acme:X"}`, "retry.backoff_strategy"},
		{"A043 two colons", `{"backoff_strategy":"acme:x:y"}`, "retry.backoff_strategy"},
		{"A043 a digit first", `{"backoff_strategy":"acme:2x"}`, "retry.backoff_strategy"},
		{"A043 a space", `{"backoff_strategy":"acme: x"}`, "retry.backoff_strategy"},
		{"A043 65 bytes", `{"backoff_strategy":"acme:` + strings.Repeat("x", 60) + `"}`,
			"retry.backoff_strategy"},
		{"A156 unknown field", `{"max_retries":3}`, "retry.max_retries"},
		{"A156 case", `{"Max_Attempts":3}`, "retry.Max_Attempts"},
		{"A156 unknown null field", `{"max_retries":null}`, "retry.max_retries"},
		{"a field twice", `{"jitter":true,"jitter":false}`, "retry"},
	}
	for _, tt := range bad {
		t.Run("A182 "+tt.name, func(t *testing.T) {
			p := ojs.RetryPolicy{MaxAttempts: 7}
			err := json.Unmarshal([]byte(tt.in), &p)
			var invalid *ojs.InvalidError
			if !errors.As(err, &invalid) || invalid.Code != "validation.retry_policy_invalid" ||
				invalid.Field != tt.field {
				t.Errorf("error %v, want one on %s", err, tt.field)
			}
			if !reflect.DeepEqual(p, ojs.RetryPolicy{MaxAttempts: 7}) {
				t.Errorf("changed all the same: %+v", p)
			}
		})
	}
	t.Run("reading 17 a null policy is absent", func(t *testing.T) {
		p := ojs.RetryPolicy{MaxAttempts: 7}
		if err := json.Unmarshal([]byte("null"), &p); err != nil ||
			!reflect.DeepEqual(p, ojs.RetryPolicy{MaxAttempts: 7}) {
			t.Errorf("%+v, %v", p, err)
		}
	})
	t.Run("A044 reading 3 the standard's fields alone make it exponential, another strategy is written",
		func(t *testing.T) {
			p := policy.Default()
			p.BackoffStrategy = ojs.BackoffPolynomial
			want := strings.TrimSuffix(sevenFields, "}") + `,"backoff_strategy":"polynomial"}`
			if got, err := json.Marshal(p); err != nil || string(got) != want {
				t.Errorf("%s, %v", got, err)
			}
		})
	t.Run("an invalid policy does not encode", func(t *testing.T) {
		if out, err := json.Marshal(ojs.RetryPolicy{Jitter: "maybe"}); err == nil {
			t.Errorf("%s", out)
		}
	})
}

// Fields that are set come back from JSON, and fields that inherit still inherit.
func TestRetryPolicyJSONRoundTrip(t *testing.T) {
	interval := rapid.Int64Range(0, int64(1000*time.Hour))
	rapid.Check(t, func(t *rapid.T) {
		p := ojs.RetryPolicy{
			MaxAttempts:        rapid.IntRange(ojs.NoRetry, 100).Draw(t, "attempts"),
			InitialInterval:    time.Duration(interval.Draw(t, "initial")),
			BackoffCoefficient: rapid.SampledFrom([]float64{0, 1, 1.1, 2, 1e300}).Draw(t, "coefficient"),
			Jitter:             rapid.SampledFrom([]ojs.Jitter{"", "on", "off", "full"}).Draw(t, "jitter"),
			BackoffStrategy: rapid.SampledFrom([]ojs.Backoff{"", "none", "linear", "exponential",
				"polynomial", "ojs:oban", "a:b"}).Draw(t, "strategy"),
			NonRetryableErrors: rapid.SampledFrom([][]string{nil, {}, {"a"},
				{"a.*", "\"<é"}}).Draw(t, "errors"),
			OnExhaustion: rapid.SampledFrom([]ojs.Exhaustion{"", "discard", "dead_letter"}).Draw(t,
				"exhaustion"),
		}
		if rapid.Bool().Draw(t, "capped") {
			p.MaxInterval = p.InitialInterval + time.Duration(interval.Draw(t, "more"))
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("A162 %+v does not encode: %v", p, err)
		}
		var got ojs.RetryPolicy
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%s does not decode: %v", b, err)
		}
		if full := p.MaxAttempts != 0 && p.InitialInterval != 0 && p.BackoffCoefficient != 0 &&
			p.MaxInterval != 0 &&
			p.Jitter != "" && p.NonRetryableErrors != nil && p.OnExhaustion != ""; full &&
			p.BackoffStrategy == "" {
			p.BackoffStrategy = ojs.BackoffExponential // reading 3
		}
		if !reflect.DeepEqual(got, p) {
			t.Fatalf("A102 %s\n got %+v\nwant %+v", b, got, p)
		}
	})
}

func FuzzRetryPolicyJSON(f *testing.F) {
	f.Add([]byte(sevenFields))
	f.Add([]byte(`{"max_attempts":0,"jitter":false,"backoff_strategy":"constant","non_retryable_errors":["a.*"]}`))
	f.Add([]byte(`{"initial_interval":"P1Y","max_interval":"PT0.5S"}`))
	f.Add([]byte(`{"max_attempts":26,"jitter":"full","backoff_strategy":"ojs:oban"}`))
	f.Add([]byte(`{"backoff_strategy":"acme:unknown-1.2_3"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var p, again ojs.RetryPolicy
		if err := json.Unmarshal(in, &p); err != nil {
			if json.Valid(in) && !errors.Is(err, ojs.ErrInvalid) {
				t.Fatalf("error %v", err)
			}
			if !reflect.DeepEqual(p, ojs.RetryPolicy{}) {
				t.Fatalf("%v, but changed to %+v", err, p)
			}
			return
		}
		out, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("%+v does not encode: %v", p, err)
		}
		if err := json.Unmarshal(out, &again); err != nil || !reflect.DeepEqual(p, again) {
			t.Fatalf("%s becomes %+v, %v; want %+v", out, again, err, p)
		}
		full, err := policy.Resolve(p)
		if err != nil {
			if !errors.Is(err, ojs.ErrInvalid) || !strings.HasPrefix(err.Error(), "ojs: ") {
				t.Fatal(err)
			}
			return
		}
		for _, n := range []int{1, 2, 100, 1 << 40} {
			if d := policy.Delay(full, n, 0.5); d < 0 || d > full.MaxInterval {
				t.Fatalf("delay %d of %+v is %v", n, full, d)
			}
		}
	})
}
