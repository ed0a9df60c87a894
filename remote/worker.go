package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/versions"
)

// Errors of Run.
var (
	// ErrRunning refuses a Run while another one of the same worker works.
	ErrRunning = errors.New("ojs: worker is running")
	// ErrStuck says that Run stopped while handlers were still going on, although their
	// contexts had ended. Their jobs have been given back and may run again beside them.
	ErrStuck = errors.New("ojs: handlers ignored the end of their contexts")
)

// Worker is a Client that runs handlers: an engine.Engine[T] whose jobs are on a server.
//
// A few things differ from an engine, since other programs use the server too:
//
//   - The server holds the retry policy and the clock. An attempt has no grace period
//     after its timeout: the server fails it then.
//   - handler.Complete returns ojs.ErrUnsupported, and so does handler.Then if the server
//     is not this module's.
//   - A limit of a handler over all engines (handler.WithGlobalConcurrency,
//     handler.WithGlobalRateLimit) makes Run fail. Set it on the server, or limit jobs by
//     ojs.WithRateLimit.
type Worker[T any] struct {
	*Client
	handlers handlers
}

// New makes a worker of the server at a URL. It calls nothing: see Dial.
func New[T any](server string, opts ...WorkerOption) (*Worker[T], error) {
	c, err := dial(server, opts)
	if err != nil {
		return nil, err
	}
	return &Worker[T]{Client: c, handlers: handlers{changed: make(chan struct{})}}, nil
}

// Enqueue stores a job whose args are T. Its errors are those of Client.Enqueue.
func (w *Worker[T]) Enqueue(ctx context.Context, jobType string, args T, opts ...ojs.Option) (ojs.Ticket,
	error) {
	return w.Client.Enqueue(ctx, jobType, args, opts...)
}

// Handle runs jobs of the type with f. It panics if the type's name is invalid or has a
// handler already (handler.WithVersions allows several), and if f is nil. A handler may
// be added while the worker runs.
func (w *Worker[T]) Handle(jobType string, f handler.Func[T], opts ...handler.Option) {
	w.Register(handler.For(ojs.Define[T](jobType), f, opts...))
}

// Register adds handlers made by handler.For. It panics as Handle does, and then adds
// none.
func (w *Worker[T]) Register(list ...handler.Handler) {
	if err := w.handlers.add(list, w.around); err != nil {
		panic(err)
	}
}

// handlers are those of a worker.
type handlers struct {
	mu      sync.Mutex // guards what follows
	byType  map[string][]*registered
	changed chan struct{} // closed and replaced when handlers are added, or have a slot again
	running bool          // a Run is
}

// registered is a handler and what the worker knows of it.
type registered struct {
	handler handler.Handler // inside the worker's middlewares
	given   handler.Handler
	takes   versions.Range
	slots   chan struct{} // of the type; nil: as many as the worker has
}

var inside = bridge.Take[bridge.Handlers[handler.Handler, handler.Middleware, internal.Frame]]()

func (h *handlers) add(list []handler.Handler, around []handler.Middleware) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	byType := make(map[string][]*registered)
	for name, kinds := range h.byType {
		byType[name] = slices.Clone(kinds)
	}
	for _, given := range list {
		name := given.Type()
		if name == "" {
			return invalid("handler", "is the zero Handler; use handler.For")
		}
		k := &registered{given: given, takes: versions.Range{Open: true}}
		if within := given.Versions(); within != "" {
			var err error
			if k.takes, err = versions.ParseRange(within); err != nil {
				return err
			}
		}
		for _, other := range byType[name] {
			if k.takes.Overlaps(other.takes) {
				return invalid("handler", "job type %s has a handler already; several need "+
					"handler.WithVersions with ranges that do not overlap", name)
			}
		}
		k.handler = inside.Wrap(given, append(slices.Clone(around), handler.Recover))
		if n := given.Concurrency(); n > 0 {
			k.slots = make(chan struct{}, n)
		}
		byType[name] = append(byType[name], k)
	}
	h.byType = byType
	close(h.changed)
	h.changed = make(chan struct{})
	return nil
}

