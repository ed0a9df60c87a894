package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/storage"
)

// Cell is a storage that is a part of a fleet.
type Cell struct {
	// Name is that of the cell for ever: lower-case letters, digits, '-' and '.', at most
	// 128 characters. It names the engine, too (engine.WithName).
	Name string
	// Store stays yours to close.
	Store storage.Storage
	// Options are those of this cell's engine, after those of New, such as an observer
	// that labels metrics with the cell. They must not change the defaults of jobs: the
	// fleet chooses the cell of a job by the defaults of the first cell, by name.
	Options []engine.Option
}

// Config says what a fleet consists of.
type Config struct {
	// Cells are all cells of the fleet, in any order. A program may name cells that have
	// no partitions yet.
	Cells []Cell

	// Concurrency is how many attempts run at once in this process, over all cells: at
	// least one for each cell that it serves; 0: 10 for each. A cell with nothing to do
	// leaves its share to the others, all but one. It takes the place of
	// engine.WithConcurrency.
	Concurrency int

	// Serve names the cells whose jobs Run runs; nil: all. With an empty list, Run runs
	// none. Enqueues and lookups know all cells. Each cell needs two processes that serve
	// it, so that one may stop.
	Serve []string

	// Key returns the key of jobs without WithCell; "": they have none. Nil: no job has.
	Key func(ojs.Draft) string
}

// Fleet is several engines behind one front, each on a cell. Methods are safe for
// concurrent use. A nil context panics, as in the standard library.
type Fleet[T any] struct {
	atlas  *atlas
	cells  []*cell[T] // sorted by name
	bySite map[*site]*cell[T]
	served []*cell[T]
	total  int // Config.Concurrency
	runs   atomic.Bool
	key    func(ojs.Draft) string
}

var _ ojs.Enqueuer = (*Fleet[any])(nil)

// cell is a cell in this process.
type cell[T any] struct {
	*site
	fleet *Fleet[T]
	eng   *engine.Engine[T]
	slots int // that the engine has, for share

	// Of lookups and enqueues without a key. Times are in nanoseconds since 1970.
	calls    atomic.Int64 // under way
	progress atomic.Int64 // when the cell last answered, or the first of the calls under way began
	down     atomic.Int64 // until when the cell is the last choice, since a call has failed
}

var insideEngines = bridge.Take[bridge.Engines[engine.Option, ojs.Draft, ojs.Options, clock.Clock]]()

// New makes a fleet, with the options for the engine of each cell. It starts nothing and
// calls no storage. A configuration that makes no sense is refused with an
// *ojs.InvalidError, and one that does not fit the stored map by the first call with
// ErrMap.
//
// A source of engine.WithRand serves one engine: give it in Cell.Options.
func New[T any](cfg Config, opts ...engine.Option) (*Fleet[T], error) {
	a, err := newAtlas(cfg.Cells)
	if err != nil {
		return nil, err
	}
	f := &Fleet[T]{atlas: a, bySite: make(map[*site]*cell[T]), key: cfg.Key}
	for _, s := range a.sites {
		c := &cell[T]{site: s, fleet: f}
		f.cells = append(f.cells, c)
		f.bySite[s] = c
		if cfg.Serve == nil || slices.Contains(cfg.Serve, s.name) {
			f.served = append(f.served, c)
		}
	}
	for _, name := range cfg.Serve {
		if a.site(name) == nil {
			return nil, draft.Invalid("serve", "names %q, which is no cell", name)
		}
	}
	if f.total = cfg.Concurrency; f.total == 0 {
		f.total = engine.DefaultConcurrency * len(f.served)
	}
	if f.total < len(f.served) {
		return nil, draft.Invalid("concurrency", "%d is less than the %d cells that are served", f.total,
			len(f.served))
	}
	for i, c := range f.cells {
		if k := slices.Index(f.served, c); k >= 0 {
			c.slots = (k+1)*f.total/len(f.served) - k*f.total/len(f.served)
		}
		all := slices.Concat([]engine.Option{engine.WithName(c.name)}, opts)
		for _, given := range cfg.Cells {
			if given.Name == c.name {
				all = append(all, given.Options...)
			}
		}
		all = append(all, engine.WithConcurrency(max(c.slots, 1)), insideEngines.Partitions(c.pick))
		if c.eng, err = engine.New[T](c.store, all...); err != nil {
			return nil, fmt.Errorf("ojs: cell %s: %w", c.name, err)
		}
		if i == 0 {
			a.clock = insideEngines.Clock(c.eng)
		}
	}
	return f, nil
}

