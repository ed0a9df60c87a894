package fleet_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/storage"
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
				list, err := fleet.Open(clock.New(), own...)
				if err != nil {
					t.Error(err)
					return
				}
				maps[i], errs[i] = list.Map(t.Context())
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

// A copy that does not decode, or is not whole, is refused.
func TestBrokenCopy(t *testing.T) {
	for _, data := range []string{`{`, `{"cell":"a"}`,
		`{"cell":"a","version":1,"owners":[{"cell":"a","partitions":9}]}`,
		`{"cell":"a","version":1,"owners":[{"cell":"a","partitions":5000}]}`,
		`{"cell":"a","version":1,"owners":[{"cell":"a","partitions":4096}],"held":[-1]}`} {
		r := newRig(t, 1)
		_, err := r.stores[0].PutDocuments(r.ctx, storage.KindValue, []storage.Document{
			{Name: "fleet/map", Version: storage.AnyVersion, Data: []byte(data)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Enqueue(r.ctx, "x", 1); !errors.Is(err, fleet.ErrMap) {
			t.Errorf("%s: %v", data, err)
		}
	}
}
