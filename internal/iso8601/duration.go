// Package iso8601 reads and writes ISO 8601 durations by the strict syntax of the OJS
// documents (OJS retry, sections 4 and 14; OJS unique jobs, section 13). Package duration
// splits and joins the components. This package adds:
//
//   - The syntax. It accepts "P", "PT", "P1DT", "PP1D", "-PT1S", "PT.5S", fractions of
//     days, and components out of order or repeated, of which the last one counts.
//   - The sum. It computes in floating point, with a month of 365/12 days, and reports no
//     overflow.
//   - Fractions below a nanosecond, which become zero there.
//   - Months that are counted by the calendar.
//   - Output in hours. It writes days, weeks, and months and years of its own lengths.
//
// TestLibrary fails when a version of package duration does one of these itself.
package iso8601

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sosodev/duration"
)

const day = 24 * time.Hour

// maxYears bounds the years of a calendar period, and its months.
const maxYears = 9999

// form is the syntax, but for a last P or T, which wants a component.
var form = regexp.MustCompile(`^P(\d+Y)?(\d+M)?(\d+W)?(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?$`)

var (
	errForm = errors.New("is not like P1DT2H30M or PT1.5S: units are in the order Y M W D T H M S, " +
		"numbers are whole but that of S")
	errOverflow = errors.New("overflows")
)

// Parse parses a duration: components in the order Y M W D T H M S, at least one of them,
// ASCII digits, a fraction on S only, no sign. A year is 365 days, a month 30, a week 7,
// a day 24 hours. Digits below a nanosecond are cut off, but what is not zero does not
// become zero.
func Parse(s string) (time.Duration, error) {
	_, d, err := parse(s, false)
	if err != nil {
		return 0, bad(s, err)
	}
	return d, nil
}

func bad(s string, err error) error {
	const most = 64
	if len(s) > most {
		s = s[:most] + "..."
	}
	return fmt.Errorf("ojs: duration %q: %w", s, err)
}

// ParseCalendar is Parse, but for years and months: they are counted as months, for
// callers that know when they begin.
func ParseCalendar(s string) (months int, rest time.Duration, err error) {
	months, rest, err = parse(s, true)
	if err != nil {
		return 0, 0, bad(s, err)
	}
	return months, rest, nil
}

// FormatCalendar writes months and the rest of a duration.
func FormatCalendar(months int, rest time.Duration) string {
	if months <= 0 {
		return Format(rest)
	}
	s := fmt.Sprintf("P%dM", months)
	if rest > 0 {
		s += strings.TrimPrefix(Format(rest), "P")
	}
	return s
}

func parse(s string, calendar bool) (months int, sum time.Duration, err error) {
	parts := form.FindStringSubmatch(s)
	if parts == nil || strings.HasSuffix(s, "P") || strings.HasSuffix(s, "T") {
		return 0, 0, errForm
	}
	fraction := parts[len(parts)-1]
	d, err := duration.Parse(strings.Replace(s, fraction, "", 1))
	if err != nil {
		return 0, 0, errOverflow // of a float64
	}
	if calendar {
		count := 12*d.Years + d.Months
		if count > 12*maxYears {
			return 0, 0, errOverflow
		}
		months, d.Years, d.Months = int(count), 0, 0
	}
	for _, part := range []struct {
		count float64 // whole, and exact wherever its sum does not overflow
		size  time.Duration
	}{
		{d.Years, 365 * day}, {d.Months, 30 * day}, {d.Weeks, 7 * day}, {d.Days, day},
		{d.Hours, time.Hour}, {d.Minutes, time.Minute}, {d.Seconds, time.Second}, {nanoseconds(fraction), 1},
	} {
		if part.count > float64(math.MaxInt64/part.size) ||
			sum > math.MaxInt64-time.Duration(part.count)*part.size {
			return 0, 0, errOverflow
		}
		sum += time.Duration(part.count) * part.size
	}
	if sum == 0 && months == 0 && strings.ContainsAny(s, "123456789") {
		return 0, 0, errors.New("is less than a nanosecond")
	}
	return months, sum, nil
}

// nanoseconds are those of a fraction of a second, such as ".5". Digits after the ninth
// are cut off.
func nanoseconds(fraction string) float64 {
	if fraction == "" {
		return 0
	}
	n, _ := strconv.Atoi((fraction[1:] + "000000000")[:9])
	return float64(n)
}

// Format writes d in hours, minutes and seconds: "PT36H", "PT1M30S", "PT0.5S", "PT0S".
// There is no negative duration; one is written as zero.
func Format(d time.Duration) string {
	if d <= 0 {
		return "PT0S"
	}
	frac := d % time.Second
	// The library writes what it holds in whole numbers exactly; a fraction it would
	// write through a float64.
	w := duration.Duration{
		Hours:   float64(d / time.Hour),
		Minutes: float64(d % time.Hour / time.Minute),
		Seconds: float64(d % time.Minute / time.Second),
	}
	s := w.String()
	if frac == 0 {
		return s
	}
	digits := strings.TrimRight(fmt.Sprintf(".%09d", frac), "0") + "S"
	if w.Seconds == 0 {
		if w.Hours == 0 && w.Minutes == 0 {
			return "PT0" + digits
		}
		return s + "0" + digits
	}
	return strings.TrimSuffix(s, "S") + digits
}
