// Package jobtypes knows the handlers and queues of an engine, and makes records of
// drafts.
//
// # Invariants
//
//  1. A set of handlers or of queues is replaced, never changed: a lookup takes no lock.
//  2. The handlers of a type have ranges of versions that do not overlap.
//  3. Making a record calls no storage.
package jobtypes

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/env"
	"github.com/ojsengine/ojs/handler"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Types are those of one engine. It is safe for concurrent use.
type Types struct {
	*env.Env
	Registry Registry
	Queues   atomic.Pointer[QueueSet]
	Defaults []ojs.Option
	Hooks    []func(context.Context, *ojs.Job[any]) error
	Retry    policy.Hook // of all types; nil: none
	Seeded   bool        // ids come from a given source
	Around   []handler.Middleware

	Runs          func() bool
	LimitHandler  func(patterns []string, n int)
	SetTypeLimits func(ctx context.Context, types []*JobType)

	unserved sync.Map // queues of which warnUnserved has warned
}

// Registry holds the handlers of an engine. Each job comes by several times, so a lookup
// takes no lock.
type Registry struct {
	mu       locks.Mutex // held while handlers are added and their limits stored
	Handlers atomic.Pointer[Handlers]
	unknown  sync.Map // of job types that were enqueued without a handler to their *JobType
}

// Handlers is the set at one time. It is replaced, never changed.
type Handlers struct {
	byType map[string][]*JobType // those of a type in the order of their registration
	types  []string              // sorted
	claims []string              // as claims name them
}

// JobType is what an engine knows of a type of jobs.
type JobType struct {
	Handler handler.Handler // inside the engine's middlewares
	Frame   func() internal.Frame
	Given   handler.Handler // as it was registered
	Handled bool            // there is a handler
	plan    atomic.Pointer[Plan]
	Cut     atomic.Bool // it has been logged that a retry delay of the type was cut
	warned  atomic.Bool // it has been logged that the type has no handler

	takes    versions.Range // the versions that the handler runs
	patterns []string       // what claims name it by; the first names its limit in the gate
}

// Register adds handlers, all or none.
func (c *Types) Register(added []handler.Handler) error {
	r := &c.Registry
	r.mu.Lock()
	defer r.mu.Unlock()
	set := &Handlers{byType: maps.Clone(r.Handlers.Load().byType)}
	if set.byType == nil {
		set.byType = make(map[string][]*JobType)
	}
	var news []*JobType
	for _, h := range added {
		if h.Type() == "" {
			return draft.Invalid("handler", "is the zero Handler; use handler.For")
		}
		t := &JobType{Handler: c.wrap(h), Frame: insideHandlers.Frames(h), Given: h, Handled: true}
		if err := set.add(c, t); err != nil {
			return err
		}
		news = append(news, t)
	}
	for _, t := range news {
		if n := t.Given.Concurrency(); n > 0 {
			c.LimitHandler(t.patterns, n)
		}
	}
	set.types = slices.Sorted(maps.Keys(set.byType))
	for _, t := range set.All() {
		set.claims = append(set.claims, t.patterns...)
	}
	limited := c.Runs()
	if limited { // before a claim names the types
		c.SetTypeLimits(context.Background(), news)
	}
	r.Handlers.Store(set)
	if !limited && c.Runs() { // Run has begun in between
		c.SetTypeLimits(context.Background(), news)
	}
	c.Available(env.Unknown)
	return nil
}

var insideHandlers = bridge.Take[bridge.Handlers[handler.Handler, handler.Middleware, internal.Frame]]()

// wrap puts the engine's middlewares around a handler, and handler.Recover inside of
// them, so that they see a panic as an error. Without any, the engine itself recovers.
func (c *Types) wrap(h handler.Handler) handler.Handler {
	if len(c.Around) == 0 {
		return h
	}
	return insideHandlers.Wrap(h, append(slices.Clone(c.Around), handler.Recover))
}

// Lookup returns what is known of a version of a job type; its handler is the zero one if
// there is none.
func (r *Registry) Lookup(name, version string) *JobType {
	if t := r.Handlers.Load().Find(name, version); t != nil {
		return t
	}
	return &unhandled
}

var unhandled JobType

// Handled returns the types that have a handler, as claims name them.
func (r *Registry) Handled() []string { return r.Handlers.Load().claims }

// LimitName is what the limit of a job's handler goes by in the gate.
func (r *Registry) LimitName(rec *storage.Record) string {
	if t := r.Handlers.Load().Find(rec.Type, rec.TypeVersion); t != nil && len(t.patterns) > 0 {
		return t.patterns[0]
	}
	return ""
}

// JobType finds what is known of a type of jobs to enqueue. It refuses a name that no
// type can have.
func (c *Types) JobType(name string) (*JobType, error) {
	r := &c.Registry
	// If there are several, the defaults of none hold for jobs enqueued by the name.
	if list := r.Handlers.Load().byType[name]; len(list) == 1 {
		return list[0], nil
	}
	if t, ok := r.unknown.Load(name); ok {
		return t.(*JobType), nil
	}
	if err := ojs.ValidateType(name); err != nil {
		return nil, err
	}
	t, _ := r.unknown.LoadOrStore(name, new(JobType))
	return t.(*JobType), nil
}

