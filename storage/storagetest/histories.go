package storagetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
)

// How histories are made and checked:
//
//  1. A theme is drawn, and then a number of clients. One client makes the first calls,
//     so that there are jobs.
//  2. Each client draws some calls and makes them while the others make theirs. Clients
//     know what all have seen, so that they hold the same tokens. They begin at the same
//     time and make some calls in a row, or each makes its calls as soon as it can.
//  3. Each call is recorded: what it was given and what it answered, between two ticks of
//     one counter.
//  4. A checker looks for an order of the calls that keeps to these ticks and in which
//     Reference answers the same. If there is none, the history is not linearizable.
//  5. Such a history is shortened, its theme goes on, and the shortest is printed.
//
// Invariants:
//
//  1. A call is given the same values as the model: normal ones (Config.normal).
//  2. A history begins with an empty storage.

// Histories makes calls of a storage from several goroutines at once, and through several
// handles if Config.Another opens them. It checks that some order of the calls explains
// all answers: that the storage is linearizable. The checker is
// github.com/anishathalye/porcupine, the model is Reference.
//
// A failure prints the shortest history that was found, one call a line. With the flag
// -artifacts, go test keeps it as a page for browsers. Histories makes 2000 histories, or
// as many as five seconds allow. With OJS_HISTORIES=10m in the environment it goes on for
// ten minutes. -rapid.seed draws the same calls again, but not the moments at which they
// meet.
func Histories(t *testing.T, cfg Config) {
	t.Helper()
	seed := rand.Uint64()
	if f := flag.Lookup("rapid.seed"); f != nil {
		if n, err := strconv.ParseUint(f.Value.String(), 10, 64); err == nil && n > 0 {
			seed = n
		}
	}
	b := defaultBudget
	if text := os.Getenv("OJS_HISTORIES"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("OJS_HISTORIES: %v", err)
		}
		b.histories, b.time = math.MaxInt, d
	}
	found, stats, err := search(cfg, seed, b)
	switch {
	case err != nil:
		t.Fatal(err)
	case found != nil:
		t.Errorf("no order of the calls explains the answers (history %d of -rapid.seed=%d)\n%s",
			found.number, seed, found)
		if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
			found.draw(t)
		}
	}
	t.Log(stats)
}

// budget is how many histories are made, and how long that may take.
type budget struct {
	histories int
	time      time.Duration
	shorter   int // histories that are made to find a shorter one than the first that is not linearizable
}

var defaultBudget = budget{histories: 2000, time: 5 * time.Second, shorter: 300}

// history is calls that overlap, and how they were drawn.
type history struct {
	number int
	theme  *theme
	byJob  bool
	calls  []*historyCall

	disturbed bool // calls that fail may have been done (Failovers)
}

// stats counts what was done.
type stats struct {
	histories, calls, undecided int
	longest                     time.Duration // of the checks
}

func (s stats) String() string {
	return fmt.Sprintf("%d histories of %d calls, %d undecided, the longest check took %v",
		s.histories, s.calls, s.undecided, s.longest)
}

// search makes histories until one is not linearizable, and then tries to find a shorter
// one.
func search(cfg Config, seed uint64, b budget) (*violation, stats, error) {
	var st stats
	able := slices.DeleteFunc(slices.Clone(themes), func(t theme) bool {
		why, _ := cfg.lacks(nil, t.needs)
		return why != ""
	})
	p := &place{cfg: &cfg}
	defer p.close()
	end := wall.Now().Add(b.time)
	var shortest *violation
	for n := 0; n < b.histories && wall.Now().Before(end); n++ {
		rnd := rand.New(rand.NewPCG(seed, uint64(n)))
		th := &able[n%len(able)]
		if shortest != nil {
			th = shortest.theme
		}
		handles, err := p.handles()
		if err != nil {
			return shortest, st, err
		}
		var h *history
		if !within(func() { h = makeHistory(&cfg, handles, th, n, rnd) }) {
			p.hangs = true
			return shortest, st, fmt.Errorf("the storage hangs in history %d, %s", n, th.name)
		}
		st.histories++
		st.calls += len(h.calls)
		began := wall.Now()
		result := h.check(h.effects())
		st.longest = max(st.longest, wall.Now().Sub(began))
		switch result {
		case porcupine.Unknown:
			st.undecided++
		case porcupine.Illegal:
			v := h.shorten()
			if shortest == nil {
				b.histories, end = n+1+b.shorter, wall.Now().Add(shorterTime)
			}
			if shortest == nil || len(v.effects) < len(shortest.effects) {
				shortest = v
			}
			p.renew()
		}
	}
	return shortest, st, nil
}

