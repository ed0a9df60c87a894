package dashboard

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// A schedule in words is two parts: the times of a day, such as "every 15 minutes" or "at
// 03:00", and the days, such as "Monday to Friday". A schedule that needs more than that
// has no words, and is shown as its expression alone.

var (
	weekdayNames = []string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}
	monthNames   = []string{"January", "February", "March", "April", "May", "June", "July", "August",
		"September", "October", "November", "December"}
)

var cronShorthands = map[string]string{"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
	"@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
	"@hourly": "0 * * * *"}

// maxCronTimes is how many times of a day are listed.
const maxCronTimes = 6

// Schedule is a schedule of a recurring entry in words, in the reader's language; "" if
// there are none for it.
func (p *page) Schedule(spec string) string {
	spec = strings.ToLower(strings.TrimSpace(spec))
	if d, ok := strings.CutPrefix(spec, "@every "); ok {
		if every, err := time.ParseDuration(strings.TrimSpace(d)); err == nil {
			return p.T("every %s", short(every))
		}
		return ""
	}
	if full, ok := cronShorthands[spec]; ok {
		spec = full
	}
	texts := strings.Fields(spec)
	if len(texts) == 5 {
		texts = append([]string{"0"}, texts...)
	}
	if len(texts) != 6 {
		return ""
	}
	var c cronFields
	for i, field := range []*cronField{&c.second, &c.minute, &c.hour, &c.day, &c.month, &c.weekday} {
		var ok bool
		if *field, ok = cronFieldOf(texts[i], cronRanges[i]); !ok {
			return ""
		}
	}
	times, several := p.cronTimes(&c)
	days, all := p.cronDays(&c)
	switch {
	case times == "" || days == "":
		return ""
	case all && several:
		return times
	}
	return times + ", " + days
}

// cronRange is the values that a field takes, with the names of some.
type cronRange struct {
	low, high int
	names     []string // of the values from low on
}

var cronRanges = []cronRange{{0, 59, nil}, {0, 59, nil}, {0, 23, nil}, {1, 31, nil},
	{1, 12, monthNames}, {0, 7, weekdayNames}}

type cronFields struct{ second, minute, hour, day, month, weekday cronField }

// cronField is a field of an expression: all values, each nth of them from the lowest on,
// the last day of a month, or else a list.
type cronField struct {
	all  bool
	step int // 0: no step
	last bool
	list []cronPart
}

// cronPart is a value, or the values from one to another.
type cronPart struct{ from, to int }

// cronFieldOf reads a field. It reports false for one that has no words.
func cronFieldOf(text string, in cronRange) (f cronField, ok bool) {
	if text == "*" || text == "?" {
		return cronField{all: true}, true
	}
	if text == "l" && in.high == 31 {
		return cronField{last: true}, true
	}
	if step, ok := strings.CutPrefix(text, "*/"); ok {
		n, err := strconv.Atoi(step)
		size := in.high - in.low + 1
		switch {
		case err != nil || n < 1 || in.low != 0 || in.high == 7:
			return f, false // steps of days and months begin anew in each month and year
		case n == 1:
			return cronField{all: true}, true
		case n >= size:
			return cronField{list: []cronPart{{0, 0}}}, true
		}
		return cronField{step: n}, size%n == 0
	}
	value := func(text string) (int, bool) {
		for i, name := range in.names {
			if text == strings.ToLower(name[:3]) {
				return in.low + i, true
			}
		}
		n, err := strconv.Atoi(text)
		return n, err == nil && n >= in.low && n <= in.high
	}
	for text := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(text, "-")
		if !isRange {
			last = first
		}
		from, ok1 := value(first)
		to, ok2 := value(last)
		if !ok1 || !ok2 || from > to {
			return f, false
		}
		if to-from+1 >= in.high-in.low+1 || in.high == 7 && to-from >= 6 { // Sunday is 0 and 7
			return cronField{all: true}, true
		}
		f.list = append(f.list, cronPart{from, to})
	}
	slices.SortFunc(f.list, func(a, b cronPart) int { return a.from - b.from })
	return f, true
}

// one is the value of a field that has only one.
func (f *cronField) one() (int, bool) {
	if len(f.list) == 1 && f.list[0].from == f.list[0].to {
		return f.list[0].from, true
	}
	return 0, false
}

// values are those of a list without a range.
func (f *cronField) values() (out []int, ok bool) {
	for _, part := range f.list {
		if part.from != part.to {
			return nil, false
		}
		out = append(out, part.from)
	}
	return out, len(out) > 0
}

