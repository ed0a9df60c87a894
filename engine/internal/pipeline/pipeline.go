// Package pipeline decides what the goroutines of an engine do next. It makes no call of
// a storage and runs no handler: it keeps the books between them.
//
// Jobs that were claimed and have not started wait in the local queue, which all
// goroutines share. Outcomes wait in a buffer. A step stores what is in the buffer and
// claims what is to run next, so that one call of the storage can do both:
//
//	      claim                     start                  outcome
//	storage ------> local queue ----------> handler runs ----------> buffer
//	   ^                                                                |
//	   +------------------------------ step ----------------------------+
//
// A goroutine asks for a Task, does it, and hands in what came of it, which is the
// question for the next one. A goroutine is not a slot: one that makes a step holds none.
//
// # Invariants
//
//  1. No more handlers run than there are slots. An outcome keeps its slot if more than
//     allowance outcomes are not stored yet, and if the storage has failed to take it and
//     as many others as there are slots.
//  2. A job in the local queue starts as soon as any slot is free. A job that has waited
//     for wait goes back to the storage. All of them do when Return or Stop is called.
//  3. Jobs start in the order in which they were claimed.
//  4. An outcome is stored by the next step. If no step is due, a step begins with the
//     next Tick, or on a slow storage when no other step is under way after it; without a
//     local queue, a step is due at once.
//  5. At most maxSteps steps are under way, and on a slow storage more than one only for
//     gather outcomes. So outcomes gather, and one slow step does not hold up the others.
//  6. At most one goroutine is starting. If it finds work and there is more, it starts
//     the next, so that wake-ups spread as fast as there is work.
//  7. A goroutine leaves only if there is nothing to do. The lock under which it decides
//     so is the lock under which work comes in, so no work is left behind.
//
// # The size of the local queue
//
// The local queue is as long as the number of jobs that have completed in the last few
// milliseconds. On a slow storage, whose steps cost little more for many jobs, these are
// some tens, or the time that two steps take if that is longer. The queue at most doubles
// from one claim to the next. So no jobs wait behind handlers that take their time, and
// almost none goes back.
package pipeline

import (
	"runtime"
	"time"

	"github.com/ojsengine/ojs/engine/internal/idle"
	"github.com/ojsengine/ojs/internal/spin"
)

const (
	// Unknown stands for an unknown number of available jobs. Claims go on until one is
	// empty.
	Unknown = 1 << 30
	// TickTime is how long outcomes wait for a Tick.
	TickTime = time.Millisecond

	maxWait    = 5 * time.Millisecond   // in the local queue
	slowWait   = 100 * time.Millisecond // if giving back takes a call of a slow storage
	window     = 4 * time.Millisecond   // of completions that count for the size of the queue
	slowWindow = 20 * time.Millisecond  // if a call takes time
	maxStep    = 250 * time.Millisecond // longer steps count as this long
	maxSteps   = 4
	gather     = 32 // outcomes, for one more step of a slow storage
	maxClaim   = 500
	maxStore   = 500
)

// Config says what an engine and its storage are like.
type Config struct {
	Slots    int
	Slow     bool                  // calls of the storage take time
	Unclaims bool                  // the storage can give jobs back
	Joint    func() bool           // one call of the storage stores and claims
	Ahead    func() int            // most jobs in the local queue behind the slots; 0: claims are exact
	Now      func() time.Time      // the engine's clock
	Start    func()                // starts a goroutine that calls Enter; comes with the lock
	Arm      func(d time.Duration) // has Tick called in d; replaces the call before; comes with the lock
	Work     *idle.Counter         // counts the goroutines, and what they leave behind
}

// Kind is what a Task asks for.
type Kind uint8

// The kinds of tasks.
const (
	Leave   Kind = iota // end the goroutine
	Run                 // run Job, then call Ended or Dropped
	Step                // store Outcomes, claim up to Claim jobs, then call Stepped
	Unclaim             // give Jobs back to the storage, then call Unclaimed
)

