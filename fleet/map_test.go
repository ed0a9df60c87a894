package fleet_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// A program whose cells do not fit the stored map is refused, with or without a key.
func TestMisfit(t *testing.T) {
	r := newRig(t, 3)
	r.must(r.Enqueue(r.ctx, "x", 1))
	for _, key := range []string{keyIn(0, 3), keyIn(1, 3), keyIn(2, 3)} { // and every cell has its copy
		r.must(r.Enqueue(r.ctx, "x", 1, fleet.WithCell(key)))
	}
	other := newRig(t, 1)
	other.must(other.Enqueue(r.ctx, "x", 1))
	empty, _ := newCells(t, 1)
	a, b, c := r.cells[0], r.cells[1], r.cells[2]
	swap := func(name string, with fleet.Cell) fleet.Cell { return fleet.Cell{Name: name, Store: with.Store} }
	for want, cells := range map[string][]fleet.Cell{
		"cell c has partitions, and is not configured": {a, b},
		"configured as cell a is that of cell b":       {swap("a", b), swap("b", a), c},
		"of two fleets":                                {other.cells[0], b, c},
		"has no copy of version":                       {a, swap("b", empty[0]), c},
	} {
		f := r.open(fleet.Config{Cells: cells})
		var errs []string
		for i := range 3 {
			for range 10 {
				for _, opts := range [][]ojs.Option{nil, {fleet.WithCell(keyIn(i, 3))}} {
					if _, err := f.Enqueue(r.ctx, "x", 1, opts...); errors.Is(err, fleet.ErrMap) {
						errs = append(errs, err.Error())
					}
				}
			}
		}
		if !strings.Contains(strings.Join(errs, "\n"), want) {
			t.Errorf("errors %q, want %s", errs, want)
		}
		for _, cell := range cells { // no job is where the map has it not
			if cell.Store == empty[0].Store {
				if n, err := cell.Store.Counts(r.ctx); err != nil || len(n) > 0 {
					t.Errorf("the storage of no cell has %v, %v", n, err)
				}
			}
		}
	}
	f := r.open(fleet.Config{Cells: []fleet.Cell{a, b, c, swap("d", empty[0])}})
	for range 100 {
		if ticket := r.must(f.Enqueue(r.ctx, "x", 1)); r.cellOf(ticket.ID) == "" {
			t.Error("a cell without partitions got a job")
		}
	}
}

// Programs that make the first map at once agree on it, or all but one are refused.
func TestFirstMap(t *testing.T) {
	for range 50 {
		cells, _ := newCells(t, 3)
		var all sync.WaitGroup
		maps, errs := make([]*fleet.Map, 6), make([]error, 6)
		for i := range maps {
			own := cells
			if i >= 4 {
				own = cells[:2] // another configuration
			}
			all.Go(func() {
				f, err := fleet.New[int](fleet.Config{Cells: own}, quiet)
				if err != nil {
					t.Error(err)
					return
				}
				maps[i], errs[i] = f.Map(t.Context())
			})
		}
		all.Wait()
		seen := make(map[string]bool)
		for i, m := range maps {
			if m != nil {
				seen[m.Fleet] = true
			} else if !errors.Is(errs[i], fleet.ErrMap) {
				t.Fatal(errs[i])
			}
		}
		if len(seen) > 1 {
			t.Fatalf("two maps: %v", seen)
		}
	}
}

// The first map is made when every cell answers. A program that starts later needs one.
func TestMapOfADeadCell(t *testing.T) {
	r := newRig(t, 2)
	r.kill(1)
	if _, err := r.Enqueue(r.ctx, "x", 1); !errors.Is(err, errDown) {
		t.Errorf("the first map: %v", err)
	}
	r.revive(1)
	r.must(r.Enqueue(r.ctx, "x", 1))
	r.kill(0)
	later := r.open(fleet.Config{Cells: r.cells})
	r.must(later.Enqueue(r.ctx, "x", 1, fleet.WithCell(keyIn(1, 2))))
	r.must(later.Enqueue(r.ctx, "x", 1))
}

