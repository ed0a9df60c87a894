package keyed

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
)

// Jobs that wait for others and for their turn (storage/depends.go has the rules).
//
//   - The table edge has an entry for each job that another waits for and that has not
//     ended. That job is flagged as awaited, so that the end of any other reads no edges.
//   - job.since numbers the time for which a job waits. An edge has this number too, and
//     is void if the job waits no more or waits anew.
//   - A job with an ordering key that has not ended is flagged as lined. It has an entry
//     in the table line until its turn, and in turn from then on (entries.of).

var _ depend.Tx[*job] = (*tx)(nil)

// line is the ordering key of a job that takes part in its line, "" of any other.
func (j *job) line() string {
	if j.flags&lined == 0 {
		return ""
	}
	return j.Dependencies.OrderingKey
}

// Ends implements depend.Tx.
func (t *tx) Ends() *[]depend.End { return &t.ends }

// Take implements depend.Tx.
func (t *tx) Take(ends []depend.End) (waiting []*job, line string) {
	edges := newKey(edgeTable).number(ends[0].Seq)
	for seq, since := range t.scan(edges, nil) {
		t.delete(append(slices.Clone(edges), seq...))
		if j := t.load(seq); j != nil && j.since == number(since) {
			waiting = append(waiting, j)
		}
	}
	return waiting, ends[0].Line
}

// Change implements depend.Tx.
func (t *tx) Change(j *job, by depend.Step, moved []storage.Record) []storage.Record {
	r := j.Record
	if !by.Count(&r) {
		t.change(j, false, func(to *storage.Record) { *to = r })
		return moved
	}
	by.Move(&r)
	t.change(j, true, func(to *storage.Record) { *to = r })
	return append(moved, j.Record)
}

// First implements depend.Tx.
func (t *tx) First(key string) (first *job, some bool) {
	if rest, _ := t.first(newKey(turnTable).name(key)); rest != nil {
		return nil, false
	}
	seq, _ := t.first(newKey(lineTable).name(key))
	if seq == nil {
		return nil, false
	}
	return t.load(seq), true
}

// Find implements depend.Tx.
func (t *tx) Find(id string) *job { return t.find(id) }

// State implements depend.Tx.
func (t *tx) State(j *job) ojs.State { return j.State }

// Known implements insert.Tx.
func (t *tx) Known(ids []string) (map[string]bool, error) {
	known := make(map[string]bool, len(ids))
	for _, id := range ids {
		known[id] = t.get(idKey(id)) != nil
	}
	return known, nil
}

// Waiting implements insert.Tx. A job of the batch is awaited, and may be replaced before
// it has an edge.
func (t *tx) Waiting(ids []string) (map[string]bool, error) {
	t.everyEnd = true
	waiting := make(map[string]bool, len(ids))
	for _, id := range ids {
		_, waiting[id] = t.Waiter(id)
	}
	return waiting, nil
}

// Waiter implements depend.Tx.
func (t *tx) Waiter(id string) (j *job, some bool) {
	j = t.find(id)
	return j, j != nil && j.waiting()
}

// waiting reports whether ends may be counted for a job.
func (j *job) waiting() bool { return j.State == ojs.StatePending && j.flags&counted != 0 }

// Await implements insert.Tx.
func (t *tx) Await(
	now time.Time, batch []storage.Insert, added func(i int) bool,
) ([]storage.Record, error) {
	return depend.Await(t, now, batch, added), nil
}

// Enter implements depend.Tx.
func (t *tx) Enter(batch []storage.Insert, added func(i int) bool) {
	for i := range batch {
		in := &batch[i]
		if !in.Waits() || !added(i) {
			continue
		}
		j := t.find(in.Record.ID)
		t.attempt(j, false, func(*storage.Record) {
			j.flags |= counted
			if in.OrderingKey != "" && !j.State.Terminal() {
				j.flags |= lined
			}
		})
	}
}

// Edge implements depend.Tx.
func (t *tx) Edge(from, to *job) {
	t.put(newKey(edgeTable).number(from.Seq).number(to.Seq), key{}.number(to.since))
	if from.flags&awaited == 0 && !from.State.Terminal() {
		t.attempt(from, false, func(*storage.Record) { from.flags |= awaited })
	}
}

// CancelAll implements storage.Storage.
func (s *Storage) CancelAll(
	ctx context.Context, now time.Time, ids []string,
) (cancelled, moved []storage.Record, err error) {
	done, err := change(ctx, s, func(t *tx) (done struct{ cancelled, moved []storage.Record }) {
		t.at(now)
		for i, id := range ids {
			j := t.find(id)
			switch {
			case j != nil && j.State.Waiting():
				t.attempt(j, true, func(r *storage.Record) { r.Cancel(now) })
				done.cancelled = append(done.cancelled, j.Record)
			case i > 0:
			case j == nil:
				fail.With(fmt.Errorf("%w: job %q", ojs.ErrNotFound, id))
			default:
				fail.With(&ojs.TransitionError{ID: id, From: j.State, To: ojs.StateCancelled})
			}
		}
		done.moved = depend.Count(t, now, nil)
		return done
	})
	return done.cancelled, done.moved, err
}

// Revive implements storage.Storage.
func (s *Storage) Revive(
	ctx context.Context, now time.Time, batch []storage.Insert,
) ([]storage.Record, error) {
	if err := storage.CheckRevive(batch); err != nil {
		return nil, err
	}
	return change(ctx, s, func(t *tx) []storage.Record {
		t.at(now)
		fail.If(storage.CheckRevived(batch, func(id string) (version uint64, state ojs.State) {
			if j := t.find(id); j != nil {
				version, state = j.Version, j.State
			}
			return version, state
		}))
		for i := range batch {
			in := &batch[i]
			j := t.find(in.Record.ID)
			t.change(j, true, func(r *storage.Record) {
				j.become(&in.Record)
				if in.Waits() {
					r.Dependencies = in.Record.Dependencies
					r.Wait(in)
				}
			})
		}
		return depend.Revive(t, now, batch)
	})
}
