// Package inspect finds and counts the jobs of a storage, groups their failures, tells
// their history and their logs, explains why they do not run, and lists what works on
// them. It only reads: it needs a storage and a clock, and no engine, so that a page or a
// command can use it on the database of a program.
//
// # Invariants
//
//  1. No call changes the storage.
//  2. A call looks at a bounded number of jobs, or says in its comment that it does not.
//     A result that may leave out jobs says so (Exact, Looked).
//  3. A filter means the same in each call, and so does its line (Parse, Filter.String).
//  4. A Jobs has no state of its own: it needs no lock.
package inspect

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// Source is the part of a storage.Storage that the package reads.
type Source interface {
	Get(ctx context.Context, id string) (storage.Record, error)
	List(ctx context.Context, q storage.Query) (storage.Page, error)
	Counts(ctx context.Context) ([]storage.Count, error)
	Logs(ctx context.Context, id string) ([]storage.Log, error)
	QueueStates(ctx context.Context) (map[string]ojs.QueueState, error)
	storage.DocumentStore
	GetLimit(ctx context.Context, now time.Time, name storage.LimitName) (storage.Limit, error)
	ListLimits(
		ctx context.Context, now time.Time, kind storage.LimitKind, after string, limit int,
	) ([]storage.Limit, error)
}

// Engine is what an engine adds to what its storage knows. Package engine fills it in.
type Engine struct {
	Codec *codec.Chain // nil: none

	// Missing makes the error of a lookup that failed say whether there was such a job.
	Missing func(id string, err error) error

	// Hinders returns what keeps a job from running in the engine.
	Hinders func(rec *storage.Record, now time.Time) []Obstacle
}

// Jobs reads the jobs of a storage. It is safe for concurrent use.
type Jobs struct {
	source Source
	clock  clock.Clock
	eng    Engine
}

// Open returns the jobs of a storage. The clock has to be that of the engines on it.
func Open(s Source, c clock.Clock) *Jobs { return OpenFor(Engine{}, s, c) }

// OpenFor is Open for an engine, which knows more than its storage.
func OpenFor(e Engine, s Source, c clock.Clock) *Jobs { return &Jobs{s, c, e} }

// Record returns a job as it is stored.
func (j *Jobs) Record(ctx context.Context, id string) (storage.Record, error) {
	rec, err := j.source.Get(ctx, id)
	if err != nil && j.eng.Missing != nil {
		err = j.eng.Missing(id, err)
	}
	return rec, err
}

// Decode returns a copy of a job, as a lookup, a listing or an event has it, with args,
// result and details of errors decoded by the codecs of the engine. Plain parts stay as
// they are. The error is a *codec.Error.
func (j *Jobs) Decode(ctx context.Context, job *ojs.JobInfo) (*ojs.JobInfo, error) {
	return j.eng.Codec.DecodeJob(ctx, job)
}

// Readable returns a job decoded, and the job itself if that is not possible.
func (j *Jobs) Readable(ctx context.Context, job *ojs.JobInfo) *ojs.JobInfo {
	if j.eng.Codec != nil {
		if plain, err := j.Decode(ctx, job); err == nil {
			return plain
		}
	}
	return job
}

// Step reads a job of a workflow, decoded if that is possible.
func (j *Jobs) Step(ctx context.Context, id string) (*ojs.JobInfo, error) {
	rec, err := j.Record(ctx, id)
	if err != nil {
		return nil, err
	}
	return j.Readable(ctx, &rec.JobInfo), nil
}

// Timeline returns the life of a job. An unknown id gives ojs.ErrNotFound. It costs a
// lookup of the job: its record has it all.
func (j *Jobs) Timeline(ctx context.Context, id string) (*Timeline, error) {
	rec, err := j.source.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return TimelineOf(&rec, j.Now()), nil
}

