package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errDown = errors.New("the cell is down")
	quiet   = engine.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
)

// rig is a fleet over storages in memory that can be killed.
type rig struct {
	*fleet.Fleet[int]
	t      *testing.T
	ctx    context.Context
	cells  []fleet.Cell
	stores []*storagetest.Faulty
}

// newCells makes cells named a, b, c, ...
func newCells(t *testing.T, n int) (cells []fleet.Cell, stores []*storagetest.Faulty) {
	for i := range n {
		s := &storagetest.Faulty{Storage: memory.New()}
		t.Cleanup(func() { _ = s.Close() })
		stores = append(stores, s)
		cells = append(cells, fleet.Cell{Name: string(rune('a' + i)), Store: s})
	}
	return cells, stores
}

func newRig(t *testing.T, n int) *rig {
	t.Helper()
	cells, stores := newCells(t, n)
	r := &rig{t: t, ctx: t.Context(), cells: cells, stores: stores}
	r.Fleet = r.open(fleet.Config{Cells: cells})
	return r
}

func (r *rig) open(cfg fleet.Config) *fleet.Fleet[int] {
	r.t.Helper()
	f, err := fleet.New[int](cfg, quiet)
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

// run runs a fleet until the end of the test, or until stop is called.
func (r *rig) run(f *fleet.Fleet[int]) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(stop)
	return stop
}

// kill fails every call of a cell, and revive ends that.
func (r *rig) kill(cell int)   { r.stores[cell].OnCall(func(c *storagetest.Call) { c.Err = errDown }) }
func (r *rig) revive(cell int) { r.stores[cell].OnCall(nil) }

func (r *rig) must(ticket ojs.Ticket, err error) ojs.Ticket {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	return ticket
}

// cellOf returns the cell that a job is in.
func (r *rig) cellOf(id string) (names string) {
	for name, eng := range r.Engines() {
		if _, err := eng.Get(r.ctx, id); err == nil {
			names += name
		}
	}
	return names
}

// keyIn returns a key of a cell by the first map of n cells.
func keyIn(cell, n int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("key-", i); fleet.Partition(key)*n/fleet.Partitions == cell {
			return key
		}
	}
}

func TestPartition(t *testing.T) {
	for key, want := range map[string]int{"": 2342, "tenant-7": 3686, "order-1": 2469} {
		if got := fleet.Partition(key); got != want {
			t.Errorf("stored jobs rely on it: partition of %q is %d, not %d", key, got, want)
		}
	}
	counts := make([]int, 16)
	for i := range 16_000 {
		counts[fleet.Partition(fmt.Sprint(i))/256]++
	}
	if slices.Min(counts) < 850 || slices.Max(counts) > 1150 {
		t.Errorf("keys are spread unevenly: %v", counts)
	}
	for _, id := range []string{"", "0196", "01960000-0000-4000-8000-000000000000",
		"01960000-0000-7000-zzzz-000000000000"} {
		if _, ok := fleet.PartitionOf(id); ok {
			t.Errorf("%q has a partition", id)
		}
	}
}

