package fleet

import (
	"context"
	"crypto/rand"
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

// A move gives partitions to another cell. It changes the map and nothing else: no job
// and no recurring job is written. All jobs end in the cell where they are. So a move
// that fails at any call loses no job and runs none twice.
//
// A plain move:
//
//  1. The map gives the partitions to the new cell.
//  2. The program waits until no enqueue by an older copy of the map is under way
//     (settle), and counts what is left in other cells.
//
// A strict move lets no job of the partitions enter the new cell before all jobs of them
// have ended in the other ones:
//
//  1. The map holds the partitions: their enqueues wait. Every cell has a copy of this
//     version.
//  2. The program waits until no enqueue by an older copy is under way.
//  3. It waits until the jobs of the partitions have ended in the other cells. If ctx
//     ends first, the map holds the partitions no more, and they stay where they are.
//  4. The map gives the partitions to the new cell, and holds them no more.
//
// # Invariants
//
//  1. Versions of the map rise by one. The first cell of a version, by name, decides by a
//     compare-and-swap which version follows.
//  2. A hold has an owner. A program that repeats a strict move takes the hold over, and
//     the owner before fails at its next change of the map.
//  3. While a hold exists, no other move gives its partitions. Step 4 gives no others.
//  4. Each step may be made again, by any program. A program that dies leaves a state
//     from which the same move completes.

// DefaultCallTime is the CallTime of a Move without one.
const DefaultCallTime = 30 * time.Second

// Move says which partitions move to which cell.
type Move struct {
	Partitions []int  // from 0 to 4095, at least one
	To         string // a cell of the fleet, or a new one that the map gets by the move

	// Strict keeps what holds for the jobs of a key: their order, their limits, and that
	// equal jobs do not coexist. Enqueues of the partitions wait until the other cells
	// have no unfinished job of them. Scheduled jobs count. After 30 s an enqueue fails
	// with ErrMoving. Without Strict, jobs of both cells run side by side, and an equal
	// job in the old cell is not noticed.
	Strict bool

	// CallTime is how long an enqueue may take from its look at the map to its end, at
	// most; 0: 30 s. A move waits for 10 s more than that before it counts jobs. An
	// enqueue that waits for room in a full queue counts as one.
	CallTime time.Duration
}

// Moved is what a move has left where it was.
type Moved struct {
	// Left is how many jobs of the partitions are in other cells and have not ended. They
	// end there.
	Left int
	// Recurring is how many recurring jobs with names of the partitions are in other
	// cells. They fire there until they are removed.
	Recurring int
}

// MovePartitions gives partitions to another cell. It needs no engine, and may be called
// while the programs of the fleet run. cells are all cells of the fleet.
//
// From the first step on, new jobs of the partitions go to the new cell, or wait. A job
// that is stored stays in its cell and ends there, also one that waits for its time.
// Fleet.Get, Wait and Cancel find it. Recurring jobs stay, too, while Fleet.Cron goes to
// the new cell: remove them by the engine of the old cell, and set them anew.
//
// A move that fails, or whose program dies, is completed by calling it again. If ctx ends
// before a strict move has given the partitions, they stay in their cells. Give ctx a
// deadline: a queue that is paused and a job that waits for next month hold a strict move
// up, and the error says how many jobs do. A fleet has one strict move at a time: other
// moves of its partitions, and other strict ones, fail with ErrMoving.
//
// An idempotency key that was used in the old cell may be used again. Limits that an
// operator has set there, and starts that a rate has counted, are unknown to the new one.
func MovePartitions(ctx context.Context, cells []Cell, m Move) (Moved, error) {
	a, err := newAtlas(cells)
	if err != nil {
		return Moved{}, err
	}
	a.clock = following.IfWall(clock.New(), a.sites[0].store)
	return a.move(ctx, m)
}

// Move gives partitions to another cell, as MovePartitions does.
func (f *Fleet[T]) Move(ctx context.Context, m Move) (Moved, error) { return f.atlas.move(ctx, m) }

// mover is a move under way in this process.
type mover struct {
	*atlas
	to    *site
	list  []int // the partitions, sorted
	calls time.Duration
	owner string
}

func (a *atlas) move(ctx context.Context, m Move) (Moved, error) {
	v := &mover{atlas: a, to: a.site(m.To), calls: m.CallTime, owner: rand.Text(),
		list: slices.Compact(slices.Sorted(slices.Values(m.Partitions)))}
	switch {
	case v.to == nil:
		return Moved{}, draft.Invalid("to", "%q is no cell: name one of the cells", m.To)
	case len(v.list) == 0 || slices.ContainsFunc(v.list, outOfRange):
		return Moved{}, draft.Invalid("partitions", "are none, or not all from 0 to %d", Partitions-1)
	case m.CallTime < 0:
		return Moved{}, draft.Invalid("call_time", "%v is negative", m.CallTime)
	case m.CallTime == 0:
		v.calls = DefaultCallTime
	}
	if _, err := a.renew(ctx, v.to); err != nil { // a new cell gets its copy before it has partitions
		return Moved{}, err
	}
	give := v.plainly
	if m.Strict {
		give = v.strictly
	}
	if given, err := give(ctx); err != nil {
		if given {
			err = fmt.Errorf("ojs: cell %s has the partitions, and the move is to be repeated: %w", m.To, err)
		}
		return Moved{}, err
	}
	left, err := v.count(ctx, v.list)
	if err != nil {
		return Moved{}, err
	}
	recurring, err := v.recurring(ctx)
	return Moved{left.jobs, recurring}, err
}

// plainly makes a plain move. It returns true if the map gives the partitions.
func (v *mover) plainly(ctx context.Context) (given bool, err error) {
	err = v.decide(ctx, func(next *Map) error {
		if h := next.held; h != nil && slices.ContainsFunc(v.list, h.has) {
			return fmt.Errorf("%w: a strict move to cell %s holds some of the partitions: repeat that one",
				ErrMoving, h.To)
		}
		next.give(v.list, v.to.name)
		return nil
	})
	if err != nil {
		return false, err
	}
	return true, errors.Join(v.publish(ctx), v.settle(ctx))
}

// strictly makes a strict move. It returns true if the map gives the partitions.
func (v *mover) strictly(ctx context.Context) (given bool, err error) {
	held, err := v.hold(ctx)
	if err == nil && len(held) > 0 {
		err = v.settle(ctx)
	}
	if err == nil && len(held) > 0 {
		err = v.drain(ctx, held)
	}
	if err == nil && len(held) > 0 {
		err = v.decide(ctx, func(next *Map) error {
			if next.held == nil || next.held.Owner != v.owner {
				return fmt.Errorf("%w: another program has taken over the move", ErrMoving)
			}
			next.give(held, v.to.name)
			next.held = nil
			return nil
		})
	}
	if err != nil {
		return false, errors.Join(err, v.release(ctx))
	}
	return true, v.publish(ctx)
}

// hold makes the first step of a strict move. It returns the held partitions, which the
// new cell does not have yet.
func (v *mover) hold(ctx context.Context) (held []int, err error) {
	err = v.decide(ctx, func(next *Map) error {
		held = slices.DeleteFunc(slices.Clone(v.list), func(p int) bool {
			return next.owners[p] == v.to.name
		})
		h := &hold{Partitions: held, To: v.to.name, Owner: v.owner}
		switch was := next.held; {
		case was == nil && len(held) == 0:
			return nil
		case was != nil && (was.To != h.To || !slices.Equal(was.Partitions, held)):
			return fmt.Errorf("%w: a strict move of %d partitions to cell %s is under way: repeat that one",
				ErrMoving, len(was.Partitions), was.To)
		}
		next.held = h
		return nil
	})
	if err == nil {
		err = v.publish(ctx)
	}
	return held, err
}

// release ends the hold of this program.
func (v *mover) release(ctx context.Context) error {
	ctx, cancel := v.clock.WithTimeout(context.WithoutCancel(ctx), trust)
	defer cancel()
	released := false
	err := v.decide(ctx, func(next *Map) error {
		if next.held != nil && next.held.Owner == v.owner {
			released, next.held = true, nil
		}
		return nil
	})
	if err == nil && released {
		err = v.publish(ctx)
	}
	if err != nil {
		err = fmt.Errorf("ojs: the partitions may be held until the move is repeated: %w", err)
	}
	return err
}

// drain waits until no job of the partitions is left.
func (v *mover) drain(ctx context.Context, partitions []int) error {
	for wait := heldPoll; ; wait = min(2*wait, 5*time.Second) {
		left, err := v.count(ctx, partitions)
		if err != nil || left.jobs == 0 {
			return err
		}
		if err := v.sleep(ctx, wait); err != nil {
			return fmt.Errorf("ojs: %d jobs of the partitions have not ended, of which %d wait for their time: %w",
				left.jobs, left.scheduled, err)
		}
	}
}

// settle waits until no enqueue by an older copy of the map is under way.
func (v *mover) settle(ctx context.Context) error { return v.sleep(ctx, trust+v.calls) }

// unfinished is how many jobs have not ended.
type unfinished struct{ jobs, scheduled int }

// count counts the jobs of the partitions in all cells but the new one.
func (v *mover) count(ctx context.Context, partitions []int) (n unfinished, err error) {
	q := storage.Query{Where: func(r *storage.Record) bool {
		p, ok := PartitionOf(r.ID)
		return ok && contains(partitions, p)
	}}
	for _, s := range ojs.AllStates() {
		if !s.Terminal() {
			q.States = append(q.States, s)
		}
	}
	err = v.others(func(s *site) error {
		for q.Cursor = ""; ; {
			page, err := s.store.List(ctx, q)
			if err != nil {
				return err
			}
			for i := range page.Records {
				n.jobs++
				if page.Records[i].State == ojs.StateScheduled {
					n.scheduled++
				}
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return nil
			}
		}
	})
	return n, err
}

// recurring counts the recurring jobs of the partitions in all cells but the new one.
func (v *mover) recurring(ctx context.Context) (n int, err error) {
	err = v.others(func(s *site) error {
		for q := (storage.DocumentQuery{}); ; {
			docs, err := s.store.Documents(ctx, storage.KindCron, q)
			if err != nil || len(docs) == 0 {
				return err
			}
			for _, d := range docs {
				if q.After = d.Name; contains(v.list, Partition(d.Name)) {
					n++
				}
			}
		}
	})
	return n, err
}

// others calls use for each site but the new one.
func (v *mover) others(use func(*site) error) error {
	var errs []error
	for _, s := range v.sites {
		if s == v.to {
			continue
		}
		if err := use(s); err != nil {
			errs = append(errs, fmt.Errorf("ojs: cell %s: %w", s.name, err))
		}
	}
	return errors.Join(errs...)
}

// contains reports whether a sorted list has a partition.
func contains(list []int, partition int) bool {
	_, found := slices.BinarySearch(list, partition)
	return found
}

// publish gives the newest map to each cell.
func (a *atlas) publish(ctx context.Context) error {
	errs := make([]error, len(a.sites))
	for i, s := range a.sites {
		_, errs[i] = a.renew(ctx, s)
	}
	return errors.Join(errs...)
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

// decide makes the next version of the map, if change changes it.
func (a *atlas) decide(ctx context.Context, change func(next *Map) error) error {
	for {
		newest, err := a.known(ctx)
		if err != nil {
			return err
		}
		first := a.site(newest.Cells()[0])
		own, err := a.renew(ctx, first)
		if err != nil {
			return err
		}
		if own.chart.Cells()[0] != first.name {
			continue
		}
		next := own.chart.next()
		if err := change(next); err != nil {
			return err
		}
		if next.held == own.chart.Map.held && slices.Equal(next.owners, own.chart.owners) {
			return nil
		}
		version, err := first.put(ctx, own.version, next)
		if err != nil {
			return fmt.Errorf("ojs: cell %s: the map may have changed: %w", first.name, err)
		}
		if version > 0 {
			_, err = a.offer(next)
			return err
		}
	}
}
