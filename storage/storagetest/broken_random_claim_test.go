package storagetest

import (
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages whose claims take the wrong jobs, or in the wrong order.
var _ = registerRandom([]randomFault{
	{"expired jobs are claimed when only types are given", "claim-9", func(d *doctored) {
		d.claim = &choice{
			eligible: func(d *doctored, j *refJob, a asked) bool {
				if len(a.c.Types) > 0 && len(a.c.Queues) == 0 {
					j.rec.ExpiresAt, j.rec.TotalTimeout, j.rec.EnqueueTTL = time.Time{}, 0, 0
				}
				return a.claimable(d, j)
			},
		}
	}},
	{"negative priorities are 0", "claim-3", func(d *doctored) {
		d.claim = &choice{seen: func(_ *doctored, j *refJob) storage.Record {
			r := j.rec
			r.Priority = max(0, r.Priority)
			return r
		}}
	}},
	{"a retried job goes to the front", "claim-2", func(d *doctored) {
		d.due = &waits{came: func(d *doctored, j *refJob, from ojs.State) {
			if from == ojs.StateRetryable {
				j.entered = -d.seq
			}
		}}
	}},
	{"rounds that were claimed of are forgotten", "fair-4", func(d *doctored) {
		d.now = func(d *doctored, now time.Time) time.Time {
			clear(d.served)
			return now
		}
	}},
	{"an edit takes a new turn", "fair-5", func(d *doctored) {
		d.settle = func(d *doctored, to *storage.Record, j *refJob) {
			if j.rec.State == ojs.StateAvailable {
				d.takeRound(j)
			}
		}
	}},
	{"rounds are not those of the levels", "fair-5", func(d *doctored) {
		d.settle = func(_ *doctored, _ *storage.Record, j *refJob) { j.round = 0 }
	}},
	{"new jobs are not claimed by the first claim", "insert-15", func(d *doctored) {
		d.claim = &choice{
			eligible: func(d *doctored, j *refJob, a asked) bool {
				return !d.fresh[j.rec.ID] && a.claimable(d, j)
			},
		}
	}},
	{"new jobs are not found before a claim", "insert-9", func(d *doctored) {
		d.get = func(d *doctored, id string) error {
			if d.fresh[id] {
				return ojs.ErrNotFound
			}
			return nil
		}
	}},
	{"new jobs are not counted before a claim", "insert-15", func(d *doctored) {
		d.counts = func(d *doctored, list []storage.Count) []storage.Count {
			for _, j := range d.jobs {
				for i := range list {
					if d.fresh[j.rec.ID] && list[i].Queue == j.rec.Queue && list[i].State == j.rec.State {
						list[i].N--
					}
				}
			}
			return slices.DeleteFunc(list, func(c storage.Count) bool { return c.N == 0 })
		}
	}},
})

// seenAs is a claim that sees something of a job as it was when the job came into its
// state.
func seenAs(f func(r *storage.Record, then *storage.Record)) func(d *doctored) {
	return func(d *doctored) {
		d.claim = &choice{seen: func(d *doctored, j *refJob) storage.Record {
			r := j.rec
			if then, ok := d.index[j.inserted]; ok {
				f(&r, &then.rec)
			}
			return r
		}}
	}
}

// Storages that do not follow a change by Settle.
var _ = registerRandom([]randomFault{
	{
		"claims go by the type before the change",
		"settle-9",
		seenAs(func(r, then *storage.Record) { r.Type = then.Type }),
	},
	{
		"claims go by the queue before the change", "settle-6",
		seenAs(func(r, then *storage.Record) { r.Queue = then.Queue }),
	},
	{
		"claims go by the priority before the change", "settle-13",
		seenAs(func(r, then *storage.Record) { r.Priority = then.Priority }),
	},
	{
		"claims go by the rate key before the change", "settle-9",
		seenAs(func(r, then *storage.Record) { r.RateLimit = then.RateLimit }),
	},
	{"claims go by the deadline before the change", "settle-10", seenAs(func(r, then *storage.Record) {
		r.ExpiresAt, r.TotalTimeout, r.CreatedAt = then.ExpiresAt, then.TotalTimeout, then.CreatedAt
	})},
	{"Due goes by the deadline before the change", "settle-10", func(d *doctored) {
		d.due = &waits{at: func(d *doctored, j *refJob) time.Time {
			if then, ok := d.index[j.inserted]; ok && j.rec.State == ojs.StateAvailable {
				return then.rec.WakeAt()
			}
			return j.rec.WakeAt()
		}}
	}},
	{"Due goes by the scheduled time before the change", "settle-10", func(d *doctored) {
		d.due = &waits{at: func(d *doctored, j *refJob) time.Time {
			if then, ok := d.index[j.inserted]; ok && j.rec.State == ojs.StateScheduled {
				return then.rec.WakeAt()
			}
			return j.rec.WakeAt()
		}}
	}},
	{"a job that changes its type loses its place", "settle-9", func(d *doctored) {
		d.settle = func(d *doctored, _ *storage.Record, j *refJob) {
			if then, ok := d.index[j.inserted]; ok && then.rec.State == ojs.StateAvailable &&
				j.rec.State == ojs.StateAvailable &&
				then.rec.Type != j.rec.Type {
				d.seq++
				j.entered = d.seq
			}
		}
	}},
	{"a job that changes its rate key loses its place", "settle-9", func(d *doctored) {
		d.settle = func(d *doctored, _ *storage.Record, j *refJob) {
			if then, ok := d.index[j.inserted]; ok && then.rec.State == ojs.StateAvailable &&
				j.rec.State == ojs.StateAvailable &&
				(then.rec.RateLimit == nil) != (j.rec.RateLimit == nil) {
				d.seq++
				j.entered = d.seq
			}
		}
	}},
	{"a scheduled job that changes keeps its place among those of its time", "due-7", func(d *doctored) {
		d.settle = func(d *doctored, _ *storage.Record, j *refJob) {
			if then, ok := d.index[j.inserted]; ok && then.rec.State == ojs.StateScheduled &&
				j.rec.State == ojs.StateScheduled {
				j.since = then.since
			}
		}
	}},
})
