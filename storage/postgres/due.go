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
func (s *Storage) Due(
	ctx context.Context, now time.Time, limit int, buf []storage.Record,
) (d storage.Due, err error) {
	if err := s.enter(ctx); err != nil {
		return d, err
	}
	defer s.mu.RUnlock()
	err = again(func() error {
		d = storage.Due{Promoted: buf[:0]}
		return s.dueAll(ctx, now, min(limit, maxRows), &d)
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
	noteMoved(&n, d.Moved)
	s.tell(ctx, &n)
	return d, nil
}

// dueAll does what is due in as many rounds as it takes. As a rule that is one.
func (s *Storage) dueAll(ctx context.Context, now time.Time, limit int, d *storage.Due) error {
	for {
		n, err := s.due(ctx, now, limit, d)
		if err != nil {
			return halfway(d, now, err)
		}
		if limit -= n; n == 0 || limit <= 0 || d.Next.IsZero() || d.Next.After(now) {
			return nil
		}
	}
}

// heldPause is how soon Due is to be called again for jobs that it has left since other
// transactions hold their rounds.
const heldPause = 100 * time.Millisecond

// due is a round of dueAll. It returns how many jobs it has found due.
func (s *Storage) due(ctx context.Context, now time.Time, limit int, d *storage.Due) (n int, err error) {
	list, err := selectRows(ctx, joining{tuned{s}}, true, s.sql.due, rows.Nanos(now), limit, false)
	held := isCode(err, lockNotAvailable) // the rounds of a queue
	if held {
		list, err = selectRows(ctx, tuned{s}, true, s.sql.due, rows.Nanos(now), limit, true)
	}
	if err != nil {
		return 0, err
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
		o, err := saving(now, expired)
		if err != nil {
			return 0, err
		}
		results := make([]storage.Settled, len(expired))
		if err := s.settleDistinct(ctx, tuned{s}, o, results, retries); err != nil {
			return 0, err
		}
		for i, row := range expired {
			if results[i].Err == nil {
				d.Expired = append(d.Expired, row.Record)
				d.Moved = append(d.Moved, results[i].Moved...)
			}
		}
	}
	if err := s.setAsideRead(ctx, false, met); err != nil {
		return 0, err
	}
	var next *int64
	var some, impossible bool
	err = (tuned{s}).query(ctx, s.sql.nextWake, nil, one(&some, &next, &impossible))
	if err == nil && impossible {
		err = s.sweep(ctx)
	}
	d.Next = time.Time{}
	if next != nil {
		d.Next = rows.Time(*next)
	}
	if held && len(list) < limit && !d.Next.After(now) {
		d.Next = now.Add(heldPause) // what is left waits for rounds
	}
	return len(list), err
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
