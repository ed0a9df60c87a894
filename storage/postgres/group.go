package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
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
	err = s.atomically(ctx, func(ctx context.Context, tx transaction, n *storage.Notice) error {
		var o settling
		var err error
		cancelled, o, met, err = s.cancels(ctx, tx, now, ids)
		if err != nil || len(cancelled) == 0 {
			return err
		}
		_, list, err := s.applyLocked(ctx, tx, o)
		if err != nil {
			return err
		}
		c := s.counter(ctx, tx, list...)
		moved = depend.Count(c, now, nil)
		err = c.end()
		for i := range o.encoded {
			rows.Note(n, &o.encoded[i])
		}
		noteMoved(n, moved)
		met = append(met, c.met...)
		return err
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
func (s *Storage) cancels(
	ctx context.Context, tx transaction, now time.Time, ids []string,
) (cancelled []storage.Record, o settling, met []bad, err error) {
	list, err := s.lockRows(ctx, tx, ids)
	if err != nil {
		return nil, o, nil, err
	}
	jobs := make(map[string]*rows.Row, len(list))
	for i := range list {
		row, err := list[i].decode()
		if err != nil {
			met = append(met, bad{list[i], err})
			continue
		}
		jobs[row.ID] = row
	}
	o.sameJob = true
	for i, id := range ids {
		row := jobs[id]
		if row == nil || !row.State.Waiting() {
			switch {
			case i > 0:
				continue
			case row == nil:
				return nil, o, met, fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
			}
			return nil, o, met, &ojs.TransitionError{ID: id, From: row.State, To: ojs.StateCancelled}
		}
		row.Cancel(now)
		w, err := rows.Encode(&row.Record)
		if err != nil {
			return nil, o, met, err
		}
		o.encoded = append(o.encoded, w)
		o.froms = append(o.froms, int64(rows.From(rows.Cancelled)))
		cancelled = append(cancelled, row.Record)
	}
	return cancelled, o, met, nil
}

var lockedIDsSQL = define("lockedIDs",
	`SELECT {columns} FROM {whole} WHERE seq = ANY ({seqs}) ORDER BY seq FOR UPDATE`)

// lockRows locks and reads jobs. A job that another transaction takes to another state
// meanwhile is among them.
func (s *Storage) lockRows(ctx context.Context, tx transaction, ids []string) ([]stored, error) {
	ids = sayables(ids)
	for {
		list, err := selectRows(ctx, tx, false, s.sql[lockedIDsSQL], ids)
		if err != nil {
			return nil, err
		}
		locked := make(map[string]bool, len(list))
		for i := range list {
			locked[list[i].ID] = true
		}
		all, err := s.lockedAll(ctx, tx, ids, locked)
		if err != nil || all {
			return list, err
		}
	}
}

// Revive implements storage.Storage.
func (s *Storage) Revive(
	ctx context.Context, now time.Time, batch []storage.Insert,
) (moved []storage.Record, err error) {
	if err := storage.CheckRevive(batch); err != nil || len(batch) == 0 {
		return nil, err
	}
	o := settling{encoded: make([]written, len(batch)), froms: make([]int64, len(batch))}
	keys := make([]string, len(batch))
	for i := range batch {
		keys[i] = batch[i].OrderingKey
		r := batch[i].Record
		r.Version++
		if o.encoded[i], err = rows.Encode(&r); err != nil {
			return nil, err
		}
		o.froms[i] = 1<<rows.Completed | 1<<rows.Cancelled | 1<<rows.Discarded
	}
	var met []bad
	err = s.atomically(ctx, func(ctx context.Context, tx transaction, n *storage.Notice) error {
		if err := s.lockRevived(ctx, tx, n, batch); err != nil {
			return err
		}
		seqs, _, err := s.applyLocked(ctx, tx, o)
		if err == nil {
			err = tx.exec(ctx, s.sql[forgetEdgesSQL], seqs)
		}
		if err == nil {
			err = s.lockKeys(ctx, tx, slices.Clone(keys))
		}
		if err != nil {
			return err
		}
		c := s.counter(ctx, tx)
		for i := range batch {
			c.know(&batch[i], seqs[i], &o.encoded[i])
		}
		if c.learn(batch, func(int) bool { return true }); c.err == nil {
			moved = depend.Revive(c, now, batch)
		}
		err = c.end()
		for i := range o.encoded {
			rows.Note(n, &o.encoded[i])
		}
		noteMoved(n, moved)
		met = c.met
		return err
	})
	if err != nil {
		return nil, err
	}
	_ = s.setAsideRead(ctx, false, met)
	return moved, nil
}

// lockRevived locks and checks the jobs of a batch for Revive, and the jobs that they are
// to wait for.
func (s *Storage) lockRevived(
	ctx context.Context, tx transaction, n *storage.Notice, batch []storage.Insert,
) error {
	var ids []string
	for i := range batch {
		ids = append(append(ids, batch[i].Record.ID), batch[i].DependsOn...)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	known, err := s.inserter(ctx, tx, n).Known(ids)
	if err != nil {
		return err
	}
	there, err := s.find(ctx, tx, sayables(ids))
	if err != nil {
		return err
	}
	return storage.CheckRevived(batch, func(id string) (uint64, ojs.State) {
		f := there[id]
		if !known[id] { // it has been stored since, and is not locked
			f = found{}
		}
		return uint64(f.version), f.state()
	})
}

// forgetEdgesSQL deletes the edges to jobs. It reads all edges: few calls revive jobs.
var forgetEdgesSQL = define("forgetEdges", `DELETE FROM {schema}.edge WHERE waiting = ANY ($1::bigint[])`)

// Waiting implements insert.Tx. It locks the jobs, so that none ends before the
// insert has.
func (i *inserter) Waiting(ids []string) (map[string]bool, error) {
	list, err := i.s.lockRows(i.ctx, i.tx, ids)
	if err != nil {
		return nil, err
	}
	if met := undecoded(list); len(met) > 0 {
		return nil, &undecodable{met}
	}
	i.awaits = true
	waiting := make(map[string]bool, len(ids))
	for k := range list {
		waiting[list[k].ID] = list[k].State == rows.Pending && list[k].Depends != nil
	}
	return waiting, nil
}