// A job is in the cell of its key, and its id says so.
func TestPlacement(t *testing.T) {
	r := newRig(t, 3)
	names := []string{"a", "b", "c"}
	byMeta := r.open(fleet.Config{Cells: r.cells, Key: func(d ojs.Draft) string { return d.Type() }})
	typed := ojs.Define[int]("typed", ojs.WithOrderingKey(keyIn(1, 3)))
	for i := range 3 {
		key := keyIn(i, 3)
		for name, enqueue := range map[string]func() (ojs.Ticket, error){
			"WithCell": func() (ojs.Ticket, error) { return r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key)) },
			"a draft": func() (ojs.Ticket, error) {
				draft := ojs.NewDraft("x", 1)
				list, err := r.EnqueueMany(r.ctx, draft, draft.With(fleet.WithCell(key)))
				return list[1], err
			},
			"WithCell decides over other keys": func() (ojs.Ticket, error) {
				return r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key), ojs.WithOrderingKey(keyIn((i+1)%3, 3)))
			},
			"an ordering key": func() (ojs.Ticket, error) {
				return r.Enqueue(r.ctx, "x", 1, ojs.WithOrderingKey(key))
			},
			"a rate limit": func() (ojs.Ticket, error) {
				return r.Enqueue(r.ctx, "x", 1, ojs.WithRateLimit(ojs.RateLimit{Key: key, Concurrency: 1}))
			},
		} {
			ticket := r.must(enqueue())
			partition, ok := fleet.PartitionOf(ticket.ID)
			if got := r.cellOf(ticket.ID); got != names[i] || !ok || partition != fleet.Partition(key) {
				t.Errorf("%s: in cell %s with partition %d, want cell %s and %d", name, got, partition,
					names[i], fleet.Partition(key))
			}
			if job, err := r.Get(r.ctx, ticket.ID); err != nil || job.ID != ticket.ID {
				t.Errorf("%s: Get: %v", name, err)
			}
		}
		if ticket := r.must(byMeta.Enqueue(r.ctx, key, 1)); r.cellOf(ticket.ID) != names[i] {
			t.Errorf("Config.Key: in cell %s", r.cellOf(ticket.ID))
		}
	}
	ticket, err := typed.Enqueue(r.ctx, r, 1)
	if r.must(ticket, err); r.cellOf(ticket.ID) != "b" {
		t.Errorf("an ordering key of the type: in cell %s", r.cellOf(ticket.ID))
	}
	after := r.must(r.Enqueue(r.ctx, "x", 1, ojs.WithDependsOn(ticket.ID)))
	if r.cellOf(after.ID) != "b" {
		t.Errorf("a job that waits for another: in cell %s", r.cellOf(after.ID))
	}
	first := r.must(r.Enqueue(r.ctx, "x", 1, ojs.WithIdempotencyKey("once")))
	again := r.must(r.Enqueue(r.ctx, "x", 2, ojs.WithIdempotencyKey("once")))
	if !again.Deduplicated || again.ID != first.ID {
		t.Errorf("an equal job has the ticket %+v", again)
	}
	id := "01960000" + first.ID[8:] // of the same partition
	r.must(r.Enqueue(r.ctx, "x", 1, ojs.WithID(id)))
	if _, err := r.Enqueue(r.ctx, "x", 1, ojs.WithID(id)); !errors.Is(err, ojs.ErrDuplicate) {
		t.Errorf("an id is stored twice: %v", err)
	}
}

// Two keys in different cells are refused with both named.
func TestKeysInTwoCells(t *testing.T) {
	r := newRig(t, 2)
	a, b := keyIn(0, 2), keyIn(1, 2)
	inB := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(b)))
	for want, enqueue := range map[string]func() error{
		`cell key "` + a + `" is in cell a, and cell key "` + b + `" in cell b`: func() error {
			_, err := r.EnqueueMany(r.ctx, ojs.NewDraft("x", 1, fleet.WithCell(a)),
				ojs.NewDraft("x", 1, fleet.WithCell(b)))
			return err
		},
		`ordering key "` + a + `" is in cell a, and rate limit key "` + b + `" in cell b`: func() error {
			_, err := r.Enqueue(r.ctx, "x", 1, ojs.WithOrderingKey(a),
				ojs.WithRateLimit(ojs.RateLimit{Key: b, Concurrency: 1}))
			return err
		},
		`cell key "` + a + `" is in cell a, and dependency "` + inB.ID + `" in cell b`: func() error {
			_, err := r.Enqueue(r.ctx, "x", 1, fleet.WithCell(a), ojs.WithDependsOn(inB.ID))
			return err
		},
	} {
		if err := enqueue(); !errors.Is(err, fleet.ErrCells) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	for _, bad := range []string{"", strings.Repeat("k", 256), "\xff"} {
		if _, err := r.Enqueue(r.ctx, "x", 1, fleet.WithCell(bad)); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("key %q: %v", bad, err)
		}
	}
}

// One of four cells is dead: jobs without a key are enqueued, under the id of the first
// try, and keyed ones of the dead cell fail.
func TestDeadCell(t *testing.T) {
	r := newRig(t, 4)
	r.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
	r.must(r.Enqueue(r.ctx, "x", 0))
	for _, ambiguous := range []bool{false, true} {
		tried := make(map[string]bool)
		r.stores[2].OnCall(func(c *storagetest.Call) {
			if ambiguous && c.Method == "Insert" {
				c.Do()
			}
			c.Err = errDown
		})
		for range 200 {
			ticket := r.must(r.Enqueue(r.ctx, "x", 1))
			list, err := r.EnqueueMany(r.ctx, ojs.NewDraft("x", 1), ojs.NewDraft("x", 2))
			if err != nil || len(list) != 2 {
				t.Fatal(err)
			}
			for _, id := range []string{ticket.ID, list[0].ID, list[1].ID} {
				if _, err := r.Get(r.ctx, id); err != nil || tried[id] {
					t.Fatalf("job %s: %v", id, err)
				}
				tried[id] = true
			}
		}
	}
	if _, err := r.Enqueue(r.ctx, "x", 1, fleet.WithCell(keyIn(2, 4))); !errors.Is(err, errDown) {
		t.Errorf("a key of the dead cell: %v", err)
	}
	r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(keyIn(1, 4))))
	for i := range r.stores {
		r.kill(i)
	}
	_, err := r.Enqueue(r.ctx, "x", 1)
	for _, name := range []string{"cell a", "cell b", "cell c", "cell d"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("every cell is dead: %v, want %s in it", err, name)
		}
	}
}

