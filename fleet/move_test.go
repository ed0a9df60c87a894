package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// upTo returns the partitions below n.
func upTo(n int) (list []int) {
	for p := range n {
		list = append(list, p)
	}
	return list
}

// load enqueues jobs of several keys until stop, and notes how they run.
type load struct {
	mu        sync.Mutex // guards the fields below
	enqueued  map[string][]string
	began     map[string][]string
	running   map[string]int
	overlaps  int
	producers sync.WaitGroup
	stopped   atomic.Bool
}

func newLoad(r *rig) *load {
	l := &load{enqueued: make(map[string][]string), began: make(map[string][]string),
		running: make(map[string]int)}
	r.Handle("x", func(ctx context.Context, job *ojs.Job[int]) error {
		key, _ := job.Meta["key"].(string)
		l.mu.Lock()
		l.began[key] = append(l.began[key], job.ID)
		if l.running[key]++; l.running[key] > 1 {
			l.overlaps++
		}
		l.mu.Unlock()
		pace.Virtual(time.Duration(job.Args) * time.Millisecond)
		l.mu.Lock()
		l.running[key]--
		l.mu.Unlock()
		return nil
	})
	return l
}

func (l *load) produce(r *rig, f *fleet.Fleet[int], key string, opts ...ojs.Option) {
	l.producers.Go(func() {
		for i := 0; !l.stopped.Load(); i++ {
			ticket, err := f.Enqueue(r.ctx, "x", i%7, append(opts, ojs.WithMeta("key", key))...)
			if err != nil {
				r.t.Errorf("key %s: %v", key, err)
				return
			}
			l.mu.Lock()
			l.enqueued[key] = append(l.enqueued[key], ticket.ID)
			l.mu.Unlock()
			pace.Virtual(200 * time.Millisecond)
		}
	})
}

// end waits until every job has ended.
func (l *load) end(r *rig) {
	l.stopped.Store(true)
	l.producers.Wait()
	for _, ids := range l.enqueued {
		for _, id := range ids {
			if job, err := r.Wait(r.ctx, id); err != nil || job.State != ojs.StateCompleted {
				r.t.Errorf("job %s: %v", id, err)
			}
		}
	}
}

// Moves under load lose nothing, and strict ones keep the order of a key.
func TestMovesUnderLoad(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict %v", strict), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 3)
				// Another process has the map of its own, which gets old.
				other := r.open(fleet.Config{Cells: r.cells, Serve: []string{}})
				l := newLoad(r)
				stop := r.run(r.Fleet)
				for i := range 6 {
					key := keyIn(i%3, 3) + fmt.Sprint("-", i)
					f := []*fleet.Fleet[int]{r.Fleet, other}[i/3]
					if strict {
						l.produce(r, f, key, ojs.WithOrderingKey(key))
					} else {
						l.produce(r, f, key, fleet.WithCell(key), ojs.WithDelay(time.Duration(i)*time.Second))
					}
				}
				pace.Virtual(5 * time.Second)
				for i := range 3 {
					move := fleet.Move{Partitions: upTo(fleet.Partitions / 2), To: r.cells[i%3].Name,
						Strict: strict, CallTime: time.Second}
					if _, err := r.Cells().Move(r.ctx, move); err != nil {
						t.Fatal(err)
					}
					m, err := r.Cells().Map(r.ctx)
					if err != nil || len(m.Partitions(move.To)) < fleet.Partitions/2 {
						t.Errorf("the map is %v, %v", m, err)
					}
					pace.Virtual(3 * time.Second)
				}
				l.end(r)
				stop()
				for key, ids := range l.enqueued {
					began := l.began[key]
					if strict && !slices.Equal(began, ids) {
						t.Errorf("key %s: the order of %d jobs is not that of their enqueues", key, len(ids))
					}
					if slices.Sort(began); len(began) != len(ids) || len(slices.Compact(began)) != len(ids) {
						t.Errorf("key %s: %d jobs, %d runs of %d jobs", key, len(ids), len(l.began[key]),
							len(began))
					}
				}
				if strict && l.overlaps > 0 {
					t.Errorf("%d attempts of a key began beside another", l.overlaps)
				}
			})
		})
	}
}

