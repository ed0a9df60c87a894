package engine

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
)

// registry holds the handlers of an engine. Each job comes by several times, so a lookup
// takes no lock.
type registry struct {
	mu       sync.Mutex // held while handlers are added and their limits stored
	handlers atomic.Pointer[handlers]
	unknown  sync.Map // of job types that were enqueued without a handler to their *jobType
}

// handlers is the set at one time. It is replaced, never changed.
type handlers struct {
	byType map[string][]*jobType // those of a type in the order of their registration
	types  []string              // sorted
	claims []string              // as claims name them
}

// jobType is what an engine knows of a type of jobs.
type jobType struct {
	handler handler.Handler // inside the engine's middlewares
	frame   func() internal.Frame
	given   handler.Handler // as it was registered
	handled bool            // there is a handler
	plan    atomic.Pointer[plan]
	cut     atomic.Bool // it has been logged that a retry delay of the type was cut
	warned  atomic.Bool // it has been logged that the type has no handler

	takes    versions.Range // the versions that the handler runs
	patterns []string       // what claims name it by; the first names its limit in the gate
}

func (c *core) register(added []handler.Handler) error {
	r := &c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	set := &handlers{byType: maps.Clone(r.handlers.Load().byType)}
	if set.byType == nil {
		set.byType = make(map[string][]*jobType)
	}
	var news []*jobType
	for _, h := range added {
		if h.Type() == "" {
			return invalid("handler", "is the zero Handler; use handler.For")
		}
		t := &jobType{handler: c.wrap(h), frame: insideHandlers.Frames(h), given: h, handled: true}
		if err := set.add(c, t); err != nil {
			return err
		}
		news = append(news, t)
	}
	for _, t := range news {
		if n := t.given.Concurrency(); n > 0 {
			c.gate.limitType(t.patterns, n)
		}
	}
	set.types = slices.Sorted(maps.Keys(set.byType))
	for _, t := range set.all() {
		set.claims = append(set.claims, t.patterns...)
	}
	limited := c.runs()
	if limited { // before a claim names the types
		c.setTypeLimits(context.Background(), news)
	}
	r.handlers.Store(set)
	if !limited && c.runs() { // Run has begun in between
		c.setTypeLimits(context.Background(), news)
	}
	c.available(unknown)
	return nil
}

// runs reports whether the engine runs.
func (c *core) runs() bool { return c.run.Load() != nil }

var insideHandlers = bridge.Take[bridge.Handlers[handler.Handler, handler.Middleware, internal.Frame]]()

// wrap puts the engine's middlewares around a handler, and handler.Recover inside of
// them, so that they see a panic as an error. Without any, the engine itself recovers.
func (c *core) wrap(h handler.Handler) handler.Handler {
	if len(c.middleware) == 0 {
		return h
	}
	return insideHandlers.Wrap(h, append(slices.Clone(c.middleware), handler.Recover))
}

// lookup returns what is known of a version of a job type; its handler is the zero one if
// there is none.
func (r *registry) lookup(name, version string) *jobType {
	if t := r.handlers.Load().find(name, version); t != nil {
		return t
	}
	return &unhandled
}

var unhandled jobType

// handled returns the types that have a handler, as claims name them.
func (r *registry) handled() []string { return r.handlers.Load().claims }

// limitName is what the limit of a job's handler goes by in the gate.
func (r *registry) limitName(rec *storage.Record) string {
	if t := r.handlers.Load().find(rec.Type, rec.TypeVersion); t != nil && len(t.patterns) > 0 {
		return t.patterns[0]
	}
	return ""
}

// jobType finds what is known of a type of jobs to enqueue. It refuses a name that no
// type can have.
func (c *core) jobType(name string) (*jobType, error) {
	r := &c.registry
	if list := r.handlers.Load().byType[name]; len(list) == 1 {
		return list[0], nil
	} else if len(list) > 1 { // the defaults of none of them hold for jobs enqueued by the name
		t, _ := r.unknown.LoadOrStore(name, new(jobType))
		return t.(*jobType), nil
	}
	if t, ok := r.unknown.Load(name); ok {
		return t.(*jobType), nil
	}
	if err := ojs.ValidateType(name); err != nil {
		return nil, err
	}
	t, _ := r.unknown.LoadOrStore(name, new(jobType))
	return t.(*jobType), nil
}

// warnUnhandled logs, once for each type, that jobs are enqueued that no handler of this
// engine takes. An engine without handlers that does not run is there only to enqueue,
// and does not warn.
func (c *core) warnUnhandled(t *jobType, name string) {
	if t.warned.Load() || len(c.registry.handlers.Load().byType[name]) > 0 {
		return
	}
	if (len(c.registry.handled()) > 0 || c.runs()) && !t.warned.Swap(true) {
		c.log.Warn("job type enqueued without a handler in this engine", "job_type", name)
	}
}

// argsType is what the handler of the type takes, nil if there is none.
func (t *jobType) argsType() reflect.Type {
	if !t.handled {
		return nil
	}
	return t.handler.ArgsType()
}
