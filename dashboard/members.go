package dashboard

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ojsengine/ojs"
)

const (
	maxMembers     = 6       // columns of a list that are members
	maxMemberPath  = 100     // bytes of the path of one
	maxMemberJSON  = 4 << 14 // bytes of args that are searched for members
	suggestMembers = 12
)

// memberColumns are the members of the args that a list has as columns: paths as a filter
// has them, without "args.".
type memberColumns []string

// membersOf reads paths with commas or spaces between them.
func membersOf(text string) (out memberColumns) {
	split := func(r rune) bool { return r == ',' || r == ' ' }
	for _, path := range strings.FieldsFunc(text, split) {
		path = strings.TrimPrefix(path, "args.")
		ok := path != "" && len(path) <= maxMemberPath && len(out) < maxMembers
		if ok && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out
}

func (m memberColumns) String() string { return strings.Join(m, ",") }

// memberToggle leads to the list with a column more, or with one less.
type memberToggle struct {
	Name, To string
	On       bool
}

// toggles are the members that the args of jobs have, and those that are columns.
func (m memberColumns) toggles(jobs []*ojs.JobInfo) (out []memberToggle) {
	names := slices.Clone(m)
	for _, job := range jobs {
		var members map[string]json.RawMessage
		raw := readable(job.Args.JSON())
		if len(raw) > maxMemberJSON || json.Unmarshal(raw, &members) != nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			plain := membersOf(name).String() == name
			if plain && !slices.Contains(names, name) && len(names) < suggestMembers {
				names = append(names, name)
			}
		}
	}
	for i, name := range names {
		if i < len(m) {
			without := slices.Delete(slices.Clone(m), i, i+1)
			out = append(out, memberToggle{name, without.String(), true})
		} else {
			out = append(out, memberToggle{name, append(slices.Clone(m), name).String(), false})
		}
	}
	return out
}

// Cells are the values of a job, as pages may show it, in the columns.
func (m memberColumns) Cells(job *ojs.JobInfo) []string {
	out := make([]string, len(m))
	raw := readable(job.Args.JSON())
	for i, path := range m {
		if len(raw) > maxMemberJSON {
			out[i] = "…"
			continue
		}
		value := memberAt(raw, strings.Split(path, "."))
		var text string
		if json.Unmarshal(value, &text) == nil {
			value = []byte(text)
		}
		out[i] = snippet(value)
	}
	return out
}

// memberAt is the value at a path; nil: there is none. A dot may be between two names and
// in a name.
func memberAt(raw json.RawMessage, path []string) json.RawMessage {
	var members map[string]json.RawMessage
	var items []json.RawMessage
	if json.Unmarshal(raw, &members) != nil && json.Unmarshal(raw, &items) != nil {
		return nil
	}
	for end := 1; end <= len(path); end++ {
		name := strings.Join(path[:end], ".")
		below := members[name]
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(items) {
			below = items[i]
		}
		if end < len(path) && below != nil {
			below = memberAt(below, path[end:])
		}
		if below != nil {
			return below
		}
	}
	return nil
}
