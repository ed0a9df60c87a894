package sqlite

import (
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// bindRow binds the columns of a job, as the constant columns names them.
func (s *statement) bindRow(r *stored) {
	if s.err != nil {
		return
	}
	b := s.stmt
	b.BindInt64(1, r.seq)
	b.BindInt64(2, r.place)
	b.BindText(3, r.ID)
	b.BindText(4, r.Queue)
	b.BindText(5, r.Type)
	b.BindInt64(6, int64(r.State))
	b.BindInt64(7, int64(r.Priority))
	b.BindInt64(8, int64(r.Attempt))
	b.BindInt64(9, r.Version)
	for i, ns := range []int64{
		r.Wake, r.Deadline, r.Created, r.Enqueued, r.Started, r.NextRetry, r.Finished, r.Dead, r.LeaseUntil,
	} {
		s.nanos(10+i, ns)
	}
	b.BindInt64(19, r.Lease)
	b.BindFloat(20, r.Progress)
	b.BindText(21, r.Worker)
	s.optional(22, r.Fingerprint)
	s.optional(23, r.RateKey)
	s.bytes(24, r.Args)
	s.bytes(25, r.Job)
	s.bytes(26, r.Outcome)
	s.bytes(27, r.Checkpoint)
	s.nanos(28, r.kept)
	s.optional(29, r.Bounds)
	s.optional(30, r.FairKey)
	s.bind(31, r.own)
}

// encode returns the row of a record, but for its seq and its places.
func encode(rec *storage.Record) (stored, error) {
	c, err := rows.Encode(rec)
	r := stored{kept: rows.None, Columns: c}
	if rows.Terminal(c.State) {
		r.kept = rows.Nanos(rec.KeptUntil())
	}
	return r, err
}

// add stores a new job.
func (t *tx) add(r *stored) error {
	r.seq = t.nextSeq()
	if err := t.enterPlace(r); err != nil {
		return err
	}
	return t.put(r)
}

// put stores a job that is not stored, with its seq and places.
func (t *tx) put(r *stored) error {
	t.written = true
	q := t.query(insertJob)
	q.bindRow(r)
	q.next()
	if err := q.close(); err != nil {
		return err
	}
	t.count(r.kind(), 1)
	t.note(&r.Columns)
	return nil
}

// save replaces a stored job, all of it or what attempts change.
func (t *tx) save(before kind, r *stored, all bool) error {
	t.written = true
	t.coversVersion(r.Version)
	var q *statement
	if all {
		q = t.query(updateJob)
		q.bindRow(r)
	} else {
		q = t.query(updateAttempt, r.seq, r.place, r.State, r.Attempt, r.Version)
		for i, ns := range []int64{r.Wake, r.Enqueued, r.Started, r.NextRetry, r.Finished, r.Dead,
			r.LeaseUntil, r.Deadline} {
			if q.err == nil {
				q.nanos(6+i, ns)
			}
		}
		q.bind(14, r.Progress)
		q.bind(15, r.Worker)
		if q.err == nil {
			q.bytes(16, r.Outcome)
			q.bytes(17, r.Checkpoint)
			q.nanos(18, r.kept)
		}
	}
	q.next()
	if err := q.close(); err != nil {
		return err
	}
	if !all && r.own != 0 && r.State == rows.Available {
		if err := t.exec(setOwnPlace, r.seq, r.own); err != nil {
			return err
		}
	}
	if all && before.state == rows.Available && r.State == rows.Available {
		t.comesBehind() // it may have another type, key or deadline in the same place
	}
	t.move(before, r.kind())
	t.note(&r.Columns)
	if before.state == rows.Active && r.State != rows.Active {
		return t.freed(&r.Columns)
	}
	return nil
}

func (t *tx) move(from, to kind) {
	if from != to {
		t.count(from, -1)
		t.count(to, 1)
	}
}

// saveAttempt replaces a stored job by what time has made of it, in a new place.
func (t *tx) saveAttempt(before kind, row *rows.Row) error { return t.saveRow(before, row, false) }

// saveMoved is saveAttempt for a job that waited for others, whose move may give it other
// times.
func (t *tx) saveMoved(before kind, row *rows.Row) error {
	return t.saveRow(before, row, row.Retimed())
}

func (t *tx) saveRow(before kind, row *rows.Row, all bool) error {
	r, err := encode(&row.Record)
	if err != nil {
		return err
	}
	r.seq = row.Seq
	if err := t.enterPlace(&r); err != nil {
		return err
	}
	return t.save(before, &r, all)
}

// head is what a change has to know of a stored job.
type head struct {
	seq, place int64
	version    int64
	priority   int
	awaited    bool // other jobs may wait for it
	fairKey    string
	own        int64 // own_place
	kind
}

func (t *tx) head(id string) (h head, ok bool, err error) {
	q := t.query(selectHead, id)
	if ok = q.next(); ok {
		h.seq, h.place = q.int64(), q.int64()
		h.state, h.version = q.int(), q.int64()
		h.queue, h.priority = q.text(), q.int()
		h.dead, h.kept = q.time() != rows.None, q.time() != rows.None
		h.awaited = q.int() != 0
		h.fairKey, h.own = q.text(), q.int64()
	}
	return h, ok, q.close()
}

// remove deletes a stored job.
func (t *tx) remove(seq int64, k kind) error {
	t.written = true
	t.count(k, -1)
	if err := t.exec(deleteLogs, seq); err != nil {
		return err
	}
	return t.exec(deleteJob, seq)
}

// queueStates returns the states of the queues that have one. They do not change during
// the transaction.
func (t *tx) queueStates() (map[string]string, error) {
	if t.states != nil {
		return t.states, nil
	}
	states := make(map[string]string)
	q := t.query(selectQueueStates)
	for q.next() {
		name := q.text()
		states[name] = q.text()
	}
	if err := q.close(); err != nil {
		return nil, err
	}
	t.states = states
	return states, nil
}
