// Package notify has the listeners of a storage in one process, for storage.Notifier.
package notify

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ojsengine/ojs/storage"
)

// Hub hands notices to its listeners. Its zero value is ready.
type Hub struct {
	mu        sync.Mutex // one change of listeners at a time
	listeners atomic.Pointer[[]*listener]
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
	h.change(func(all []*listener) []*listener { return append(all, l) })
	return func() {
		h.change(func(all []*listener) []*listener {
			return slices.DeleteFunc(all, func(other *listener) bool { return other == l })
		})
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stopped = true
	}
}

func (h *Hub) change(f func([]*listener) []*listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := f(slices.Clone(h.all()))
	h.listeners.Store(&all)
}

func (h *Hub) all() []*listener {
	if all := h.listeners.Load(); all != nil {
		return *all
	}
	return nil
}

// HasListeners reports whether there is a listener.
func (h *Hub) HasListeners() bool { return len(h.all()) > 0 }

// Heard reports whether a listener other than the caller of ctx exists: whether it is
// worth while to make a notice.
func (h *Hub) Heard(ctx context.Context) bool {
	return h.HasListeners() && h.HeardFrom(storage.Caller(ctx))
}

// HeardFrom is Heard for the calls of self; a nil self is no listener.
func (h *Hub) HeardFrom(self any) bool {
	for _, l := range h.all() {
		if l.self != self {
			return true
		}
	}
	return false
}

// Tell hands a notice to every listener but the caller of ctx. No lock may be held that a
// call of the storage takes.
func (h *Hub) Tell(ctx context.Context, n storage.Notice) {
	if h.HasListeners() {
		h.TellFrom(storage.Caller(ctx), n)
	}
}

// TellFrom is Tell for the calls of self; a nil self is no listener.
func (h *Hub) TellFrom(self any, n storage.Notice) {
	if n.Empty() {
		return
	}
	for _, l := range h.all() {
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
