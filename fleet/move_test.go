package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/internal/test/racedetector"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// movers returns the cells as a program has them that only moves partitions, with its own
// hook for their calls.
func (r *rig) movers() (cells []fleet.Cell, stores []*storagetest.Faulty) {
	for i, c := range r.cells {
		s := &storagetest.Faulty{Storage: r.stores[i]}
		stores = append(stores, s)
		cells = append(cells, fleet.Cell{Name: c.Name, Store: s})
	}
	return cells, stores
}

// dying has the calls of a mover fail from the nth one on. The nth does its work if done
// is set. died reports whether it has come to that.
func (r *rig) dying(n int64, done bool) (cells []fleet.Cell, died func() bool) {
	cells, stores := r.movers()
	var calls atomic.Int64
	for _, s := range stores {
		s.OnCall(func(c *storagetest.Call) {
			at := calls.Add(1)
			if at == n && done {
				c.Do()
			}
			if at >= n {
				c.Err = errDown
			}
		})
	}
	return cells, func() bool { return calls.Load() >= n }
}

// move makes a move that must succeed.
func (r *rig) move(m fleet.Move) fleet.Moved {
	r.t.Helper()
	cells, _ := r.movers()
	moved, err := fleet.MovePartitions(r.ctx, cells, m)
	if err != nil {
		r.t.Fatal(err)
	}
	return moved
}

// agree fails the test if the copies of the cells differ, or a strict move is under way.
func (r *rig) agree() {
	r.t.Helper()
	newest, err := r.Map(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	for i, s := range r.stores {
		m, _, err := fleet.StoredMap(r.ctx, s)
		if err != nil || m.Version != newest.Version {
			r.t.Errorf("cell %d has %v, %v; the map is %v", i, m, err, newest)
		} else if held, to := m.Moving(); to != "" {
			r.t.Errorf("cell %d holds %v for %s", i, held, to)
		}
	}
}

// A move whose program dies at any call is completed by another one. Each job runs once.
func TestMoveDiesAnywhere(t *testing.T) {
	for _, strict := range []bool{false, true} {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("strict %v done %v", strict, done), func(t *testing.T) {
				t.Parallel()
				n := int64(1)
				for died := true; died; n++ {
					synctest.Test(t, func(t *testing.T) { died = moveDies(t, strict, done, n) })
					if t.Failed() {
						t.Fatalf("call %d", n)
					}
				}
				if n < 12 {
					t.Errorf("a move makes %d calls", n)
				}
			})
		}
	}
}

func moveDies(t *testing.T, strict, done bool, n int64) (died bool) {
	r := newRig(t, 3)
	key := keyIn(0, 3)
	var mu sync.Mutex
	ran := make(map[string]int)
	r.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
		pace.Virtual(time.Duration(job.Args) * time.Second)
		mu.Lock()
		defer mu.Unlock()
		ran[job.ID]++
		return nil
	})
	stop := r.run(r.Fleet)
	var tickets []ojs.Ticket
	add := func(opts ...ojs.Option) {
		tickets = append(tickets, r.must(r.Enqueue(r.ctx, "x", 1, append(opts, fleet.WithCell(key))...)))
	}
	add()
	add(ojs.WithDelay(20 * time.Second))
	add(ojs.WithOrderingKey(key))
	move := fleet.Move{Partitions: []int{fleet.Partition(key)}, To: "b", Strict: strict,
		CallTime: time.Second}
	cells, dead := r.dying(n, done)
	_, err := fleet.MovePartitions(r.ctx, cells, move)
	if died = dead(); died != (err != nil) {
		t.Errorf("the move: %v", err)
	}
	for _, ticket := range tickets { // jobs are found wherever they are
		if _, err := r.Get(r.ctx, ticket.ID); err != nil {
			t.Errorf("while the move is interrupted: %v", err)
		}
	}
	if moved := r.move(move); strict && moved != (fleet.Moved{}) {
		t.Errorf("%+v", moved)
	}
	if m, err := r.Map(r.ctx); err != nil || m.Cell(move.Partitions[0]) != "b" {
		t.Errorf("the map is %v, %v", m, err)
	}
	r.agree()
	add()
	for i, ticket := range tickets {
		if job, err := ticket.Wait(r.ctx); err != nil || job.State != ojs.StateCompleted {
			t.Errorf("job %+v: %v", job, err)
		}
		if in := r.cellOf(ticket.ID); (in == "b") != (i == len(tickets)-1) {
			t.Errorf("job %d is in the cells %q", i, in)
		}
	}
	stop()
	for _, ticket := range tickets {
		if ran[ticket.ID] != 1 {
			t.Errorf("job %s ran %d times", ticket.ID, ran[ticket.ID])
		}
	}
	return died
}

