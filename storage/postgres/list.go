package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// maxScan bounds the rows that one page looks at, found or not.
const maxScan = 20_000

// Get implements storage.Storage.
func (s *Storage) Get(ctx context.Context, id string) (storage.Record, error) {
	if err := s.enter(ctx); err != nil {
		return storage.Record{}, err
	}
	defer s.mu.RUnlock()
	list, err := selectRows(ctx, s.in(ctx), false, s.sql.get, id)
	if err != nil {
		return storage.Record{}, wrap(err)
	}
	if len(list) == 0 {
		return storage.Record{}, fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
	}
	return rows.Decode(&list[0].Columns)
}

// List implements storage.Storage.
func (s *Storage) List(ctx context.Context, q storage.Query) (page storage.Page, err error) {
	var after int64
	if q.Cursor != "" {
		after, err = strconv.ParseInt(q.Cursor, 10, 64)
		if err != nil {
			return page, &ojs.InvalidError{Code: ojs.CodeOptionInvalid, Field: "cursor", Reason: fmt.Sprintf("%q is none of this storage's", q.Cursor)}
		}
	}
	if err := s.enter(ctx); err != nil {
		return page, err
	}
	defer s.mu.RUnlock()
	limit := q.Limit
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	window, list := s.sql.window, s.sql.list
	if q.DeadLetters {
		window, list = s.sql.windowDead, s.sql.listDead
	}
	var seen, last int64
	if err := s.in(ctx).QueryRow(ctx, window, after, maxScan).Scan(&seen, &last); err != nil {
		return page, wrap(err)
	}
	if seen == 0 {
		return page, nil
	}
	var states []int16 // nil: all
	for _, code := range rows.Codes(q.States) {
		states = append(states, int16(code))
	}
	var queues []string // nil: all
	if len(q.Queues) > 0 {
		queues = q.Queues
	}
	result, err := s.in(ctx).Query(ctx, list, after, last, states, queues)
	if err != nil {
		return page, wrap(err)
	}
	return s.page(result, &q, limit, seen == maxScan, last, after)
}

// page takes the jobs of a window that the query selects, up to the limit. More says that there may be others behind the window.
func (s *Storage) page(result pgx.Rows, q *storage.Query, limit int, more bool, last, after int64) (page storage.Page, err error) {
	defer result.Close()
	sc := newScanner(false)
	for result.Next() {
		r, err := sc.scan(result)
		if err != nil {
			return page, wrap(err)
		}
		rec, err := rows.Decode(&r.Columns)
		if err != nil {
			return page, err
		}
		if q.Matches(&rec.JobInfo) {
			if len(page.Records) == limit {
				page.Next = strconv.FormatInt(after, 10)
				return page, nil
			}
			page.Records = append(page.Records, rec)
		}
		if after = r.seq; q.DeadLetters {
			after = r.place
		}
	}
	if more {
		page.Next = strconv.FormatInt(last, 10)
	}
	return page, wrap(result.Err())
}

// Counts implements storage.Storage.
func (s *Storage) Counts(ctx context.Context) (counts []storage.Count, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	result, err := s.in(ctx).Query(ctx, s.sql.counts)
	if err != nil {
		return nil, wrap(err)
	}
	var c storage.Count
	var state int16
	var n int64
	_, err = pgx.ForEachRow(result, []any{&c.Queue, &state, &n}, func() error {
		c.State, c.N = rows.State(int(state)), int(n)
		counts = append(counts, c)
		return nil
	})
	return counts, wrap(err)
}
