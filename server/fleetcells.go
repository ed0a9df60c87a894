package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs/engine/fetch"
)

// cellPatience is how long a cell may take to answer while others may answer, and for how
// long a cell that has not answered comes last.
const cellPatience = time.Second

// order splits the cells by whether a call has failed lately. first is the number of the
// cell that comes first in its list.
func (f *front) order(first uint32) (up, down []*Server) {
	now, n := f.whole.clock.Now().UnixNano(), uint32(len(f.cells))
	for i := range n {
		cell := f.cells[(first%n+i)%n]
		if now < cell.down.Load() {
			down = append(down, cell)
		} else {
			up = append(up, cell)
		}
	}
	return up, down
}

// ordered returns all cells. Cells that have failed lately come last.
func (f *front) ordered() []*Server {
	up, down := f.order(0)
	return append(up, down...)
}

// failing reports whether an error is the storage's.
func failing(err error) bool {
	var r *refusal
	return err != nil && (!errors.As(err, &r) || r.status >= http.StatusInternalServerError)
}

// within calls a function of a cell that may take cellPatience, and notes whether the
// cell has failed.
func (s *Server) within(ctx context.Context, use func(ctx context.Context) error) error {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.clock.AfterFunc(cellPatience, cancel).Stop()
	err := use(limited)
	if failing(err) && ctx.Err() == nil {
		s.failed()
	}
	return err
}

// failed has a cell asked last for a while.
func (s *Server) failed() { s.down.Store(s.clock.Now().Add(cellPatience).UnixNano()) }

// common reads what is set in all cells from one that answers. A server that is no front
// reads it from its storage.
func common[T any](
	ctx context.Context, s *Server, read func(context.Context, *Server) (T, error),
) (v T, err error) {
	if !s.isFront() {
		return read(ctx, s)
	}
	for _, cell := range s.fleet.ordered() {
		err = cell.within(ctx, func(ctx context.Context) error {
			v, err = read(ctx, cell)
			return err
		})
		if !failing(err) {
			break
		}
	}
	return v, err
}

// gathered reads something from each cell. A server that is no front reads it from its
// storage. It fails if a cell does: a sum that lacks a part would be wrong.
func gathered[T any](
	ctx context.Context, s *Server, read func(context.Context, *Server) ([]T, error),
) ([]T, error) {
	if !s.isFront() {
		return read(ctx, s)
	}
	lists, errs := make([][]T, len(s.fleet.cells)), make([]error, len(s.fleet.cells))
	s.fleet.together(func(i int, cell *Server) {
		errs[i] = cell.within(ctx, func(ctx context.Context) (err error) {
			lists[i], err = read(ctx, cell)
			return err
		})
	})
	return slices.Concat(lists...), errors.Join(errs...)
}

// together calls a function for all cells at once. It panics if one has.
func (f *front) together(use func(i int, cell *Server)) {
	var calls sync.WaitGroup
	var panicked atomic.Pointer[any]
	for i, cell := range f.cells {
		calls.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panicked.Store(&p)
				}
			}()
			use(i, cell)
		})
	}
	calls.Wait()
	if p := panicked.Load(); p != nil {
		panic(*p)
	}
}

// any answers by a cell that has answered lately.
func (f *front) any(c *call) error { return f.by(c, f.ordered()[0]) }

// by answers by a cell, and notes whether it has failed. A cell that only reads has
// limited time.
func (f *front) by(c *call, cell *Server) error {
	serve := func(ctx context.Context) error {
		defer func(whole context.Context) { c.ctx = whole }(c.ctx)
		c.ctx = ctx
		if err := cell.serve(c); err != nil {
			return c.refusalOf(err)
		}
		return nil
	}
	if c.rt.method == http.MethodGet {
		return cell.within(c.ctx, serve)
	}
	err := serve(c.ctx)
	if failing(err) && c.ctx.Err() == nil {
		cell.failed()
	}
	return err
}

