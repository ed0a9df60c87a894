package scheduler

import (
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
	due  int64 // in ns since 1970
	turn int64 // numbers the pushes
	item *Item[T]
}

func (s *slot[T]) before(o *slot[T]) bool { return s.due < o.due || s.due == o.due && s.turn < o.turn }

// arity 4: half the levels of a binary heap, and the children of a slot lie together.
const arity = 4

// Len returns the number of items.
func (h *Heap[T]) Len() int { return len(h.slots) }

// Push adds an item, or moves it if it is in the heap. In both cases it comes after the
// items of the same due time.
func (h *Heap[T]) Push(it *Item[T], due time.Time) {
	h.turn++
	s := slot[T]{nanos(due), h.turn, it}
	if it.index == 0 {
		h.slots = append(h.slots, s)
		h.up(len(h.slots)-1, s)
		return
	}
	h.fix(int(it.index-1), s)
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
	return timeOf(h.slots[0].due), true
}

// PopDue removes the first item if it is due at now.
func (h *Heap[T]) PopDue(now time.Time) (*Item[T], bool) {
	if len(h.slots) == 0 || h.slots[0].due > nanos(now) {
		return nil, false
	}
	it := h.slots[0].item
	h.removeAt(0)
	return it, true
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
	if i > 0 && s.before(&h.slots[(i-1)/arity]) {
		h.up(i, s)
	} else {
		h.down(i, s)
	}
}

func (h *Heap[T]) up(i int, s slot[T]) {
	for i > 0 {
		parent := (i - 1) / arity
		if !s.before(&h.slots[parent]) {
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
			if h.slots[c].before(&h.slots[least]) {
				least = c
			}
		}
		if !h.slots[least].before(&s) {
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
