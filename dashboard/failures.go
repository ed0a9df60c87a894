package dashboard

import (
	"cmp"
	"context"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
)

// failureRow is the type of an error with the jobs whose latest failure has it.
type failureRow struct {
	Type               string
	Retryable, GivenUp int
}

// For reports whether the row has jobs that an action is for.
func (r failureRow) For(do Verb) bool {
	return do == Retry || do == Cancel && r.Retryable > 0 || do == Delete && r.GivenUp > 0
}

// Line is the filter line of the jobs that an action is for; "" is no action.
func (r failureRow) Line(do Verb) string {
	f := engine.Filter{ErrorTypes: []string{r.Type}}
	switch do {
	case Cancel:
		f.States = []ojs.State{ojs.StateRetryable}
	case Delete:
		f.States = []ojs.State{ojs.StateDiscarded}
	default:
		f.States = []ojs.State{ojs.StateRetryable, ojs.StateDiscarded}
	}
	return f.String()
}

type failuresData struct {
	Rows    []failureRow
	Exact   bool
	Looked  int
	ByType  engine.Facets
	ByQueue engine.Facets
	Verbs   []Verb
	Latest  []*ojs.JobInfo
}

// failures groups the jobs that wait for a retry and the jobs that were given up, by the
// types of their errors.
func (h *Handler) failures(p *page) error {
	ctx := p.r.Context()
	retryable := engine.Filter{States: []ojs.State{ojs.StateRetryable}}
	discarded := engine.Filter{States: []ojs.State{ojs.StateDiscarded}}
	data := &failuresData{Exact: true, Verbs: p.BulkVerbs()}
	rows := make(map[string]*failureRow)
	for _, f := range []engine.Filter{retryable, discarded} {
		facets, err := h.breakdown(ctx, f, engine.FacetError)
		if err != nil {
			return err
		}
		data.Exact = data.Exact && facets.Exact
		data.Looked += facets.Looked
		for _, v := range facets.Values {
			row := rows[v.Value]
			if row == nil {
				row = &failureRow{Type: v.Value}
				rows[v.Value] = row
			}
			if f.States[0] == ojs.StateRetryable {
				row.Retryable = v.N
			} else {
				row.GivenUp = v.N
			}
		}
	}
	for _, row := range rows {
		data.Rows = append(data.Rows, *row)
	}
	slices.SortFunc(data.Rows, func(a, b failureRow) int {
		return cmp.Or(cmp.Compare(b.Retryable+b.GivenUp, a.Retryable+a.GivenUp), cmp.Compare(a.Type, b.Type))
	})
	var err error
	if data.ByType, err = h.breakdown(ctx, discarded, engine.FacetType); err != nil {
		return err
	}
	if data.ByQueue, err = h.breakdown(ctx, discarded, engine.FacetQueue); err != nil {
		return err
	}
	discarded.Order = engine.OrderFinished
	list, err := h.eng.Jobs().Page(ctx, discarded, "", 20)
	if err = optional(err); err != nil {
		return err
	}
	data.Latest = h.shownAll(list.Jobs)
	return p.show("failures", p.T("Failures"), data)
}

// breakdown counts jobs by a facet: its 30 most frequent values.
func (h *Handler) breakdown(ctx context.Context, f engine.Filter, by engine.Facet) (engine.Facets, error) {
	facets, err := h.eng.Jobs().Facets(ctx, f, by, 0)
	if len(facets.Values) > 30 {
		facets.Values = facets.Values[:30]
	}
	return facets, err
}

type deadData struct {
	Count                    engine.Count
	ByError, ByType, ByQueue engine.Facets
	Jobs                     []*ojs.JobInfo // the longest dead first
	Next, Prev               string
	Looked                   int
}

// facetTable is a break-down whose values are links to lists.
type facetTable struct {
	engine.Facets
	key, rest string
}

// Facet is a break-down of the jobs of the filter line rest, by a key of filter lines.
func (p *page) Facet(key, rest string, of engine.Facets) facetTable { return facetTable{of, key, rest} }

// Line is the filter line of the jobs with a value.
func (f facetTable) Line(value string) string { return f.rest + " " + term(f.key, value) }

// dead shows the dead letters.
func (h *Handler) dead(p *page) error {
	ctx := p.r.Context()
	f := engine.Filter{DeadLettered: true}
	data := &deadData{}
	var err error
	if data.Count, err = h.deadCount(ctx); err != nil {
		return err
	}
	for by, to := range map[engine.Facet]*engine.Facets{engine.FacetError: &data.ByError,
		engine.FacetType: &data.ByType, engine.FacetQueue: &data.ByQueue} {
		if *to, err = h.breakdown(ctx, f, by); err != nil {
			return err
		}
	}
	list, err := h.eng.Jobs().Page(ctx, f, p.r.FormValue("at"), pageSize)
	if err != nil {
		return refusal(err)
	}
	data.Jobs, data.Next, data.Prev, data.Looked = h.shownAll(list.Jobs), list.Next, list.Prev, list.Looked
	return p.show("dead", p.T("Dead letters"), data)
}