// WarnUnhandled logs, once for each type, that jobs are enqueued that no handler of this
// engine takes. An engine without handlers that does not run is there only to enqueue,
// and does not warn.
func (c *Types) WarnUnhandled(t *JobType, name string) {
	if t.warned.Load() || len(c.Registry.Handlers.Load().byType[name]) > 0 {
		return
	}
	if (len(c.Registry.Handled()) > 0 || c.Runs()) && !t.warned.Swap(true) {
		c.Log.Warn("job type enqueued without a handler in this engine", "job_type", name)
	}
}

// ArgsType is what the handler of the type takes, nil if there is none.
func (t *JobType) ArgsType() reflect.Type {
	if !t.Handled {
		return nil
	}
	return t.Handler.ArgsType()
}

// Versions of job types.
//
// A type has one handler for every version, or several with ranges that do not overlap.
// Claims name a range behind the type (storage.Claim.Takes), so that a job
// whose version none of them takes stays available, and holds up no other. Jobs without a
// version run with the handler that was registered first.

// add adds a handler to those of its type. It refuses one whose range overlaps another.
func (h *Handlers) add(c *Types, added *JobType) error {
	given := added.Given
	name := given.Type()
	added.takes = versions.Range{Open: true}
	if wanted := given.Versions(); wanted != "" {
		var err error
		if added.takes, err = versions.ParseRange(wanted); err != nil {
			return draft.Invalid("handler", "job type %s: versions %q: %v", name, wanted, err)
		}
	}
	for _, t := range h.Of(name) {
		if t.takes.Overlaps(added.takes) {
			if t.Given.Versions() == given.Versions() {
				return draft.Invalid("handler", "job type %s has a handler already", name)
			}
			return draft.Invalid("handler",
				"job type %s has a handler already, for %s, and this is for %s", name,
				cmp.Or(t.Given.Versions(), "all versions"), cmp.Or(given.Versions(), "all versions"))
		}
	}
	added.patterns = patterns(given, len(h.byType[name]) == 0)
	h.byType[name] = append(slices.Clone(h.byType[name]), added)
	return nil
}

// All returns the handlers, by type.
func (h *Handlers) All() (list []*JobType) {
	for _, name := range h.types {
		list = append(list, h.byType[name]...)
	}
	return list
}

// Of returns the handlers of a type, in the order in which they were registered.
func (h *Handlers) Of(name string) []*JobType { return h.byType[name] }

// Find returns the handler for jobs of a version of a type, nil if there is none.
func (h *Handlers) Find(name, version string) *JobType {
	list := h.byType[name]
	if len(list) == 0 {
		return nil
	}
	if version == "" || len(list) == 1 && list[0].Given.Versions() == "" {
		return list[0]
	}
	v, err := versions.Parse(version)
	if err != nil {
		return nil
	}
	for _, t := range list {
		if t.takes.Has(v) {
			return t
		}
	}
	return nil
}

// patterns returns how claims name the jobs of a handler, which is the first of its type
// or not.
func patterns(h handler.Handler, first bool) []string {
	switch {
	case h.Versions() == "":
		return []string{h.Type()}
	case first:
		return []string{h.Type() + "@", h.Type() + "@" + h.Versions()}
	}
	return []string{h.Type() + "@" + h.Versions()}
}

// warnUnserved logs, once for each queue, that jobs are enqueued to a queue that this
// engine does not serve. An engine without handlers is there only to enqueue, and does
// not warn.
func (c *Types) warnUnserved(queue string) {
	if len(c.Registry.Handled()) == 0 {
		return
	}
	if _, again := c.unserved.LoadOrStore(queue, true); !again {
		c.Log.Warn(
			"jobs are enqueued to a queue that this engine does not serve; they wait for one that does",
			"queue", queue)
	}
}

// WarnUnreached logs which handlers have a limit above the slots of the engine, and which
// are of types whose jobs go to queues that it does not serve.
func (c *Types) WarnUnreached(slots int) {
	queues := c.Queues.Load()
	var types, others []string
	for _, t := range c.Registry.Handlers.Load().All() {
		h, name := t.Given, t.Given.Type()
		if n := h.Concurrency(); n > slots {
			c.Log.Warn("the concurrency of a handler is above the engine's, which holds",
				"job_type", name, "handler_concurrency", n, "concurrency", slots)
		}
		if o, err := c.Resolve(queues, h.Defaults(), nil); err == nil && !queues.Serves(o.Queue) {
			types = append(types, name)
			others = append(others, o.Queue)
		}
	}
	if len(types) > 0 {
		slices.Sort(others)
		c.Log.Warn("jobs of handled types go to queues that this engine does not serve, unless they are enqueued to another",
			"job_types", types, "queues", slices.Compact(others))
	}
}
