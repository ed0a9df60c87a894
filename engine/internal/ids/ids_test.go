package ids

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Jitter is uniform over jobs and over attempts, and repeatable.
func TestJitter(t *testing.T) {
	for name, id := range map[string]func(i int) (string, int){
		"jobs": func(i int) (string,
			int) {
			return fmt.Sprintf("01890a5d-ac96-774b-bcce-b302099a%04x", i), 1
		},
		"attempts": func(i int) (string, int) { return "01890a5d-ac96-774b-bcce-b302099a8057", i },
	} {
		const n, buckets = 100_000, 20
		var count [buckets]int
		for i := range n {
			job, attempt := id(i)
			f := Jitter(7, job, attempt)
			if f < 0 || f >= 1 || f != Jitter(7, job, attempt) {
				t.Fatalf("%s: %v", name, f)
			}
			count[int(f*buckets)]++
		}
		for i, c := range count {
			if want := n / buckets; c < want*9/10 || c > want*11/10 {
				t.Errorf("%s: %d of %d in bucket %d", name, c, n, i)
			}
		}
	}
	if Jitter(7, "a", 1) == Jitter(8, "a", 1) || Jitter(7, "a", 1) == Jitter(7, "a", 2) ||
		Jitter(7, "a", 1) == Jitter(7, "b", 1) {
		t.Error("seed, job and attempt do not all count")
	}
}

// An id of an engine is a UUIDv7 to other programs, and ids sort in the order in which
// they were made.
func TestIDs(t *testing.T) {
	r := New(rand.New(rand.NewPCG(1, 2)))
	now, last := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), ""
	for i := range 10_000 {
		id := r.Next(now)
		u, err := uuid.Parse(id)
		if err != nil || u.String() != id || u.Version() != 7 || u.Variant() != uuid.RFC4122 {
			t.Fatalf("%q: %v, %v", id, u, err)
		}
		if id <= last {
			t.Fatalf("%s is not after %s", id, last)
		}
		if sec, nsec := u.Time().UnixTime(); i < 4096 && time.Unix(sec, nsec).UTC() != now {
			t.Fatalf("%s is of %v", id, time.Unix(sec, nsec))
		}
		last = id
	}
}