// Task is what a goroutine does next.
type Task[J, O any] struct {
	Kind     Kind
	Job      J
	Jobs     []J
	Outcomes []O
	Claim    int // 0: claim nothing
	Free     int // of Claim: how many jobs can start at once

	news, emptied, returns uint64 // as they were when the step began

	Began time.Time // of a Step: when it began
}

// waiting is a job in the local queue.
type waiting[J any] struct {
	job   J
	since time.Time
}

// Pipeline keeps the books of one run of an engine. It is safe for concurrent use.
type Pipeline[J, O any] struct {
	Config

	mu         spin.Mutex   // guards everything below, and Slots
	goroutines int          // that have not left
	starting   int          // of them: have not asked for a task yet
	running    int          // handlers
	failed     int          // outcomes that the storage has failed to take
	queue      []waiting[J] // the next one at head
	head       int
	done       []O // outcomes
	spare      []O // memory for them
	storing    int // outcomes in steps
	steps      int // under way
	claims     int // of them: those that claim
	asked      int // jobs that these ask for
	reserved   int // slots for the jobs of inserts
	back       []J // jobs to be given back

	backlog int    // available jobs that no claim has looked for, as far as known; at times too many
	news    uint64 // raised whenever backlog is
	emptied uint64 // raised whenever a claim was empty and backlog became 0
	returns uint64 // raised by Return and Stop
	behind  bool   // the latest claim has found as many jobs as it wanted, or a new job others before it
	blocked bool   // no claims for now
	stopped bool
	flush   bool // a step is due, however few outcomes there are
	armed   bool // a Tick is to come
	soon    bool // in TickTime, for outcomes
	left    bool // Work counts what goroutines have left behind for a Tick

	target       int           // size of the local queue
	stepTime     time.Duration // that a step of a slow storage takes, about
	since        time.Time
	now, earlier int // completions since then, and in the window before
}

// New makes a pipeline.
func New[J, O any](cfg Config) *Pipeline[J, O] { return &Pipeline[J, O]{Config: cfg} }

// Available says that n more jobs may be claimed.
func (p *Pipeline[J, O]) Available(n int) {
	if n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backlog = min(p.backlog+n, Unknown)
	p.news++
	p.wake()
}

// Enter is a started goroutine's first call.
func (p *Pipeline[J, O]) Enter() Task[J, O] {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting--
	return p.next(time.Time{})
}

// Ended says that the handler of a job has returned, with an outcome to store.
func (p *Pipeline[J, O]) Ended(o O, now time.Time) Task[J, O] {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	p.done = append(p.done, o)
	p.count(now)
	if p.Slow && (p.waits() == 0 || p.stepDue()) {
		// A step comes next: handlers that are about to return share it.
		p.mu.Unlock()
		runtime.Gosched()
		p.mu.Lock()
		now = time.Time{}
	}
	return p.next(now)
}

// Dropped says that the handler of a job has returned, with nothing to store.
func (p *Pipeline[J, O]) Dropped() Task[J, O] {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	return p.next(time.Time{})
}

// Failed says that the storage has failed to take n outcomes of a step. For each of them
// one more goroutine calls Recovered.
func (p *Pipeline[J, O]) Failed(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed += n
	p.begin(n)
}

// Stepped hands in the jobs that a step has claimed. If there are none, empty says that
// there was nothing for any claim.
func (p *Pipeline[J, O]) Stepped(t *Task[J, O], jobs []J, empty bool) Task[J, O] {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps--
	now := t.Began
	if p.Slow || len(jobs) > p.slots() { // some of them are going to wait
		now = p.Now()
	}
	if p.Slow {
		p.stepTime += (min(now.Sub(t.Began), maxStep) - p.stepTime) / 4
	}
	p.storing -= len(t.Outcomes)
	clear(t.Outcomes)
	p.spare = t.Outcomes[:0]
	if t.Claim > 0 {
		p.claims--
		p.asked -= t.Claim
		p.behind = len(jobs) == t.Claim
	}
	switch {
	case len(jobs) > 0:
		if p.emptied == t.emptied && p.backlog != Unknown { // or these are not among the jobs it counts
			p.backlog = max(p.backlog-len(jobs), 0)
		}
		if p.returns != t.returns {
			p.back = append(p.back, jobs...)
			break
		}
		p.push(jobs, now)
	case empty && p.news == t.news:
		p.backlog = 0
		p.emptied++
	case t.Claim > 0 && t.Free == 0:
		p.target = 0 // the next job is one that no claim ahead gets
	}
	return p.next(time.Time{})
}

