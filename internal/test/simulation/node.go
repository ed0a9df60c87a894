package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// node is one engine, as in a process of its own, and the way from it to the storage.
type node struct {
	w    *world
	name string
	cfg  nodeConfig
	eng  *engine.Engine[Args]
	dead chan struct{} // closed when it crashes

	mu       sync.Mutex     // guards the fields below
	rnd      *rand.Rand     // of its notices, and of the order of goroutines
	calls    map[string]int // of the storage by name, since the time at
	at       time.Duration
	crashed  bool
	stop     context.CancelFunc // of Run; nil: it does not run
	ended    chan struct{}      // closed when Run has returned
	stopping bool               // Run has been told to stop, and has not returned
	started  time.Time          // when Run was called
	runs     int                // how often it was
	toldAt   time.Time          // to stop
	hampered time.Time          // until when a failed or slow call may keep it from renewing leases
	claims   map[string][]*hold // by job
	expected map[string][]*expectation
	observed map[string][]event.Type
}

// expectation is an event that has to come, one of several types.
type expectation struct {
	types    []event.Type
	optional bool // the engine need not know of the transition
	late     bool // later events of the job may come first
}

var (
	errFault = errors.New("simulation: the storage fails")
	errDead  = errors.New("simulation: the process is dead")
)

func (w *world) newNode(cfg nodeConfig) *node {
	number := len(w.nodes)
	n := &node{
		w: w, cfg: cfg, name: fmt.Sprint("n", number), dead: make(chan struct{}),
		rnd:      stream(w.seed, "notices", number),
		calls:    make(map[string]int),
		claims:   make(map[string][]*hold),
		expected: make(map[string][]*expectation),
		observed: make(map[string][]event.Type),
	}
	opts := []engine.Option{
		engine.WithName(n.name), engine.WithConcurrency(cfg.concurrency),
		engine.WithGracePeriod(cfg.grace),
		engine.WithRand(stream(w.seed, "engine", number)), engine.WithRetention(w.prog.retain),
		engine.WithObserver(n), engine.WithMiddleware(n.around),
		engine.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
	}
	if w.prog.codec {
		opts = append(opts, engine.WithCodec(mask{}))
	}
	if w.prog.logs {
		opts = append(opts, engine.WithJobLogs(slog.LevelInfo))
	}
	for _, name := range cfg.order {
		opts = append(opts, engine.WithQueueConfig(name, cfg.queues[name]))
	}
	var store storage.Storage
	switch p := w.prog; {
	case p.steps && (p.jumps || p.ahead):
		store = &clockedSteps{stepping{link{n}}}
	case p.steps:
		store = &stepping{link{n}}
	case p.jumps:
		store = &clocked{link{n}}
	default:
		store = &link{n}
	}
	eng, err := engine.New[Args](store, opts...)
	if err != nil {
		w.t.Fatalf("simulation: engine %s: %v", n.name, err)
	}
	for _, typ := range cfg.types {
		var opts []handler.Option
		if most := cfg.typeLimit[typ]; most > 0 {
			opts = append(opts, handler.WithSlots(most))
		}
		switch {
		case typ == versionedType && cfg.versions != nil:
			for _, within := range cfg.versions {
				eng.Handle(typ, n.handle, append(slices.Clone(opts), handler.WithVersions(within),
					handler.WithMiddleware(n.within(within)))...)
			}
		case typ == batchType && cfg.batch > 0:
			eng.Register(handler.ForBatch(ojs.Define[Args](typ), n.handleBatch,
				append(opts, handler.WithBatch(cfg.batch, cfg.batchWait))...))
		default:
			eng.Handle(typ, n.handle, opts...)
		}
	}
	n.eng = eng
	w.nodes = append(w.nodes, n)
	w.note(n.name, "", "joins: concurrency %d, grace %v, types %v, queues %v",
		cfg.concurrency, cfg.grace, cfg.types, cfg.order)
	return n
}

// run starts the engine, unless it runs or is dead.
func (n *node) run() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.crashed || n.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	n.stop, n.ended, n.stopping, n.started = cancel, ended, false, n.w.now()
	n.runs++
	n.w.note(n.name, "", "Run is called")
	n.w.busy.Go(func() {
		defer close(ended)
		err := n.eng.Run(ctx)
		n.w.note(n.name, "", "Run returns %v", err)
		n.ran(err)
	})
}

