package iso8601_test

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs/internal/iso8601"
)

func TestCalendar(t *testing.T) {
	const day = 24 * time.Hour
	for in, want := range map[string]struct {
		months int
		rest   time.Duration
		out    string
	}{
		"P1M": {1, 0, "P1M"}, "P1Y2M3W4DT5H6M7.5S": {14,
			25*day + 5*time.Hour + 6*time.Minute + 7500*time.Millisecond, "P14MT605H6M7.5S"},
		"PT1M": {0, time.Minute, "PT1M"}, "P2Y": {24, 0, "P24M"}, "P7D": {0, 7 * day, "PT168H"},
		"P0M":    {0, 0, "PT0S"},
		"P9999Y": {119988, 0, "P119988M"}, "P300Y12D": {3600, 12 * day, "P3600MT288H"},
	} {
		months, rest, err := iso8601.ParseCalendar(in)
		if err != nil || months != want.months || rest != want.rest {
			t.Errorf("%s: %d months and %v, %v", in, months, rest, err)
		}
		out := iso8601.FormatCalendar(months, rest)
		m, r, err := iso8601.ParseCalendar(out)
		if out != want.out || err != nil || m != months || r != rest {
			t.Errorf("%s is written %s, which is %d months and %v, %v", in, out, m, r, err)
		}
	}
	for _, in := range []string{"", "P", "PT", "P1DT", "1M", "P1.5M", "-P1M", "P1M1Y", "P9999999999999Y",
		"P10000Y", "P119989M", "P99999999999999999999M"} {
		if _, _, err := iso8601.ParseCalendar(in); err == nil {
			t.Errorf("%q was accepted", in)
		}
	}
}
