// Package eventlog publishes the events of jobs in the order of their versions, while the
// calls that bring them overlap.
//
// # Protocol
//
// The events of a job come from goroutines of their own, and a transition may be handed
// in before the one that made it possible: a claim may be faster than the enqueue of the
// same job. So every storage call that may change jobs is an operation:
//
//	// before the call: the jobs that it may change, and the effect on jobs it cannot name
//	op := log.Begin(effect, ids...)
//	... the storage's call ...
//	op.Add(id, version, ...) // after it: one entry for each transition
//	op.End()
//
// An entry waits for the operations that may still hand in its predecessor, the event of
// the same job just before it. The predecessor comes from an operation that names the
// job, or from one that cannot name it. There are two kinds of these: a claim starts jobs
// (Starts), and promoting, replacing and dropping end jobs (Ends). The caller knows from
// the state before the transition which of the two its predecessor may come from:
//
//	state before   predecessors                        Entry.After
//	none, waiting  enqueue, retry, operator: by name   None
//	active         the same, and the claim             Starts; None if the claim has returned
//	finished       the same, and expiry, replacement   Ends
//
// # Invariants
//
//  1. An operation begins before its storage call and ends after it. If an event precedes
//     another, its operation began before the other's ended. So an entry waits only for
//     operations that have begun when it is handed in.
//  2. An entry waits only for operations that name its job, and for operations whose
//     effect is its After. A call that hangs delays no other job's events.
//  3. Entries of one job leave in the order of their versions. Entries with the same
//     version leave in the order in which they were handed in.
//  4. Because of 1 to 3 an entry leaves after its predecessor, and by induction after all
//     earlier events of its job.
//  5. Each step handles an entry or an operation once: the cost of a batch grows with its
//     length, and not with what else waits.
//  6. At most maxWaiting entries wait. Beyond that the log gives up the operations that
//     the oldest entry waits for. Their later events are not published, because they
//     would come out of order: subscribers see them in Missed.
//  7. The memory that an entry points to belongs to the caller until End returns. The log
//     copies an entry that has to wait or that an observer may keep, and the job of one
//     that a subscription selects. It copies and allocates nothing for any other.
//
// An event without a job is published when it is handed in. A transition that another
// engine makes has no event here, and nothing waits for it.
package eventlog

import (
	"container/list"
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/telemetry"
)

// Effect is what an operation may do to jobs that it cannot name when it begins.
type Effect uint8

// The effects.
const (
	None   Effect = iota
	Starts        // a claim
	Ends          // expiry, replacement by a unique job, dropping for room
	effects
)

// maxWaiting bounds how many entries wait.
const maxWaiting = 1 << 14

// Entry is one transition of one job.
type Entry struct {
	Job     string // empty for an event without a job
	Version uint64 // of the job, after the transition
	After   Effect // which effect of an unnamed operation may have brought the event before
	Events  []event.Event
	kept    bool // the events are complete, and their job is the log's own
}

// Observer sees every event, or those of its EventTypes if it has that method.
type Observer = telemetry.Observer

// observer is an Observer and what it sees.
type observer struct {
	Observer
	types map[event.Type]bool // nil: all
}

// Log publishes events to observers and subscriptions. It is safe for concurrent use.
type Log struct {
	observers []observer
	observed  map[event.Type]bool // by any observer; nil: all, if there are observers
	// All observers are foreign.Brief: events need no copy for them, and no goroutine.
	allBrief bool

	shows *foreign.Caller // of at.show, where an observer may end the goroutine

	ofJobs bool // an observer may see events about jobs
	logger *slog.Logger
	stamp  func(*event.Event)
	most   int // entries that may wait

	subs atomic.Pointer[[]*Subscription] // replaced under mu

	mu      locks.Mutex // guards the fields below, and is held while observers run
	last    uint64      // the number of the latest operation
	wide    [effects]list.List
	chains  map[string]*chain // of jobs that an operation names, or whose entries wait
	waiting list.List         // *entry, in the order in which they were handed in
	blocked [effects]list.List
	steps   int // work done, for tests: entries and operations handled
	lines   []line
	at      position // of the batch that observers are shown
	out     []Entry  // memory for the next call
	spare   []*chain // memory for other jobs
}

// maxSpare is how many chains the log keeps memory for, and how many events and entries
// an operation does, of 288 and 64 bytes each.
const maxSpare = 1024

// line is what the log has to say when mu is free: a logger is foreign code.
type line struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

