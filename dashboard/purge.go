package dashboard

import (
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/terms"
)

// purgeOf is the purge of the queue that an address names.
func (h *Handler) purgeOf(p *page) (*many, error) {
	name := p.r.PathValue("name")
	if err := ojs.ValidateQueue(name); err != nil {
		return nil, ojs.ErrNotFound
	}
	m := &many{Do: Purge, Line: terms.Term("queue", name), Link: "queues/" + p.Seg(name) + "/",
		Action: Action{Do: Purge, On: "queue", Name: name, Queue: name}}
	if err := h.may(p.r, m.Action); err != nil {
		return nil, denied{err}
	}
	return m, m.steps(p, inspect.Filter{Queues: []string{name}})
}

// purge shows what a purge of a queue would reach. Its form asks for the queue's name.
func (h *Handler) purge(p *page) error {
	m, err := h.purgeOf(p)
	if err != nil {
		return err
	}
	data := &previewData{many: m}
	if data.Preview, err = h.sample(p, m, 10); err != nil {
		return err
	}
	return p.show("preview", p.T(verbNames[Purge])+": "+m.Action.Name, data)
}

// startPurge begins a purge.
func (h *Handler) startPurge(p *page) error {
	m, err := h.purgeOf(p)
	if err != nil {
		return err
	}
	if strings.TrimSpace(p.r.PostFormValue("name")) != m.Action.Name {
		return badField("name", "type the name of the queue, so that no other one is purged")
	}
	return h.begin(p, m)
}
