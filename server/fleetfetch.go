package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"
)

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
				d.giveBack(c, errPanicked)
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

var (
	errTooMany  = errors.New("ojs: server: several cells have had jobs for one fetch")
	errPanicked = errors.New("ojs: server: a fetch has panicked")
)
