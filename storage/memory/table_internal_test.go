package memory

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/google/uuid"

	"pgregory.net/rapid"
)

// namings are ids that tables may be filled with.
var namings = map[string]func(i int) string{
	"anything":         strconv.Itoa,
	"an engine's":      func(i int) string { return v7(i, i) },
	"one in 16":        func(i int) string { return v7(16*i, i) },
	"of one moment":    func(i int) string { return v7(1, i) },
	"of some moments":  func(i int) string { return v7(i%3, i) },
	"random":           func(int) string { return uuid.NewString() },
	"of other engines": func(int) string { return uuid.Must(uuid.NewV7()).String() },
}

// v7 is a UUIDv7 of the time and counter that an engine counts on with.
func v7(stamp, tail int) string {
	ms := stamp >> 12
	return fmt.Sprintf("%08x-%04x-7%03x-8000-%012x", ms>>16, ms&0xffff, stamp&0xfff, tail)
}

// A table does what a map does, in as few buckets as it has jobs, but for a factor of
// four.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		naming := namings[rapid.SampledFrom(slices.Sorted(maps.Keys(namings))).Draw(t, "ids")]
		seed := maphash.MakeSeed()
		x := newTable(seed)
		want := make(map[string]*job)
		var ids []string
		add := func() {
			j := &job{id: naming(len(ids))}
			j.hash = near(seed, j.id)
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
					if j := x.find(near(seed, id), id); j != want[id] {
						t.Fatalf("found %v under %s, want %v", j, id, want[id])
					}
				}
				strays := 0
				for _, j := range want {
					if j.hash != near(seed, j.id) {
						strays++
					}
				}
				if x.strays != strays {
					t.Fatalf("counts %d strays, and has %d", x.strays, strays)
				}
				if most := longest(&x); most > 2*crowd { // strays may come to it
					t.Fatalf("a bucket of %d lines", most)
				}
				if b := int(x.buckets); b > 2*x.n+8 || 5*b < 2*x.n ||
					len(x.segments) != (b+segmentSize-1)/segmentSize {
					t.Fatalf("%d buckets in %d segments for %d jobs", b, len(x.segments), x.n)
				}
				for _, segment := range x.segments[len(x.segments):cap(x.segments)] {
					if segment != nil {
						t.Fatal("keeps the memory of buckets that it has no more")
					}
				}
			},
		})
	})
}

// A job that no other hash would bring elsewhere is no stray, however crowded its bucket
// is.
func TestTableOfOneBucket(t *testing.T) {
	seed := maphash.MakeSeed()
	x := newTable(seed)
	var jobs []*job
	for i := 0; len(jobs) < 2*crowd*lineSize; i++ {
		if id := strconv.Itoa(i); near(seed, id)%256 == 0 {
			j := &job{id: id, hash: near(seed, id)}
			jobs = append(jobs, j)
			x.add(j)
		}
	}
	if longest(&x) <= crowd || x.strays != 0 {
		t.Errorf("%d lines in a bucket, and %d strays", longest(&x), x.strays)
	}
	for i, j := range jobs {
		if x.find(j.hash, j.id) != j {
			t.Errorf("job %s is not found", j.id)
		}
		if x.remove(j); x.find(j.hash, j.id) != nil || x.n != len(jobs)-i-1 || x.strays != 0 {
			t.Errorf("job %s is removed: %d left, %d strays", j.id, x.n, x.strays)
		}
	}
}

// longest is the number of lines of the bucket that has most.
func longest(x *table) (most int) {
	for i := range x.buckets {
		n := 0
		for b := x.bucket(i); b != nil; b = b.more {
			n++
		}
		most = max(most, n)
	}
	return most
}

// The jobs of an engine stand in a table's memory in the order in which they were made,
// four to a line, and next to none is a stray.
func TestTableKeepsOrder(t *testing.T) {
	seed := maphash.MakeSeed()
	x := newTable(seed)
	const n = 100_000
	for i := range n {
		j := &job{id: v7(i, i)}
		j.hash = near(seed, j.id)
		x.add(j)
	}
	side := 0
	for i := 1; i < n; i++ {
		from, to := near(seed, v7(i-1, i-1))&(x.span-1), near(seed, v7(i, i))&(x.span-1)
		if to == from || to == from+1 {
			side++
		}
	}
	if want := n / 16 * 15; side < want-want/100 { // but for the last of 16, and where numbers begin anew
		t.Errorf("%d of %d jobs stand in the bucket of the one before or in the next, want %d", side, n, want)
	}
	if x.strays > n/10_000 {
		t.Errorf("%d strays", x.strays)
	}
}

func TestTableFindsNoneInAnEmptyPlace(t *testing.T) {
	for hash := range uint32(3) { // 0 is that of an empty place
		jobs := newTable(maphash.MakeSeed())
		if j := jobs.find(hash, "none"); j != nil {
			t.Errorf("with the hash %d it finds %v", hash, j)
		}
	}
}
