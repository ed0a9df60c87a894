// Package iso8601 reads and writes ISO 8601 durations by the strict syntax of the OJS
// documents (OJS retry, sections 4 and 14; OJS unique jobs, section 13). The library
// alone accepts "P", "PT", "PP1D", "-PT1S", fractions of days and components out of order
// or repeated, and computes in floating point, with a month of 365/12 days.
package iso8601

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sosodev/duration"
)

// unit is a component's designator, in the order in which components may stand.
type unit struct {
	name byte
	time bool // after the T
	size time.Duration

	months int // in the calendar; 0: as long as size says
}

const day = 24 * time.Hour

// maxYears bounds the years of a calendar period, and its months.
const maxYears = 9999

var units = []unit{
	{'Y', false, 365 * day, 12},
	{'M', false, 30 * day, 1},
	{'W', false, 7 * day, 0},
	{'D', false, day, 0},
	{'H', true, time.Hour, 0},
	{'M', true, time.Minute, 0},
	{'S', true, time.Second, 0},
}

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
	rest, ok := strings.CutPrefix(s, "P")
	if !ok {
		return 0, 0, fmt.Errorf("does not start with P")
	}
	next, inTime := 0, false
	for rest != "" {
		if rest[0] == 'T' {
			if inTime {
				return 0, 0, fmt.Errorf("a second T")
			}
			if inTime = true; rest == "T" {
				return 0, 0, fmt.Errorf("a T without a time component")
			}
			rest = rest[1:]
			continue
		}
		whole, fraction, name, after, err := component(rest)
		if err != nil {
			return 0, 0, err
		}
		rest = after
		i, err := find(name, inTime, next)
		if err != nil {
			return 0, 0, err
		}
		next = i + 1
		if fraction != "" && name != 'S' {
			return 0, 0, fmt.Errorf("fraction on %c: only seconds may have one", name)
		}
		if u := units[i]; u.months > 0 && calendar {
			n, err := strconv.ParseInt(whole, 10, 64)
			if err != nil || n > int64(12*maxYears/u.months) {
				return 0, 0, fmt.Errorf("overflows")
			}
			months += int(n) * u.months
			continue
		}
		d, err := amount(whole, fraction, units[i].size)
		if err != nil {
			return 0, 0, err
		}
		if sum > math.MaxInt64-d {
			return 0, 0, fmt.Errorf("overflows")
		}
		sum += d
	}
	switch {
	case next == 0:
		return 0, 0, fmt.Errorf("has no component")
	case sum == 0 && months == 0 && strings.ContainsAny(s, "123456789"):
		return 0, 0, fmt.Errorf("is less than a nanosecond")
	}
	return months, sum, nil
}

// component splits "12.5S..." into its digits, the digits of its fraction, its designator
// and what follows.
func component(s string) (whole, fraction string, name byte, rest string, err error) {
	whole, rest = digits(s)
	if whole == "" {
		return "", "", 0, "", fmt.Errorf("%q where digits belong", s[0])
	}
	if strings.HasPrefix(rest, ".") {
		if fraction, rest = digits(rest[1:]); fraction == "" {
			return "", "", 0, "", fmt.Errorf("no digits after the point")
		}
	}
	if rest == "" {
		return "", "", 0, "", fmt.Errorf("a number without a unit")
	}
	return whole, fraction, rest[0], rest[1:], nil
}

func digits(s string) (string, string) {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return s[:n], s[n:]
}

func find(name byte, inTime bool, from int) (int, error) {
	known := false
	for i, u := range units {
		if u.name == name && u.time == inTime {
			if i >= from {
				return i, nil
			}
			known = true
		}
	}
	if known {
		return 0, fmt.Errorf("components out of order or repeated")
	}
	return 0, fmt.Errorf("%q is no unit there", name)
}

func amount(whole, fraction string, size time.Duration) (time.Duration, error) {
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n > int64(math.MaxInt64/size) {
		return 0, fmt.Errorf("overflows")
	}
	d := time.Duration(n) * size
	if fraction == "" {
		return d, nil
	}
	const places = 9 // nanoseconds
	digits := (fraction + "000000000")[:places]
	ns, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, err
	}
	if d > math.MaxInt64-time.Duration(ns) {
		return 0, fmt.Errorf("overflows")
	}
	return d + time.Duration(ns), nil
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
