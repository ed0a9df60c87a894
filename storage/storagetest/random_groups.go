package storagetest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// cancelAll cancels some jobs in one step.
func (w *world) cancelAll(t *rapid.T) randomOp {
	var list []string
	for range 1 + dice(t, 5) {
		id, states := "unknown", []ojs.State{ojs.StatePending, ojs.StateScheduled, ojs.StateAvailable}
		if chance(t, 6) {
			states = ojs.AllStates()
		}
		if r, ok := w.jobIn(t, states...); ok {
			id = r.ID
		}
		if !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	says := func() string { return "cancel " + namesOf(list) + " in one step" }
	return randomOp{"cancel all", says, func() {
		want, wantMoved, wantErr := w.ref.CancelAll(w.ctx, w.now, list)
		got, moved, err := w.s.CancelAll(w.ctx, w.now, list)
		w.same("the error of a cancel of all", err, wantErr)
		w.sameJobs("cancelled", w.mine(got...), want)
		w.movedBy(wantMoved)
		w.sameJobs("moved by a cancel of all", w.mine(moved...), wantMoved)
	}}
}

// revive brings back jobs that have ended, now and then one that has not or that has
// moved on.
func (w *world) revive(t *rapid.T) randomOp {
	var batch []storage.Insert
	var tokens []tokenOfBoth
	for range 1 + dice(t, 4) {
		states := []ojs.State{ojs.StateDiscarded, ojs.StateCancelled, ojs.StateCompleted}
		if chance(t, 16) {
			states = ojs.AllStates()
		}
		r, ok := w.jobIn(t, states...)
		if !ok || slices.ContainsFunc(batch, func(in storage.Insert) bool { return in.Record.ID == r.ID }) {
			continue
		}
		to := w.record(t, r.ID, false)
		token := tokenOfBoth{r.Version, r.Version + w.ahead[r.ID]}
		if chance(t, 16) {
			token = w.token(t, r)
		}
		to.Fingerprint, to.Unique = r.Fingerprint, r.Unique
		batch, tokens = append(batch, storage.Insert{Record: to}), append(tokens, token)
	}
	if len(batch) > 0 && chance(t, 2) {
		w.dependsOn(t, batch)
	}
	says := func() string { return "revive" + lines(batchTexts(batch)) }
	return randomOp{"revive", says, func() {
		for i := range batch {
			batch[i].Record.Version = tokens[i].ref
		}
		want, wantErr := w.ref.Revive(w.ctx, w.now, batch)
		for i := range batch {
			batch[i].Record.Version = tokens[i].got
		}
		got, err := w.s.Revive(w.ctx, w.now, batch)
		w.same("the error of revive", err, wantErr)
		w.movedBy(want)
		w.sameJobs("moved by revive", w.mine(got...), want)
	}}
}

// awaitedBy has stored jobs wait for some jobs of a batch.
func (w *world) awaitedBy(t *rapid.T, batch []storage.Insert) {
	named := func(id string) bool {
		return slices.ContainsFunc(batch, func(in storage.Insert) bool {
			return in.Record.ID == id || len(in.DependsOn) > 0
		})
	}
	for i := range batch {
		for range 1 + dice(t, 2) {
			r, ok := w.jobIn(t, ojs.StatePending)
			if chance(t, 8) {
				r, ok = w.jobIn(t, ojs.AllStates()...)
			}
			if ok && !named(r.ID) && !slices.Contains(batch[i].AwaitedBy, r.ID) {
				batch[i].AwaitedBy = append(batch[i].AwaitedBy, r.ID)
			}
		}
	}
}

func awaitedText(in *storage.Insert) string {
	if len(in.AwaitedBy) == 0 {
		return ""
	}
	return fmt.Sprintf(", awaited by %s", namesOf(in.AwaitedBy))
}
