package bbolt

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

// Delete implements storage.Storage.
func (s *Storage) Delete(ctx context.Context, ids []string) (int, error) {
	return transact(ctx, s.db.Update, func(t tx) (n int) {
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
	return transact(ctx, s.db.Update, func(t tx) (out storage.Pruned) {
		t.release(p.Now)
		for {
			var seq int64
			seq, out.Oldest, out.Left = t.firstEnded(&p)
			if out.Left == 0 || len(out.IDs) >= p.Max || !p.Selects(out.Oldest, out.Left) {
				return out
			}
			j := t.load(seq)
			t.remove(j)
			out.IDs = append(out.IDs, j.ID)
		}
	})
}

// release adds to the bucket ended the finished jobs whose time to be kept has passed. If
// the clock has gone back, jobs leave that bucket again. It looks at the jobs whose
// KeptUntil is between this time and that of the Prune before, and no others.
func (t tx) release(now time.Time) {
	from, to := timeOf(t.get(metaBucket, key(prunedKey))), now
	if to.Before(from) {
		from, to = to, from
	}
	var jobs []*insert.Job
	for k := range t.scan(keptBucket, nil, key{}.time(from.Add(1))) {
		if timeOf(k).After(to) {
			break
		}
		jobs = append(jobs, t.load(number(k[timeLen:])))
	}
	for _, j := range jobs {
		t.unlink(j)
	}
	t.put(metaBucket, key(prunedKey), key{}.time(now))
	for _, j := range jobs {
		t.link(j)
	}
}

// firstEnded returns the job that finished first of those that p looks at, when that was,
// and how many there are.
func (t tx) firstEnded(p *storage.Prune) (seq int64, finished time.Time, n int) {
	var first []byte
	for _, state := range ojs.AllStates() {
		if !state.Terminal() || len(p.States) > 0 && !slices.Contains(p.States, state) {
			continue
		}
		n += t.count(sizeBucket, group(state, p.DeadLetters))
		rest, value := t.first(endedBucket, group(state, p.DeadLetters))
		if rest != nil && (first == nil || bytes.Compare(rest, first) < 0) {
			first, seq = rest, number(value)
		}
	}
	return seq, timeOf(first), n
}