// Random moves, of which many die, by several programs at once, while jobs are enqueued
// and run: each job that was acknowledged runs once. If all moves are strict, jobs of a
// key run in order, one at a time, and equal ones do not coexist.
func TestRandomMoves(t *testing.T) {
	rounds := 5
	if racedetector.On {
		rounds = 2
	}
	if os.Getenv("OJS_STORM") != "" {
		rounds = 200
	}
	for _, strict := range []bool{true, false} {
		for range rounds {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("strict %v seed %d", strict, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { randomMoves(t, strict, seed) })
			})
		}
	}
}

// history is how the jobs of a key have run.
type history struct {
	mu       sync.Mutex // guards the fields below
	enqueued []string   // acknowledged, with an ordering key
	began    []string   // of these
	others   []string   // acknowledged, without one
	ran      map[string]int
	running  int
	overlaps int

	unique string // of the producer: the last job with a unique policy
	equals int    // how many of these came while one had not ended
}

func (h *history) handle(job *ojs.Job[int]) {
	h.mu.Lock()
	h.ran[job.ID]++
	ordered := job.Meta["ordered"] == true
	if ordered {
		h.began = append(h.began, job.ID)
		if h.running++; h.running > 1 {
			h.overlaps++
		}
	}
	h.mu.Unlock()
	pace.Virtual(time.Duration(job.Args) * time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	if ordered {
		h.running--
	}
}

func randomMoves(t *testing.T, strict bool, seed uint64) {
	const cells, keys, seconds = 3, 6, 180
	r := newRig(t, cells)
	other := r.open(fleet.Config{Cells: r.cells, Serve: []string{}}) // it reads the map by itself
	draws := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
	histories := make(map[string]*history)
	r.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
		histories[job.Meta["key"].(string)].handle(job)
		return nil
	})
	var partitions []int
	names := make([]string, keys)
	for i := range keys {
		names[i] = keyIn(i%cells, cells)
		if i >= cells {
			names[i] = otherKeyIn(i%cells, cells)
		}
		partitions = append(partitions, fleet.Partition(names[i]))
		histories[names[i]] = &history{ran: make(map[string]int)}
	}
	r.must(r.Enqueue(r.ctx, "x", 1, ojs.WithMeta("key", names[0]))) // makes the map
	stop := r.run(r.Fleet)
	ctx, calm := context.WithTimeout(r.ctx, seconds*time.Second)
	defer calm()
	var ended atomic.Int64 // moves
	var all sync.WaitGroup
	for i, key := range names {
		f := []*fleet.Fleet[int]{r.Fleet, other}[i/cells]
		all.Go(func() { produce(ctx, r, f, key, histories[key], draws(uint64(i))) })
	}
	for i := range 2 {
		all.Go(func() {
			for draw := draws(uint64(100 + i)); ctx.Err() == nil; {
				pace.Virtual(time.Duration(draw.IntN(10_000)) * time.Millisecond)
				move := fleet.Move{To: r.cells[draw.IntN(cells)].Name, Strict: strict || draw.IntN(2) == 0,
					CallTime: time.Second}
				for _, p := range partitions {
					if draw.IntN(2) == 0 || len(move.Partitions) == 0 {
						move.Partitions = append(move.Partitions, p)
					}
				}
				if m, err := r.Map(r.ctx); err != nil {
					t.Error(err)
				} else if held, to := m.Moving(); to != "" && draw.IntN(3) > 0 {
					move.Partitions, move.To, move.Strict = held, to, true
				}
				n := int64(1 << 40)
				if draw.IntN(3) > 0 {
					n = draw.Int64N(60)
				}
				with, died := r.dying(n, draw.IntN(2) == 0)
				within, cancel := context.WithTimeout(r.ctx, time.Duration(15+draw.IntN(60))*time.Second)
				_, err := fleet.MovePartitions(within, with, move)
				cancel()
				if err == nil {
					ended.Add(1)
				}
				if err != nil && !died() && !errors.Is(err, fleet.ErrMoving) && within.Err() == nil {
					t.Errorf("a move: %v", err)
				}
			}
		})
	}
	all.Wait()
	m, err := r.Map(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if held, to := m.Moving(); to != "" {
		r.move(fleet.Move{Partitions: held, To: to, Strict: true})
	}
	for i, p := range partitions {
		if m, err = r.Map(r.ctx); err != nil {
			t.Fatal(err)
		}
		r.move(fleet.Move{Partitions: partitions[i : i+1], To: m.Cell(p)})
	}
	r.agree()
	if ended.Load() == 0 {
		t.Error("no move has ended")
	}
	for key, h := range histories {
		if len(h.enqueued) == 0 || len(h.others) == 0 {
			t.Errorf("key %s: no jobs", key)
		}
		for _, id := range slices.Concat(h.enqueued, h.others) {
			if job, err := r.Wait(r.ctx, id); err != nil || job.State != ojs.StateCompleted {
				t.Errorf("key %s: job %s: %+v, %v", key, id, job, err)
			}
		}
	}
	stop()
	for key, h := range histories {
		for _, id := range slices.Concat(h.enqueued, h.others) {
			if h.ran[id] != 1 {
				t.Errorf("key %s: job %s ran %d times", key, id, h.ran[id])
			}
		}
		if strict && h.equals > 0 {
			t.Errorf("key %s: %d equal jobs", key, h.equals)
		}
		if strict && (h.overlaps > 0 || !slices.Equal(h.enqueued, h.began)) {
			t.Errorf("key %s: %d of %d jobs began beside another, or not in order", key, h.overlaps,
				len(h.enqueued))
		}
	}
}

