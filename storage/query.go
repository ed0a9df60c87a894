package storage

import (
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
)

// Order is the order of a listing:
//
//   - OrderOldest: the order of insertion, and of dead letters that of their death
//     [list-1, list-5];
//   - OrderNewest: the reverse [list-9];
//   - OrderFinished: only jobs that have ended, those with the latest FinishedAt first,
//     and of the same FinishedAt those that ended last [list-10];
//   - OrderDue: only jobs that wait for a time, in the order in which Due brings them
//     [list-11];
//   - OrderClaim: only available jobs, in the order in which Claim takes them from all
//     queues, if no queue is paused and no deadline has come [list-12]. A storage may end
//     the listing after its first 10,000 jobs.
//
// Another order fails the call with an error that is ojs.ErrUnsupported [list-15].
type Order string

// The orders.
const (
	OrderOldest   Order = ""
	OrderNewest   Order = "newest"
	OrderFinished Order = "finished"
	OrderDue      Order = "due"
	OrderClaim    Order = "claim"
)

// Valid reports whether o is one of the orders.
func (o Order) Valid() bool {
	return slices.Contains([]Order{OrderOldest, OrderNewest, OrderFinished, OrderDue, OrderClaim}, o)
}

// Query selects jobs; a zero field selects all.
type Query struct {
	DeadLetters bool // dead letters only [list-5]
	States      []ojs.State
	Queues      []string
	Types       []string // "email.*" selects every type that starts with "email." [list-3]
	ErrorTypes  []string // of the job's latest failure; prefixes as in Types [list-3]

	CreatedFrom, CreatedBefore   time.Time // the first is in the range, the second is not [list-3]
	FinishedFrom, FinishedBefore time.Time // a job that has not ended is in no such range [list-3]

	// Where, if it is set, is asked last: a job for which it returns false is not
	// selected [list-13]. It is quick and keeps nothing of the job.
	Where func(*Record) bool

	Order Order

	Cursor string // of another page of the same query; "": the first page [list-2]
	Limit  int    // most records on the page; 0 or more than 1000: 1000 [list-2, list-8]
}

// Matches reports whether q selects the job. It ignores the order, the cursor and the
// limit.
func (q *Query) Matches(r *Record) bool {
	return q.MayMatch(r.State, r.Queue, r.Type) &&
		(!q.DeadLetters || r.DeadLettered()) &&
		(len(q.ErrorTypes) == 0 || r.Error != nil && matchesAny(q.ErrorTypes, r.Error.Type)) &&
		inRange(r.CreatedAt, q.CreatedFrom, q.CreatedBefore) &&
		inRange(r.FinishedAt, q.FinishedFrom, q.FinishedBefore) &&
		(q.Where == nil || q.Where(r))
}

// MayMatch reports whether Matches can hold for a job of the state, the queue and the
// type. A storage may ask it before it reads the rest of the job.
func (q *Query) MayMatch(state ojs.State, queue, jobType string) bool {
	return (len(q.States) == 0 || slices.Contains(q.States, state)) &&
		(len(q.Queues) == 0 || slices.Contains(q.Queues, queue)) &&
		(len(q.Types) == 0 || matchesAny(q.Types, jobType))
}

// OnlyActive reports whether the query selects active jobs alone, in an order of
// insertion. Pages of an operator ask for these again and again, so that a storage should
// find them by an index, and look at no other job.
func (q *Query) OnlyActive() bool {
	return len(q.States) == 1 && q.States[0] == ojs.StateActive && !q.DeadLetters &&
		(q.Order == OrderOldest || q.Order == OrderNewest)
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