// Reserve keeps slots for n new jobs, which the insert that stores them is to claim: it
// is a task that Reserved ends. It reports false if the slots for them are not free, if
// other jobs are likely to be ahead of them, or if no jobs may be claimed ahead. Slots
// for which a step claims count as free: the jobs of either may have to wait in the local
// queue.
func (p *Pipeline[J, O]) Reserve(n int) (t Task[J, O], ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.behind || p.blocked || p.stopped || p.exact() || !p.Joint() || p.slots()-p.waits()-p.reserved < n {
		return t, false
	}
	t.Claim, t.returns = n, p.returns
	p.begin(1)
	p.reserved += n
	return t, true
}

// Reserved hands in the jobs that were claimed for a Reserve, which are all or none.
func (p *Pipeline[J, O]) Reserved(t *Task[J, O], jobs []J) Task[J, O] {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserved -= t.Claim
	p.behind = len(jobs) == 0
	if p.returns != t.returns {
		p.back = append(p.back, jobs...)
	} else {
		p.push(jobs, p.Now())
	}
	return p.next(time.Time{})
}

// Unclaimed says that n jobs of an Unclaim are available again.
func (p *Pipeline[J, O]) Unclaimed(n int) Task[J, O] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 0 {
		p.backlog = min(p.backlog+n, Unknown)
		p.news++
	}
	return p.next(time.Time{})
}

// Recovered says that an outcome which the storage had failed to take is stored, or given
// up. The goroutine that says so leaves.
func (p *Pipeline[J, O]) Recovered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed--
	p.wake()
	p.leave()
}

// Block keeps claims from the storage until Unblock.
func (p *Pipeline[J, O]) Block() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = true
}

// Unblock lets claims go on.
func (p *Pipeline[J, O]) Unblock() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = false
	p.wake()
}

// Resize sets the number of slots to what slots returns, which the last of several calls
// asks last. Handlers beyond it go on, and none starts until there are fewer.
func (p *Pipeline[J, O]) Resize(slots func() int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Slots = slots()
	p.wake()
	p.arm()
}

// Full reports whether jobs wait for a slot, as far as known, and for nothing else: the
// storage gives jobs and takes outcomes.
func (p *Pipeline[J, O]) Full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots() <= 0 && p.backlog+p.waits() > 0 && !p.blocked && p.failed == 0
}

// Return has the jobs of the local queue given back, and those of claims under way.
func (p *Pipeline[J, O]) Return() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.returnAll()
	p.wake()
}

// Stop ends claims, and has done what Return does.
func (p *Pipeline[J, O]) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.returnAll()
	p.wake()
}

// Tick sees to what has waited: outcomes are stored, and old jobs go back.
func (p *Pipeline[J, O]) Tick(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	p.flush = len(p.done) > 0
	for p.waits() > 0 && now.Sub(p.queue[p.head].since) >= p.wait() {
		p.back = append(p.back, p.pop())
	}
	p.wake()
	p.arm()
}

// Drained reports whether a stopped pipeline has nothing left.
func (p *Pipeline[J, O]) Drained() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped && p.goroutines == 0
}

// Busy returns how many slots are taken. An outcome that the storage has failed to take
// takes none if a handler has got the slot before.
func (p *Pipeline[J, O]) Busy() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.running, min(p.taken(), p.Slots))
}

// mu is held in all that follow.

// waits is how many jobs are in the local queue.
func (p *Pipeline[J, O]) waits() int { return len(p.queue) - p.head }