// otherKeyIn returns another key of a cell by the first map of n cells.
func otherKeyIn(cell, n int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("other-", i); fleet.Partition(key)*n/fleet.Partitions == cell {
			return key
		}
	}
}

// produce enqueues jobs of a key.
func produce(ctx context.Context, r *rig, f *fleet.Fleet[int], key string, h *history, draw *rand.Rand) {
	for ctx.Err() == nil {
		pace.Virtual(time.Duration(draw.IntN(4000)) * time.Millisecond)
		opts := []ojs.Option{fleet.WithCell(key), ojs.WithMeta("key", key)}
		kind := draw.IntN(4)
		switch kind {
		case 0:
			opts = append(opts, ojs.WithOrderingKey(key), ojs.WithMeta("ordered", true))
		case 1:
			opts = append(opts, ojs.WithDelay(time.Duration(draw.IntN(15))*time.Second))
		case 2:
			opts = append(opts, ojs.WithDelay(time.Duration(1+draw.IntN(15))*time.Second),
				ojs.WithUnique(ojs.UniquePolicy{Key: key, OnConflict: ojs.ConflictIgnore}))
		}
		ticket, err := f.Enqueue(r.ctx, "x", draw.IntN(2000), opts...)
		if errors.Is(err, fleet.ErrMoving) {
			continue
		}
		if err != nil {
			r.t.Errorf("key %s: %v", key, err)
			return
		}
		if kind == 2 && !ticket.Deduplicated {
			if last, err := f.Get(r.ctx, h.unique); h.unique != "" && (err != nil || !last.State.Terminal()) {
				h.equals++
			}
			h.unique = ticket.ID
		}
		h.mu.Lock()
		switch {
		case kind == 0:
			h.enqueued = append(h.enqueued, ticket.ID)
		case !ticket.Deduplicated:
			h.others = append(h.others, ticket.ID)
		}
		h.mu.Unlock()
	}
}

