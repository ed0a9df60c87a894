package storagetest

import (
	"cmp"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
)

// Storages that are wrong about time: about what is due, when the clock goes back, and
// which of one time comes first.
var _ = registerRandom([]randomFault{
	{"due one nanosecond early", "claim-10", func(d *doctored) {
		d.due = &waits{at: func(_ *doctored, j *refJob) time.Time {
			if at := j.rec.WakeAt(); !at.IsZero() {
				return at.Add(-1)
			}
			return time.Time{}
		}}
	}},
	{"leases run out one nanosecond late", "unclaim-3", func(d *doctored) {
		d.due = &waits{at: func(_ *doctored, j *refJob) time.Time {
			if at := j.rec.WakeAt(); !at.IsZero() && j.rec.State == ojs.StateActive {
				return at.Add(1)
			}
			return j.rec.WakeAt()
		}}
	}},
	{"deadlines come one nanosecond late", "settle-10", func(d *doctored) {
		d.now = func(_ *doctored, now time.Time) time.Time { return now }
		d.due = &waits{at: func(_ *doctored, j *refJob) time.Time {
			if at := j.rec.WakeAt(); !at.IsZero() && at.Equal(j.rec.Deadline()) &&
				j.rec.State != ojs.StateActive {
				return at.Add(1)
			}
			return j.rec.WakeAt()
		}}
	}},
	{"the clock does not go back", "insert-10", func(d *doctored) {
		d.now = func(d *doctored, now time.Time) time.Time {
			if now.After(d.late) {
				d.late = now
			}
			return d.late
		}
	}},
	{"leases of one time end in the order of ids", "due-7", func(d *doctored) {
		d.due = &waits{before: func(a, b *refJob) int {
			if a.rec.State == ojs.StateActive && b.rec.State == ojs.StateActive {
				return -strings.Compare(a.rec.ID, b.rec.ID)
			}
			return cmp.Compare(a.since, b.since)
		}}
	}},
	{"a renewed lease keeps its place among those of its time", "due-7", func(d *doctored) {
		d.due = &waits{before: func(a, b *refJob) int {
			claimed := func(j *refJob) int {
				if j.rec.State == ojs.StateActive {
					return d.index[j.inserted].since
				}
				return j.since
			}
			return cmp.Compare(claimed(a), claimed(b))
		}}
	}},
	{"jobs due at one time come in the order of their insertion", "due-7", func(d *doctored) {
		d.due = &waits{before: func(a, b *refJob) int { return cmp.Compare(a.inserted, b.inserted) }}
	}},
	{"promoted jobs enter their queue in the order of their insertion", "claim-2", func(d *doctored) {
		d.due = &waits{came: func(d *doctored, j *refJob, _ ojs.State) {
			// before the jobs of its priority that were inserted later and promoted in
			// this call
			for _, other := range d.jobs {
				if other != j && other.rec.State == ojs.StateAvailable && other.inserted > j.inserted &&
					other.entered > j.entered-3 &&
					other.entered < j.entered {
					other.entered, j.entered = j.entered, other.entered
				}
			}
		}}
	}},
})
