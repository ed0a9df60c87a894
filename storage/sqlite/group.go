package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// CancelAll implements storage.Storage.
func (s *Storage) CancelAll(
	ctx context.Context, now time.Time, ids []string,
) (cancelled, moved []storage.Record, err error) {
	err = s.write(ctx, func(t *tx) (err error) {
		cancelled, moved = nil, nil
		for i, id := range ids {
			r, err := t.cancel(now, id, i == 0)
			if err != nil {
				return err
			}
			if r != nil {
				cancelled = append(cancelled, *r)
			}
		}
		moved, err = t.countEnds(now, nil)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return cancelled, moved, nil
}

// cancel cancels a job that waits, and returns it. It returns nil for another job, unless
// it must cancel.
func (t *tx) cancel(now time.Time, id string, must bool) (*storage.Record, error) {
	list, err := t.query(selectByID, id).all()
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		if must {
			return nil, fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
		}
		return nil, nil
	}
	was := &list[0]
	row, err := t.decode(was)
	if err != nil {
		if err := t.setAside(was, err); err != nil || !must {
			return nil, err
		}
		return nil, fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
	}
	if !row.State.Waiting() {
		if must {
			return nil, &ojs.TransitionError{ID: id, From: row.State, To: ojs.StateCancelled}
		}
		return nil, nil
	}
	row.Cancel(now)
	if err := t.saveAttempt(was.kind(), row); err != nil {
		return nil, err
	}
	if was.awaited {
		t.toCount = append(t.toCount, dependency{row.Seq, row.ID, row.State})
	}
	return &row.Record, nil
}

// Revive implements storage.Storage.
func (s *Storage) Revive(
	ctx context.Context, now time.Time, batch []storage.Insert,
) (moved []storage.Record, err error) {
	if err := storage.CheckRevive(batch); err != nil {
		return nil, err
	}
	encoded := make([]stored, len(batch))
	for i := range batch {
		if encoded[i], err = encodeNext(&batch[i].Record); err != nil {
			return nil, err
		}
	}
	err = s.write(ctx, func(t *tx) (err error) {
		moved, err = t.revive(now, batch, encoded)
		return err
	})
	if err != nil {
		return nil, err
	}
	return moved, nil
}

func (t *tx) revive(
	now time.Time, batch []storage.Insert, encoded []stored,
) (moved []storage.Record, err error) {
	heads, err := t.revivable(batch)
	if err != nil {
		return nil, err
	}
	seqs := make([]int64, len(heads))
	for i := range heads {
		r := &encoded[i]
		r.seq = heads[i].seq
		if err := t.enterPlace(r); err != nil {
			return nil, err
		}
		if err := t.save(heads[i].kind, r, true); err != nil {
			return nil, err
		}
		seqs[i] = r.seq
		if batch[i].Waits() { // or what it waited for before would be counted on
			row := rows.Row{Record: batch[i].Record, Seq: r.seq}
			if err := t.setDepends(&row); err != nil {
				return nil, err
			}
		}
	}
	list, err := json.Marshal(seqs)
	if err != nil {
		return nil, err
	}
	if err := t.exec(forgetEdges, string(list)); err != nil {
		return nil, err
	}
	for i := range batch {
		if err := t.enterLine(&batch[i]); err != nil {
			return nil, err
		}
	}
	for i := range batch {
		if moved, err = t.awaitAll(now, &batch[i], moved); err != nil {
			return nil, err
		}
	}
	return moved, nil
}

// revivable looks for the jobs of a batch and for those that they wait for.
func (t *tx) revivable(batch []storage.Insert) ([]head, error) {
	heads := make([]head, len(batch))
	for i := range batch {
		r := &batch[i].Record
		h, there, err := t.head(r.ID)
		if err != nil {
			return nil, err
		}
		state := rows.State(h.state)
		if !there || state == "" {
			return nil, fmt.Errorf("%w: job %q", ojs.ErrNotFound, r.ID)
		}
		was := storage.Record{JobInfo: ojs.JobInfo{JobHeader: ojs.JobHeader{ID: r.ID}, State: state},
			Version: uint64(h.version)}
		if err := was.CanRevive(r); err != nil {
			return nil, err
		}
		heads[i] = h
	}
	for i := range batch {
		for _, id := range batch[i].DependsOn {
			if _, there, err := t.head(id); err != nil {
				return nil, err
			} else if !there {
				return nil, &ojs.DependencyError{ID: batch[i].Record.ID, Dependency: id}
			}
		}
	}
	return heads, nil
}

// Waiting implements insert.Tx.
func (i inserter) Waiting(ids []string) (map[string]bool, error) {
	waiting := make(map[string]bool, len(ids))
	for _, id := range ids {
		q := i.t.query(selectCounted, id)
		waiting[id] = q.next()
		if err := q.close(); err != nil {
			return nil, err
		}
	}
	return waiting, nil
}

// replaced is a new job that the call has replaced, and a job that waits for it.
type replaced struct {
	waiting string // its id
	dependency
}

// awaitNew has stored jobs wait for a job that has just been stored. If the call has
// replaced that, they are appended to atOnce.
func (t *tx) awaitNew(in *storage.Insert, atOnce []replaced) ([]replaced, error) {
	h, _, err := t.head(in.Record.ID)
	if err != nil {
		return atOnce, err
	}
	for _, id := range in.AwaitedBy {
		_, row, err := t.counted(id)
		if err != nil {
			return atOnce, err
		}
		if row == nil {
			continue
		}
		row.WaitsMore()
		if err := t.setDepends(row); err != nil {
			return atOnce, err
		}
		if state := rows.State(h.state); state.Terminal() {
			atOnce = append(atOnce, replaced{id, dependency{h.seq, in.Record.ID, state}})
			continue
		}
		if err := t.exec(insertEdge, h.seq, row.Seq); err != nil {
			return atOnce, err
		}
		if err := t.exec(setAwaited, h.seq); err != nil {
			return atOnce, err
		}
	}
	return atOnce, nil
}

// countReplaced counts a new job that the call has replaced.
func (t *tx) countReplaced(now time.Time, e replaced, moved []storage.Record) ([]storage.Record, error) {
	was, row, err := t.counted(e.waiting)
	if err != nil || row == nil {
		return moved, err
	}
	row.Count(e.state)
	return t.resolve(now, was, row, e.dependency, moved)
}

// counted returns the job with an id if it is pending and the storage counts for it, nil
// if not.
func (t *tx) counted(id string) (*stored, *rows.Row, error) {
	list, err := t.query(selectByID, id).all()
	if err != nil || len(list) == 0 || rows.State(list[0].State) != ojs.StatePending {
		return nil, nil, err
	}
	row, err := t.decode(&list[0])
	if err != nil {
		return nil, nil, t.setAside(&list[0], err)
	}
	if list[0].Depends == nil {
		return nil, nil, nil
	}
	return &list[0], row, nil
}
