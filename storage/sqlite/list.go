package sqlite

import (
	"context"
	"fmt"
	"strconv"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// maxScan bounds the rows that one page looks at, found or not, so that no listing holds
// a reader for long.
const maxScan = 20_000

// Get implements storage.Storage.
func (s *Storage) Get(ctx context.Context, id string) (rec storage.Record, err error) {
	var bad int64
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		list, err := query(conn, selectByID, id).all()
		if err == nil && len(list) == 0 {
			if err := quarantinedJob(conn, id); err != nil {
				return err
			}
			return fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
		}
		if err == nil {
			if rec, err = rows.Decode(&list[0].Columns); err != nil {
				bad, err = list[0].seq, nil
			}
		}
		return err
	})
	if err != nil || bad == 0 {
		return rec, err
	}
	if err := s.setAsideRead(ctx, []int64{bad}); err != nil {
		return storage.Record{}, err
	}
	return s.Get(ctx, id)
}

// List implements storage.Storage.
func (s *Storage) List(ctx context.Context, q storage.Query) (page storage.Page, err error) {
	var after int64
	if q.Cursor != "" {
		after, err = strconv.ParseInt(q.Cursor, 10, 64)
		if err != nil {
			return page, &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "cursor",
				Reason: fmt.Sprintf("%q is not the Next of a page of this storage", q.Cursor)}
		}
	}
	limit := q.Limit
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	sql := listJobs
	if q.DeadLetters {
		sql = listDead
	}
	var bad []int64
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		st := query(conn, sql, after, maxScan+1)
		for scanned := 0; st.next(); scanned++ {
			r := st.row()
			if len(page.Records) == limit || scanned == maxScan {
				page.Next = strconv.FormatInt(after, 10)
				break
			}
			if after = r.seq; q.DeadLetters {
				after = r.place
			}
			rec, err := rows.Decode(&r.Columns)
			if err != nil {
				bad = append(bad, r.seq)
				continue
			}
			if q.Matches(&rec.JobInfo) {
				page.Records = append(page.Records, rec)
			}
		}
		return st.close()
	})
	if err == nil {
		err = s.setAsideRead(ctx, bad)
	}
	return page, err
}

// Counts implements storage.Storage.
func (s *Storage) Counts(ctx context.Context) (counts []storage.Count, err error) {
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		q := query(conn, selectTally)
		for q.next() {
			c := storage.Count{Queue: q.text(), State: rows.State(q.int()), N: q.int()}
			if c.State != "" && c.N > 0 { // others have been changed by hand
				counts = append(counts, c)
			}
		}
		return q.close()
	})
	return counts, err
}
