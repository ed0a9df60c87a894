package chores

import (
	"testing"

	"github.com/ojsengine/ojs/engine/internal/idle"
)

// Invariant 5, for a chore that the goroutine is about to begin when Stop is called.
func TestNoChoreBeginsAfterStop(t *testing.T) {
	c := &Chore{wanted: true}
	c.set = &Set{Config: Config{Busy: new(idle.Counter)}, quit: make(chan struct{})}
	c.set.Stop()
	if c.begin() {
		t.Error("a chore has begun after Stop")
	}
}
