package keyed

import (
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
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
				refuse(&ojs.TransitionError{ID: id, From: j.State, To: "deleted"})
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
				g := groupOf(state, p.DeadLetters, false)
				groups = append(groups, append(newKey(endedTable), g...))
				out.Left += int(t.number(append(newKey(sizeTable), g...)))
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

// release moves the finished jobs whose time to be kept has passed into the groups that
// Prune looks at. If the clock has gone back, jobs move out of them again. It looks at
// the jobs that are kept until a time between this one and that of the Prune before, and
// no others.
func (t *tx) release(now time.Time) {
	from, to := timeOf(t.get(meta(prunedName))), now
	if to.Before(from) {
		from, to = to, from
	}
	var jobs []*job
	for k := range t.scan(newKey(keptTable), key{}.time(from.Add(1))) {
		if timeOf(k).After(to) {
			break
		}
		jobs = append(jobs, t.load(k[timeLen:]))
	}
	was := make([][]entry, len(jobs))
	for i, j := range jobs {
		was[i] = t.entries(j, nil)
		t.tally(j, -1)
	}
	t.put(meta(prunedName), key{}.time(now))
	for i, j := range jobs {
		t.replace(was[i], t.entries(j, nil))
		t.tally(j, 1)
	}
}
