package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/telemetry"
)

// Engine is what the pages need of an engine. Every *engine.Engine[T] has it.
type Engine interface {
	String() string
	Health(ctx context.Context) engine.Health
	Stats(ctx context.Context) (engine.Stats, error)
	Meter() []telemetry.Meter
	History(ctx context.Context, from, to time.Time, width time.Duration) ([]telemetry.Bucket, error)
	Describe() engine.Description
	Running() []inspect.Running
	Get(ctx context.Context, id string) (*ojs.JobInfo, error)
	Cancel(ctx context.Context, id string) error
	EnqueueMany(ctx context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error)
	Jobs() *operate.Jobs
	DeadLetters() *operate.DeadLetters
	Queues() *operate.Queues
	ConfigureQueue(ctx context.Context, name string, qc engine.QueueConfig) error
	Cron() *cron.Entries
	Workers() *operate.Workers
	Limits() *operate.Limits
	Workflows() *operate.Workflows
	Quarantine() *operate.Quarantine
}

// Handler serves the pages of an engine, or of several. It is safe for concurrent use.
type Handler struct {
	eng  Engine
	name string // of several engines; "": there is one

	first   *Handler   // of the first engine: itself, if there is one
	engines []*Handler // in first: all, itself included; none, if there is one

	conf config
	mux  *http.ServeMux
	serv http.Handler // mux behind the checks of every request

	runs  runs
	lists costlyLists
	past  histories
	fails countedFailures
	flows flows
	live  live
	sums  summaries
	seen  atomic.Pointer[seenHealth] // by the latest page that has asked

	counts   atomic.Pointer[seenStats] // by the latest page that has asked
	counting chan struct{}             // full while a page asks for the numbers of all

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	busy sync.WaitGroup // goroutines that Close waits for
}

// New makes a handler for an engine. It starts no goroutine, and the engine stays the
// caller's to run. A nil engine, and options that make no sense, are refused with an
// *ojs.InvalidError.
func New(eng Engine, opts ...Option) (*Handler, error) {
	const remedy = ": give New what engine.New returned"
	switch {
	case eng == nil:
		return nil, invalid("engine", "is nil"+remedy)
	case isNil(eng):
		return nil, invalid("engine", fmt.Sprintf("is a nil %T"+remedy, eng))
	}
	conf := defaults()
	for _, opt := range opts {
		if opt == nil {
			return nil, invalid("option", "is nil")
		}
		if err := opt(&conf); err != nil {
			return nil, err
		}
	}
	if conf.redact == nil && !conf.unmasked {
		conf.redact, conf.masks = mask, true
	}
	h := &Handler{eng: eng, conf: conf}
	h.first = h
	h.sums.slot = make(chan struct{}, 1)
	h.past.chosen = make(chan struct{}, maxChosen)
	h.counting = make(chan struct{}, 1)
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.mux = h.routes()
	h.serv = h.guard(h.mux)
	return h, nil
}

// isNil reports whether there is no engine, or a nil pointer to one.
func isNil(eng Engine) bool {
	v := reflect.ValueOf(eng)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Close ends what the handler does beside requests, and waits for that. Requests that
// come later are answered with 503. Close does not touch the engine. It returns nil, and
// may be called more than once.
func (h *Handler) Close() error {
	for _, other := range h.engines {
		other.stop()
	}
	for _, other := range h.engines {
		other.busy.Wait()
	}
	h.stop()
	h.busy.Wait()
	return nil
}

// ServeHTTP answers a request for a page.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.ctx.Err() != nil {
		http.Error(w, "the dashboard is closed", http.StatusServiceUnavailable)
		return
	}
	r, ok := mounted(w, r)
	if ok {
		h, r := h.serving(r)
		h.serv.ServeHTTP(w, r)
	}
}
