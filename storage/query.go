package storage

import (
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
)

// Query selects jobs; a zero field selects all.
type Query struct {
	// DeadLetters selects dead letters only, and lists them in the order of their death
	// [list-5]. Otherwise the order is that of insertion [list-1].
	DeadLetters bool

	States     []ojs.State
	Queues     []string
	Types      []string // "email.*" selects every type that starts with "email." [list-3]
	ErrorTypes []string // of the job's latest failure; prefixes as in Types [list-3]

	CreatedFrom, CreatedBefore   time.Time // the first is in the range, the second is not [list-3]
	FinishedFrom, FinishedBefore time.Time // a job that has not ended is in no such range [list-3]

	Cursor string // of the page before; "": the first page [list-2]
	Limit  int    // most records on the page; 0 or more than 1000: 1000 [list-2, list-8]
}

// Matches reports whether q selects the job. It ignores the cursor and the limit.
func (q *Query) Matches(j *ojs.JobInfo) bool {
	return (!q.DeadLetters || j.DeadLettered()) &&
		(len(q.States) == 0 || slices.Contains(q.States, j.State)) &&
		(len(q.Queues) == 0 || slices.Contains(q.Queues, j.Queue)) &&
		(len(q.Types) == 0 || matchesAny(q.Types, j.Type)) &&
		(len(q.ErrorTypes) == 0 || j.Error != nil && matchesAny(q.ErrorTypes, j.Error.Type)) &&
		inRange(j.CreatedAt, q.CreatedFrom, q.CreatedBefore) &&
		inRange(j.FinishedAt, q.FinishedFrom, q.FinishedBefore)
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return p == name
	})
}

func inRange(t, from, before time.Time) bool {
	if t.IsZero() {
		return from.IsZero() && before.IsZero()
	}
	return !t.Before(from) && (before.IsZero() || t.Before(before))
}
