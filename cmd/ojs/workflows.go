package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/workflow"
)

type workflowsVerb struct {
	List   workflowsListVerb   `cmd:"" default:"withargs" help:"List workflows."`
	Show   workflowsShowVerb   `cmd:"" help:"Show the steps of one as a tree."`
	Retry  workflowsRetryVerb  `cmd:"" help:"Run the failed steps of one again."`
	Cancel workflowsCancelVerb `cmd:"" help:"Cancel the steps of one that have not started."`
}

// workflowRow is a workflow in JSON.
type workflowRow struct {
	ID       string         `json:"id"`
	Name     string         `json:"name"`
	State    workflow.State `json:"state"`
	Created  time.Time      `json:"created"`
	Finished time.Time      `json:"finished,omitzero"`
	Steps    []stepRow      `json:"steps"`
}

// stepRow is a step of a workflow in JSON.
type stepRow struct {
	Name     string    `json:"name"`
	Job      string    `json:"job"`
	Type     string    `json:"type"`
	State    ojs.State `json:"state"`
	After    []string  `json:"after,omitempty"`
	Callback string    `json:"callback,omitempty"`
	Undoes   string    `json:"undoes,omitempty"`
	Error    string    `json:"error,omitempty"`
}

func rowOfWorkflow(s *workflow.Status) workflowRow {
	r := workflowRow{s.ID, s.Name, s.State, s.CreatedAt.UTC(), s.FinishedAt.UTC(), nil}
	for i := range s.Steps {
		step := &s.Steps[i]
		row := stepRow{Name: step.Name, Job: step.JobID, Type: step.Type, State: step.State(),
			After:    step.Follows(),
			Callback: step.Callback, Undoes: step.Undoes}
		if step.Job != nil {
			row.Error = latestError(step.Job)
		}
		r.Steps = append(r.Steps, row)
	}
	return r
}

// workflows lists the workflows of the storage or the server.
func (c *call) workflows() (iter.Seq2[*workflow.Status, error], error) {
	cl, err := c.server()
	if err != nil {
		return nil, err
	}
	if cl != nil {
		return workflowsOf(c.ctx, cl), nil
	}
	op, err := c.operator()
	if err != nil {
		return nil, err
	}
	return op.Workflows().List(c.ctx), nil
}

// flows reads and cancels workflows: of a storage or of a server.
type flows interface {
	Get(ctx context.Context, id string) (*workflow.Status, error)
	Cancel(ctx context.Context, id string) error
}

func (c *call) flows() (flows, error) {
	cl, err := c.server()
	if err != nil {
		return nil, err
	}
	if cl != nil {
		return cl.Workflows(), nil
	}
	op, err := c.operator()
	if err != nil {
		return nil, err
	}
	return op.Workflows(), nil
}

type workflowsListVerb struct {
	State string `enum:",pending,running,completed,failed,cancelled,compensating,compensated" default:"" placeholder:"STATE" help:"pending, running, completed, failed, cancelled, compensating or compensated."`
	Limit int    `short:"n" default:"20" help:"The most workflows to list; 0 lists all."`
}

// Run lists workflows.
func (v *workflowsListVerb) Run(c *call) error {
	list, err := c.workflows()
	if err == nil {
		err = checkLimit(v.Limit)
	}
	if err != nil {
		return err
	}
	more := false
	rows := func(yield func(workflowRow, error) bool) {
		for s, err := range list {
			var row workflowRow
			if err == nil {
				row = rowOfWorkflow(s)
			}
			if (err != nil || v.State == "" || string(s.State) == v.State) && !yield(row, err) {
				return
			}
		}
	}
	return show(c, listing[workflowRow]{
		columns: []column{{title: "ID"}, {title: "STATE"}, {title: "NAME", long: true},
			{title: "STEPS", right: true},
			{title: "AGE", right: true}, {title: "FAILED", long: true, rank: 1}},
		row: func(r workflowRow) []cell {
			completed, failed := 0, ""
			for _, step := range r.Steps {
				if step.State == ojs.StateCompleted {
					completed++
				}
				if step.State == ojs.StateDiscarded && failed == "" {
					failed = step.Name + ": " + step.Error
				}
			}
			return []cell{of(r.ID), stateCell(r.State), of(r.Name),
				of(fmt.Sprintf("%d/%d", completed, len(r.Steps))),
				of(age(r.Created, c.now())), tinted(red, failed)}
		},
		id:   func(r workflowRow) string { return r.ID },
		none: "no workflows",
	}, limited(rows, v.Limit, &more), c.moreIf(&more))
}

