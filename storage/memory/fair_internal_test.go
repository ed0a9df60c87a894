package memory

import (
	"math/rand"
	"testing"
)

// roundCounts is a sorted map of counters, whichever way rounds come and go.
func TestRoundCounts(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	var got roundCounts
	want := make(map[uint64]int)
	for n := range 24_000 {
		at := uint64(1 + rnd.Intn(100))
		switch leave := 1 + n/1500%4; { // of 4: the list grows long and falls empty
		case want[at] == 0 && rnd.Intn(4) < leave:
		case want[at] == 3 || want[at] > 0 && rnd.Intn(4) < leave:
			got.remove(at)
			if want[at]--; want[at] == 0 {
				delete(want, at)
			}
		default:
			got.add(at)
			want[at]++
		}
		last, next, from := uint64(0), uint64(0), uint64(rnd.Intn(101))
		for at := range want {
			last = max(last, at)
			if at > from && (next == 0 || at < next) {
				next = at
			}
		}
		if at, n := got.last(); at != last || n != want[last] {
			t.Fatalf("the last is %d with %d jobs, not %d with %d", at, n, last, want[last])
		}
		if at, some := got.after(from); at != next || some != (next != 0) || got.Len() != len(want) {
			t.Fatalf("after %d comes %d of %d rounds, not %d of %d", from, at, got.Len(), next, len(want))
		}
	}
}

// Rounds that come at the end and leave at the begin leave nothing behind.
func TestRoundCountsKeepNothing(t *testing.T) {
	var list roundCounts
	for at := range uint64(100_000) {
		list.add(at + 1)
		if at >= 10 {
			list.remove(at - 9)
		}
	}
	if at, _ := list.after(0); at != 99_991 || list.Len() != 10 {
		t.Errorf("%d rounds are left, from %d on, not 10 from 99991 on", list.Len(), at)
	}
}
