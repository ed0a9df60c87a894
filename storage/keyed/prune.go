package keyed

import (
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/storage"
)

// Delete implements storage.Storage.
func (s *Storage) Delete(ctx context.Context, ids []string) (int, error) {
	return change(ctx, s, func(t *tx) (n int) {
		t.fetch(ids)
		for _, id := range ids {
			j := t.find(id)
			if j == nil {
				continue
			}
			if !j.State.Terminal() {
				fail.With(&ojs.TransitionError{ID: id, From: j.State, To: "deleted"})
			}
			t.remove(j)
			n++
		}
		return n
	})
}

// Prune implements storage.Storage.
func (s *Storage) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	return change(ctx, s, func(t *tx) (out storage.Pruned) {
		t.release(p.Now)
		var groups []key
		for _, state := range ojs.AllStates() {
			if state.Terminal() && (len(p.States) == 0 || slices.Contains(p.States, state)) {
				groups = append(groups, endedKey(state, p.DeadLetters, false))
				size := newKey(sizeTable).group(state, p.DeadLetters, false)
				out.Left += int(t.number(size))
			}
		}
		for k, seq := range t.merged(groups, forward) {
			out.Oldest = timeOf(k)
			if len(out.IDs) >= p.Max || !p.Selects(out.Oldest, out.Left) {
				return out
			}
			j := t.load(seq)
			t.remove(j)
			out.IDs = append(out.IDs, j.ID)
			out.Left--
		}
		out.Oldest = time.Time{}
		return out
	})
}

// maxReleased bounds the jobs that one call releases, so that other calls do not wait for
// long. The next calls release the rest: a late prune does no harm.
const maxReleased = 1000

// release moves the finished jobs whose time to be kept has passed into the groups that
// Prune looks at, unless their workflow keeps them on. If the clock has gone back, jobs
// move out of these groups again.
func (t *tx) release(now time.Time) {
	var again, over []*job
	for k := range t.scan(newKey(keptTable).byte(1), key{}.time(now.Add(1))) {
		again = append(again, t.load(k[timeLen:]))
	}
	for k := range t.scan(newKey(keptTable).byte(0), nil) {
		if timeOf(k).After(now) || len(over) == maxReleased {
			break
		}
		over = append(over, t.load(k[timeLen:]))
	}
	on := make([]bool, len(over)) // before any of them is kept on, since one may keep another
	for i, j := range over {
		if id := j.Keeper(); id != "" {
			keeper := t.find(id)
			on[i] = keeper != nil && keeper.Keeps(now)
		}
	}
	for _, j := range again {
		t.attempt(j, false, func(*storage.Record) { j.flags &^= released })
	}
	for i, j := range over {
		t.attempt(j, false, func(*storage.Record) {
			if on[i] {
				j.flags, j.keptOn = j.flags|keptOn, storage.KeptOn(now, j.FinishedAt)
			} else {
				j.flags |= released
			}
		})
	}
}
