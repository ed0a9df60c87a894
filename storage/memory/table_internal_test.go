package memory

import (
	"hash/maphash"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// A table does what a map does, in as few buckets as it has jobs, but for a factor of four.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newTable()
		want := make(map[string]*job)
		seed := maphash.MakeSeed()
		hash := func(id string) uint32 { return uint32(maphash.String(seed, id)) }
		var ids []string
		add := func() {
			j := &job{id: strconv.Itoa(len(ids))}
			j.hash = hash(j.id)
			ids = append(ids, j.id)
			want[j.id] = j
			x.add(j)
		}
		remove := func(id string) {
			if j := want[id]; j != nil {
				x.remove(j)
				delete(want, id)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 2000).Draw(t, "n") {
					add()
				}
			},
			"remove some": func(t *rapid.T) {
				step := rapid.IntRange(1, 5).Draw(t, "step")
				for i := 0; i < len(ids); i += step {
					remove(ids[i])
				}
			},
			"": func(t *rapid.T) {
				if x.n != len(want) {
					t.Fatalf("has %d jobs, want %d", x.n, len(want))
				}
				for _, id := range ids {
					if j := x.find(hash(id), id); j != want[id] {
						t.Fatalf("found %v under %s, want %v", j, id, want[id])
					}
				}
				if b := int(x.buckets); b > 2*x.n+8 || 5*b < 2*x.n || len(x.segments) != (b+segmentSize-1)/segmentSize {
					t.Fatalf("%d buckets in %d segments for %d jobs", b, len(x.segments), x.n)
				}
			},
		})
	})
}