// Logs returns what the last attempts of a job have logged, the oldest first, of engines
// with WithJobLogs. It costs one lookup, of at most 10 logs of 64 KiB. An unknown id
// gives ojs.ErrNotFound. If a log cannot be read, Logs returns the others with an error.
func (j *Jobs) Logs(ctx context.Context, id string) ([]AttemptLog, error) {
	stored, err := j.source.Logs(ctx, id)
	if err == nil && len(stored) == 0 {
		_, err = j.Record(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	return readLogs(id, stored)
}

// DecodeLog returns a log of a job with its lines decoded by the codecs. A log
// that is not encoded stays as it is. The error is a *codec.Error.
func (j *Jobs) DecodeLog(ctx context.Context, job *ojs.JobInfo, log AttemptLog) (AttemptLog, error) {
	if log.Encoded == nil {
		return log, nil
	}
	key, _ := job.Meta[codec.MetaKeyID].(string)
	return log.decoded(ctx, j.eng.Codec, key)
}

// List lists the jobs that f selects, in its order. Jobs come, go and change meanwhile:
// one that is stored and selected throughout, and keeps its place in the order, is listed
// exactly once. After an error, which ends the listing, the job is nil. It costs a look
// at every job that the order has, in pages.
func (j *Jobs) List(ctx context.Context, f Filter) iter.Seq2[*ojs.JobInfo, error] {
	return func(yield func(*ojs.JobInfo, error) bool) {
		for rec, err := range j.Records(ctx, f) {
			var job *ojs.JobInfo
			if err == nil {
				job = &rec.JobInfo
			}
			if !yield(job, err) {
				return
			}
		}
	}
}

// Records lists the jobs as List does, as they are stored.
func (j *Jobs) Records(ctx context.Context, f Filter) iter.Seq2[*storage.Record, error] {
	return func(yield func(*storage.Record, error) bool) {
		q, err := f.Query()
		if err != nil {
			yield(nil, err)
			return
		}
		for {
			page, err := j.RecordPage(ctx, &f, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Records {
				if !yield(&page.Records[i], nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Cursor = page.Next
		}
	}
}

// Page is a part of a listing.
type Page struct {
	Jobs   []*ojs.JobInfo
	Next   string // the cursor of the next page; "": this was the last
	Prev   string // the cursor of the page before; "": this was the first
	Looked int    // how many jobs were looked at for the page

	// Workers has for each of Jobs who claimed it last; "": it was never claimed. Of an
	// active job that is who holds it.
	Workers []string
}

// Page returns up to n jobs of a listing, 1 <= n <= 1000: the page whose cursor is given,
// Next or Prev of another one; "" is the first page. It is List for those who cannot hold
// an iterator, and as stable. A page costs a look at a bounded number of jobs, some
// thousands. It may have fewer jobs than n, or none, though more follow: Looked says how
// far it looked, and Next goes on from there. A cursor is good for as long as the storage
// is, with the filter it came from. A page that Prev leads to may begin a listing with
// fewer than n jobs. A storage that knows no order but OrderOldest has no Prev.
func (j *Jobs) Page(ctx context.Context, f Filter, cursor string, n int) (Page, error) {
	if n < 1 || n > 1000 {
		return Page{}, draft.Invalid("limit", "%d is not from 1 to 1000", n)
	}
	q, err := f.Query()
	if err != nil {
		return Page{}, err
	}
	q.Cursor, q.Limit = cursor, n
	page, err := j.RecordPage(ctx, &f, q)
	if err != nil {
		return Page{}, err
	}
	out := Page{Next: page.Next, Prev: page.Prev, Looked: page.Looked,
		Jobs: make([]*ojs.JobInfo, 0, len(page.Records)), Workers: make([]string, 0, len(page.Records))}
	for i := range page.Records {
		out.Jobs = append(out.Jobs, &page.Records[i].JobInfo)
		out.Workers = append(out.Workers, page.Records[i].Worker)
	}
	return out, nil
}

// Find returns a page as Page does, of the jobs of several pages: it looks further until
// it has n jobs, or has looked at more than the given number.
func (j *Jobs) Find(ctx context.Context, f Filter, cursor string, n, look int) (Page, error) {
	out, err := j.Page(ctx, f, cursor, n)
	for err == nil && out.Next != "" && len(out.Jobs) < n && out.Looked <= look {
		var more Page
		if more, err = j.Page(ctx, f, out.Next, n-len(out.Jobs)); err == nil {
			out.Jobs, out.Workers = append(out.Jobs, more.Jobs...), append(out.Workers, more.Workers...)
			out.Next, out.Looked = more.Next, out.Looked+more.Looked
		}
	}
	return out, err
}

// RecordPage returns a page of the query of a filter: List of the storage, or the jobs
// that the filter names by their ids. The cursors of these are places among the ids.
func (j *Jobs) RecordPage(ctx context.Context, f *Filter, q storage.Query) (page storage.Page, err error) {
	if !f.ByID() {
		return j.source.List(ctx, q)
	}
	at := 0
	if q.Cursor != "" {
		if at, err = strconv.Atoi(q.Cursor); err != nil || at < 0 {
			return page, draft.Invalid("cursor", "%q is not of a page of this filter", q.Cursor)
		}
	}
	limit := cmp.Or(q.Limit, 1000)
	if at > 0 {
		page.Prev = strconv.Itoa(max(at-limit, 0))
	}
	for end := at + limit; at < len(f.IDs) && at < end; at++ {
		if slices.Contains(f.IDs[:at], f.IDs[at]) {
			continue
		}
		page.Looked++
		switch rec, err := j.Record(ctx, f.IDs[at]); {
		case err == nil && q.Matches(&rec):
			page.Records = append(page.Records, rec)
		case err != nil && !foreign.Is(err, ojs.ErrNotFound) && !foreign.Is(err, ojs.ErrPruned):
			return page, err
		}
	}
	if at < len(f.IDs) {
		page.Next = strconv.Itoa(at)
	}
	return page, nil
}

// Now is the time as storages keep it, by the clock of the engines.
func (j *Jobs) Now() time.Time { return j.clock.Now().UTC().Round(0) }