func (p *Pipeline[J, O]) push(jobs []J, now time.Time) {
	if p.head > 0 && len(p.queue)+len(jobs) > cap(p.queue) {
		n := copy(p.queue, p.queue[p.head:])
		clear(p.queue[n:])
		p.queue, p.head = p.queue[:n], 0
	}
	for _, j := range jobs {
		p.queue = append(p.queue, waiting[J]{j, now})
	}
}

func (p *Pipeline[J, O]) pop() J {
	j := p.queue[p.head].job
	p.queue[p.head] = waiting[J]{}
	if p.head++; p.head == len(p.queue) {
		p.queue, p.head = p.queue[:0], 0
	}
	return j
}

func (p *Pipeline[J, O]) returnAll() {
	if !p.Unclaims {
		return // its jobs can start, since no more were claimed
	}
	p.returns++
	for p.waits() > 0 {
		p.back = append(p.back, p.pop())
	}
}

// taken is how many slots are not free.
func (p *Pipeline[J, O]) taken() int {
	return p.running + max(p.failed-p.Slots, 0) + max(len(p.done)+p.storing-p.allowance(), 0)
}

// allowance is how many outcomes may be stored without a slot.
func (p *Pipeline[J, O]) allowance() int {
	switch ahead := p.Ahead(); {
	case ahead > 0:
		return p.Slots + ahead
	case p.Slow:
		return p.Slots
	}
	return 0
}

// slots is how many slots are free.
func (p *Pipeline[J, O]) slots() int { return p.Slots - p.taken() }

// next is the task of a goroutine that has none. The time is zero if no caller has read
// the clock.
func (p *Pipeline[J, O]) next(now time.Time) (t Task[J, O]) {
	switch {
	case len(p.back) > 0:
		t.Kind, t.Jobs, p.back = Unclaim, p.back, nil
	case p.stepDue() || p.waits() == 0 && p.wantsStep():
		p.step(&t, now)
	case p.waits() > 0 && p.slots() > 0:
		t.Kind, t.Job = Run, p.pop()
		p.running++
	}
	p.wake()
	p.arm()
	if t.Kind == Leave {
		p.leave()
	}
	return t
}

// begin counts n more goroutines.
func (p *Pipeline[J, O]) begin(n int) {
	p.goroutines += n
	p.Work.Add(n)
}

// leave ends a goroutine. If jobs or outcomes wait for a Tick, the goroutine stays
// counted in Work until another one leaves nothing behind.
func (p *Pipeline[J, O]) leave() {
	p.goroutines--
	left := p.waits()+len(p.done) > 0
	switch {
	case left == p.left:
		p.Work.Add(-1)
	case !left:
		p.Work.Add(-2)
	}
	p.left = left
}

// exact reports whether no job is claimed ahead.
func (p *Pipeline[J, O]) exact() bool { return p.Ahead() == 0 }

// stepDue reports whether a step goes before the jobs that wait.
func (p *Pipeline[J, O]) stepDue() bool {
	if p.steps >= maxSteps {
		return false
	}
	if n := len(p.done); n > 0 && (p.flushes() || n >= max(p.target, p.least()) || p.exact()) {
		return true
	}
	if p.Slow && p.claims > 0 { // the queue is being filled, and a call for a few more costs as much
		return false
	}
	claim, _ := p.size()
	return claim > 0 && p.waits() < max(p.target/4, 1)
}

// flushes reports whether outcomes are to be stored, however few there are.
func (p *Pipeline[J, O]) flushes() bool {
	return len(p.done) > 0 && (p.stopped || p.flush && (!p.Slow || p.steps == 0))
}

// wantsStep reports whether there is anything for a step to do.
func (p *Pipeline[J, O]) wantsStep() bool {
	if p.steps >= maxSteps {
		return false
	}
	claim, _ := p.size()
	return len(p.done) >= p.least() || claim > 0 && (p.claims == 0 || !p.Slow)
}

