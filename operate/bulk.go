package operate

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// Action is what Jobs.Apply does to each job: what the method of Jobs does that has its
// name. An operation is refused as a whole if its options make no sense.
type Action struct {
	name   string
	states []ojs.State // the jobs that it is for, unless a filter names states
	also   []ojs.State // the states that a filter may name beyond these
	err    error       // of its options
	do     func(context.Context, *Jobs, *storage.Record) (copied string, err error)
	copies bool // it makes jobs that the filter may select
}

// String names the action: retry, cancel, delete, activate, prioritize, reschedule, move
// or copy.
func (a Action) String() string { return a.name }

var (
	waitingStates = []ojs.State{ojs.StateScheduled, ojs.StateAvailable, ojs.StatePending, ojs.StateRetryable}
	endedStates   = []ojs.State{ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded}
)

// one makes an Action of what is done by a job's id. err is the error of its options.
func one(name string, states, also []ojs.State, err error,
	do func(*Jobs, context.Context, string) error) Action {
	return Action{name: name, states: states, also: also, err: err,
		do: func(ctx context.Context, j *Jobs, rec *storage.Record) (string, error) {
			return "", do(j, ctx, rec.ID)
		}}
}

// RetryJobs retries discarded jobs, and retryable ones if the filter names that state
// (Jobs.Retry).
func RetryJobs(opts ...ojs.Option) Action {
	return one("retry", []ojs.State{ojs.StateDiscarded}, []ojs.State{ojs.StateRetryable}, nil,
		func(j *Jobs, ctx context.Context, id string) error { return j.Retry(ctx, id, opts...) })
}

// CancelJobs cancels jobs that wait, and active ones if the filter names that state
// (Jobs.Cancel).
func CancelJobs() Action {
	return one("cancel", waitingStates, []ojs.State{ojs.StateActive}, nil, (*Jobs).Cancel)
}

// DeleteJobs deletes jobs that have ended (Jobs.Delete).
func DeleteJobs() Action {
	return Action{name: "delete", states: endedStates,
		do: func(ctx context.Context, j *Jobs, rec *storage.Record) (string, error) {
			return "", j.op.delete(ctx, rec)
		}}
}

// ActivateJobs makes pending jobs available (Jobs.Activate).
func ActivateJobs() Action {
	return one("activate", []ojs.State{ojs.StatePending}, nil, nil, (*Jobs).Activate)
}

// PrioritizeJobs changes the priority of available and scheduled jobs (Jobs.SetPriority).
func PrioritizeJobs(priority int) Action {
	states := []ojs.State{ojs.StateAvailable, ojs.StateScheduled}
	return one("prioritize", states, nil, checkPriority(priority),
		func(j *Jobs, ctx context.Context, id string) error { return j.SetPriority(ctx, id, priority) })
}

// RescheduleJobs gives scheduled, available and retryable jobs another time
// (Jobs.Reschedule).
func RescheduleJobs(at time.Time) Action {
	states := []ojs.State{ojs.StateScheduled, ojs.StateAvailable, ojs.StateRetryable}
	return one("reschedule", states, nil, checkSchedule(at),
		func(j *Jobs, ctx context.Context, id string) error { return j.Reschedule(ctx, id, at) })
}

// MoveJobs moves jobs that wait to another queue (Jobs.Move).
func MoveJobs(queue string) Action {
	return one("move", waitingStates, nil, ojs.ValidateQueue(queue),
		func(j *Jobs, ctx context.Context, id string) error { return j.Move(ctx, id, queue) })
}

// CopyJobs runs jobs again that have ended, each as a new job (Jobs.Copy).
func CopyJobs(opts ...ojs.Option) Action {
	return Action{name: "copy", states: endedStates, copies: true,
		do: func(ctx context.Context, j *Jobs, rec *storage.Record) (string, error) {
			ticket, err := j.Copy(ctx, rec.ID, nil, opts...)
			return ticket.ID, err
		}}
}

// Bulk is an operation on many jobs.
type Bulk struct {
	Do Action

	// On selects the jobs. Without States these are those that the action is for. A
	// filter that names another state is refused. IDs without prefixes and States select
	// jobs in any state, so that each id has a result: an *ojs.TransitionError or
	// ojs.ErrNotFound if it is not done.
	On inspect.Filter

	Limit int           // how many jobs to do it to; 0: all
	Every time.Duration // the pause between two of them, so that they do not all run at once; 0: none
}