// pick chooses one of the cell's partitions for a job without a key.
func (c *cell[T]) pick(random uint64) int {
	chart := c.fleet.atlas.chart.Load()
	if chart == nil || len(chart.of[c.site]) == 0 {
		return 0
	}
	partitions := chart.of[c.site]
	return partitions[random%uint64(len(partitions))] + 1
}

// Handle runs jobs of the type with f, in every cell, as Engine.Handle does.
func (f *Fleet[T]) Handle(jobType string, h handler.Func[T], opts ...handler.Option) {
	f.Register(handler.For(ojs.Define[T](jobType), h, opts...))
}

// Register adds handlers made by handler.For to the engine of every cell, as
// Engine.Register does.
func (f *Fleet[T]) Register(handlers ...handler.Handler) {
	for _, c := range f.cells {
		c.eng.Register(handlers...)
	}
}

var scratch = sync.Pool{New: func() any { return new(ojs.Options) }}

// given returns the partition of the options' own key. It reports false if they have
// none, or an id, or name other jobs.
func given(opts []ojs.Option) (partition int, ok bool) {
	o := scratch.Get().(*ojs.Options)
	defer func() {
		*o = ojs.Options{}
		scratch.Put(o)
	}()
	o.Apply(opts...)
	place := insideOptions.Place(o)
	return place.Partition - 1, place.Key != "" && (o.ID == "" || place.Near > 0) && len(o.DependsOn) == 0
}

// near returns the partition that a request has chosen for jobs without a key; below 0:
// none.
func near(opts []ojs.Option) (partition int) {
	var o ojs.Options
	o.Apply(opts...)
	return insideOptions.Place(&o).Near - 1
}

// Enqueue stores a job, in the cell of its key if it has one (see the package). Its
// errors are those of Engine.Enqueue, ErrCells, ErrMap and ErrMoving. A context that
// carries a transaction is refused with ojs.ErrUnsupported: use the engine of the cell.
func (f *Fleet[T]) Enqueue(
	ctx context.Context, jobType string, args T, opts ...ojs.Option,
) (ojs.Ticket, error) {
	if partition, ok := given(opts); ok && storage.Tx(ctx) == nil {
		c, err := f.at(ctx, partition, new(time.Duration))
		if err != nil {
			return ojs.Ticket{}, err
		}
		return c.eng.Enqueue(ctx, jobType, args, opts...)
	}
	tickets, err := f.EnqueueMany(ctx, ojs.NewDraft(jobType, args, opts...))
	switch {
	case err != nil:
		return ojs.Ticket{}, err
	case tickets[0].Dropped:
		return ojs.Ticket{}, ojs.ErrDropped
	}
	return tickets[0], nil
}

// EnqueueMany stores jobs of any types in one cell, all or none, as Engine.EnqueueMany
// does. If their keys lie in different cells, it fails with ErrCells: make a call for
// each engine that Cell returns for them.
func (f *Fleet[T]) EnqueueMany(ctx context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error) {
	if len(drafts) == 0 {
		return nil, ctx.Err()
	}
	if storage.Tx(ctx) != nil {
		return nil, fmt.Errorf("%w: the context carries a transaction, which is one cell's: use Fleet.Cell",
			ojs.ErrUnsupported)
	}
	drafts = slices.Clone(drafts)
	var c *cell[T]
	for waited, before := time.Duration(0), time.Duration(-1); waited > before; {
		before = waited
		var err error
		c, err = f.place(ctx, drafts, &waited)
		// During a wait for one partition, another one may have moved: place them anew.
		if err != nil && (waited == before || !errors.Is(err, ErrCells)) {
			return nil, err
		}
	}
	if p := near(drafts[0].Options()); c == nil && p >= 0 {
		var err error
		if c, err = f.at(ctx, p, new(time.Duration)); err != nil {
			return nil, err
		}
	}
	if c != nil {
		return c.eng.EnqueueMany(ctx, drafts...)
	}
	cells, err := f.healthy(ctx)
	if err != nil {
		return nil, err
	}
	for i, d := range drafts {
		drafts[i] = d.With(withNewID(insideEngines.NewID(cells[0].eng, 0)))
	}
	var errs []error
	for _, c := range cells {
		tickets, err := c.tryEnqueue(ctx, drafts)
		if err == nil || refuses(err) && !full(err) || ctx.Err() != nil {
			return tickets, err
		}
		errs = append(errs, fmt.Errorf("ojs: cell %s: %w", c.name, err))
	}
	return nil, errors.Join(errs...)
}

