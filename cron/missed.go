package cron

import (
	"time"

	"github.com/ojsengine/ojs/internal/cronspec"
	"github.com/ojsengine/ojs/storage"
)

// lateRun is how late a run is that counts as missed for MissedSkip.
const lateRun = time.Minute

// dueRun returns the time that an entry runs for now, by what it says about missed runs;
// zero: none. first is before it if runs are left out, of which first is the earliest.
// next is the time of the run after it, and missed has the times between the two at
// which the clock of the zone keeps a run from taking place.
func dueRun(e *storage.Cron, s cronspec.Schedule, now time.Time) (
	first, due, next time.Time, missed []cronspec.Missed) {
	first, due = e.NextRun, e.NextRun
	switch Missed(e.Missed) {
	case MissedAll:
		limit := e.MissedLimit
		if limit == 0 {
			limit = maxMissedLimit
		}
		due = latestRun(s, first, now, limit)
		next, missed = s.Next(due, due)
		return first, due, next, missed
	case MissedSkip:
		if now.Sub(first) < lateRun {
			break
		}
		if due, _ = s.Next(now.Add(-lateRun), first); due.After(now) {
			due = time.Time{}
		}
	}
	next, missed = s.Next(now, first)
	return first, due, next, missed
}

// latestRun returns the first of the latest n times of a schedule from first to now, of
// which first is one.
func latestRun(s cronspec.Schedule, first, now time.Time, n int) time.Time {
	// Back from now in steps that double, since there may be very many times.
	for back := time.Minute; ; back *= 2 {
		var times []time.Time
		from := now.Add(-back)
		whole := back <= 0 || !from.After(first)
		if whole {
			from, times = first, append(times, first)
		}
		for {
			if from, _ = s.Next(from, first); from.IsZero() || from.After(now) {
				break
			}
			times = append(times, from)
		}
		if len(times) >= n || whole {
			return times[max(0, len(times)-n)]
		}
	}
}
