package dashboard

import (
	"fmt"
	"slices"
)

const (
	nodeWidth, nodeHeight = 168, 44
	gapX, gapY            = 56, 14
	maxNodes              = 200 // a larger workflow has the table only
	maxLanes              = 400 // rows for edges; further edges are drawn without
)

// graph is a workflow as a picture: its parts in columns, each to the right of all the
// parts that it follows. An edge across other columns has a row of its own in each, so
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
	Says       string // the state in words
}

// layout places the parts of a workflow.
func layout(p *page, parts []part) (g graph) {
	if len(parts) == 0 || len(parts) > maxNodes {
		return g
	}
	columns := make([]int, len(parts)) // -1: being computed, which a cycle would meet
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
		for _, before := range parts[i].After {
			at = max(at, place(before)+1)
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
	for i := range parts {
		of := &parts[i]
		n := node{Name: clip(p.PartName(of)), Full: of.Name, State: of.State(), Says: p.PartState(of),
			Link: p.PartLink(of)}
		n.X, n.Y = take(place(i))
		g.Nodes = append(g.Nodes, n)
	}
	lanes := 0
	for i := range parts {
		for _, j := range parts[i].After {
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
