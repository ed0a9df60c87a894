package dashboard

import (
	"html/template"
	"net/url"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/terms"
)

func escape(s string) string { return url.QueryEscape(s) }

// When is the time of a job that matters in its state, with a word for it.
func (p *page) When(job *ojs.JobInfo) template.HTML {
	switch {
	case job.State == ojs.StateScheduled:
		return p.Ago(job.ScheduledAt)
	case job.State == ojs.StateRetryable:
		return p.Ago(job.NextRetryAt)
	case job.State == ojs.StateActive:
		return p.Since(job.StartedAt)
	case job.State.Terminal():
		return p.Since(job.FinishedAt)
	case job.State == ojs.StateAvailable && !job.EnqueuedAt.IsZero():
		return p.Since(job.EnqueuedAt)
	}
	return p.Since(job.CreatedAt)
}

// Took is how long the latest attempt took, or has taken so far; "" if there was none.
func (p *page) Took(job *ojs.JobInfo) string {
	switch {
	case job.StartedAt.IsZero():
		return ""
	case job.State == ojs.StateActive:
		return short(p.Now.Sub(job.StartedAt))
	case job.State == ojs.StateCompleted:
		return short(job.FinishedAt.Sub(job.StartedAt))
	case job.Error != nil && !job.Error.At.Before(job.StartedAt):
		return short(job.Error.At.Sub(job.StartedAt))
	}
	return ""
}

// Snippet is the beginning of a job's args.
func (p *page) Snippet(job *ojs.JobInfo) string { return snippet(job.Args.JSON()) }

// Short is the end of an id, which differs from job to job where the beginning is a time.
func (p *page) Short(id string) string {
	if len(id) > 12 {
		return "…" + id[len(id)-8:]
	}
	return id
}

// Percent is a share of 0 to 1 in percent.
func (p *page) Percent(f float64) int { return int(f*100 + 0.5) }

// Set reports whether a time is set.
func (p *page) Set(t time.Time) bool { return !t.IsZero() }

// Shown is a job as pages may show it.
func (p *page) Shown(job *ojs.JobInfo) *ojs.JobInfo { return p.h.shown(job) }

// Plus is a sum, for places in pictures.
func (p *page) Plus(a, b int) int { return a + b }

// WorkerLine is the filter line of the jobs that a worker claimed last.
func (p *page) WorkerLine(id string) string { return terms.Term("worker", id) }

// TypeLine is the filter line of a type.
func (p *page) TypeLine(name string) string { return terms.Term("type", name) }
