package scheduler

import (
	"iter"
	"math"
	"time"
)

// Item is an entry of a Heap. It belongs to the caller, and may be embedded in a larger
// struct, so that a Push allocates nothing. An item is in one heap at a time.
type Item[T any] struct {
	Value T
	index uint32 // in the heap's slots, plus 1; 0: in none
}

// Queued reports whether the item is in a heap.
func (it *Item[T]) Queued() bool { return it.index != 0 }

// Heap orders items by due time, and items of the same time by the order of their pushes.
// Push and Remove cost the logarithm of its length, and almost nothing for an item due
// last. The zero Heap is empty and ready. It is not safe for concurrent use.
//
// Times outside the years 1678 to 2262 are clamped to them.
type Heap[T any] struct {
	slots []slot[T]
	turn  int64 // of the latest push
}

// slot holds what is compared beside the item, so that no comparison touches the item.
type slot[T any] struct {
	Place
	item *Item[T]
}

// Place is where an item is in the order of a heap.
type Place struct {
	Due  int64 // in ns since 1970
	Turn int64 // numbers the pushes
}

func (p Place) before(q *Place) bool { return p.Due < q.Due || p.Due == q.Due && p.Turn < q.Turn }

// arity 4: half the levels of a binary heap, and the children of a slot lie together.
const arity = 4

// Len returns the number of items.
func (h *Heap[T]) Len() int { return len(h.slots) }

// Push adds an item, or moves it if it is in the heap. In both cases it comes after the
// items of the same due time.
func (h *Heap[T]) Push(it *Item[T], due time.Time) {
	h.turn++
	s := slot[T]{Place{nanos(due), h.turn}, it}
	if it.index == 0 {
		h.slots = append(h.slots, s)
		h.up(len(h.slots)-1, s)
		return
	}
	h.fix(int(it.index-1), s)
}

// Move changes the due time of an item. Among items of the same time, the order of their
// pushes counts. An item that is in no heap is pushed.
func (h *Heap[T]) Move(it *Item[T], due time.Time) {
	if it.index == 0 {
		h.Push(it, due)
		return
	}
	i := int(it.index - 1)
	h.fix(i, slot[T]{Place{nanos(due), h.slots[i].Turn}, it})
}

// Remove takes an item out. It reports whether the item was in.
func (h *Heap[T]) Remove(it *Item[T]) bool {
	if it.index == 0 {
		return false
	}
	h.removeAt(int(it.index - 1))
	return true
}

// Next returns when the first item is due, false if there is none.
func (h *Heap[T]) Next() (due time.Time, ok bool) {
	if len(h.slots) == 0 {
		return time.Time{}, false
	}
	return timeOf(h.slots[0].Due), true
}

// PopDue removes the first item if it is due at now.
func (h *Heap[T]) PopDue(now time.Time) (*Item[T], bool) {
	if len(h.slots) == 0 || h.slots[0].Due > nanos(now) {
		return nil, false
	}
	it := h.slots[0].item
	h.removeAt(0)
	return it, true
}

// Due yields the items that are due at now, in no order. It costs a look at each of them
// and at few others. The heap does not change meanwhile.
func (h *Heap[T]) Due(now time.Time) iter.Seq[*Item[T]] {
	return func(yield func(*Item[T]) bool) { h.yieldDue(0, nanos(now), yield) }
}

// yieldDue yields the slot i and those below it, which are due later.
func (h *Heap[T]) yieldDue(i int, now int64, yield func(*Item[T]) bool) bool {
	if i >= len(h.slots) || h.slots[i].Due > now {
		return true
	}
	if !yield(h.slots[i].item) {
		return false
	}
	for c := arity*i + 1; c <= arity*i+arity; c++ {
		if !h.yieldDue(c, now, yield) {
			return false
		}
	}
	return true
}

func (h *Heap[T]) removeAt(i int) {
	h.slots[i].item.index = 0
	last := len(h.slots) - 1
	s := h.slots[last]
	h.slots[last] = slot[T]{}
	h.slots = h.slots[:last]
	if i < last {
		h.fix(i, s)
	}
	if c := cap(h.slots); c > 1024 && last < c/4 { // free the memory of a past peak
		h.slots = append(make([]slot[T], 0, c/2), h.slots...)
	}
}

// fix puts s in the place of slot i.
func (h *Heap[T]) fix(i int, s slot[T]) {
	if i > 0 && s.before(&h.slots[(i-1)/arity].Place) {
		h.up(i, s)
	} else {
		h.down(i, s)
	}
}

func (h *Heap[T]) up(i int, s slot[T]) {
	for i > 0 {
		parent := (i - 1) / arity
		if !s.before(&h.slots[parent].Place) {
			break
		}
		h.set(i, h.slots[parent])
		i = parent
	}
	h.set(i, s)
}

func (h *Heap[T]) down(i int, s slot[T]) {
	for {
		first := arity*i + 1
		if first >= len(h.slots) {
			break
		}
		least := first
		for c := first + 1; c < min(first+arity, len(h.slots)); c++ {
			if h.slots[c].before(&h.slots[least].Place) {
				least = c
			}
		}
		if !h.slots[least].before(&s.Place) {
			break
		}
		h.set(i, h.slots[least])
		i = least
	}
	h.set(i, s)
}

func (h *Heap[T]) set(i int, s slot[T]) {
	h.slots[i] = s
	s.item.index = uint32(i + 1)
}

var (
	earliest = time.Unix(0, math.MinInt64)
	latest   = time.Unix(0, math.MaxInt64)
)

func nanos(t time.Time) int64 {
	switch {
	case t.Before(earliest):
		return math.MinInt64
	case t.After(latest):
		return math.MaxInt64
	}
	return t.UnixNano()
}

func timeOf(ns int64) time.Time { return time.Unix(0, ns).UTC() }
