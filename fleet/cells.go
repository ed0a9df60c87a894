package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/following"
	"github.com/ojsengine/ojs/storage"
)

// Cells shows and changes the map of a fleet. It needs no engine. It is safe for
// concurrent use.
type Cells struct{ atlas *atlas }

// Open gives access to the map of the fleet that the cells are, by the clock of their
// engines; clock.New() is the wall clock. It calls no storage. Options of the cells do
// not matter.
func Open(c clock.Clock, cells ...Cell) (*Cells, error) {
	a, err := newAtlas(cells)
	if err != nil {
		return nil, err
	}
	a.clock = following.IfWall(c, a.sites[0].store)
	return &Cells{a}, nil
}

// Map returns the map as its first cell has it. If the fleet has none, it makes the
// first.
func (c *Cells) Map(ctx context.Context) (*Map, error) {
	own, err := c.atlas.decider(ctx)
	if err != nil {
		return nil, err
	}
	return own.chart.Map, nil
}

// DefaultCallTime is the CallTime of a Move without one.
const DefaultCallTime = 30 * time.Second

// Move moves partitions to another cell.
type Move struct {
	Partitions []int // from 0 to 4095
	To         string

	// Strict keeps what holds for the jobs of a key: that equal jobs do not coexist, the
	// order, the limits. Enqueues of the partitions wait, 30 s at most, until every job
	// of them that was enqueued before has ended, or waits for its time and is moved.
	// Without Strict, jobs in the new cell run beside those left in the old one.
	Strict bool

	// CallTime is how long an enqueue of a program may take from its look at the map to
	// its end; 0: 30 s. A strict move waits for 10 s more than that before it looks for
	// the jobs. An enqueue that waits for room in a full queue counts as one.
	CallTime time.Duration
}

