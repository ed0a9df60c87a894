package memory

// heap is a binary heap whose items know where they are, so that any of them can be moved
// or removed. container/heap would do; this one calls no interface method per comparison.
type heap[E heapItem[E]] struct{ items []E }

type heapItem[E any] interface {
	before(E) bool
	moved(to int)
}

func (h *heap[E]) len() int { return len(h.items) }

func (h *heap[E]) push(e E) {
	h.items = append(h.items, e)
	h.fix(len(h.items) - 1)
}

// fix restores the order after the item at i has changed.
func (h *heap[E]) fix(i int) {
	e := h.items[i]
	for i > 0 && e.before(h.items[(i-1)/2]) {
		h.set(i, h.items[(i-1)/2])
		i = (i - 1) / 2
	}
	for child := 2*i + 1; child < len(h.items); child = 2*i + 1 {
		if right := child + 1; right < len(h.items) && h.items[right].before(h.items[child]) {
			child = right
		}
		if !h.items[child].before(e) {
			break
		}
		h.set(i, h.items[child])
		i = child
	}
	h.set(i, e)
}

func (h *heap[E]) remove(i int) {
	last := len(h.items) - 1
	e := h.items[last]
	var none E
	h.items[last] = none
	h.items = h.items[:last]
	if i < last {
		h.items[i] = e
		h.fix(i)
	}
}

func (h *heap[E]) set(i int, e E) {
	h.items[i] = e
	e.moved(i)
}

// search asks found about the item at i and those below it, but not about those below one
// for which it holds. So it comes to the first item, in heap order, for which found
// holds.
func (h *heap[E]) search(i int, found func(E) bool) {
	if i >= len(h.items) || found(h.items[i]) {
		return
	}
	h.search(2*i+1, found)
	h.search(2*i+2, found)
}
