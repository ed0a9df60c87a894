package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
)

// CancelAll implements storage.Storage.
func (s *Storage) CancelAll(
	ctx context.Context, now time.Time, ids []string,
) (cancelled, moved []storage.Record, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	var met []bad
	err = s.atomically(ctx, func(t *tx) {
		var o settling
		cancelled, o = t.cancels(now, ids, &met)
		_, list := t.applyLocked(o)
		c := t.counter(list...)
		moved = depend.Count(c, now, nil)
		o.note(&t.notice)
		c.end(moved)
		met = append(met, c.met...)
	})
	_ = s.setAsideRead(ctx, false, met)
	if err != nil {
		return nil, nil, err
	}
	return cancelled, moved, nil
}

// cancels locks jobs. It returns the waiting ones as they are when cancelled, the changes
// that cancel them, and the jobs that do not decode. If the first job does not wait, it
// fails.
func (t *tx) cancels(now time.Time, ids []string, met *[]bad) (cancelled []storage.Record, o settling) {
	t.lockKnown(ids)
	list, undecoded := decoded(t.rows(0, getAllSQL, sayables(ids)))
	*met = undecoded
	jobs := make(map[string]*rows.Row, len(ids))
	for _, row := range list {
		jobs[row.ID] = row
	}
	o.sameJob = true
	for i, id := range ids {
		switch row := jobs[id]; {
		case row != nil && row.State.Waiting():
			row.Cancel(now)
			o.add(&row.Record, int64(rows.From(rows.Cancelled)))
			cancelled = append(cancelled, row.Record)
		case i > 0:
		case row == nil:
			fail.With(fmt.Errorf("%w: job %q", ojs.ErrNotFound, id))
		default:
			fail.With(&ojs.TransitionError{ID: id, From: row.State, To: ojs.StateCancelled})
		}
	}
	return cancelled, o
}

// Revive implements storage.Storage.
func (s *Storage) Revive(
	ctx context.Context, now time.Time, batch []storage.Insert,
) (moved []storage.Record, err error) {
	if err := storage.CheckRevive(batch); err != nil || len(batch) == 0 {
		return nil, err
	}
	var met []bad
	err = s.atomically(ctx, func(t *tx) {
		t.lockRevived(batch)
		var o settling
		var keys []string
		for i := range batch {
			keys = append(keys, batch[i].OrderingKey)
			r := batch[i].Record
			r.Version++
			o.add(&r, 1<<rows.Completed|1<<rows.Cancelled|1<<rows.Discarded)
		}
		seqs, _ := t.applyLocked(o)
		t.exec(forgetEdgesSQL, seqs)
		t.lockKeys(keys)
		c := t.counter()
		o.note(&t.notice)
		c.learn(batch, func(int) bool { return true })
		moved = depend.Revive(c, now, batch)
		c.end(moved)
		met = c.met
	})
	if err != nil {
		return nil, err
	}
	_ = s.setAsideRead(ctx, false, met)
	return moved, nil
}

// lockRevived locks and checks the jobs of a batch for Revive, and the jobs that they are
// to wait for.
func (t *tx) lockRevived(batch []storage.Insert) {
	var ids []string
	for i := range batch {
		ids = append(append(ids, batch[i].Record.ID), batch[i].DependsOn...)
	}
	slices.Sort(ids)
	locked := t.lockKnown(slices.Compact(ids))
	fail.If(storage.CheckRevived(batch, func(id string) (uint64, ojs.State) {
		f := locked[id]
		return uint64(f.version), f.state()
	}))
}

// forgetEdgesSQL deletes the edges to jobs. It reads all edges: few calls revive jobs.
var forgetEdgesSQL = define("forgetEdges", `DELETE FROM {schema}.edge WHERE waiting = ANY ($1::bigint[])`)
