package cronspec

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Fill returns args, which are JSON, with each {run} in their strings replaced by the
// time due as a clock in zone shows it. Names of members stay. See cron.Entry for
// the forms of {run}. The error is an *ojs.InvalidError for the field "args" or
// "time_zone".
func Fill(args []byte, due time.Time, zone string) ([]byte, error) {
	loc, err := location(zone)
	if err != nil {
		return nil, err
	}
	due = due.In(loc)
	var out []byte
	for {
		start := bytes.IndexByte(args, '"')
		if start < 0 {
			return append(out, args...), nil
		}
		end := start + 1
		for args[end] != '"' {
			if args[end] == '\\' {
				end++
			}
			end++
		}
		end++
		text := args[start:end]
		rest := bytes.TrimLeft(args[end:], " \t\r\n")
		out = append(out, args[:start]...)
		args = args[end:]
		if isName := len(rest) > 0 && rest[0] == ':'; isName || !bytes.Contains(text, []byte("{run")) {
			out = append(out, text...)
			continue
		}
		var s string
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, refuse("args", "are no JSON: %v", err)
		}
		if s, err = fillText(s, due); err != nil {
			return nil, err
		}
		if text, err = json.Marshal(s); err != nil {
			return nil, refuse("args", "%v", err)
		}
		out = append(out, text...)
	}
}

// fillText replaces each {run} of a string.
func fillText(s string, due time.Time) (string, error) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, "{run")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		place, rest, closed := strings.Cut(after, "}")
		if !closed {
			return "", refuse("args", "%.64q has no }", "{run"+after)
		}
		offset, layout, hasLayout := strings.Cut(place, ":")
		if !hasLayout {
			layout = time.RFC3339
		}
		at, ok := shift(due, offset)
		if !ok || layout == "" {
			return "", refuse("args",
				"%.64q is no time of a run: write {run}, or with an offset and a layout as {run-1d:2006-01-02}",
				"{run"+place+"}")
		}
		out.WriteString(at.Format(layout))
		s = rest
	}
}

// shift moves a time by an offset such as -1d or +36h; "" is none.
func shift(t time.Time, offset string) (time.Time, bool) {
	if offset == "" {
		return t, true
	}
	if offset[0] != '+' && offset[0] != '-' {
		return t, false
	}
	if days, ok := strings.CutSuffix(offset, "d"); ok {
		n, err := strconv.Atoi(days)
		const most = 366 * 1000
		return t.AddDate(0, 0, n), err == nil && -most <= n && n <= most
	}
	d, err := time.ParseDuration(offset)
	return t.Add(d), err == nil
}
