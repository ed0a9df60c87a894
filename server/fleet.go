package server

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/draft"
)

// A server of a fleet is one front and a server for each cell. The front does what all
// requests have in common, and then calls the route's function:
//
//  1. with itself, for new jobs, whose cells the fleet chooses, and for fetches and
//     queues, which it puts together from those of the cells;
//  2. with the server of one cell: that of the job, of the request's key, or the one that
//     the request names;
//  3. with the server of each cell, for workers and for what is set for all.
//
// rules says which. A route that it does not name serves one cell.

// CellKeys says where requests to a fleet have the key of fleet.WithCell.
type CellKeys struct {
	Header string // of the request, for all its jobs; "": OJS-Cell-Key
	Meta   string // the member of a job's meta, before the header; "": none
}

// WithCellKeys sets where requests to a fleet have the keys of cells. A server of one
// engine reads none.
func WithCellKeys(k CellKeys) Option {
	return func(conf *config) error {
		conf.cellKeys = CellKeys{Header: cmp.Or(k.Header, conf.cellKeys.Header), Meta: k.Meta}
		return nil
	}
}

// front is what the servers of a fleet share.
type front struct {
	whole *Server       // whose engine enqueues in any cell
	cells []*Server     // by name
	next  atomic.Uint32 // counts fetches, which begin with one cell after another

	ofKey func(ctx context.Context, key string) (Engine, error)
	ofJob func(ctx context.Context, id string) (Engine, error)
	at    func(ctx context.Context, partition int) (Engine, error)
}

// anyCell is an engine whose new jobs the fleet places.
type anyCell struct {
	Engine // of a cell
	fleet  ojs.Enqueuer
}

// EnqueueMany stores jobs in one cell, all or none.
func (e anyCell) EnqueueMany(ctx context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error) {
	return e.fleet.EnqueueMany(ctx, drafts...)
}

// NewFleet makes a server for a fleet. It refuses what New refuses. The fleet stays the
// caller's to run.
//
// A new job goes to the cell of its key (WithCellKeys), or else to one that the fleet
// chooses. A request about a job goes to the job's cell, a fetch to all cells. Settings
// are set in all cells. Other requests are for one cell, which they name by the parameter
// "cell" or by a key in the header.
func NewFleet[T any](f *fleet.Fleet[T], opts ...Option) (*Server, error) {
	if f == nil {
		return nil, draft.Invalid("fleet", "is nil: give NewFleet what fleet.New returned")
	}
	conf, err := withDefaults(opts)
	if err != nil {
		return nil, err
	}
	all := &front{
		ofKey: func(ctx context.Context, key string) (Engine, error) { return f.Cell(ctx, key) },
		ofJob: func(ctx context.Context, id string) (Engine, error) { return f.CellOf(ctx, id) },
		at:    func(ctx context.Context, partition int) (Engine, error) { return f.CellAt(ctx, partition) },
	}
	limits := &limiter{conf: conf.limit}
	for name, eng := range f.Engines() {
		cell := newServer(eng, eng, eng.Describe().Storage, conf)
		cell.fleet, cell.name, cell.limiter = all, name, limits
		all.cells = append(all.cells, cell)
	}
	first := all.cells[0]
	conf.noEvents = true
	all.whole = newServer(anyCell{first.eng, f}, first.op, first.can, conf)
	all.whole.fleet, all.whole.limiter = all, limits
	return all.whole, nil
}

// isFront reports whether the server is that of a whole fleet.
func (s *Server) isFront() bool { return s.fleet != nil && s.name == "" }

