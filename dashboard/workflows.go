package dashboard

import (
	"context"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/workflow"
)

// workflowPage is how many workflows a page lists. Each costs a read of its steps.
const workflowPage = 20

type workflowsData struct {
	List       []*workflow.Status
	Next, Prev string
	Looked     int
}

// workflows lists the workflows, the newest first.
func (h *Handler) workflows(p *page) error {
	ctx := p.r.Context()
	f := inspect.Filter{Types: []string{workflow.Type}, Order: inspect.OrderNewest}
	list, err := h.eng.Jobs().Page(ctx, f, p.r.FormValue("at"), workflowPage)
	if err != nil {
		return refusal(err)
	}
	data := &workflowsData{Next: list.Next, Prev: list.Prev, Looked: list.Looked}
	for _, record := range list.Jobs {
		status, err := h.eng.Workflows().Get(ctx, record.ID)
		if foreign.Is(err, ojs.ErrNotFound) || foreign.Is(err, ojs.ErrPruned) {
			continue
		}
		if err != nil {
			return err
		}
		data.List = append(data.List, status)
	}
	return p.show("workflows", p.T("Workflows"), data)
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
	return p.moved("./")
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
