package sqlite

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Delete implements storage.Storage.
func (s *Storage) Delete(ctx context.Context, ids []string) (n int, err error) {
	err = s.write(ctx, func(t *tx) error {
		found := make(map[string]head)
		for _, id := range ids {
			h, ok, err := t.head(id)
			switch {
			case err != nil:
				return err
			case rows.State(h.state) == "": // or in no state, for the quarantine
			case ok && !rows.Terminal(h.state):
				return &ojs.TransitionError{ID: id, From: rows.State(h.state), To: "deleted"}
			case ok:
				found[id] = h
			}
		}
		for _, h := range found {
			if err := t.remove(h.seq, h.kind); err != nil {
				return err
			}
		}
		n = len(found)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// Prune implements storage.Storage.
func (s *Storage) Prune(ctx context.Context, p storage.Prune) (out storage.Pruned, err error) {
	err = s.write(ctx, func(t *tx) (err error) {
		out, err = t.prune(&p)
		return err
	})
	return out, err
}

// ended is a job that has ended, as pruning sees it.
type ended struct {
	seq, place, finished int64
	id                   string
	kind
}

func (t *tx) prune(p *storage.Prune) (out storage.Pruned, err error) {
	states := []int{rows.Completed, rows.Cancelled, rows.Discarded}
	if len(p.States) > 0 {
		asked := rows.Codes(p.States)
		states = slices.DeleteFunc(states, func(s int) bool { return !slices.Contains(asked, s) })
	}
	if p.DeadLetters && !slices.Contains(states, rows.Discarded) {
		return out, nil
	} else if p.DeadLetters {
		states = []int{rows.Discarded}
	}
	if err := t.release(p.Now); err != nil {
		return out, err
	}
	var oldest []ended // one more than may go, to tell which is left
	for _, state := range states {
		n, some, err := t.ended(state, p.DeadLetters, p.Max+1)
		if err != nil {
			return out, err
		}
		out.Left += n
		oldest = append(oldest, some...)
	}
	slices.SortFunc(oldest, func(a, b ended) int {
		return cmp.Or(cmp.Compare(a.finished, b.finished), cmp.Compare(a.place, b.place))
	})
	for _, e := range oldest {
		finished := rows.Time(e.finished)
		if len(out.IDs) == p.Max || !p.Selects(finished, out.Left) {
			out.Oldest = finished
			break
		}
		if err := t.remove(e.seq, e.kind); err != nil {
			return out, err
		}
		out.IDs = append(out.IDs, e.id)
		out.Left--
	}
	return out, nil
}

// maxReleased bounds the jobs that one call releases, so that other calls do not wait for
// long. The next calls release the rest: a late prune does no harm.
const maxReleased = 1000

// release releases jobs that are kept until now at the latest, so that they may be
// selected. It keeps on the jobs that their workflow keeps. If the clock has gone back,
// it keeps jobs again that a later time has released: all of them, since Prune would
// delete the rest too early.
func (t *tx) release(now time.Time) error {
	ns := rows.Nanos(now)
	if err := t.setKept(now, true, keepAgain, nil, selectReleased, ns); err != nil {
		return err
	}
	return t.setKept(now, false, releaseJob, func(keeper string) (keeps bool, err error) {
		q := t.query(selectKeeps, keeper, ns)
		keeps = q.next()
		return keeps, q.close()
	}, selectKept, ns, maxReleased)
}

// setKept makes the jobs that a query selects kept, or not kept, by an update of each. It
// keeps those on whose Keeper keeps them.
func (t *tx) setKept(
	now time.Time, kept bool, update string, keeps func(keeper string) (bool, error),
	query string, args ...any,
) error {
	type job struct {
		seq int64
		kind
		finished int64
		keeper   string
		on       bool
	}
	var jobs []job
	q := t.query(query, args...)
	for q.next() {
		j := job{seq: q.int64(), kind: kind{q.text(), q.int(), q.time() != rows.None, !kept}}
		if keeps != nil {
			j.finished, j.keeper = q.time(), rows.Keeper(q.blob())
		}
		jobs = append(jobs, j)
	}
	if err := q.close(); err != nil {
		return err
	}
	for i := range jobs { // before any of them is kept on, since one may keep another
		if j := &jobs[i]; j.keeper != "" {
			var err error
			if j.on, err = keeps(j.keeper); err != nil {
				return err
			}
		}
	}
	for _, j := range jobs {
		t.written = true
		if j.on {
			until := rows.Nanos(storage.KeptOn(now, rows.Time(j.finished)))
			if err := t.exec(keepOn, until, j.seq); err != nil {
				return err
			}
			continue
		}
		if err := t.exec(update, j.seq); err != nil {
			return err
		}
		to := j.kind
		to.kept = kept
		t.move(j.kind, to)
	}
	return nil
}

// ended returns how many jobs have ended in a state and are not kept, and those of them
// that ended first.
func (t *tx) ended(state int, dead bool, n int) (total int, first []ended, err error) {
	k := kind{state: state, dead: dead}
	q := t.query(sumState, state, k.class())
	if q.next() {
		total = q.int()
	}
	if err := q.close(); err != nil {
		return 0, nil, err
	}
	for of, n := range t.moved { // what this transaction has not written yet
		if of.state == state && of.class() == k.class() {
			total += n
		}
	}
	if dead {
		q = t.query(oldestDead, n)
	} else {
		q = t.query(oldestEnded, state, n)
	}
	for q.next() {
		e := ended{seq: q.int64(), place: q.int64(), finished: q.time(), id: q.text()}
		e.kind = k
		e.queue = q.text()
		first = append(first, e)
	}
	return total, first, q.close()
}