// A job that waits for its time moves, is found by its id, and its ticket follows it.
func TestScheduledJobMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
		key := keyIn(0, 2)
		began := time.Now()
		at := []ojs.Option{fleet.WithCell(key), ojs.WithDelay(time.Hour)}
		moved := r.must(r.Enqueue(r.ctx, "x", 1, append(at, ojs.WithMeta("n", 7))...))
		unique := r.must(r.Enqueue(r.ctx, "x", 2, append(at, ojs.WithIdempotencyKey("u"))...))
		awaited := r.must(r.Enqueue(r.ctx, "x", 1, at...))
		after := r.must(r.Enqueue(r.ctx, "x", 1, ojs.WithDependsOn(awaited.ID)))
		pace.Virtual(time.Second)
		late := r.must(r.Enqueue(r.ctx, "x", 1, at...))
		waited := make(chan error)
		go func() {
			_, err := late.Wait(r.ctx)
			waited <- err
		}()
		synctest.Wait()
		move := fleet.Move{Partitions: []int{fleet.Partition(key)}, To: "b"}
		if n, err := r.Cells().Move(r.ctx, move); n != 1 || err != nil {
			t.Errorf("%d jobs moved, %v: those that others may wait for stay", n, err)
		}
		if err := r.Cancel(r.ctx, after.ID); err != nil {
			t.Fatal(err)
		}
		if n, err := r.Cells().Move(r.ctx, move); n != 3 || err != nil { // it may be repeated
			t.Errorf("%d jobs moved, %v", n, err)
		}
		for _, ticket := range []ojs.Ticket{moved, unique, awaited, late} {
			if got := r.cellOf(ticket.ID); got != "b" {
				t.Errorf("a job is in cell %s", got)
			}
		}
		job, err := r.Get(r.ctx, moved.ID)
		if err != nil || len(job.Meta) != 1 || job.State != ojs.StateScheduled {
			t.Errorf("the job is %+v, %v", job, err)
		}
		again := r.must(r.Enqueue(r.ctx, "x", 2, append(at, ojs.WithIdempotencyKey("u"))...))
		if !again.Deduplicated {
			t.Error("an equal job is not found in the new cell")
		}
		r.run(r.Fleet)
		if _, err := moved.Wait(r.ctx); err != nil {
			t.Error(err)
		}
		if err := <-waited; err != nil {
			t.Error(err)
		}
		if at := time.Since(began); at.Round(time.Second) != time.Hour+time.Second {
			t.Errorf("the jobs ran after %v", at)
		}
	})
}

// A strict move that does not end in time leaves the partitions where they are. Meanwhile
// enqueues wait, and not for ever.
func TestStrictMoveGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		key := keyIn(0, 2)
		stays := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key))) // and does not run
		ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
		defer cancel()
		moved := make(chan error)
		go func() {
			move := fleet.Move{Partitions: []int{fleet.Partition(key)}, To: "b", Strict: true}
			_, err := r.Cells().Move(ctx, move)
			moved <- err
		}()
		pace.Virtual(11 * time.Second)
		if _, err := r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key)); !errors.Is(err, fleet.ErrMoving) {
			t.Errorf("an enqueue: %v", err)
		}
		other := fleet.Move{Partitions: []int{fleet.Partition(keyIn(1, 2))}, To: "a", Strict: true}
		if _, err := r.Cells().Move(r.ctx, other); !errors.Is(err, fleet.ErrMoving) {
			t.Errorf("another strict move: %v", err)
		}
		plain := fleet.Move{Partitions: []int{fleet.Partition(key)}, To: "b"}
		if _, err := r.Cells().Move(r.ctx, plain); !errors.Is(err, fleet.ErrMoving) {
			t.Errorf("a plain move of the same partition: %v", err)
		}
		if err := <-moved; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the move: %v", err)
		}
		ticket := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key)))
		if r.cellOf(ticket.ID) != "a" || r.cellOf(stays.ID) != "a" {
			t.Error("the partition has moved")
		}
	})
}

