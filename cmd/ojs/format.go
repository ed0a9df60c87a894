package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
)

// moment is a time as people and programs read it, "" if it is zero. It is in UTC.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// span is a duration in its largest unit that says enough: 850ms, 12s, 59m, 3h, 12d, 2y.
func span(d time.Duration) string {
	d = d.Abs()
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 730*day:
		return fmt.Sprintf("%dd", d/day)
	}
	return fmt.Sprintf("%dy", d/(365*day))
}

// ago is how long a time is past or ahead, "" if it is zero.
func ago(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.After(now):
		return "in " + span(t.Sub(now))
	case now.Sub(t) < time.Millisecond:
		return "now"
	}
	return span(now.Sub(t)) + " ago"
}

// age is how long ago a time was, for a column; "" if it is zero.
func age(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(now.Sub(t))
}

// when is a time and how far it is.
func when(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return moment(t) + ", " + ago(t, now)
}

// number is a number with commas between thousands.
func number(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// counted is a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "ry"); ok {
		return number(n) + " " + stem + "ries"
	}
	return number(n) + " " + noun + "s"
}

// atLeast is a count, with a plus sign if there may be more.
func atLeast(c inspect.Count) string {
	if c.Exact {
		return number(c.N)
	}
	return number(c.N) + "+"
}

// latestError is the type and message of a job's latest failure.
func latestError(job *ojs.JobInfo) string {
	if job.Error == nil {
		return ""
	}
	return failureText(job.Error)
}

func failureText(f *ojs.Failure) string {
	if f.Message == "" {
		return f.Type
	}
	if f.Type == "" {
		return f.Message
	}
	return f.Type + ": " + f.Message
}

// rate is a number of starts in a period.
func rate(r ojs.Rate) string { return fmt.Sprintf("%d per %s", r.Limit, period(r.Per)) }

// period is a duration without zero units: 1m and not 1m0s.
func period(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// bounds are the bounds of a limit in words.
func bounds(b ojs.RateLimit) string {
	var parts []string
	switch {
	case b.Concurrency == ojs.NoneAtOnce:
		parts = append(parts, "none at once")
	case b.Concurrency > 0:
		parts = append(parts, fmt.Sprintf("%d at once", b.Concurrency))
	}
	if b.Rate.Limit > 0 {
		parts = append(parts, rate(b.Rate))
	}
	if b.Throttle.Limit > 0 {
		parts = append(parts, "throttle "+rate(b.Throttle))
	}
	return strings.Join(parts, ", ")
}

// parseTime reads a time in RFC 3339, a date, or a duration from now on, such as 90s, 2h
// or 3d.
func parseTime(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01-02 15:04:05Z"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	if text == "now" {
		return now, nil
	}
	d, err := parseSpan(text)
	if err != nil || d < 0 {
		return time.Time{}, usageError{fmt.Errorf("%q is no time: give RFC 3339, a date, now, or a "+
			"duration from now on such as 90s, 2h or 3d", clean(text))}
	}
	return now.Add(d), nil
}

// parseSpan reads a duration of package time, or a number of days.
func parseSpan(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(strings.TrimPrefix(text, "+"), "d"); ok {
		n, err := strconv.Atoi(days)
		if err == nil && n >= 0 && n <= 36500 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	return time.ParseDuration(strings.TrimPrefix(text, "+"))
}

// parseRate reads a number of starts in a period, such as 10/1m or 5/s.
func parseRate(text string) (r ojs.Rate, err error) {
	if text == "" {
		return r, nil
	}
	n, per, ok := strings.Cut(text, "/")
	r.Limit, err = strconv.Atoi(n)
	if ok && err == nil {
		if per == "s" || per == "m" || per == "h" || per == "d" {
			per = "1" + per
		}
		r.Per, err = parseSpan(per)
	}
	if !ok || err != nil || r.Limit <= 0 || r.Per <= 0 {
		return r, usageError{fmt.Errorf(
			"%q is no rate: give a number of starts and a period, such as 10/1m or 5/s",
			clean(text))}
	}
	return r, nil
}
