package sqlite

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Settle implements storage.Storage.
func (s *Storage) Settle(ctx context.Context, _ time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	encoded := make([]stored, len(changes))
	for i := range changes {
		rec := changes[i].Record
		rec.Version++
		var err error
		if encoded[i], err = encode(&rec); err != nil {
			return dst, err
		}
	}
	results := make([]storage.Settled, len(changes))
	err := s.write(ctx, func(t *tx) (err error) {
		for i := range encoded {
			if results[i], err = t.settle(&encoded[i], changes[i].AttemptFieldsOnly); err != nil {
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

func (t *tx) settle(r *stored, sameJob bool) (storage.Settled, error) {
	h, ok, err := t.head(r.ID)
	switch {
	case err != nil:
		return storage.Settled{}, err
	case !ok || rows.State(h.state) == "" || h.version > t.place: // which will be set aside
		return storage.Settled{Err: ojs.ErrNotFound}, nil
	case h.version != r.Version-1:
		return storage.Settled{Version: uint64(h.version), Err: storage.ErrFenced}, nil
	case !rows.Settles(h.state, r.State):
		refused := &ojs.TransitionError{ID: r.ID, From: rows.State(h.state), To: rows.State(r.State)}
		return storage.Settled{Version: uint64(h.version), Err: refused}, nil
	}
	if h.state == rows.Active && r.State == rows.Cancelled {
		t.taken(r.ID, h.version, ojs.ErrCancelled)
	}
	r.seq, r.place = h.seq, h.place
	if !(h.state == rows.Available && r.State == h.state && h.queue == r.Queue && h.priority == r.Priority) {
		r.place = t.nextPlace()
	}
	return storage.Settled{Version: uint64(r.Version)}, t.save(h.kind, r, !sameJob)
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
				x.Progress, []byte(x.Checkpoint), t.nextPlace())
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
