package iso8601

import (
	"testing"
	"time"

	"github.com/sosodev/duration"
)

// The head of this package is right about package duration.
func TestLibrary(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"P": 0, "PT": 0, "P1DT": day, "PP1D": day, "-PT1S": -time.Second, "PT.5S": time.Second / 2,
		"P1.5D": 36 * time.Hour, "PT1S1M": 61 * time.Second, "PT1S2S": 2 * time.Second,
		"P1M": 365 * day / 12, "PT0.0000000001S": 0,
	} {
		if d, err := duration.Parse(text); err != nil || d.ToTimeDuration() != want {
			t.Errorf("%s: %v, %v", text, d, err)
		}
	}
	if _, err := duration.Parse("PT2562048H"); err != nil { // more than a time.Duration
		t.Error(err)
	}
	for d, want := range map[time.Duration]string{36 * time.Hour: "P1DT12H", 400 * day: "P1Y1M4DT14H"} {
		if got := duration.FromTimeDuration(d).String(); got != want {
			t.Errorf("%v: %s", d, got)
		}
	}
}