func clockOf(hour, minute, second int) string {
	at := time.Date(2000, 1, 1, hour, minute, second, 0, time.UTC)
	if second == 0 {
		return at.Format("15:04")
	}
	return at.Format("15:04:05")
}

// cronTimes is the times of a day in words; "" if there are none. It reports whether they
// recur within a day.
func (p *page) cronTimes(c *cronFields) (text string, several bool) {
	second, atSecond := c.second.one()
	if !atSecond {
		if !c.minute.all || !c.hour.all {
			return "", false
		}
		return each(&c.second, p.T("every second"), p.T("every %d seconds", c.second.step)), true
	}
	minutes, atMinutes := c.minute.values()
	hours, atHours := c.hour.values()
	switch {
	case atMinutes && atHours:
		if len(minutes)*len(hours) > maxCronTimes {
			return "", false
		}
		var times []string
		for _, hour := range hours {
			for _, minute := range minutes {
				times = append(times, clockOf(hour, minute, second))
			}
		}
		return p.T("at %s", p.and(times)), false
	case second != 0:
		return "", false
	case c.minute.all || c.minute.step > 0:
		every := each(&c.minute, p.T("every minute"), p.T("every %d minutes", c.minute.step))
		if c.hour.all {
			return every, true
		}
		if len(c.hour.list) != 1 { // a step of hours, or several periods
			return "", false
		}
		last := 59
		if c.minute.step > 0 {
			last = 60 - c.minute.step
		}
		return every + " " + p.T("from %s to %s", clockOf(c.hour.list[0].from, 0, 0),
			clockOf(c.hour.list[0].to, last, 0)), true
	case !atMinutes:
		return "", false
	case len(c.hour.list) == 1 && len(minutes) == 1:
		return p.T("every hour") + " " + p.T("from %s to %s", clockOf(c.hour.list[0].from, minutes[0], 0),
			clockOf(c.hour.list[0].to, minutes[0], 0)), true
	case c.hour.all || c.hour.step > 0:
		every := each(&c.hour, p.T("every hour"), p.T("every %d hours", c.hour.step))
		if len(minutes) == 1 && minutes[0] == 0 {
			return every, true
		}
		return every + " " + p.T("at minute %s", p.and(numbers(minutes))), true
	}
	return "", false
}

// each is the text for all values of a field, or the one for each nth; "" if the field is
// neither.
func each(f *cronField, one, nth string) string {
	switch {
	case f.all:
		return one
	case f.step > 0:
		return nth
	}
	return ""
}

// cronDays is the days in words; "" if there are none. It reports whether all are meant.
func (p *page) cronDays(c *cronFields) (text string, all bool) {
	if !c.day.all && !c.weekday.all {
		return "", false // either of two lists of days is enough
	}
	months := p.parts(&c.month, func(n int) string { return p.T(monthNames[n-1]) })
	switch {
	case !c.weekday.all:
		days := p.parts(&c.weekday, func(n int) string { return p.T(weekdayNames[n%7]) })
		if len(c.weekday.list) > 1 || c.weekday.list[0].from == c.weekday.list[0].to {
			days = p.T("on %s", days)
		}
		if months != "" {
			days += ", " + p.T("only in %s", months)
		}
		return days, false
	case c.day.last && months == "":
		return p.T("on the last day of the month"), false
	case c.day.last:
		return p.T("on the last day of %s", months), false
	case !c.day.all:
		days := p.parts(&c.day, p.ordinal)
		if months == "" {
			return p.T("on the %s of the month", days), false
		}
		return p.T("on the %s of %s", days, months), false
	case months != "":
		return p.T("every day") + ", " + p.T("only in %s", months), false
	}
	return p.T("every day"), true
}

// parts is a list of a field in words; "" if the field is not a list.
func (p *page) parts(f *cronField, name func(int) string) string {
	var texts []string
	for _, part := range f.list {
		text := name(part.from)
		if part.to != part.from {
			text = p.T("%s to %s", text, name(part.to))
		}
		texts = append(texts, text)
	}
	return p.and(texts)
}

// and joins the parts of a list as a sentence does.
func (p *page) and(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " " + p.T("and") + " " + list[last]
}

// ordinal is the number of a day in a month.
func (p *page) ordinal(n int) string {
	s := strconv.Itoa(n)
	switch {
	case p.Lang != languages[0]:
		return s + "."
	case n%10 == 1 && n != 11:
		return s + "st"
	case n%10 == 2 && n != 12:
		return s + "nd"
	case n%10 == 3 && n != 13:
		return s + "rd"
	}
	return s + "th"
}

func numbers(list []int) (out []string) {
	for _, n := range list {
		out = append(out, strconv.Itoa(n))
	}
	return out
}