// ran follows the end of Run.
func (n *node) ran(err error) {
	l := n.w.ledger
	l.mu.Lock() // the ledger's before the node's
	defer l.mu.Unlock()
	n.mu.Lock()
	crashed := n.crashed
	n.stop, n.stopping = nil, false
	n.mu.Unlock()
	if crashed {
		return
	}
	if !n.w.undisturbed() {
		return
	}
	if err != nil && !(errors.Is(err, engine.ErrStuck) && n.ignores()) {
		n.w.broken(14, "", "Run of %s returned %v, and no handler ignores its context", n.name, err)
	}
	for _, j := range l.order {
		if h := j.hold; h != nil && h.node == n && h.told && !isRemote(h.worker) {
			n.w.broken(14, j.rec.ID, "%s has stopped, and holds it as %s", n.name, h.worker)
		}
	}
}

// ignores reports whether a handler of the node goes on though its context has ended.
// ledger.mu is held.
func (n *node) ignores() bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return slices.ContainsFunc(n.w.attempts,
		func(a *attempt) bool { return a.node == n && !a.remote && a.returned.IsZero() })
}

// halt tells Run to stop.
func (n *node) halt() (ended <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stop == nil {
		return nil
	}
	if !n.stopping {
		n.w.note(n.name, "", "Run is told to stop")
	}
	if !n.stopping {
		n.toldAt = n.w.now()
	}
	n.stopping = true
	n.stop()
	return n.ended
}

// crash ends the node as a kill ends a process: from then on nothing that it does reaches
// the storage.
func (n *node) crash() {
	n.mu.Lock()
	crashed := n.crashed
	n.crashed = true
	n.mu.Unlock()
	if crashed {
		return
	}
	n.w.note(n.name, "", "crashes")
	close(n.dead)
	n.halt()
}

// alive reports whether the node has not crashed.
func (n *node) alive() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.crashed
}

// running reports whether the node has been running, and was not told to stop.
func (n *node) running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.crashed && n.stop != nil && !n.stopping
}

// stopped reports whether the node stops, or has stopped.
func (n *node) stopped() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.crashed || n.stopping || n.stop == nil
}

// ordinal is how often Run has been called.
func (n *node) ordinal() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runs
}

func (n *node) claimed(h *hold) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.claims[h.job.rec.ID] = append(n.claims[h.job.rec.ID], h)
}

func (n *node) expect(id string, optional bool, t event.Type) *expectation {
	return n.expectOneOf(id, optional, t)
}

func (n *node) expectOneOf(id string, optional bool, types ...event.Type) *expectation {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := &expectation{types: types, optional: optional}
	n.expected[id] = append(n.expected[id], e)
	return e
}

// expectOutcome expects the events of an attempt's end.
func (n *node) expectOutcome(to *storage.Record, optional, spent bool, what string) {
	id := to.ID
	switch {
	case to.State == ojs.StateCompleted:
		n.expect(id, optional, event.Completed)
		return
	case !spent:
		n.expect(id, optional, event.Scheduled)
		return
	case what != policy.ErrorTypeExpired: // some failures have an event of their own too
		n.expectOneOf(id, true, event.Timeout, event.TotalTimeout, event.Stalled)
	}
	if what == policy.ErrorTypeExpired {
		n.expectOneOf(id, optional, event.Expired, event.Failed)
	} else {
		n.expect(id, optional, event.Failed)
	}
	if to.State == ojs.StateRetryable {
		n.expect(id, optional, event.Retrying)
		return
	}
	n.expect(id, optional, event.Discarded)
	if to.DeadLettered() {
		n.expect(id, optional, event.DeadLetterAdded)
	}
}

// Observe implements telemetry.Observer.
func (n *node) Observe(ev *event.Event) {
	if ev.Job == nil {
		return
	}
	switch ev.Type {
	case event.Progress, event.Checkpointed, event.Heartbeat:
		return
	}
	n.w.note(n.name, ev.Job.ID, "event %s", ev.Type)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observed[ev.Job.ID] = append(n.observed[ev.Job.ID], ev.Type)
}

