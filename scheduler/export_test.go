package scheduler

import "unsafe"

// Bytes is what an item takes in a heap, its slot included.
const Bytes = unsafe.Sizeof(Item[int]{}) + unsafe.Sizeof(slot[int]{})

// Cap tells tests how many slots the heap holds on to.
func (h *Heap[T]) Cap() int { return cap(h.slots) }
