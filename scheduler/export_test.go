package scheduler

// Cap tells tests how many slots the heap holds on to.
func (h *Heap[T]) Cap() int { return cap(h.slots) }
