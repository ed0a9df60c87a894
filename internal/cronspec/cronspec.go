// Package cronspec tells when recurring work is due (OJS cron). Package gronx finds the
// times of an expression on a clock without changes. This package does what gronx does
// not do:
//
//   - It tells the readings that a zone's clock skips and repeats. Gronx leaves the first
//     ones out silently, and runs the second ones at their second coming.
//   - It reads @every, and refuses zones that are no place, such as CET.
//   - It checks fields. Gronx accepts a sign, a step beyond the field and 5#6, does not
//     read what follows an element that matches, and takes a sixth field of four digits
//     for a year. Its @5minutes and the like are no expressions of OJS.
//   - It refuses expressions that never come when they are set.
//   - It puts the time of a run into the args (Template).
//
// TestGronx fails when a version of gronx does one of the first three itself.
package cronspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/adhocore/gronx"

	"github.com/ojsengine/ojs"
)

// Schedule is a parsed expression in its time zone.
type Schedule struct {
	expr  string        // six fields in canonical form, seconds first; "": every
	every time.Duration // of @every
	zone  *time.Location
	gap   bool // a reading that the clock skips counts at the change
}

// RunInGap returns the schedule for which a reading that the clock of the zone skips
// counts at the time of the change, once for all readings of one change.
func (s Schedule) RunInGap() Schedule {
	s.gap = true
	return s
}

var descriptors = map[string]string{
	"@yearly":   "0 0 0 1 1 *",
	"@annually": "0 0 0 1 1 *",
	"@monthly":  "0 0 0 1 * *",
	"@weekly":   "0 0 0 * * 0",
	"@daily":    "0 0 0 * * *",
	"@midnight": "0 0 0 * * *",
	"@hourly":   "0 0 * * * *",
}

// maxLen is the longest expression that is looked at.
const maxLen = 512

// Parse parses an expression: five fields from minutes to days of the week, six with
// seconds before them, a descriptor such as @daily, or "@every" and a Go duration of at
// least a second. "?" is "*". It refuses what comes on no day of the calendar. Its error
// is an *ojs.InvalidError for the field "schedule" or "time_zone".
func Parse(spec, zone string) (Schedule, error) {
	loc, err := location(zone)
	if err != nil {
		return Schedule{}, err
	}
	s := Schedule{zone: loc}
	if len(spec) > maxLen {
		return s, refuse("schedule", "has %d bytes, more than %d", len(spec), maxLen)
	}
	spec = strings.TrimSpace(spec)
	if d, ok := strings.CutPrefix(spec, "@every "); ok {
		if s.every, err = time.ParseDuration(strings.TrimSpace(d)); err != nil {
			return s, refuse("schedule", "%q is no duration", d)
		}
		if s.every < time.Second {
			return s, refuse("schedule", "%v is less than a second", s.every)
		}
		return s, nil
	}
	if strings.HasPrefix(spec, "@") {
		if s.expr = descriptors[strings.ToLower(spec)]; s.expr == "" {
			return s, refuse("schedule", "%q is unknown", spec)
		}
		return s, nil
	}
	texts := strings.Fields(spec)
	switch len(texts) {
	case 5:
		texts = append([]string{"0"}, texts...)
	case 6:
	default:
		return s, refuse("schedule", "has %d fields, neither 5 nor 6", len(texts))
	}
	for i := range texts {
		if texts[i], err = fields[i].canonical(texts[i]); err != nil {
			return s, refuse("schedule", "%v", err)
		}
	}
	s.expr = strings.Join(texts, " ")
	if _, err := next(s.expr, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		return s, refuse("schedule", "%q never comes", spec)
	}
	return s, nil
}

func refuse(field, format string, args ...any) error {
	return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: field, Reason: fmt.Sprintf(format, args...)}
}

// next is the first time after a reading of the wall clock, which is given and returned
// as if it were UTC's.
func next(expr string, wall time.Time) (t time.Time, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cannot be read: %v", p)
		}
	}()
	if t, err = gronx.NextTickAfter(expr, wall, false); err != nil {
		return t, err
	}
	if !t.After(wall) {
		return t, errors.New("does not go on")
	}
	return t, nil
}

// Every returns the interval of an @every expression, 0 for any other.
func (s Schedule) Every() time.Duration { return s.every }

// In returns a time as the clock of the schedule's zone shows it.
func (s Schedule) In(t time.Time) time.Time { return t.In(s.zone) }