// shorterTime is how long a history is looked for that is shorter than the first one
// found.
const shorterTime = 2 * time.Second

// checkTime is how long one history may be checked.
const checkTime = 2 * time.Second

// effects are the calls of a history, part by part.
func (h *history) effects() (list []*effect) {
	for _, c := range h.calls {
		for part := range c.parts {
			list = append(list, &effect{historyCall: c, part: part, free: h.disturbed && c.ambiguous()})
		}
	}
	return list
}

// operations are effects as the checker wants them.
func operations(list []*effect, byJob bool) []porcupine.Operation {
	latest := make(map[*historyCall]int)
	var out []porcupine.Operation
	for _, e := range list {
		in := input{effect: e}
		if !e.alone(byJob) {
			in.after = latest[e.historyCall]
		}
		if e.ordered(byJob) {
			latest[e.historyCall] = e.part + 1
		}
		end := e.ended
		if e.free {
			end = math.MaxInt64
		}
		out = append(out, porcupine.Operation{ClientId: e.client, Input: in, Call: e.began, Return: end})
	}
	return out
}

func (h *history) check(list []*effect) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(porcupineModel(h.byJob), operations(list, h.byJob), checkTime)
}

// place is an empty storage for history after history.
type place struct {
	cfg  *Config
	tb   *quiet
	all  []*handle
	used int

	hangs bool
}

// storageHistories is how many histories one storage is used for.
const storageHistories = 100

// handles returns handles of an empty storage.
func (p *place) handles() ([]*handle, error) {
	if p.used++; p.all != nil && p.used <= storageHistories {
		cfg, first := p.cfg, p.all[0]
		var err error
		if !within(func() { err = empty(cfg, first) }) {
			p.hangs = true
			return nil, errors.New("the storage hangs while it is emptied")
		}
		return p.all, err
	}
	if p.close(); p.hangs {
		return nil, errors.New("Close hangs")
	}
	p.tb, p.used = &quiet{}, 1
	var opened []storage.Storage
	done := make(chan struct{})
	go func() { // which a failure to open ends
		defer close(done)
		opened = append(opened, p.cfg.Open(p.tb))
		for p.cfg.Another != nil && len(opened) < 3 {
			opened = append(opened, p.cfg.Another(p.tb, opened[0]))
		}
	}()
	<-done
	if p.tb.Failed() {
		return nil, fmt.Errorf("the storage cannot be opened: %s", strings.Join(p.tb.failures, "; "))
	}
	for _, s := range opened {
		p.all = append(p.all, newHandle(s))
	}
	return p.all, nil
}

// renew has the next history begin with another storage.
func (p *place) renew() { p.used = storageHistories }

func (p *place) close() {
	if !p.hangs { // or Close would hang, too
		for _, h := range slices.Backward(p.all) {
			p.hangs = p.hangs || !within(func() { _ = h.s.Close() })
		}
	}
	if p.all = nil; p.tb != nil {
		within(p.tb.end)
	}
	p.tb = nil
}

// empty removes what a history has left.
func empty(cfg *Config, h *handle) error {
	ctx := context.Background()
	for {
		page, err := h.s.List(ctx, storage.Query{})
		if err != nil {
			return fmt.Errorf("List failed: %w", err)
		}
		if len(page.Records) == 0 {
			break
		}
		var changes []storage.Change
		for i := range page.Records {
			if r := page.Records[i]; !r.State.Terminal() {
				v := r.Version
				r.Cancel(epoch)
				r.Version = v
				changes = append(changes, storage.Change{Record: r, AttemptFieldsOnly: true})
			}
		}
		if _, err := h.s.Settle(ctx, epoch, changes, nil); err != nil {
			return fmt.Errorf("Settle failed: %w", err)
		}
		// Some have moved on, because the jobs that they waited for have ended.
		if page, err = h.s.List(ctx, storage.Query{States: finished}); err != nil {
			return fmt.Errorf("List failed: %w", err)
		}
		if n, err := h.s.Delete(ctx, ids(page.Records)); err != nil || n == 0 {
			return fmt.Errorf("Delete of %d jobs that have ended deleted %d: %w", len(page.Records), n, err)
		}
	}
	for _, q := range []string{"a", "b"} {
		if _, err := h.s.SetQueueState(ctx, q, ojs.QueueActive); err != nil {
			return fmt.Errorf("SetQueueState failed: %w", err)
		}
	}
	for _, name := range []string{"daily", "hourly"} {
		if _, err := document.Of(h.s).DeleteCron(ctx, name); err != nil {
			return fmt.Errorf("DeleteCron failed: %w", err)
		}
	}
	return nil
}