// Progress is how far an operation on many has come.
type Progress struct {
	Result              // of the latest job; ID "": none since the Progress before
	Copy   string       // the id of the job's copy, of CopyJobs
	Job    *ojs.JobInfo // as it was found; nil if it was not

	Done    int // jobs, the latest included
	Refused int // jobs that it was not done to
	Looked  int // jobs that were looked at to find these
}

// filter checks the operation, and returns its filter with the states that the action is
// for. It reports whether the operation goes by ids instead, of jobs in any state.
func (b *Bulk) filter() (f inspect.Filter, byID bool, err error) {
	switch f = b.On; {
	case b.Do.do == nil:
		return f, false, draft.Invalid("bulk.do", "is not set: give one of the actions, such as RetryJobs()")
	case b.Limit < 0:
		return f, false, draft.Invalid("bulk.limit", "is negative")
	case b.Every < 0:
		return f, false, draft.Invalid("bulk.every", "is negative")
	case b.Do.err != nil:
		return f, false, b.Do.err
	case len(f.States) == 0:
		f.States = b.Do.states
		return f, b.On.ByID(), nil
	}
	allowed := slices.Concat(b.Do.states, b.Do.also)
	for _, s := range f.States {
		if !slices.Contains(allowed, s) {
			return f, false, draft.Invalid("filter.states", "%q is none of %v", s, allowed)
		}
	}
	return f, false, nil
}

// Preview is what an operation on many would do.
type Preview struct {
	inspect.Count                // the jobs that it would be done to, without Bulk.Limit
	Sample        []*ojs.JobInfo // some of them
}

// Preview counts the jobs that an operation on many would be done to, as Count does, and
// returns up to n of them, 0 <= n <= 1000. It changes nothing.
func (j *Jobs) Preview(ctx context.Context, b Bulk, n int) (Preview, error) {
	if n < 0 || n > 1000 {
		return Preview{}, draft.Invalid("sample", "is not from 0 to 1000 jobs")
	}
	f, _, err := b.filter()
	if err != nil {
		return Preview{}, err
	}
	var p Preview
	if p.Count, err = j.Count(ctx, f, 0); err != nil {
		return Preview{}, err
	}
	if n > 0 && (p.N > 0 || !p.Exact) {
		look := inspect.DefaultLook
		if p.Exact { // then the jobs are there, and what is looked at tells which they are
			n, look = min(n, p.N), 50*look
		}
		page, err := j.Find(ctx, f, "", n, inspect.DefaultLook)
		if err == nil && len(page.Jobs) < n && page.Next != "" {
			page, err = j.Find(ctx, f.InCheapestOrder(), "", n, look)
		}
		if err != nil {
			return Preview{}, err
		}
		p.Sample = page.Jobs
	}
	return p, nil
}

// Apply does something, once, to every job that an operation on many selects, in the
// order of its filter. The step that changes a job checks its state again.
//
// It yields a Progress after each job, and after each page of a
// listing that brought none; breaking off the loop stops the operation. A job that is
// gone or has moved on in between is refused, and its Progress says why. An error of the
// storage or of ctx is the last thing that it yields. It undoes nothing.
//
// The operation needs no memory for the jobs behind it in inspect.OrderOldest and
// inspect.OrderNewest, the orders in which a job keeps its place. In other orders, and
// with DeadLettered, a job may be listed again: the operation then keeps the ids that it
// has come to, some 100 bytes each.
func (j *Jobs) Apply(ctx context.Context, b Bulk) iter.Seq2[Progress, error] {
	return func(yield func(Progress, error) bool) {
		f, byID, err := b.filter()
		if err == nil && byID {
			f.States = nil
		}
		var q storage.Query
		if err == nil {
			q, err = f.Query()
		}
		if err != nil {
			yield(Progress{}, err)
			return
		}
		op := bulk{Bulk: b, j: j, yield: yield}
		if byID || listsAgain(&f) {
			op.seen = make(map[string]struct{})
		}
		if b.Do.copies {
			op.begun, op.first = j.op.eng.Now(), j.op.eng.NewID()
		}
		if byID {
			op.overIDs(ctx, &q)
			return
		}
		op.j = &Jobs{j.Jobs, &Operator{eng: j.op.eng, only: f.States}}
		op.overPages(ctx, &f, q)
	}
}

