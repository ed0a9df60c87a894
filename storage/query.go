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

	// Workflow selects the jobs whose Keeper it is, and Keepers the jobs that are their
	// own Keeper: the records of workflows [list-16].
	Workflow string
	Keepers  bool

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
		(q.Workflow == "" || r.Keeper() == q.Workflow) && (!q.Keepers || r.Keeper() == r.ID) &&
		(q.Where == nil || q.Where(r))
}

// MayMatch reports whether Matches can hold for a job of the state, the queue and the
// type. A storage may ask it before it reads the rest of the job.
func (q *Query) MayMatch(state ojs.State, queue, jobType string) bool {
	return (len(q.States) == 0 || slices.Contains(q.States, state)) &&
		(len(q.Queues) == 0 || slices.Contains(q.Queues, queue)) &&
		(len(q.Types) == 0 || matchesAny(q.Types, jobType))
}

// Rare reports whether storages find the jobs of a state by an index of state, queue and
// type. There are few such jobs beside the available and the completed ones, and people
// look for them.
func Rare(s ojs.State) bool { return s != ojs.StateAvailable && s != ojs.StateCompleted }

// OfRare reports whether the query selects jobs of Rare states only, by their states.
func (q *Query) OfRare() bool {
	return len(q.States) > 0 && !slices.ContainsFunc(q.States, func(s ojs.State) bool { return !Rare(s) })
}

// Narrowed reports whether the query selects by queue or type.
func (q *Query) Narrowed() bool { return len(q.Queues)+len(q.Types) > 0 }

// Indexed reports whether storages find the jobs of the query by an index alone. A page
// looks at no other job then, but for active ones, which may all be looked at [list-17].
// In OrderClaim it is false, because a storage may end the listing early.
func (q *Query) Indexed() bool {
	finished := !q.FinishedFrom.IsZero() || !q.FinishedBefore.IsZero()
	ofWorkflows := q.Workflow != "" || q.Keepers
	switch {
	case q.Where != nil, !q.CreatedFrom.IsZero(), !q.CreatedBefore.IsZero(), q.Order == OrderClaim,
		finished && q.Order != OrderFinished, q.Workflow != "" && q.Keepers:
		return false
	case len(q.ErrorTypes) > 0:
		long := func(errorType string) bool { return len(errorType) >= maxIndexed }
		return q.ByError() && !q.Narrowed() && !q.DeadLetters && !ofWorkflows &&
			!slices.ContainsFunc(q.ErrorTypes, long)
	case ofWorkflows:
		return len(q.Workflow) < maxIndexed && (q.Order == OrderOldest || q.Order == OrderNewest) &&
			len(q.States)+len(q.Queues) == 0 && (q.Keepers || len(q.Types) == 0) && !q.DeadLetters
	case q.DeadLetters:
		return len(q.States) == 0 && (q.Order == OrderOldest || q.Order == OrderNewest ||
			q.Order == OrderFinished && !q.Narrowed())
	case q.Order == OrderFinished:
		return !q.Narrowed() || q.OfRare()
	}
	return len(q.States) == 0 && !q.Narrowed() || q.OfRare() &&
		(q.Order != OrderDue || q.TimedRare())
}

// TimedRare reports whether storages find the jobs of the query by an index of state,
// queue, type and time.
func (q *Query) TimedRare() bool {
	switch q.Order {
	case OrderFinished:
		return q.OfRare() && q.Narrowed() && !q.DeadLetters
	case OrderDue:
		return q.OfRare() && !slices.Contains(q.States, ojs.StateActive)
	}
	return false
}

// maxIndexed is how many bytes of the type of an error, or of the id of a workflow, an
// index has at least.
const maxIndexed = 255

// ByError reports whether storages find the jobs of the query by an index of the types of
// their errors and the times of their ends: it selects discarded jobs by these.
func (q *Query) ByError() bool {
	return q.Order == OrderFinished && len(q.ErrorTypes) > 0 &&
		slices.Equal(q.States, []ojs.State{ojs.StateDiscarded})
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
