package keyed

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
)

// TestOverlay compares a transaction with a map: what it reads by each way, what a
// rollback undoes, and what it commits.
func TestOverlay(t *testing.T) {
	db := drivertest.NewMemory(false, driver.Limits{})
	rnd := rand.New(rand.NewPCG(3, 4))
	draw := func() []byte { return fmt.Append(nil, rnd.IntN(150)) }
	var o overlay
	state := make(map[string]string)
	for range 60 {
		dtx, err := db.Begin(context.Background(), true)
		if err != nil {
			t.Fatal(err)
		}
		o.reset(dtx)
		mark, marked := 0, maps.Clone(state)
		for range 60 {
			switch k := draw(); rnd.IntN(6) {
			case 0:
				delete(state, string(k))
				o.set(k, nil)
			case 1, 2:
				v := draw()
				state[string(k)] = string(v)
				o.set(k, v)
			case 3:
				if v, there := state[string(k)]; string(o.get(k)) != v || (o.get(k) != nil) != there {
					t.Fatalf("%s is %q, want %q", k, o.get(k), v)
				}
			case 4:
				if rnd.IntN(5) == 0 {
					o.rollback(mark)
					state = maps.Clone(marked)
				}
				mark, marked = len(o.undo), maps.Clone(state)
			case 5:
				compare(t, &o, state, draw(), draw(), rnd)
			}
		}
		writes := o.changes()
		size := 0
		for _, c := range o.written {
			if c.writes {
				size += len(c.key) + len(c.value)
			}
		}
		if o.bytes != size {
			t.Fatalf("the writes are said to have %d bytes, and have %d", o.bytes, size)
		}
		if err := dtx.Commit(writes); err != nil {
			t.Fatal(err)
		}
	}
}

// compare compares scans, during which something is written ahead.
func compare(t *testing.T, o *overlay, state map[string]string, from, to []byte, rnd *rand.Rand) {
	t.Helper()
	for _, w := range []way{forward, backward, peeking} {
		var want, got []string
		for _, k := range slices.Sorted(maps.Keys(state)) {
			if k >= string(from) && k < string(to) {
				want = append(want, k)
			}
		}
		if w == backward {
			slices.Reverse(want)
		}
		most := rnd.IntN(200)
		o.scan(from, to, 1+rnd.IntN(3), w, func(k, v []byte) bool {
			if string(v) != state[string(k)] {
				t.Fatalf("%s is %q, want %q", k, v, state[string(k)])
			}
			got = append(got, string(k))
			if at := slices.Index(want, string(k)); at >= 0 && at+2 < len(want) && rnd.IntN(10) == 0 {
				next := want[at+2] // behind the next
				want = slices.Delete(want, at+2, at+3)
				delete(state, next)
				o.set([]byte(next), nil)
			}
			ahead := append(bytes.Clone(k), '5')
			if rnd.IntN(10) == 0 && w != backward && string(ahead) < string(to) {
				if at, there := slices.BinarySearch(want, string(ahead)); !there {
					want = slices.Insert(want, at, string(ahead))
				}
				state[string(ahead)] = "ahead"
				o.set(ahead, []byte("ahead"))
			}
			return len(got) < most
		})
		if want = want[:min(len(want), max(most, 1))]; !slices.Equal(got, want) {
			t.Fatalf("scan %d of %s to %s met %v, want %v", w, from, to, got, want)
		}
	}
}
