package dashboard

import (
	"fmt"
	"slices"

	"github.com/ojsengine/ojs/workflow"
)

const (
	nodeWidth, nodeHeight = 168, 44
	gapX, gapY            = 56, 14
	maxNodes              = 200 // a larger workflow has the table only
	maxLanes              = 400 // rows for edges; further edges are drawn without
)

// graph is a workflow as a picture: its steps in columns, each to the right of all the
// steps that it follows. An edge across other columns has a row of its own in each, so
// that it passes behind no step.
type graph struct {
	Width, Height int
	Nodes         []node
	Edges         []string // paths
}

type node struct {
	X, Y       int
	Name, Link string
	Full       string // the name, not cut
	State      string
}

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
		for _, before := range s.Steps[i].Follows() {
			if j, ok := index[before]; ok {
				at = max(at, place(j)+1)
			}
		}
		columns[i] = at
		return at
	}
	var heights []int // rows that are taken in each column so far
	take := func(column int) (x, y int) {
		heights = append(heights, make([]int, max(0, column+1-len(heights)))...)
		x, y = 4+column*(nodeWidth+gapX), 4+heights[column]*(nodeHeight+gapY)
		heights[column]++
		return x, y
	}
	for i := range s.Steps {
		step := &s.Steps[i]
		n := node{Name: clip(step.Name), Full: step.Name, State: string(step.State())}
		n.X, n.Y = take(place(i))
		if step.Job != nil {
			n.Link = p.JobLink(step.JobID)
		}
		g.Nodes = append(g.Nodes, n)
	}
	lanes := 0
	for i := range s.Steps {
		for _, before := range s.Steps[i].Follows() {
			j, ok := index[before]
			if !ok {
				continue
			}
			x, y := g.Nodes[j].X+nodeWidth, g.Nodes[j].Y+nodeHeight/2
			path := fmt.Sprintf("M%d %d", x, y)
			bend := func(toX, toY int) {
				path += fmt.Sprintf("C%[1]d %[2]d %[1]d %[4]d %[3]d %[4]d", (x+toX)/2, y, toX, toY)
				x, y = toX, toY
			}
			for column := place(j) + 1; column < place(i) && lanes < maxLanes; column++ {
				lanes++
				laneX, laneY := take(column)
				bend(laneX, laneY+nodeHeight/2)
				x += nodeWidth
				path += fmt.Sprintf("H%d", x)
			}
			bend(g.Nodes[i].X, g.Nodes[i].Y+nodeHeight/2)
			g.Edges = append(g.Edges, path)
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
