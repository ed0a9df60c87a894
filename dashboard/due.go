package dashboard

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
)

// maxDue is how many jobs the charts count.
const maxDue = 1000

type dueData struct {
	manyBar
	Chart *chart // of the next hour
	Day   *chart // of the next 24 hours; nil: no job is due after the first hour
	Late  int    // jobs whose time has come
	N     int    // jobs of the hour; maxDue: or more
	NDay  int    // jobs of the day; maxDue: or more
}

// Count is a number of the charts.
func (d *dueData) Count(n int) inspect.Count { return inspect.Count{N: n, Exact: n < maxDue} }

// due shows what waits for a time: the next hour and the next day as charts, and the next
// jobs.
func (h *Handler) due(p *page) error {
	f := inspect.Filter{States: []ojs.State{ojs.StateScheduled, ojs.StateRetryable}, Order: inspect.OrderDue}
	list, err := h.eng.Jobs().Page(p.r.Context(), f, "", maxDue)
	if err != nil {
		return err
	}
	data := &dueData{}
	data.Line, data.From, data.Verbs = f.String(), "due/", p.ManyVerbs(f.States...)
	var minutes [60]int
	var hours [24]int
	for _, job := range list.Jobs {
		at := job.ScheduledAt
		if job.State == ojs.StateRetryable {
			at = job.NextRetryAt
		}
		if at.Before(p.Now) {
			data.Late++
			at = p.Now
		}
		in := at.Sub(p.Now)
		if in >= 24*time.Hour {
			break
		}
		hours[in/time.Hour]++
		data.NDay++
		if in < time.Hour {
			minutes[in/time.Minute]++
			data.N++
		}
	}
	data.Chart = p.dueIn(p.T("Jobs due in the next hour, by minute"), minutes[:], time.Minute)
	if data.NDay > data.N {
		data.Day = p.dueIn(p.T("Jobs due in the next day, by hour"), hours[:], time.Hour)
	}
	if len(list.Jobs) > pageSize {
		list.Jobs = list.Jobs[:pageSize]
	}
	data.Jobs = h.shownAll(list.Jobs)
	return p.show("due", p.T("Scheduled"), data)
}

// dueIn is a chart of jobs that are due. The first column has the overdue ones, too.
func (p *page) dueIn(title string, columns []int, width time.Duration) *chart {
	c := bars(title)
	f := inspect.Filter{States: []ojs.State{ojs.StateScheduled, ojs.StateRetryable}, Order: inspect.OrderDue}
	for i, n := range columns {
		from := p.Now.Add(time.Duration(i) * width)
		if i > 0 {
			f.DueFrom = from
		}
		f.DueBefore = from.Add(width)
		c.add(p.T("in %s", short(time.Duration(i)*width)), f.String(), float64(n))
	}
	return c
}