// A move whose program dies at any call can be repeated: each job then runs once.
func TestMoveDiesAnywhere(t *testing.T) {
	for _, strict := range []bool{false, true} {
		for n, died := 0, true; died; n++ {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2)
				key := keyIn(0, 2)
				var ran sync.Map
				r.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
					if _, again := ran.LoadOrStore(job.ID, true); again {
						t.Errorf("call %d: job %s runs twice", n, job.ID)
					}
					return nil
				})
				var tickets []ojs.Ticket
				for range 3 {
					ticket := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key), ojs.WithDelay(time.Hour)))
					tickets = append(tickets, ticket)
				}
				move := fleet.Move{Partitions: []int{fleet.Partition(key)}, To: "b", Strict: strict}
				var calls atomic.Int64
				for _, s := range r.stores {
					s.OnCall(func(c *storagetest.Call) {
						at := calls.Add(1)
						if at == int64(n) {
							c.Do() // and its answer is lost
						}
						if at >= int64(n) {
							c.Err = errDown
						}
					})
				}
				_, err := r.open(fleet.Config{Cells: r.cells}).Cells().Move(r.ctx, move)
				died = err != nil
				r.revive(0)
				r.revive(1)
				if _, err := r.Cells().Move(r.ctx, move); err != nil {
					t.Fatalf("call %d: %v", n, err)
				}
				stop := r.run(r.Fleet)
				for _, ticket := range tickets {
					if job, err := r.Wait(r.ctx, ticket.ID); err != nil || job.State != ojs.StateCompleted {
						t.Errorf("call %d: %v", n, err)
					}
					// A move may leave a cancelled job behind, which no lookup finds.
					if !strings.HasSuffix(r.cellOf(ticket.ID), "b") {
						t.Errorf("call %d: in cell %s", n, r.cellOf(ticket.ID))
					}
				}
				stop()
			})
		}
	}
}

// A job that is cancelled while it moves is cancelled in its new cell.
func TestCancelOfAMovingJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		key := keyIn(0, 2)
		ticket := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key), ojs.WithDelay(time.Hour)))
		r.stores[1].OnCall(func(c *storagetest.Call) {
			if c.Method == "Insert" {
				r.stores[1].OnCall(nil)
				if err := r.Cancel(r.ctx, ticket.ID); err != nil {
					t.Error(err)
				}
			}
		})
		move := fleet.Move{Partitions: []int{fleet.Partition(key)}, To: "b"}
		if _, err := r.Cells().Move(r.ctx, move); err != nil {
			t.Fatal(err)
		}
		for name, eng := range r.Engines() {
			if job, err := eng.Get(r.ctx, ticket.ID); err != nil || job.State != ojs.StateCancelled {
				t.Errorf("cell %s: %+v, %v", name, job, err)
			}
		}
	})
}

func TestBadMoves(t *testing.T) {
	r := newRig(t, 2)
	for _, move := range []fleet.Move{{Partitions: []int{1}, To: "z"}, {To: "a"},
		{Partitions: []int{-1}, To: "a"}, {Partitions: []int{fleet.Partitions}, To: "a"},
		{Partitions: []int{1}, To: "a", CallTime: -1}} {
		if _, err := r.Cells().Move(r.ctx, move); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%+v: %v", move, err)
		}
	}
	docs, err := r.stores[0].Documents(r.ctx, storage.KindValue, storage.DocumentQuery{})
	if len(docs) > 0 || err != nil {
		t.Errorf("a refused move has written %v, %v", docs, err)
	}
}

// A strict move waits for the processes that have read an older copy of the map.
func TestStrictMoveWaitsForOldCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
		r.run(r.Fleet)
		key, other := keyIn(0, 2), r.open(fleet.Config{Cells: r.cells})
		r.must(other.Enqueue(r.ctx, "x", 1, fleet.WithCell(key)))
		move := fleet.Move{Partitions: []int{fleet.Partition(key)}, To: "b", Strict: true}
		if _, err := r.Cells().Move(r.ctx, move); err != nil {
			t.Fatal(err)
		}
		if ticket := r.must(other.Enqueue(r.ctx, "x", 1, fleet.WithCell(key))); r.cellOf(ticket.ID) != "b" {
			t.Errorf("a process puts a job into cell %s after the move", r.cellOf(ticket.ID))
		}
	})
}