// least is how many outcomes are worth a step. While a slow storage has one under way,
// they gather for the next, since a call for a few more costs as much.
func (p *Pipeline[J, O]) least() int {
	if p.Slow && p.steps > 0 {
		return gather
	}
	return 1
}

// size is how many jobs a claim asks for, and how many of them can start at once.
func (p *Pipeline[J, O]) size() (claim, free int) {
	if p.backlog == 0 || p.blocked || p.stopped || p.Slow && p.claims > 0 && !p.Joint() {
		return 0, 0
	}
	promised := p.waits() + p.asked + p.reserved
	free = max(p.slots()-promised, 0)
	if p.Slow {
		free = min(free, maxClaim)
	} else {
		free = min(free, 1)
	}
	return max(free, min(p.target, p.Ahead(), p.backlog)-promised), free
}

func (p *Pipeline[J, O]) step(t *Task[J, O], now time.Time) {
	if now.IsZero() {
		now = p.Now()
	}
	p.grow(now)
	t.Kind, t.Began = Step, now
	t.news, t.emptied, t.returns = p.news, p.emptied, p.returns
	if n := len(p.done); n > maxStore {
		t.Outcomes, p.done = p.done[:maxStore:maxStore], p.done[maxStore:]
	} else {
		t.Outcomes, p.done, p.spare, p.flush = p.done, p.spare, nil, false
	}
	if len(t.Outcomes) == 0 || !p.Slow || p.Joint() { // a claim does not wait for a slow storage to store
		t.Claim, t.Free = p.size()
	}
	p.steps++
	p.storing += len(t.Outcomes)
	if t.Claim > 0 {
		p.claims++
		p.asked += t.Claim
	}
}

// window is the time of which completions count for the size of the local queue.
func (p *Pipeline[J, O]) window() time.Duration {
	if p.Slow {
		return max(slowWindow, 2*p.stepTime)
	}
	return window
}

// wait is how long a job may wait in the local queue: longer than it takes to complete
// those before it, unless handlers take more time than they did.
func (p *Pipeline[J, O]) wait() time.Duration {
	if p.Slow {
		return max(slowWait, 4*p.window())
	}
	return maxWait
}

// count counts a completion.
func (p *Pipeline[J, O]) count(now time.Time) {
	if d := now.Sub(p.since); d >= p.window() || d < 0 {
		p.earlier, p.now, p.since = p.now, 0, now
		if d >= 2*p.window() || d < 0 {
			p.earlier = 0
		}
	}
	p.now++
}

// grow adjusts the size of the local queue.
func (p *Pipeline[J, O]) grow(now time.Time) {
	ahead := p.Ahead()
	if ahead == 0 {
		p.target = 0
		return
	}
	recent := p.earlier + p.now
	if d := now.Sub(p.since); d >= 2*p.window() || d < 0 {
		recent = 0
	}
	p.target = min(ahead, recent, 2*max(p.target, 1))
}

// wake starts a goroutine if there is something to do and no goroutine is about to see to
// it.
func (p *Pipeline[J, O]) wake() {
	if p.starting > 0 {
		return
	}
	claim, free := p.size()
	switch {
	case len(p.back) > 0:
	case p.waits() > 0 && p.slots() > 0:
	case p.steps >= maxSteps:
		return
	case p.flushes():
	case claim > 0 && free > 0 && p.claims == 0:
	default:
		return
	}
	p.begin(1)
	p.starting++
	p.Start()
}

// arm has Tick called if something waits: in TickTime for outcomes, else when the first
// job is to go back. If no job is claimed ahead, all have free slots, but after Resize.
func (p *Pipeline[J, O]) arm() {
	soon := len(p.done) > 0
	if p.waits()+len(p.done) == 0 || p.armed && (p.soon || !soon) {
		return
	}
	if p.exact() && (!p.Unclaims || p.waits() <= max(p.slots(), 0)) {
		return
	}
	p.armed, p.soon = true, soon
	d := TickTime
	if !soon {
		d = max(p.wait()-p.Now().Sub(p.queue[p.head].since), TickTime)
	}
	p.Arm(d)
}