// list answers with a page of the lists of the cells, one after the other. Its cursor is
// the name of a cell, and the cursor there.
func (f *front) list(c *call) error {
	if c.param("page") != "" || c.param("per_page") != "" || c.param("offset") != "" {
		return f.unplaced("a list of all cells has no numbered pages: go on with its next_cursor, or name " +
			"a cell by the parameter \"cell\"")
	}
	i, token := 0, c.query.Get("cursor")
	at := strings.LastIndexByte(token, '.') // names of cells may have some, cursors have none
	if token != "" {
		if i = slices.Index(f.names(), token[:max(at, 0)]); i < 0 {
			return invalid("cursor", "is none of this list").expected("next_cursor of a page")
		}
	}
	cursor := token[at+1:]
	if c.query.Del("cursor"); cursor != "" {
		c.query.Set("cursor", cursor)
	}
	answer := &recorder{ResponseWriter: c.w}
	if err := func() error {
		defer func(w http.ResponseWriter) { c.w = w }(c.w) // if it panics, too
		c.w = answer
		return f.cells[i].serve(c)
	}(); err != nil {
		return err
	}
	whole, err := split(answer.body.Bytes(), "")
	if err != nil {
		return err
	}
	page, err := split(whole.get("pagination"), "")
	if err != nil {
		return err
	}
	next := ""
	if v := page.get("next_cursor"); v != nil {
		decodeText(v, &next)
		next = f.cells[i].name + "." + next
	} else if i+1 < len(f.cells) {
		next = f.cells[i+1].name + "."
	}
	if next != "" {
		page = page.set("has_more", raw("true")).set("next_cursor", appendString(nil, next))
	}
	return c.replyJSON(answer.status, whole.set("pagination", page.appendJSON(nil)).appendJSON(nil))
}

// answered is what a cell has answered.
type answered struct {
	cell   *Server
	status int
	body   object // nil: err is set
	err    *refusal

	location string // the header
}

// headers keeps the headers of an answer, and nothing else.
type headers http.Header

// Header, Write and WriteHeader make it an http.ResponseWriter.
func (h headers) Header() http.Header         { return http.Header(h) }
func (h headers) Write(b []byte) (int, error) { return len(b), nil }
func (h headers) WriteHeader(int)             {}

// ask makes the request in every cell at once. A cell may have limited time.
func (f *front) ask(c *call, limited bool) []answered {
	list := make([]answered, len(f.cells))
	c.param("") // reads the query, for all
	f.together(func(i int, cell *Server) {
		header := make(headers)
		at := &recorder{ResponseWriter: header}
		one := &call{s: cell, w: at, r: c.r, ctx: c.ctx, id: c.id, who: c.who, rt: c.rt,
			body: slices.Clone(c.body), sent: c.sent, query: c.query}
		defer func() {
			if p := recover(); p != nil {
				cell.panicked(one, p)
				failed := unavailable(http.StatusInternalServerError, "the server has failed", nil)
				list[i] = answered{cell: cell, err: failed}
			}
		}()
		serve := func(ctx context.Context) error {
			one.ctx = ctx
			return one.rt.serve(cell, one)
		}
		var err error
		if limited {
			err = cell.within(c.ctx, serve)
		} else {
			err = serve(c.ctx)
		}
		list[i] = answered{cell: cell, status: at.status, location: http.Header(header).Get("Location")}
		if err == nil && at.body.Len() > 0 {
			list[i].body, err = split(at.body.Bytes(), "")
		}
		if err != nil {
			list[i].err = one.refusalOf(err)
		}
	})
	return list
}