// All jobs and recurring jobs end where they are. A plain move counts them, and a strict
// one waits for the jobs. New ones go to the new cell.
func TestWhatStays(t *testing.T) {
	for _, strict := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 3)
			r.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
				pace.Virtual(time.Duration(job.Args) * time.Minute)
				return nil
			})
			r.run(r.Fleet)
			key := keyIn(0, 3)
			began := time.Now()
			in := []ojs.Option{fleet.WithCell(key)}
			later := r.must(r.Enqueue(r.ctx, "x", 0, append(in, ojs.WithDelay(20*time.Minute))...))
			stay := []ojs.Ticket{later,
				r.must(r.Enqueue(r.ctx, "x", 10, in...)),
				r.must(r.Enqueue(r.ctx, "x", 0, append(in, ojs.WithDependsOn(later.ID))...))}
			r.must(r.Enqueue(r.ctx, "x", 0, fleet.WithCell(keyIn(1, 3)), ojs.WithDelay(time.Hour)))
			for _, name := range []string{key, otherKeyIn(0, 3)} {
				entries, err := r.Cron(r.ctx, name)
				if err == nil {
					err = entries.Set(r.ctx, cron.Entry{Name: name, Schedule: "0 0 1 1 *",
						Job: ojs.NewDraft("x", 0)})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			move := fleet.Move{Partitions: []int{fleet.Partition(key)}, To: "b", Strict: strict}
			moved, took := r.move(move), time.Since(began)
			if strict {
				if moved != (fleet.Moved{Recurring: 1}) || took < 20*time.Minute || took > 21*time.Minute {
					t.Errorf("after %v: %+v", took, moved)
				}
			} else if moved != (fleet.Moved{Left: 3, Recurring: 1}) || took != 40*time.Second {
				t.Errorf("after %v: %+v", took, moved)
			}
			next := r.must(r.Enqueue(r.ctx, "x", 0, in...))
			for _, ticket := range append(stay, next) {
				if _, err := ticket.Wait(r.ctx); err != nil {
					t.Error(err)
				}
				if got := r.cellOf(ticket.ID); (got == "b") != (ticket.ID == next.ID) {
					t.Errorf("job %s is in cell %s", ticket.ID, got)
				}
			}
			entries, err := r.Cron(r.ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := entries.Get(r.ctx, key); !errors.Is(err, ojs.ErrNotFound) {
				t.Errorf("the new cell has the recurring job: %v", err)
			}
			r.agree()
		})
	}
}

// A strict move that does not end in time leaves the partitions where they are. Meanwhile
// their enqueues wait, and not for ever.
func TestStrictMoveGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		key := keyIn(0, 2)
		r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key))) // and does not run
		r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key), ojs.WithDelay(time.Hour)))
		ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
		defer cancel()
		move := fleet.Move{Partitions: []int{fleet.Partition(key)}, To: "b", Strict: true}
		moved := make(chan error)
		go func() {
			_, err := r.Move(ctx, move)
			moved <- err
		}()
		pace.Virtual(11 * time.Second)
		began := time.Now()
		if _, err := r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key)); !errors.Is(err, fleet.ErrMoving) ||
			time.Since(began).Round(time.Second) != 30*time.Second {
			t.Errorf("an enqueue, after %v: %v", time.Since(began), err)
		}
		short, end := context.WithTimeout(r.ctx, time.Second)
		defer end()
		if _, err := r.Enqueue(short, "x", 1, fleet.WithCell(key)); !errors.Is(err, fleet.ErrMoving) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an enqueue with a deadline: %v", err)
		}
		other := []int{fleet.Partition(keyIn(1, 2))}
		for _, m := range []fleet.Move{{Partitions: other, To: "a", Strict: true},
			{Partitions: move.Partitions, To: "b"}} {
			if _, err := r.Move(r.ctx, m); !errors.Is(err, fleet.ErrMoving) {
				t.Errorf("another move: %v", err)
			}
		}
		r.must(r.Enqueue(r.ctx, "x", 1)) // a job without a key goes elsewhere
		if err := <-moved; !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "2 jobs of the partitions have not ended, of which 1 wait") {
			t.Errorf("the move: %v", err)
		}
		if ticket := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key))); r.cellOf(ticket.ID) != "a" {
			t.Error("the partition has moved")
		}
		r.agree()
	})
}

// A program that takes a strict move over is not disturbed by the one before, whose undo
// comes too late.
func TestMoveTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		key := keyIn(0, 2)
		stays := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key)))
		move := fleet.Move{Partitions: []int{fleet.Partition(key)}, To: "b", Strict: true}
		ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
		defer cancel()
		first, second := make(chan error), make(chan error)
		for _, m := range []struct {
			ctx context.Context
			err chan error
		}{{ctx, first}, {r.ctx, second}} {
			go func() {
				_, err := r.Move(m.ctx, move)
				m.err <- err
			}()
			pace.Virtual(30 * time.Second)
		}
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first move: %v", err)
		}
		m, err := r.Map(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, to := m.Moving(); to != "b" {
			t.Errorf("the undo has ended the hold: %v", m)
		}
		if err := r.Cancel(r.ctx, stays.ID); err != nil {
			t.Fatal(err)
		}
		if err := <-second; err != nil {
			t.Errorf("the second move: %v", err)
		}
		if m, err = r.Map(r.ctx); err != nil || m.Cell(move.Partitions[0]) != "b" {
			t.Errorf("the map is %v, %v", m, err)
		}
		r.agree()
	})
}

