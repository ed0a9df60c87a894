package sqlite

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Due implements storage.Storage.
func (s *Storage) Due(ctx context.Context, now time.Time, limit int,
	buf []storage.Record) (storage.Due, error) {
	var d storage.Due
	err := s.write(ctx, func(t *tx) (err error) {
		d, err = t.due(now, limit, buf)
		return err
	})
	return d, err
}

func (t *tx) due(now time.Time, limit int, buf []storage.Record) (d storage.Due, err error) {
	d.Promoted = buf[:0]
	list, err := t.query(selectDue, rows.Nanos(now), limit).all()
	if err != nil {
		return d, err
	}
	for i := 0; i < len(list); i++ {
		limit--
		row, err := t.decode(&list[i])
		if err != nil {
			if err := t.setAside(&list[i], err); err != nil {
				return d, err
			}
			continue
		}
		into := &d.Promoted
		switch {
		case row.Expired(now):
			row.Expire(now)
			into = &d.Expired
		case row.State == ojs.StateActive:
			t.taken(row.ID, int64(row.Version), ojs.ErrLeaseLost)
			if row.LeaseUntil.After(now) { // see bury
				d.Ended = append(d.Ended, row.ID)
			}
			row.TakeOver(now)
			into = &d.Stalled
		default:
			row.Promote(now)
		}
		if err := t.saveAttempt(list[i].kind(), row); err != nil {
			return d, err
		}
		if row.State == ojs.StateActive { // the caller's now
			if err := t.exec(setHolder, row.Seq, t.holder); err != nil {
				return d, err
			}
		}
		*into = append(*into, row.Record)
		if row.State.Terminal() && list[i].awaited {
			t.toCount = append(t.toCount, dependency{row.Seq, row.ID, row.State})
			if d.Moved, err = t.countEnds(now, d.Moved); err != nil {
				return d, err
			}
			// That may have changed the rest of the list.
			if list, err = t.query(selectDue, rows.Nanos(now), limit).all(); err != nil {
				return d, err
			}
			i = -1
		}
	}
	if err := t.setAsideImpossible(); err != nil {
		return d, err
	}
	q := t.query(nextWake)
	if q.next() {
		d.Next = rows.Time(q.int64())
	}
	return d, q.close()
}
