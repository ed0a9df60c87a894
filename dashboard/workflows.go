package dashboard

import (
	"context"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/workflow"
)

// workflowPage is how many workflows a page lists. Each costs a read of its steps.
const workflowPage = 20

// failedLook is how many workflows a page looks at for failed ones, which no index finds.
const failedLook = 100

type workflowsData struct {
	Tabs       []workflowTab
	State      string
	List       []*workflow.Status
	Next, Prev string
	Looked     int
	At         bool // it is not the first page
	Retry      bool // the request may run the failed steps of a workflow again
	Done       string
}

// workflowTab leads to the workflows in a state.
type workflowTab struct {
	State, Name string
	N           int // -1: not known
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
		one := workflowTab{State: t.state, Name: t.name, On: t.state == p.r.FormValue("state")}
		for _, v := range facets.Values {
			if t.records == nil || slices.Contains(t.records, ojs.State(v.Value)) {
				one.N += v.N
			}
		}
		if t.state == "failed" {
			one.N = -1
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
			status, err := h.eng.Workflows().Get(ctx, record.ID)
			if foreign.Is(err, ojs.ErrNotFound) || foreign.Is(err, ojs.ErrPruned) {
				continue
			}
			if err != nil {
				return err
			}
			if !failed || status.State == workflow.StateFailed {
				data.List = append(data.List, status)
			}
		}
		if !failed || data.Next == "" || len(data.List) >= workflowPage || data.Looked >= failedLook {
			return p.show("workflows", p.T("Workflows"), data)
		}
	}
}

type workflowData struct {
	*workflow.Status
	Graph   graph
	Actions []Verb
	Done    string
}

// workflow shows one workflow as a graph and as a table.
func (h *Handler) workflow(p *page) error {
	status, err := h.eng.Workflows().Get(p.r.Context(), p.r.PathValue("id"))
	if err != nil {
		return err
	}
	data := &workflowData{Status: status, Graph: layout(p, status), Done: done(p.r.FormValue("did"))}
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

// EndedSteps is how many steps have ended.
func (p *page) EndedSteps(s *workflow.Status) (n int) {
	for i := range s.Steps {
		if s.Steps[i].State().Terminal() {
			n++
		}
	}
	return n
}

// Finished is how many steps have ended, of how many.
func (p *page) Finished(s *workflow.Status) string {
	return p.T("%d of %d", p.EndedSteps(s), len(s.Steps))
}
