package memory

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// holdsBack reports whether limits keep the job, which is next, from starting. It does
// what the job's OnLimit says, unless the claim ends before a job that need not wait.
func (s *Storage) holdsBack(j *job, now time.Time, to *storage.Limited, ends bool) bool {
	ns := now.UnixNano()
	for _, l := range j.kind.group.lanes {
		if _, open := l.open(ns); !open {
			s.ready.look(l, now)
			return true
		}
	}
	l := j.level.bucket.lane
	if l == nil {
		return false
	}
	opensAt, open := l.open(ns)
	if open {
		return false
	}
	if ends && !l.waits() {
		return false
	}
	switch l.own.OnLimit {
	case ojs.OnLimitDrop:
		to.Dropped = s.change(j, to.Dropped, func(r *storage.Record) { r.Limit(now) })
		to.Moved = s.count(now, to.Moved)
	case ojs.OnLimitReschedule:
		var opens time.Time
		if opensAt != 0 {
			opens = instant(opensAt).time()
		}
		to.Postponed = s.change(j, to.Postponed, func(r *storage.Record) {
			r.Postpone(now, opens)
			j.scheduled, _ = at(r.ScheduledAt) // which no attempt changes
		})
	default:
		s.ready.look(l, now)
	}
	return true
}

// limited completes what a claim says of limits.
func (s *Storage) limited(now time.Time, to *storage.Limited, t *taker) {
	x := &s.ready.limits
	if len(x.dirty) == 0 && x.holding == 0 {
		x.claim = nil
		return
	}
	s.ready.settleLimits(now)
	x.claim = nil
	to.Held = x.holding > 0
	opens, some := x.opening.Next()
	if !some {
		return
	}
	if t.left > 0 {
		to.Opens = opens
	}
	if s.heard && !opens.Equal(x.told) {
		s.notice.Opens, x.told = opens, opens
	}
}
