package dashboard

import (
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/foreign"
)

// stackWait is how long a page waits for the stacks of another process, which answers
// with its next report.
const stackWait = 12 * time.Second

type nodeData struct {
	inspect.Node
	Stacks  []inspect.NodeJob
	Asked   bool // for stacks
	Silent  bool // it has not answered in time
	Actions []Verb
	Done    string
}

// nodeNamed is the node of an address.
func (h *Handler) nodeNamed(p *page) (inspect.Node, error) {
	list, err := h.eng.Jobs().Nodes(p.r.Context())
	if err != nil {
		return inspect.Node{}, err
	}
	at := slices.IndexFunc(list, func(n inspect.Node) bool { return n.ID == p.r.PathValue("id") })
	if at < 0 {
		return inspect.Node{}, ojs.ErrNotFound
	}
	return list[at], nil
}

// node shows an engine that reports on itself, of this process or another. A page that
// loads itself again does not ask for the stacks again.
func (h *Handler) node(p *page) error {
	node, err := h.nodeNamed(p)
	if err != nil {
		return err
	}
	data := &nodeData{Node: node, Done: done(p.r.FormValue("did"))}
	for _, do := range []Verb{Quiet, Resume, Terminate} {
		if do == Quiet && node.Quiet || do == Resume && !node.Quiet {
			continue
		}
		if p.May(do, "node", node.ID, "", "") {
			data.Actions = append(data.Actions, do)
		}
	}
	if p.r.FormValue("stacks") != "" && p.r.Header.Get("X-Live") == "" {
		ctx, stop := context.WithCancel(p.r.Context())
		defer stop()
		defer h.conf.clock.AfterFunc(stackWait, stop).Stop()
		data.Asked = true
		data.Stacks, err = h.eng.Workers().Stacks(ctx, node.ID)
		switch {
		case foreign.Is(err, context.Canceled):
			data.Silent = true
		case err != nil:
			return err
		}
	}
	return p.show("node", node.ID, data)
}

// actOnNode gives an order to a node.
func (h *Handler) actOnNode(p *page) error {
	node, err := h.nodeNamed(p)
	if err != nil {
		return err
	}
	do, nodes := Verb(p.r.PostFormValue("do")), h.eng.Workers()
	step, ok := map[Verb]func(context.Context, string) error{Quiet: nodes.Quiet, Resume: nodes.Resume,
		Terminate: nodes.Terminate}[do]
	if !ok {
		return ojs.ErrNotFound
	}
	if err := h.allowed(p, Action{Do: do, On: "node", Name: node.ID}); err != nil {
		return err
	}
	if err := step(p.r.Context(), node.ID); err != nil {
		return err
	}
	return p.moved("./?did=ordered")
}