// find returns the handler of a version of a type, nil if there is none.
func (h *handlers) find(name, version string) *registered {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.byType[name]
	if version == "" && len(list) > 0 {
		return list[0]
	}
	v, err := versions.Parse(version)
	for _, k := range list {
		if err == nil && k.takes.Has(v) {
			return k
		}
	}
	return nil
}

// declared is how the binding names a handler.
type declared struct {
	Type     string `json:"type"`
	Versions string `json:"versions"`
}

// declare returns the handlers.
func (h *handlers) declare() []declared {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := []declared{}
	for _, name := range slices.Sorted(maps.Keys(h.byType)) {
		for _, k := range h.byType[name] {
			list = append(list, declared{name, cmp.Or(k.given.Versions(), "*")})
		}
	}
	return list
}

// open returns the handlers that have a free slot, and whether another one is full. count
// is at most n, and each handler has a slot for so many jobs. The channel is closed when
// a handler is added or frees a slot.
func (h *handlers) open(n int) (list []declared, count int, full bool, more <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(h.byType)) {
		for _, k := range h.byType[name] {
			if k.slots != nil {
				free := cap(k.slots) - len(k.slots)
				if free == 0 {
					full = true
					continue
				}
				n = min(n, free)
			}
			list = append(list, declared{name, cmp.Or(k.given.Versions(), "*")})
		}
	}
	return list, n, full, h.changed
}

// release frees a slot of a handler.
func (h *handlers) release(k *registered) {
	<-k.slots
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.changed)
	h.changed = make(chan struct{})
}

// unlimited refuses handlers with limits over all engines.
func (h *handlers) unlimited() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, kinds := range h.byType {
		for _, k := range kinds {
			if l := k.given.GlobalRateLimit(); l.Bounds() {
				return fmt.Errorf("%w: job type %s: its handler has a limit over all engines; "+
					"set it on the server", ojs.ErrUnsupported, name)
			}
		}
	}
	return nil
}

// Run takes jobs from the server and runs them until ctx ends, or an operator terminates
// the worker. Then it takes no more jobs, lets running handlers finish within the grace
// period, ends the contexts of the rest with ojs.ErrShutdown, and gives their jobs back
// without spending the attempt, as engine.Engine.Run does.
//
// It returns nil after a clean stop and may then be called again; ErrRunning while
// another Run works; and an error that is ErrStuck if handlers went on after their
// contexts had ended. A server that cannot be reached does not end it: Run repeats its
// calls with a backoff, and logs that at WARN. A key that the server refuses ends it,
// with an *Error.
//
// Handler contexts have ctx's values, but do not end with it.
func (w *Worker[T]) Run(ctx context.Context) error {
	if err := w.handlers.unlimited(); err != nil {
		return err
	}
	h := &w.handlers
	h.mu.Lock()
	if h.running {
		h.mu.Unlock()
		return ErrRunning
	}
	h.running = true
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.running = false
		h.mu.Unlock()
	}()
	id, err := workerID(w.name)
	if err != nil {
		return err
	}
	r := &run{Client: w.Client, handlers: h, id: id, base: context.WithoutCancel(ctx), enqueuer: w,
		slots: make(chan struct{}, w.concurrency), held: make(map[string]*attempt), started: w.clock.Now(),
		closing: make(chan struct{}), shorter: make(chan struct{}, 1)}
	return r.until(ctx)
}

// workerID is a name that no other run has.
func workerID(name string) (string, error) {
	if name == "" {
		name, _ = os.Hostname()
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("ojs: making an id: %w", err)
	}
	name = name[:min(len(name), 200)]
	return strings.TrimPrefix(name+"-"+id.String(), "-"), nil
}

// The times of a run.
const (
	beatEvery = 5 * time.Second // OJS worker protocol
	minBeat   = time.Second / 50
	lastCall  = time.Second // for handlers whose contexts have ended, and for the last fetch
	maxFetch  = 100         // jobs of one fetch
)

