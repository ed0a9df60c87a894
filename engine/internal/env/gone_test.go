package env

import (
	"fmt"
	"testing"
)

// The engine knows the jobs that it deleted last, in bounded memory.
func TestGone(t *testing.T) {
	var g Gone
	id := func(i int) string { return fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", i) }
	if g.has(id(0)) {
		t.Error("knows a job before any is deleted")
	}
	const forgotten = 100
	for i := range maxGone + forgotten {
		g.Add(id(i))
	}
	for _, i := range []int{0, forgotten - 1, forgotten, maxGone - 1, maxGone, maxGone + forgotten - 1,
		maxGone + forgotten} {
		if want := forgotten <= i && i < maxGone+forgotten; g.has(id(i)) != want {
			t.Errorf("job %d is known: %v", i, !want)
		}
	}
	if len(g.ids) != maxGone {
		t.Errorf("%d are remembered", len(g.ids))
	}
}
