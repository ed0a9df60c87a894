package workflow

import (
	"fmt"

	"pgregory.net/rapid"
)

// Drawn is a random workflow, and what it means.
type Drawn struct {
	*Workflow
	Fails map[string]bool // the steps whose handlers fail
	Runs  map[string]bool // every step: whether it runs
	Good  bool            // the workflow completes
}

// Draw draws a workflow. Its steps are of type x.
func Draw(t *rapid.T) *Drawn {
	var g gen
	d := g.part(t, 3)
	m := &model{fails: map[string]bool{}, ran: map[string]bool{}, after: map[string][]string{}}
	for i := range g.n {
		if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
			m.fails[fmt.Sprint("s", i+1)] = true
		}
	}
	good := d.run(m, true)
	return &Drawn{New("", d.part), m.fails, m.ran, good}
}
