package dashboard

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
)

// chart is bars in the order of an axis. A page shows it as SVG, and as a table for those
// who read it otherwise.
type chart struct{ Bars []bar }

type bar struct {
	Label string
	Value float64
	Text  string // of the value
}

func (c *chart) add(label string, value float64, text string) {
	c.Bars = append(c.Bars, bar{label, value, text})
}

// Filled are the bars of the table: those with a value.
func (c chart) Filled() (out []bar) {
	for _, b := range c.Bars {
		if b.Value > 0 {
			out = append(out, b)
		}
	}
	return out
}

const (
	chartWidth  = 600
	chartHeight = 90
)

// SVG is the picture. Sizes are attributes, since the policy of the pages allows no
// style.
func (c chart) SVG() template.HTML {
	highest := 0.0
	for _, b := range c.Bars {
		highest = max(highest, b.Value)
	}
	var s strings.Builder
	fmt.Fprintf(&s, `<svg class="chart" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true">`,
		chartWidth, chartHeight)
	width := chartWidth / float64(max(len(c.Bars), 1))
	for i, b := range c.Bars {
		x := float64(i) * width
		if b.Value <= 0 {
			fmt.Fprintf(&s, `<rect class="none" x="%.1f" y="%d" width="%.1f" height="1"/>`,
				x, chartHeight-1, width-1)
			continue
		}
		height := max(3, b.Value/highest*(chartHeight-4))
		fmt.Fprintf(&s, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s: %s</title></rect>`,
			x, chartHeight-height, max(1, width-1), height,
			template.HTMLEscapeString(b.Label), template.HTMLEscapeString(b.Text))
	}
	s.WriteString("</svg>")
	return template.HTML(s.String())
}

// First and Last are the ends of the axis.
func (c chart) First() string { return c.Bars[0].Label }
func (c chart) Last() string  { return c.Bars[len(c.Bars)-1].Label }

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
