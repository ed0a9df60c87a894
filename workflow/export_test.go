package workflow

import "pgregory.net/rapid"

// Drawn is a random workflow, and what it means.
type Drawn struct {
	*Workflow
	Fails map[string]bool // the steps whose handlers fail
	Runs  map[string]bool // every step: whether it runs
	Adds  map[string]Part // the steps that add parts to the workflow
	State State           // how it ends

	// Retried is how it ends if no step of a retry fails; "": that depends on the shape.
	Retried State
}

// Draw draws a workflow. Its steps are of type x. Fails and Adds have their names without
// those of the steps that have added them.
func Draw(t *rapid.T) *Drawn {
	g := gen{adds: make(map[string]Part)}
	d, m, good := g.draw(t)
	w := &Drawn{Workflow: New("", d.part), Fails: m.fails, Runs: m.ran, Adds: g.adds, State: StateFailed}
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
