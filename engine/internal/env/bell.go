package env

import (
	"sync/atomic"
)

// Bell wakes all goroutines that wait for something to happen. The zero bell is ready.
type Bell struct{ ch atomic.Pointer[chan struct{}] }

// Hear returns a channel that the next ring closes.
func (b *Bell) Hear() <-chan struct{} {
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

// Ring wakes all goroutines that wait on a channel of Hear.
func (b *Bell) Ring() {
	if b.ch.Load() == nil {
		return
	}
	if ch := b.ch.Swap(nil); ch != nil {
		close(*ch)
	}
}