// A cell that does not answer is the last choice.
func TestHungCell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.must(r.Enqueue(r.ctx, "x", 0))
		release, before := make(chan struct{}), r.stores[0].Calls("Insert")
		r.stores[0].OnCall(func(c *storagetest.Call) {
			if c.Method == "Insert" {
				<-release
			}
		})
		var hung sync.WaitGroup
		for r.stores[0].Calls("Insert") == before {
			hung.Go(func() { r.must(r.Enqueue(r.ctx, "x", 1)) })
			synctest.Wait()
		}
		pace.Virtual(2 * time.Second)
		for range 100 {
			r.must(r.Enqueue(r.ctx, "x", 2))
		}
		close(release)
		hung.Wait()
	})
}

// Jobs run in every cell that is served, and are waited for and cancelled by id.
func TestRun(t *testing.T) {
	r := newRig(t, 3)
	half := r.open(fleet.Config{Cells: r.cells, Serve: []string{"a", "b"}})
	var ran atomic.Int64
	half.Handle("x", func(ctx context.Context, job *ojs.Job[int]) error { ran.Add(1); return nil })
	r.run(half)
	for i := range 2 {
		ticket := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(keyIn(i, 3))))
		if job, err := ticket.Wait(r.ctx); err != nil || job.State != ojs.StateCompleted {
			t.Errorf("cell %d: %v", i, err)
		}
		if job, err := half.Wait(r.ctx, ticket.ID); err != nil || job.State != ojs.StateCompleted {
			t.Errorf("cell %d: %v", i, err)
		}
	}
	ticket := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(keyIn(2, 3))))
	if err := half.Cancel(r.ctx, ticket.ID); err != nil {
		t.Error(err)
	}
	var ended *ojs.EndedError
	if _, err := ticket.Wait(r.ctx); !errors.As(err, &ended) {
		t.Errorf("a cancelled job: %v", err)
	}
	if ran.Load() != 2 {
		t.Errorf("%d jobs ran", ran.Load())
	}
	unknown := "01960000" + ticket.ID[8:]
	if _, err := r.Get(r.ctx, unknown); !errors.Is(err, ojs.ErrNotFound) {
		t.Errorf("an unknown job: %v", err)
	}
	r.kill(0)
	if _, err := r.Get(r.ctx, unknown); !errors.Is(err, errDown) || errors.Is(err, ojs.ErrNotFound) {
		t.Errorf("a job that a dead cell may have: %v", err)
	}
	r.revive(0)
}

func TestCron(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		var ran atomic.Int64
		r.Handle("report", func(context.Context, *ojs.Job[int]) error { ran.Add(1); return nil })
		name := keyIn(1, 2)
		entries, err := r.Cron(r.ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		err = entries.Set(r.ctx, cron.Entry{Name: name, Schedule: "0 * * * *",
			Job: ojs.NewDraft("report", 1)})
		if err != nil {
			t.Fatal(err)
		}
		stop := r.run(r.Fleet)
		pace.Virtual(3*time.Hour + time.Second)
		if n := ran.Load(); n != 3 {
			t.Errorf("%d runs in 3 hours", n)
		}
		for cell, eng := range r.Engines() {
			list, err := eng.Cron().List(r.ctx)
			if err != nil || (len(list) == 1) != (cell == "b") {
				t.Errorf("cell %s has %v, %v", cell, list, err)
			}
		}
		stop()
	})
}