// draws is the source of what happens to a call of the storage. It depends on the time
// and the calls with the name at that time only, and not on the order of goroutines
// before.
func (n *node) draws(call string) *rand.Rand {
	at := n.w.elapsed()
	n.mu.Lock()
	defer n.mu.Unlock()
	if at != n.at {
		n.at = at
		clear(n.calls)
	}
	n.calls[call]++
	return stream(n.w.seed, n.name+" "+call, int(at)+n.calls[call])
}

// yield lets other goroutines go first, at random.
func (n *node) yield() {
	n.mu.Lock()
	times := n.rnd.IntN(4)
	n.mu.Unlock()
	for range times {
		runtime.Gosched()
	}
}

// fault is what happens to one call of the storage.
type fault struct {
	before, after bool
	slow, late    time.Duration // before its work, and after it
}

func (n *node) fault(call string) fault {
	s := n.w.prog.storm(n.w.elapsed())
	n.w.mu.Lock()
	calm := n.w.calm
	n.w.mu.Unlock()
	outcome := call == "Settle" || call == "SettleAndClaim"
	if s == nil || calm || s.outcomes && !outcome {
		return fault{}
	}
	var f fault
	r := n.draws(call)
	chance := func(p float64) bool { return r.Float64() < p }
	f.before, f.after = chance(s.before), chance(s.after)
	delay := func(most time.Duration) {
		if d := between(r, time.Millisecond, most); chance(0.5) {
			f.slow += d
		} else {
			f.late += d
		}
	}
	if chance(s.slow) {
		delay(500 * time.Millisecond)
	}
	if chance(s.hang) {
		delay(15 * time.Second)
	}
	if f.slow+f.late > 0 || f != (fault{}) && !outcome && call != "Claim" && call != "Insert" {
		n.mu.Lock()
		if until := n.w.now().Add(f.slow + f.late + time.Second); until.After(n.hampered) {
			n.hampered = until
		}
		n.mu.Unlock()
	}
	if f != (fault{}) {
		n.w.disturb(f.slow + f.late + recovery)
		n.w.note(n.name, "fault", "%s: fails before %v, after %v; takes %v before its work, %v after it",
			call, f.before, f.after, f.slow, f.late)
	}
	return f
}

// do makes a call of the storage, unless a fault keeps it from it. call is told whether
// its answer will arrive.
func do[R any](n *node, ctx context.Context, name string, none R,
	call func(told bool) (R, error)) (R, error) {
	f := n.fault(name)
	n.yield()
	defer n.yield()
	if f.slow > 0 {
		if err := n.w.sleep(ctx, f.slow); err != nil && err != errOver {
			return none, err
		}
	}
	if !n.alive() {
		return none, errDead
	}
	if f.before {
		return none, errFault
	}
	r, err := call(!f.after)
	if f.late > 0 {
		n.w.sleepThrough(f.late, n.dead)
	}
	if !n.alive() {
		return none, errDead
	}
	if f.after && err == nil {
		return none, errFault
	}
	return r, err
}

// link is the connection of a node to the storage.
type link struct{ n *node }

var (
	_ storage.Storage  = (*link)(nil)
	_ storage.Notifier = (*link)(nil)
)

// clocked is a link whose storage tells what time it is, by a clock that jumps.
type clocked struct{ link }

// ClockOffset implements storage.Clocked.
func (k *clocked) ClockOffset() time.Duration { return time.Duration(k.n.w.offset.Load()) }

// stepping is a link whose storage stores outcomes and claims in one call.
type stepping struct{ link }

// clockedSteps is a stepping that is clocked.
type clockedSteps struct{ stepping }

// ClockOffset implements storage.Clocked.
func (k *clockedSteps) ClockOffset() time.Duration { return time.Duration(k.n.w.offset.Load()) }

// answer is that of a SettleAndClaim.
type answer struct {
	settled []storage.Settled
	claimed int
}

// SettleAndClaim implements storage.SettleClaimer.
func (k *stepping) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record,
	dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	run := k.n.ordinal()
	a, err := do(k.n, ctx, "SettleAndClaim", answer{settled: dst}, func(told bool) (a answer, err error) {
		a.settled, a.claimed, err = k.n.w.ledger.settleAndClaim(ctx, k.n, run, told, now, to, dst, c, into)
		return a, err
	})
	return a.settled, a.claimed, err
}

