package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cursor"
	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
)

const (
	maxPage = 1000
	// A page ends after looking at this many jobs even if it is not full, so that a
	// listing which matches few of very many does not hold up the others.
	maxLook = 4096
	// It is fewer in the order of due times, for which the page searches a heap, and for
	// a query with a function, which may take longer.
	maxLookLong = 1024
)

// List implements storage.Storage.
func (s *Storage) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	w, err := cursor.Begin(q.Cursor)
	if err != nil {
		return storage.Page{}, err
	}
	if !q.Order.Valid() {
		return storage.Page{}, fmt.Errorf("%w: memory storage has no order %q", ojs.ErrUnsupported, q.Order)
	}
	if err := s.enter(ctx); err != nil {
		return storage.Page{}, err
	}
	defer s.leave()
	limit := q.Limit
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	look := maxLook
	if q.Order == storage.OrderDue || q.Where != nil {
		look = maxLookLong
	}
	var page storage.Page
	for at, j := range s.walk(&q, &w) {
		if len(page.Records) == limit || page.Looked == look {
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
func (s *Storage) walk(q *storage.Query, w *cursor.Walk) iter.Seq2[cursor.Position, *job] {
	switch q.Order {
	case storage.OrderFinished:
		return s.byEnd(q, w)
	case storage.OrderDue:
		return s.byDue(w)
	case storage.OrderClaim:
		return s.ready.byClaim(w)
	}
	x, newest := &s.all, q.Order == storage.OrderNewest
	switch {
	case q.DeadLetters:
		x = &s.dead
	case q.OnlyActive():
		x = s.activeByInsertion()
	}
	return func(yield func(cursor.Position, *job) bool) {
		at, list := w.From.After[0], x.from
		if newest != w.From.Back {
			list = x.until
		}
		switch {
		case w.First && newest:
			at = math.MaxInt64
		case newest:
			at = max(at, 1) - 1
		}
		for e := range list(at, math.MaxUint64) {
			if !yield(cursor.Position{e.at}, e.job) {
				return
			}
		}
	}
}

// activeByInsertion makes an index of the active jobs alone. It sorts them: they are few.
func (s *Storage) activeByInsertion() *index {
	jobs := make([]*job, 0, s.running.n)
	for j := s.running.first; j != nil; j = j.next {
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(a.ord, b.ord) })
	x := new(index)
	for _, j := range jobs {
		x.add(int64(j.ord), j)
	}
	return x
}

// byEnd is walk in the order storage.OrderFinished: the lists of finished jobs as one.
func (s *Storage) byEnd(q *storage.Query, w *cursor.Walk) iter.Seq2[cursor.Position, *job] {
	lists := []*index{&s.held}
	for c := range classes {
		of := len(q.States) == 0 || slices.Contains(q.States, stateOf(c))
		if of && (!q.DeadLetters || c == deadLetter) {
			lists = append(lists, &s.ended[c])
		}
	}
	at, turn := w.From.After[0], uint64(max(w.From.After[1], 1))
	if w.First {
		at, turn = math.MaxInt64, math.MaxUint64
	}
	return func(yield func(cursor.Position, *job) bool) {
		type head struct {
			entry
			next func() (entry, bool)
		}
		var heads []*head
		for _, x := range lists {
			jobs := x.until(at, turn-1)
			if w.From.Back {
				jobs = x.from(at, turn-1)
			}
			next, stop := iter.Pull(jobs)
			defer stop()
			if e, ok := next(); ok {
				heads = append(heads, &head{e, next})
			}
		}
		for len(heads) > 0 {
			i := 0
			for k := range heads {
				if heads[k].before(&heads[i].entry) == w.From.Back && k != i {
					i = k
				}
			}
			h := heads[i]
			if !yield(cursor.Position{h.at, int64(h.job.turn)}, h.job) {
				return
			}
			var ok bool
			if h.entry, ok = h.next(); !ok {
				heads = slices.Delete(heads, i, i+1)
			}
		}
	}
}

// byDue is walk in the order storage.OrderDue.
func (s *Storage) byDue(w *cursor.Walk) iter.Seq2[cursor.Position, *job] {
	return func(yield func(cursor.Position, *job) bool) {
		at, list := scheduler.Place{Due: w.From.After[0], Turn: w.From.After[1]}, s.due.List
		if w.First {
			at.Due = math.MinInt64
		} else if w.From.Back {
			list = s.due.ListBack
		}
		for _, l := range list(at, maxLookLong+1) {
			if !yield(cursor.Position{l.Due, l.Turn}, l.Item.Value) {
				return
			}
		}
	}
}