// rules are the routes that do not serve one cell.
var rules = func() map[string]func(f *front, c *call) error {
	list := make(map[string]func(f *front, c *call) error)
	for _, r := range []struct {
		rule   func(f *front, c *call) error
		routes string
	}{
		{(*front).itself, `POST /jobs, POST /jobs/batch, POST /jobs/bulk, POST /workers/fetch, GET /manifest,
			GET /openapi.json, GET /queues, GET /admin/queues, GET /queues/{name}/stats, GET /admin/stats/history`},
		{(*front).byBody, `POST /workers/ack, POST /workers/nack, POST /workers/progress`},
		{(*front).one, `GET /admin/workers/{id}, DELETE /admin/workers/{id}, GET /workers/{id}/health,
			DELETE /queues/{name}`},
		{(*front).named, `POST /cron, POST /crons, GET /cron/{name}, GET /crons/{name}, PATCH /cron/{name},
			PATCH /crons/{name}, DELETE /cron/{name}, DELETE /crons/{name}`},
		{(*front).workflow, `POST /workflows`},
		{(*front).any, `GET /schemas, GET /schemas/{uri}, GET /admin/schemas,
			GET /admin/schemas/{type}, GET /queues/{name}/config, GET /admin/queues/{name}/rate-limit,
			GET /admin/routing/{type}, GET /admin/system/config, GET /admin/system/maintenance`},
		{(*front).list, `GET /admin/jobs, GET /dead-letter, GET /admin/dead-letter, GET /cron, GET /crons,
			GET /workflows`},
		{(*front).beat, `POST /workers/heartbeat, POST /workers/beat`},
		{(*front).pause, `POST /queues/{name}/pause, POST /queues/{name}/resume`},
		{(*front).health, `GET /health`},
		{(*front).register, `POST /workers/register`},
		{(*front).each, `POST /workers/deregister, POST /admin/workers/{id}/quiet, POST /queues, PUT /queues/{name}/config,
			PUT /admin/queues/{name}/config, POST /admin/queues/{name}/pause, POST /admin/queues/{name}/resume,
			PUT /admin/queues/{name}/rate-limit, DELETE /admin/queues/{name}/rate-limit,
			PUT /rate-limits/{key}, DELETE /rate-limits/{key}/override, POST /schemas, DELETE /schemas/{uri},
			PUT /admin/schemas/{type}/{version}, PUT /admin/routing/{type}, POST /admin/system/maintenance`},
	} {
		for _, name := range strings.Split(r.routes, ",") {
			list[strings.TrimSpace(name)] = r.rule
		}
	}
	return list
}()

// serve calls the function of a request's route.
func (f *front) serve(c *call) error {
	if cell, err := f.asked(c); cell != nil || err != nil {
		if err != nil {
			return err
		}
		return cell.serve(c)
	}
	rule := rules[c.rt.method+" "+c.rt.path]
	switch {
	case rule != nil:
		return rule(f, c)
	case strings.Contains(c.rt.path, "/{id}"):
		return f.byID(c, c.value("id"))
	}
	return f.one(c)
}

// one refuses a request that has to name its cell.
func (f *front) one(*call) error {
	return f.unplaced("this request is for one cell of the fleet: name it by the parameter \"cell\", " +
		"or a key of it in the header " + f.whole.conf.cellKeys.Header)
}

func (f *front) unplaced(message string) *refusal {
	return unsupported("%s", message).with("cells", f.names())
}

func (f *front) names() (list []string) {
	for _, cell := range f.cells {
		list = append(list, cell.name)
	}
	return list
}

// asked returns the cell that a request names; nil: it names none. A key in the header
// names no cell for new jobs, whose key it is, and for what a fleet knows the cell of.
func (f *front) asked(c *call) (*Server, error) {
	cron := strings.HasPrefix(c.rt.path, "/cron") && c.rt.method != http.MethodGet
	if name := c.param("cell"); name != "" {
		i := slices.Index(f.names(), name)
		switch {
		case cron:
			return nil, invalid("cell", "is chosen by the name of a recurring job")
		case i < 0:
			return nil, invalid("cell", "is no cell of the fleet").expected(strings.Join(f.names(), ", ")).
				received(clip(name))
		}
		return f.cells[i], nil
	}
	key := c.r.Header.Get(f.whole.conf.cellKeys.Header)
	known := strings.Contains(c.rt.path, "/{id}") && rules[c.rt.method+" "+c.rt.path] == nil
	if key == "" || cron || known || c.rt.need == permWork ||
		c.rt.need == permEnqueue && c.rt.path != "/workflows" {
		return nil, nil
	}
	return f.keyed(c.ctx, key)
}

