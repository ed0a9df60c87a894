package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Due implements storage.Storage.
func (s *Storage) Due(ctx context.Context, now time.Time, limit int, buf []storage.Record) (d storage.Due, err error) {
	if err := s.enter(ctx); err != nil {
		return d, err
	}
	defer s.mu.RUnlock()
	err = again(func() error {
		d = storage.Due{Promoted: buf[:0]}
		return s.due(ctx, now, limit, &d)
	})
	if err != nil {
		return storage.Due{}, wrap(err)
	}
	var n storage.Notice
	for i := range d.Stalled {
		taken(&n, d.Stalled[i].ID, int64(d.Stalled[i].Version)-1, ojs.ErrLeaseLost)
	}
	for _, list := range [][]storage.Record{d.Promoted, d.Expired, d.Stalled} {
		for i := range list {
			n.Add(list[i].ID, list[i].State, list[i].WakeAt())
		}
	}
	s.tell(ctx, &n)
	return d, nil
}

func (s *Storage) due(ctx context.Context, now time.Time, limit int, d *storage.Due) error {
	list, err := selectRows(ctx, tuned{s}, true, s.sql.due, rows.Nanos(now), min(limit, maxRows))
	if err != nil {
		return err
	}
	abs := func(n int64) int64 { return max(n, -n) }
	slices.SortFunc(list, func(a, b stored) int { return cmp.Compare(abs(a.ord), abs(b.ord)) })
	var expired []*rows.Row
	var met []bad
	for i := range list {
		row, err := list[i].decode()
		if err == nil && list[i].ord < 0 && row.Deadline().IsZero() {
			err = errors.New("deadline: is set, though the job has none")
		}
		switch {
		case err != nil:
			met = append(met, bad{list[i], err})
		case list[i].ord < 0:
			row.Expire(now)
			expired = append(expired, row)
		case list[i].State == rows.Active:
			d.Stalled = append(d.Stalled, row.Record)
		default:
			d.Promoted = append(d.Promoted, row.Record)
		}
	}
	if len(expired) > 0 {
		// The first statement has released its locks. If a job has changed since, that
		// change wins.
		saved, err := s.save(ctx, tuned{s}, expired)
		if err != nil {
			return halfway(d, now, err)
		}
		for i, row := range expired {
			if saved[i] {
				d.Expired = append(d.Expired, row.Record)
			}
		}
	}
	if err := s.setAsideRead(ctx, false, met); err != nil {
		return halfway(d, now, err)
	}
	var next *int64
	var some, impossible bool
	err = (tuned{s}).query(ctx, s.sql.nextWake, nil, one(&some, &next, &impossible))
	if err == nil && impossible {
		err = s.sweep(ctx)
	}
	if err != nil {
		return halfway(d, now, err)
	}
	if next != nil {
		d.Next = rows.Time(*next)
	}
	return nil
}

// halfway handles a failure after the first statement. If that has returned jobs, halfway
// drops the error: the caller has to know of the changed jobs, and asks again at once for
// the rest.
func halfway(d *storage.Due, now time.Time, err error) error {
	if len(d.Promoted)+len(d.Expired)+len(d.Stalled) == 0 {
		return err
	}
	d.Next = now
	return nil
}