func TestConfig(t *testing.T) {
	s := memory.New()
	defer func() { _ = s.Close() }()
	for want, cfg := range map[string]fleet.Config{
		"are none":          {},
		`name "A b"`:        {Cells: []fleet.Cell{{Name: "A b", Store: s}}},
		"storage of a is":   {Cells: []fleet.Cell{{Name: "a"}}},
		"nil":               {Cells: []fleet.Cell{{Name: "a", Store: (*memory.Storage)(nil)}}},
		"have the same":     {Cells: []fleet.Cell{{Name: "a", Store: s}, {Name: "b", Store: s}}},
		"two have the name": {Cells: []fleet.Cell{{Name: "a", Store: s}, {Name: "a", Store: memory.New()}}},
		`names "c"`:         {Cells: []fleet.Cell{{Name: "a", Store: s}}, Serve: []string{"c"}},
		"is less than the 2": {Cells: []fleet.Cell{{Name: "a", Store: s}, {Name: "b", Store: memory.New()}},
			Concurrency: 1},
	} {
		_, err := fleet.New[int](cfg)
		if !errors.Is(err, ojs.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	one := fleet.Config{Cells: []fleet.Cell{{Name: "a", Store: s}}}
	_, err := fleet.New[int](one, engine.WithConcurrency(0))
	if !errors.Is(err, ojs.ErrInvalid) || !strings.Contains(err.Error(), "cell a") {
		t.Errorf("an option of the engines: %v", err)
	}
}

// hang has calls of a cell wait for the end of their contexts.
func (r *rig) hang(cell int) {
	r.stores[cell].OnCall(func(c *storagetest.Call) {
		<-c.Context.Done()
		c.Err = c.Context.Err()
	})
}

// within makes a call with half a second of time.
func (r *rig) within(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.ctx, time.Second/2)
	defer cancel()
	return call(ctx)
}

// A caller's deadline that passes makes a cell the last choice, though it is short.
func TestHungCellBeforeDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.must(r.Enqueue(r.ctx, "x", 0))
		r.hang(0)
		enqueue := func(ctx context.Context) error { _, err := r.Enqueue(ctx, "x", 1); return err }
		var err error
		for err == nil {
			err = r.within(enqueue)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		for range 50 {
			if err := r.within(enqueue); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A job that went to another cell is found, although the cell of its id hangs.
func TestLookupsPastAHungCell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.must(r.Enqueue(r.ctx, "x", 0))
		ofA := func(id string) bool { p, _ := fleet.PartitionOf(id); return p < fleet.Partitions/2 }
		r.kill(0)
		id := ""
		for !ofA(id) || id == "" {
			id = r.must(r.Enqueue(r.ctx, "x", 1)).ID
			pace.Virtual(2 * time.Second) // cell a is asked again
		}
		r.hang(0)
		get := func(ctx context.Context) error { _, err := r.Get(ctx, id); return err }
		if err := r.within(get); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first lookup: %v", err)
		}
		if err := r.within(get); err != nil {
			t.Errorf("Get: %v", err)
		}
		if err := r.within(func(ctx context.Context) error { return r.Cancel(ctx, id) }); err != nil {
			t.Errorf("Cancel: %v", err)
		}
		var ended *ojs.EndedError
		err := r.within(func(ctx context.Context) error { _, err := r.Wait(ctx, id); return err })
		if !errors.As(err, &ended) {
			t.Errorf("Wait: %v", err)
		}
	})
}

// The refusal of a hook holds in every cell.
func TestRefusedJobsGoNowhere(t *testing.T) {
	r := newRig(t, 4)
	errNo := errors.New("no")
	asked := 0
	f, err := fleet.New[int](fleet.Config{Cells: r.cells}, quiet,
		engine.WithEnqueueHook(func(context.Context, *ojs.Job[any]) error { asked++; return errNo }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Enqueue(r.ctx, "x", 1); !errors.Is(err, errNo) || asked != 1 {
		t.Errorf("%d cells were asked: %v", asked, err)
	}
}

// A job without a key whose queue is full goes to a cell with room. The full cell takes
// jobs of other queues.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		f, err := fleet.New[int](fleet.Config{Cells: r.cells}, quiet,
			engine.WithQueueConfig("small", engine.QueueConfig{MaxDepth: 1}))
		if err != nil {
			t.Fatal(err)
		}
		in := func(queue string) (string, error) {
			ticket, err := f.Enqueue(r.ctx, "x", 1, ojs.WithQueue(queue))
			return r.cellOf(ticket.ID), err
		}
		first, err := in("small")
		second, err2 := in("small")
		if err != nil || err2 != nil || first+second != "ab" && first+second != "ba" {
			t.Errorf("the cells %q and %q, %v, %v", first, second, err, err2)
		}
		if _, err := in("small"); !errors.Is(err, ojs.ErrQueueFull) {
			t.Errorf("both queues are full: %v", err)
		}
		counts := make(map[string]int)
		for range 100 {
			cell, err := in("large")
			if err != nil {
				t.Fatal(err)
			}
			counts[cell]++
		}
		if counts["a"] < 20 || counts["b"] < 20 {
			t.Errorf("jobs of another queue: %v", counts)
		}
	})
}

