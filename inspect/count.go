package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/telemetry"
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
	Least bool // there may be more
}

// Facets are the values that the jobs of a filter have, the most frequent first, and of
// the same number in alphabetical order.
type Facets struct {
	Values []FacetValue
	Exact  bool // false: not all jobs were looked at, and there may be more values
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
// state, queue and type. Of dead letters, each type has a share of the jobs that are
// looked at, so that types with few are looked through.
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
	var tallied, ofLook []int // places in by: the storage counts the first, a look the others
	for i, b := range by {
		out[i].Exact, n[i] = true, make(map[string]int)
		if b == FacetError || !f.Tallied() {
			ofLook = append(ofLook, i)
		} else {
			tallied = append(tallied, i)
		}
	}
	count := func(places []int, job *ojs.JobInfo, jobs int) {
		for _, i := range places {
			if value, ok := by[i].of(job); ok {
				n[i][value] += jobs
			}
		}
	}
	if len(tallied) > 0 {
		counts, err := j.source.Counts(ctx)
		if err != nil {
			return nil, err
		}
		for _, c := range counts {
			job := ojs.JobInfo{JobHeader: ojs.JobHeader{Queue: c.Queue, Type: c.Type}, State: c.State}
			if q.MayMatch(c.State, c.Queue, c.Type) {
				count(tallied, &job, c.N)
			}
		}
	}
	var seen looked
	if len(ofLook) > 0 {
		seen, err = j.look(ctx, &f, look, func(job *ojs.JobInfo) { count(ofLook, job, 1) })
		if err != nil {
			return nil, err
		}
		for _, i := range ofLook {
			out[i].Looked, out[i].Exact = seen.n, len(seen.missed) == 0
		}
	}
	for i := range by {
		out[i].Values = facetValues(n[i])
		for k := range out[i].Values {
			v := &out[i].Values[k]
			v.Least = !out[i].Exact && !(by[i] == FacetType && seen.through(v.Value))
		}
	}
	return out, nil
}

// Failures groups the jobs that f selects by their latest failures, with a look at the
// given number of jobs; 0 is DefaultLook. Without States these are discarded and
// retryable jobs. Each type has a share of the jobs that are looked at, so that types
// with few failures are looked through. Beyond 1000 groups, failures of new groups are
// left out, and Exact is false.
//
// To retry a group with a pause between two jobs, Apply RetryJobs to a filter with its
// Key.
func (j *Jobs) Failures(ctx context.Context, f Filter, look int) (FailureGroups, error) {
	if len(f.States) == 0 {
		f.States = []ojs.State{ojs.StateDiscarded, ojs.StateRetryable}
	}
	if _, err := j.counted(&f, look); err != nil {
		return FailureGroups{}, err
	}
	groups := make(failures)
	room, now := true, j.Now()
	seen, err := j.look(ctx, &f, look, func(job *ojs.JobInfo) { room = groups.add(job, now) && room })
	if err != nil {
		return FailureGroups{}, err
	}
	return groups.of(&seen, room), nil
}

// CountedFailures returns the failed attempts of the last 30 days that the engines that
// report have counted, by kind, those of jobs that were deleted, too. Engines without
// reports count none, and one that is killed loses those since its last report. known
// keeps what the next call need not read. See KnownFailures.Read, which has the bounds
// and the cost. The key of a kind selects the stored jobs whose latest failure is of it:
// Filter.Failure.
func (j *Jobs) CountedFailures(
	ctx context.Context, known *telemetry.KnownFailures,
) ([]telemetry.FailureCount, error) {
	return known.Read(ctx, j.source, j.Now())
}

// FailureCounted reports whether CountedFailures has the kind of a job type with a key.
// It costs a read of one value.
func (j *Jobs) FailureCounted(ctx context.Context, jobType, key string) (bool, error) {
	return telemetry.FailureCounted(ctx, j.source, j.Now(), jobType, key)
}

// counted narrows a filter whose jobs are counted, and returns its query.
func (j *Jobs) counted(f *Filter, look int) (storage.Query, error) {
	if look < 0 {
		return storage.Query{}, draft.Invalid("look", "%d is negative", look)
	}
	*f = f.InCheapestOrder()
	return f.Query()
}

// looked is how far a look at jobs has come.
type looked struct {
	n      int             // jobs
	missed map[string]bool // types of which not all jobs were looked at; "": any
}

// through reports whether all jobs of a type were looked at.
func (l *looked) through(jobType string) bool { return !l.missed[""] && !l.missed[jobType] }

