package dashboard

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/workflow"
)

// workflowPage is how many workflows a page lists. Each costs a read of its steps.
const workflowPage = 20

// failedScan is how many workflows a page looks at for failed ones, which no index finds.
const failedScan = 100

type workflowsData struct {
	Tabs       []workflowTab
	State      string
	List       []flow // of a page the failed ones first, and then the unfinished ones
	Next, Prev string
	Looked     int
	At         bool // it is not the first page
	Retry      bool // the request may run the failed steps of a workflow again
	Done       string
}

// flow is a workflow in a list.
type flow struct {
	ID, Name  string
	State     workflow.State
	Ended, N  int // steps
	CreatedAt time.Time
	EndedAt   time.Time // zero: it has not ended
}

// rank orders the workflows of a page.
func (f *flow) rank() int {
	switch {
	case f.State == workflow.StateFailed:
		return 0
	case !f.State.Final():
		return 1
	}
	return 2
}

// maxFlows is how many workflows that have ended a handler remembers.
const maxFlows = 2000

// flows are workflows that have ended, as pages have read them, by their ids.
type flows struct {
	mu    sync.Mutex // guards ended
	ended map[string]flow
}

// flow is the workflow of a record. A workflow that has ended is read once, since each
// costs a read of its steps. A retry changes the end of its record.
func (h *Handler) flow(ctx context.Context, record *ojs.JobInfo) (flow, error) {
	c := &h.flows
	c.mu.Lock()
	f, ok := c.ended[record.ID]
	c.mu.Unlock()
	if ok && f.EndedAt.Equal(record.FinishedAt) {
		return f, nil
	}
	s, err := h.eng.Workflows().Get(ctx, record.ID)
	if err != nil {
		return flow{}, err
	}
	f = flow{s.ID, s.Name, s.State, 0, len(s.Steps), s.CreatedAt, s.FinishedAt}
	for i := range s.Steps {
		if s.Steps[i].State().Terminal() {
			f.Ended++
		}
	}
	if s.State.Final() && !s.FinishedAt.IsZero() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ended == nil || len(c.ended) >= maxFlows {
			c.ended = make(map[string]flow)
		}
		c.ended[f.ID] = f
	}
	return f, nil
}

// workflowTab leads to the workflows in a state.
type workflowTab struct {
	State, Name string
	N           inspect.Count
	Known       bool // N says something
	On          bool
}

// workflowTabs are the names of the tabs, and the states of the records of workflows that
// are on each. Of the record of a workflow that has failed the state tells nothing.
var workflowTabs = []struct {
	state, name string
	records     []ojs.State
}{
	{"", "all", nil},
	{"failed", "failed", nil},
	{"running", "unfinished", []ojs.State{ojs.StatePending}},
	{"cancelled", "cancelled", []ojs.State{ojs.StateCancelled}},
}

// workflows lists the workflows, the newest first.
func (h *Handler) workflows(p *page) error {
	ctx := p.r.Context()
	f := inspect.Filter{Types: []string{workflow.Type}, Order: inspect.OrderNewest}
	facets, err := h.eng.Jobs().Facets(ctx, f, inspect.FacetState, 0)
	if err != nil {
		return err
	}
	data := &workflowsData{Retry: p.May(Retry, "workflow", "", "", ""), Done: done(p.r.FormValue("did"))}
	for _, t := range workflowTabs {
		one := workflowTab{State: t.state, Name: t.name, On: t.state == p.r.FormValue("state"),
			N: inspect.Count{Exact: facets.Exact}, Known: t.state != "failed"}
		for _, v := range facets.Values {
			if one.Known && (t.records == nil || slices.Contains(t.records, ojs.State(v.Value))) {
				one.N.N += v.N
			}
		}
		if one.On {
			data.State, f.States = t.state, t.records
		}
		data.Tabs = append(data.Tabs, one)
	}
	data.Next = p.r.FormValue("at")
	data.At = data.Next != ""
	for failed := data.State == "failed"; ; {
		list, err := h.eng.Jobs().Page(ctx, f, data.Next, workflowPage)
		if err != nil {
			return refusal(err)
		}
		if data.Looked == 0 {
			data.Prev = list.Prev
		}
		data.Next, data.Looked = list.Next, data.Looked+list.Looked
		for _, record := range list.Jobs {
			if failed && !record.State.Terminal() {
				continue
			}
			f, err := h.flow(ctx, record)
			if stored.Missing(err) {
				continue
			}
			if err != nil {
				return err
			}
			if !failed || f.State == workflow.StateFailed {
				data.List = append(data.List, f)
			}
		}
		if !failed || data.Next == "" || len(data.List) >= workflowPage || data.Looked >= failedScan {
			break
		}
	}
	slices.SortStableFunc(data.List, func(a, b flow) int { return cmp.Compare(a.rank(), b.rank()) })
	data.countFailed()
	return p.show("workflows", p.T("Workflows"), data)
}

