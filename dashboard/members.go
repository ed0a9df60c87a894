package dashboard

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/jsonvalue"
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
	if len(raw) > maxMemberJSON {
		return slices.Repeat([]string{"…"}, len(m))
	}
	args, _ := jsonvalue.Decode(raw) // without members, if the args do not decode
	for i, path := range m {
		for value := range jsonvalue.At(args, path) {
			text, isText := value.(string)
			if !isText {
				b, _ := json.Marshal(value) // it was JSON
				text = string(b)
			}
			out[i] = snippet([]byte(text))
			break
		}
	}
	return out
}
