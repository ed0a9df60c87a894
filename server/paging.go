package server

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
)

// paging is which page of a list a request asks for, in either style (F104, F105, F175).
type paging struct {
	limit, offset int
	cursor        string // where the page before ended, in the terms of the list; "": by offset
	paged         bool   // page or per_page is asked
}

// paging reads limit, offset, cursor, page and per_page.
func (c *call) paging() (p paging, err error) {
	p.paged = c.param("page") != "" || c.param("per_page") != "" || c.admin()
	if c.param("limit") != "" || c.param("cursor") != "" || c.param("offset") != "" {
		p.paged = c.param("page") != "" || c.param("per_page") != ""
	}
	if p.paged {
		if p.limit, err = c.number("per_page", 20, 1, 100); err != nil {
			return p, err
		}
		page, err := c.number("page", 1, 1, 1<<31)
		p.offset = (page - 1) * p.limit
		return p, err
	}
	if p.limit, err = c.number("limit", 50, 1, 200); err != nil {
		return p, err
	}
	if p.offset, err = c.number("offset", 0, 0, 1<<31); err != nil {
		return p, err
	}
	if token := c.param("cursor"); token != "" {
		plain, err := base64.RawURLEncoding.DecodeString(token)
		at, cursor, ok := strings.Cut(string(plain), "~")
		if err == nil && ok {
			p.offset, err = strconv.Atoi(at)
		}
		if err != nil || !ok || p.offset < 0 || cursor == "" {
			return p, wrongCursor()
		}
		p.cursor = cursor
	}
	return p, nil
}

// answer makes the list of an answer: its name, its elements and the pagination. next is
// where the page ends in the terms of the list, "" if it is the last.
func (p *paging) answer(name string, list any, n, total int, next string) obj {
	o := obj{name, list}
	if p.paged && name != "items" {
		o = append(o, "items", list)
	}
	page := obj{"total", total, "limit", p.limit, "offset", p.offset, "page", p.offset/p.limit + 1,
		"per_page", p.limit, "has_more", next != ""}
	if next != "" {
		page = append(page, "next_cursor",
			base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(p.offset+n)+"~"+next)))
	}
	return append(o, "total", total, "pagination", page)
}

// pageOf cuts the page out of a whole list that is sorted by key. It returns the key with
// which the page ends, "" if it is the last.
func pageOf[E any](p *paging, list []E, key func(*E) string) (page []E, next string) {
	from := min(p.offset, len(list))
	if p.cursor != "" {
		from, _ = slices.BinarySearchFunc(list, p.cursor, func(e E, after string) int {
			return cmp.Or(strings.Compare(key(&e), after), -1)
		})
	}
	to := min(from+p.limit, len(list))
	if to < len(list) && to > from {
		next = key(&list[to-1])
	}
	return list[from:to], next
}

// jobPage reads a page of the jobs of a filter. total is how many there are, as far as a
// bounded look tells.
func (s *Server) jobPage(
	c *call, p *paging, f inspect.Filter,
) (recs []storage.Record, total int, next string, err error) {
	q, err := f.Query()
	if err != nil {
		return nil, 0, "", err
	}
	jobs := s.op.Jobs()
	q.Cursor = p.cursor
	for skip := p.offset; p.cursor == "" && skip > 0; {
		q.Limit = min(skip, 1000)
		page, err := jobs.RecordPage(c.ctx, &f, q)
		if err != nil {
			return nil, 0, "", err
		}
		skip -= len(page.Records)
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if p.cursor != "" || p.offset == 0 || q.Cursor != "" {
		for {
			q.Limit = p.limit - len(recs)
			page, err := jobs.RecordPage(c.ctx, &f, q)
			if err != nil {
				return nil, 0, "", badCursor(err)
			}
			recs = append(recs, page.Records...)
			q.Cursor = page.Next
			if q.Cursor == "" || len(recs) == p.limit {
				break
			}
		}
		next = q.Cursor
	}
	if next != "" { // a storage may name a next page that is empty
		q.Limit = 1
		for q.Cursor != "" {
			page, err := jobs.RecordPage(c.ctx, &f, q)
			if err != nil {
				return nil, 0, "", err
			}
			if len(page.Records) > 0 {
				break
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				next = ""
			}
		}
	}
	n, err := jobs.Count(c.ctx, f, 0)
	return recs, max(n.N, p.offset+len(recs)), next, err
}

// badCursor says that a cursor is none of the list.
func badCursor(err error) error {
	if _, ok := err.(*ojs.InvalidError); ok {
		return wrongCursor()
	}
	return err
}

func wrongCursor() error {
	return invalid("cursor", "is none of this list").expected("next_cursor of a page")
}

// jobList encodes a list of jobs.
func jobList(recs []storage.Record) []raw {
	list := make([]raw, len(recs))
	for i := range recs {
		list[i] = appendJob(nil, &recs[i])
	}
	return list
}

// timeRange is where the times since and until of a filter belong. They choose dead
// letters by their deaths (F085), and other jobs by when they were made.
func (c *call) timeRange(f *inspect.Filter) (since, until *time.Time) {
	if strings.HasPrefix(c.rt.path, "/dead-letter") {
		return &f.FinishedFrom, &f.FinishedBefore
	}
	return &f.CreatedFrom, &f.CreatedBefore
}

// jobFilter reads the filter of a list of jobs from the query: queue, type, state, since,
// until (F085, F143).
func (c *call) jobFilter() (f inspect.Filter, err error) {
	f.Order = inspect.OrderNewest
	for name, to := range map[string]*[]string{"queue": &f.Queues, "type": &f.Types,
		"error_type": &f.ErrorTypes} {
		if v := c.param(name); v != "" {
			*to = strings.Split(v, ",")
		}
	}
	if v := c.param("state"); v != "" {
		for _, name := range strings.Split(v, ",") {
			state := ojs.State(name)
			if !state.Valid() {
				return f, invalid("state", "is no state of a job").received(clip(name))
			}
			f.States = append(f.States, state)
		}
	}
	since, until := c.timeRange(&f)
	if *since, err = c.moment("since"); err != nil {
		return f, err
	}
	if *until, err = c.moment("until"); err != nil {
		return f, err
	}
	f.Queues, err = c.narrow(f.Queues)
	return f, err
}