// keyed returns the cell of a key.
func (f *front) keyed(ctx context.Context, key string) (*Server, error) {
	eng, err := f.ofKey(ctx, key)
	return f.of(eng), err
}

// of returns the server of an engine; nil: there is none.
func (f *front) of(eng Engine) *Server {
	for _, cell := range f.cells {
		if cell.eng == eng {
			return cell
		}
	}
	return nil
}

// serve answers a request by a cell.
func (s *Server) serve(c *call) error {
	c.s = s
	return c.rt.serve(s, c)
}

// cellPatience is how long a cell may take to answer where others may, and how long one
// that has not is asked last.
const cellPatience = time.Second

// order returns the cells that have not failed lately, and those that have, from one on.
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

// ordered are all cells, those that have failed lately last.
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

// place gives a job the key of its cell. If a cell has been chosen for the request, a key
// of another cell is refused.
func (s *Server) place(w *jobRequest) error {
	if s.fleet == nil {
		return nil
	}
	keys, key := s.conf.cellKeys, ""
	if c := w.in.call; c != nil && c.rt.need != permWork { // or it is an ack's next job
		key = c.r.Header.Get(keys.Header)
	}
	if keys.Meta != "" {
		var o ojs.Options
		o.Apply(w.options...)
		text, ok := o.Meta[keys.Meta].(string)
		if !ok && o.Meta[keys.Meta] != nil {
			return invalid(w.in.path+"meta."+keys.Meta, "is the key of a cell, and no string")
		}
		key = cmp.Or(text, key)
	}
	if key == "" {
		return nil
	}
	w.option(fleet.WithCell(key))
	if s.isFront() {
		return nil
	}
	cell, err := s.fleet.keyed(w.in.ctx(), key)
	if err == nil && cell != s {
		err = s.fleet.unplaced("the job's key is in cell " + cell.name + ", and the request is for cell " +
			s.name)
	}
	return err
}

// near has all jobs of a request that have no key go to one cell: that of the idempotency
// key, or else of the first id. A repeated request finds them there, so that no other
// cell takes them while that one is down. If the jobs are stored apart where they cannot
// be together, the keys of others place none of them.
func (s *Server) near(drafts []ojs.Draft, k *idempotent, apart bool) []ojs.Draft {
	if !s.isFront() {
		return drafts
	}
	partition, ok := 0, k != nil
	if ok {
		partition = fleet.Partition(k.name)
	}
	for _, d := range drafts {
		var o ojs.Options
		o.Apply(d.Options()...)
		if insideOptions.Place(&o).Near > 0 { // for more of them
			return drafts
		}
		if !ok {
			partition, ok = fleet.PartitionOf(o.ID)
		}
	}
	if !ok {
		return drafts
	}
	drafts = slices.Clone(drafts)
	for i := range drafts {
		drafts[i] = drafts[i].With(func(o *ojs.Options) {
			place := insideOptions.Place(o)
			place.Near, place.Apart = partition+1, apart
		})
	}
	return drafts
}

var insideOptions = bridge.Take[bridge.Options[ojs.Options]]()

