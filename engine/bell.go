package engine

import "sync/atomic"

// bell wakes all goroutines that wait for something to happen. The zero bell is ready.
type bell struct{ ch atomic.Pointer[chan struct{}] }

// hear returns a channel that the next ring closes.
func (b *bell) hear() <-chan struct{} {
	for {
		if ch := b.ch.Load(); ch != nil {
			return *ch
		}
		ch := make(chan struct{})
		if b.ch.CompareAndSwap(nil, &ch) {
			return ch
		}
	}
}

func (b *bell) ring() {
	if b.ch.Load() == nil {
		return
	}
	if ch := b.ch.Swap(nil); ch != nil {
		close(*ch)
	}
}
