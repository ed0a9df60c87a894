package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"
)

// timeChart is values over time: bars that stand on one another, and lines. A page shows
// it as SVG, and as a table for those who read it otherwise. Its texts are HTML beside
// the picture, which is as wide as the page.
type timeChart struct {
	Title  string
	Note   string
	Table  string      // the page that has the table, below the overview; "": this one
	Times  []time.Time // the beginning of each column; the last column is open
	Series []series
	Log    bool // a logarithmic axis, for durations in seconds
	Text   func(v float64) string
	Zone   *time.Location // of the values under the pointer; nil: there are none
}

// series is a value for each column; NaN: none. Its class has the colour and the dashes.
type series struct {
	Name, Class string
	Line        bool
	Values      []float64
}

const (
	timeWidth  = 720
	timeHeight = 120
)

// Empty reports whether the chart has no value but 0.
func (c *timeChart) Empty() bool {
	for _, s := range c.Series {
		for _, v := range s.Values {
			if v > 0 {
				return false
			}
		}
	}
	return true
}

// bounds are the ends of the axis.
func (c *timeChart) bounds() (low, high float64) {
	low, high = math.Inf(1), 0
	for i := range c.Times {
		sum := 0.0
		for _, s := range c.Series {
			switch v := s.Values[i]; {
			case math.IsNaN(v):
			case s.Line:
				low, high = min(low, v), max(high, v)
			default:
				sum += v
			}
		}
		high = max(high, sum)
	}
	if !c.Log {
		return 0, max(high, 1)
	}
	if high == 0 {
		return 1e-6, 1
	}
	low = math.Pow(10, math.Floor(math.Log10(max(low, 1e-6))))
	return low, max(low*10, math.Pow(10, math.Ceil(math.Log10(high))))
}

// Low and High are the ends of the axis in words.
func (c *timeChart) Low() string  { low, _ := c.bounds(); return c.Text(low) }
func (c *timeChart) High() string { _, high := c.bounds(); return c.Text(high) }

// Middle is the middle of the axis in words.
func (c *timeChart) Middle() string {
	low, high := c.bounds()
	if c.Log {
		return c.Text(math.Sqrt(low * high))
	}
	return c.Text(high / 2)
}

// Ticks are the beginnings of the quarters of the chart.
func (c *timeChart) Ticks() (out []time.Time) {
	for i := range 4 {
		out = append(out, c.Times[i*len(c.Times)/4])
	}
	return out
}

// Tick is a time on the axis of a chart.
func (p *page) Tick(c *timeChart, t time.Time) template.HTML {
	layout := "15:04"
	if c.Times[len(c.Times)-1].Sub(c.Times[0]) > 36*time.Hour {
		layout = "2006-01-02"
	}
	return timeElement(t, t.In(p.Zone).Format(layout), p.absolute(t))
}

// says is what a column says under the pointer.
func (c *timeChart) says(i int) string {
	parts := []string{c.Times[i].In(c.Zone).Format("2006-01-02 15:04:05")}
	for _, s := range c.Series {
		if !math.IsNaN(s.Values[i]) {
			parts = append(parts, s.Name+" "+c.Text(s.Values[i]))
		}
	}
	return strings.Join(parts, " · ")
}

// SVG is the picture, one path for each series.
func (c *timeChart) SVG() template.HTML {
	low, high := c.bounds()
	y := func(v float64) float64 {
		if c.Log {
			v = math.Log10(max(v, low)/low) / math.Log10(high/low)
		} else {
			v /= high
		}
		return timeHeight - v*(timeHeight-4)
	}
	width := float64(timeWidth) / float64(len(c.Times))
	base := make([]float64, len(c.Times)) // the top of the bars so far
	var b strings.Builder
	const head = `<svg class="over-time" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true">`
	fmt.Fprintf(&b, head, timeWidth, timeHeight)
	for i := 1; i < 4; i++ {
		fmt.Fprintf(&b, `<path class="grid" d="M0 %dH%d"/>`, timeHeight*i/4, timeWidth)
	}
	for _, s := range c.Series {
		fmt.Fprintf(&b, `<path class="%s" d="`, s.Class)
		gap := true
		for i, v := range s.Values {
			x := float64(i) * width
			switch {
			case math.IsNaN(v):
				gap = true
			case s.Line && gap:
				fmt.Fprintf(&b, "M%.1f %.1fH%.1f", x, y(v), x+width)
				gap = false
			case s.Line:
				fmt.Fprintf(&b, "L%.1f %.1fH%.1f", x, y(v), x+width)
			case v > 0:
				bottom, top := y(base[i]), y(base[i]+v)
				top = min(top, bottom-1)
				fmt.Fprintf(&b, "M%.1f %.1fV%.1fh%.1fV%.1fz", x+width/10, bottom, top, width*.8, bottom)
				base[i] += v
			}
		}
		b.WriteString(`"/>`)
	}
	for i := range c.Times {
		if c.Zone != nil {
			const hit = `<rect class="hit" x="%.1f" width="%.1f" height="%d"><title>%s</title></rect>`
			fmt.Fprintf(&b, hit, float64(i)*width, width, timeHeight, template.HTMLEscapeString(c.says(i)))
		}
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// timeRow is a row of the table.
type timeRow struct {
	At    time.Time
	Texts []string
}

// Rows are the columns with a value, the latest first.
func (c *timeChart) Rows() (rows []timeRow) {
	for i := len(c.Times) - 1; i >= 0; i-- {
		row, filled := timeRow{At: c.Times[i]}, false
		for _, s := range c.Series {
			v := s.Values[i]
			if math.IsNaN(v) {
				row.Texts = append(row.Texts, "–")
				continue
			}
			filled = filled || v > 0
			row.Texts = append(row.Texts, c.Text(v))
		}
		if filled {
			rows = append(rows, row)
		}
	}
	return rows
}
