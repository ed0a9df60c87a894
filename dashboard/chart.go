package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// chart is bars that stand on one another, and lines, over columns. A page shows it as
// SVG, and as a table for those who read it otherwise. The texts of its axes are pictures
// of their own beside it, so that they keep their size while it is as wide as the page.
type chart struct {
	Title string
	Note  string
	Table string // the page that has the table, below the overview; "": this one

	Times  []time.Time // the beginnings of the columns; nil: Labels has their names
	End    time.Time   // of the last column
	Now    bool        // the last column is open
	Labels []string
	Lines  []string // the filter lines of the jobs of the columns; nil: there are none

	Series  []series
	Seconds bool // the values are durations in seconds, and else numbers
	Log     bool // a logarithmic axis, with the bars of a column side by side
	Days    bool // the columns are days of UTC, for readers of all zones

	drawn *drawings // nil: one page only shows the chart
}

// drawings are the pictures of a chart that pages share, by their zones and roots.
type drawings struct {
	mu sync.Mutex // guards of
	of map[[2]string]template.HTML
}

// maxDrawings is how many pictures of a chart are kept.
const maxDrawings = 20

// series is a value for each column; NaN: none. Its class has the colour and the dashes.
type series struct {
	Name, Class string
	Line        bool
	Values      []float64
}

const (
	chartWidth  = 720
	chartHeight = 120
	chartTop    = 4 // above the highest tick
	chartTicks  = 6 // of the axis of columns, at most
)

// bars is a chart of numbers with names.
func bars(title string) *chart {
	return &chart{Title: title, Series: []series{{Class: "s-ok"}}}
}

func (c *chart) add(label, line string, n float64) {
	c.Labels, c.Lines = append(c.Labels, label), append(c.Lines, line)
	c.Series[0].Values = append(c.Series[0].Values, n)
}

// Columns is how many columns the chart has.
func (c *chart) Columns() int { return max(len(c.Times), len(c.Labels)) }

// scale is the axis of values.
type scale struct {
	low, high float64
	log       bool
	ticks     []float64
}

// y is the place of a value in the picture.
func (s *scale) y(v float64) float64 {
	if s.log {
		v = math.Log10(max(v, s.low)/s.low) / math.Log10(s.high/s.low)
	} else {
		v /= s.high
	}
	return chartHeight - v*(chartHeight-chartTop)
}

// scale ends at a round value above the highest one, and has a few round ticks.
func (c *chart) scale() (s scale) {
	low, high := math.Inf(1), 0.0
	see := func(v float64) {
		if v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	for i := range c.Columns() {
		sum := 0.0
		for _, of := range c.Series {
			v := of.Values[i]
			see(v)
			if !of.Line && !c.Log && v > 0 {
				sum += v
			}
		}
		see(sum)
	}
	if high == 0 {
		low, high = 1, 1
	}
	if c.Log {
		first, last := math.Ceil(math.Log10(low))-1, math.Ceil(math.Log10(high))
		for at, step := first, math.Ceil((last-first)/4); at <= last; at += step {
			s.ticks = append(s.ticks, math.Pow(10, at))
		}
		s.low, s.high, s.log = math.Pow(10, first), math.Pow(10, last), true
		return s
	}
	unit := 1.0
	switch {
	case !c.Seconds:
		high = max(high, 4)
	case high >= 4*3600:
		unit = 3600
	case high >= 4*60:
		unit = 60
	}
	step := round(high/unit/4) * unit
	for i := 1.0; ; i++ {
		s.high = i * step
		if s.ticks = append(s.ticks, s.high); s.high >= high*0.999 {
			return s
		}
	}
}

// round is the next of 1, 2, 5, 10, 20 and so on.
func round(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 5} {
		if v <= n*power*1.001 {
			return n * power
		}
	}
	return 10 * power
}

// value is a value of a chart in words.
func (p *page) value(c *chart, v float64) string {
	switch {
	case c.Seconds:
		return short(time.Duration(v * float64(time.Second)))
	case v > 0 && v < 1: // a share of what a wider period has
		return strconv.FormatFloat(v, 'g', 1, 64)
	}
	return p.count(v)
}

// zone is that of the columns.
func (p *page) zone(c *chart) *time.Location {
	if c.Days {
		return time.UTC
	}
	return p.Zone
}

// ColumnName names a column.
func (p *page) ColumnName(c *chart, i int) string {
	switch {
	case c.Times == nil:
		return c.Labels[i]
	case c.Days:
		return c.Times[i].UTC().Format(time.DateOnly)
	}
	return c.Times[i].In(p.Zone).Format(time.DateTime)
}