// Op is an operation that is under way.
type Op struct {
	log    *Log
	number uint64
	effect Effect
	wide   *list.Element // in log.wide
	ids    []string
	lost   bool // given up, by invariant 6

	entries []Entry       // of Add
	events  []event.Event // theirs
}

var ops = sync.Pool{New: func() any { return new(Op) }}

// chain is what concerns one job.
type chain struct {
	ops     []*Op    // that name the job, in the order of their numbers
	entries []*entry // that wait, in the order of their versions
}

func (ch *chain) empty() bool { return ch == nil || len(ch.ops)+len(ch.entries) == 0 }

// entry is an Entry that waits.
type entry struct {
	Entry
	after   uint64        // the operations up to this number have to end first
	waits   *list.Element // in log.waiting
	blocked *list.Element // in log.blocked; nil: it does not wait for an effect
}

// New makes a log for the observers. The logger gets a line for each observer's panic.
// The function stamp completes an event that a listener may keep; nil: nothing is
// missing.
func New(observers []Observer, logger *slog.Logger, stamp func(*event.Event)) *Log {
	l := &Log{observed: make(map[event.Type]bool), allBrief: true, logger: logger, stamp: stamp,
		most: maxWaiting, chains: make(map[string]*chain)}
	l.shows = foreign.NewCaller(l.at.show)
	for _, o := range observers {
		l.allBrief = l.allBrief && foreign.IsBrief(o)
		selects, ok := o.(interface{ EventTypes() []event.Type })
		if !ok {
			l.observers, l.observed, l.ofJobs = append(l.observers, observer{Observer: o}), nil, true
			continue
		}
		types := make(map[event.Type]bool)
		for _, t := range selects.EventTypes() {
			types[t] = true
			l.ofJobs = l.ofJobs || slices.Contains(aboutJobs, t)
			if l.observed != nil {
				l.observed[t] = true
			}
		}
		l.observers = append(l.observers, observer{o, types})
	}
	return l
}

// observes reports whether an observer sees events of the type; an empty one stands for
// all that are about a job.
func (l *Log) observes(t event.Type) bool {
	if t == "" {
		return l.ofJobs
	}
	return len(l.observers) > 0 && (l.observed == nil || l.observed[t])
}

// Listening reports whether there is an observer or a subscription.
func (l *Log) Listening() bool { return len(l.observers) > 0 || len(l.subscriptions()) > 0 }

// Wants reports whether an observer or a subscription may want an event of the type,
// about the job of the queue. An empty job or queue stands for all of them, and an empty
// type for all that are about a job.
func (l *Log) Wants(t event.Type, job, queue string) bool {
	return l.observes(t) || slices.ContainsFunc(l.subscriptions(),
		func(s *Subscription) bool { return s.wants(t, job, queue) })
}

func (l *Log) subscriptions() []*Subscription {
	if subs := l.subs.Load(); subs != nil {
		return *subs
	}
	return nil
}

// unlock releases mu and writes the log lines.
func (l *Log) unlock() {
	lines := l.lines
	l.lines = nil
	l.mu.Unlock()
	for _, at := range lines {
		l.logger.LogAttrs(context.Background(), at.level, at.text, at.attrs...)
	}
}

