package sqlite

import (
	"context"
	"fmt"
	"strconv"
	"time"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// The quarantine. A row that does not decode is moved out of its table, in the
// transaction that has met it, or in the next one if a reader has. The move is no part of
// the call that met the row: it holds even if the call is refused. Release writes the row
// anew, so that the columns that follow from others are right again.

// maxAside bounds how many jobs one call moves only because they are impossible, so that
// other calls do not wait for long.
const maxAside = 1000

// setAside moves a job to the quarantine.
func (t *tx) setAside(r *stored, why error) error {
	q := storage.Quarantined{Kind: storage.KindJob, Name: r.ID, Reason: rows.Reason(why), Queue: r.Queue,
		Type: rows.TypeName(r.Type), State: rows.State(r.State)}
	return t.aside(func() error {
		if err := t.exec(quarantineJob, r.seq); err != nil {
			return err
		}
		if err := t.exec(deleteJob, r.seq); err != nil {
			return err
		}
		if _, err := t.enter(&q, addQuarantined, string(q.Kind), q.Name, q.Reason, r.seq); err != nil {
			return err
		}
		if r.State == rows.Active {
			if err := t.freed(&r.Columns); err != nil {
				return err
			}
		}
		if q.State != "" {
			t.count(r.kind(), -1)
			return nil
		}
		// A person has changed its state, and the tally still counts the old one.
		t.moved = nil
		if err := t.exec(clearTally); err != nil {
			return err
		}
		return t.exec(recountTally)
	})
}

// aside runs f, which moves a row. If it fails halfway, the transaction is of no more
// use.
func (t *tx) aside(f func() error) error {
	err := f()
	if err != nil {
		t.broken = err
	}
	return err
}

// enter adds an entry to the quarantine. Listeners hear of it after the commit. It
// reports false if there is no such row.
func (t *tx) enter(q *storage.Quarantined, sql string, args ...any) (bool, error) {
	st := t.query(sql, args...)
	found := st.next()
	if found {
		q.Key, q.At = strconv.FormatInt(st.int64(), 10), time.UnixMilli(st.int64()).UTC()
		t.quarantined = append(t.quarantined, *q)
	}
	return found, st.close()
}

// setAsideUndecodable moves those of jobs that do not decode.
func (t *tx) setAsideUndecodable(list []stored) error {
	for i := range list {
		if _, err := t.decode(&list[i]); err != nil {
			if err := t.setAside(&list[i], err); err != nil {
				return err
			}
		}
	}
	return nil
}

// setAsideImpossible moves jobs that no other statement may meet.
func (t *tx) setAsideImpossible() error {
	list, err := t.query(selectImpossible, maxAside).all()
	if err != nil {
		return err
	}
	return t.setAsideUndecodable(list)
}

// setAsideRead moves jobs that a reader has met, unless they have been mended or moved
// since.
func (s *Storage) setAsideRead(ctx context.Context, seqs []int64) error {
	if len(seqs) == 0 {
		return nil
	}
	return s.write(ctx, func(t *tx) error {
		for _, seq := range seqs {
			list, err := t.query(selectBySeq, seq).all()
			if err == nil {
				err = t.setAsideUndecodable(list)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// named is a row other than a job's that does not decode.
type named struct {
	kind storage.Kind
	name string
	was  any // its version, or the state: it is moved if it still has that
	why  error
}

// setAsideNamed moves recurring entries or states of queues, unless they have changed
// since.
func (s *Storage) setAsideNamed(ctx context.Context, list []named) error {
	if len(list) == 0 {
		return nil
	}
	return s.write(ctx, func(t *tx) error {
		for _, n := range list {
			if err := t.setAsideNamed(n); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *tx) setAsideNamed(n named) error {
	add, remove := addQuarantinedCron, removeCron
	if n.kind == storage.KindQueue {
		add, remove = addQuarantinedQueue, removeQueueState
	}
	return t.aside(func() error {
		q := storage.Quarantined{Kind: n.kind, Name: n.name, Reason: rows.Reason(n.why)}
		if found, err := t.enter(&q, add, n.name, n.was, q.Reason); err != nil || !found {
			return err
		}
		return t.exec(remove, n.name, n.was)
	})
}

// quarantinedJob returns the error for a job that is in the quarantine, nil if none with
// the id is.
func quarantinedJob(conn *zombiezen.Conn, id string) error {
	q := query(conn, selectQuarantinedID, id)
	var err error
	if q.next() {
		err = &ojs.QuarantinedError{Key: strconv.FormatInt(q.int64(), 10), ID: id, Reason: q.text()}
	}
	if closing := q.close(); closing != nil {
		return closing
	}
	return err
}

// Quarantined implements storage.Quarantiner.
func (s *Storage) Quarantined(ctx context.Context, after string, limit int) (list []storage.Quarantined,
	err error) {
	from, limit, err := rows.QuarantinePage(after, limit)
	if err != nil {
		return nil, err
	}
	if err := s.sweep(ctx); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		q := query(conn, selectQuarantined, from, limit)
		for q.next() {
			list = append(list, storage.Quarantined{
				Key: strconv.FormatInt(q.int64(), 10), Kind: storage.Kind(q.text()), Name: q.text(),
				Reason: q.text(), At: time.UnixMilli(q.int64()).UTC(),
				Queue: q.text(), Type: rows.TypeName(q.text()), State: rows.State(q.int()),
			})
		}
		return q.close()
	})
	return list, err
}

// CountQuarantined implements storage.Quarantiner.
func (s *Storage) CountQuarantined(ctx context.Context) (n int, err error) {
	if err := s.sweep(ctx); err != nil {
		return 0, err
	}
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		q := query(conn, countQuarantined)
		if q.next() {
			n = q.int()
		}
		return q.close()
	})
	return n, err
}

// sweep looks for impossible jobs, and moves them if there are any.
func (s *Storage) sweep(ctx context.Context) error {
	some := false
	err := s.read(ctx, func(conn *zombiezen.Conn) error {
		q := query(conn, selectImpossible, 1)
		some = q.next()
		return q.close()
	})
	if err != nil || !some {
		return err
	}
	return s.write(ctx, (*tx).setAsideImpossible)
}

// ReleaseQuarantined implements storage.Quarantiner.
func (s *Storage) ReleaseQuarantined(ctx context.Context, key string) error {
	return s.write(ctx, func(t *tx) error {
		e, err := t.quarantineEntry(key)
		if err != nil {
			return err
		}
		switch e.kind {
		case storage.KindJob:
			return t.releaseJob(e)
		case storage.KindCron:
			return t.releaseCron(e)
		}
		return t.releaseQueue(e)
	})
}

// DeleteQuarantined implements storage.Quarantiner.
func (s *Storage) DeleteQuarantined(ctx context.Context, key string) error {
	return s.write(ctx, func(t *tx) error {
		e, err := t.quarantineEntry(key)
		if err != nil {
			return err
		}
		if e.kind == storage.KindJob {
			if _, err := t.takeLine(e.seq); err != nil {
				return err
			}
			if err := t.exec(deleteLogs, e.seq); err != nil {
				return err
			}
		}
		return t.leave(e)
	})
}

// entry is what the quarantine says of a record.
type entry struct {
	n            int64
	kind         storage.Kind
	name         string
	seq, version int64
	body         []byte
}

func (t *tx) quarantineEntry(key string) (e entry, err error) {
	found := false
	if n, err := strconv.ParseInt(key, 10, 64); err == nil {
		q := t.query(selectQuarantineEntry, n)
		if found = q.next(); found {
			e = entry{n: n, kind: storage.Kind(q.text()), name: q.text(), seq: q.int64(), version: q.int64(),
				body: q.blob()}
		}
		if err := q.close(); err != nil {
			return e, err
		}
	}
	if !found {
		err = fmt.Errorf("%w: %q in the quarantine", ojs.ErrNotFound, key)
	}
	return e, err
}

// leave deletes an entry.
func (t *tx) leave(e entry) error {
	t.written = true
	if e.kind == storage.KindJob {
		if err := t.exec(deleteQuarantinedJob, e.seq); err != nil {
			return err
		}
	}
	return t.exec(deleteQuarantined, e.n)
}

// still refuses a release because of what a record is still.
func (e *entry) still(why error) error {
	return &ojs.QuarantinedError{Key: strconv.FormatInt(e.n, 10), ID: e.name, Reason: rows.Reason(why)}
}

func (t *tx) releaseJob(e entry) error {
	list, err := t.query(selectQuarantinedJob, e.seq).all()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return e.still(fmt.Errorf("its row of quarantined_job is gone"))
	}
	rec, err := rows.Restore(&list[0].Columns)
	if err != nil {
		return e.still(err)
	}
	row, err := encode(&rec)
	if err == nil && row.Version > t.place {
		err = fmt.Errorf("version: %d is above every one that was given, %d", row.Version, t.place)
	}
	if err != nil {
		return e.still(err)
	}
	if h, taken, err := t.head(rec.ID); err != nil {
		return err
	} else if taken {
		return &ojs.DuplicateError{ID: rec.ID, State: rows.State(h.state)}
	}
	row.seq, row.place, row.own = list[0].seq, list[0].place, list[0].own
	if err := t.rest(row.level(), row.seq); err != nil {
		return err
	}
	t.comesBehind()
	if err := t.put(&row); err != nil {
		return err
	}
	if err := t.exec(restoreRest, row.seq); err != nil {
		return err
	}
	return t.leave(e)
}

func (t *tx) releaseCron(e entry) error {
	if _, err := rows.DecodeCron(e.name, e.version, e.body); err != nil {
		return e.still(err)
	}
	if err := t.putNamed(e, releaseCron, e.name, e.version, e.body); err != nil {
		return err
	}
	if t.notice != nil {
		t.notice.Crons = true
	}
	return nil
}

func (t *tx) releaseQueue(e entry) error {
	if state := ojs.QueueState(e.body); !state.Valid() || state == ojs.QueueActive {
		return e.still(rows.NoQueueState(string(e.body)))
	}
	return t.putNamed(e, releaseQueueState, e.name, string(e.body))
}

// putNamed puts back what has a name, unless something else has it now.
func (t *tx) putNamed(e entry, sql string, args ...any) error {
	if err := t.exec(sql, args...); err != nil {
		return err
	}
	if t.conn.Changes() == 0 {
		return &ojs.DuplicateError{ID: e.name}
	}
	t.states = nil
	return t.leave(e)
}