// A strict move that was taken over gives nothing, though the program that took it over
// has given up and another move holds the partitions.
func TestMoveLosesItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		key := keyIn(0, 3)
		stays := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key)))
		move := fleet.Move{Partitions: []int{fleet.Partition(key)}, To: "b", Strict: true,
			CallTime: time.Second}
		start := func(ctx context.Context) (ended chan error) {
			ended = make(chan error, 1)
			m := move
			go func() {
				_, err := r.Move(ctx, m)
				ended <- err
			}()
			pace.Virtual(15 * time.Second)
			return ended
		}
		first := start(r.ctx)
		short, cancel := context.WithTimeout(r.ctx, time.Second)
		defer cancel()
		if err := <-start(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second move: %v", err)
		}
		move.To, move.CallTime = "c", time.Minute
		third := start(r.ctx)
		if err := r.Cancel(r.ctx, stays.ID); err != nil {
			t.Fatal(err)
		}
		if err := <-first; !errors.Is(err, fleet.ErrMoving) {
			t.Errorf("the first move: %v", err)
		}
		if m, err := r.Map(r.ctx); err != nil || m.Cell(move.Partitions[0]) != "a" {
			t.Errorf("the map is %v, %v", m, err)
		}
		if err := <-third; err != nil {
			t.Error(err)
		}
		if m, err := r.Map(r.ctx); err != nil || m.Cell(move.Partitions[0]) != "c" {
			t.Errorf("the map is %v, %v", m, err)
		}
	})
}

// A strict move gives what it has held. It leaves alone a partition that the new cell had
// when it began, and that a plain move has given to another cell since.
func TestStrictMoveGivesWhatItHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		stays := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(keyIn(0, 3))))
		had, gets := fleet.Partition(keyIn(1, 3)), fleet.Partition(keyIn(0, 3))
		moved := make(chan error)
		go func() {
			_, err := r.Move(r.ctx, fleet.Move{Partitions: []int{had, gets}, To: "b", Strict: true})
			moved <- err
		}()
		pace.Virtual(time.Second)
		r.move(fleet.Move{Partitions: []int{had}, To: "c"})
		if err := r.Cancel(r.ctx, stays.ID); err != nil {
			t.Fatal(err)
		}
		if err := <-moved; err != nil {
			t.Error(err)
		}
		if m, err := r.Map(r.ctx); err != nil || m.Cell(had) != "c" || m.Cell(gets) != "b" {
			t.Errorf("the map is %v, %v", m, err)
		}
	})
}

// Drafts that wait for one partition are placed anew, since the others may have moved
// meanwhile.
func TestDraftsArePlacedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		first, second := keyIn(0, 3), otherKeyIn(0, 3)
		stays := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(second)))
		moved := make(chan error)
		go func() {
			move := fleet.Move{Partitions: []int{fleet.Partition(second)}, To: "b", Strict: true,
				CallTime: time.Second}
			_, err := r.Move(r.ctx, move)
			moved <- err
		}()
		pace.Virtual(15 * time.Second)
		enqueued := make(chan error)
		go func() {
			tickets, err := r.EnqueueMany(r.ctx, ojs.NewDraft("x", 1, fleet.WithCell(first)),
				ojs.NewDraft("x", 1, fleet.WithCell(second)))
			if err == nil && r.cellOf(tickets[0].ID) != "b" {
				err = fmt.Errorf("the jobs are in cell %s", r.cellOf(tickets[0].ID))
			}
			enqueued <- err
		}()
		pace.Virtual(time.Second)
		r.move(fleet.Move{Partitions: []int{fleet.Partition(first)}, To: "b", CallTime: time.Millisecond})
		if err := r.Cancel(r.ctx, stays.ID); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-moved, <-enqueued); err != nil {
			t.Error(err)
		}
	})
}

