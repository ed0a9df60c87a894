package dashboard

import (
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/telemetry"
)

// typeRow is what was counted of a type.
type typeRow struct {
	telemetry.Meter
	Handled   bool           // this engine has a handler
	Elsewhere bool           // an engine that reports has one
	Pause     *inspect.Pause // nil: it is not paused
}

// FailShare is the share of the attempts that failed.
func (t typeRow) FailShare() float64 {
	if t.Completed+t.Failed == 0 {
		return 0
	}
	return float64(t.Failed) / float64(t.Completed+t.Failed)
}

// types sums by type, in alphabetical order, what the engines that report have counted in
// the last hour. If none reports, the sums are of this process.
// It has a row for each of the other types, too.
func (h *Handler) types(p *page, pauses []inspect.Pause, others ...string) (out typeRows, err error) {
	ctx := p.r.Context()
	rows := make(map[string]*typeRow)
	row := func(name string) *typeRow {
		if rows[name] == nil {
			rows[name] = &typeRow{Meter: telemetry.Meter{Type: name}}
		}
		return rows[name]
	}
	for _, hd := range h.eng.Describe().Handlers {
		row(hd.Type()).Handled = true
	}
	if out.nodes, err = h.eng.Jobs().Nodes(ctx); err != nil {
		return out, err
	}
	for _, n := range out.nodes {
		for _, name := range n.Types {
			row(name).Elsewhere = true
		}
	}
	for i := range pauses {
		if pauses[i].Type != "" {
			row(pauses[i].Type).Pause = &pauses[i]
		}
	}
	for _, name := range others {
		row(name)
	}
	buckets, err := h.history(ctx, spanNamed("1h").window(p.Now), p.Now)
	if err != nil {
		return out, err
	}
	for _, b := range buckets {
		for i := range b.Meters {
			out.Reported = true
			row(b.Meters[i].Type).Add(&b.Meters[i])
		}
	}
	if !out.Reported {
		for _, m := range h.eng.Meter() {
			row(m.Type).Add(&m)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		out.Types = append(out.Types, *rows[name])
	}
	return out, nil
}

// typeRows are types, and the engines that report.
type typeRows struct {
	Types    []typeRow
	Reported bool
	nodes    []inspect.Node
}

// typesPage lists the types that an engine has a handler for or has counted, and those of
// unfinished jobs.
func (h *Handler) typesPage(p *page) error {
	pauses, err := h.eng.Queues().Pauses(p.r.Context())
	if err != nil {
		return err
	}
	unfinished := inspect.Filter{States: openStates}
	stored, err := h.eng.Jobs().Facets(p.r.Context(), unfinished, inspect.FacetType, 0)
	if err != nil {
		return err
	}
	var names []string
	for _, v := range stored.Values {
		names = append(names, v.Value)
	}
	data, err := h.types(p, pauses, names...)
	if err != nil {
		return err
	}
	return p.show("types", p.T("Types"), data)
}

type typeData struct {
	typeRow
	Reported  bool
	Wait, Run *chart   // nil: no attempt has ended
	Versions  []string // of the handlers
	States    inspect.Facets
	Lately    *chart // nil: no engine reports
	Hold      hold
	Done      string
}

// typePage shows what was counted of a type.
func (h *Handler) typePage(p *page) error {
	ctx, name := p.r.Context(), p.r.PathValue("name")
	pauses, err := h.eng.Queues().Pauses(ctx)
	if err != nil {
		return err
	}
	types, err := h.types(p, pauses)
	if err != nil {
		return err
	}
	data := &typeData{Reported: types.Reported, Done: done(p.r.FormValue("did"))}
	for _, row := range types.Types {
		if row.Type == name {
			data.typeRow = row
		}
	}
	data.States, err = h.breakdown(ctx, inspect.Filter{Types: []string{name}}, inspect.FacetState)
	if err != nil {
		return err
	}
	if data.Type == "" && len(data.States.Values) == 0 {
		return ojs.ErrNotFound
	}
	data.Type = name
	data.Hold = h.holdOf(p, pauses, name)
	for _, hd := range h.eng.Describe().Handlers {
		if hd.Type() == name && hd.Versions() != "" {
			data.Versions = append(data.Versions, hd.Versions())
		}
	}
	data.Wait = p.histogram(p.T("Time from being available to the first attempt"), &data.Meter.Wait)
	data.Run = p.histogram(p.T("Time of an attempt"), &data.Meter.Run)
	if data.Lately, err = h.lately(p, "", name); err != nil {
		return err
	}
	return p.show("type", name, data)
}

// Unhandled reports whether the type needs a handler and no engine that is known has one.
// The jobs that workflows make for themselves need none.
func (t typeRow) Unhandled() bool {
	return !t.Handled && !t.Elsewhere && !slices.Contains(noHandlers, t.Type)
}

// histogram is a chart of durations, with a column for each doubling; nil: there are
// none.
func (p *page) histogram(title string, of *telemetry.Histogram) *chart {
	var columns [64]uint64 // of 2^i µs at most
	first, last := len(columns), 0
	for bound, n := range of.Buckets() {
		last = bits.Len64(uint64((bound - 1) / time.Microsecond))
		first = min(first, last)
		columns[last] += n
	}
	if first > last {
		return nil
	}
	c := bars(title)
	for i := max(0, first-1); i <= last+1; i++ {
		c.add("< "+short(time.Microsecond<<i), "", float64(columns[i]))
	}
	c.Lines = nil
	return c
}
