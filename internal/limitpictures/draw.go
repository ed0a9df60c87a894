package main

import (
	"bytes"
	"fmt"
	"html"
	"maps"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
)

// The measures of a picture, in pixels.
const (
	width  = 760
	left   = 120 // of the time 0
	right  = 20  // behind the end
	top    = 66  // of the first job
	row    = 26
	bar    = 14
	strip  = 54 // the count
	bottom = 34 // the axis
)

const style = `<style>
svg{--page:#ffffff;--text:#1f2328;--dim:#59636e;--grid:#d1d9e0;--run:#0969da;--wait:#8c959f;--bad:#cf222e;--limit:#bc4c00}
@media(prefers-color-scheme:dark){svg{--page:#0d1117;--text:#e6edf3;--dim:#9198a1;--grid:#3d444d;--run:#4493f8;--wait:#7d8590;--bad:#f85149;--limit:#f0883e}}
text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:var(--text)}
.title{font-size:15px;font-weight:600}.dim{fill:var(--dim);font-size:12px}.end{text-anchor:end}.middle{text-anchor:middle}
.page{fill:var(--page)}.grid{stroke:var(--grid);stroke-width:1}
.active{fill:var(--run)}.available{fill:var(--wait)}
.later{stroke:var(--wait);stroke-width:2;stroke-dasharray:3 4;fill:none}
.drop{stroke:var(--bad);stroke-width:2.5;fill:none}
.count{stroke:var(--run);stroke-width:2;fill:none}.limit{stroke:var(--limit);stroke-width:1.5;stroke-dasharray:6 4}
</style>
`

// picture is a drawing with a scale of time.
type picture struct {
	bytes.Buffer
	end time.Duration
}

func (p *picture) x(t time.Duration) float64 {
	return left + float64(min(t, p.end))/float64(p.end)*(width-left-right)
}

func (p *picture) text(class string, x, y float64, s string) {
	fmt.Fprintf(p, "<text class=%q x=\"%.1f\" y=\"%.1f\">%s</text>\n", class, x, y, html.EscapeString(s))
}

func (p *picture) rect(class string, x, y, w, h float64) {
	fmt.Fprintf(p, "<rect class=%q x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
		class, x, y, w, h)
}

func (p *picture) path(class, format string, args ...any) {
	fmt.Fprintf(p, "<path class=%q d=\"%s\"/>\n", class, fmt.Sprintf(format, args...))
}

// draw draws a row for each job, the count below them, and the time.
func (s *scene) draw(jobs []job) []byte {
	rows := float64(top + row*len(jobs))
	height := rows + bottom
	if s.count.label != "" {
		height += strip
	}
	p := &picture{end: s.end}
	fmt.Fprintf(p, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%[1]d\" height=\"%.0[2]f\" role=\"img\">\n",
		width, height)
	fmt.Fprintf(p, "<title>%s</title>\n", html.EscapeString(s.title))
	p.WriteString(style)
	p.rect("page", 0, 0, width, height)
	p.text("title", 12, 24, s.title)
	p.legend(jobs)
	for t := time.Duration(0); t <= s.end; t += 2 * time.Second {
		p.path("grid", "M%.1f %d V%.1f", p.x(t), top-6, height-bottom+4)
		p.text("dim middle", p.x(t), height-12, fmt.Sprint(t))
	}
	for i, j := range jobs {
		p.job(j, float64(top+row*i))
	}
	if s.count.label != "" {
		p.count(s.count, jobs, rows)
	}
	p.WriteString("</svg>\n")
	return p.Bytes()
}

// legend explains the marks that the jobs have.
func (p *picture) legend(jobs []job) {
	has := make(map[ojs.State]bool)
	for _, j := range jobs {
		for _, s := range j.steps {
			has[s.state] = true
		}
	}
	const y = 42
	x := 12.0
	entry := func(draw func(), label string) {
		draw()
		p.text("dim", x+26, y+4, label)
		x += 42 + 7*float64(len(label))
	}
	entry(func() { p.rect("active", x, y-bar/2, 20, bar) }, "runs")
	entry(func() { p.rect("available", x, y-1, 20, 3) }, "waits")
	if has[ojs.StateScheduled] {
		entry(func() { p.path("later", "M%.1f %d h20", x, y) }, "is scheduled")
	}
	if has[ojs.StateRetryable] {
		entry(func() { p.path("later", "M%.1f %d h20", x, y) }, "waits to run again")
	}
	if has[ojs.StateDiscarded] {
		entry(func() { p.cross(x+10, y) }, "is dropped")
	}
}

func (p *picture) cross(x, y float64) {
	p.path("drop", "M%.1f %.1f l10 10 m0 -10 l-10 10", x-5, y-5)
}

// job draws the states of a job, each until the next begins.
func (p *picture) job(j job, y float64) {
	middle := y + row/2 - 2
	p.text("end", left-12, middle+4, j.name)
	for i, s := range j.steps {
		from, to := p.x(s.at), p.x(p.end)
		if i+1 < len(j.steps) {
			to = p.x(j.steps[i+1].at)
		}
		switch {
		case s.at > p.end:
		case s.state == ojs.StateDiscarded:
			p.cross(from, middle)
		case from == to:
		case s.state == ojs.StateActive:
			p.rect("active", from, middle-bar/2, to-from, bar)
		case s.state == ojs.StateAvailable:
			p.rect("available", from, middle-1, to-from, 3)
		case s.state == ojs.StateScheduled, s.state == ojs.StateRetryable:
			p.path("later", "M%.1f %.1f H%.1f", from, middle, to)
		}
	}
}

// count draws how many jobs run, or have started in a window before, and the limit.
func (p *picture) count(c count, jobs []job, y float64) {
	changes := make(map[time.Duration]int)
	for _, j := range jobs {
		for i, s := range j.steps {
			if s.state != ojs.StateActive {
				continue
			}
			changes[s.at]++
			switch {
			case c.window > 0:
				changes[s.at+c.window]--
			case i+1 < len(j.steps):
				changes[j.steps[i+1].at]--
			}
		}
	}
	unit := float64(strip-22) / float64(c.limit)
	base := y + strip - 10
	p.text("dim end", left-12, base-6, c.label)
	p.path("grid", "M%d %.1f H%d", left, base, width-right)
	p.path("limit", "M%d %.1f H%d", left, base-unit*float64(c.limit)-4, width-right)
	p.text("dim end", left-12, base-unit*float64(c.limit)-2, fmt.Sprint("limit ", c.limit))
	var line bytes.Buffer
	fmt.Fprintf(&line, "M%d %.1f", left, base)
	n := 0
	for _, t := range slices.Sorted(maps.Keys(changes)) {
		if t > p.end {
			break
		}
		n += changes[t]
		fmt.Fprintf(&line, " H%.1f V%.1f", p.x(t), base-unit*float64(n))
	}
	p.path("count", "%s H%d", line.String(), width-right)
}
