package dashboard

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
)

// maxDue is how many jobs the chart of the next hour counts.
const maxDue = 1000

type dueData struct {
	manyBar
	Chart chart
	More  bool // the hour has more jobs than the chart counts
	Late  int  // jobs whose time has come
	N     int  // jobs of the chart
}

// due shows what waits for a time: the next hour as a chart, and the next jobs.
func (h *Handler) due(p *page) error {
	f := engine.Filter{States: []ojs.State{ojs.StateScheduled, ojs.StateRetryable}, Order: engine.OrderDue}
	list, err := h.eng.Jobs().Page(p.r.Context(), f, "", maxDue)
	if err != nil {
		return err
	}
	data := &dueData{}
	data.Line, data.From, data.Verbs = f.String(), "due/", p.ManyVerbs(f.States...)
	var bars [60]int
	for _, job := range list.Jobs {
		at := job.ScheduledAt
		if job.State == ojs.StateRetryable {
			at = job.NextRetryAt
		}
		minute := int(at.Sub(p.Now) / time.Minute)
		if at.Before(p.Now) {
			data.Late++
			minute = 0
		}
		if minute >= len(bars) {
			break
		}
		bars[minute]++
		data.N++
	}
	data.More = data.N == maxDue
	for i, n := range bars {
		data.Chart.add(p.T("in %s", short(time.Duration(i)*time.Minute)), float64(n), p.Num(n))
	}
	if len(list.Jobs) > pageSize {
		list.Jobs = list.Jobs[:pageSize]
	}
	data.Jobs = h.shownAll(list.Jobs)
	return p.show("due", p.T("Scheduled"), data)
}
