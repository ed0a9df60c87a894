package dashboard

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/workflow"
)

// foldFrom is how many branches of a group are one part of the pictures of a workflow.
const foldFrom = 6

// part is a step of a workflow, or a group of steps whose branches are folded.
type part struct {
	Name   string
	Steps  []*workflow.StepStatus
	After  []int // the parts before it
	before []int // the parts after it
}

// partsOf are the steps of a workflow. If fold is set, a group of foldFrom branches that
// begin after the same steps and end before the same ones is one part. Groups within
// groups fold from the inside.
func partsOf(s *workflow.Status, fold bool) []part {
	parts := make([]part, len(s.Steps))
	index := make(map[string]int, len(s.Steps))
	for i := range s.Steps {
		index[s.Steps[i].Name] = i
	}
	for i := range s.Steps {
		parts[i].Name, parts[i].Steps = s.Steps[i].Name, []*workflow.StepStatus{&s.Steps[i]}
		for _, name := range s.Steps[i].Follows() {
			if j, ok := index[name]; ok && j != i {
				parts[i].After = append(parts[i].After, j)
				parts[j].before = append(parts[j].before, i)
			}
		}
	}
	for fold {
		groups := make(map[string][][]int) // branches, by what is before and after them
		var order []string
		for i := range parts {
			if c := branch(parts, i); c != nil {
				key := fmt.Sprint(parts[i].After, parts[c[len(c)-1]].before)
				if groups[key] == nil {
					order = append(order, key)
				}
				groups[key] = append(groups[key], c)
			}
		}
		order = slices.DeleteFunc(order, func(key string) bool { return len(groups[key]) < foldFrom })
		if len(order) == 0 {
			break
		}
		first := make([]int, len(parts)) // of the parts that become one
		for i := range first {
			first[i] = i
		}
		for _, key := range order {
			for _, i := range slices.Concat(groups[key]...) {
				first[i] = groups[key][0][0]
			}
		}
		parts = merged(parts, first)
	}
	return parts
}

// branch is the longest chain of parts that begins with a part; nil: the part is within
// one.
func branch(parts []part, i int) []int {
	next := func(i int) int {
		if b := parts[i].before; len(b) == 1 && len(parts[b[0]].After) == 1 {
			return b[0]
		}
		return -1
	}
	if a := parts[i].After; len(a) == 1 && next(a[0]) == i {
		return nil
	}
	out := []int{i}
	for j := next(i); j >= 0 && !slices.Contains(out, j); j = next(j) {
		out = append(out, j)
	}
	return out
}

// merged makes one part of all parts with the same first one, in the place of that.
func merged(parts []part, first []int) (out []part) {
	to := make([]int, len(parts))
	for i := range parts {
		if first[i] == i {
			to[i] = len(out)
			out = append(out, part{Name: parts[i].Name})
		}
	}
	for i := range parts {
		to[i] = to[first[i]]
	}
	add := func(list *[]int, from []int, of int) {
		for _, i := range from {
			if to[i] != of && !slices.Contains(*list, to[i]) {
				*list = append(*list, to[i])
			}
		}
	}
	for i := range parts {
		into := &out[to[i]]
		into.Steps = append(into.Steps, parts[i].Steps...)
		add(&into.After, parts[i].After, to[i])
		add(&into.before, parts[i].before, to[i])
	}
	return out
}

// folded reports whether the part is a group.
func (of *part) folded() bool { return len(of.Steps) > 1 }

// stateRanks are the states of a step, the one that an operator should see first.
var stateRanks = []ojs.State{ojs.StateDiscarded, ojs.StateRetryable, ojs.StateActive, ojs.StateAvailable,
	ojs.StateScheduled, ojs.StatePending, ojs.StateCancelled, ojs.StateCompleted}

// State is the state of the step, or the first one of the steps of a group.
func (of *part) State() string {
	ranks := append(slices.Clone(stateRanks), "") // a step that is deleted comes last
	return string(slices.MinFunc(of.Steps, func(a, b *workflow.StepStatus) int {
		return cmp.Compare(slices.Index(ranks, a.State()), slices.Index(ranks, b.State()))
	}).State())
}

// PartName names a part: a step by its name, a group by how many steps it has.
func (p *page) PartName(of *part) string {
	if !of.folded() {
		return of.Name
	}
	types := make(map[string]bool)
	for _, s := range of.Steps {
		types[s.Type] = true
	}
	if len(types) == 1 {
		return fmt.Sprintf("%d × %s", len(of.Steps), of.Steps[0].Type)
	}
	return p.T("%d steps", len(of.Steps))
}

// PartState is the state of a part in words: of a group, how many steps are in each.
func (p *page) PartState(of *part) string {
	if !of.folded() {
		return p.T(cmp.Or(of.State(), "deleted"))
	}
	counts := make(map[ojs.State]int)
	for _, s := range of.Steps {
		counts[s.State()]++
	}
	var texts []string
	for _, state := range append(stateRanks, "") {
		if n := counts[state]; n > 0 {
			texts = append(texts, p.Num(n)+" "+p.T(cmp.Or(string(state), "deleted")))
		}
	}
	return strings.Join(texts, ", ")
}

// PartLink leads to the job of a step, or to the page on which no group is folded.
func (p *page) PartLink(of *part) string {
	switch {
	case of.folded():
		return "./?open=1"
	case of.Steps[0].Job == nil:
		return ""
	}
	return p.JobLink(of.Steps[0].JobID)
}

// ganttBar is a time of a step, or the times of several steps that make one bar.
type ganttBar struct {
	from, to    time.Time
	class, name string // of what happened in it
	step        string
	n           int // times in the bar
}

