package sqlite

import (
	"cmp"
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
)

// Settle implements storage.Storage.
func (s *Storage) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	if err := storage.CheckThen(changes); err != nil {
		return dst, err
	}
	encoded := make([]stored, len(changes))
	for i := range changes {
		var err error
		if encoded[i], err = encodeNext(&changes[i].Record); err != nil {
			return dst, err
		}
		if then := changes[i].Then; insert.Check(then, nil) == nil {
			for k := range then { // or a record that does not encode would be found too late
				if _, err := encode(&then[k].Record); err != nil {
					return dst, err
				}
			}
		}
	}
	results := make([]storage.Settled, len(changes))
	err := s.write(ctx, func(t *tx) (err error) {
		for i := range encoded {
			c := &changes[i]
			if len(c.Then) > 0 {
				results[i], err = t.settleThen(now, &encoded[i], c)
			} else {
				results[i], err = t.settle(now, &encoded[i], c.AttemptFieldsOnly)
			}
			if err == nil && c.Log != nil && results[i].Err == nil {
				err = t.addLog(encoded[i].seq, results[i].Version, c.Log)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return dst, err
	}
	return append(dst, results...), nil
}

// SettleAndClaim implements storage.SettleClaimer.
func (s *Storage) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record,
	dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	encoded := make([]stored, len(to))
	for i := range to {
		var err error
		if encoded[i], err = encodeNext(to[i]); err != nil {
			return dst, 0, err
		}
	}
	c.Max = len(into)
	results := make([]storage.Settled, len(to))
	var claimed []storage.Record
	err := s.write(ctx, func(t *tx) (err error) {
		for i := range encoded {
			if results[i], err = t.settle(now, &encoded[i], true); err != nil {
				return err
			}
		}
		claimed, err = t.claim(rows.Nanos(now), &c, true)
		return err
	})
	if err != nil {
		return dst, 0, err
	}
	for i := range claimed {
		*into[i] = claimed[i]
	}
	return append(dst, results...), len(claimed), nil
}

// Unclaim implements storage.SettleClaimer.
func (s *Storage) Unclaim(ctx context.Context, _ time.Time, held []storage.Held) (n int, err error) {
	err = s.write(ctx, func(t *tx) error {
		n = 0
		for _, h := range held {
			undone, err := t.unclaim(h)
			if err != nil {
				return err
			}
			if undone {
				n++
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// unclaim undoes a claim. It reports false if the claim is not there.
func (t *tx) unclaim(held storage.Held) (bool, error) {
	list, err := t.query(selectByID, held.ID).all()
	if err != nil || len(list) == 0 {
		return false, err
	}
	if was := &list[0]; was.State != rows.Active || uint64(was.Version) != held.Version {
		return false, nil
	}
	row, err := t.decode(&list[0])
	if err != nil {
		return false, t.setAside(&list[0], err)
	}
	q := t.query(selectReadyPlace, row.Seq)
	place := int64(rows.None)
	if q.next() {
		place = q.time()
	}
	if err := q.close(); err != nil {
		return false, err
	}
	if place == rows.None {
		place = t.nextPlace()
	}
	if err := t.takeBack(&list[0]); err != nil {
		return false, err
	}
	if err := t.rest(list[0].level(), row.Seq); err != nil {
		return false, err
	}
	row.Unclaim()
	r, err := encode(&row.Record)
	if err != nil {
		return false, err
	}
	r.seq, r.place = row.Seq, place
	t.comesBehind() // its place is not behind all others
	return true, t.save(list[0].kind(), &r, false)
}

// encodeNext returns the row of a record that is to be stored under the next version.
func encodeNext(r *storage.Record) (stored, error) {
	rec := *r
	rec.Version++
	return encode(&rec)
}

// settle makes a change of a job.
func (t *tx) settle(now time.Time, r *stored, sameJob bool) (settled storage.Settled, err error) {
	h, refused, err := t.settles(r)
	if err != nil || refused.Err != nil {
		return refused, err
	}
	settled.Version = uint64(r.Version)
	if err = t.change(h, r, sameJob); err == nil {
		settled.Moved, err = t.countEnds(now, nil)
	}
	return settled, err
}

// settleThen makes a change and stores what follows it, or does neither.
func (t *tx) settleThen(now time.Time, r *stored, c *storage.Change) (settled storage.Settled, err error) {
	var h head
	ended := c.Record
	ended.Version++
	err = t.around(func() error {
		if h, settled, err = t.settles(r); err != nil || settled.Err != nil {
			return err
		}
		change := func() error { return t.change(h, r, true) }
		settled.Version = uint64(r.Version)
		settled.Then, err = insert.Then(inserter{t}, now, &ended, change, c.Then)
		if err == nil {
			last := &settled.Then[len(settled.Then)-1]
			settled.Moved, last.Moved = last.Moved, nil
		}
		return err
	})
	if insert.Refused(err) {
		return storage.Settled{Version: uint64(h.version), Err: err}, nil
	}
	return settled, err
}

// settles finds the job of a change, or says why the change is refused.
func (t *tx) settles(r *stored) (h head, refused storage.Settled, err error) {
	h, ok, err := t.head(r.ID)
	switch {
	case err != nil:
	case !ok || rows.State(h.state) == "" || h.version > t.place: // which will be set aside
		refused = storage.Settled{Err: ojs.ErrNotFound}
	case h.version != r.Version-1:
		refused = storage.Settled{Version: uint64(h.version), Err: storage.ErrFenced}
	case !rows.Settles(h.state, r.State):
		bad := &ojs.TransitionError{ID: r.ID, From: rows.State(h.state), To: rows.State(r.State)}
		refused = storage.Settled{Version: uint64(h.version), Err: bad}
	}
	return h, refused, err
}

// change makes a change that settles allows.
func (t *tx) change(h head, r *stored, sameJob bool) error {
	if h.state == rows.Active && r.State == rows.Cancelled {
		t.taken(r.ID, h.version, ojs.ErrCancelled)
	}
	r.seq, r.place, r.own = h.seq, h.place, h.own
	sameKey := h.fairKey == r.FairKey
	if !(h.state == rows.Available && r.State == h.state && h.queue == r.Queue &&
		h.priority == r.Priority && sameKey) {
		if err := t.enterPlace(r); err != nil {
			return err
		}
	}
	claims := h.state == rows.Available && r.State == rows.Active
	if claims {
		r.own = h.own
		if !sameKey { // Unclaim gives it a round of its own
			h.place = max(h.place, h.own)
			r.own = h.place
		}
	}
	err := t.save(h.kind, r, !sameJob)
	t.ends(h, r.ID, r.State)
	if err == nil && h.awaited && h.state == rows.Pending && r.State != h.state {
		err = t.exec(takeTurn, h.seq)
	}
	if err == nil && claims {
		err = t.exec(setReadyPlace, h.seq, h.place)
	}
	return err
}

// Extend implements storage.Storage.
func (s *Storage) Extend(ctx context.Context, now time.Time, extensions []storage.Extension) (lost []string,
	err error) {
	err = s.write(ctx, func(t *tx) error {
		lost = nil
		for i := range extensions {
			x := &extensions[i]
			t.written = true
			err := t.exec(extendLease, x.ID, int64(x.Version), rows.Nanos(now),
				x.Progress, []byte(x.Checkpoint), t.nextPlace(),
				int64(ojs.DefaultLease), int64(cmp.Or(x.Lease, ojs.DefaultLease)))
			if err != nil {
				return err
			}
			if t.conn.Changes() == 0 {
				lost = append(lost, x.ID)
			}
		}
		return nil
	})
	return lost, err
}
