package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ojsengine/ojs/engine"
)

// shareEvery is how often the slots are shared anew.
const shareEvery = 250 * time.Millisecond

// Run runs the engines of the cells that this process serves until ctx ends, as
// Engine.Run does. First it reads the map from all cells, and returns ErrMap if one does
// not fit. It waits for a second at most for cells that do not answer. A cell whose
// storage fails works again when it answers, and the others go on. If the Run of one
// engine ends before ctx, since its storage is closed or since it was told to terminate,
// Run stops the others, too. The error joins those of the engines, each with its cell.
func (f *Fleet[T]) Run(ctx context.Context) error {
	if !f.runs.CompareAndSwap(false, true) {
		return engine.ErrRunning
	}
	defer f.runs.Store(false)
	if err := f.atlas.check(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if len(f.served) == 0 {
		<-ctx.Done()
	}
	var runs sync.WaitGroup
	errs := make([]error, len(f.served))
	for i, c := range f.served {
		runs.Go(func() {
			defer stop()
			if err := c.eng.Run(ctx); err != nil {
				errs[i] = fmt.Errorf("ojs: cell %s: %w", c.name, err)
			}
		})
		runs.Go(func() { c.follow(ctx) })
	}
	if len(f.served) > 1 {
		runs.Go(func() {
			ticker := f.atlas.clock.Ticker(shareEvery)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
					f.share()
				case <-ctx.Done():
					return
				}
			}
		})
	}
	runs.Wait()
	return errors.Join(errs...)
}

// follow reads the cell's copy of the map every 10 s, so that the engine's own jobs get
// ids of partitions that the cell has and no strict move holds.
func (c *cell[T]) follow(ctx context.Context) {
	for c.fleet.atlas.sleep(ctx, trust) == nil {
		_, _ = c.fleet.atlas.read(ctx, c.site, c.copied.Load()) // else the next time
	}
}

// share moves slots to the cells whose jobs wait for one.
func (f *Fleet[T]) share() {
	loads := make([]load, len(f.served))
	for i, c := range f.served {
		loads[i].busy, loads[i].more = insideEngines.Load(c.eng)
	}
	wanted := split(f.total, loads)
	used := 0
	for i, c := range f.served {
		if wanted[i] < c.slots {
			c.resize(wanted[i])
		}
		busy, _ := insideEngines.Load(c.eng) // now it grows no more
		used += max(c.slots, busy)
	}
	for i, c := range f.served {
		if n := min(wanted[i]-c.slots, f.total-used); n > 0 {
			c.resize(c.slots + n)
			used += n
		}
	}
}

func (c *cell[T]) resize(slots int) {
	c.slots = slots
	_ = c.eng.SetConcurrency(slots) // which is at least 1, and at most what New has checked
}

// load is what a cell has to do.
type load struct {
	busy int  // attempts
	more bool // a job waits for a slot
}

// split shares slots, of which there is at least one for each cell. While jobs wait in
// some cells, the others keep the slots that they use, and one more. The cells where jobs
// wait, or all, share the rest in equal parts.
func split(total int, loads []load) []int {
	slots, waiting := make([]int, len(loads)), 0
	for _, l := range loads {
		if l.more {
			waiting++
		}
	}
	left := total - len(loads)
	for i, l := range loads {
		if slots[i] = 1; !l.more && waiting > 0 {
			kept := min(l.busy, left) // attempts may run beyond the slots of their cell
			slots[i] += kept
			left -= kept
		}
	}
	takers := waiting
	if waiting == 0 {
		takers = len(loads)
	}
	for i, l := range loads {
		if l.more || waiting == 0 {
			part := left / takers
			slots[i] += part
			left -= part
			takers--
		}
	}
	return slots
}
