package inspect

import (
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// Order is the order of a listing.
type Order = storage.Order

// The orders of listings. Three of them leave out the jobs that have no place in them.
const (
	OrderOldest   = storage.OrderOldest   // as enqueued; dead letters by their death
	OrderNewest   = storage.OrderNewest   // the reverse
	OrderFinished = storage.OrderFinished // jobs that have ended, the latest end first
	OrderDue      = storage.OrderDue      // jobs that wait for a time, and leases, the soonest first
	OrderClaim    = storage.OrderClaim    // available jobs, the next to be claimed first; 10,000 or more
)

// Filter selects jobs; a zero field selects all. Parse makes one from a line, and
// String makes a line of it.
//
// A storage finds these by an index, and looks at no other job (Exact):
//
//   - pending, scheduled, active, retryable, cancelled and discarded jobs, of all or some
//     queues and types, and dead letters;
//   - workflows, and the jobs of one;
//   - ended jobs by the time of their end, and discarded ones by the types of their
//     errors, in OrderFinished.
//
// For other filters the jobs of the narrowest index are read one by one. Jobs.Page says
// how many it looked at (Page.Looked). Jobs.Count and Jobs.Facets are exact without a
// look at any job if the filter names nothing but States, Queues and Types (Tallied).
type Filter struct {
	States       []ojs.State
	Queues       []string
	Types        []string // "email.*" selects every type that starts with "email."
	ErrorTypes   []string // of the job's latest failure; prefixes as in Types
	DeadLettered bool     // dead letters only

	// IDs selects jobs by their ids; prefixes as in Types, and "*98fe" selects every id
	// that ends with "98fe". Without such patterns no other job is looked at, and the
	// listing has the order of IDs and not that of Order.
	IDs []string

	Error    string   // text in the type or message of the latest failure, in upper or lower case
	Failure  string   // the group of the latest failure (FailureGroup.Key)
	Tags     []string // the job has all of them (ojs.WithTags)
	Members  []Member // the job's args and meta have all of them
	Workers  []string // who claimed the job last; prefixes as in Types
	Crons    []string // the recurring entry that enqueued the job; prefixes as in Types
	Versions []string // of the job's type (ojs.WithVersion); prefixes as in Types
	Keys     []string // the job's ordering key (ojs.WithOrderingKey); prefixes as in Types
	Priority *Range   // nil: any
	Attempt  *Range   // nil: any; 0 is a job that has not begun

	// Fingerprints selects unique jobs that are equal (policy.Fingerprint). It has
	// prefixes as Types.
	Fingerprints []string

	Workflow string // the id of a workflow: its jobs

	// Args is text that the args' JSON contains, in which nothing is escaped that JSON
	// does not demand and no space is between tokens: part of a string, such as cust_123,
	// or a member, such as "amount":9999. It selects no job whose args are encoded. "":
	// any args.
	Args string

	CreatedFrom, CreatedBefore   time.Time // the first is in the range, the second is not
	FinishedFrom, FinishedBefore time.Time // a job that has not ended is in no such range

	// When a waiting job is promoted or expires. A job that does not wait is in no such
	// range.
	DueFrom, DueBefore time.Time

	Order Order // of a listing
}

// Range is a range of numbers, both ends included. math.MinInt and math.MaxInt are no
// ends.
type Range struct{ Min, Max int }

func (r *Range) has(n int) bool { return r == nil || r.Min <= n && n <= r.Max }

// Member is a value in a job's args or meta.
type Member struct {
	// Path is where it is: args or meta, and then names of members and indexes of lists
	// from 0 on, with dots between them: args.user.id, meta.items.0. A name may have dots
	// itself.
	Path string

	// Value is the text of a string, or the JSON of any value: 42 selects the number and
	// the string.
	Value string
}

// memberPrefixes are what paths of members begin with.
var memberPrefixes = []string{"args.", "meta."}

// Query is the filter for a storage.
func (f *Filter) Query() (storage.Query, error) {
	for _, s := range f.States {
		if !s.Valid() {
			return storage.Query{}, draft.Invalid("filter.states", "%q is no state", s)
		}
	}
	for _, id := range f.IDs {
		if len(id) > 1 && id[0] == '*' && id[len(id)-1] == '*' {
			return storage.Query{}, draft.Invalid("filter.ids",
				"%q has a * at both ends; use one at the beginning or at the end", id)
		}
	}
	for _, m := range f.Members {
		if !slices.ContainsFunc(memberPrefixes, func(p string) bool { return strings.HasPrefix(m.Path, p) }) {
			return storage.Query{}, draft.Invalid("filter.members",
				"path %q begins with neither args. nor meta.", m.Path)
		}
	}
	if !f.Order.Valid() {
		return storage.Query{}, draft.Invalid("filter.order",
			"%q is none of newest, finished, due and claim", f.Order)
	}
	q := storage.Query{
		Workflow: f.Workflow, Order: f.Order, DeadLetters: f.DeadLettered, States: f.States,
		Queues: f.Queues, Types: f.Types, ErrorTypes: f.ErrorTypes,
		CreatedFrom: f.CreatedFrom, CreatedBefore: f.CreatedBefore,
		FinishedFrom: f.FinishedFrom, FinishedBefore: f.FinishedBefore,
		Where: f.where(),
	}
	// The few workflows in a rare state are found by it, and others among workflows.
	q.Keepers = slices.Equal(f.Types, []string{workflow.Type}) && !q.OfRare() && !q.DeadLetters &&
		(q.Order == OrderOldest || q.Order == OrderNewest)
	return q, nil
}

// Exact reports whether a storage finds the jobs of the filter by an index, in its order.
// Then a page is full if there are jobs enough, however many others are stored. Without
// it, a page may end early, and Looked and Next say how far it came.
func (f *Filter) Exact() bool {
	q, err := f.Query()
	return err == nil && (f.ByID() || q.Indexed())
}

// where is the part of the filter of which storages know nothing; nil: there is none.
func (f *Filter) where() func(*storage.Record) bool {
	if len(f.IDs)+len(f.Tags)+len(f.Members)+len(f.Workers)+len(f.Crons)+len(f.Versions)+len(f.Keys)+
		len(f.Fingerprints) == 0 && f.Error == "" && f.Args == "" && f.Failure == "" &&
		f.Priority == nil && f.Attempt == nil && f.DueFrom.IsZero() && f.DueBefore.IsZero() {
		return nil
	}
	text := strings.ToLower(f.Error)
	return func(r *storage.Record) bool {
		cron, _ := r.Meta["cron_name"].(string)
		return f.hasID(r.ID) && matchesAny(f.Versions, r.TypeVersion) && matchesAny(f.Keys, orderingKey(r)) &&
			matchesAny(f.Fingerprints, r.Fingerprint) && matchesAny(f.Workers, r.Worker) &&
			matchesAny(f.Crons, cron) &&
			f.Priority.has(r.Priority) && f.Attempt.has(r.Attempt) && f.due(r) &&
			(text == "" || r.Error != nil && (strings.Contains(strings.ToLower(r.Error.Type), text) ||
				strings.Contains(strings.ToLower(r.Error.Message), text))) &&
			(f.Failure == "" || FailureKey(&r.JobInfo) == f.Failure) &&
			hasTags(r.Meta["tags"], f.Tags) && f.matchesMembers(&r.JobInfo) && f.matchesArgs(&r.JobInfo)
	}
}

func orderingKey(r *storage.Record) string {
	if r.Dependencies == nil {
		return ""
	}
	return r.Dependencies.OrderingKey
}

// matchesAny reports whether there are no patterns, or one that fits.
func matchesAny(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return p == name
	})
}

