package memory

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// holdsBack reports whether limits keep the job, which is next, from starting. It does
// what the job's OnLimit says, unless the claim ends before a job that need not wait.
func (s *store) holdsBack(j *job, now time.Time, to *storage.Limited, ends bool) bool {
	for _, l := range j.kind.section.lanes {
		if s.ready.judge(l); l.closed {
			return true
		}
	}
	l := j.level.bucket.lane
	if l == nil {
		return false
	}
	opensAt, open := s.ready.judge(l)
	if open || l.closed {
		return !open
	}
	if ends {
		return false
	}
	if l.own.OnLimit == ojs.OnLimitDrop {
		to.Dropped = s.changed(j, to.Dropped, func(r *storage.Record) { r.Limit(now) })
		to.Moved = s.count(now, to.Moved)
		return true
	}
	to.Postponed = s.changed(j, to.Postponed, func(r *storage.Record) {
		r.Postpone(now, rule.Time(opensAt))
		j.scheduled, _ = at(r.ScheduledAt) // which no attempt changes
	})
	return true
}

// maxTold is how many closed lanes a claim tells of. The next claim tells of the others.
const maxTold = 100

// limited completes what a claim says of limits.
func (s *store) limited(now time.Time, to *storage.Limited, t *taker) {
	x := &s.ready.limits
	for len(x.untold) > 0 && len(to.Closed) < maxTold {
		last := len(x.untold) - 1
		l := x.untold[last]
		x.untold = x.untold[:last]
		if l.untold = false; l.closed {
			to.Closed = append(to.Closed, l.of.Closes(l.of.Name, &l.own, now.UnixNano()))
		}
	}
	if to.Held = x.closed > 0; !to.Held {
		return
	}
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
