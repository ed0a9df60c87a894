package dashboard

import (
	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
)

type workersData struct {
	Stats   engine.Stats
	Holders []engine.Holder
	Workers []engine.WorkerStats
	Nodes   []engine.Node    // engines that report on themselves
	Running []engine.Running // with stacks; nil: they were not asked for
	Stacks  bool
	Active  []*ojs.JobInfo
	Quiet   bool // the request may quiet workers
	Done    string
}

// workers shows what holds active jobs: engines and workers that fetch.
func (h *Handler) workers(p *page) error {
	ctx := p.r.Context()
	stats, err := h.eng.Stats(ctx)
	if err != nil {
		return err
	}
	data := &workersData{Stats: stats, Workers: stats.Workers, Stacks: p.r.FormValue("stacks") != "",
		Quiet: p.May(Quiet, "worker", "", "", ""), Done: done(p.r.FormValue("did"))}
	if stats.Total[ojs.StateActive] <= 10_000 { // it lists every active job
		if data.Holders, err = h.eng.Jobs().Holders(ctx); err != nil {
			return err
		}
	}
	if data.Nodes, err = h.eng.Nodes().List(ctx); err != nil {
		return err
	}
	list, err := h.eng.Jobs().Page(ctx, inspect.Filter{States: []ojs.State{ojs.StateActive}}, "", pageSize)
	if err != nil {
		return err
	}
	data.Active = h.shownAll(list.Jobs)
	if data.Stacks {
		data.Running = h.eng.Running()
	}
	return p.show("workers", p.T("Workers"), data)
}

// actOnWorker tells a worker to take no more jobs.
func (h *Handler) actOnWorker(p *page) error {
	id := p.r.PostFormValue("id")
	if Verb(p.r.PostFormValue("do")) != Quiet {
		return ojs.ErrNotFound
	}
	if err := h.allowed(p, Action{Do: Quiet, On: "worker", Name: id}); err != nil {
		return err
	}
	if !h.eng.Workers().Quiet(id) {
		return ojs.ErrNotFound
	}
	return p.moved("./?did=quiet")
}