// spotName names a column in its readout, as shortly as tells it from the others.
func (p *page) spotName(c *chart, i int) string {
	if c.Times == nil || c.Days {
		return p.ColumnName(c, i)
	}
	layout := "15:04"
	if c.End.Sub(c.Times[0]) >= day {
		layout = "01-02 15:04"
	}
	if len(c.Times) > 1 && c.Times[1].Sub(c.Times[0]) < time.Minute {
		layout += ":05"
	}
	return c.Times[i].In(p.Zone).Format(layout)
}

// readout is what a column says under the pointer and in focus.
func (p *page) readout(c *chart, i int) string {
	parts := []string{p.spotName(c, i)}
	for _, s := range c.Series {
		if v := s.Values[i]; !math.IsNaN(v) {
			parts = append(parts, strings.TrimSpace(s.Name+" "+p.value(c, v)))
		}
	}
	return strings.Join(parts, " · ")
}

// Plot is the picture of a chart. Pages that share the chart share its picture.
func (p *page) Plot(c *chart) template.HTML {
	if c.drawn == nil {
		return p.plot(c)
	}
	key := [2]string{p.Zone.String(), p.Root}
	c.drawn.mu.Lock()
	defer c.drawn.mu.Unlock()
	picture, ok := c.drawn.of[key]
	if !ok {
		if picture = p.plot(c); c.drawn.of == nil || len(c.drawn.of) == maxDrawings {
			c.drawn.of = make(map[[2]string]template.HTML)
		}
		c.drawn.of[key] = picture
	}
	return picture
}

