package cronspec

import (
	"fmt"
	"strconv"
	"strings"
)

// field is one of the six of an expression.
type field struct {
	name     string
	min, max int
	names    []string // of its values, from min on

	// special writes an element that only this field has with numbers; "": it is none.
	special func(f *field, element string) (string, error)
}

var fields = [...]field{
	{name: "second", max: 59},
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of month", min: 1, max: 31, special: ofMonth},
	{name: "month", min: 1, max: 12,
		names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	{name: "day of week", max: 7, names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"},
		special: ofWeek},
}

// canonical checks a field and writes it with short numbers. Gronx leaves unread what
// follows an element that matches, and takes a sixth field with four digits for a year:
// it gets nothing that has not been through here.
func (f *field) canonical(text string) (string, error) {
	elements := strings.Split(text, ",")
	for i, e := range elements {
		if e == "" {
			return "", fmt.Errorf("%s %q has an empty element", f.name, text)
		}
		var err error
		if elements[i], err = f.element(e); err != nil {
			return "", err
		}
	}
	return strings.Join(elements, ","), nil
}

func (f *field) element(e string) (string, error) {
	if f.special != nil {
		if c, err := f.special(f, e); c != "" || err != nil {
			return c, err
		}
	}
	base, step, stepped := strings.Cut(e, "/")
	if base == "*" || base == "?" {
		base = "*"
	} else {
		var err error
		if base, err = f.span(base, e); err != nil {
			return "", err
		}
	}
	if !stepped {
		return base, nil
	}
	n, ok := number(step)
	if most := f.values(); !ok || n < 1 || n > most {
		return "", fmt.Errorf("%s %q has a step that is not from 1 to %d", f.name, e, most)
	}
	return base + "/" + strconv.Itoa(n), nil
}

// values is how many the field has. A longer step would not be what it says: every 70
// minutes is no minute of an hour.
func (f *field) values() int {
	if f.names != nil {
		return len(f.names) // Sunday, which is 0 and 7, counts once
	}
	return f.max - f.min + 1
}

// span is a value or a range of an element.
func (f *field) span(text, element string) (string, error) {
	from, to, isRange := strings.Cut(text, "-")
	first, err := f.value(from, element)
	if err != nil || !isRange {
		return strconv.Itoa(first), err
	}
	last, err := f.value(to, element)
	if err != nil {
		return "", err
	}
	if f.max == 7 && first == 7 && last != 7 {
		first = 0 // from Sunday on
	}
	if last < first {
		return "", fmt.Errorf("%s %q ends before it begins", f.name, element)
	}
	return fmt.Sprintf("%d-%d", first, last), nil
}

// value is a number or a name of an element.
func (f *field) value(text, element string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i, nil
		}
	}
	if n, ok := number(text); ok && f.min <= n && n <= f.max {
		return n, nil
	}
	names := ""
	if f.names != nil {
		names = fmt.Sprintf(" or %s to %s", f.names[0], f.names[len(f.names)-1])
	}
	return 0, fmt.Errorf("%s %q is not from %d to %d%s", f.name, element, f.min, f.max, names)
}

// number reads digits, which strconv.Atoi lets a sign precede.
func number(text string) (int, bool) {
	if strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}
