package engine

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/bridge"
)

// registry holds the handlers of an engine. Each job comes by several times, so a lookup
// takes no lock.
type registry struct {
	mu       sync.Mutex // held while handlers are added
	handlers atomic.Pointer[handlers]
	unknown  sync.Map // of job types that were enqueued without a handler to their *jobType
}

// handlers is the set at one time. It is replaced, never changed.
type handlers struct {
	byType map[string]*jobType
	types  []string // sorted
}

// jobType is what an engine knows of a type of jobs.
type jobType struct {
	handler handler.Handler // inside the engine's middlewares
	frame   func() internal.Frame
	given   handler.Handler // as it was registered
	handled bool            // there is a handler
	plan    atomic.Pointer[plan]
	cut     atomic.Bool // it has been logged that a retry delay of the type was cut
}

func (c *core) register(added []handler.Handler) error {
	r := &c.registry
	r.mu.Lock()
	all := maps.Clone(r.handlers.Load().byType)
	if all == nil {
		all = make(map[string]*jobType)
	}
	for _, h := range added {
		if h.Type() == "" {
			r.mu.Unlock()
			return invalid("handler", "is the zero Handler; use handler.For")
		}
		if _, twice := all[h.Type()]; twice {
			r.mu.Unlock()
			return invalid("handler", fmt.Sprintf("job type %s has one already", h.Type()))
		}
		all[h.Type()] = &jobType{handler: c.wrap(h), frame: insideHandlers.Frames(h), given: h, handled: true}
	}
	for _, h := range added {
		if n := h.Concurrency(); n > 0 {
			c.gate.limitType(h.Type(), n)
		}
	}
	r.handlers.Store(&handlers{byType: all, types: slices.Sorted(maps.Keys(all))})
	r.mu.Unlock()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.available(unknown)
	return nil
}

var insideHandlers = bridge.Take[bridge.Handlers[handler.Handler, handler.Middleware, internal.Frame]]()

// wrap puts the engine's middlewares around a handler, and handler.Recover inside of
// them, so that they see a panic as an error. Without any, the engine itself recovers.
func (c *core) wrap(h handler.Handler) handler.Handler {
	if len(c.middleware) == 0 {
		return h
	}
	return insideHandlers.Wrap(h, append(slices.Clone(c.middleware), handler.Recover))
}

// lookup returns what is known of a job type; its handler is the zero one if there is
// none.
func (r *registry) lookup(name string) *jobType {
	if t := r.handlers.Load().byType[name]; t != nil {
		return t
	}
	return &unhandled
}

var unhandled jobType

// handled returns the types that have a handler.
func (r *registry) handled() []string { return r.handlers.Load().types }

// jobType finds what is known of a type of jobs to enqueue. It refuses a name that no
// type can have.
func (c *core) jobType(name string) (*jobType, error) {
	r := &c.registry
	if t := r.handlers.Load().byType[name]; t != nil {
		return t, nil
	}
	if t, ok := r.unknown.Load(name); ok {
		return t.(*jobType), nil
	}
	if err := ojs.ValidateType(name); err != nil {
		return nil, err
	}
	t, said := r.unknown.LoadOrStore(name, new(jobType))
	if !said && len(r.handled()) > 0 { // or the engine is there only to enqueue
		c.log.Warn("job type enqueued without a handler in this engine", "job_type", name)
	}
	return t.(*jobType), nil
}
