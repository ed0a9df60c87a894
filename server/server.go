package server

import (
	"context"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

// Engine is what the server needs of an engine, beside what operators need. Every
// *engine.Engine[T] has it.
type Engine interface {
	ojs.Enqueuer
	Wait(ctx context.Context, id string) (*ojs.JobInfo, error)
	operator
	Cron() *cron.Entries
	Worker(id string, cfg fetch.Config) *fetch.Worker
	Describe() engine.Description
	Stats(ctx context.Context) (engine.Stats, error)
	Subscribe(f engine.EventFilter) *engine.Subscription
}

// Server answers the HTTP binding. It is safe for concurrent use.
type Server struct {
	eng Engine // nil: there is a storage alone
	op  operator
	of  *operate.Jobs // of op, for the time
	can storage.Capabilities

	conf  config
	clock clock.Clock
	begun time.Time
	mux   *http.ServeMux

	openapi func() []byte // the document of all routes
	calls   sync.Pool

	serving  workers                        // as they were read
	counted  cached[*workerCount]           // of all servers
	configs  cached[map[string]queueConfig] // of queues, by name
	measured cached[[]byte]                 // the statistics, as streams have them
	limiter  *limiter
	seen     connections

	feed     *feed // nil: there is no engine
	outlines outlines
	schemas  schemas

	fleet *front       // that the server is of; nil: there is one engine
	name  string       // of the cell; "": of no fleet, or of a whole one
	down  atomic.Int64 // until when the cell is asked last, in nanoseconds since 1970

	stop     chan struct{} // closed by Close
	underway underway
}

// operator is what an Engine and an operate.Operator have in common.
type operator interface {
	Jobs() *operate.Jobs
	DeadLetters() *operate.DeadLetters
	Queues() *operate.Queues
	Limits() *operate.Limits
	Workers() *operate.Workers
	Workflows() *operate.Workflows
}

// New makes a server for an engine, whose events it follows until Close. The engine stays
// the caller's to run: its chores promote scheduled jobs, end leases and fire recurring
// jobs. A nil engine, and options that make no sense, are refused with an
// *ojs.InvalidError.
func New(eng Engine, opts ...Option) (*Server, error) {
	if v := reflect.ValueOf(eng); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, draft.Invalid("engine", "is nil: give New what engine.New returned")
	}
	conf, err := withDefaults(opts)
	if err != nil {
		return nil, err
	}
	return newServer(eng, eng, eng.Describe().Storage, conf), nil
}

// NewWithoutEngine makes a server for a storage without an engine. It reads and operates.
// A call that needs an engine is refused with 422. The clock is that of the engines on
// the storage.
func NewWithoutEngine(st storage.Storage, c clock.Clock, opts ...Option) (*Server, error) {
	if st == nil || c == nil {
		return nil, draft.Invalid("storage", "or the clock is nil: give both")
	}
	conf, err := withDefaults(opts)
	if err != nil {
		return nil, err
	}
	return newServer(nil, operate.Open(st, c, nil), st.Capabilities(), conf), nil
}

// withDefaults adds options to the defaults.
func withDefaults(opts []Option) (conf config, err error) {
	conf = defaults()
	for _, opt := range opts {
		if opt == nil {
			return conf, draft.Invalid("option", "is nil")
		}
		if err := opt(&conf); err != nil {
			return conf, err
		}
	}
	if keys, ok := conf.auth.(auditor); ok && conf.audit != nil {
		keys.follow(conf.audit)
	}
	return conf, nil
}

func newServer(eng Engine, op operator, can storage.Capabilities, conf config) *Server {
	s := &Server{eng: eng, op: op, of: op.Jobs(), can: can, conf: conf, clock: conf.clock,
		stop: make(chan struct{}), underway: underway{idle: make(chan struct{})}}
	s.begun = s.now()
	s.counted.age = countAge
	s.calls.New = func() any { return new(call) }
	s.limiter = &limiter{conf: s.conf.limit}
	s.mux, s.openapi = s.routing(), openAPIDocument
	if eng != nil && !s.conf.noEvents {
		s.feed = newFeed(eng, s.conf.events, s.stop)
	}
	return s
}

// now is the time as the storage keeps it.
func (s *Server) now() time.Time { return s.of.Now() }

// Close ends long polls and streams, and refuses requests that come later with 503. It
// waits for the requests under way, or until ctx ends. The engine and its storage stay
// the caller's to stop.
func (s *Server) Close(ctx context.Context) error {
	if s.underway.close() {
		close(s.stop)
		if s.isFront() {
			for _, cell := range s.fleet.cells {
				_ = cell.Close(ctx) // the front counts the requests
			}
		}
	}
	select {
	case <-s.underway.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// underway counts the requests under way.
type underway struct {
	mu     sync.Mutex // guards n and closed
	n      int
	closed bool
	idle   chan struct{} // closed when closed is set and n is 0
}

// begin admits a request, unless the server is closed. It must be followed by end.
func (u *underway) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.n++
	}
	return !u.closed
}

// end counts an admitted request out.
func (u *underway) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 && u.closed {
		close(u.idle)
	}
}

// close admits no more requests. It reports whether this call was the first.
func (u *underway) close() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return false
	}
	if u.closed = true; u.n == 0 {
		close(u.idle)
	}
	return true
}
