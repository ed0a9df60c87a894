package dashboard

import (
	"context"
	"html/template"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/telemetry"
)

// countedFailures has the latest read of the failures that engines have counted, so that
// many open pages cost one read.
type countedFailures struct {
	mu    sync.Mutex // held during a read, so that pages wait for it and do not read too
	at    time.Time
	list  []telemetry.FailureCount
	known telemetry.KnownFailures
}

// counted returns the failures that engines have counted.
func (h *Handler) counted(ctx context.Context, now time.Time) ([]telemetry.FailureCount, error) {
	c := &h.fails
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && !now.Before(c.at) && now.Sub(c.at) < historyAge {
		return c.list, nil
	}
	list, err := h.eng.Jobs().CountedFailures(ctx, &c.known)
	if err == nil {
		c.at, c.list = now, list
	}
	return list, err
}

// countedRow is failures of a kind, as pages may show them.
type countedRow struct {
	telemetry.FailureCount
}

// countedRow hides the secrets of texts. Only the job of a text may tell a redactor of
// the program what to hide.
func (h *Handler) countedRow(c telemetry.FailureCount) countedRow {
	switch job := (&ojs.JobInfo{JobHeader: ojs.JobHeader{ID: c.Sample, Type: c.Type}}); {
	case h.conf.masks:
		c.Message, c.Text = h.shownText(job, PartMessage, c.Message), h.shownText(job, PartMessage, c.Text)
	case h.conf.redact != nil:
		c.Message, c.Text = "", ""
	}
	return countedRow{c}
}

// For reports whether stored jobs of the kind may be ones that an action is for.
func (r countedRow) For(do Verb) bool {
	return !r.Other() && (do == Retry || do == Cancel || do == Delete)
}

// Line is the filter line of the stored jobs of the kind that an action is for; "" is no
// action.
func (r countedRow) Line(do Verb) string {
	return failureRow{FailureGroup: inspect.FailureGroup{FailureKind: r.FailureKind}}.Line(do)
}

// Today is the failures of the last 24 hours of the clock: since CountedSince.
func (r countedRow) Today() (n uint64) {
	for _, hour := range r.Hours {
		n += hour
	}
	return n
}

// Spark is the trend of the days as a picture.
func (r countedRow) Spark() template.HTML {
	values := make([]int, len(r.Days))
	for i, n := range r.Days {
		values[i] = int(n)
	}
	return spark(values)
}

// CountedSince is when the last 24 hours of counted failures begin.
func (p *page) CountedSince() template.HTML {
	return p.Time(p.Now.Truncate(time.Hour).Add(-23 * time.Hour))
}

type countedData struct {
	countedRow
	Sampled *ojs.JobInfo // the job that failed last; nil: it is not stored
	Charts  []*chart
	Stored  inspect.Count // jobs whose latest failure is of the kind
	Jobs    []*ojs.JobInfo
	Verbs   []Verb
}

// countedPage shows the failures of a kind.
func (h *Handler) countedPage(p *page) error {
	ctx := p.r.Context()
	list, err := h.counted(ctx, p.Now)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(c telemetry.FailureCount) bool { return c.Key == p.r.PathValue("key") })
	if i < 0 {
		return ojs.ErrNotFound
	}
	data := &countedData{countedRow: h.countedRow(list[i]), Verbs: p.ManyVerbs()}
	job, err := h.eng.Get(ctx, data.Sample)
	switch {
	case err == nil:
		data.Sampled = h.shown(job)
	case !foreign.Is(err, ojs.ErrNotFound) && !foreign.Is(err, ojs.ErrPruned):
		return err
	}
	data.Charts = []*chart{
		p.failureChart(p.T("Failed attempts of 30 days"), 24*time.Hour, list[i].Days[:]),
		p.failureChart(p.T("Failed attempts of 24 hours"), time.Hour, list[i].Hours[:]),
	}
	if !data.Other() {
		f := failureLine(data.Type, data.Key)
		if data.Stored, err = h.eng.Jobs().Count(ctx, f, look); err != nil {
			return err
		}
		f.Order = inspect.OrderNewest
		list, err := h.eng.Jobs().Page(ctx, f, "", 20)
		if err != nil {
			return err
		}
		data.Jobs = h.shownAll(list.Jobs)
	}
	return p.show("failure", data.Type, data)
}

// failureChart is a chart of numbers by periods of a width, of which the last has now.
// Days are those of UTC, by which engines count.
func (p *page) failureChart(title string, width time.Duration, numbers []uint64) *chart {
	last := p.Now.UTC().Truncate(width)
	c := &chart{Title: title, End: last.Add(width), Now: true, Days: width == day}
	var values []float64
	for i, n := range numbers {
		c.Times = append(c.Times, last.Add(-time.Duration(len(numbers)-1-i)*width))
		values = append(values, float64(n))
	}
	c.Series = []series{{p.T("Failed"), "s-bad", false, values}}
	return c
}