// look calls each with the jobs of a filter, until it has looked at enough of them; 0 is
// DefaultLook. Of each share it looks at a part. Shares with few jobs leave the rest of
// theirs to the others.
func (j *Jobs) look(ctx context.Context, f *Filter, enough int, each func(*ojs.JobInfo)) (looked, error) {
	out := looked{missed: make(map[string]bool)}
	enough = cmp.Or(enough, DefaultLook)
	shares, err := j.shares(ctx, f, enough)
	for i, s := range shares {
		q, err := s.Query()
		if err != nil {
			return out, err
		}
		most := out.n + max((enough-out.n)/(len(shares)-i), s.n)
		for more := true; more; more = q.Cursor != "" {
			if q.Limit = min(most-out.n, 250); q.Limit <= 0 { // jobs are large
				for _, t := range s.types {
					out.missed[t] = true
				}
				break
			}
			page, err := j.RecordPage(ctx, &s.Filter, q)
			if err != nil {
				return out, err
			}
			for i := range page.Records {
				job := &page.Records[i].JobInfo
				if !s.without[storage.Count{State: job.State, Type: job.Type}] {
					each(job)
				}
			}
			out.n += page.Looked
			q.Cursor = page.Next
		}
	}
	return out, err
}

// share is a part of the jobs of a filter.
type share struct {
	Filter
	types   []string               // "": any
	of      storage.Count          // the state and the type
	without map[storage.Count]bool // the states and types that have shares of their own
	n       int                    // more than its jobs, which are all looked at; 0: they may be too many
}

// maxShares is how many shares a look has at most.
const maxShares = 40

// shares divides the jobs of a filter by state and type, if storages count these and find
// them by an index, those with the fewest jobs first. The types with the fewest jobs have
// one share for each state. The last share has the states and types with the most jobs,
// if there are more than maxShares.
func (j *Jobs) shares(ctx context.Context, f *Filter, enough int) (out []share, err error) {
	q, err := f.Query()
	always := *f
	always.FinishedFrom, always.FinishedBefore = time.Time{}, time.Time{}
	if err != nil || !always.talliedOrDead() || !q.OfRare() && (!f.DeadLettered || len(f.States) > 0) {
		return []share{{Filter: *f, types: []string{""}}}, err
	}
	counts, err := j.source.Counts(ctx)
	jobs := make(map[storage.Count]int)
	for _, c := range counts {
		dies := !f.DeadLettered || c.State == ojs.StateDiscarded
		if dies && q.MayMatch(c.State, c.Queue, c.Type) {
			jobs[storage.Count{State: c.State, Type: c.Type}] += c.N
		}
	}
	for c := range jobs {
		one := *f
		one.Types, one.States = []string{c.Type}, []ojs.State{c.State}
		if f.DeadLettered { // which are discarded, and have an index without the state
			one.States = nil
		}
		out = append(out, share{Filter: one.InCheapestOrder(), types: one.Types, of: c})
	}
	slices.SortFunc(out, func(a, b share) int {
		return cmp.Or(cmp.Compare(jobs[a.of], jobs[b.of]), slices.Compare(a.types, b.types),
			slices.Compare(a.States, b.States))
	})
	out = together(out, jobs, enough/2)
	if len(out) <= maxShares {
		return out, err
	}
	rest := share{Filter: *f, without: make(map[storage.Count]bool)}
	for c := range jobs {
		rest.without[c] = true
	}
	for _, s := range out[maxShares-1:] {
		rest.types = append(rest.types, s.types...)
		delete(rest.without, s.of)
	}
	return append(out[:maxShares-1], rest), err
}

// together makes one share of those of a state that have the fewest jobs, and so many in
// all. They have the order of their numbers.
func together(shares []share, jobs map[storage.Count]int, most int) (out []share) {
	few := make(map[ojs.State]int) // the places of the shares, by state
	for i := range shares {
		s := &shares[i]
		n := jobs[s.of]
		if most -= n; most < 0 {
			return append(out, shares[i:]...)
		}
		at, ok := few[s.of.State]
		if !ok {
			few[s.of.State] = len(out)
			s.n = n + 1
			out = append(out, *s)
			continue
		}
		o := &out[at]
		o.n += n
		o.types = append(o.types, s.types...)
		o.Types = o.types
	}
	return out
}

func facetValues(n map[string]int) []FacetValue {
	var values []FacetValue
	for _, value := range slices.Sorted(maps.Keys(n)) {
		values = append(values, FacetValue{Value: value, N: n[value]})
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

// InCheapestOrder returns the filter in the order in which a listing looks at the fewest
// jobs, and of these orders that of the latest jobs first. It selects the same jobs.
func (f Filter) InCheapestOrder() Filter {
	f.Order = OrderNewest
	open := slices.ContainsFunc(f.States, func(s ojs.State) bool { return !s.Terminal() })
	ended := len(f.States) > 0 && !open || !f.FinishedFrom.IsZero() || !f.FinishedBefore.IsZero()
	if ended && !f.DeadLettered && f.Workflow == "" {
		f.Order = OrderFinished
	}
	return f
}

// Tallied reports whether the filter names nothing but States, Queues and Types, by which
// storages count jobs: a Count of its jobs looks at none, and is exact.
func (f *Filter) Tallied() bool { return !f.DeadLettered && f.talliedOrDead() }

// talliedOrDead reports whether the filter is Tallied, or would be without DeadLettered.
func (f *Filter) talliedOrDead() bool {
	return f.Workflow == "" && len(f.ErrorTypes) == 0 && f.where() == nil &&
		f.CreatedFrom.IsZero() && f.CreatedBefore.IsZero() && f.FinishedFrom.IsZero() &&
		f.FinishedBefore.IsZero()
}
