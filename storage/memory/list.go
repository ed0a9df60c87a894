package memory

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cursor"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

const (
	// A page ends after looking at this many jobs even if it is not full, so that a
	// listing which matches few of very many does not hold up the others.
	maxLook = 4096
	// It is fewer in the order of due times, for which the page searches a heap, and for
	// a query with a function, which may take longer.
	maxLookLong = 1024
)

// List implements storage.Storage.
func (s personal) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	w, err := rule.Begin("memory", &q)
	if err != nil {
		return storage.Page{}, err
	}
	if err := s.enter(ctx); err != nil {
		return storage.Page{}, err
	}
	defer s.leave()
	look := maxLook
	if q.Order == storage.OrderDue || q.Where != nil {
		look = maxLookLong
	}
	var page storage.Page
	for at, j := range s.walk(&q, &w) {
		if len(page.Records) == q.Limit || page.Looked == look {
			w.Stop(at)
			break
		}
		page.Looked++
		w.Pass(at)
		if !q.MayMatch(j.current(), j.kind.queue, j.kind.jobType) {
			continue
		}
		if r := j.record(); q.Matches(&r) {
			page.Records = append(page.Records, r)
		}
	}
	if w.From.Back {
		slices.Reverse(page.Records)
	}
	page.Prev, page.Next = w.Ends()
	return page, nil
}

// walk goes through the jobs in the order of a query, from where a page begins: at least
// one more than a page looks at, if there are so many.
func (s *store) walk(q *storage.Query, w *cursor.Walk) iter.Seq2[cursor.Position, *job] {
	of, timed := s.lists(q)
	switch {
	case of != nil && timed:
		return byTime(of, q, w)
	case of != nil:
		return inInsertion(of, q, w)
	case q.Order == storage.OrderDue:
		return s.byDue(w)
	}
	return s.ready.byClaim(w)
}

// lists returns the lists that have the jobs of a query, and whether they are by time.
// Without a list in the order, it returns nil.
func (s *store) lists(q *storage.Query) (of []*index, timed bool) {
	of = []*index{} // not nil
	switch {
	case q.ByError():
		for name, x := range s.failed {
			if (&storage.Query{Types: q.ErrorTypes}).MayMatch("", "", name) {
				of = append(of, x)
			}
		}
		return of, true
	case q.TimedRare():
		s.sections(q, func(x *section, state int) {
			if states[state].Terminal() == (q.Order == storage.OrderFinished) {
				of = append(of, &x.rare[state].timed)
			}
		})
		return of, true
	case q.Order == storage.OrderFinished:
		for c := range classes {
			if c.among(q.States) && (!q.DeadLetters || c == deadLetter) {
				of = append(of, &s.finished[ended][c], &s.finished[held][c])
			}
		}
		return of, true
	case q.Order == storage.OrderDue || q.Order == storage.OrderClaim:
		return nil, false
	case q.DeadLetters:
		s.sections(q, func(x *section, state int) {
			if dead := &x.rare[state].dead; dead.n > 0 {
				of = append(of, dead)
			}
		})
	case q.Workflow != "":
		if x := s.workflows[q.Workflow]; x != nil {
			of = append(of, x)
		}
	case q.OfRare():
		s.sections(q, func(x *section, state int) { of = append(of, &x.rare[state].inserted) })
		if slices.Contains(q.States, ojs.StateActive) {
			of = append(of, s.activeOf(q))
		}
	case q.Keepers:
		of = append(of, &s.keepers)
	default:
		of = append(of, &s.all)
	}
	return of, false
}

// activeOf makes a list of the active jobs that a query may select. It sorts them: they
// are few.
func (s *store) activeOf(q *storage.Query) *index {
	var jobs []*job
	for j := s.running.head; j != nil; j = j.next {
		if q.MayMatch(j.current(), j.kind.queue, j.kind.jobType) {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(a.ord, b.ord) })
	x := new(index)
	for _, j := range jobs {
		x.add(int64(j.ord), j)
	}
	return x
}

// inInsertion goes through lists by job.ord, or by job.turn, in an order of insertion.
func inInsertion(of []*index, q *storage.Query, w *cursor.Walk) iter.Seq2[cursor.Position, *job] {
	newest := q.Order == storage.OrderNewest
	at := w.From.After[0]
	switch {
	case w.First && newest:
		at = math.MaxInt64
	case newest:
		at = max(at, 1) - 1
	}
	return merged(of, at, math.MaxUint64, newest != w.From.Back, func(e *entry) cursor.Position {
		return cursor.Position{e.at}
	})
}

// byTime goes through lists by job.timed in the order storage.OrderFinished, the latest
// first, or storage.OrderDue.
func byTime(of []*index, q *storage.Query, w *cursor.Walk) iter.Seq2[cursor.Position, *job] {
	latest := q.Order == storage.OrderFinished
	first, last := int64(math.MinInt64), int64(math.MaxInt64) // times that are listed
	if latest {
		first = rule.Nanos(q.FinishedFrom)
	}
	if before := q.FinishedBefore; latest && !before.IsZero() {
		if last = rule.Nanos(before); rule.Time(last).Equal(before) { // else jobs of before may be there
			last--
		}
	}
	at, turn := w.From.After[0], uint64(w.From.After[1])
	switch {
	case !w.First && latest:
		turn = max(turn, 1) - 1
	case w.First && latest:
		at, turn = last, math.MaxUint64
	case w.First:
		at, turn = first, 0
	}
	jobs := merged(of, at, turn, latest != w.From.Back, func(e *entry) cursor.Position {
		return cursor.Position{e.at, int64(e.job.turn)}
	})
	return func(yield func(cursor.Position, *job) bool) {
		for at, j := range jobs { // a cursor may be of times that are listed no more
			far := at[0] < first
			if latest == w.From.Back {
				far = at[0] > last
			}
			if far || at[0] >= first && at[0] <= last && !yield(at, j) {
				return
			}
		}
	}
}

// merged goes through the entries of several lists as one: those after a number and a
// turn, or back from those.
func merged(
	of []*index, at int64, turn uint64, back bool, position func(*entry) cursor.Position,
) iter.Seq2[cursor.Position, *job] {
	return func(yield func(cursor.Position, *job) bool) {
		var heads heap[*reader]
		all := make([]reader, len(of))
		for i, x := range of {
			if all[i] = x.from(at, turn, back); all[i].next() {
				heads.push(&all[i])
			}
		}
		for heads.len() > 0 {
			h := heads.items[0]
			if !yield(position(&h.entry), h.job) {
				return
			}
			if h.next() {
				heads.fix(0)
			} else {
				heads.remove(0)
			}
		}
	}
}

func (r *reader) before(other *reader) bool {
	if r.back {
		return other.entry.before(&r.entry)
	}
	return r.entry.before(&other.entry)
}

func (r *reader) moved(int) {}

// byDue is walk in the order storage.OrderDue, of all jobs.
func (s *store) byDue(w *cursor.Walk) iter.Seq2[cursor.Position, *job] {
	return func(yield func(cursor.Position, *job) bool) {
		at, list := scheduler.Place{Due: w.From.After[0], Turn: w.From.After[1]}, s.wakes[open].List
		if w.First {
			at.Due = math.MinInt64
		} else if w.From.Back {
			list = s.wakes[open].ListBack
		}
		for _, l := range list(at, maxLookLong+1) {
			if !yield(cursor.Position{l.Due, l.Turn}, l.Item.Value) {
				return
			}
		}
	}
}