// maker makes the calls of a history.
type maker struct {
	*history
	handles []*handle
	known   *known
	draws   []*draw // by client
	clock   atomic.Int64
	made    [][]*historyCall // by client
}

func newMaker(cfg *Config, handles []*handle, th *theme, number, clients int, rnd *rand.Rand) *maker {
	k := &known{jobs: make(map[string]storage.Record), crons: make(map[string]storage.Cron)}
	m := &maker{history: &history{number: number, theme: th, byJob: cfg.JobByJob}, handles: handles, known: k,
		draws: make([]*draw, clients), made: make([][]*historyCall, clients)}
	still := rnd.IntN(2) == 0
	for i := range m.draws {
		m.draws[i] = &draw{
			theme: th, rnd: rand.New(rand.NewPCG(rnd.Uint64(), uint64(i))), cfg: cfg, known: k,
			client: i, number: number, still: still,
		}
	}
	return m
}

// call makes a call of a client.
func (m *maker) call(client int, op operation) *historyCall {
	c := &historyCall{client: client, op: op}
	handle, ctx := m.handles[client%len(m.handles)], context.Background()
	c.began = m.clock.Add(1)
	c.answer = op.do(ctx, handle)
	c.ended = m.clock.Add(1)
	return c
}

func (m *maker) keep(c *historyCall) {
	m.known.learn(c)
	m.made[c.client] = append(m.made[c.client], c)
}

// first makes the calls of one client before all others.
func (m *maker) first() {
	for i := range m.theme.before {
		if op := m.draws[0].first(i); op != nil {
			m.keep(m.call(0, op))
		}
	}
}

// end returns the history of the calls that were made.
func (m *maker) end(cfg *Config) *history {
	h := m.history
	h.calls = slices.Concat(m.made...)
	slices.SortFunc(h.calls, func(a, b *historyCall) int { return int(a.began - b.began) })
	for _, c := range h.calls {
		c.answer.normal(cfg)
		c.parts = c.op.parts(&c.answer, h.byJob)
	}
	h.findUnsettled()
	return h
}

// makeHistory has clients make calls.
func makeHistory(cfg *Config, handles []*handle, th *theme, number int, rnd *rand.Rand) *history {
	clients, rounds, burst := 2+rnd.IntN(3), 1+rnd.IntN(4), 1+rnd.IntN(3)
	together := rnd.IntN(4) > 0
	m := newMaker(cfg, handles, th, number, clients, rnd)
	m.first()
	var all sync.WaitGroup
	if together {
		for range rounds {
			meet := &meeting{clients: int64(clients)}
			calls := make([][]*historyCall, clients)
			for i, d := range m.draws {
				var ops []operation
				for range burst {
					ops = append(ops, d.next())
				}
				all.Go(func() {
					meet.wait()
					for _, op := range ops { // with nothing between them
						calls[i] = append(calls[i], m.call(i, op))
					}
				})
			}
			all.Wait()
			for _, c := range slices.Concat(calls...) {
				m.keep(c)
			}
		}
	} else {
		for i, d := range m.draws {
			all.Go(func() {
				for range rounds + burst - 1 {
					m.keep(m.call(i, d.next()))
				}
			})
		}
		all.Wait()
	}
	return m.end(cfg)
}

// findUnsettled sets the queues whose state changes during a claim or an insert.
func (h *history) findUnsettled() {
	if !h.byJob {
		return
	}
	for _, c := range h.calls {
		switch c.op.(type) {
		case *insertCall, *claimCall, *stepCall:
		default:
			continue
		}
		for _, s := range h.calls {
			if op, ok := s.op.(*queueStateCall); ok && s.began < c.ended && c.began < s.ended {
				c.unsettled = append(c.unsettled, op.queue)
			}
		}
	}
}

// meeting lets clients begin at the same time.
type meeting struct {
	clients int64
	come    atomic.Int64
}

// wait waits until all are there. It spins, so that those on other processors go on at
// the same time.
func (m *meeting) wait() {
	m.come.Add(1)
	for spins := 1; m.come.Load() < m.clients; spins++ {
		if spins%2000 == 0 {
			runtime.Gosched()
		}
	}
}
