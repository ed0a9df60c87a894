package ojs_test

import (
	"testing"

	"github.com/ojsengine/ojs"
)

func TestTransitions(t *testing.T) {
	// OJS core, section 6.3, with the additions of reading 50.
	table := map[ojs.State][]ojs.State{
		"scheduled": {"available", "cancelled", "discarded"},
		"pending":   {"available", "cancelled", "discarded"},
		"available": {"active", "cancelled", "discarded", "scheduled"},
		"active":    {"completed", "retryable", "discarded", "cancelled"},
		"retryable": {"available", "cancelled", "discarded"},
		"discarded": {"available"},
		"completed": {},
		"cancelled": {},
	}
	if len(ojs.AllStates()) != 8 || len(table) != 8 {
		t.Errorf("P0.2: %d states", len(ojs.AllStates()))
	}
	for _, from := range ojs.AllStates() {
		allowed := make(map[ojs.State]bool)
		for _, to := range table[from] {
			allowed[to] = true
		}
		for _, to := range append(ojs.AllStates(), "", "dead") {
			t.Run("P0.2 reading 50 "+string(from)+" to "+string(to), func(t *testing.T) {
				if got := from.CanBecome(to); got != allowed[to] {
					t.Errorf("allowed: %v", got)
				}
			})
		}
	}
	if ojs.State("dead").CanBecome(ojs.StateAvailable) || ojs.State("").CanBecome(ojs.StateAvailable) {
		t.Error("a state that is none has transitions")
	}
}

func TestStateKinds(t *testing.T) {
	terminal := map[ojs.State]bool{"completed": true, "cancelled": true, "discarded": true}
	for _, s := range ojs.AllStates() {
		if !s.Valid() {
			t.Errorf("%s is not valid", s)
		}
		if s.Terminal() != terminal[s] {
			t.Errorf("reading 35: %s is terminal: %v", s, s.Terminal())
		}
		if want := !terminal[s] && s != ojs.StateActive; s.Waiting() != want {
			t.Errorf("%s is waiting: %v", s, s.Waiting())
		}
	}
	for _, s := range []ojs.State{"", "dead", "Active"} {
		if s.Valid() || s.Terminal() || s.Waiting() {
			t.Errorf("%q is taken for a state", s)
		}
	}
}
