package sorted_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ojsengine/ojs/internal/sorted"
)

// TestMap compares a Map with a map of Go's, and holds that a clone leaves what it was
// made of as it is.
func TestMap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	m, want := new(sorted.Map[string, int]), make(map[string]int)
	equal := func(m *sorted.Map[string, int], want map[string]int) {
		t.Helper()
		from := fmt.Sprint(rnd.IntN(3000))
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(want)), func(k string) bool { return k < from })
		i := 0
		for k, v := range m.From(from) {
			if i >= len(keys) || k != keys[i] || v != want[k] {
				t.Fatalf("from %s, pair %d is %s %d, want %v", from, i, k, v, keys[i:])
			}
			i++
		}
		var before []string
		for k := range m.Before(from) {
			before = append(before, k)
		}
		slices.Reverse(before)
		if all := slices.Concat(before, keys); !slices.Equal(all, slices.Sorted(maps.Keys(want))) {
			t.Fatalf("before %s: %v", from, before)
		}
		if i != len(keys) || m.Len() != len(want) {
			t.Fatalf("from %s: %d pairs of %d, want %d of %d", from, i, m.Len(), len(keys), len(want))
		}
	}
	for step := range 40 {
		old, oldWant := m, maps.Clone(want)
		m = m.Clone()
		for range 100 {
			k := fmt.Sprint(rnd.IntN(3000))
			was, had := want[k]
			if got, there := m.Get(k); got != was || there != had {
				t.Fatalf("%s is %d %v, want %d %v", k, got, there, was, had)
			}
			if rnd.IntN(100) < 70-step {
				if got, there := m.Set(k, step); got != was || there != had {
					t.Fatalf("%s was %d %v, want %d %v", k, got, there, was, had)
				}
				want[k] = step
			} else {
				m.Delete(k)
				delete(want, k)
			}
		}
		equal(m, want)
		equal(old, oldWant)
	}
}