// workflowID is the argument that names a workflow.
type workflowID struct {
	ID string `arg:"" help:"The id of the workflow."`
}

type workflowsShowVerb struct{ workflowID }

// Run shows a workflow.
func (v *workflowsShowVerb) Run(c *call) error {
	list, err := c.flows()
	if err != nil {
		return err
	}
	s, err := list.Get(c.ctx, v.ID)
	if err != nil {
		return err
	}
	row := rowOfWorkflow(s)
	return c.page(s.ID, row, func() []string {
		now := c.now()
		lines := c.style.fields([]field{{"id", of(s.ID)}, {"name", of(s.Name)}, {"state", stateCell(s.State)},
			{"created", of(when(s.CreatedAt, now))}, {"ended", of(when(s.FinishedAt, now))}})
		return append(append(lines, ""), c.tree(row.Steps)...)
	})
}

// tree draws the steps of a workflow: each below the first of the steps that it follows.
// A step that follows several names the others.
func (c *call) tree(steps []stepRow) []string {
	known := make(map[string]bool)
	for _, s := range steps {
		known[s.Name] = true
	}
	below := make(map[string][]int)
	for i, s := range steps {
		parent := ""
		if j := slices.IndexFunc(s.After, func(name string) bool {
			return known[name] &&
				name != s.Name
		}); j >= 0 {
			parent = s.After[j]
		}
		below[parent] = append(below[parent], i)
	}
	var rows [][]cell
	drawn := make(map[int]bool)
	var draw func(parent, prefix string)
	draw = func(parent, prefix string) {
		for n, i := range below[parent] {
			if drawn[i] {
				continue
			}
			drawn[i] = true
			branch, next := "├─ ", "│  "
			if n == len(below[parent])-1 {
				branch, next = "└─ ", "   "
			}
			if parent == "" {
				branch, next = "", ""
			}
			rows = append(rows, stepCells(prefix+branch, &steps[i]))
			draw(steps[i].Name, prefix+next)
		}
	}
	draw("", "")
	for i := range steps { // of a circle, which only damage makes
		if !drawn[i] {
			rows = append(rows, stepCells("? ", &steps[i]))
		}
	}
	return c.style.lines([]column{{title: "STEP", long: true}, {title: "STATE"}, {title: "JOB"},
		{title: "TYPE", long: true, rank: 2}, {title: "", long: true, rank: 1}}, rows)
}

func stepCells(prefix string, s *stepRow) []cell {
	state := stateCell(s.State)
	if s.State == "" {
		state = tinted(dim, "deleted")
	}
	note := ""
	if s.State == ojs.StateDiscarded {
		note = s.Error
	}
	if note == "" && len(s.After) > 1 {
		note = "after " + strings.Join(s.After, ", ")
	}
	if s.Undoes != "" {
		note = "undoes " + s.Undoes
	}
	if s.Callback != "" {
		note = s.Callback
	}
	return []cell{{text: prefix + clean(s.Name)}, state, of(s.Job), of(s.Type), of(note)}
}

type workflowsRetryVerb struct{ workflowID }

// Run retries a workflow.
func (v *workflowsRetryVerb) Run(c *call) error {
	op, err := c.operator()
	if err != nil {
		return err
	}
	if err := op.Workflows().Retry(c.acting(), v.ID); err != nil {
		return err
	}
	return c.done(v.ID, "workflow "+v.ID+" runs again from its failed steps")
}

type workflowsCancelVerb struct{ workflowID }

// Run cancels a workflow.
func (v *workflowsCancelVerb) Run(c *call) error {
	list, err := c.flows()
	if err != nil {
		return err
	}
	if err := list.Cancel(c.acting(), v.ID); err != nil {
		return err
	}
	return c.done(v.ID, "workflow "+v.ID+" is cancelled")
}
