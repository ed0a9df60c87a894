package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
)

// Holder is what holds active jobs: an engine, or a worker that fetches jobs for itself.
type Holder struct {
	ID   string // the worker id of its attempts (Event.WorkerID)
	Here bool   // it is this engine
	Jobs int    // how many active jobs it holds

	// First and Last are when the first and the last of its leases end. A live holder
	// renews them before. The jobs of a killed one run again then.
	First, Last time.Time

	// Silent is how long the process of the holder has not reported; 0: it reports, or it
	// never has (WithReports).
	Silent time.Duration
}

// Holders returns what holds the active jobs of the storage, in the order in which their
// leases end. It shows until when the jobs of a killed process wait: those of a holder
// whose leases are not renewed wait until Last, or until the process has been silent for
// Reports.DeadAfter. Engines renew a lease when a third of it has passed.
//
// Holders costs a listing of the active jobs, which memory, SQLite and PostgreSQL find
// without a look at any other job.
func (j *Jobs) Holders(ctx context.Context) ([]Holder, error) {
	c := j.core
	holders := make(map[string]*Holder)
	for rec, err := range j.Records(ctx, inspect.Filter{States: []ojs.State{ojs.StateActive}}) {
		if err != nil {
			return nil, err
		}
		h := holders[rec.Worker]
		if h == nil {
			h = &Holder{ID: rec.Worker, Here: rec.Worker == c.worker}
			holders[rec.Worker] = h
		}
		h.Jobs++
		h.First = earliest(h.First, rec.LeaseUntil)
		if rec.LeaseUntil.After(h.Last) {
			h.Last = rec.LeaseUntil
		}
	}
	if c.watches {
		err := c.eachProcess(ctx, func(a *alive) {
			if h := holders[a.ID]; h != nil {
				h.Silent = a.silence(c.now())
			}
		})
		if err != nil {
			return nil, err
		}
	}
	list := make([]Holder, 0, len(holders))
	for h := range maps.Values(holders) {
		list = append(list, *h)
	}
	slices.SortFunc(list, func(a, b Holder) int {
		return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}
