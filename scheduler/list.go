package scheduler

import (
	"cmp"
	"slices"
)

// Listed is an item of a listing and its place.
type Listed[T any] struct {
	Place
	Item *Item[T]
}

// List returns the first n items after a place, in their order; fewer if there are fewer.
// It costs a look at each item up to the last that it returns, and at few others.
func (h *Heap[T]) List(after Place, n int) []Listed[T] {
	l := listing[T]{slots: h.slots, cut: after, n: n, sign: 1}
	return l.list()
}

// ListBack returns the last n items up to a place, and at it, the last first; fewer if
// there are fewer. It costs a look at each of the items before the place.
func (h *Heap[T]) ListBack(until Place, n int) []Listed[T] {
	l := listing[T]{slots: h.slots, cut: until, n: n, sign: -1}
	return l.list()
}

// listing is a listing under way.
type listing[T any] struct {
	slots []slot[T]
	cut   Place
	n     int
	sign  int         // 1: forth, from after the cut; -1: back, from the cut
	best  []Listed[T] // once there are n, a heap with the last of the listing at its top
}

func (l *listing[T]) list() []Listed[T] {
	if l.n > 0 && len(l.slots) > 0 {
		l.best = make([]Listed[T], 0, min(l.n, len(l.slots)))
		l.visit(0)
	}
	slices.SortFunc(l.best, func(a, b Listed[T]) int {
		return l.sign * cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Turn, b.Turn))
	})
	return l.best
}

// later reports whether p comes after q in the listing.
func (l *listing[T]) later(p, q *Place) bool {
	if l.sign < 0 {
		p, q = q, p
	}
	return q.before(p)
}

// visit looks at the slot i and those below it, which come after it in the heap.
func (l *listing[T]) visit(i int) {
	s := &l.slots[i]
	within := l.cut.before(&s.Place) == (l.sign > 0)
	full := len(l.best) == l.n
	switch {
	case l.sign < 0 && !within, l.sign > 0 && full && l.best[0].before(&s.Place):
		return // as all below it
	case !within:
	case !full:
		if l.best = append(l.best, Listed[T]{s.Place, s.item}); len(l.best) == l.n {
			for k := l.n/2 - 1; k >= 0; k-- {
				l.down(k, l.best[k])
			}
		}
	case l.later(&l.best[0].Place, &s.Place):
		l.down(0, Listed[T]{s.Place, s.item})
	}
	for c := arity*i + 1; c < min(arity*i+1+arity, len(l.slots)); c++ {
		l.visit(c)
	}
}

// down puts e at i of best, or below.
func (l *listing[T]) down(i int, e Listed[T]) {
	for {
		child := 2*i + 1
		if child >= len(l.best) {
			break
		}
		if right := child + 1; right < len(l.best) && l.later(&l.best[right].Place, &l.best[child].Place) {
			child = right
		}
		if !l.later(&l.best[child].Place, &e.Place) {
			break
		}
		l.best[i] = l.best[child]
		i = child
	}
	l.best[i] = e
}