// run is one call of Run.
type run struct {
	*Client
	handlers *handlers
	id       string
	base     context.Context // of handlers and calls: Run's values, no end
	enqueuer ojs.Enqueuer
	slots    chan struct{} // has an element for each attempt
	started  time.Time

	works   sync.WaitGroup  // attempts, and what they send
	calls   context.Context // of the calls of attempts; it ends with Run
	closing chan struct{}   // closed when calls are not to be repeated
	shorter chan struct{}   // an attempt with a short lease has started

	mu    sync.Mutex // guards what follows
	held  map[string]*attempt
	state string // "running", "quiet" or "terminate"
	fatal error  // why the run ends without ctx
}

// The states of a worker.
const (
	running   = "running"
	quiet     = "quiet"
	terminate = "terminate"
)

// until works until ctx ends, and stops.
func (r *run) until(ctx context.Context) error {
	r.state = running
	working, stop := context.WithCancel(ctx)
	defer stop()
	fetching, cancelFetch := context.WithCancel(r.base)
	defer cancelFetch()
	var endCalls func()
	r.calls, endCalls = context.WithCancel(r.base)
	defer endCalls()
	beating, stopBeats := context.WithCancel(r.base)

	var beats sync.WaitGroup
	beats.Go(func() { r.beat(beating, stop) })
	defer beats.Wait()
	defer stopBeats()

	fetched := make(chan struct{})
	go func() {
		defer close(fetched)
		r.fetch(working, fetching, stop)
	}()

	<-working.Done()
	r.sendQuiet()
	r.within(lastCall, fetched)
	cancelFetch()
	<-fetched

	idle := make(chan struct{})
	go func() {
		r.works.Wait()
		close(idle)
	}()
	if !r.within(r.grace, idle) {
		r.endAll(ojs.ErrShutdown)
		r.within(lastCall, idle)
	}
	close(r.closing)
	err := r.giveBack()
	r.within(lastCall, idle)
	endCalls()
	stopBeats()
	beats.Wait()
	r.deregister()
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.fatal, err)
}

// within waits for a channel to be closed, for at most d. It reports whether it was.
func (r *run) within(d time.Duration, done <-chan struct{}) bool {
	t := r.clock.Timer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// fail ends the run with an error.
func (r *run) fail(err error, stop func()) {
	r.mu.Lock()
	if r.fatal == nil {
		r.fatal = err
	}
	r.mu.Unlock()
	stop()
}

// keyRefused reports whether the server, and not a proxy, has refused the key.
func keyRefused(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code != codeUnknown &&
		(e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden)
}

// fetch takes jobs until the run stops. Calls go on in a context of their own, so that a
// stop does not lose the answer of one.
func (r *run) fetch(working, calls context.Context, stop func()) {
	pause := minPause
	for working.Err() == nil {
		n := r.reserve(working)
		if n == 0 {
			return
		}
		list, count, full, more := r.handlers.open(n)
		for range n - count {
			<-r.slots
		}
		if len(list) == 0 {
			for range count {
				<-r.slots
			}
			select {
			case <-more:
			case <-working.Done():
			}
			continue
		}
		wait := pollTime
		if full {
			wait = 0 // a slot may be free before a long poll ends
		}
		asked := r.clock.Now()
		jobs, err := r.fetchJobs(calls, count, list, wait)
		for range count - len(jobs) {
			<-r.slots
		}
		started := 0
		for _, raw := range jobs {
			job, err := decode(raw)
			if job.ID == "" {
				r.log.Error("a job without an id is not run; its lease ends", "component", "worker",
					"worker_id", r.id, "error", err)
				<-r.slots
				continue
			}
			if r.start(job, err) {
				started++
			}
		}
		wait, _ = repeatable(err)
		switch {
		case calls.Err() != nil || working.Err() != nil:
			return
		case err != nil && keyRefused(err):
			r.fail(err, stop)
			return
		case err != nil:
			r.log.Warn("fetch failed; it is repeated", "component", "worker", "worker_id", r.id, "error", err)
		case started > 0 || len(jobs) == 0 && r.clock.Now().Sub(asked) > pollTime/2:
			pause = minPause
			continue
		default: // the server does not wait, or hands out jobs for full handlers
			pause = min(pause, lastCall)
		}
		if err != nil || !full && len(jobs) == 0 {
			more = nil
		}
		r.pause(working, max(wait, pause), more)
		pause = min(2*pause, maxPause)
	}
}

// pause waits for d, for more handlers, or for the end of ctx.
func (r *run) pause(ctx context.Context, d time.Duration, more <-chan struct{}) {
	t := r.clock.Timer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-more:
	case <-ctx.Done():
	}
}

