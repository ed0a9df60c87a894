package memory

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// An index does what a sorted list does, however jobs come and go, and gives back the
// memory of what is gone.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x index
		var want []*job // in order
		order := func(a, b *job) int {
			return cmp.Or(cmp.Compare(a.timed, b.timed), cmp.Compare(a.turn, b.turn))
		}
		clock, turn := instant(0), uint64(0)
		remove := func(i int) {
			x.remove(int64(want[i].timed), want[i])
			want = slices.Delete(want, i, i+1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				clock += instant(rapid.IntRange(-300, 300).Draw(t, "the clock is set"))
				spread := rapid.SampledFrom([]int{0, 3, 100, 1000}).Draw(t, "spread")
				for range rapid.IntRange(1, 200).Draw(t, "n") {
					turn++
					j := &job{turn: turn, timed: clock - instant(rapid.IntRange(0, spread).Draw(t, "late"))}
					clock += instant(rapid.IntRange(0, 2).Draw(t, "step"))
					x.add(int64(j.timed), j)
					at, _ := slices.BinarySearchFunc(want, j, order)
					want = slices.Insert(want, at, j)
				}
			},
			"remove the first": func(t *rapid.T) {
				for range rapid.IntRange(0, min(len(want), 200)).Draw(t, "n") {
					remove(0)
				}
			},
			"remove any": func(t *rapid.T) {
				for range rapid.IntRange(0, len(want)).Draw(t, "n") {
					remove(rapid.IntRange(0, len(want)-1).Draw(t, "i"))
				}
			},
			"": func(t *rapid.T) {
				e := x.first()
				if x.n != len(want) || (e.job != nil) != (len(want) > 0) || e.job != nil && e.job != want[0] {
					t.Fatalf("%d jobs, want %d; or the first is another", x.n, len(want))
				}
				var got []*job
				for _, c := range x.chunks {
					free := func(e entry) bool { return e.job == nil }
					kept := slices.DeleteFunc(slices.Clone(c.room[:]), free)
					if !slices.Equal(kept, c.list) {
						t.Fatalf("a chunk keeps %d jobs, and has %d", len(kept), len(c.list))
					}
					for _, e := range c.list {
						got = append(got, e.job)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%d jobs in another order than wanted", len(got))
				}
				at := job{timed: clock - instant(rapid.IntRange(0, 100).Draw(t, "at")),
					turn: rapid.Uint64Range(0, turn).Draw(t, "turn")}
				k, there := slices.BinarySearchFunc(want, &at, order)
				if there {
					k++
				}
				var back []*job
				for r := x.from(int64(at.timed), at.turn, true); r.next(); {
					back = append(back, r.job)
				}
				slices.Reverse(back)
				for r := x.from(int64(at.timed), at.turn, false); r.next(); {
					back = append(back, r.job)
					if len(back) == k+1 && r.job != want[k] {
						t.Fatal("from begins with another job than wanted")
					}
				}
				if !slices.Equal(back, want) {
					t.Fatalf("back and forth, readers list %d jobs, want %d", len(back), len(want))
				}
				// Of two chunks in a row at least one is a quarter full, or they would
				// have been joined.
				if most := 2 + 8*len(want)/chunkSize; len(x.chunks) > most {
					t.Fatalf("%d chunks for %d jobs", len(x.chunks), len(want))
				}
			},
		})
	})
}
