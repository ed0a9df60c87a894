package keyed

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

// Jobs that wait for others and for their turn (storage/depends.go has the rules).
//
//   - The table edge has an entry for each job that another waits for and that has not
//     ended. That job is flagged as awaited, so that the end of any other reads no edges.
//   - job.since numbers the time for which a job waits. An edge has this number too, and
//     is void if the job waits no more or waits anew.
//   - A job with an ordering key that has not ended is flagged as lined. It has an entry
//     in the table line until its turn, and in turn from then on (tx.entries).

var _ insert.Tx = (*tx)(nil)

// end is a job that the call has ended, and that others may wait for.
type end struct {
	seq   int64
	id    string
	state ojs.State
	line  string // its ordering key; "": none
}

// line is the ordering key of a job that takes part in its line, "" of any other.
func (j *job) line() string {
	if j.flags&lined == 0 {
		return ""
	}
	return j.Dependencies.OrderingKey
}

// countEnds counts the jobs that the call has ended for those that wait for them, and
// appends the jobs that this moves to moved.
func (t *tx) countEnds(now time.Time, moved []storage.Record) []storage.Record {
	for len(t.ends) > 0 {
		e := t.ends[0]
		t.ends = t.ends[1:]
		edges := newKey(edgeTable).number(e.seq)
		var waiting []*job
		for seq, since := range t.scan(edges, nil) {
			t.delete(append(slices.Clone(edges), seq...))
			if j := t.load(seq); j != nil && j.since == number(since) {
				waiting = append(waiting, j)
			}
		}
		for _, j := range waiting {
			moved = t.count(now, j, e, moved)
		}
		if e.line != "" {
			moved = t.nextTurn(now, e.line, moved)
		}
	}
	return moved
}

// count counts an end for a job that waits for it.
func (t *tx) count(now time.Time, j *job, e end, moved []storage.Record) []storage.Record {
	return t.waits(j, moved, func(r *storage.Record) bool {
		r.Count(e.state)
		return r.Resolve(now, e.id, e.state)
	})
}

// waits changes what a job waits for. If f reports that the job moves, it is appended to
// moved.
func (t *tx) waits(j *job, moved []storage.Record, f func(r *storage.Record) bool) []storage.Record {
	r := j.Record
	moves := f(&r)
	t.change(j, moves, func(to *storage.Record) { *to = r })
	if moves {
		moved = append(moved, j.Record)
	}
	return moved
}

// nextTurn gives the turn of an ordering key to the first in line, unless a job has it.
func (t *tx) nextTurn(now time.Time, line string, moved []storage.Record) []storage.Record {
	if rest, _ := t.first(newKey(turnTable).name(line)); rest != nil {
		return moved
	}
	seq, _ := t.first(newKey(lineTable).name(line))
	if seq == nil {
		return moved
	}
	return t.waits(t.load(seq), moved, func(r *storage.Record) bool { return r.Turn(now) })
}

// Known implements insert.Tx.
func (t *tx) Known(ids []string) (map[string]bool, error) {
	known := make(map[string]bool, len(ids))
	for _, id := range ids {
		known[id] = t.get(idKey(id)) != nil
	}
	return known, nil
}

// Waiting implements insert.Tx.
func (t *tx) Waiting(ids []string) (map[string]bool, error) {
	waiting := make(map[string]bool, len(ids))
	for _, id := range ids {
		j := t.find(id)
		waiting[id] = j != nil && j.waiting()
	}
	return waiting, nil
}

// waiting reports whether ends may be counted for a job.
func (j *job) waiting() bool { return j.State == ojs.StatePending && j.flags&counted != 0 }

// Await implements insert.Tx.
func (t *tx) Await(
	now time.Time, batch []storage.Insert, added func(i int) bool,
) (moved []storage.Record, err error) {
	for i := range batch {
		if len(batch[i].AwaitedBy) > 0 && added(i) {
			t.awaitNew(&batch[i])
		}
	}
	for i := range batch {
		if added(i) {
			t.enter(&batch[i])
		}
	}
	moved = t.countEnds(now, moved)
	for i := range batch {
		if added(i) {
			moved = t.await(now, &batch[i], moved)
		}
	}
	return moved, nil
}