// reserve waits for a free slot, and takes all that are free. It returns 0 if ctx ends.
func (r *run) reserve(ctx context.Context) (n int) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for n = 1; n < maxFetch; n++ {
		select {
		case r.slots <- struct{}{}:
		default:
			return n
		}
	}
	return n
}

// fetchJobs is one long poll. It returns at most n jobs.
func (r *run) fetchJobs(ctx context.Context, n int, list []declared, wait time.Duration) (
	[]json.RawMessage, error) {
	types := make([]string, len(list)) // a server without the Extension hands out other types, too
	for i, d := range list {
		types[i] = d.Type
		if d.Versions != "*" {
			types[i] += "@" + d.Versions
		}
	}
	var answer struct {
		Jobs []json.RawMessage `json:"jobs"`
	}
	err := r.do(ctx, &request{method: "POST", path: "/workers/fetch", out: &answer, most: 1,
		within: wait + callTime, body: map[string]any{
			"queues": r.queues, "count": n, "worker_id": r.id, "wait_ms": wait.Milliseconds(),
			"handlers": list, "types": types,
		}})
	if err != nil {
		return nil, err
	}
	if len(answer.Jobs) > n {
		return answer.Jobs[:n], fmt.Errorf("ojs: POST /workers/fetch: %d jobs for a count of %d",
			len(answer.Jobs), n)
	}
	return answer.Jobs, nil
}

// decode reads a job of a fetch. A job that does not decode has its id and attempt, if
// these decode.
func decode(raw json.RawMessage) (*ojs.JobInfo, error) {
	var j job
	err := json.Unmarshal(raw, &j)
	if err == nil {
		return &j.JobInfo, nil
	}
	var part struct {
		ID      string `json:"id"`
		Attempt int    `json:"attempt"`
	}
	_ = json.Unmarshal(raw, &part)
	return &ojs.JobInfo{JobHeader: ojs.JobHeader{ID: part.ID, Attempt: part.Attempt}}, err
}

// sendQuiet says that the worker takes no more jobs, which ends its long poll.
func (r *run) sendQuiet() {
	ctx, cancel := r.clock.WithTimeout(r.base, lastCall)
	defer cancel()
	r.mu.Lock()
	r.state = quiet
	r.mu.Unlock()
	if _, err := r.sendBeat(ctx, nil); err != nil {
		r.log.Debug("the last heartbeat failed", "component", "worker", "worker_id", r.id, "error", err)
	}
}

func (r *run) deregister() {
	ctx, cancel := r.clock.WithTimeout(r.base, lastCall)
	defer cancel()
	err := r.do(ctx, &request{method: "POST", path: "/workers/deregister", most: 1,
		body: map[string]any{"worker_id": r.id}})
	if err != nil {
		r.log.Debug("deregister failed", "component", "worker", "worker_id", r.id, "error", err)
	}
}

// beat sends heartbeats until ctx ends.
func (r *run) beat(ctx context.Context, stop func()) {
	failed := 0
	for {
		begun := r.clock.Now()
		held := r.attempts()
		answer, err := r.sendBeat(ctx, held)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && keyRefused(err):
			r.fail(err, stop)
		case err != nil:
			if failed++; failed == 1 {
				r.log.Warn("heartbeat failed; it is repeated", "component", "worker", "worker_id", r.id,
					"error", err)
			}
			if r.sleep(ctx, min(lastCall, r.beatPeriod())) != nil {
				return
			}
			continue
		default:
			failed = 0
			r.applyBeat(answer, held, stop)
		}
		if !r.beatDue(ctx, begun) {
			return
		}
	}
}

