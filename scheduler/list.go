package scheduler

import "slices"

// Listed is an item of a listing and its place.
type Listed[T any] struct {
	Place
	Item *Item[T]
}

// List returns the first n items after a place, in their order; fewer if there are fewer.
// It costs a look at each item up to the last that it returns, and at few others.
func (h *Heap[T]) List(after Place, n int) []Listed[T] {
	return h.list(n, func(p *Place) bool { return after.before(p) }, true)
}

// ListBack returns the last n items up to a place, and at it, the last first; fewer if
// there are fewer. It costs a look at each of the items before the place.
func (h *Heap[T]) ListBack(until Place, n int) []Listed[T] {
	return h.list(n, func(p *Place) bool { return !until.before(p) }, false)
}

// list returns the n items in the range that are the first, or the last.
func (h *Heap[T]) list(n int, in func(*Place) bool, first bool) []Listed[T] {
	worse := func(p, q *Place) bool { return first == q.before(p) } // p is further from the begin of the listing
	var best []Listed[T]                                            // a heap, the worst at its top
	down := func(i int, e Listed[T]) {
		for {
			child := 2*i + 1
			if child >= len(best) {
				break
			}
			if right := child + 1; right < len(best) && worse(&best[right].Place, &best[child].Place) {
				child = right
			}
			if !worse(&best[child].Place, &e.Place) {
				break
			}
			best[i] = best[child]
			i = child
		}
		best[i] = e
	}
	var visit func(i int)
	visit = func(i int) {
		s := &h.slots[i]
		full, within := len(best) == n, in(&s.Place)
		if first && full && worse(&s.Place, &best[0].Place) || !first && !within {
			return // as all below it
		}
		if e := (Listed[T]{s.Place, s.item}); within && !full {
			best = append(best, e)
			if len(best) == n {
				for k := n/2 - 1; k >= 0; k-- {
					down(k, best[k])
				}
			}
		} else if within && worse(&best[0].Place, &s.Place) {
			down(0, e)
		}
		for c := arity*i + 1; c < min(arity*i+1+arity, len(h.slots)); c++ {
			visit(c)
		}
	}
	if n > 0 && len(h.slots) > 0 {
		visit(0)
	}
	slices.SortFunc(best, func(a, b Listed[T]) int {
		if worse(&a.Place, &b.Place) {
			return 1
		}
		return -1
	})
	return best
}
