package memory

import (
	"context"
	"iter"
	"math"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cursor"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

const (
	// A page ends after looking at this many jobs even if it is not full, so that a
	// listing which matches few of very many does not hold up the others.
	maxLook = 4096
	// It is fewer for a query with a function, which may take longer.
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
	if q.Where != nil {
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
	if q.Order == storage.OrderClaim {
		return s.ready.byClaim(w)
	}
	return inLists(s.lists(q), q, w)
}

// lists returns the lists that have the jobs of a query in its order, but for that of
// claims.
func (s *store) lists(q *storage.Query) (of []*index) {
	switch {
	case q.ByError():
		for name, x := range s.failed {
			if (&storage.Query{Types: q.ErrorTypes}).MayMatch("", "", name) {
				of = append(of, x)
			}
		}
	case q.TimedRare():
		s.sections(q, func(x *section, state int) {
			if states[state].Terminal() == (q.Order == storage.OrderFinished) {
				of = append(of, &x.rare[state].timed)
			}
		})
	case q.Order == storage.OrderFinished:
		for c := range classes {
			if c.among(q.States) && (!q.DeadLetters || c == deadLetter) {
				of = append(of, &s.finished[ended][c], &s.finished[held][c])
			}
		}
	case q.Order == storage.OrderDue:
		of = append(of, &s.wakes[open])
	case q.DeadLetters:
		s.sections(q, func(x *section, state int) { of = append(of, &x.rare[state].dead) })
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
	return of
}

// activeOf makes a list of the active jobs that a query may select, which are few.
func (s *store) activeOf(q *storage.Query) *index {
	x := new(index)
	for j := s.running.head; j != nil; j = j.next {
		if q.MayMatch(j.current(), j.kind.queue, j.kind.jobType) {
			x.add(int64(j.ord), j)
		}
	}
	return x
}

// inLists goes through lists as one: by job.timed and job.turn in the orders
// storage.OrderFinished, the latest first, and storage.OrderDue, else by the number of
// the lists, which is job.ord, or job.turn of dead letters.
func inLists(of []*index, q *storage.Query, w *cursor.Walk) iter.Seq2[cursor.Position, *job] {
	latest := q.Order == storage.OrderFinished || q.Order == storage.OrderNewest
	timed := q.Order == storage.OrderFinished || q.Order == storage.OrderDue
	first, last := int64(math.MinInt64), int64(math.MaxInt64) // numbers that are listed
	if q.Order == storage.OrderFinished {
		first = rule.Nanos(q.FinishedFrom)
	}
	if before := q.FinishedBefore; q.Order == storage.OrderFinished && !before.IsZero() {
		if last = rule.Nanos(before); rule.Time(last).Equal(before) { // else jobs of before may be there
			last--
		}
	}
	at, turn, back := w.From.After[0], uint64(w.From.After[1]), latest != w.From.Back
	if latest { // the cursor is behind its job
		turn = max(turn, 1) - 1
	} else if !timed {
		turn = math.MaxUint64
	}
	if back && (w.First || at > last) {
		at, turn = last, math.MaxUint64
	} else if !back && (w.First || at < first) {
		at, turn = first, 0
	}
	return func(yield func(cursor.Position, *job) bool) {
		for e := range merged(of, at, turn, back) {
			at := cursor.Position{e.at}
			if timed {
				at[1] = int64(e.job.turn)
			}
			if e.at < first || e.at > last || !yield(at, e.job) {
				return
			}
		}
	}
}

// merged goes through the entries of several lists as one: those after a number and a
// turn, or back from those.
func merged(of []*index, at int64, turn uint64, back bool) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		var heads heap[*reader]
		all := make([]reader, len(of))
		for i, x := range of {
			if all[i] = x.from(at, turn, back); all[i].next() {
				heads.push(&all[i])
			}
		}
		for heads.len() > 0 {
			h := heads.items[0]
			if !yield(&h.entry) {
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