func (f *Filter) hasID(id string) bool {
	ends := func(p string) bool { return p != "" && p[0] == '*' && strings.HasSuffix(id, p[1:]) }
	return matchesAny(f.IDs, id) || slices.ContainsFunc(f.IDs, ends)
}

func (f *Filter) due(r *storage.Record) bool {
	if f.DueFrom.IsZero() && f.DueBefore.IsZero() {
		return true
	}
	at := r.WakeAt()
	return r.State.Waiting() && !at.IsZero() && !at.Before(f.DueFrom) &&
		(f.DueBefore.IsZero() || at.Before(f.DueBefore))
}

func hasTags(have any, want []string) bool {
	list, _ := have.([]any)
	return !slices.ContainsFunc(want, func(tag string) bool { return !slices.Contains(list, any(tag)) })
}

func (f *Filter) matchesMembers(job *ojs.JobInfo) bool {
	var args any
	for _, m := range f.Members {
		var root any = job.Meta
		path, ofArgs := strings.CutPrefix(m.Path, memberPrefixes[0])
		if !ofArgs {
			path = strings.TrimPrefix(m.Path, memberPrefixes[1])
		} else if args == nil {
			raw := job.Args.JSON()
			if codec.IsEncoded(job.Args, job.Meta) || jsonvalue.Lacks(raw, m.Value) {
				return false
			}
			var err error
			if args, err = jsonvalue.Decode(raw); err != nil {
				return false
			}
		}
		if ofArgs {
			root = args
		}
		if !jsonvalue.Has(root, path, m.Value) {
			return false
		}
	}
	return true
}

// matchesArgs reports whether the filter selects a job by its args, of which storages
// know nothing.
func (f *Filter) matchesArgs(job *ojs.JobInfo) bool {
	if f.Args == "" {
		return true
	}
	if codec.IsEncoded(job.Args, job.Meta) {
		return false
	}
	return jsonvalue.ContainsText(job.Args.JSON(), f.Args)
}

// ByID reports whether the filter names every job by its id.
func (f *Filter) ByID() bool {
	pattern := func(id string) bool { return strings.HasSuffix(id, "*") || strings.HasPrefix(id, "*") }
	return len(f.IDs) > 0 && !slices.ContainsFunc(f.IDs, pattern)
}
