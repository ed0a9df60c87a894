package workflow

import "pgregory.net/rapid"

// Drawn is a random workflow, and what it means.
type Drawn struct {
	*Workflow
	Fails map[string]bool // the steps whose handlers fail
	Runs  map[string]bool // every step: whether it runs
	State State           // how it ends

	// Retried is how it ends if no step of a retry fails; "": that depends on the shape.
	Retried State
}

// Draw draws a workflow. Its steps are of type x.
func Draw(t *rapid.T) *Drawn {
	var g gen
	d, m, good := g.draw(t)
	w := &Drawn{Workflow: New("", d.part), Fails: m.fails, Runs: m.ran, State: StateFailed}
	root, saga := d.part.(*saga)
	switch {
	case good:
		w.State = StateCompleted
	case saga && root.policy != Skip && m.undone:
		w.State = StateCompensated
	case saga && root.policy != Skip:
		w.Retried = StateCompensated
	case !g.sagas && !g.anyFailed:
		w.Retried = StateCompleted
	}
	return w
}