// beatDue waits until a heartbeat is due after one that began at a time. An attempt with
// a short lease shortens the wait. It returns false if ctx ends.
func (r *run) beatDue(ctx context.Context, begun time.Time) bool {
	for {
		wait := begun.Add(r.beatPeriod()).Sub(r.clock.Now())
		if wait <= 0 {
			return ctx.Err() == nil
		}
		t := r.clock.Timer(wait)
		select {
		case <-t.C:
		case <-r.shorter:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
}

// beatPeriod is the time between two heartbeats: beatEvery, or a third of the shortest
// lease that the run holds.
func (r *run) beatPeriod() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	period := beatEvery
	for _, a := range r.held {
		if lease := a.job.Lease; lease > 0 {
			period = min(period, max(lease/3, minBeat))
		}
	}
	return period
}

// beatAnswer is the answer to a heartbeat.
type beatAnswer struct {
	State     string   `json:"state"`
	Directive string   `json:"directive"`
	Lost      []string `json:"jobs_lost"`
}

// sendBeat sends a heartbeat for the jobs of attempts.
func (r *run) sendBeat(ctx context.Context, held []*attempt) (a beatAnswer, err error) {
	host, _ := os.Hostname()
	r.mu.Lock()
	state := r.state
	r.mu.Unlock()
	ids := make([]string, len(held))
	for i, att := range held {
		ids[i] = att.job.ID
	}
	err = r.do(ctx, &request{method: "POST", path: "/workers/heartbeat", out: &a, most: 1,
		within: max(r.beatPeriod(), lastCall), body: map[string]any{
			"worker_id": r.id, "active_jobs": ids, "state": state, "hostname": host, "pid": os.Getpid(),
			"queues": r.queues, "concurrency": r.concurrency, "started_at": formatTime(r.started),
			"handlers": r.handlers.declare(),
		}})
	return a, err
}

// applyBeat applies the answer to a heartbeat for attempts. A job in it may be back with
// the worker since the heartbeat was sent: its new attempt goes on.
func (r *run) applyBeat(a beatAnswer, held []*attempt, stop func()) {
	state := cmp.Or(a.Directive, a.State, running)
	r.mu.Lock()
	if r.state == running || state == terminate {
		if r.state != state && state != running {
			r.log.Info("the server asks the worker to stop taking jobs", "component", "worker",
				"worker_id", r.id, "state", state)
		}
		r.state = state
	}
	r.mu.Unlock()
	if state == terminate {
		stop()
	}
	for _, att := range held {
		if slices.Contains(a.Lost, att.job.ID) {
			att.drop()
		}
	}
}

// lostCause asks the server why an attempt has lost its job. Without an answer it is
// ojs.ErrLeaseLost: the key may not read jobs, for example.
func (r *run) lostCause(a *attempt) error {
	job := struct {
		State ojs.State `json:"state"`
	}{}
	err := r.do(r.calls, &request{method: "GET", path: "/jobs/" + segment(a.job.ID), most: 1,
		within: lastCall, out: &struct {
			Job any `json:"job"`
		}{&job}})
	if err == nil && job.State == ojs.StateCancelled {
		return ojs.ErrCancelled
	}
	return ojs.ErrLeaseLost
}

// attempts returns the attempts that the run holds.
func (r *run) attempts() []*attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.held))
}

// endAll ends the contexts of all attempts.
func (r *run) endAll(cause error) {
	for _, a := range r.attempts() {
		a.end(cause)
	}
}

// giveBack gives back the jobs of handlers that have not returned.
func (r *run) giveBack() error {
	ctx, cancel := r.clock.WithTimeout(r.base, lastCall)
	defer cancel()
	var stuck []string
	var calls sync.WaitGroup
	for _, a := range r.attempts() {
		if !a.beginSettle() {
			continue
		}
		stuck = append(stuck, a.job.Type+" "+a.job.ID)
		calls.Go(func() {
			if err := a.nack(ctx, map[string]any{"requeue": true}); err != nil {
				r.log.Warn("job not given back; it runs again when its worker counts as dead",
					"component", "worker", "ojs.job_id", a.job.ID, "error", err)
			}
			a.remove()
		})
	}
	calls.Wait()
	if len(stuck) == 0 {
		return nil
	}
	slices.Sort(stuck)
	return fmt.Errorf("%w: %s", ErrStuck, strings.Join(stuck, ", "))
}
