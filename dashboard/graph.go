package dashboard

import (
	"slices"

	"github.com/ojsengine/ojs/workflow"
)

const (
	nodeWidth, nodeHeight = 168, 44
	gapX, gapY            = 56, 14
	maxNodes              = 200 // a larger workflow has the table only
)

// graph is a workflow as a picture: its steps in columns, each to the right of all the
// steps that it waits for.
type graph struct {
	Width, Height int
	Nodes         []node
	Edges         []edge
}

type node struct {
	X, Y             int
	Name, Type, Link string
	State            string
}

type edge struct{ X1, Y1, XM, X2, Y2 int }

// layout places the steps of a workflow.
func layout(p *page, s *workflow.Status) (g graph) {
	if len(s.Steps) == 0 || len(s.Steps) > maxNodes {
		return g
	}
	index := make(map[string]int, len(s.Steps))
	for i, step := range s.Steps {
		index[step.Name] = i
	}
	columns := make([]int, len(s.Steps)) // -1: being computed, which a cycle would meet
	for i := range columns {
		columns[i] = -2
	}
	var place func(i int) int
	place = func(i int) int {
		if columns[i] != -2 {
			return max(0, columns[i])
		}
		columns[i] = -1
		at := 0
		for _, before := range s.Steps[i].After {
			if j, ok := index[before]; ok {
				at = max(at, place(j)+1)
			}
		}
		columns[i] = at
		return at
	}
	var heights []int // steps in each column so far
	for i := range s.Steps {
		column := place(i)
		heights = append(heights, make([]int, max(0, column+1-len(heights)))...)
		step := &s.Steps[i]
		n := node{X: 4 + column*(nodeWidth+gapX), Y: 4 + heights[column]*(nodeHeight+gapY),
			Name: clip(step.Name), Type: clip(step.Type), State: string(step.State())}
		if step.Job != nil {
			n.Link = p.JobLink(step.JobID)
		}
		heights[column]++
		g.Nodes = append(g.Nodes, n)
	}
	for i := range s.Steps {
		for _, before := range s.Steps[i].After {
			j, ok := index[before]
			if !ok {
				continue
			}
			from, to := g.Nodes[j], g.Nodes[i]
			g.Edges = append(g.Edges, edge{from.X + nodeWidth, from.Y + nodeHeight/2,
				(from.X + nodeWidth + to.X) / 2, to.X, to.Y + nodeHeight/2})
		}
	}
	g.Width = 8 + len(heights)*(nodeWidth+gapX) - gapX
	g.Height = 8 + slices.Max(heights)*(nodeHeight+gapY) - gapY
	return g
}

// clip cuts a name to what fits into a node.
func clip(s string) string {
	if r := []rune(s); len(r) > 20 {
		return string(r[:19]) + "…"
	}
	return s
}