// Begin begins an operation that may change the named jobs, and have the effect on
// others. Without observers and subscriptions it returns nil, and Add and End of a nil
// operation do nothing.
func (l *Log) Begin(effect Effect, ids ...string) *Op {
	if !l.Listening() {
		return nil
	}
	op := ops.Get().(*Op)
	op.log, op.effect, op.ids = l, effect, append(op.ids[:0], ids...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	op.number = l.last
	if effect != None {
		op.wide = l.wide[effect].PushBack(op)
	}
	for _, id := range op.ids {
		l.steps++
		ch := l.chain(id)
		ch.ops = append(ch.ops, op)
	}
	return op
}

// Add hands in a transition that the operation has brought about, those of one job in the
// order of the versions. The log copies the events, and not what they point to, which the
// caller must not change until End returns.
func (op *Op) Add(job string, version uint64, after Effect, events ...event.Event) {
	if op == nil || len(events) == 0 {
		return
	}
	from := len(op.events)
	op.events = append(op.events, events...)
	added := op.events[from:len(op.events):len(op.events)]
	op.entries = append(op.entries, Entry{Job: job, Version: version, After: after, Events: added})
}

// End ends the operation and publishes what it has brought about.
func (op *Op) End() {
	if op == nil {
		return
	}
	op.log.end(op)
	clear(op.ids)
	clear(op.entries)
	clear(op.events)
	if cap(op.events) > maxSpare || cap(op.ids) > maxSpare {
		return
	}
	*op = Op{ids: op.ids[:0], entries: op.entries[:0], events: op.events[:0]}
	ops.Put(op)
}

func (l *Log) end(op *Op) {
	l.mu.Lock()
	defer l.unlock()
	if op.lost {
		l.drop(op.entries)
		return
	}
	out := l.out[:0]
	l.forget(op)
	for i := range op.entries {
		out = l.enter(out, &op.entries[i])
	}
	for _, id := range op.ids {
		out = l.release(out, id)
	}
	for i := range op.entries { // of jobs that the operation has not named
		out = l.release(out, op.entries[i].Job)
	}
	out = l.unblock(out, op.effect)
	for l.waiting.Len() > l.most {
		out = l.giveUp(out)
	}
	l.publish(out)
	if clear(out); cap(out) <= maxSpare {
		l.out = out[:0]
	}
}

// Emit publishes an event without a job.
func (l *Log) Emit(ev event.Event) {
	l.mu.Lock()
	defer l.unlock()
	l.publish([]Entry{{Events: []event.Event{ev}}})
}

// outlive reports whether a listener may keep an event of an entry.
func (l *Log) outlive(e *Entry) bool {
	return !l.allBrief || slices.ContainsFunc(l.subscriptions(), func(s *Subscription) bool {
		return slices.ContainsFunc(e.Events, func(ev event.Event) bool { return s.filter.matches(&ev) })
	})
}

// keep makes the events of an entry complete, and the job that they share the log's own.
// With all the list of events becomes the log's own, too: the entry waits, or an observer
// may keep it.
func (l *Log) keep(e *Entry, all bool) {
	if e.kept {
		return
	}
	if e.kept = true; all {
		e.Events = slices.Clone(e.Events)
	}
	job := e.Events[0].Job
	if job != nil {
		job = job.Clone()
	}
	for i := range e.Events {
		ev := &e.Events[i]
		if ev.Job = job; l.stamp != nil {
			l.stamp(ev)
		}
	}
}

// position is how far observers have come in a batch.
type position struct {
	log                    *Log
	out                    []Entry
	entry, event, observer int
	seen                   event.Type // the type of the latest event shown
}

// show shows what is left.
func (p *position) show() {
	for ; p.entry < len(p.out); p.entry, p.event = p.entry+1, 0 {
		for events := p.out[p.entry].Events; p.event < len(events); p.event, p.observer = p.event+1, 0 {
			ev := &events[p.event]
			p.seen = ev.Type
			for p.observer < len(p.log.observers) {
				o := p.log.observers[p.observer]
				p.observer++ // before the call, which may not return
				if o.types == nil || o.types[ev.Type] {
					o.Observe(ev)
				}
			}
		}
	}
}

// goOn is show for observers that may panic, and do not end the goroutine.
func (p *position) goOn() (stop *foreign.Stop) {
	defer func() {
		if v := recover(); v != nil {
			stop = &foreign.Stop{Value: v}
		}
	}()
	p.show()
	return nil
}

// mu is held in the rest.

// chain returns what concerns a job.
func (l *Log) chain(id string) *chain {
	ch := l.chains[id]
	if ch == nil {
		if n := len(l.spare); n > 0 {
			ch, l.spare = l.spare[n-1], l.spare[:n-1]
		} else {
			ch = new(chain)
		}
		l.chains[id] = ch
	}
	return ch
}

// forget takes an operation off what others wait for.
func (l *Log) forget(op *Op) {
	if op.wide != nil {
		l.wide[op.effect].Remove(op.wide)
	}
	for _, id := range op.ids {
		l.steps++
		ch := l.chains[id]
		if i := slices.Index(ch.ops, op); i >= 0 { // the same id may be named twice
			ch.ops = slices.Delete(ch.ops, i, i+1)
		}
	}
}

// enter publishes an entry, or has it wait until release.
func (l *Log) enter(out []Entry, e *Entry) []Entry {
	l.steps++
	ch := l.chains[e.Job]
	if ch.empty() && (e.After == None || l.wide[e.After].Len() == 0) {
		return append(out, *e)
	}
	ch = l.chain(e.Job)
	w := &entry{Entry: *e, after: l.last}
	l.keep(&w.Entry, true)
	w.waits = l.waiting.PushBack(w)
	if e.After != None {
		w.blocked = l.blocked[e.After].PushBack(w)
	}
	at := len(ch.entries)
	for at > 0 && ch.entries[at-1].Version > e.Version {
		at--
		l.steps++
	}
	ch.entries = slices.Insert(ch.entries, at, w)
	return out
}

// release publishes the entries of a job that have nothing to wait for, up to the first
// that has.
func (l *Log) release(out []Entry, job string) []Entry {
	ch := l.chains[job]
	if ch == nil {
		return out
	}
	for len(ch.entries) > 0 && l.ready(ch, ch.entries[0]) {
		l.steps++
		e := ch.entries[0]
		ch.entries[0] = nil
		ch.entries = ch.entries[1:]
		l.waiting.Remove(e.waits)
		if e.blocked != nil {
			l.blocked[e.After].Remove(e.blocked)
		}
		out = append(out, e.Entry)
	}
	if ch.empty() {
		delete(l.chains, job)
		if len(l.spare) < maxSpare {
			l.spare = append(l.spare, ch)
		}
	}
	return out
}

// ready reports whether an entry has no operation to wait for.
func (l *Log) ready(ch *chain, e *entry) bool {
	return (len(ch.ops) == 0 || ch.ops[0].number > e.after) &&
		(e.After == None || l.oldest(e.After) > e.after)
}

// oldest is the number of the oldest operation with an effect.
func (l *Log) oldest(effect Effect) uint64 {
	if front := l.wide[effect].Front(); front != nil {
		return front.Value.(*Op).number
	}
	return math.MaxUint64
}

// unblock publishes entries that have waited for operations with an effect.
func (l *Log) unblock(out []Entry, effect Effect) []Entry {
	if effect == None {
		return out
	}
	for front := l.blocked[effect].Front(); front != nil; front = l.blocked[effect].Front() {
		e := front.Value.(*entry)
		if l.oldest(effect) <= e.after {
			break
		}
		l.steps++
		l.blocked[effect].Remove(front)
		e.blocked = nil
		out = l.release(out, e.Job)
	}
	return out
}

// giveUp gives up the operations that the job of the oldest entry waits for.
func (l *Log) giveUp(out []Entry) []Entry {
	ch := l.chains[l.waiting.Front().Value.(*entry).Job]
	e := ch.entries[0]
	var lost []*Op
	for _, op := range ch.ops {
		if op.number <= e.after {
			lost = append(lost, op)
		}
	}
	if e.After != None {
		for at := l.wide[e.After].Front(); at != nil && at.Value.(*Op).number <= e.after; at = at.Next() {
			if op := at.Value.(*Op); !slices.Contains(lost, op) {
				lost = append(lost, op)
			}
		}
	}
	for _, op := range lost {
		op.lost = true
		l.forget(op)
	}
	l.lines = append(l.lines, line{slog.LevelWarn,
		"too many events wait for storage calls; the events of these calls are lost",
		[]slog.Attr{slog.Int("calls", len(lost)), slog.Int("waiting", l.waiting.Len())}})
	for _, op := range lost {
		for _, id := range op.ids {
			out = l.release(out, id)
		}
		out = l.unblock(out, op.effect)
	}
	return out
}

// drop counts events that come too late as missed.
func (l *Log) drop(entries []Entry) {
	for i := range entries {
		for k := range entries[i].Events {
			for _, s := range l.subscriptions() {
				if s.filter.matches(&entries[i].Events[k]) {
					s.missed++
				}
			}
		}
	}
}

// publish hands events to observers and subscriptions.
func (l *Log) publish(out []Entry) {
	for i := range out {
		if e := &out[i]; !e.kept && l.outlive(e) {
			l.keep(e, !l.allBrief)
		}
	}
	if len(l.observers) > 0 && len(out) > 0 {
		l.observe(out)
	}
	for _, s := range l.subscriptions() {
		for i := range out {
			for k := range out[i].Events {
				s.send(&out[i].Events[k])
			}
		}
	}
}

// observe shows the observers the events, one by one. An observer that stops the call has
// seen its event.
func (l *Log) observe(out []Entry) {
	at := &l.at
	*at = position{log: l, out: out}
	for at.entry < len(out) {
		var stop *foreign.Stop
		if l.allBrief {
			stop = at.goOn()
		} else {
			stop = l.shows.Call()
		}
		if stop != nil {
			l.lines = append(l.lines, line{slog.LevelError, "observer " + stop.How(),
				[]slog.Attr{slog.String("event", string(at.seen)), stop.Attr()}})
		}
	}
	*at = position{}
}