const (
	downTime = time.Second // for which a cell is the last choice after a call that failed
	slowTime = time.Second // after which a call without an answer makes it the last choice
)

// call calls the storage of the cell, and notes whether the cell has answered. An answer
// is an error about the jobs, too.
func (c *cell[T]) call(ctx context.Context, storage func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.calls.Add(1) == 1 {
		c.progress.Store(c.now())
	}
	defer c.calls.Add(-1)
	err := storage()
	switch {
	case err == nil || refuses(err) || stored.Missing(err):
		c.progress.Store(c.now())
	case ctx.Err() == nil || ctx.Err() == context.DeadlineExceeded:
		c.down.Store(c.now() + int64(downTime))
	}
	return err
}

func (c *cell[T]) now() int64 { return c.fleet.atlas.clock.Now().UnixNano() }

// silent reports whether the cell does not answer, as far as known.
func (c *cell[T]) silent() bool {
	now := c.now()
	return now < c.down.Load() || c.calls.Load() > 0 && now-c.progress.Load() > int64(slowTime)
}

// tryEnqueue enqueues jobs that may go elsewhere.
func (c *cell[T]) tryEnqueue(ctx context.Context, drafts []ojs.Draft) (tickets []ojs.Ticket, err error) {
	err = c.call(ctx, func() error {
		own, err := c.fleet.atlas.fresh(ctx, c.site) // the storage may be that of another cell
		if err != nil {
			return err
		}
		if len(own.chart.of[c.site]) == 0 {
			return fmt.Errorf("%w: cell %s has no partition that a move does not hold", ErrMoving, c.name)
		}
		tickets, err = c.eng.EnqueueMany(ctx, drafts...)
		return err
	})
	return tickets, err
}

// refuses reports whether an error is about the jobs. All but full queues refuse them in
// each cell.
func refuses(err error) bool { return insideEngines.Refused(err) }

// full reports whether a queue of a cell takes no more jobs.
func full(err error) bool {
	return errors.Is(err, ojs.ErrQueueFull) || errors.Is(err, ojs.ErrQueueDraining)
}

// healthy returns the cells that have partitions, those first that answer. Of two random
// ones, the one with fewer calls under way is the first.
func (f *Fleet[T]) healthy(ctx context.Context) (list []*cell[T], err error) {
	chart, err := f.atlas.known(ctx)
	if err != nil {
		return nil, err
	}
	var last []*cell[T]
	for _, i := range rand.Perm(len(f.cells)) {
		c := f.cells[i]
		switch {
		case len(chart.of[c.site]) == 0:
		case c.silent():
			last = append(last, c)
		default:
			list = append(list, c)
		}
	}
	if len(list) > 1 && list[1].calls.Load() < list[0].calls.Load() {
		list[0], list[1] = list[1], list[0]
	}
	if list = append(list, last...); len(list) == 0 {
		return nil, fmt.Errorf("%w: a strict move holds every partition", ErrMoving)
	}
	return list, nil
}

// at returns the cell that has a partition. It adds to waited how long it has waited for
// a strict move.
func (f *Fleet[T]) at(ctx context.Context, partition int, waited *time.Duration) (*cell[T], error) {
	s, err := f.atlas.locate(ctx, partition, waited)
	if err != nil {
		return nil, err
	}
	return f.bySite[s], nil
}

// Cell returns the engine of the cell of a key, with everything that engines have:
// workflows, limits, transactions, operators' calls. All that is enqueued there stays in
// the cell, even with keys and ids of other cells. Get, Wait and Cancel of the fleet find
// it. A move changes the answer: ask for the engine before each use. A strict move waits
// for the jobs of this engine that were given WithCell, and delays no enqueue of it.
func (f *Fleet[T]) Cell(ctx context.Context, key string) (*engine.Engine[T], error) {
	return f.CellAt(ctx, Partition(key))
}

