package sqlite

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Settle implements storage.Storage.
func (s *Storage) Settle(ctx context.Context, _ time.Time, changes []storage.Change, dst []storage.Settled) ([]storage.Settled, error) {
	encoded := make([]rows.Columns, len(changes))
	for i := range changes {
		rec := changes[i].Record
		rec.Version++
		var err error
		if encoded[i], err = rows.Encode(&rec); err != nil {
			return dst, err
		}
	}
	results := make([]storage.Settled, len(changes))
	err := s.write(ctx, func(t *tx) (err error) {
		for i := range encoded {
			if results[i], err = t.settle(&encoded[i], changes[i].SameJob); err != nil {
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

func (t *tx) settle(c *rows.Columns, sameJob bool) (storage.Settled, error) {
	h, ok, err := t.head(c.ID)
	switch {
	case err != nil:
		return storage.Settled{}, err
	case !ok:
		return storage.Settled{Err: ojs.ErrNotFound}, nil
	case h.version != c.Version-1:
		return storage.Settled{Version: uint64(h.version), Err: storage.ErrFenced}, nil
	case rows.From(c.State)>>h.state&1 == 0:
		refused := &ojs.TransitionError{ID: c.ID, From: rows.State(h.state), To: rows.State(c.State)}
		return storage.Settled{Version: uint64(h.version), Err: refused}, nil
	}
	if h.state == rows.Active && c.State == rows.Cancelled {
		t.taken(c.ID, h.version, ojs.ErrCancelled)
	}
	r := stored{h.seq, h.place, *c}
	if !(h.state == rows.Available && c.State == h.state && h.queue == c.Queue && h.priority == c.Priority) {
		r.place = t.nextPlace()
	}
	return storage.Settled{Version: uint64(c.Version)}, t.save(h.kind, &r, !sameJob)
}

// Extend implements storage.Storage.
func (s *Storage) Extend(ctx context.Context, now time.Time, extensions []storage.Extension) (lost []string, err error) {
	err = s.write(ctx, func(t *tx) error {
		lost = nil
		for i := range extensions {
			x := &extensions[i]
			t.written = true
			if err := t.exec(extendLease, x.ID, int64(x.Version), rows.Nanos(now), x.Progress, []byte(x.Checkpoint), t.nextPlace()); err != nil {
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