// A copy that does not decode, is not whole, or has unknown members is refused.
func TestBrokenCopy(t *testing.T) {
	for _, data := range []string{`{`, `{"cell":"a"}`,
		`{"cell":"a","version":1,"owners":[{"cell":"a","partitions":9}]}`,
		`{"cell":"a","version":1,"owners":[{"cell":"a","partitions":5000}]}`,
		`{"cell":"a","version":1,"owners":[{"cell":"a","partitions":4096}],"new":1}`} {
		r := newRig(t, 1)
		_, err := r.stores[0].PutDocuments(r.ctx, storage.KindValue, []storage.Document{
			{Name: "fleet/map", Version: storage.AnyVersion, Data: []byte(data)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Enqueue(r.ctx, "x", 1); !errors.Is(err, fleet.ErrMap) {
			t.Errorf("%s: %v", data, err)
		}
		if m, _, err := fleet.StoredMap(r.ctx, r.stores[0]); m != nil || !errors.Is(err, fleet.ErrMap) {
			t.Errorf("%s, without an engine: %v, %v", data, m, err)
		}
	}
}

// The map is read without an engine, by the storage of any cell.
func TestStoredMap(t *testing.T) {
	r := newRig(t, 2)
	if m, cell, err := fleet.StoredMap(r.ctx, r.stores[1]); m != nil || cell != "" || err != nil {
		t.Errorf("of no fleet: %v, %q, %v", m, cell, err)
	}
	want, err := r.Map(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	got, cell, err := fleet.StoredMap(r.ctx, r.stores[1])
	if err != nil || cell != "b" || got.String() != want.String() || got.Fleet != want.Fleet {
		t.Errorf("%v in cell %q, %v; want %v", got, cell, err, want)
	}
}

// A program that dies at any call while it makes the map leaves no cell of another map,
// and no map that does not hold.
func TestFoundingDiesAnywhere(t *testing.T) {
	for _, done := range []bool{false, true} {
		for n, died := int64(1), true; died; n++ {
			r := newRig(t, 3)
			var calls atomic.Int64
			for _, s := range r.stores {
				s.OnCall(func(c *storagetest.Call) {
					if strings.HasPrefix(c.Method, "PutDocuments") {
						at := calls.Add(1)
						if at == n && done {
							c.Do()
						}
						if at >= n {
							c.Err = errDown
						}
					}
				})
			}
			_, err := r.Enqueue(r.ctx, "x", 1)
			died = calls.Load() >= n
			for i := range r.stores {
				r.revive(i)
			}
			for range 2 { // a process that has failed, and a new one
				for i := range r.stores {
					if _, err := r.Enqueue(r.ctx, "x", 1, fleet.WithCell(keyIn(i, 3))); err != nil {
						t.Fatalf("call %d: %v", n, err)
					}
				}
				if m, err := r.Map(r.ctx); err != nil || m.Version != 2 {
					t.Errorf("call %d: the map is %v, %v", n, m, err)
				}
				r.Fleet = r.open(fleet.Config{Cells: r.cells})
			}
			for i, s := range r.stores {
				q := storage.DocumentQuery{Names: []string{"fleet/map"}}
				docs, err := s.Documents(r.ctx, storage.KindValue, q)
				if err != nil || len(docs) != 1 || !strings.Contains(string(docs[0].Data), `"version":2`) {
					t.Errorf("call %d: cell %d has %v, %v", n, i, docs, err)
				}
			}
			if n > 20 {
				t.Fatal(err)
			}
		}
	}
}

// A proposal that its program has left behind gives way to the map of other programs.
func TestProposalLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.stores[1].OnCall(func(c *storagetest.Call) {
			if strings.HasPrefix(c.Method, "PutDocuments") {
				c.Err = errDown
			}
		})
		if _, err := r.Enqueue(r.ctx, "x", 1); !errors.Is(err, errDown) {
			t.Errorf("no map was made: %v", err)
		}
		r.revive(1)
		r.must(r.open(fleet.Config{Cells: r.cells[1:]}).Enqueue(r.ctx, "x", 1))
		for range 2 {
			f := r.open(fleet.Config{Cells: r.cells})
			r.must(f.Enqueue(r.ctx, "x", 1))
			if m, err := f.Map(r.ctx); err != nil || len(m.Partitions("b")) != fleet.Partitions {
				t.Errorf("the map is %v, %v", m, err)
			}
			stop := r.run(f)
			synctest.Wait() // Run has read the copy of each cell
			stop()
		}
	})
}
