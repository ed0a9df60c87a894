package cronspec

import (
	"fmt"
	"strconv"
	"strings"
)

// ofMonth reads L, the last day, and 15W, the weekday next to the 15th.
func ofMonth(f *field, e string) (string, error) {
	upper := strings.ToUpper(e)
	if upper == "L" {
		return upper, nil
	}
	if day, ok := strings.CutSuffix(upper, "W"); ok {
		n, err := f.value(day, e)
		return strconv.Itoa(n) + "W", err
	}
	return "", nil
}

// ofWeek reads 5L, the last Friday of a month, and 5#2, the second.
func ofWeek(f *field, e string) (string, error) {
	if day, nth, ok := strings.Cut(e, "#"); ok {
		d, err := f.value(day, e)
		if err != nil {
			return "", err
		}
		n, ok := number(nth)
		if !ok || n < 1 || n > 5 {
			return "", fmt.Errorf("%s %q has no number from 1 to 5 after its #", f.name, e)
		}
		return fmt.Sprintf("%d#%d", d, n), nil
	}
	if day, ok := strings.CutSuffix(strings.ToUpper(e), "L"); ok {
		n, err := f.value(day, e)
		return strconv.Itoa(n) + "L", err
	}
	return "", nil
}
