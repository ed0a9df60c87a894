package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// sayable reports whether a text can be one of the database's. No stored one is any
// other.
func sayable(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// sayables are those of texts that can be.
func sayables(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return !sayable(text) })
}

// maxRows is more rows than any storage has, and a number that every statement takes.
const maxRows = 1 << 30

// maxScan bounds the rows that one page looks at, found or not.
const maxScan = 20_000

// Get implements storage.Storage.
func (s *Storage) Get(ctx context.Context, id string) (storage.Record, error) {
	if err := s.enter(ctx); err != nil {
		return storage.Record{}, err
	}
	defer s.mu.RUnlock()
	if !sayable(id) {
		return storage.Record{}, fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
	}
	list, err := selectRows(ctx, s.in(ctx), false, s.sql.get, id)
	if err != nil {
		return storage.Record{}, wrap(err)
	}
	if len(list) == 0 {
		return storage.Record{}, wrap(s.missing(ctx, id))
	}
	rec, err := rows.Decode(&list[0].Columns)
	if err == nil {
		return rec, nil
	}
	met := []bad{{list[0], err}}
	if err := s.setAsideRead(ctx, false, met); err != nil {
		return storage.Record{}, wrap(err)
	}
	err = s.missing(ctx, id)
	if !errors.Is(err, ojs.ErrQuarantined) && errors.Is(err, ojs.ErrNotFound) { // it could not be moved
		err = &ojs.QuarantinedError{ID: id, Reason: rows.Reason(met[0].why)}
	}
	return storage.Record{}, wrap(err)
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
	if q.Order != storage.OrderOldest {
		return page, fmt.Errorf("%w: storage postgres lists in the order of insertion only, not %q",
			ojs.ErrUnsupported, q.Order)
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
	var some bool
	if err := s.in(ctx).query(ctx, window, []any{after, maxScan}, one(&some, &seen, &last)); err != nil {
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
		queues = sayables(q.Queues)
	}
	most := maxScan
	if q.Where == nil && len(q.Types) == 0 && len(q.ErrorTypes) == 0 && q.CreatedFrom.IsZero() &&
		q.CreatedBefore.IsZero() && q.FinishedFrom.IsZero() && q.FinishedBefore.IsZero() {
		most = limit + 1 // the statement knows all that is asked for; one more tells that there is one
	}
	var met []bad
	err = s.in(ctx).query(ctx, list, []any{after, last, states, queues, most}, func(result rowSet) (err error) {
		page, met, err = readPage(result, &q, limit, most, seen == maxScan, last, after)
		return err
	})
	if page.Next == "" || page.Next == strconv.FormatInt(last, 10) {
		page.Looked = int(seen) // the whole window
	}
	if err == nil {
		err = s.setAsideRead(ctx, false, met)
	}
	return page, wrap(err)
}

// readPage takes the jobs of a window that the query selects, up to the limit, of at most
// so many. More says that there may be others behind the window. Met are jobs that do not
// decode.
func readPage(result rowSet, q *storage.Query, limit, most int, more bool, last, after int64) (page storage.Page, met []bad, err error) {
	sc := newScanner(false)
	scanned := 0
	for ; result.Next(); scanned++ {
		if err := sc.scan(result); err != nil {
			return page, met, err
		}
		page.Looked++
		r := sc.row
		rec, err := rows.Decode(&r.Columns)
		if err != nil {
			met = append(met, bad{r, err})
		} else if q.Matches(&rec) {
			if len(page.Records) == limit {
				page.Next = strconv.FormatInt(after, 10)
				return page, met, nil
			}
			page.Records = append(page.Records, rec)
		}
		if after = r.seq; q.DeadLetters {
			after = r.place
		}
	}
	if scanned == most { // some of which do not decode
		page.Next = strconv.FormatInt(after, 10)
	} else if more {
		page.Next = strconv.FormatInt(last, 10)
	}
	return page, met, result.Err()
}

// Counts implements storage.Storage.
func (s *Storage) Counts(ctx context.Context) (counts []storage.Count, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	var c storage.Count
	var state int16
	var n int64
	err = s.in(ctx).query(ctx, s.sql.counts, nil, each([]any{&c.Queue, &state, &n}, func() {
		if c.State, c.N = rows.State(int(state)), int(n); c.State != "" { // or it is for the quarantine
			counts = append(counts, c)
		}
	}))
	return counts, wrap(err)
}