// all makes a change in every cell, and returns the answer of one. A cell that does not
// have the thing is no failure if another has it. If a cell fails, the refusal says which
// cells have changed.
func (f *front) all(c *call) (first answered, err error) {
	var refused *refusal
	var failed, done []string
	for _, a := range f.ask(c, false) {
		switch {
		case a.err == nil:
			first = a
			done = append(done, a.cell.name)
		case refused == nil || a.err.status != http.StatusNotFound:
			if refused = a.err; a.err.status != http.StatusNotFound {
				failed = append(failed, a.cell.name)
			}
		}
	}
	if refused == nil || len(done) > 0 && len(failed) == 0 {
		return first, nil
	}
	if len(done) == 0 {
		return first, refused
	}
	if len(failed) > 0 {
		refused.message += ": cell " + strings.Join(failed, ", ") + " has not changed, and " +
			strings.Join(done, ", ") + " has"
	}
	return first, refused.with("failed", failed).with("changed", done)
}

// each makes a change in every cell, and answers as one of them.
func (f *front) each(c *call) error {
	a, err := f.all(c)
	if err != nil {
		return err
	}
	if a.location != "" {
		c.w.Header().Set("Location", a.location)
	}
	return c.replyJSON(a.status, a.body.appendJSON(c.buf[:0]))
}

// register registers a worker in all cells that answer: it is new in the others when it
// beats.
func (f *front) register(c *call) error {
	var failed *refusal
	for _, a := range f.ask(c, true) {
		if a.err == nil {
			return c.replyJSON(a.status, a.body.appendJSON(c.buf[:0]))
		}
		failed = a.err
	}
	return failed
}

// pause pauses or resumes a queue in every cell, and answers with its counts in all.
func (f *front) pause(c *call) error {
	a, err := f.all(c)
	if err != nil {
		return err
	}
	q, err := f.whole.findQueue(c)
	if err != nil {
		return err
	}
	var at obj
	for _, name := range []string{"paused_at", "resumed_at"} {
		at = at.opt(name, raw(a.body.get(name)))
	}
	return f.whole.stats(c, &q, at...)
}

// beat sends a heartbeat to all cells. A job is lost if every cell that answers says so
// and no cell fails: it may be in that one.
func (f *front) beat(c *call) error {
	var first object
	var failed *refusal
	extended, state := []string{}, ""
	lost := make(map[string]bool)
	for _, a := range f.ask(c, true) {
		if a.err != nil {
			if failed = a.err; !failing(a.err) {
				return a.err
			}
			continue
		}
		in := input{object: a.body}
		extended = append(extended, in.texts("jobs_extended")...)
		for _, id := range in.texts("jobs_lost") {
			lost[id] = true
		}
		if word := in.text("state"); first == nil || severe(word) > severe(state) {
			first, state = a.body, word
		}
	}
	if first == nil {
		return failed
	}
	for _, id := range extended {
		delete(lost, id)
	}
	if failed != nil {
		clear(lost)
	}
	asked := c.in().listed()
	gone := []string{}
	for _, id := range asked {
		if lost[id] {
			gone = append(gone, id)
		}
	}
	first = first.set("jobs_extended", appendValue(nil, extended)).set("jobs_lost", appendValue(nil, gone))
	return c.replyJSON(http.StatusOK, first.appendJSON(c.buf[:0]))
}

func severe(state string) int {
	return slices.Index([]string{string(fetch.Running), string(fetch.Quiet), string(fetch.Terminate)}, state)
}

// health answers for all cells: it is ok if all are, and fails if none answers.
func (f *front) health(c *call) error {
	var cells obj
	var best answered
	whole := true
	for _, a := range f.ask(c, true) {
		word := "ok"
		if a.err != nil || a.status != http.StatusOK {
			word, whole = "degraded", false
		}
		if cells = append(cells, a.cell.name, word); best.cell == nil || word == "ok" {
			best = a
		}
	}
	if best.err != nil {
		return best.err
	}
	if !whole {
		best.body = best.body.set("status", raw(`"degraded"`))
	}
	return c.replyJSON(best.status, best.body.set("cells", appendValue(nil, cells)).appendJSON(c.buf[:0]))
}
