package policy_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs/policy"
)

func TestDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"PT0.5S": 500 * time.Millisecond, "PT1S": time.Second, "PT5S": 5 * time.Second, "PT30S": 30 * time.Second,
		"PT1M": time.Minute, "PT5M": 5 * time.Minute, "PT15M": 15 * time.Minute, "PT1H": time.Hour, "PT24H": 24 * time.Hour,
		"P1D": 24 * time.Hour, "P30D": 720 * time.Hour, "P1W": 168 * time.Hour, "P1M": 720 * time.Hour, "P1Y": 8760 * time.Hour,
		"P1Y2M3W4DT5H6M7.000000008S": 8760*time.Hour + 1440*time.Hour + 504*time.Hour + 96*time.Hour + 5*time.Hour + 6*time.Minute + 7*time.Second + 8,
	} {
		t.Run("A054 A056 A057 A058 A059 A061 "+s, func(t *testing.T) {
			if got, err := policy.ParseDuration(s); err != nil || got != want {
				t.Errorf("%v, %v, want %v", got, err, want)
			}
		})
	}
	for _, s := range []string{"", "1s", "5", "P", "PT", "P1DT", "PT1.5H", "pt1s", "-PT1S", "PT1S ", "PT1M1H", "1h"} {
		t.Run("A029 A062 A164 A181 "+s, func(t *testing.T) {
			if got, err := policy.ParseDuration(s); err == nil {
				t.Errorf("%q is %v", s, got)
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "d"))
		if got, err := policy.ParseDuration(policy.FormatDuration(d)); err != nil || got != d {
			t.Fatalf("%d is written %s and read %d, %v", d, policy.FormatDuration(d), got, err)
		}
	})
}
