package dashboard

import (
	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/internal/foreign"
)

type cronsData struct {
	Entries []cron.Entry
	Done    string
	Set     bool // the request may make entries
}

// crons lists the recurring entries.
func (h *Handler) crons(p *page) error {
	if name := p.r.FormValue("new"); name != "" {
		return p.moved("./" + p.Seg(name) + "/edit/")
	}
	entries, err := h.eng.Cron().List(p.r.Context())
	if err != nil {
		return err
	}
	return p.show("crons", p.T("Recurring"), &cronsData{entries, done(p.r.FormValue("did")),
		p.May(Set, "cron", "", "", "")})
}

type cronData struct {
	cron.Entry
	Next    []cron.Time
	Broken  string // why the entry cannot run in this process; "": it can
	Latest  []cron.Run
	Actions []Verb
	Change  bool // the request may change it
	Done    string
}

// cron shows one entry, with its next and its latest runs.
func (h *Handler) cron(p *page) error {
	ctx, name := p.r.Context(), p.r.PathValue("name")
	entry, err := h.eng.Cron().Get(ctx, name)
	if err != nil {
		return err
	}
	data := &cronData{Entry: entry, Done: done(p.r.FormValue("did"))}
	data.Next, err = h.eng.Cron().Next(ctx, name, 5)
	if foreign.Is(err, ojs.ErrInvalid) {
		data.Broken = err.Error()
	} else if err != nil {
		return err
	}
	if data.Latest, err = h.eng.Cron().Runs(ctx, name); err != nil {
		return err
	}
	for _, do := range []Verb{Run, Pause, Resume, Remove} {
		if (do == Pause && entry.Paused) || (do == Resume && !entry.Paused) {
			continue
		}
		if p.May(do, "cron", name, "", entry.Job.Type()) {
			data.Actions = append(data.Actions, do)
		}
	}
	data.Change = p.May(Set, "cron", name, "", entry.Job.Type())
	return p.show("cron", name, data)
}

// actOnCron does what a form of an entry's page asks for.
func (h *Handler) actOnCron(p *page) error {
	ctx, name, do := p.r.Context(), p.r.PathValue("name"), Verb(p.r.PostFormValue("do"))
	entry, err := h.eng.Cron().Get(ctx, name)
	if err != nil {
		return err
	}
	to := "./?did=" + string(do)
	steps := map[Verb]func() error{
		Pause:  func() error { return h.eng.Cron().Pause(ctx, name) },
		Resume: func() error { return h.eng.Cron().Resume(ctx, name) },
		Remove: func() error { to = "../?did=remove"; return h.eng.Cron().Remove(ctx, name) },
		Run: func() error {
			ticket, err := h.eng.Cron().Trigger(ctx, name)
			to = "../../jobs/" + ticket.ID + "/"
			return err
		},
	}
	step, ok := steps[do]
	if !ok {
		return ojs.ErrNotFound
	}
	if err := h.allowed(p, Action{Do: do, On: "cron", Name: name, Type: entry.Job.Type()}); err != nil {
		return err
	}
	if err := step(); err != nil {
		return refusal(err)
	}
	return p.moved(to)
}
