package storagetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// asideJob is a job whose record is in the quarantine.
type asideJob struct {
	key     string
	job     *refJob
	version tokenOfBoth
	mended  bool
	claimed bool // a claim may have met the record, and have been undone
}

// setAside returns the latest record of a job with the id that is in the quarantine.
func (w *world) setAside(id string) *asideJob {
	for _, a := range slices.Backward(w.aside) {
		if a.job.rec.ID == id {
			return a
		}
	}
	return nil
}

// takeOut removes a job, as if it was deleted, and returns it.
func (s *Reference) takeOut(id string) *refJob {
	j := s.find(id)
	s.remove(func(other *refJob) bool { return other == j })
	return j
}

// putBack puts a job back that takeOut has returned, in its place.
func (s *Reference) putBack(j *refJob) {
	s.jobs = append(s.jobs, j)
	slices.SortFunc(s.jobs, func(a, b *refJob) int { return cmp.Compare(a.inserted, b.inserted) })
}

// plant damages the record of a job, and has a call meet it that has to go on without it.
func (w *world) plant(t *rapid.T) randomOp {
	r, ok := w.jobIn(t, ojs.AllStates()...)
	if !ok || w.setAside(r.ID) != nil {
		return w.nothing(t)
	}
	id := r.ID
	meets := pick(t, "get", "list", "claim")
	return randomOp{"plant", func() string {
		return fmt.Sprintf("damage the record of %s, and meet it by %s", nameOf(id), meets)
	}, func() {
		w.cfg.Plant(w.tb, unscribbled(w.s), id)
		v := tokenOfBoth{r.Version, r.Version + w.ahead[id]}
		var job *refJob
		w.deleting(func() { job = w.ref.takeOut(id) })
		w.cov.add("plant", r.State, setAsideJob)
		switch meets {
		case "list":
			w.lists(storage.Query{})
		case "claim":
			most := 2
			if r.RateLimit != nil { // a job that its key has kept back may come behind others
				most = 1
			}
			w.doClaim(storage.Claim{Max: most, Worker: "w", Remote: true})
		}
		_, err := w.s.Get(w.ctx, id)
		var q *ojs.QuarantinedError
		if !errors.As(err, &q) || !errors.Is(err, ojs.ErrNotFound) || q.ID != id || q.Key == "" {
			w.failf("get of %s, whose record is damaged: %v", nameOf(id), err)
		}
		w.aside = append(
			w.aside,
			&asideJob{
				key:     q.Key,
				job:     job,
				version: v,
				claimed: meets == "claim" && r.State == ojs.StateAvailable,
			},
		)
		w.wants.Quarantined = append(w.wants.Quarantined, storage.Quarantined{Key: q.Key})
	}}
}

// quarantine releases or deletes a record in the quarantine, or looks at them.
func (w *world) quarantine(t *rapid.T) randomOp {
	if len(w.aside) == 0 || chance(t, 4) {
		return randomOp{"look", func() string { return "look at the quarantine" }, w.quarantined}
	}
	a := pick(t, w.aside...)
	name := nameOf(a.job.rec.ID)
	q, _ := quarantiner(w.s)
	leave := func() { w.aside = slices.DeleteFunc(w.aside, func(other *asideJob) bool { return other == a }) }
	if chance(t, 3) {
		return randomOp{
			"quarantine",
			func() string { return "delete the damaged record of " + name },
			func() {
				w.same("the error of delete quarantined", q.DeleteQuarantined(w.ctx, a.key), nil)
				w.same(
					"the error of delete quarantined once more",
					q.DeleteQuarantined(w.ctx, a.key),
					ojs.ErrNotFound,
				)
				w.cov.add("quarantine", a.job.rec.State, deletedJob)
				leave()
			},
		}
	}
	mends := !chance(t, 4)
	return randomOp{"quarantine", func() string {
		if mends {
			return "mend and release the damaged record of " + name
		}
		return "release the damaged record of " + name
	}, func() {
		if mends && !a.mended {
			w.cfg.Mend(w.tb, unscribbled(w.s), a.job.rec.ID)
			a.mended = true
		}
		err := q.ReleaseQuarantined(w.ctx, a.key)
		id := a.job.rec.ID
		if !a.mended {
			w.same(
				"the error of the release of a damaged record",
				err,
				&ojs.QuarantinedError{Key: a.key, ID: id},
			)
			return
		}
		if j := w.ref.find(id); j != nil {
			w.same(
				"the error of a release beside a job with the id",
				err,
				&ojs.DuplicateError{ID: id, State: j.rec.State},
			)
			return
		}
		w.same("the error of a release", err, nil)
		for _, old := range w.gone[id] { // whose tokens must not come to fit
			a.job.rec.Version = max(a.job.rec.Version, old.ref+1)
		}
		w.ahead[id] = a.version.got - a.job.rec.Version
		if got, err := w.s.Get(w.ctx, id); err == nil && a.claimed { // as after Record.Unclaim
			r := &a.job.rec
			r.Worker, r.Progress, r.StartedAt = got.Worker, got.Progress, got.StartedAt
			w.ahead[id] = got.Version - r.Version
		} else if err == nil && a.job.rec.State == ojs.StateActive && a.job.rec.LeaseUntil.IsZero() {
			a.job.rec.LeaseUntil = got.LeaseUntil // which it needs, or it would stay active for ever
		}
		w.ref.putBack(a.job)
		w.gone[id] = slices.DeleteFunc(
			w.gone[id],
			func(v tokenOfBoth) bool { return v.got+4 >= a.version.got && v.got <= a.version.got },
		)
		if len(w.gone[id]) == 0 {
			delete(w.gone, id)
		}
		w.cov.add("quarantine", a.job.rec.State, releasedJob)
		leave()
	}}
}

// quarantined compares what is in the quarantine.
func (w *world) quarantined() {
	q, _ := quarantiner(w.s)
	var got, want []string
	for after := ""; ; {
		page, err := q.Quarantined(w.ctx, after, 2)
		w.same("the error of quarantined", err, nil)
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			got = append(
				got,
				fmt.Sprintf(
					"%s: %s %s, %s, queue %s, type %s",
					r.Key,
					r.Kind,
					nameOf(r.Name),
					r.State,
					r.Queue,
					r.Type,
				),
			)
		}
		after = page[len(page)-1].Key
		if len(got) > len(w.aside)+2 {
			break
		}
	}
	for _, a := range w.aside {
		r := &a.job.rec
		want = append(
			want,
			fmt.Sprintf(
				"%s: %s %s, %s, queue %s, type %s",
				a.key,
				storage.KindJob,
				nameOf(r.ID),
				r.State,
				r.Queue,
				r.Type,
			),
		)
	}
	w.same("the quarantine", got, want)
	n, err := q.CountQuarantined(w.ctx)
	w.same("the error of count quarantined", err, nil)
	w.same("count quarantined", n, len(want))
}
