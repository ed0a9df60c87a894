// Package notify is what storages need to be a storage.Notifier within one process.
package notify

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/ojsengine/ojs/storage"
)

// Hub hands notices to those who listen. Its zero value is ready.
type Hub struct {
	mu        sync.Mutex // one change of listeners at a time
	listeners atomic.Pointer[map[*listener]struct{}]
}

type listener struct {
	self any
	f    func(storage.Notice)

	mu      sync.RWMutex // held for reading while f runs
	stopped bool
}

// Notify implements storage.Notifier.
func (h *Hub) Notify(self any, f func(storage.Notice)) (stop func()) {
	l := &listener{self: self, f: f}
	h.change(func(all map[*listener]struct{}) { all[l] = struct{}{} })
	return func() {
		h.change(func(all map[*listener]struct{}) { delete(all, l) })
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stopped = true
	}
}

func (h *Hub) change(f func(map[*listener]struct{})) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[*listener]struct{})
	if old := h.listeners.Load(); old != nil {
		maps.Copy(all, *old)
	}
	f(all)
	h.listeners.Store(&all)
}

// Heard reports whether anybody but the caller of ctx listens: whether it is worth while to make a notice.
func (h *Hub) Heard(ctx context.Context) bool {
	all := h.listeners.Load()
	if all == nil || len(*all) == 0 {
		return false
	}
	self := storage.Self(ctx)
	for l := range *all {
		if l.self != self {
			return true
		}
	}
	return false
}

// Tell hands a notice to everybody but the caller of ctx. No lock may be held that a call of the storage takes.
func (h *Hub) Tell(ctx context.Context, n storage.Notice) {
	all := h.listeners.Load()
	if all == nil || len(*all) == 0 || n.Empty() {
		return
	}
	self := storage.Self(ctx)
	for l := range *all {
		if l.self != self || self == nil {
			l.tell(n)
		}
	}
}

func (l *listener) tell(n storage.Notice) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.stopped {
		l.f(n)
	}
}