// home is the server of the cell that has a job.
func (s *Server) home(ctx context.Context, id string) (*Server, error) {
	if !s.isFront() {
		return s, nil
	}
	eng, err := s.fleet.ofJob(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.fleet.of(eng), nil
}

// itself answers by the front.
func (f *front) itself(c *call) error { return f.whole.serve(c) }

// byID answers by the cell of a job. Without the job, any cell says that there is none.
func (f *front) byID(c *call, id string) error {
	if u, err := uuid.Parse(id); err == nil {
		id = u.String()
	}
	cell, err := f.whole.home(c.ctx, id)
	switch {
	case missing(err):
		cell = f.ordered()[0]
	case err != nil:
		return err
	}
	return cell.serve(c)
}

// byBody is byID for a job that the body names.
func (f *front) byBody(c *call) error {
	in := c.in()
	id := cmp.Or(in.text("job_id"), in.text("id"))
	if in.err != nil {
		return in.err
	}
	return f.byID(c, id)
}

// named answers by the cell of a recurring job's name.
func (f *front) named(c *call) error {
	name := c.value("name")
	if name == "" {
		in := c.in()
		if name = in.text("name"); in.err != nil {
			return in.err
		}
	}
	cell, err := f.keyed(c.ctx, name)
	if err != nil {
		return err
	}
	return cell.serve(c)
}

// workflow starts a workflow in the cell of its id, in which a repeated request finds it.
// Without an id any cell that answers will do.
func (f *front) workflow(c *call) error {
	in := c.in()
	id := in.text("id")
	if in.err != nil {
		return in.err
	}
	p, ok := fleet.PartitionOf(id)
	if !ok {
		up, down := f.order(rand.Uint32())
		return f.by(c, append(up, down...)[0])
	}
	eng, err := f.at(c.ctx, p)
	if err != nil {
		return err
	}
	return f.of(eng).serve(c)
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

// fetch takes jobs of all cells. First it asks each in turn. If there is no job, it waits
// for one of any cell. If several cells have one at the same time, it gives back those
// that are too many.
func (f *front) fetch(
	ctx context.Context, c *call, want *wanted, n int, wait time.Duration,
) (ds []delivered, err error) {
	up, down := f.order(f.next.Add(1))
	if len(up) == 0 {
		up = down
	}
	var failed error
	answers := 0
	for _, cell := range up {
		err := cell.within(ctx, func(ctx context.Context) error {
			list, err := cell.takeFor(ctx, c, want, n-len(ds), 0)
			if ds = append(ds, list...); err != nil {
				return c.refusalOf(err)
			}
			return nil
		})
		var r *refusal
		switch {
		case failing(err), errors.As(err, &r) && r.status == http.StatusForbidden: // another's worker there
			failed = err
		case err != nil:
			for _, d := range ds {
				d.giveBack(c, err)
			}
			return nil, err
		default:
			answers++
		}
		if len(ds) == n {
			break
		}
	}
	switch {
	case answers == 0:
		return nil, failed
	case len(ds) > 0 || wait <= 0:
		return ds, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	clock := f.whole.clock
	end := clock.Now().Add(wait)
	defer clock.AfterFunc(wait+cellPatience, cancel).Stop() // a cell may hang
	lists := make([][]delivered, len(f.cells))
	gathered := false
	defer func() {
		for _, d := range slices.Concat(lists...) {
			if !gathered { // a cell has panicked
				d.giveBack(c, errTooMany)
			}
		}
	}()
	f.together(func(i int, cell *Server) {
		for ctx.Err() == nil {
			var err error
			lists[i], err = cell.takeFor(ctx, c, want, n, max(0, clock.Until(end)))
			if len(lists[i]) > 0 {
				cancel()
			}
			if err == nil || !clock.Now().Add(cellPatience).Before(end) {
				return
			}
			again := clock.Timer(cellPatience) // a cell that fails may be back
			select {
			case <-again.C:
			case <-ctx.Done():
			}
			again.Stop()
		}
	})
	ds, gathered = slices.Concat(lists...), true
	for _, d := range ds[min(n, len(ds)):] {
		d.giveBack(c, errTooMany)
	}
	return ds[:min(n, len(ds))], nil
}

var errTooMany = errors.New("ojs: server: several cells have had jobs for one fetch")
