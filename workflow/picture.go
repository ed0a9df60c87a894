package workflow

import (
	"fmt"
	"strings"

	"github.com/ojsengine/ojs"
)

// Mermaid returns the steps and their dependencies as a Mermaid flowchart, with their
// states.
func (s *Status) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	s.draw(
		func(i int, label, _ string) { fmt.Fprintf(&b, "    s%d[\"%s\"]\n", i, mermaidText.Replace(label)) },
		func(from, to int) { fmt.Fprintf(&b, "    s%d --> s%d\n", from, to) })
	return b.String()
}

// mermaidText escapes a label. Mermaid reads #NN; as a character.
var mermaidText = strings.NewReplacer("#", "#35;", `"`, "#34;", "<", "#60;", ">", "#62;", "\n", " ")

// DOT returns the steps and their dependencies as a Graphviz digraph, with their states.
func (s *Status) DOT() string {
	var b strings.Builder
	b.WriteString("digraph workflow {\n")
	s.draw(
		func(i int, label, colour string) {
			fmt.Fprintf(&b, "  s%d [label=%s, color=%s];\n", i, dotText(label), colour)
		},
		func(from, to int) { fmt.Fprintf(&b, "  s%d -> s%d;\n", from, to) })
	b.WriteString("}\n")
	return b.String()
}

// dotText is a string of the DOT language, in which only quotes and backslashes mean
// something.
func dotText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ").Replace(s) + `"`
}

// draw draws the steps in their order, and the edges between them.
func (s *Status) draw(step func(i int, label, colour string), edge func(from, to int)) {
	at := make(map[string]int, len(s.Steps))
	for i := range s.Steps {
		at[s.Steps[i].Name] = i
		state := s.Steps[i].State()
		label := s.Steps[i].Name
		if state != "" {
			label += ": " + string(state)
		}
		step(i, label, colours[state])
	}
	for i := range s.Steps {
		for _, name := range s.Steps[i].Follows() {
			edge(at[name], i)
		}
	}
}

var colours = map[ojs.State]string{
	"": "gray", ojs.StatePending: "gray", ojs.StateScheduled: "gray", ojs.StateAvailable: "black",
	ojs.StateActive: "blue", ojs.StateRetryable: "orange", ojs.StateCompleted: "green",
	ojs.StateCancelled: "gray", ojs.StateDiscarded: "red",
}