// Move makes a move, and returns how many jobs it has moved. From its first step on, new
// jobs of the partitions go to the new cell, or wait. Jobs that wait for their time, and
// recurring jobs by the partitions of their names, move along. All others stay where they
// are and run there: those that are available, active or retryable, that wait for others
// or for their turn, that are steps of workflows. A job that waits for its time stays,
// too, if a job that waits for others was created after it, since it may be one of these.
//
// A move that fails, or whose program dies, may be repeated. If ctx ends before a strict
// move has found every job ended, the partitions stay in their cells. A fleet has one
// strict move at a time; another one fails with ErrMoving.
//
// Jobs that have ended stay in their cells, and keep no equal ones out. Starts
// that a rate counts are not counted in the new cell. A recurring job that is due in the
// moment of its move may run in both cells.
func (c *Cells) Move(ctx context.Context, m Move) (jobs int, err error) {
	a := c.atlas
	if a.site(m.To) == nil {
		return 0, draft.Invalid("to", "%q is no cell", m.To)
	}
	if len(m.Partitions) == 0 || slices.Min(m.Partitions) < 0 || slices.Max(m.Partitions) >= Partitions {
		return 0, draft.Invalid("partitions", "are none, or not all from 0 to %d", Partitions-1)
	}
	if m.CallTime < 0 {
		return 0, draft.Invalid("call_time", "%v is negative", m.CallTime)
	}
	if m.CallTime == 0 {
		m.CallTime = DefaultCallTime
	}
	own, err := a.decider(ctx)
	if err != nil {
		return 0, err
	}
	v := &move{atlas: a, to: a.site(m.To), partitions: make(map[int]bool)}
	if _, err := a.renew(ctx, v.to); err != nil { // a new cell gets its copy while it has no partitions
		return 0, err
	}
	sources := make(map[*site][]int)
	for _, p := range m.Partitions {
		v.partitions[p] = true
		if s := own.chart.sites[p]; s != v.to {
			sources[s] = append(sources[s], p)
		}
	}
	if m.Strict {
		for s, partitions := range sources {
			slices.Sort(partitions)
			n, err := v.strictly(ctx, s, slices.Compact(partitions), m.CallTime)
			if jobs += n; err != nil {
				return jobs, err
			}
		}
		return jobs, nil
	}
	err = a.decide(ctx, func(next *Map) error {
		for _, p := range m.Partitions {
			if slices.Contains(next.held, p) {
				return fmt.Errorf("%w: partition %d moves to cell %s", ErrMoving, p, next.to)
			}
			next.owners[p] = m.To
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	var errs []error
	_, err = a.renew(ctx, v.to)
	errs = append(errs, err)
	for _, s := range a.sites {
		// A repeated move finds its partitions moved: their jobs may be anywhere.
		if len(sources) > 0 && sources[s] == nil || s == v.to {
			continue
		}
		n, err := v.carry(ctx, s)
		if jobs += n; err != nil {
			errs = append(errs, fmt.Errorf("ojs: cell %s: %w", s.name, err))
		}
	}
	return jobs, errors.Join(errs...)
}

// move is a move under way.
type move struct {
	*atlas
	to         *site
	partitions map[int]bool
}

// strictly moves the partitions of one cell:
//
//  1. The map holds them, and the cell has it.
//  2. No process has an older copy, and no call that began by one goes on.
//  3. All jobs that do not move have ended.
//  4. The others are moved.
//  5. The map gives the partitions to the new cell.
func (v *move) strictly(ctx context.Context, from *site, partitions []int, calls time.Duration) (
	jobs int, err error) {
	err = v.decide(ctx, func(next *Map) error {
		if len(next.held) > 0 && (next.to != v.to.name || !slices.Equal(next.held, partitions)) {
			return fmt.Errorf("%w: another strict move, to cell %s, is under way", ErrMoving, next.to)
		}
		next.held, next.to = partitions, v.to.name
		return nil
	})
	if err != nil {
		return 0, err
	}
	defer func() {
		if err == nil {
			return
		}
		undo := v.decide(context.WithoutCancel(ctx), func(next *Map) error {
			next.held, next.to = nil, ""
			return nil
		})
		if undo != nil {
			err = fmt.Errorf("%w; the partitions are held until the move is repeated: %w", err, undo)
		}
	}()
	if _, err := v.renew(ctx, from); err != nil {
		return 0, err
	}
	if err := v.sleep(ctx, trust+calls); err != nil {
		return 0, err
	}
	for wait := heldPoll; ; wait = min(2*wait, 5*time.Second) {
		movable, staying, err := v.list(ctx, from)
		if err == nil && staying > 0 {
			if err = v.sleep(ctx, wait); err != nil {
				err = fmt.Errorf("ojs: cell %s has %d jobs of the partitions that have not ended: %w",
					from.name, staying, err)
			}
		} else if err == nil && len(movable) > 0 {
			var n int
			n, err = v.carry(ctx, from)
			if jobs += n; n == 0 && err == nil {
				err = v.sleep(ctx, wait)
			}
		} else if err == nil {
			break
		}
		if err != nil {
			return jobs, err
		}
	}
	if err := v.carryCrons(ctx, from); err != nil {
		return jobs, err
	}
	err = v.decide(ctx, func(next *Map) error {
		if !slices.Equal(next.held, partitions) {
			return fmt.Errorf("%w: another program has ended this move", ErrMoving)
		}
		for _, p := range partitions {
			next.owners[p] = v.to.name
		}
		next.held, next.to = nil, ""
		return nil
	})
	if err == nil {
		_, err = v.renew(ctx, from)
	}
	if err == nil {
		_, err = v.renew(ctx, v.to)
	}
	return jobs, err
}

// renew reads the copy of a site, and so brings it up to date with the newest chart.
func (a *atlas) renew(ctx context.Context, s *site) (*copied, error) {
	newest, err := a.known(ctx)
	for err == nil {
		var c *copied // another caller may have read the copy before the chart was new
		if c, err = a.read(ctx, s, s.copied.Load()); err == nil && c.chart.Version >= newest.Version {
			return c, nil
		}
	}
	return nil, fmt.Errorf("ojs: cell %s: %w", s.name, err)
}

// decider reads the copy of the cell that decides which map is the next.
func (a *atlas) decider(ctx context.Context) (*copied, error) {
	for {
		newest, err := a.known(ctx)
		if err != nil {
			return nil, err
		}
		first := a.site(newest.Cells()[0])
		own, err := a.renew(ctx, first)
		if err != nil || own.chart.Cells()[0] == first.name {
			return own, err
		}
	}
}

// decide makes the next version of the map.
func (a *atlas) decide(ctx context.Context, change func(next *Map) error) error {
	for {
		own, err := a.decider(ctx)
		if err != nil {
			return err
		}
		next := own.chart.next()
		if err := change(next); err != nil {
			return err
		}
		version, err := a.site(own.chart.Cells()[0]).put(ctx, own.version, next)
		if err != nil {
			return err
		}
		if version > 0 {
			_, err = a.offer(next)
			return err
		}
	}
}

// metaMoved is the meta of a job that a move is about to delete, since it is stored in
// another cell: the time that it waited for.
const metaMoved = "ojs.fleet_moved"

// parked is the time of such a job until then.
var parked = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// list returns the jobs of the partitions in a site that can be moved, and how many of
// the others have not ended.
func (v *move) list(ctx context.Context, from *site) (movable []storage.Record, staying int, err error) {
	var waits time.Time // when the last job that waits for others was created
	states := []ojs.State{ojs.StateAvailable, ojs.StateActive, ojs.StateRetryable, ojs.StateScheduled,
		ojs.StatePending}
	q := storage.Query{States: states, Where: func(r *storage.Record) bool {
		if d := r.Dependencies; r.State == ojs.StatePending && d != nil && r.CreatedAt.After(waits) {
			if d.Unfinished > 1 || d.Unfinished == 1 && !d.InLine {
				waits = r.CreatedAt
			}
		}
		p, ok := PartitionOf(r.ID)
		return ok && v.partitions[p]
	}}
	for {
		page, err := from.store.List(ctx, q)
		if err != nil {
			return nil, 0, err
		}
		for _, r := range page.Records {
			if r.State == ojs.StateScheduled && r.Dependencies == nil && r.Keeper() == "" {
				movable = append(movable, r)
			} else {
				staying++
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	all := len(movable)
	movable = slices.DeleteFunc(movable, func(r storage.Record) bool { return !r.CreatedAt.After(waits) })
	return movable, staying + all - len(movable), nil
}

// batch is how many jobs move at once.
const batch = 100

// carry moves the jobs of the partitions that can be, and the recurring jobs.
func (v *move) carry(ctx context.Context, from *site) (jobs int, err error) {
	movable, _, err := v.list(ctx, from)
	for part := range slices.Chunk(movable, batch) {
		if err != nil {
			return jobs, err
		}
		var n int
		n, err = v.carryJobs(ctx, from, part)
		jobs += n
	}
	if err == nil {
		err = v.carryCrons(ctx, from)
	}
	return jobs, err
}

// carryJobs moves jobs that wait for their time. A job that is found parked was left by a
// move that had died.
//
//  1. The old cell parks them: they are due in the year 9999.
//  2. The new cell stores them.
//  3. The old cell cancels and deletes them.
//
// Each step of the old cell is fenced by the version of the job. So a job runs in one
// cell.
func (v *move) carryJobs(ctx context.Context, from *site, jobs []storage.Record) (int, error) {
	now := v.clock.Now()
	given := make([]storage.Record, len(jobs)) // as the new cell gets them
	park := make([]storage.Change, len(jobs))
	for i := range jobs {
		given[i], park[i].Record = jobs[i].Copy(), jobs[i].Copy()
		if text, ok := given[i].Meta[metaMoved].(string); ok {
			given[i].ScheduledAt, _ = time.Parse(time.RFC3339Nano, text)
			delete(given[i].Meta, metaMoved)
		}
		r := &park[i].Record
		if r.Meta == nil {
			r.Meta = make(map[string]any)
		}
		r.Meta[metaMoved] = given[i].ScheduledAt.Format(time.RFC3339Nano)
		r.ScheduledAt = parked
		given[i].Version = 0
	}
	results, err := from.store.Settle(ctx, now, park, nil)
	if err != nil {
		return 0, err
	}
	var stay, leave []storage.Change
	var errs []error
	var ids []string
	for i := range results {
		if results[i].Err != nil {
			continue // it has moved on
		}
		r := park[i].Record
		r.Version = results[i].Version
		_, err := v.to.store.Insert(ctx, now, []storage.Insert{{Record: given[i]}}, nil)
		var equal *ojs.DuplicateError
		if err == nil || errors.As(err, &equal) && equal.ID == r.ID {
			leave = append(leave, cancelling(r, now))
			ids = append(ids, r.ID)
			continue
		}
		if equal == nil { // otherwise an equal job is there: this one stays
			errs = append(errs, err)
		}
		back := given[i].Copy()
		back.Version = r.Version
		stay = append(stay, storage.Change{Record: back})
	}
	if _, err := from.store.Settle(ctx, now, stay, nil); err != nil {
		errs = append(errs, err)
	}
	results, err = from.store.Settle(ctx, now, leave, nil)
	if err != nil {
		return 0, errors.Join(append(errs, err)...)
	}
	left := ids[:0:0]
	for i, result := range results {
		if result.Err == nil {
			left = append(left, ids[i])
		} else if err := v.follow(ctx, now, from, ids[i]); err != nil {
			errs = append(errs, err)
		}
	}
	if _, err := from.store.Delete(ctx, left); err != nil {
		errs = append(errs, err)
	}
	return len(left), errors.Join(errs...)
}

// cancelling is the change that cancels a job, fenced by its version.
func cancelling(r storage.Record, now time.Time) storage.Change {
	version := r.Version
	r.Cancel(now)
	r.Version = version
	return storage.Change{Record: r}
}

// follow ends a job in the new cell that was ended in the old one after it was parked.
func (v *move) follow(ctx context.Context, now time.Time, from *site, id string) error {
	old, err := from.store.Get(ctx, id)
	if err == nil && old.State.Terminal() {
		var r storage.Record
		if r, err = v.to.store.Get(ctx, id); err == nil && r.State.Waiting() {
			_, err = v.to.store.Settle(ctx, now, []storage.Change{cancelling(r, now)}, nil)
		}
	}
	if missed(err) {
		return nil
	}
	return err
}

// carryCrons moves the recurring jobs whose names are of the partitions.
func (v *move) carryCrons(ctx context.Context, from *site) error {
	q := storage.DocumentQuery{}
	for {
		docs, err := from.store.Documents(ctx, storage.KindCron, q)
		if err != nil || len(docs) == 0 {
			return err
		}
		q.After = docs[len(docs)-1].Name
		for _, d := range docs {
			if v.partitions[Partition(d.Name)] {
				if err := v.carryCron(ctx, from, d); err != nil {
					return err
				}
			}
		}
	}
}

// carryCron moves a recurring job. If it fires in the old cell meanwhile, the new cell
// gets it as that has left it.
func (v *move) carryCron(ctx context.Context, from *site, d storage.Document) error {
	var there uint64 // the version that this move has stored
	for {
		copy := d.Copy()
		copy.Version = there
		stored, err := v.to.store.PutDocuments(ctx, storage.KindCron, []storage.Document{copy})
		if err != nil {
			return err
		}
		there = stored[0] // 0: the new cell has one by the name, which holds
		gone, err := from.store.PutDocuments(ctx, storage.KindCron, []storage.Document{
			{Name: d.Name, Version: d.Version}})
		if err != nil || gone[0] > 0 {
			return err
		}
		q := storage.DocumentQuery{Names: []string{d.Name}}
		docs, err := from.store.Documents(ctx, storage.KindCron, q)
		if err != nil || len(docs) == 0 {
			return err
		}
		d = docs[0]
	}
}