// enter flags a job that waits, and has it enter its line.
func (t *tx) enter(in *storage.Insert) {
	if !in.Waits() {
		return
	}
	j := t.find(in.Record.ID)
	t.attempt(j, false, func(*storage.Record) {
		j.flags |= counted
		if in.OrderingKey != "" && !j.State.Terminal() {
			j.flags |= lined
		}
	})
}

// await has a job that has entered wait for others and for its turn.
func (t *tx) await(now time.Time, in *storage.Insert, moved []storage.Record) []storage.Record {
	for _, id := range in.DependsOn {
		j := t.find(in.Record.ID)
		if j.State != ojs.StatePending { // it was replaced, or what has ended decides
			break
		}
		moved = t.awaits(now, j, t.find(id), moved)
	}
	moved = t.countEnds(now, moved)
	if in.OrderingKey != "" {
		moved = t.countEnds(now, t.nextTurn(now, in.OrderingKey, moved))
	}
	return moved
}

// awaits has a job wait for another one.
func (t *tx) awaits(now time.Time, j, other *job, moved []storage.Record) []storage.Record {
	if other.State.Terminal() {
		return t.count(now, j, end{seq: other.Seq, id: other.ID, state: other.State}, moved)
	}
	t.edge(j, other)
	return moved
}

// edge has the end of another job be counted for a job.
func (t *tx) edge(j, other *job) {
	t.put(newKey(edgeTable).number(other.Seq).number(j.Seq), key{}.number(j.since))
	if other.flags&awaited == 0 && !other.State.Terminal() {
		t.attempt(other, false, func(*storage.Record) { other.flags |= awaited })
	}
}

// awaitNew has stored jobs wait for one that has just been stored.
func (t *tx) awaitNew(in *storage.Insert) {
	for _, id := range in.AwaitedBy {
		if j := t.find(id); j != nil && j.waiting() {
			t.waits(j, nil, func(r *storage.Record) bool { r.WaitsMore(); return false })
			t.edge(j, t.find(in.Record.ID))
		}
	}
}

// CancelAll implements storage.Storage.
func (s *Storage) CancelAll(
	ctx context.Context, now time.Time, ids []string,
) (cancelled, moved []storage.Record, err error) {
	moved, err = change(ctx, s, func(t *tx) []storage.Record {
		t.at(now)
		var list []storage.Record // a run that is cut short must not set cancelled
		for i, id := range ids {
			j := t.find(id)
			switch {
			case j != nil && j.State.Waiting():
				t.attempt(j, true, func(r *storage.Record) { r.Cancel(now) })
				list = append(list, j.Record)
			case i > 0:
			case j == nil:
				refuse(fmt.Errorf("%w: job %q", ojs.ErrNotFound, id))
			default:
				refuse(&ojs.TransitionError{ID: id, From: j.State, To: ojs.StateCancelled})
			}
		}
		moved := t.countEnds(now, nil)
		cancelled = list
		return moved
	})
	if err != nil {
		return nil, nil, err
	}
	return cancelled, moved, nil
}

// Revive implements storage.Storage.
func (s *Storage) Revive(
	ctx context.Context, now time.Time, batch []storage.Insert,
) ([]storage.Record, error) {
	if err := storage.CheckRevive(batch); err != nil {
		return nil, err
	}
	return change(ctx, s, func(t *tx) (moved []storage.Record) {
		t.at(now)
		check(storage.CheckRevived(batch, func(id string) (version uint64, state ojs.State) {
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
		for i := range batch {
			t.enter(&batch[i])
		}
		for i := range batch {
			moved = t.await(now, &batch[i], moved)
		}
		return moved
	})
}