// Unclaim implements storage.SettleClaimer.
func (k *stepping) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	return do(k.n, ctx, "Unclaim", 0,
		func(told bool) (int, error) { return k.n.w.ledger.unclaim(ctx, k.n, told, now, held) })
}

func (k *link) Logs(ctx context.Context, id string) ([]storage.Log, error) {
	return do(k.n, ctx, "Logs", nil,
		func(bool) ([]storage.Log, error) { return k.n.w.ledger.inner.Logs(ctx, id) })
}

func (k *link) Capabilities() storage.Capabilities { return k.n.w.ledger.inner.Capabilities() }

func (k *link) Close() error { return nil }

func (k *link) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	return do(k.n, ctx, "Insert", dst, func(told bool) ([]storage.Inserted, error) {
		return k.n.w.ledger.insert(ctx, k.n, told, now, batch, dst)
	})
}

func (k *link) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	run := k.n.ordinal() // which may have ended when the call does its work
	return do(k.n, ctx, "Claim", dst, func(told bool) ([]storage.Record, error) {
		return k.n.w.ledger.claim(ctx, k.n, run, told, now, c, dst)
	})
}

func (k *link) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	return do(k.n, ctx, "Settle", dst, func(told bool) ([]storage.Settled, error) {
		return k.n.w.ledger.settle(ctx, k.n, told, now, changes, dst)
	})
}

func (k *link) Extend(ctx context.Context, now time.Time, xs []storage.Extension) ([]string, error) {
	return do(k.n, ctx, "Extend", nil,
		func(told bool) ([]string, error) { return k.n.w.ledger.extend(ctx, k.n, told, now, xs) })
}

func (k *link) Due(ctx context.Context, now time.Time, most int, buf []storage.Record) (storage.Due, error) {
	return do(k.n, ctx, "Due", storage.Due{},
		func(told bool) (storage.Due, error) { return k.n.w.ledger.due(ctx, k.n, told, now, most, buf) })
}

func (k *link) Get(ctx context.Context, id string) (storage.Record, error) {
	return do(k.n, ctx, "Get", storage.Record{},
		func(bool) (storage.Record, error) { return k.n.w.ledger.inner.Get(ctx, id) })
}

func (k *link) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	return do(k.n, ctx, "List", storage.Page{},
		func(bool) (storage.Page, error) { return k.n.w.ledger.inner.List(ctx, q) })
}

func (k *link) ClaimedBy(ctx context.Context, worker string) ([]storage.Record, error) {
	return do(k.n, ctx, "ClaimedBy", nil,
		func(bool) ([]storage.Record, error) { return k.n.w.ledger.inner.ClaimedBy(ctx, worker) })
}

func (k *link) Counts(ctx context.Context) ([]storage.Count, error) {
	return do(k.n, ctx, "Counts", nil,
		func(bool) ([]storage.Count, error) { return k.n.w.ledger.inner.Counts(ctx) })
}

func (k *link) Delete(ctx context.Context, ids []string) (int, error) {
	return do(k.n, ctx, "Delete", 0,
		func(told bool) (int, error) { return k.n.w.ledger.delete(ctx, k.n, told, ids) })
}

func (k *link) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	return do(k.n, ctx, "Prune", storage.Pruned{},
		func(told bool) (storage.Pruned, error) { return k.n.w.ledger.prune(ctx, k.n, told, p) })
}

func (k *link) SetQueueState(ctx context.Context, queue string, to ojs.QueueState) (ojs.QueueState, error) {
	return do(k.n, ctx, "SetQueueState", "",
		func(bool) (ojs.QueueState, error) { return k.n.w.ledger.setQueueState(ctx, k.n, queue, to) })
}

func (k *link) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	return do(k.n, ctx, "QueueStates", nil, func(bool) (map[string]ojs.QueueState, error) {
		return k.n.w.ledger.inner.QueueStates(ctx)
	})
}

func (k *link) PutDocuments(ctx context.Context, kind storage.Kind,
	list []storage.Document) ([]uint64, error) {
	return do(k.n, ctx, "PutDocuments", nil,
		func(bool) ([]uint64, error) { return k.n.w.ledger.inner.PutDocuments(ctx, kind, list) })
}