// Cron gives access to the recurring jobs of the cell of a name, which is that of the
// entry. After a move that is the new cell, and the entry is in the old one.
func (f *Fleet[T]) Cron(ctx context.Context, name string) (*cron.Entries, error) {
	eng, err := f.Cell(ctx, name)
	if err != nil {
		return nil, err
	}
	return eng.Cron(), nil
}

// Engines returns the engine of each cell, by the names of the cells: for a dashboard,
// for metrics, for health checks. Do not call their SetConcurrency: Run shares
// Config.Concurrency between them, and would count by numbers of its own.
func (f *Fleet[T]) Engines() iter.Seq2[string, *engine.Engine[T]] {
	return func(yield func(string, *engine.Engine[T]) bool) {
		for _, c := range f.cells {
			if !yield(c.name, c.eng) {
				return
			}
		}
	}
}

// Map reads the map of the fleet from its first cell. If there is none, it makes the map.
func (f *Fleet[T]) Map(ctx context.Context) (*Map, error) {
	newest, err := f.atlas.known(ctx)
	if err != nil {
		return nil, err
	}
	first := newest.sites[0]
	own, err := f.atlas.read(ctx, first, first.copied.Load())
	if err != nil {
		return nil, fmt.Errorf("ojs: cell %s: %w", first.name, err)
	}
	return own.chart.Map, nil
}

// find returns the cell that has a job, and the job. It asks the cell of the id's
// partition first, and cells that do not answer last.
func (f *Fleet[T]) find(ctx context.Context, id string) (*cell[T], *ojs.JobInfo, error) {
	chart, err := f.atlas.known(ctx)
	if err != nil {
		return nil, nil, err
	}
	cells, last := make([]*cell[T], 0, len(f.cells)), []*cell[T](nil)
	p, ok := PartitionOf(id)
	for _, c := range f.cells {
		switch {
		case c.silent():
			last = append(last, c)
		case ok && chart.sites[p] == c.site:
			cells = slices.Insert(cells, 0, c)
		default:
			cells = append(cells, c)
		}
	}
	var missing error
	var errs []error
	for _, c := range append(cells, last...) {
		var job *ojs.JobInfo
		err := c.call(ctx, func() (err error) {
			job, err = c.eng.Get(ctx, id)
			return err
		})
		switch {
		case err == nil:
			return c, job, nil
		case !stored.Missing(err):
			errs = append(errs, fmt.Errorf("ojs: cell %s: %w", c.name, err))
		case missing == nil:
			missing = err
		}
	}
	if len(errs) > 0 { // it may be there
		return nil, nil, errors.Join(errs...)
	}
	return nil, nil, missing
}

// CellAt returns the engine of the cell that has a partition, from 0 to 4095.
func (f *Fleet[T]) CellAt(ctx context.Context, partition int) (*engine.Engine[T], error) {
	c, err := f.at(ctx, partition, new(time.Duration))
	if err != nil {
		return nil, err
	}
	return c.eng, nil
}

// CellOf returns the engine of the cell that has a job. Its errors are those of Get.
func (f *Fleet[T]) CellOf(ctx context.Context, id string) (*engine.Engine[T], error) {
	c, _, err := f.find(ctx, id)
	if err != nil {
		return nil, err
	}
	return c.eng, nil
}

// Get looks a job up. It returns ojs.ErrNotFound if no cell has one with the id. While a
// cell does not answer, a job that the others do not have is an error of that cell.
func (f *Fleet[T]) Get(ctx context.Context, id string) (*ojs.JobInfo, error) {
	_, job, err := f.find(ctx, id)
	return job, err
}

// Wait blocks until the job has ended or ctx has, as Engine.Wait does.
func (f *Fleet[T]) Wait(ctx context.Context, id string) (*ojs.JobInfo, error) {
	c, _, err := f.find(ctx, id)
	if err != nil {
		return nil, err
	}
	return c.eng.Wait(ctx, id)
}

// Cancel ends a job that waits or runs, as Engine.Cancel does.
func (f *Fleet[T]) Cancel(ctx context.Context, id string) error {
	c, _, err := f.find(ctx, id)
	if err != nil {
		return err
	}
	return c.eng.Cancel(ctx, id)
}
