// Package fleettest tests a fleet over storages of any kind.
package fleettest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/storage"
)

// Run enqueues jobs from two fleets over the storages and runs them: each job runs once,
// and those of a key in their order.
func Run(t *testing.T, stores ...storage.Storage) {
	ctx := t.Context()
	var cells []fleet.Cell
	for i, s := range stores {
		cells = append(cells, fleet.Cell{Name: fmt.Sprint("cell-", i), Store: s})
	}
	open := func(cells []fleet.Cell) *fleet.Fleet[int] {
		f, err := fleet.New[int](fleet.Config{Cells: cells, Concurrency: 20})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	fleets := []*fleet.Fleet[int]{open(cells), open(cells)}
	var mu sync.Mutex
	ran := make(map[string][]int)
	for _, f := range fleets {
		f.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
			mu.Lock()
			defer mu.Unlock()
			key, _ := job.Meta["key"].(string)
			ran[key] = append(ran[key], job.Args)
			return nil
		})
	}
	const keys, jobs = 12, 10
	var tickets []ojs.Ticket
	enqueue := func(i int, key string, opts ...ojs.Option) {
		ticket, err := fleets[i%2].Enqueue(ctx, "x", i, append(opts, ojs.WithMeta("key", key))...)
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, ticket)
	}
	for i := range jobs {
		for k := range keys {
			key := fmt.Sprint("tenant-", k)
			enqueue(i, key, fleet.WithCell(key), ojs.WithOrderingKey(key))
		}
		enqueue(i, "")
	}
	m, err := fleets[0].Map(ctx)
	if err != nil || len(m.Cells()) != len(cells) {
		t.Fatal(m, err)
	}
	if _, err := open(cells[1:]).Enqueue(ctx, "x", 1); !errors.Is(err, fleet.ErrMap) {
		t.Errorf("a fleet that lacks a cell: %v", err)
	}
	runs, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, f := range fleets {
		all.Go(func() {
			if err := f.Run(runs); err != nil {
				t.Error(err)
			}
		})
	}
	for _, ticket := range tickets {
		if _, err := ticket.Wait(ctx); err != nil {
			t.Error(err)
		}
		if job, err := fleets[0].Get(ctx, ticket.ID); err != nil || job.State != ojs.StateCompleted {
			t.Error(err)
		}
	}
	end()
	all.Wait()
	for key, args := range ran {
		if len(args) != jobs || key != "" && !slices.IsSorted(args) {
			t.Errorf("key %q: ran %v", key, args)
		}
	}
	if len(ran) != keys+1 {
		t.Errorf("jobs of %d keys ran", len(ran))
	}
}