// countFailed gives the tab of the failed workflows the number of those on the page, of
// which there may be more. No storage counts them.
func (d *workflowsData) countFailed() {
	if d.State != "" && d.State != "failed" {
		return
	}
	t := &d.Tabs[1]
	for i := range d.List {
		if d.List[i].State == workflow.StateFailed {
			t.N.N++
		}
	}
	t.N.Exact = d.Next == "" && !d.At
	t.Known = t.N.Exact || t.N.N > 0
}

type workflowData struct {
	*workflow.Status
	Parts   []part
	Folded  bool // a part is a group
	Open    bool // the reader wants no groups folded
	Counts  []stepCount
	Graph   graph
	Actions []Verb
	Done    string
}

// stepCount is how many steps are in a state.
type stepCount struct {
	State ojs.State
	N     int
}

// workflow shows one workflow as a graph, in time, and as a table.
func (h *Handler) workflow(p *page) error {
	status, err := h.eng.Workflows().Get(p.r.Context(), p.r.PathValue("id"))
	if err != nil {
		return err
	}
	open := p.r.FormValue("open") != ""
	data := &workflowData{Status: status, Parts: partsOf(status, !open), Open: open,
		Done: done(p.r.FormValue("did"))}
	data.Graph = layout(p, data.Parts)
	data.Folded = slices.ContainsFunc(data.Parts, func(of part) bool { return of.folded() })
	for _, state := range stateRanks {
		if n := status.Count(state); n > 0 {
			data.Counts = append(data.Counts, stepCount{state, n})
		}
	}
	var do Verb
	switch {
	case status.State == workflow.StateFailed:
		do = Retry
	case !status.State.Final():
		do = Cancel
	}
	if do != "" && p.May(do, "workflow", status.ID, "", "") {
		data.Actions = []Verb{do}
	}
	title := status.Name
	if title == "" {
		title = p.T("Workflow")
	}
	return p.show("workflow", title, data)
}

// actOnWorkflow cancels a workflow, or runs its failed steps again.
func (h *Handler) actOnWorkflow(p *page) error {
	id, do := p.r.PathValue("id"), Verb(p.r.PostFormValue("do"))
	steps := map[Verb]func(context.Context, string) error{
		Cancel: h.eng.Workflows().Cancel, Retry: h.eng.Workflows().Retry}
	step, ok := steps[do]
	if !ok {
		return ojs.ErrNotFound
	}
	if err := h.allowed(p, Action{Do: do, On: "workflow", Name: id}); err != nil {
		return err
	}
	if err := step(p.r.Context(), id); err != nil {
		return refusal(err)
	}
	return p.moved("./?did=workflow-" + string(do))
}

// Finished is how many steps have ended, of how many.
func (p *page) Finished(s *workflow.Status) string {
	n := 0
	for i := range s.Steps {
		if s.Steps[i].State().Terminal() {
			n++
		}
	}
	return p.T("%d of %d", n, len(s.Steps))
}
