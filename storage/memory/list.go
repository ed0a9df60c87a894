package memory

import (
	"context"
	"iter"
	"math"
	"slices"
	"time"

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
	// A listing in the order of claims has this many jobs at most: each page walks to its
	// place from the first of them.
	maxReady = 10_000
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
	// A cursor may be of a time that the query does not list.
	if back && (w.First || at > last) {
		at, turn = last, math.MaxUint64
	} else if !back && (w.First || at < first) {
		at, turn = first, 0
	}
	readers, all := make([]*reader, len(of)), make([]reader, len(of))
	for i, x := range of {
		all[i] = x.from(at, turn, back)
		readers[i] = &all[i]
	}
	return func(yield func(cursor.Position, *job) bool) {
		for e := range merged(readers) {
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

// byClaim goes through the available jobs in the order storage.OrderClaim.
func (r *ready) byClaim(w *cursor.Walk) iter.Seq2[cursor.Position, *job] {
	position := func(j *job) cursor.Position {
		return cursor.Position{-int64(j.priority), int64(j.stands()), int64(j.readySeq)}
	}
	passed := func(at cursor.Position) bool { return slices.Compare(at[:], w.From.After[:]) <= 0 }
	r.bringBack(time.Time{})
	var lists []*levelReader
	for _, q := range r.queues {
		for l := range q.lists() {
			lists = append(lists, &levelReader{following: l.head})
		}
	}
	return func(yield func(cursor.Position, *job) bool) {
		var before []*job // the cursor of a walk back
		n := 0
		for l := range merged(lists) {
			at := position(l.job)
			if n++; n > maxReady || w.From.Back && !passed(at) {
				break
			}
			if w.From.Back {
				before = append(before, l.job)
			} else if (w.First || !passed(at)) && !yield(at, l.job) {
				return
			}
		}
		for _, j := range slices.Backward(before) {
			if !yield(position(j), j) {
				return
			}
		}
	}
}

// levelReader goes through a level, which does not change meanwhile.
type levelReader struct {
	job       *job // that next has come to
	following *job
}

func (r *levelReader) next() bool {
	if r.job = r.following; r.job == nil {
		return false
	}
	r.following = r.job.next
	return true
}

func (r *levelReader) before(other *levelReader) bool { return comesBefore(r.job, other.job) }
func (r *levelReader) moved(int)                      {} // only the first of the heap is changed

// lister goes through a list in the order of before: next comes to the next of its jobs,
// and reports whether there is one.
type lister[L any] interface {
	heapItem[L]
	next() bool
}

// merged goes through several lists as one.
func merged[L lister[L]](lists []L) iter.Seq[L] {
	return func(yield func(L) bool) {
		var heads heap[L]
		for _, l := range lists {
			if l.next() {
				heads.push(l)
			}
		}
		for heads.len() > 0 {
			l := heads.items[0]
			if !yield(l) {
				return
			}
			if l.next() {
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
