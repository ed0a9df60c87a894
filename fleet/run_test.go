package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		loads []load
		want  string
	}{
		{[]load{{}, {}, {}}, "[3 3 4]"},
		{[]load{{}, {3, true}, {}}, "[1 8 1]"},
		{[]load{{3, false}, {3, true}, {}}, "[4 5 1]"},
		{[]load{{9, true}, {1, true}, {}}, "[4 5 1]"},
		{[]load{{12, false}, {1, true}, {}}, "[8 1 1]"},
	} {
		if got := fmt.Sprint(split(10, c.loads)); got != c.want {
			t.Errorf("%v: %v, want %v", c.loads, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		one := rapid.Custom(func(t *rapid.T) load {
			return load{rapid.IntRange(0, 20).Draw(t, "busy"), rapid.Bool().Draw(t, "more")}
		})
		loads := rapid.SliceOfN(one, 1, 6).Draw(t, "loads")
		total := rapid.IntRange(len(loads), 20).Draw(t, "total")
		slots, sum := split(total, loads), 0
		for _, n := range slots {
			sum += n
		}
		if slices.Min(slots) < 1 || sum > total {
			t.Errorf("%v: %v of %d", loads, slots, total)
		}
	})
}

// The only cell with jobs gets the slots of the others, and they get them back.
func TestIdleCellsLendTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cells []Cell
		for _, name := range []string{"a", "b", "c"} {
			s := memory.New()
			defer func() { _ = s.Close() }()
			cells = append(cells, Cell{Name: name, Store: s})
		}
		f, err := New[int](Config{Cells: cells, Concurrency: 12})
		if err != nil {
			t.Fatal(err)
		}
		var running [2]atomic.Int64
		f.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
			running[job.Args].Add(1)
			defer running[job.Args].Add(-1)
			pace.Virtual(73 * time.Millisecond) // so that no attempt ends when slots are shared
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx) }()
		fill := func(cell int) {
			for range 500 {
				if _, err := f.cells[cell].eng.Enqueue(ctx, "x", cell); err != nil {
					t.Fatal(err)
				}
			}
		}
		fill(0)
		pace.Virtual(time.Second + time.Millisecond)
		if a := running[0].Load(); a != 10 {
			t.Errorf("%d attempts of the busy cell, want 10: all but one of each other cell", a)
		}
		fill(1)
		pace.Virtual(time.Second)
		a, b := running[0].Load(), running[1].Load()
		if a+b != 11 || a < 5 || b < 5 {
			t.Errorf("%d and %d attempts of two busy cells, want 5 and 6", a, b)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