// An id must carry the partition of the job's key.
func TestIDOfAnotherPartition(t *testing.T) {
	r := newRig(t, 2)
	a, b := keyIn(0, 2), keyIn(1, 2)
	inA := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(a)))
	inB := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(b)))
	id := "01960000" + inB.ID[8:]
	byType := r.open(fleet.Config{Cells: r.cells, Key: func(d ojs.Draft) string { return d.Type() }})
	for name, enqueue := range map[string]func() error{
		"WithCell": func() error {
			_, err := r.Enqueue(r.ctx, "x", 1, fleet.WithCell(a), ojs.WithID(id))
			return err
		},
		"after another draft of the key": func() error {
			_, err := r.EnqueueMany(r.ctx, ojs.NewDraft("x", 1, fleet.WithCell(a)),
				ojs.NewDraft("x", 1, fleet.WithCell(a), ojs.WithID(id)))
			return err
		},
		"an ordering key": func() error {
			_, err := r.Enqueue(r.ctx, "x", 1, ojs.WithOrderingKey(a), ojs.WithID(id))
			return err
		},
		"Config.Key": func() error { _, err := byType.Enqueue(r.ctx, a, 1, ojs.WithID(id)); return err },
	} {
		if err := enqueue(); !errors.Is(err, ojs.ErrInvalid) || !strings.Contains(err.Error(), "partition") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := r.Enqueue(r.ctx, "x", 1, ojs.WithDependsOn(inA.ID), ojs.WithID(id))
	if !errors.Is(err, fleet.ErrCells) {
		t.Errorf("a dependency in another cell than the id: %v", err)
	}
	ticket := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(b), ojs.WithID(id)))
	if ticket.ID != id || r.cellOf(id) != "b" {
		t.Errorf("an id of the key's partition: %+v in cell %s", ticket, r.cellOf(id))
	}
}

// All that the engine of a cell enqueues stays in the cell, and is found.
func TestEngineOfACell(t *testing.T) {
	r := newRig(t, 2)
	a, b := keyIn(0, 2), keyIn(1, 2)
	eng, err := r.Cell(r.ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	inB := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(b)))
	ofB := ojs.WithID("01960000" + inB.ID[8:])
	for _, opt := range []ojs.Option{fleet.WithCell(b), ojs.WithOrderingKey(b), ofB} {
		ticket := r.must(eng.Enqueue(r.ctx, "x", 1, opt))
		if got := r.cellOf(ticket.ID); got != "a" {
			t.Errorf("a job is in cell %s", got)
		}
		if err := r.Cancel(r.ctx, ticket.ID); err != nil {
			t.Error(err)
		}
	}
}

// Run reads the map: it refuses cells that do not fit, and waits for none that hangs.
func TestRunReadsTheMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		r.must(r.Enqueue(r.ctx, "x", 1))
		swapped := slices.Clone(r.cells)
		swapped[0].Store, swapped[1].Store = r.cells[1].Store, r.cells[0].Store
		empty, _ := newCells(t, 3)
		for name, cells := range map[string][]fleet.Cell{"swapped": swapped, "lacks one": r.cells[:2],
			"an empty storage": {r.cells[0], r.cells[1], empty[2]}} {
			if err := r.open(fleet.Config{Cells: cells}).Run(r.ctx); !errors.Is(err, fleet.ErrMap) {
				t.Errorf("%s: %v", name, err)
			}
		}
		r.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
		later := r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(keyIn(1, 3))))
		r.hang(0)
		r.kill(2)
		stop := r.run(r.Fleet)
		if _, err := later.Wait(r.ctx); err != nil {
			t.Error(err)
		}
		r.revive(0)
		r.revive(2)
		stop()
	})
}

// A process that serves no cell runs until its context ends.
func TestServesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		f := r.open(fleet.Config{Cells: r.cells, Serve: []string{}})
		ctx, cancel := context.WithCancel(r.ctx)
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("Run has returned: %v", err)
		default:
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		cancel()
	})
}
