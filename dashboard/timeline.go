package dashboard

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
)

// moment is something that happened to a job, or will.
type moment struct {
	Name   string // a text of the catalogue, which takes N if that is not 0
	N      int
	At     time.Time
	Future bool
	After  time.Duration // since the moment before; 0: the first
	By     string        // who did it
	Text   string        // what was changed, for a person
}

// attemptEnds are the ends of attempts.
var attemptEnds = map[inspect.AttemptOutcome]string{
	inspect.OutcomeCompleted: "attempt %d completed", inspect.OutcomeFailed: "attempt %d failed",
	inspect.OutcomeCancelled: "attempt %d was cancelled", inspect.OutcomeSnoozed: "attempt %d put it off",
	inspect.OutcomeReturned: "attempt %d was interrupted",
}

// noteNames are what calls and rules have changed.
var noteNames = map[ojs.NoteKind]string{
	ojs.NoteRetried: "retried", ojs.NoteRescheduled: "rescheduled", ojs.NotePriority: "priority changed",
	ojs.NoteMoved: "moved", ojs.NoteEdited: "edited", ojs.NoteActivated: "activated",
	ojs.NoteCancelled: "cancelled by hand",
}

// outcomeNames are how attempts ended, in a column of a table.
var outcomeNames = map[inspect.AttemptOutcome]string{
	inspect.OutcomeRunning: "active", inspect.OutcomeCompleted: "completed", inspect.OutcomeFailed: "failed",
	inspect.OutcomeCancelled: "cancelled", inspect.OutcomeSnoozed: "put off",
	inspect.OutcomeReturned: "interrupted",
}

// OutcomeName is how an attempt ended.
func (p *page) OutcomeName(o inspect.AttemptOutcome) string { return p.T(outcomeNames[o]) }

// Lasted is how long an attempt took, so far if it runs; "" if that is not known.
func (p *page) Lasted(a inspect.Attempt) string {
	if a.Start.IsZero() {
		return ""
	}
	return short(a.Duration(p.Now))
}

// addMoments fills in what has happened to a job and what is to come, with the errors of
// the job as pages may show them.
func (d *jobData) addMoments(life *inspect.Timeline, now time.Time) {
	job := d.Job
	add := func(m moment) {
		if !m.At.IsZero() {
			d.Moments = append(d.Moments, m)
		}
	}
	add(moment{Name: "created", At: job.CreatedAt})
	waits := job.State == ojs.StateScheduled
	if !waits {
		add(moment{Name: "scheduled", At: job.ScheduledAt})
	}
	add(moment{Name: "available", At: job.EnqueuedAt})
	for _, a := range life.Attempts {
		add(moment{Name: "attempt %d started", N: a.N, At: a.Start})
		if a.Outcome != inspect.OutcomeRunning {
			add(moment{Name: attemptEnds[a.Outcome], N: a.N, At: a.End})
		}
		for i := range life.Job.Errors {
			if a.Failure == &life.Job.Errors[i] {
				a.Failure = &job.Errors[i]
			}
		}
		d.Attempts = append(d.Attempts, a)
	}
	for _, n := range life.Notes {
		add(moment{Name: noteNames[n.What], At: n.At, By: n.By, Text: n.Text})
	}
	if job.State.Terminal() && job.State != ojs.StateCompleted {
		add(moment{Name: string(job.State), At: job.FinishedAt})
	}
	slices.SortStableFunc(d.Moments, func(a, b moment) int { return a.At.Compare(b.At) })
	for i := 1; i < len(d.Moments); i++ {
		d.Moments[i].After = d.Moments[i].At.Sub(d.Moments[i-1].At)
	}
	slices.Reverse(d.Attempts)
	for i, n := range life.Next {
		m := moment{Name: "attempt %d due", N: n.N, At: n.At, Future: true}
		if i == 0 && waits {
			m.Name, m.N = "scheduled", 0
		}
		if i > 0 {
			m.After = n.At.Sub(life.Next[i-1].At)
		}
		if i == 0 && (waits || job.State == ojs.StateRetryable) {
			add(m)
		} else {
			d.Later = append(d.Later, m)
		}
	}
	add(moment{Name: "expires", At: life.Deadline, Future: true})
	d.Strip = stripOf(life, now)
}

// strip is the life of a job as a picture: what has happened left of now, to scale, and
// what is to come right of it, by another scale.
type strip struct {
	From, To time.Time // zero: there is nothing to draw
	Now      bool      // the job has not ended, and now is between the two
	marks    []mark
}

// mark is an attempt, from x to x+width of 1000.
type mark struct {
	class    string
	x, width float64
}

var markClasses = map[inspect.AttemptOutcome]string{
	inspect.OutcomeRunning: "m-running", inspect.OutcomeCompleted: "m-completed",
	inspect.OutcomeFailed: "m-failed", inspect.OutcomeCancelled: "m-cancelled",
	inspect.OutcomeSnoozed: "m-snoozed", inspect.OutcomeReturned: "m-returned",
}

const (
	stripWidth  = 1000
	stripHeight = 22
	stripPast   = 700 // of the width, if there is a future
)

func stripOf(life *inspect.Timeline, now time.Time) (s strip) {
	job := life.Job
	end := now
	if job.State.Terminal() && !job.FinishedAt.IsZero() {
		end = job.FinishedAt
	}
	next := life.Next[:min(len(life.Next), 8)]
	for len(next) > 0 && !next[0].At.After(now) {
		next = next[1:]
	}
	past := float64(stripWidth)
	if len(next) > 0 {
		past = stripPast
	}
	span := end.Sub(job.CreatedAt)
	if span <= 0 || len(life.Attempts)+len(next) == 0 {
		return s
	}
	at := func(t time.Time) float64 {
		return min(max(float64(t.Sub(job.CreatedAt))/float64(span), 0), 1) * past
	}
	for _, a := range life.Attempts {
		from, to := a.Start, a.End
		if to.IsZero() {
			to = end
		}
		if from.IsZero() {
			from = to
		}
		x := min(at(from), past-4)
		s.marks = append(s.marks, mark{markClasses[a.Outcome], x, max(4, at(to)-x)})
	}
	s.From, s.To, s.Now = job.CreatedAt, end, !job.State.Terminal()
	if len(next) > 0 {
		s.To = next[len(next)-1].At
		for _, n := range next {
			share := float64(n.At.Sub(now)) / float64(s.To.Sub(now))
			s.marks = append(s.marks, mark{"m-next", past + share*(stripWidth-past-8), 6})
		}
	}
	return s
}

// SVG is the picture. The list of moments beside it says the same in words.
func (s strip) SVG() template.HTML {
	var b strings.Builder
	const head = `<svg class="strip" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true">`
	const line = `<rect class="grid-bar" y="8" width="%d" height="6"/>`
	fmt.Fprintf(&b, head+line, stripWidth, stripHeight, stripWidth)
	for _, m := range s.marks {
		const rect = `<rect class="%s" x="%.1f" y="2" width="%.1f" height="18" rx="1"/>`
		fmt.Fprintf(&b, rect, m.class, m.x, m.width)
	}
	if s.Now && s.To.After(s.From) && len(s.marks) > 0 && s.marks[len(s.marks)-1].class == "m-next" {
		fmt.Fprintf(&b, `<rect class="m-now" x="%d" y="0" width="2" height="%d"/>`, stripPast, stripHeight)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}