// timesOf are the attempts of a step whose times are known, and the time in which its job
// was available before the first attempt after that, or until now.
func timesOf(step *workflow.StepStatus, now time.Time) (out []ganttBar) {
	job := step.Job
	if job == nil {
		return nil
	}
	until := now
	if job.State != ojs.StateAvailable {
		until = time.Time{}
	}
	add := func(from, to time.Time, outcome inspect.AttemptOutcome) {
		if from.IsZero() || to.Before(from) {
			return
		}
		out = append(out, ganttBar{from, to, markClasses[outcome], outcomeNames[outcome], step.Name, 1})
		if !from.Before(job.EnqueuedAt) && (until.IsZero() || from.Before(until)) {
			until = from
		}
	}
	for i := range job.Errors {
		add(job.Errors[i].StartedAt, job.Errors[i].At, inspect.OutcomeFailed)
	}
	for i := range job.History {
		add(job.History[i].StartedAt, job.History[i].At, inspect.OutcomeReturned)
	}
	switch {
	case job.State == ojs.StateActive:
		add(job.StartedAt, now, inspect.OutcomeRunning)
	case job.State == ojs.StateCompleted:
		add(job.StartedAt, job.FinishedAt, inspect.OutcomeCompleted)
	}
	if e := job.Errors; len(e) > 0 && e[0].Attempt > 1 && until.Equal(e[0].StartedAt) {
		return out // the attempts before are not known
	}
	if !job.EnqueuedAt.IsZero() && !until.Before(job.EnqueuedAt) {
		out = append(out, ganttBar{job.EnqueuedAt, until, "m-wait", "available", step.Name, 1})
	}
	return out
}

// maxBars is how many bars of a class a row has.
const maxBars = 250

// barsOf are the times of a part in the order in which they are drawn: the failed
// attempts come last, above all others. Times of a class that overlap, or that are less
// than a gap apart, are one bar, so that a large group has no more bars than can be seen.
func barsOf(of *part, now time.Time, gap time.Duration) (out []ganttBar) {
	var all []ganttBar
	for _, step := range of.Steps {
		all = append(all, timesOf(step, now)...)
	}
	layers := []string{"m-wait", "", "m-failed"}
	layer := func(b ganttBar) int {
		if i := slices.Index(layers, b.class); i >= 0 {
			return i
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b ganttBar) int {
		return cmp.Or(cmp.Compare(layer(a), layer(b)), cmp.Compare(a.class, b.class), a.from.Compare(b.from))
	})
	for _, b := range all {
		if i := len(out) - 1; i >= 0 && out[i].class == b.class && b.from.Sub(out[i].to) < gap {
			if out[i].n++; b.to.After(out[i].to) {
				out[i].to = b.to
			}
			continue
		}
		out = append(out, b)
	}
	return out
}

const ganttRow = 24 // the height of a row

// Gantt is the parts of a workflow in time: a row for each, with its attempts, and the
// time before them in which it was available. It is empty before the first step is.
func (p *page) Gantt(s *workflow.Status, parts []part) template.HTML {
	if len(parts) == 0 || len(parts) > maxNodes {
		return ""
	}
	c := &chart{Times: []time.Time{s.CreatedAt}, End: p.Now, Now: !s.State.Final()}
	if !c.Now && s.FinishedAt.After(s.CreatedAt) {
		c.End = s.FinishedAt
	}
	if c.End.Sub(s.CreatedAt) < time.Second { // less is no picture
		c.End = s.CreatedAt.Add(time.Second)
	}
	at := func(t time.Time) float64 {
		return min(100, max(0, float64(t.Sub(s.CreatedAt))/float64(c.End.Sub(s.CreatedAt))*100))
	}
	height := ganttRow * len(parts)
	var names, rows, axis strings.Builder
	for i := range parts {
		of, top := &parts[i], ganttRow*i
		text := template.HTMLEscapeString(clip(p.PartName(of)))
		text = fmt.Sprintf(`<text x="0" y="%d">%s</text>`, top+16, text)
		if link := p.PartLink(of); link != "" {
			text = `<a href="` + template.HTMLEscapeString(link) + `">` + text + `</a>`
		}
		names.WriteString(text)
		fmt.Fprintf(&rows, `<path class="grid" d="M0 %dH9999"/>`, top+ganttRow)
		rect := func(class string, from, to time.Time, title string) {
			const bar = `<rect class="%s" x="%.2f%%" y="%d" width="%.2f%%" height="12" rx="2"><title>%s</title></rect>`
			fmt.Fprintf(&rows, bar, class, at(from), top+6, max(0.4, at(to)-at(from)),
				template.HTMLEscapeString(title))
		}
		for _, b := range barsOf(of, p.Now, c.End.Sub(s.CreatedAt)/maxBars) {
			title := b.step + ": " + p.T(b.name)
			if b.n > 1 {
				title = p.Num(b.n) + " " + p.T(b.name)
			}
			rect(b.class, b.from, b.to, title+", "+short(b.to.Sub(b.from)))
		}
	}
	for _, t := range p.ticks(c) {
		fmt.Fprintf(&rows, `<rect class="tick" x="%.2f%%" width="1" height="%d"/>`, t.at, height)
		fmt.Fprintf(&axis, `<text x="%.2f%%" y="12">%s</text>`, t.at, template.HTMLEscapeString(t.text))
	}
	const svg = `<svg class="%s" height="%d"%s>%s</svg>`
	hidden := ` aria-hidden="true"`
	return template.HTML(fmt.Sprintf(svg, "names", height, "", names.String()) +
		fmt.Sprintf(svg, "rows", height, hidden, rows.String()) +
		fmt.Sprintf(svg, "x-axis", 18, hidden, axis.String()))
}
