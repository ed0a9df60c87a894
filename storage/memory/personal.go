package memory

import (
	"context"

	"github.com/ojsengine/ojs/storage"
)

// personal is the storage for one caller, such as an engine, which is not told of what it
// does itself. Calls that others hear of are methods of personal.
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

// caller returns the caller of a call. It is nil if nothing is known of it.
func (s personal) caller(ctx context.Context) any {
	if s.bound {
		return s.by
	}
	return s.callerIn(ctx)
}

// callerIn returns the caller of a call in ctx. It is nil without listeners.
func (s *store) callerIn(ctx context.Context) any {
	if !s.hub.HasListeners() {
		return nil
	}
	return storage.Caller(ctx)
}
