package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/storage"
)

// DefaultLook is how many jobs Jobs.Count and Jobs.Facets look at unless the caller says
// otherwise.
const DefaultLook = 2000

// Count is how many jobs a filter selects.
type Count struct {
	N      int
	Exact  bool // false: there may be more than N, since not all jobs were looked at
	Looked int  // jobs
}

// Count counts the jobs that f selects, with a look at some thousand jobs beyond the
// given number at most; 0 is DefaultLook. A filter that names nothing but States, Queues
// and Types costs no look at any job and is exact.
func (j *Jobs) Count(ctx context.Context, f Filter, look int) (Count, error) {
	facets, err := j.Facets(ctx, f, FacetState, look)
	return facets.Count(), err
}

// Facet is what jobs are counted by.
type Facet string

// The facets.
const (
	FacetState Facet = "state"
	FacetQueue Facet = "queue"
	FacetType  Facet = "type"
	FacetError Facet = "error" // the type of the latest failure; a job without one is in no value
)

// FacetValue is how many jobs have a value.
type FacetValue struct {
	Value string
	N     int
}

// Facets are the values that the jobs of a filter have, the most frequent first, and of
// the same number in alphabetical order.
type Facets struct {
	Values []FacetValue
	Exact  bool // false: not all jobs were looked at, and each value may have more
	Looked int  // jobs
}

// Count sums the values. By state, that is how many jobs there are.
func (f *Facets) Count() Count {
	n := Count{Exact: f.Exact, Looked: f.Looked}
	for _, v := range f.Values {
		n.N += v.N
	}
	return n
}

// Facets counts the jobs that f selects by one of their properties. It looks at the
// newest jobs first, and at some thousand beyond the given number at most; 0 is
// DefaultLook. Jobs that have ended are looked at from the latest end on. A filter that
// names nothing but States, Queues and Types costs no look at any job, and is exact by
// state, queue and type.
func (j *Jobs) Facets(ctx context.Context, f Filter, by Facet, look int) (Facets, error) {
	list, err := j.FacetsBy(ctx, f, look, by)
	if err != nil {
		return Facets{}, err
	}
	return list[0], nil
}

// FacetsBy is Facets by several properties, in their order, with one look at the jobs.
func (j *Jobs) FacetsBy(ctx context.Context, f Filter, look int, by ...Facet) ([]Facets, error) {
	for _, b := range by {
		if !slices.Contains([]Facet{FacetState, FacetQueue, FacetType, FacetError}, b) {
			return nil, draft.Invalid("facet", "%q is none of state, queue, type and error", b)
		}
	}
	q, err := j.counted(&f, look)
	if err != nil {
		return nil, err
	}
	out := make([]Facets, len(by))
	n := make([]map[string]int, len(by))
	var looked []int // those of by that need a look
	for i, b := range by {
		out[i].Exact, n[i] = true, make(map[string]int)
		if b == FacetError || !f.isTallied() {
			looked = append(looked, i)
		}
	}
	if len(looked) < len(by) {
		counts, err := j.source.Counts(ctx)
		if err != nil {
			return nil, err
		}
		for i, b := range by {
			if slices.Contains(looked, i) {
				continue
			}
			for _, c := range counts {
				value := string(c.State)
				switch b {
				case FacetQueue:
					value = c.Queue
				case FacetType:
					value = c.Type
				}
				if q.MayMatch(c.State, c.Queue, c.Type) {
					n[i][value] += c.N
				}
			}
		}
	}
	if len(looked) > 0 {
		at, all, err := j.look(ctx, &f, q, look, func(job *ojs.JobInfo) {
			for _, i := range looked {
				if value, ok := by[i].of(job); ok {
					n[i][value]++
				}
			}
		})
		if err != nil {
			return nil, err
		}
		for _, i := range looked {
			out[i].Looked, out[i].Exact = at, all
		}
	}
	for i := range by {
		out[i].Values = facetValues(n[i])
	}
	return out, nil
}

// counted narrows a filter whose jobs are counted, and returns its query.
func (j *Jobs) counted(f *Filter, look int) (storage.Query, error) {
	if look < 0 {
		return storage.Query{}, draft.Invalid("look", "%d is negative", look)
	}
	f.narrow()
	return f.Query()
}

// look calls each with the jobs of a listing, page by page, until it has looked at
// enough of them; 0 is DefaultLook. all reports whether it has looked at all of them.
func (j *Jobs) look(
	ctx context.Context, f *Filter, q storage.Query, enough int, each func(*ojs.JobInfo),
) (looked int, all bool, err error) {
	if enough == 0 {
		enough = DefaultLook
	}
	q.Limit = 250 // of whole jobs, which are large
	for looked < enough {
		page, err := j.RecordPage(ctx, f, q)
		if err != nil {
			return looked, false, err
		}
		for i := range page.Records {
			each(&page.Records[i].JobInfo)
		}
		looked += page.Looked
		if q.Cursor = page.Next; q.Cursor == "" {
			return looked, true, nil
		}
	}
	return looked, false, nil
}

func facetValues(n map[string]int) []FacetValue {
	var values []FacetValue
	for _, value := range slices.Sorted(maps.Keys(n)) {
		values = append(values, FacetValue{value, n[value]})
	}
	slices.SortStableFunc(values, func(a, b FacetValue) int { return cmp.Compare(b.N, a.N) })
	return values
}

// of returns the value that a job has, false if it has none.
func (by Facet) of(job *ojs.JobInfo) (string, bool) {
	switch by {
	case FacetState:
		return string(job.State), true
	case FacetQueue:
		return job.Queue, true
	case FacetType:
		return job.Type, true
	}
	if job.Error == nil {
		return "", false
	}
	return job.Error.Type, true
}

// narrow chooses the order that looks at the fewest jobs, for a filter whose listing is
// counted, and of these the latest first.
func (f *Filter) narrow() {
	f.Order = OrderNewest
	open := slices.ContainsFunc(f.States, func(s ojs.State) bool { return !s.Terminal() })
	if len(f.States) > 0 && !open && !f.DeadLettered && f.Workflow == "" {
		f.Order = OrderFinished
	}
}

// isTallied reports whether the filter names nothing but states, queues and types, which
// storages count.
func (f *Filter) isTallied() bool {
	return !f.DeadLettered && f.Workflow == "" && len(f.ErrorTypes) == 0 && f.where() == nil &&
		f.CreatedFrom.IsZero() && f.CreatedBefore.IsZero() && f.FinishedFrom.IsZero() &&
		f.FinishedBefore.IsZero()
}
