package fleet_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// Cells die and come back, before and after their calls do their work. No job is lost. A
// job without a key is refused by no cell while one lives. There are never more attempts
// than Config.Concurrency.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cells, slots, seconds = 4, 9, 30
		r := newRig(t, cells)
		r.Fleet = r.open(fleet.Config{Cells: r.cells, Concurrency: slots})
		var running, most atomic.Int64
		var ran sync.Map
		r.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
			n := running.Add(1)
			defer running.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			pace.Virtual(time.Duration(job.Args) * time.Millisecond)
			ran.Store(job.ID, true)
			return nil
		})
		r.must(r.Enqueue(r.ctx, "x", 0)) // makes the map
		stop := r.run(r.Fleet)
		ctx, calm := context.WithTimeout(r.ctx, seconds*time.Second)
		defer calm()
		var all sync.WaitGroup
		for i := range cells - 1 { // the last one lives
			all.Go(func() {
				for ctx.Err() == nil {
					pace.Virtual(time.Duration(rand.IntN(8000)) * time.Millisecond)
					r.stores[i].OnCall(func(c *storagetest.Call) {
						if rand.IntN(2) == 0 {
							c.Do()
						}
						c.Err = errDown
					})
					pace.Virtual(time.Duration(rand.IntN(4000)) * time.Millisecond)
					r.revive(i)
				}
			})
		}
		var mu sync.Mutex
		var stored []ojs.Ticket
		for i := range 8 {
			all.Go(func() {
				for ctx.Err() == nil {
					pace.Virtual(time.Duration(rand.IntN(100)) * time.Millisecond)
					var opts []ojs.Option
					if i%2 == 0 {
						opts = append(opts, fleet.WithCell(keyIn(i/2, cells)))
					}
					ticket, err := r.Enqueue(r.ctx, "x", rand.IntN(150), opts...)
					if err != nil && opts == nil {
						t.Error(err)
					} else if err == nil {
						mu.Lock()
						stored = append(stored, ticket)
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		for _, ticket := range stored {
			if job, err := ticket.Wait(r.ctx); err != nil || job.State != ojs.StateCompleted {
				t.Errorf("job %s: %v", ticket.ID, err)
			}
			if _, ok := ran.Load(ticket.ID); !ok {
				t.Errorf("job %s has not run", ticket.ID)
			}
		}
		stop()
		if n := most.Load(); n > slots || n < slots-1 || len(stored) < 500 {
			t.Errorf("%d attempts at once of %d jobs, with a concurrency of %d", n, len(stored), slots)
		}
	})
}

// Cells die and come back, before and after their calls do their work, while partitions
// move. No job that was acknowledged is lost, and no hold is left.
func TestStormOfMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cells, seconds = 3, 120
		r := newRig(t, cells)
		var ran sync.Map
		r.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
			pace.Virtual(time.Duration(job.Args) * time.Millisecond)
			ran.Store(job.ID, true)
			return nil
		})
		r.must(r.Enqueue(r.ctx, "x", 0)) // makes the map
		stop := r.run(r.Fleet)
		ctx, calm := context.WithTimeout(r.ctx, seconds*time.Second)
		defer calm()
		var all sync.WaitGroup
		for i := range cells {
			all.Go(func() {
				for ctx.Err() == nil {
					pace.Virtual(time.Duration(rand.IntN(20_000)) * time.Millisecond)
					r.stores[i].OnCall(func(c *storagetest.Call) {
						if rand.IntN(2) == 0 {
							c.Do()
						}
						c.Err = errDown
					})
					pace.Virtual(time.Duration(rand.IntN(3000)) * time.Millisecond)
					r.revive(i)
				}
			})
		}
		var mu sync.Mutex
		var stored []string
		var partitions []int
		for i := range 6 {
			key := keyIn(i%cells, cells)
			if i >= cells {
				key = otherKeyIn(i%cells, cells)
			}
			partitions = append(partitions, fleet.Partition(key))
			all.Go(func() {
				for ctx.Err() == nil {
					pace.Virtual(time.Duration(rand.IntN(1000)) * time.Millisecond)
					within, cancel := context.WithTimeout(r.ctx, time.Second)
					ticket, err := r.Enqueue(within, "x", rand.IntN(150), fleet.WithCell(key),
						ojs.WithDelay(time.Duration(rand.IntN(2)*rand.IntN(10))*time.Second))
					cancel()
					if err == nil {
						mu.Lock()
						stored = append(stored, ticket.ID)
						mu.Unlock()
					}
				}
			})
		}
		ended := 0
		for ctx.Err() == nil {
			move := fleet.Move{Partitions: partitions[rand.IntN(3) : 4+rand.IntN(3)],
				To: r.cells[rand.IntN(cells)].Name, Strict: rand.IntN(2) == 0, CallTime: time.Second}
			if m, err := r.Map(r.ctx); err == nil {
				if held, to := m.Moving(); to != "" {
					move.Partitions, move.To, move.Strict = held, to, true
				}
			}
			within, cancel := context.WithTimeout(r.ctx, 30*time.Second)
			_, err := r.Move(within, move)
			cancel()
			if err == nil {
				ended++
			}
			pace.Virtual(time.Duration(rand.IntN(1000)) * time.Millisecond)
		}
		all.Wait()
		m, err := r.Map(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if held, to := m.Moving(); to != "" {
			r.move(fleet.Move{Partitions: held, To: to, Strict: true})
		}
		r.move(fleet.Move{Partitions: partitions, To: "a"})
		for _, id := range stored {
			if job, err := r.Wait(r.ctx, id); err != nil || job.State != ojs.StateCompleted {
				t.Errorf("job %s: %+v, %v", id, job, err)
			}
			if _, ok := ran.Load(id); !ok {
				t.Errorf("job %s has not run", id)
			}
		}
		r.agree()
		stop()
		t.Logf("%d jobs, %d moves ended", len(stored), ended)
		if len(stored) < 100 {
			t.Errorf("%d jobs", len(stored))
		}
	})
}
