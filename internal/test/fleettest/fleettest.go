// Package fleettest tests a fleet over storages of any kind.
package fleettest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/storage"
)

// Run enqueues jobs from two fleets over the storages and runs them: each job runs once,
// and those of a key in their order. Meanwhile a partition moves, for some 20 seconds.
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
	moves(t, fleets[0], cells)
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

// moves moves a key to the last of the cells, when its job in the old one has ended.
func moves(t *testing.T, f *fleet.Fleet[int], cells []fleet.Cell) {
	ctx, key, to := t.Context(), "tenant-0", cells[len(cells)-1]
	m, err := f.Map(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; m.Cell(fleet.Partition(key)) == to.Name; n++ {
		key = fmt.Sprint("moving-", n)
	}
	opts := []ojs.Option{fleet.WithCell(key), ojs.WithDelay(time.Hour)}
	stays, err := f.Enqueue(ctx, "x", 1, opts...)
	if err != nil {
		t.Fatal(err)
	}
	move := fleet.Move{Partitions: []int{fleet.Partition(key)}, To: to.Name, Strict: true,
		CallTime: time.Millisecond}
	short, cancel := clock.New().WithTimeout(ctx, 11*time.Second)
	defer cancel()
	if _, err := f.Move(short, move); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a strict move of a key with a job: %v", err)
	}
	if err := f.Cancel(ctx, stays.ID); err != nil {
		t.Error(err)
	}
	if moved, err := f.Move(ctx, move); err != nil || moved != (fleet.Moved{}) {
		t.Errorf("the move: %+v, %v", moved, err)
	}
	next, err := f.Enqueue(ctx, "x", 1, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.Store.Get(ctx, next.ID); err != nil {
		t.Errorf("a job of the moved key is not in its cell: %v", err)
	}
	if err := f.Cancel(ctx, next.ID); err != nil {
		t.Error(err)
	}
}
