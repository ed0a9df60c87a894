package policy_test

import (
	"errors"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

func TestDefault(t *testing.T) {
	t.Run("A014 A015 A016 A017 A018 A019 A020 A099 A101 B002 B020", func(t *testing.T) {
		want := ojs.RetryPolicy{
			MaxAttempts: 3, InitialInterval: time.Second, BackoffCoefficient: 2, MaxInterval: 5 * time.Minute,
			Jitter: ojs.JitterOn, BackoffStrategy: ojs.BackoffExponential, NonRetryableErrors: []string{},
			OnExhaustion: ojs.ExhaustionDiscard,
		}
		if got := policy.Default(); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v", got)
		}
		if got, err := policy.Resolve(ojs.RetryPolicy{}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("A162: %+v, %v", got, err)
		}
	})
	t.Run("a changed copy leaves the default alone", func(t *testing.T) {
		p := policy.Default()
		p.NonRetryableErrors = append(p.NonRetryableErrors, "x")
		if len(policy.Default().NonRetryableErrors) != 0 {
			t.Error("it is shared")
		}
	})
}

func TestResolve(t *testing.T) {
	t.Run("A102 A103 A172 B021 partial", func(t *testing.T) {
		want := policy.Default()
		want.MaxAttempts, want.OnExhaustion = 10, ojs.ExhaustionDeadLetter
		got, err := policy.Resolve(ojs.RetryPolicy{MaxAttempts: 10, OnExhaustion: ojs.ExhaustionDeadLetter})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("B024 jitter false and max_attempts 0 override", func(t *testing.T) {
		got, err := policy.Resolve(ojs.RetryPolicy{Jitter: ojs.JitterOff, MaxAttempts: ojs.NoRetry})
		if err != nil || got.Jitter != ojs.JitterOff || got.MaxAttempts != ojs.NoRetry || got.Runs() != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("an empty list clears an inherited one", func(t *testing.T) {
		base := ojs.RetryPolicy{NonRetryableErrors: []string{"a"}}
		none := ojs.RetryPolicy{NonRetryableErrors: []string{}}
		if got := none.Inherit(base); len(got.NonRetryableErrors) != 0 {
			t.Errorf("%v", got.NonRetryableErrors)
		}
		if got := (ojs.RetryPolicy{}).Inherit(base); len(got.NonRetryableErrors) != 1 {
			t.Errorf("%v", got.NonRetryableErrors)
		}
	})
	bad := []struct {
		name, field string
		p           ojs.RetryPolicy
	}{
		{"A123 negative max_attempts", "retry.max_attempts", ojs.RetryPolicy{MaxAttempts: -2}},
		{"A123 A153 the least integer", "retry.max_attempts", ojs.RetryPolicy{MaxAttempts: math.MinInt}},
		{"A125 negative initial_interval", "retry.initial_interval", ojs.RetryPolicy{InitialInterval: -1}},
		{"A034 A126 A165 B004 coefficient 0.99", "retry.backoff_coefficient",
			ojs.RetryPolicy{BackoffCoefficient: 0.99}},
		{"A034 negative coefficient", "retry.backoff_coefficient", ojs.RetryPolicy{BackoffCoefficient: -2}},
		{"A034 NaN", "retry.backoff_coefficient", ojs.RetryPolicy{BackoffCoefficient: math.NaN()}},
		{"A126 just below 1", "retry.backoff_coefficient",
			ojs.RetryPolicy{BackoffCoefficient: math.Nextafter(1, 0)}},
		{"A126 infinite coefficient", "retry.backoff_coefficient",
			ojs.RetryPolicy{BackoffCoefficient: math.Inf(1)}},
		{"A126 negative infinite coefficient", "retry.backoff_coefficient",
			ojs.RetryPolicy{BackoffCoefficient: math.Inf(-1)}},
		{"A128 negative max_interval", "retry.max_interval", ojs.RetryPolicy{MaxInterval: -1}},
		{"A128 max below initial", "retry.max_interval",
			ojs.RetryPolicy{InitialInterval: 2 * time.Second, MaxInterval: time.Second}},
		{"reading 17 merge, then validate", "retry.max_interval",
			ojs.RetryPolicy{InitialInterval: 10 * time.Minute}},
		{"A129 jitter", "retry.jitter", ojs.RetryPolicy{Jitter: "maybe"}},
		{"A043 strategy", "retry.backoff_strategy", ojs.RetryPolicy{BackoffStrategy: "fibonacci"}},
		{"A131 A161 on_exhaustion", "retry.on_exhaustion", ojs.RetryPolicy{OnExhaustion: "requeue"}},
		{"A131 case counts", "retry.on_exhaustion", ojs.RetryPolicy{OnExhaustion: "Discard"}},
		{"A128 max below the default initial", "retry.max_interval",
			ojs.RetryPolicy{MaxInterval: time.Millisecond}},
		{"A130 A160 empty error type", "retry.non_retryable_errors",
			ojs.RetryPolicy{NonRetryableErrors: []string{"a", ""}}},
	}
	for _, tt := range bad {
		t.Run(tt.name, func(t *testing.T) {
			got, err := policy.Resolve(tt.p)
			var invalid *ojs.InvalidError
			if !errors.As(err, &invalid) || invalid.Code != "validation.retry_policy_invalid" ||
				invalid.Field != tt.field {
				t.Errorf("error %v, want one on %s", err, tt.field)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "ojs: ") {
				t.Errorf("error %q", err)
			}
			if !reflect.DeepEqual(got, ojs.RetryPolicy{}) {
				t.Errorf("half a policy: %+v", got)
			}
		})
	}
	t.Run("reading 17 names both fields", func(t *testing.T) {
		_, err := policy.Resolve(ojs.RetryPolicy{InitialInterval: 10 * time.Minute})
		if !strings.Contains(err.Error(), "max_interval 5m") || !strings.Contains(err.Error(),
			"initial_interval 10m") {
			t.Error(err)
		}
	})
	t.Run("A102 A172 each field by itself overrides its default only", func(t *testing.T) {
		for _, p := range []ojs.RetryPolicy{
			{MaxAttempts: 7}, {MaxAttempts: ojs.NoRetry}, {InitialInterval: 2 * time.Second},
			{BackoffCoefficient: 1}, {BackoffCoefficient: 3},
			{MaxInterval: time.Hour}, {Jitter: ojs.JitterOff}, {BackoffStrategy: ojs.BackoffNone},
			{BackoffStrategy: ojs.BackoffLinear},
			{BackoffStrategy: ojs.BackoffPolynomial}, {NonRetryableErrors: []string{"a", "b.*"}},
			{OnExhaustion: ojs.ExhaustionDeadLetter},
		} {
			want := reflect.ValueOf(new(policy.Default())).Elem()
			for i, given := 0, reflect.ValueOf(p); i < given.NumField(); i++ {
				if !given.Field(i).IsZero() {
					want.Field(i).Set(given.Field(i))
				}
			}
			if got, err := policy.Resolve(p); err != nil || !reflect.DeepEqual(got, want.Interface()) {
				t.Errorf("%+v becomes %+v, %v", p, got, err)
			}
		}
	})
	t.Run("A134 A178 B023 payment.charge is valid", func(t *testing.T) {
		if got, err := policy.Resolve(payment); err != nil || got.Runs() != 25 || got.Jitter != ojs.JitterOn {
			t.Errorf("B024: %+v, %v", got, err)
		}
	})
	t.Run("A043 B005 the four strategies", func(t *testing.T) {
		for _, s := range []ojs.Backoff{"none", "linear", "exponential", "polynomial"} {
			if got, err := policy.Resolve(ojs.RetryPolicy{BackoffStrategy: s}); err != nil ||
				got.BackoffStrategy != s {
				t.Errorf("%s: %+v, %v", s, got, err)
			}
		}
	})
	t.Run("A042 A179 both outcomes of exhaustion", func(t *testing.T) {
		for _, e := range []ojs.Exhaustion{"discard", "dead_letter"} {
			if got, err := policy.Resolve(ojs.RetryPolicy{OnExhaustion: e}); err != nil ||
				got.OnExhaustion != e {
				t.Errorf("%s: %+v, %v", e, got, err)
			}
		}
	})
	t.Run("A102 a resolved policy resolves to itself", rapid.MakeCheck(func(t *rapid.T) {
		p := validPolicy(t)
		if got, err := policy.Resolve(p); err != nil || !reflect.DeepEqual(got, p) {
			t.Fatalf("%+v becomes %+v, %v", p, got, err)
		}
	}))
	t.Run("A128 A144 equal intervals are fine", func(t *testing.T) {
		if _, err := policy.Resolve(ojs.RetryPolicy{InitialInterval: 5 * time.Minute}); err != nil {
			t.Error(err)
		}
	})
	t.Run("A022 A025 A026 runs", func(t *testing.T) {
		for n, want := range map[int]int{ojs.NoRetry: 1, 1: 1, 3: 3, 25: 25} {
			if got := (ojs.RetryPolicy{MaxAttempts: n}).Runs(); got != want {
				t.Errorf("%d: %d runs, want %d", n, got, want)
			}
		}
	})
}

func TestNonRetryable(t *testing.T) {
	list := []string{"validation.payload_invalid", "auth.*", "external.crm.*"}
	for _, tt := range []struct {
		id, errorType string
		want          bool
	}{
		{"A074 A076 A180", "validation.payload_invalid", true},
		{"A077", "validation.schema_error", false},
		{"A075 A078 B014 B015", "auth.token_expired", true},
		{"A079 B015", "auth.forbidden", true},
		{"A080 B015", "auth", false},
		{"A081 B015", "external.auth.failure", false},
		{"A075 the prefix has its dot", "authx.y", false},
		{"reading 15 case counts", "Auth.token_expired", false},
		{"deeper", "auth.token.expired", true},
		{"A075 a prefix of two parts", "external.crm.down", true},
		{"A075 all parts of the prefix count", "external.erp.down", false},
		{"A075 the prefix is not shortened", "external", false},
		{"nothing", "", false},
	} {
		t.Run(tt.id+" "+tt.errorType, func(t *testing.T) {
			if got := policy.NonRetryable(list, tt.errorType); got != tt.want {
				t.Errorf("matches: %v", got)
			}
		})
	}
	for _, tt := range []struct {
		entry, errorType string
		want             bool
	}{
		{"*", "anything", false}, {".*", "anything", false}, {".*", ".x", false}, {"*", "*", true},
		{"a*", "ab", false},
		{"a.b.*", "a.b.c", true}, {"a.*.c", "a.b.c", false}, {"a.", "a.b", false}, {"[a-z]+", "a", false},
		{"FatalError", "FatalError", true},
	} {
		if got := policy.NonRetryable([]string{tt.entry}, tt.errorType); got != tt.want {
			t.Errorf("reading 15: %q matches %q: %v", tt.entry, tt.errorType, got)
		}
	}
	for _, typ := range []string{"validation.payload_invalid", "auth.token_expired",
		"external.stripe.card_declined", "resource.not_found", "rate_limit.exceeded"} {
		if !policy.NonRetryable([]string{typ}, typ) {
			t.Errorf("A072 A073: %s", typ)
		}
	}
	t.Run("A074 A075 B014 reading 15 by regular expression", rapid.MakeCheck(func(t *rapid.T) {
		// Few letters, so that matches are common.
		name := rapid.StringMatching(`[aA.*]{1,5}`)
		list := rapid.SliceOfN(name, 0, 3).Draw(t, "list")
		errorType := name.Draw(t, "type")
		want := slices.ContainsFunc(list, func(entry string) bool {
			pattern := regexp.QuoteMeta(entry)
			if len(entry) > 2 {
				pattern = regexp.MustCompile(`\\\.\\\*$`).ReplaceAllLiteralString(pattern, `\..*`)
			}
			return regexp.MustCompile("^" + pattern + "$").MatchString(errorType)
		})
		if got := policy.NonRetryable(list, errorType); got != want {
			t.Fatalf("%q matches %q: %v", list, errorType, got)
		}
	}))
}