// plot draws a chart: one path for each series, the axes, and a column of the whole
// height for the pointer, which leads to the jobs.
func (p *page) plot(c *chart) template.HTML {
	s, n := c.scale(), c.Columns()
	var b strings.Builder
	const head = `<svg class="over-time" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true">`
	fmt.Fprintf(&b, head, chartWidth, chartHeight)
	for _, v := range s.ticks {
		fmt.Fprintf(&b, `<path class="grid" d="M0 %.1fH%d"/>`, s.y(v), chartWidth)
	}
	ticks := p.ticks(c)
	for _, t := range ticks {
		fmt.Fprintf(&b, `<path class="grid" d="M%.1f %dV%d"/>`, t.at*chartWidth/100, chartHeight-chartTop,
			chartHeight)
	}
	c.paths(&b, &s)
	fmt.Fprintf(&b, `</svg><svg class="hits" viewBox="0 0 %d 1" preserveAspectRatio="none" aria-hidden="true">`, n)
	for i := range n {
		if c.Lines != nil {
			b.WriteString(`<a href="` + template.HTMLEscapeString(p.List(c.Lines[i])) + `" tabindex="-1">`)
		}
		b.WriteString(`<rect class="hit" x="` + strconv.Itoa(i) + `"><title>` +
			template.HTMLEscapeString(p.readout(c, i)) + `</title></rect>`)
		if c.Lines != nil {
			b.WriteString(`</a>`)
		}
	}
	b.WriteString(`</svg><svg class="y-axis" aria-hidden="true">`)
	for _, v := range s.ticks {
		fmt.Fprintf(&b, `<text x="100%%" y="%.1f%%">%s</text>`, s.y(v)/chartHeight*100,
			template.HTMLEscapeString(p.value(c, v)))
	}
	b.WriteString(`</svg><svg class="x-axis" aria-hidden="true">`)
	for _, t := range ticks {
		fmt.Fprintf(&b, `<text x="%.2f%%" y="12">%s</text>`, t.at, template.HTMLEscapeString(t.text))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// paths draws the series. The bars of a column stand on one another, but side by side on
// a logarithmic axis, where the height of a sum says nothing of its parts. That axis has
// no place for 0.
func (c *chart) paths(b *strings.Builder, s *scale) {
	n := c.Columns()
	width := float64(chartWidth) / float64(n)
	bar, shift := width*.8, 0.0
	if c.Log {
		bars := 0
		for _, of := range c.Series {
			if !of.Line {
				bars++
			}
		}
		bar /= float64(max(1, bars))
	}
	base := make([]float64, n) // the top of the bars so far
	var path []byte
	place := func(command byte, v float64) {
		path = strconv.AppendFloat(append(path, command), v, 'f', 1, 64)
	}
	for _, of := range c.Series {
		path = path[:0]
		gap := true
		for i, v := range of.Values {
			x := float64(i) * width
			switch {
			case math.IsNaN(v), c.Log && v <= 0:
				gap = true
			case of.Line:
				command := byte('L')
				if gap {
					command, gap = 'M', false
				}
				place(command, x)
				place(' ', s.y(v))
				place('H', x+width)
			case v > 0:
				bottom := float64(chartHeight)
				if !c.Log {
					bottom = s.y(base[i])
				}
				place('M', x+width/10+shift)
				place(' ', bottom)
				place('V', min(s.y(base[i]+v), bottom-1))
				place('h', bar)
				place('V', bottom)
				path = append(path, 'z')
				if !c.Log {
					base[i] += v
				}
			}
		}
		if c.Log && !of.Line {
			shift += bar
		}
		b.WriteString(`<path class="` + of.Class + `" d="`)
		b.Write(path)
		b.WriteString(`"/>`)
	}
}

// tick is a name on the axis of the columns, at a share of its width in percent.
type tick struct {
	at   float64
	text string
}

// tickSteps are the times between two ticks. From a day on they are whole days.
var tickSteps = []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour,
	12 * time.Hour, day, 2 * day, 7 * day, 14 * day, 28 * day}

const day = 24 * time.Hour

// ticks are round times of the reader's zone, or some of the names.
func (p *page) ticks(c *chart) (out []tick) {
	n := c.Columns()
	if c.Times == nil {
		for i := 0; i < n; i += (n + chartTicks - 1) / chartTicks {
			out = append(out, tick{(float64(i) + 0.5) / float64(n) * 100, c.Labels[i]})
		}
		return out
	}
	zone := p.zone(c)
	start := c.Times[0].In(zone)
	length := c.End.Sub(start)
	i := slices.IndexFunc(tickSteps, func(step time.Duration) bool { return length <= chartTicks*step })
	if i < 0 {
		i = len(tickSteps) - 1
	}
	step, most := tickSteps[i], 100.0
	if c.Now {
		most = 93
	}
	at := time.Date(start.Year(), start.Month(), start.Day(), 0, 0, 0, 0, zone)
	for at.Before(c.End) {
		next := at.AddDate(0, 0, int(max(1, step/day)))
		for t, i := at, 0; t.Before(next); i++ {
			if t = at.Add(time.Duration(i) * step); step > time.Hour { // the hours of a day may not be 24
				hour := i * int(step/time.Hour)
				t = time.Date(at.Year(), at.Month(), at.Day(), hour, 0, 0, 0, zone)
				if t.Hour() != hour%24 {
					continue // the hour is left out on that day
				}
			}
			if !t.Before(next) {
				break
			}
			text := t.Format("15:04")
			if step >= day || length > day && t.Equal(at) {
				text = t.Format("01-02")
			}
			share := float64(t.Sub(start)) / float64(length) * 100
			if share >= 0 && share <= most {
				out = append(out, tick{share, text})
			}
			if step >= day { // a day has not always 24 hours
				break
			}
		}
		at = next
	}
	if len(out) == 0 {
		out = append(out, tick{0, start.Format("15:04:05")})
	}
	if c.Now {
		out = append(out, tick{100, p.T("now")})
	}
	return out
}

// chartRow is a row of the table.
type chartRow struct {
	Name  string
	Line  string
	Texts []string
}

// Rows are the columns with a value, the latest first.
func (p *page) Rows(c *chart) (rows []chartRow) {
	for i := range c.Columns() {
		row, filled := chartRow{Name: p.ColumnName(c, i)}, false
		if c.Lines != nil {
			row.Line = c.Lines[i]
		}
		for _, s := range c.Series {
			v := s.Values[i]
			if math.IsNaN(v) {
				row.Texts = append(row.Texts, "–")
				continue
			}
			filled = filled || v > 0
			row.Texts = append(row.Texts, p.value(c, v))
		}
		if filled {
			rows = append(rows, row)
		}
	}
	if c.Times != nil {
		slices.Reverse(rows)
	}
	return rows
}

// spark is numbers as bars in the height of a line of text, without an axis.
func spark(values []int) template.HTML {
	const width, height = 4, 16 // of a bar, with the gap after it
	highest := max(1, slices.Max(values))
	var s strings.Builder
	fmt.Fprintf(&s, `<svg class="spark" viewBox="0 0 %d %d" aria-hidden="true">`, width*len(values), height)
	for i, n := range values {
		class, high := ` class="none"`, 1
		if n > 0 {
			class, high = "", 3+n*(height-3)/highest
		}
		fmt.Fprintf(&s, `<rect%s x="%d" y="%d" width="3" height="%d"/>`, class, i*width, height-high, high)
	}
	s.WriteString("</svg>")
	return template.HTML(s.String())
}
