package storagetest

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// limits returns a claim for the reference and one for the storage.
func limits(c storage.Claim) (ours, theirs storage.Claim) {
	ours, theirs = c, c
	ours.Limits = new(storage.Limited)
	if c.Limits != nil {
		ours.Limits.Now, theirs.Limits = c.Limits.Now, &storage.Limited{Now: c.Limits.Now}
	}
	return ours, theirs
}

// sameLimited compares what limits have done in a claim.
func (w *world) sameLimited(call string, got, want *storage.Limited) {
	w.rt.Helper()
	for _, r := range want.Dropped {
		w.as[r.ID] = call + ": drop"
	}
	for _, r := range want.Postponed {
		w.as[r.ID] = call + ": reschedule"
	}
	w.movedBy(want.Moved)
	if got == nil {
		return
	}
	w.sameJobs("dropped by "+call, w.mine(got.Dropped...), want.Dropped)
	w.sameJobs("rescheduled by "+call, w.mine(got.Postponed...), want.Postponed)
	w.sameJobs("moved by jobs dropped by "+call, w.mine(got.Moved...), want.Moved)
	if want.Held && !got.Held {
		w.failf("%s: no limit holds a job back, and one does", call)
	}
	late := got.Opens.IsZero() || got.Opens.After(want.Opens)
	if !want.Opens.IsZero() && late || !got.Opens.IsZero() && !got.Opens.After(w.now) {
		w.failf("%s: limits open at %v, not at %v", call, got.Opens, want.Opens)
	}
}

func (w *world) limitName(t *rapid.T) storage.LimitName {
	switch dice(t, 4) {
	case 0:
		return storage.LimitName{Kind: storage.LimitQueue, Name: pick(t, w.queues()...)}
	case 1:
		return storage.LimitName{Kind: storage.LimitType, Name: pick(t, w.types()...)}
	}
	return storage.LimitName{Kind: storage.LimitKey, Name: pick(t, limitKeys...)}
}

// knowStarts gives each key, and the queues and types in rated, a rate that has ended, so
// that the storage knows every start from then on, as the reference does. The clock never
// goes back as far as its end.
func (w *world) knowStarts() {
	rate := ojs.RateLimit{Rate: ojs.Rate{Limit: 1000, Per: 24 * time.Hour}}
	ended := w.now.AddDate(-40, 0, 0)
	for _, key := range limitKeys {
		w.same("the error of set limit", w.s.SetLimit(w.ctx, w.now, ofKey(key), rate, ended), nil)
		_ = w.ref.SetLimit(w.ctx, w.now, ofKey(key), rate, ended)
	}
	for name := range w.rated {
		w.same("the error of set limit", w.s.SetLimit(w.ctx, w.now, name, rate, ended), nil)
		_ = w.ref.SetLimit(w.ctx, w.now, name, rate, ended)
	}
}

// setLimit draws a setting or a block.
func (w *world) setLimit(t *rapid.T) randomOp {
	name := w.limitName(t)
	var until time.Time
	if chance(t, 2) {
		until = w.in(t, -1)
	}
	if chance(t, 4) {
		return randomOp{"block limit", func() string {
			return fmt.Sprintf("block %s %s until %s", name.Kind, name.Name, clockText(until))
		}, func() {
			w.same("the error of block limit", w.s.BlockLimit(w.ctx, w.now, name, until), nil)
			_ = w.ref.BlockLimit(w.ctx, w.now, name, until)
		}}
	}
	var bounds ojs.RateLimit
	if w.bounds(t, &bounds); name.Kind != storage.LimitKey && !w.rated[name] {
		bounds.Rate, bounds.Throttle = ojs.Rate{}, ojs.Rate{} // storages may not know earlier starts
	}
	return randomOp{"set limit", func() string {
		return fmt.Sprintf("set %s %s to %v until %s", name.Kind, name.Name, bounds, clockText(until))
	}, func() {
		w.same("the error of set limit", w.s.SetLimit(w.ctx, w.now, name, bounds, until), nil)
		_ = w.ref.SetLimit(w.ctx, w.now, name, bounds, until)
	}}
}

// limitsEnded reports whether the setting or the block of some queue or type has ended.
func (w *world) limitsEnded() bool {
	for name, l := range w.ref.limits {
		if l.set && l.inForce(w.now) == nil && !l.blocked.After(w.now) && name.Kind != storage.LimitKey {
			return true
		}
	}
	return false
}

// lookLimits compares a limit and a list of them.
func (w *world) lookLimits(t *rapid.T) randomOp {
	name, most := w.limitName(t), dice(t, 5)
	return randomOp{"look at limits", func() string {
		return fmt.Sprintf("look at %s %s, and at %d after it", name.Kind, name.Name, most)
	}, func() {
		want, wantErr := w.ref.GetLimit(w.ctx, w.now, name)
		got, err := w.s.GetLimit(w.ctx, w.now, name)
		w.same("the error of get limit", err, wantErr)
		w.same("the limit", w.certain(got), w.certain(want))
		w.listLimits(name.Kind, name.Name, most)
	}}
}

// listLimits compares a list of limits.
func (w *world) listLimits(kind storage.LimitKind, after string, most int) {
	w.rt.Helper()
	wants, _ := w.ref.ListLimits(w.ctx, w.now, kind, after, most)
	list, err := w.s.ListLimits(w.ctx, w.now, kind, after, most)
	w.same("the error of list limits", err, nil)
	w.same("limits", w.certain(list...), w.certain(wants...))
}

// certain leaves out of limits what any of the jobs that wait may decide.
func (w *world) certain(list ...storage.Limit) []storage.Limit {
	list = slices.Concat(list)
	for i := range list {
		l := &list[i]
		if l.Kind == storage.LimitKey && w.ref.limit(l.LimitName).last.Key == "" {
			l.Bounds, l.Starts, l.Opens = ojs.RateLimit{}, 0, time.Time{}
		}
	}
	return list
}
