package memory

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

const (
	maxPage = 1000
	// A page ends after looking at this many jobs even if it is not full, so that a
	// listing which matches few of very many does not hold up the others.
	maxLook = 4096
)

// List implements storage.Storage.
func (s *Storage) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	var after uint64
	if q.Cursor != "" {
		n, err := strconv.ParseUint(q.Cursor, 10, 64)
		if err != nil {
			return storage.Page{}, &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "cursor",
				Reason: fmt.Sprintf("%q is not the Next of a page of this storage", q.Cursor)}
		}
		after = n
	}
	if err := s.enter(ctx); err != nil {
		return storage.Page{}, err
	}
	defer s.leave()
	limit := q.Limit
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	x := &s.all
	if q.DeadLetters {
		x = &s.dead
	}
	var page storage.Page
	looked := 0
	x.from(after, func(e entry) bool {
		if len(page.Records) == limit || looked == maxLook {
			page.Next = strconv.FormatUint(after, 10)
			return false
		}
		looked++
		after = e.ord
		if e.job != nil {
			if r := e.job.record(); q.Matches(&r.JobInfo) {
				page.Records = append(page.Records, r)
			}
		}
		return true
	})
	return page, nil
}
