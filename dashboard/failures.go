package dashboard

import (
	"context"
	"html/template"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/terms"
)

// failureRow is failures that are alike.
type failureRow struct {
	inspect.FailureGroup
	since              time.Time // of the ends of the jobs; zero: any
	Retryable, GivenUp bool      // whether it may have such jobs
}

// For reports whether the group may have jobs that an action is for.
func (r failureRow) For(do Verb) bool {
	return do == Retry || do == Cancel && r.Retryable || do == Delete && r.GivenUp
}

// Hour and Before are how many jobs of the group have failed in the last hour, and in the
// hour before.
func (r failureRow) Hour() int   { return sum(r.Trend[len(r.Trend)/2:]) }
func (r failureRow) Before() int { return sum(r.Trend[:len(r.Trend)/2]) }

func sum(list []int) (n int) {
	for _, i := range list {
		n += i
	}
	return n
}

// Spark is the trend as a picture.
func (r failureRow) Spark() template.HTML { return spark(r.Trend[:]) }

// failureLine is the filter of failures that are alike. Their states and their type have
// an index.
func failureLine(jobType, key string) inspect.Filter {
	return inspect.Filter{States: []ojs.State{ojs.StateRetryable, ojs.StateDiscarded},
		Types: []string{jobType}, Failure: key}
}

// Line is the filter line of the jobs that an action is for; "" is no action.
func (r failureRow) Line(do Verb) string {
	f := failureLine(r.Type, r.Key)
	f.FinishedFrom = r.since
	switch {
	case do == Cancel:
		f.States = []ojs.State{ojs.StateRetryable}
	case do == Delete, !r.since.IsZero():
		f.States = []ojs.State{ojs.StateDiscarded}
	}
	return f.String()
}

// failurePeriods are the periods that the page offers.
var failurePeriods = []string{"1h", "24h"}

// Periods are the periods that the page offers.
func (failuresData) Periods() []string { return failurePeriods }

type failuresData struct {
	Type    string // the failures of one type; "": all
	Any     bool   // engines have counted failures
	Counted []countedRow
	More    int    // kinds that Counted has not
	Stored  bool   // the stored jobs are shown
	Since   string // the jobs that were discarded in a period until now; "": all failures
	Rows    []failureRow
	Exact   bool
	Looked  int
	Of      int  // how many failures are stored
	OfAll   bool // false: there may be more than Of
	ByType  inspect.Facets
	ByQueue inspect.Facets
	Verbs   []Verb
	Latest  []*ojs.JobInfo

	Discarded string // the filter line of the discarded jobs
}

// Sum is how many failures are stored, in words.
func (d *failuresData) Sum(p *page) string { return p.Least(inspect.Count{N: d.Of, Exact: d.OfAll}) }

// failures shows the failures that engines have counted, of all types or of one. If there
// are none, or if it is asked to, it groups the stored jobs that wait for a retry or were
// given up by what their latest failures have in common.
func (h *Handler) failures(p *page) error {
	ctx := p.r.Context()
	discarded := inspect.Filter{States: []ojs.State{ojs.StateDiscarded}}
	failed := inspect.Filter{States: []ojs.State{ojs.StateRetryable, ojs.StateDiscarded}}
	jobType := p.r.FormValue("type")
	if jobType != "" {
		discarded.Types, failed.Types = []string{jobType}, []string{jobType}
	}
	since, period := time.Time{}, p.r.FormValue("since")
	if d, err := time.ParseDuration(period); err == nil && slices.Contains(failurePeriods, period) {
		since = p.Now.Add(-d)
		discarded.FinishedFrom = since
		failed = discarded
	} else {
		period = ""
	}
	counted, err := h.counted(ctx, p.Now)
	if err != nil {
		return err
	}
	data := &failuresData{Type: jobType, Since: period, Any: len(counted) > 0, Verbs: p.ManyVerbs(),
		Discarded: discarded.String()}
	facets, err := h.eng.Jobs().FacetsBy(ctx, discarded, 2*look, inspect.FacetState, inspect.FacetType,
		inspect.FacetQueue)
	if err != nil {
		return err
	}
	data.ByType, data.ByQueue = mostFrequent(facets[1]), mostFrequent(facets[2])
	if data.Stored = !data.Any || period != "" || p.r.FormValue("of") == "stored"; data.Stored {
		all := facets[0].Count()
		if since.IsZero() { // the storage also counts jobs that wait for a retry
			all, err = h.eng.Jobs().Count(ctx, failed, look)
		}
		if err == nil {
			data.Of, data.OfAll = all.N, all.Exact
			err = h.storedFailures(p, data, failed, since)
		}
	} else {
		for _, c := range counted {
			switch {
			case jobType != "" && c.Type != jobType:
			case len(data.Counted) == pageSize:
				data.More++
			default:
				data.Counted = append(data.Counted, h.countedRow(c))
			}
		}
	}
	if err != nil {
		return err
	}
	discarded.Order = inspect.OrderFinished
	list, err := h.eng.Jobs().Page(ctx, discarded, "", 20)
	if err != nil {
		return err
	}
	data.Latest = h.shownAll(list.Jobs)
	return p.show("failures", p.T("Failures"), data)
}