// A process that only runs jobs follows the map, so that its recurring jobs do not hold a
// strict move up.
func TestRunFollowsTheMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
		r.run(r.Fleet)
		m, err := r.Map(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		keep, give := m.Partitions("a")[:1], m.Partitions("a")[1:]
		r.move(fleet.Move{Partitions: give, To: "b", Strict: true})
		pace.Virtual(11 * time.Second)
		for name, eng := range r.Engines() {
			ticket := r.must(eng.Enqueue(r.ctx, "x", 1))
			if p, _ := fleet.PartitionOf(ticket.ID); name == "a" && p != keep[0] {
				t.Errorf("a job of the engine has partition %d", p)
			}
		}
	})
}

// A cell is given up: all its partitions move, and programs put no job into it.
func TestCellIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
		stop := r.run(r.Fleet)
		for range 20 {
			r.must(r.Enqueue(r.ctx, "x", 1, ojs.WithDelay(time.Hour)))
		}
		m, err := r.Map(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if moved := r.move(fleet.Move{Partitions: m.Partitions("a"), To: "b"}); moved.Left == 0 {
			t.Error("cell a had no job")
		}
		for range 50 {
			if ticket := r.must(r.Enqueue(r.ctx, "x", 1)); r.cellOf(ticket.ID) != "b" {
				t.Errorf("a job without a key is in cell %s", r.cellOf(ticket.ID))
			}
		}
		pace.Virtual(time.Hour)
		n, err := r.stores[0].Counts(r.ctx)
		for _, c := range n {
			if !c.State.Terminal() {
				t.Errorf("cell a has %+v, %v", c, err)
			}
		}
		stop()
		alone := r.open(fleet.Config{Cells: r.cells[1:]})
		ticket, err := alone.Enqueue(r.ctx, "x", 1, fleet.WithCell(keyIn(0, 2)))
		if err != nil || r.cellOf(ticket.ID) != "b" {
			t.Errorf("without the cell: %v", err)
		}
	})
}

// A move waits for the programs that have read an older copy of the map, before it counts
// jobs.
func TestMoveWaitsForOldCopies(t *testing.T) {
	for _, strict := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 2)
			r.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
			r.run(r.Fleet)
			key, other := keyIn(0, 2), r.open(fleet.Config{Cells: r.cells})
			r.must(other.Enqueue(r.ctx, "x", 1, fleet.WithCell(key)))
			began := time.Now()
			moved := make(chan fleet.Moved)
			go func() {
				moved <- r.move(fleet.Move{Partitions: []int{fleet.Partition(key)}, To: "b", Strict: strict})
			}()
			pace.Virtual(9 * time.Second) // the copy is still trusted
			late := r.must(other.Enqueue(r.ctx, "x", 1, fleet.WithCell(key), ojs.WithDelay(time.Hour)))
			if in := r.cellOf(late.ID); in != "a" {
				t.Errorf("the job is in cell %s", in)
			}
			got, took := <-moved, time.Since(began)
			if strict && (got.Left != 0 || took < time.Hour) || !strict && got.Left != 1 {
				t.Errorf("after %v: %+v", took, got)
			}
		})
	}
}

// A plain move gives the partitions of a cell that is down.
func TestMoveFromADeadCell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		key := keyIn(1, 3)
		r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key), ojs.WithDelay(time.Hour)))
		r.kill(1)
		move := fleet.Move{Partitions: []int{fleet.Partition(key)}, To: "c"}
		_, err := r.Move(r.ctx, move)
		if !errors.Is(err, errDown) || !strings.Contains(err.Error(), "cell c has the partitions") {
			t.Errorf("the move: %v", err)
		}
		ticket := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key)))
		if in := r.cellOf(ticket.ID); in != "c" {
			t.Errorf("a new job is in cell %s", in)
		}
		r.revive(1)
		if moved := r.move(move); moved.Left != 1 {
			t.Errorf("%+v", moved)
		}
		r.agree()
	})
}

func TestBadMoves(t *testing.T) {
	r := newRig(t, 2)
	for _, move := range []fleet.Move{{Partitions: []int{1}, To: "z"}, {To: "a"},
		{Partitions: []int{-1}, To: "a"}, {Partitions: []int{fleet.Partitions}, To: "a"},
		{Partitions: []int{1}, To: "a", CallTime: -1}} {
		if _, err := r.Move(r.ctx, move); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%+v: %v", move, err)
		}
	}
	docs, err := r.stores[0].Documents(r.ctx, storage.KindValue, storage.DocumentQuery{})
	if len(docs) > 0 || err != nil {
		t.Errorf("a refused move has written %v, %v", docs, err)
	}
}
