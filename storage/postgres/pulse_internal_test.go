package postgres

import (
	"testing"
	"time"
)

// A payload that arrives by chance, above all through a pooler, does not make a listener
// poll less often.
func TestPulse(t *testing.T) {
	const poll = time.Second
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := pulse{id: "me", poll: poll, next: start}
	for _, chance := range []string{"", "me", "me p0", "me p1", "me p1 a", "other p1", "other a"} {
		if p.hears(chance) || !p.next.Equal(start) {
			t.Errorf("before the first look %q counts", chance)
		}
	}
	p.look()
	p.look()
	p.next = start.Add(poll)
	for _, chance := range []string{"", "me", "me p1", "me p3", "other p2", "me a"} {
		if p.hears(chance) || !p.next.Equal(start.Add(poll)) {
			t.Errorf("%q counts as the probe of the second look", chance)
		}
	}
	if !p.hears("me p2") || !p.next.Equal(start.Add(10*poll)) {
		t.Errorf("its own probe does not count: the next look is at %v", p.next)
	}
	for _, again := range []string{"me p2", ""} {
		if p.hears(again) || !p.next.Equal(start.Add(10*poll)) {
			t.Errorf("%q counts a second time", again)
		}
	}
}

// Probes count as lost only where one has come back before.
func TestLostProbes(t *testing.T) {
	p := pulse{id: "me"}
	for range 2 * mostLost {
		p.look()
	}
	if p.lost != 0 || !p.hears("me p6") {
		t.Errorf("%d probes are lost where none comes back", p.lost)
	}
	for range mostLost {
		p.look() // the first has none before it that is missed
	}
	if p.look(); p.lost != mostLost || !p.hears("me p10") || p.lost != 0 {
		t.Errorf("%d probes are lost", p.lost)
	}
}
