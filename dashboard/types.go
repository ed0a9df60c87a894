package dashboard

import (
	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
)

type typesData struct{ Types []typeRow }

// typesPage lists the types that this process has a handler for or has counted.
func (h *Handler) typesPage(p *page) error {
	return p.show("types", p.T("Types"), &typesData{h.types()})
}

type typeData struct {
	typeRow
	Wait, Run chart
	Versions  []string // of the handlers
	States    engine.Facets
	Lately    *timeChart // nil: no engine reports
}

// typePage shows what this process has counted of a type.
func (h *Handler) typePage(p *page) error {
	name := p.r.PathValue("name")
	data := &typeData{}
	for _, row := range h.types() {
		if row.Type == name {
			data.typeRow = row
		}
	}
	if data.Type == "" {
		return ojs.ErrNotFound
	}
	for _, hd := range h.eng.Handlers() {
		if hd.Type() == name && hd.Versions() != "" {
			data.Versions = append(data.Versions, hd.Versions())
		}
	}
	data.Wait, data.Run = p.histogram(&data.JobMeter.Wait), p.histogram(&data.JobMeter.Run)
	var err error
	data.States, err = h.breakdown(p.r.Context(), engine.Filter{Types: []string{name}}, engine.FacetState)
	if err != nil {
		return err
	}
	if data.Lately, err = h.lately(p, "", name); err != nil {
		return err
	}
	return p.show("type", name, data)
}

// histogram is a chart of durations, from the first bucket with one to the last.
func (p *page) histogram(of *engine.Histogram) (c chart) {
	first, last := -1, -1
	for i, n := range of.Buckets {
		if n > 0 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		return c
	}
	for i := max(0, first-1); i <= min(len(of.Buckets)-1, last+1); i++ {
		c.add("< "+short(of.Bound(i)), float64(of.Buckets[i]), p.Num(of.Buckets[i]))
	}
	return c
}
