package server

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/stored"
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
			GET /openapi.json, GET /queues, GET /admin/queues, GET /queues/{name},
			GET /queues/{name}/stats, GET /admin/stats/history`},
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
			PUT /rate-limits/{key}, PUT /rate-limits/{key}/override, DELETE /rate-limits/{key}/override,
			POST /schemas, DELETE /schemas/{uri},
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

// cell gives a job the key of its cell. If a cell has been chosen for the request, a key
// of another cell is refused.
func (w *jobRequest) cell() error {
	s := w.s
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
	case stored.Missing(err):
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
	p, ok := fleet.PartitionOf(c.in().text("id"))
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
