package memory

import (
	"context"
	"fmt"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// personal is the storage for one caller, such as an engine. The caller is not told of
// what it does by the methods of personal. The caller of a method of store is the
// context's.
type personal struct {
	*store
	by    any  // the caller, if bound is set; nil: unknown
	bound bool // or else the caller of each call is in its context
}

// Bind implements storage.Binder.
func (s *Storage) Bind(caller any, asked storage.Storage) storage.Storage {
	if asked != storage.Storage(s) {
		return nil
	}
	return personal{s.store, caller, true}
}

// caller returns the caller of a call. It is nil if nothing is known of it, and without
// listeners.
func (s personal) caller(ctx context.Context) any {
	if s.bound || !s.hub.HasListeners() {
		return s.by
	}
	return storage.Caller(ctx)
}

// enter locks the storage for a call, unless the call must fail, and takes in what waits
// in the inbox.
func (s personal) enter(ctx context.Context) error {
	err := s.enterAhead(ctx)
	if err == nil {
		s.takeIn()
	}
	return err
}

// enter locks the storage for a call whose caller is that of the context.
func (s *store) enter(ctx context.Context) error { return personal{store: s}.enter(ctx) }

// enterAhead is enter that leaves the inbox as it is.
func (s personal) enterAhead(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	self := s.caller(ctx)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("%w: memory storage", ojs.ErrClosed)
	}
	s.heard, s.self = s.hub.HeardFrom(self), self
	return nil
}
