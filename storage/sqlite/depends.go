package sqlite

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Jobs that wait for others (storage.Insert.DependsOn).
//
// The table edge has a row for each job that another waits for and that has not ended.
// That job has awaited set, so that the end of any other job reads no edges. The column
// depends of a waiting job has its counts; no change of the job writes it. Numbers of
// jobs (seq) are given once, so that an edge to a deleted job leads nowhere.

// dependency is a job that has ended and that others may wait for.
type dependency struct {
	seq   int64
	id    string
	state ojs.State
}

// ends notes that the call under way has brought a job into a state.
func (t *tx) ends(h head, id string, state int) {
	if h.awaited && rows.Terminal(state) && !rows.Terminal(h.state) {
		t.toCount = append(t.toCount, dependency{h.seq, id, rows.State(state)})
	}
}

// countEnds counts the jobs that the call under way has ended for those that wait for
// them, and appends the jobs that this moves to dst.
func (t *tx) countEnds(now time.Time, dst []storage.Record) ([]storage.Record, error) {
	for len(t.toCount) > 0 {
		e := t.toCount[0]
		t.toCount = t.toCount[1:]
		list, err := t.query(selectWaiting, e.seq).all()
		if err != nil {
			return dst, err
		}
		t.written = true
		if err := t.exec(deleteEdges, e.seq); err != nil {
			return dst, err
		}
		if err := t.exec(clearAwaited, e.seq); err != nil {
			return dst, err
		}
		for i := range list {
			row, err := t.decode(&list[i])
			if err != nil {
				if err := t.setAside(&list[i], err); err != nil {
					return dst, err
				}
				continue
			}
			row.Count(e.state)
			if dst, err = t.resolve(now, &list[i], row, e, dst); err != nil {
				return dst, err
			}
		}
		if dst, err = t.endInLine(now, e.seq, dst); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// resolve stores the counts of a job that waits, after an end was counted for it, and
// moves it if they decide. was is the job as it is stored.
func (t *tx) resolve(
	now time.Time, was *stored, row *rows.Row, e dependency, dst []storage.Record,
) ([]storage.Record, error) {
	return t.moveWaiting(was, row, row.Resolve(now, e.id, e.state), dst)
}

// moveWaiting stores the counts of a job that waits, and the job if they have moved it.
func (t *tx) moveWaiting(
	was *stored, row *rows.Row, moved bool, dst []storage.Record,
) ([]storage.Record, error) {
	if err := t.setDepends(row); err != nil || !moved {
		return dst, err
	}
	if err := t.saveMoved(was.kind(), row); err != nil {
		return dst, err
	}
	if row.State.Terminal() && was.awaited {
		t.toCount = append(t.toCount, dependency{row.Seq, row.ID, row.State})
	}
	return append(dst, row.Record), nil
}

func (t *tx) setDepends(row *rows.Row) error {
	t.written = true
	b, err := rows.EncodeDepends(row.Dependencies)
	if err != nil {
		return err
	}
	return t.exec(setDepends, row.Seq, b)
}

// Known implements insert.Tx.
func (i inserter) Known(ids []string) (map[string]bool, error) {
	known := make(map[string]bool, len(ids))
	for _, id := range ids {
		_, there, err := i.t.idTaken(id)
		if err != nil {
			return nil, err
		}
		known[id] = there
	}
	return known, nil
}

// Await implements insert.Tx.
func (i inserter) Await(
	now time.Time, batch []storage.Insert, added func(int) bool,
) ([]storage.Record, error) {
	t := i.t
	var moved []storage.Record
	var err error
	var atOnce []replaced
	for k := range batch {
		if len(batch[k].AwaitedBy) > 0 && added(k) {
			if atOnce, err = t.awaitNew(&batch[k], atOnce); err != nil {
				return nil, err
			}
		}
	}
	for _, e := range atOnce { // each job waits for all of them before one is counted
		if moved, err = t.countReplaced(now, e, moved); err != nil {
			return nil, err
		}
	}
	for k := range batch {
		if added(k) {
			if err := t.enterLine(&batch[k]); err != nil {
				return nil, err
			}
		}
	}
	moved, err = t.countEnds(now, moved)
	if err != nil {
		return nil, err
	}
	for k := range batch {
		if !added(k) {
			continue
		}
		if moved, err = t.awaitAll(now, &batch[k], moved); err != nil {
			return nil, err
		}
	}
	return moved, nil
}

// awaitAll has a job that has just been stored wait for others and for its turn.
func (t *tx) awaitAll(now time.Time, in *storage.Insert, moved []storage.Record) ([]storage.Record, error) {
	if !in.Waits() {
		return moved, nil
	}
	moved, err := t.await(now, in, moved)
	if err == nil {
		moved, err = t.countEnds(now, moved)
	}
	if err == nil && in.OrderingKey != "" {
		if moved, err = t.nextTurn(now, in.OrderingKey, moved); err == nil {
			moved, err = t.countEnds(now, moved)
		}
	}
	return moved, err
}

// await has a job that has just been stored wait for others.
func (t *tx) await(now time.Time, in *storage.Insert, moved []storage.Record) ([]storage.Record, error) {
	list, err := t.query(selectByID, in.Record.ID).all()
	if err != nil || len(list) == 0 {
		return moved, err
	}
	row, err := t.decode(&list[0])
	if err != nil {
		return moved, err
	}
	if in.OrderingKey == "" { // or enterLine has done so, and its turn may have come
		row.Wait(in)
		if err := t.setDepends(row); err != nil {
			return moved, err
		}
	}
	for _, id := range in.DependsOn {
		if row.State != ojs.StatePending { // it has been replaced, or what has ended decides
			break
		}
		h, _, err := t.head(id)
		if err != nil {
			return moved, err
		}
		if state := rows.State(h.state); state.Terminal() {
			row.Count(state)
			if moved, err = t.resolve(now, &list[0], row, dependency{h.seq, id, state}, moved); err != nil {
				return moved, err
			}
			continue
		}
		if err := t.exec(insertEdge, h.seq, row.Seq); err != nil {
			return moved, err
		}
		if err := t.exec(setAwaited, h.seq); err != nil {
			return moved, err
		}
	}
	return moved, nil
}