// storedFailures groups the jobs of a filter.
func (h *Handler) storedFailures(
	p *page, data *failuresData, failed inspect.Filter, since time.Time,
) error {
	groups, err := h.eng.Jobs().Failures(p.r.Context(), failed, 2*look)
	if err != nil {
		return err
	}
	data.Exact, data.Looked = groups.Exact, groups.Looked
	for _, g := range groups.Groups[:min(len(groups.Groups), pageSize)] {
		one := g.N == 1 && g.Sample != nil // then the state is that of the sample
		row := failureRow{g, since, since.IsZero() && (!one || g.Sample.State == ojs.StateRetryable),
			!one || g.Sample.State == ojs.StateDiscarded}
		row.Sample = h.shown(g.Sample)
		switch {
		case h.conf.masks:
			row.Message = h.shownText(g.Sample, PartMessage, g.Message)
		case h.conf.redact != nil: // which may not know the message of a group
			row.Message = ""
			if row.Sample != nil && row.Sample.Error != nil {
				row.Message = row.Sample.Error.Message
			}
		}
		data.Rows = append(data.Rows, row)
	}
	return nil
}

// breakdown counts jobs by a facet: its 30 most frequent values.
func (h *Handler) breakdown(ctx context.Context, f inspect.Filter, by inspect.Facet) (inspect.Facets, error) {
	facets, err := h.eng.Jobs().Facets(ctx, f, by, look)
	return mostFrequent(facets), err
}

func mostFrequent(f inspect.Facets) inspect.Facets {
	f.Values = f.Values[:min(len(f.Values), 30)]
	return f
}

type deadData struct {
	Count                    inspect.Count
	ByError, ByType, ByQueue inspect.Facets
	Jobs                     []*ojs.JobInfo // the longest dead first
	Next, Prev               string
	Looked                   int
}

// facetTable is a break-down whose values are links to lists.
type facetTable struct {
	inspect.Facets
	key, rest string
}

// Facet is a break-down of the jobs of the filter line rest, by a key of filter lines.
func (p *page) Facet(key, rest string, of inspect.Facets) facetTable {
	return facetTable{of, key, rest}
}

// Line is the filter line of the jobs with a value.
func (f facetTable) Line(value string) string { return f.rest + " " + terms.Term(f.key, value) }

// dead shows the dead letters.
func (h *Handler) dead(p *page) error {
	ctx := p.r.Context()
	f := inspect.Filter{DeadLettered: true}
	data := &deadData{}
	facets, err := h.eng.Jobs().FacetsBy(ctx, f, 2*look, inspect.FacetState, inspect.FacetError,
		inspect.FacetType, inspect.FacetQueue)
	if err != nil {
		return err
	}
	data.Count = facets[0].Count()
	data.ByError, data.ByType, data.ByQueue = mostFrequent(facets[1]), mostFrequent(facets[2]),
		mostFrequent(facets[3])
	list, err := h.eng.Jobs().Page(ctx, f, p.r.FormValue("at"), pageSize)
	if err != nil {
		return refusal(err)
	}
	data.Jobs, data.Next, data.Prev, data.Looked = h.shownAll(list.Jobs), list.Next, list.Prev, list.Looked
	return p.show("dead", p.T("Dead letters"), data)
}
