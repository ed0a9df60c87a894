package ojs_test

import (
	"slices"
	"testing"

	"github.com/ojsengine/ojs"
)

func TestTransitions(t *testing.T) {
	// OJS core, section 6.3, with the additions of reading 50.
	table := map[ojs.State][]ojs.State{
		"scheduled": {"available", "cancelled", "discarded"},
		"pending":   {"available", "scheduled", "cancelled", "discarded"},
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
	kinds := map[ojs.State]struct{ valid, terminal, waiting bool }{
		"scheduled": {valid: true, waiting: true},
		"pending":   {valid: true, waiting: true},
		"available": {valid: true, waiting: true},
		"retryable": {valid: true, waiting: true},
		"active":    {valid: true},
		"completed": {valid: true, terminal: true},
		"cancelled": {valid: true, terminal: true},
		"discarded": {valid: true, terminal: true},
		"":          {},
		"dead":      {}, // reading 7: there is no ninth state
		"Active":    {},
	}
	for s, want := range kinds {
		t.Run("P0.2 reading 35 "+string(s), func(t *testing.T) {
			if s.Valid() != want.valid || s.Terminal() != want.terminal || s.Waiting() != want.waiting {
				t.Errorf("valid %v, terminal %v, waiting %v; want %+v", s.Valid(), s.Terminal(),
					s.Waiting(), want)
			}
			if listed := slices.Contains(ojs.AllStates(), s); listed != want.valid {
				t.Errorf("AllStates has it: %v", listed)
			}
		})
	}
}