func (k *link) Documents(ctx context.Context, kind storage.Kind,
	q storage.DocumentQuery) ([]storage.Document, error) {
	return do(k.n, ctx, "Documents", nil,
		func(bool) ([]storage.Document, error) { return k.n.w.ledger.inner.Documents(ctx, kind, q) })
}

func (k *link) DueDocuments(ctx context.Context, kind storage.Kind, now time.Time,
	after *storage.Document, most int) (due []storage.Document, next time.Time, err error) {
	due, err = do(k.n, ctx, "DueDocuments", nil, func(bool) (list []storage.Document, err error) {
		list, next, err = k.n.w.ledger.inner.DueDocuments(ctx, kind, now, after, most)
		return list, err
	})
	return due, next, err
}

func (k *link) CancelAll(context.Context, time.Time, []string) (
	cancelled, moved []storage.Record, err error) {
	return nil, nil, ojs.ErrUnsupported // the programs have no workflows
}

func (k *link) Revive(context.Context, time.Time, []storage.Insert) ([]storage.Record, error) {
	return nil, ojs.ErrUnsupported
}

func (k *link) SetLimit(context.Context, time.Time, storage.LimitName, ojs.RateLimit, time.Time) error {
	return ojs.ErrUnsupported // the ledger checks the bounds of the jobs alone
}

func (k *link) BlockLimit(context.Context, time.Time, storage.LimitName, time.Time) error {
	return ojs.ErrUnsupported
}

func (k *link) GetLimit(ctx context.Context, now time.Time, name storage.LimitName) (storage.Limit, error) {
	return do(k.n, ctx, "GetLimit", storage.Limit{},
		func(bool) (storage.Limit, error) { return k.n.w.ledger.inner.GetLimit(ctx, now, name) })
}

func (k *link) ListLimits(ctx context.Context, now time.Time, kind storage.LimitKind, after string,
	most int) ([]storage.Limit, error) {
	return do(k.n, ctx, "ListLimits", nil, func(bool) ([]storage.Limit, error) {
		return k.n.w.ledger.inner.ListLimits(ctx, now, kind, after, most)
	})
}

// everythingEvery is how soon a lossy link makes up for what it has lost, by a notice of
// Everything.
const everythingEvery = 5 * time.Second

// ear is one listener of a link.
type ear struct {
	mu   sync.Mutex // held while f runs
	over bool
	f    func(storage.Notice)
}

func (e *ear) hear(n storage.Notice) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over {
		e.f(n)
	}
}

// Notify implements storage.Notifier. A lossy link has notices come late, twice, or
// never.
func (k *link) Notify(self any, f func(storage.Notice)) (stop func()) {
	n := k.n
	s, ok := storage.As[storage.Notifier](n.w.ledger.inner)
	if !ok {
		return func() {}
	}
	e := &ear{f: f}
	var mu sync.Mutex // guards lost
	lost := false
	gone := make(chan struct{})
	later := func(d time.Duration, do func()) {
		n.w.disturb(d)
		n.w.busy.Go(func() {
			n.w.sleepThrough(d, gone)
			if n.alive() {
				do()
			}
		})
	}
	silence := s.Notify(self, func(news storage.Notice) {
		n.mu.Lock()
		way, d := n.rnd.IntN(10), between(n.rnd, 0, 2*time.Second)
		crashed := n.crashed
		n.mu.Unlock()
		n.w.mu.Lock()
		fair := n.w.calm || !n.cfg.lossy
		n.w.mu.Unlock()
		switch {
		case crashed:
		case fair || way > 5:
			e.hear(news)
		case way > 4:
			e.hear(news)
			e.hear(news)
		case way > 2:
			later(d, func() { e.hear(news) })
		default:
			mu.Lock()
			first := !lost
			lost = true
			mu.Unlock()
			n.w.disturb(everythingEvery)
			if first {
				later(everythingEvery, func() {
					mu.Lock()
					lost = false
					mu.Unlock()
					e.hear(storage.Notice{Everything: true})
				})
			}
		}
	})
	return func() {
		silence()
		e.mu.Lock()
		e.over = true
		e.mu.Unlock()
		close(gone)
	}
}

// apply does an operation on many to its end.
func (n *node) apply(b operate.Bulk) error {
	for _, err := range n.eng.Jobs().Apply(n.w.ctx, b) {
		if err != nil {
			return err
		}
	}
	return nil
}
