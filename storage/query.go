package storage

import (
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
)

// Query selects jobs; a zero field selects all.
type Query struct {
	DeadLetters bool // dead letters only, in the order of their death; otherwise the order is that of insertion

	States     []ojs.State
	Queues     []string
	Types      []string // "email.*" selects every type that starts with "email."
	ErrorTypes []string // of the job's latest failure; prefixes as in Types

	CreatedFrom, CreatedBefore   time.Time // the first is in the range, the second is not
	FinishedFrom, FinishedBefore time.Time // a job that has not ended is in no such range

	Cursor string // of the page before; "": the first page
	Limit  int    // most records on the page; 0 or more than 1000: 1000
}

// Matches reports whether q selects the job, whatever its cursor and limit.
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
