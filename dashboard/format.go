package dashboard

import (
	"fmt"
	"html/template"
	"strconv"
	"time"

	"github.com/ojsengine/ojs/inspect"
)

// Time is a moment by the reader's zone.
func (p *page) Time(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	return timeElement(t, t.In(p.Zone).Format("2006-01-02 15:04:05"), p.absolute(t))
}

// Exact is a moment to the millisecond.
func (p *page) Exact(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	return timeElement(t, t.In(p.Zone).Format("2006-01-02 15:04:05.000"), p.absolute(t))
}

// Ago is how long ago a moment was, or in how long it is.
func (p *page) Ago(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	text := ""
	if d := p.Now.Sub(t); d >= 0 {
		text = p.T("%s ago", short(d))
	} else {
		text = p.T("in %s", short(-d))
	}
	return timeElement(t, text, p.absolute(t))
}

// Since is how long ago a moment was that is over. If it is after the time of the page,
// which another clock may have told, it is now.
func (p *page) Since(t time.Time) template.HTML {
	if t.After(p.Now) {
		return timeElement(t, p.T("%s ago", short(0)), p.absolute(t))
	}
	return p.Ago(t)
}

func (p *page) absolute(t time.Time) string {
	return t.In(p.Zone).Format("2006-01-02 15:04:05.000 MST")
}

func timeElement(t time.Time, text, title string) template.HTML {
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`,
		t.UTC().Format(time.RFC3339Nano), template.HTMLEscapeString(title), template.HTMLEscapeString(text)))
}

// Dur is a duration in two units at most.
func (p *page) Dur(d time.Duration) string { return short(d) }

func short(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + short(-d)
	case d == 0:
		return "0s"
	case d < time.Microsecond:
		return fmt.Sprintf("%dns", d)
	case d < time.Millisecond:
		return trim(float64(d)/float64(time.Microsecond)) + "µs"
	case d < time.Second:
		return trim(float64(d)/float64(time.Millisecond)) + "ms"
	case d < 10*time.Second:
		return trim(d.Seconds()) + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return pair(int(d.Minutes()), "m", int(d.Seconds())%60, "s")
	case d < 24*time.Hour:
		return pair(int(d.Hours()), "h", int(d.Minutes())%60, "m")
	default:
		return pair(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
	}
}

func pair(a int, unit string, b int, small string) string {
	if b == 0 {
		return fmt.Sprintf("%d%s", a, unit)
	}
	return fmt.Sprintf("%d%s %d%s", a, unit, b, small)
}

// trim is a number below 1000 with three digits at most.
func trim(f float64) string {
	if f >= 100 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 2, 64)
}

// Num is a number with groups of three digits.
func (p *page) Num(n any) string {
	s := fmt.Sprint(n)
	sep := ","
	if p.Lang == "de" {
		sep = "."
	}
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + sep + s[i:]
	}
	return sign + s
}

// Jobs is how many jobs a count has, in words.
func (p *page) Jobs(c inspect.Count) string {
	if c.Exact && c.N == 1 {
		return p.T("1 job")
	}
	return p.T("%s jobs", p.Least(c))
}

// Least is a count, with a plus sign if there may be more.
func (p *page) Least(c inspect.Count) string {
	if c.Exact {
		return p.Num(c.N)
	}
	return p.Num(c.N) + "+"
}

// Bytes is a size.
func (p *page) Bytes(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	default:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
}

// Clock is a moment as a clock on the wall shows it.
func (p *page) Clock(t time.Time) string { return t.Format("15:04:05 MST") }

// Share is n of all in percent, for the widths of bars.
func (p *page) Share(n, all int) string {
	if all == 0 {
		return "0"
	}
	return strconv.FormatFloat(100*float64(n)/float64(all), 'f', 1, 64)
}
