package memory

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// count is how many jobs the chunks say they have.
func (x *index) count() (n int) {
	for _, c := range x.chunks {
		n += c.live
	}
	return n
}

// An index does what a sorted list does, in any order of removals, and gives back the
// memory of removed jobs.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x index
		var want []*job // in order
		remove := func(i int) {
			x.remove(want[i].ord)
			want = slices.Delete(want, i, i+1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 200).Draw(t, "n") {
					j := new(job)
					if rapid.Bool().Draw(t, "skip a number") {
						j.ord = x.addAs(j, x.last+2)
					} else {
						j.ord = x.add(j)
					}
					want = append(want, j)
				}
			},
			"remove the oldest": func(t *rapid.T) {
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
				if n := x.count(); n != len(want) {
					t.Fatalf("%d jobs, want %d", n, len(want))
				}
				after := rapid.Uint64Range(0, x.last+1).Draw(t, "after")
				var got []*job
				x.from(after, func(e entry) bool {
					if e.job != nil {
						if e.ord != e.job.ord {
							t.Fatalf("job %d stands under %d", e.job.ord, e.ord)
						}
						got = append(got, e.job)
					}
					return true
				})
				k, _ := slices.BinarySearchFunc(want, after+1,
					func(j *job, ord uint64) int { return int(j.ord) - int(ord) })
				if !slices.Equal(got, want[k:]) {
					t.Fatalf("%d jobs after %d, want %d", len(got), after, len(want[k:]))
				}
				// Of two chunks in a row at least one is a quarter full, or they could
				// not be joined; the last two may be on their way.
				if most := 2 + 8*len(want)/chunkSize; len(x.chunks) > most+1 {
					t.Fatalf("%d chunks for %d jobs", len(x.chunks), len(want))
				}
			},
		})
	})
}