// bulk is an operation on many that is under way.
type bulk struct {
	Bulk
	j     *Jobs
	yield func(Progress, error) bool
	at    Progress
	seen  map[string]struct{} // ids; nil: no job is listed again
	begun time.Time           // of an operation that makes copies
	first string              // an id that is less than theirs; "": it makes none
}

// listsAgain reports whether a listing of a filter may come to a job again that has
// changed in between, such as to a dead letter that was retried and has died again.
func listsAgain(f *inspect.Filter) bool {
	return f.DeadLettered || len(f.IDs) > 0 ||
		f.Order != inspect.OrderOldest && f.Order != inspect.OrderNewest
}

// again reports whether the operation has come to the job before, or made it.
func (op *bulk) again(rec *storage.Record) bool {
	_, seen := op.seen[rec.ID]
	isNew := op.first != "" && rec.ID > op.first && // programs choose ids, too
		(!rec.CreatedAt.Before(op.begun) ||
			rec.Meta[draft.MetaCopyOf] != nil && rec.ID < op.j.op.eng.NewID())
	return seen || isNew
}

// came notes that the operation has come to a job.
func (op *bulk) came(id string) {
	if op.seen != nil {
		op.seen[id] = struct{}{}
	}
}

func (op *bulk) overIDs(ctx context.Context, q *storage.Query) {
	for _, id := range op.On.IDs {
		if _, again := op.seen[id]; again {
			continue
		}
		rec, err := op.j.op.eng.Inspect.Record(ctx, id)
		op.at.Looked++
		switch {
		case err == nil && q.Matches(&rec):
			if !op.do(ctx, &rec) {
				return
			}
		case err != nil:
			op.came(id)
			if !op.report(id, nil, "", err) {
				return
			}
		}
	}
}

func (op *bulk) overPages(ctx context.Context, f *inspect.Filter, q storage.Query) {
	for {
		page, err := op.j.RecordPage(ctx, f, q)
		if err != nil {
			op.yield(op.at, err)
			return
		}
		op.at.Looked += page.Looked
		before := op.at.Done + op.at.Refused
		for i := range page.Records {
			if rec := &page.Records[i]; !op.again(rec) && !op.do(ctx, rec) {
				return
			}
		}
		if page.Next == "" {
			return
		}
		if op.at.Done+op.at.Refused == before {
			op.at.Result, op.at.Job, op.at.Copy = Result{}, nil, ""
			if !op.yield(op.at, nil) {
				return
			}
		}
		q.Cursor = page.Next
	}
}

// do acts on one job. It reports whether the operation goes on.
func (op *bulk) do(ctx context.Context, rec *storage.Record) bool {
	op.came(rec.ID)
	if op.Every > 0 && op.at.Done > 0 {
		if err := op.j.op.rest(ctx, op.Every); err != nil {
			return op.report(rec.ID, &rec.JobInfo, "", err)
		}
	}
	copied, err := op.Do.do(ctx, op.j, rec)
	return op.report(rec.ID, &rec.JobInfo, copied, err)
}

// report yields the result for one job. It reports whether the operation goes on.
func (op *bulk) report(id string, job *ojs.JobInfo, copied string, err error) bool {
	op.at.Result, op.at.Job, op.at.Copy = Result{ID: id, Err: err}, job, copied
	switch {
	case err == nil:
		op.at.Done++
	case !aboutJob(err):
		op.yield(op.at, err)
		return false
	default:
		op.at.Refused++
	}
	return op.yield(op.at, nil) && (op.Limit == 0 || op.at.Done < op.Limit)
}

// aboutJob reports whether an error is about one job, so that an operation on many goes
// on with the next.
func aboutJob(err error) bool {
	return slices.ContainsFunc([]error{ojs.ErrNotFound, ojs.ErrPruned, ojs.ErrTransition, ojs.ErrInvalid,
		ojs.ErrDropped, ojs.ErrDuplicate, ojs.ErrQueueFull, ojs.ErrQueueDraining},
		func(about error) bool { return foreign.Is(err, about) })
}
