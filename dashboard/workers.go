package dashboard

import (
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/inspect"
)

// maxHeld is how many active jobs there may be so that the page reads them.
const maxHeld = 10_000

type workersData struct {
	Stats   engine.Stats
	ID      string           // of this engine
	Holders []inspect.Worker // what holds active jobs
	Workers []fetch.Stats
	Nodes   []inspect.Node    // engines that report on themselves
	Running []inspect.Running // with stacks; nil: they were not asked for
	Stacks  bool
	Many    int  // active jobs, too many to read; 0: they were read
	Quiet   bool // the request may quiet workers
	Done    string
}

// workers shows what holds active jobs: engines and workers that fetch.
func (h *Handler) workers(p *page) error {
	ctx := p.r.Context()
	stats, err := h.stats(ctx)
	if err != nil {
		return err
	}
	data := &workersData{Stats: stats, Workers: stats.Workers, Stacks: p.r.FormValue("stacks") != "",
		Quiet: p.May(Quiet, "worker", "", "", ""), Done: done(p.r.FormValue("did"))}
	if n := stats.Total[ojs.StateActive]; n > maxHeld {
		data.Many = n
	} else {
		data.ID = h.eng.Describe().ID
		if data.Holders, err = h.eng.Workers().List(ctx); err != nil {
			return err
		}
		data.Holders = slices.DeleteFunc(data.Holders, func(w inspect.Worker) bool { return w.Jobs == 0 })
		slices.SortFunc(data.Holders, func(a, b inspect.Worker) int { return a.Last.Compare(b.Last) })
	}
	if data.Nodes, err = h.eng.Jobs().Nodes(ctx); err != nil {
		return err
	}
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
	stats, err := h.stats(p.r.Context())
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(stats.Workers, func(w fetch.Stats) bool { return w.ID == id }) {
		return ojs.ErrNotFound // an engine has a button and an authorization of its own
	}
	if err := h.eng.Workers().Quiet(p.r.Context(), id); err != nil {
		return err
	}
	return p.moved("./?did=quiet")
}