// Missed is a time of a schedule at which nothing runs, because the clock of the zone is
// changed.
type Missed struct {
	At time.Time
	// Repeated tells a reading that comes twice, when the clock is put back: it counts
	// the first time, and At is the second. Otherwise the clock is put forward and skips
	// the reading.
	Repeated bool
}

// Next returns the first time after one, and the times before it that are missed because
// of the zone's clock, in order. anchor is when an @every schedule began or was last due.
// Next is zero if none comes within 50 years, since the clock skips them all.
func (s Schedule) Next(after, anchor time.Time) (next time.Time, missed []Missed) {
	if s.every > 0 {
		if anchor.IsZero() || anchor.After(after) {
			anchor = after
		}
		return after.Add(s.every - after.Sub(anchor)%s.every).UTC(), nil
	}
	next, missed = s.nextTick(after)
	if missed = append(missed, s.repeated(after, next)...); len(missed) > 1 {
		slices.SortFunc(missed, func(a, b Missed) int { return a.At.Compare(b.At) })
	}
	return next, missed
}

const (
	maxMissed = 100

	// maxYears is longer than any wait: 29 February comes on a given day of the week
	// after 40 years at the latest.
	maxYears = 50
)

func (s Schedule) nextTick(after time.Time) (time.Time, []Missed) {
	var skipped []Missed
	wall := reading(after.In(s.zone))
	last := wall.AddDate(maxYears, 0, 0)
	for {
		tick, err := next(s.expr, wall)
		if err != nil || tick.After(last) {
			return time.Time{}, nil
		}
		wall = tick
		at, exists := s.first(tick)
		change, _ := at.In(s.zone).ZoneBounds()
		switch {
		case !exists && s.gap && change.After(after):
			return change.UTC(), skipped
		case !exists && !s.gap && len(skipped) < maxMissed:
			skipped = append(skipped, Missed{At: at})
		case !exists:
			// To the end of the gap at once, lest a schedule of seconds that lies in gaps
			// takes seconds to look through.
			if end := reading(change.In(s.zone)).Add(-time.Second); end.After(wall) {
				wall = end
			}
		case at.After(after):
			return at.UTC(), skipped
		default:
			// Its second coming lies ahead, and the first behind. Go to the last reading
			// that comes twice.
			back, _ := after.In(s.zone).ZoneBounds()
			if end := reading(back.Add(-time.Second).In(s.zone)); end.After(wall) {
				wall = end
			}
		}
	}
}

// repeated returns the times between two at which the zone's clock, put back, shows a
// reading of the schedule again.
func (s Schedule) repeated(after, before time.Time) (missed []Missed) {
	change, end := after.In(s.zone).ZoneBounds()
	for len(missed) < maxMissed {
		if !change.IsZero() {
			_, was := change.Add(-1).In(s.zone).Zone()
			_, is := change.In(s.zone).Zone()
			back := time.Duration(was-is) * time.Second
			first := reading(change.In(s.zone))
			wall := first.Add(max(-time.Second, after.Sub(change))) // the rest lies behind
			for wall.Sub(first) < back && len(missed) < maxMissed {
				tick, err := next(s.expr, wall)
				at := change.Add(tick.Sub(first))
				if err != nil || tick.Sub(first) >= back || !at.Before(before) {
					break
				}
				missed = append(missed, Missed{At: at.UTC(), Repeated: true})
				wall = tick
			}
		}
		if end.IsZero() || !end.Before(before) {
			break
		}
		change, end = end.ZoneBounds()
	}
	return missed
}

// reading is what a clock shows, as a time of UTC.
func reading(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// first returns the first time at which the zone's clock shows a reading. It reports
// false, and the time at which it would have shown it, if the clock skips it.
func (s Schedule) first(wall time.Time) (time.Time, bool) {
	// The offsets in force well before and well after cover every change of the clock,
	// which are months apart.
	const far = 26 * time.Hour
	var first time.Time
	for _, around := range []time.Time{wall.Add(-far), wall.Add(far)} {
		_, offset := around.In(s.zone).Zone()
		at := wall.Add(-time.Duration(offset) * time.Second)
		if reading(at.In(s.zone)).Equal(wall) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if !first.IsZero() {
		return first, true
	}
	_, offset := wall.Add(-far).In(s.zone).Zone()
	return wall.Add(-time.Duration(offset) * time.Second).UTC(), false
}
