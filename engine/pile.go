package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// A pile is what a worker has claimed ahead and not begun yet, and what it has completed and not stored yet. Over a storage whose
// claims are cheap, workers whose handlers take next to no time pile up some jobs: they would spend most of their time on the way
// into the storage and into the books, and what both keep would wander between processors for each job.
//
// Handlers cannot be seen to block. So that no job waits for one that does, somebody looks at the piles every pileTime while there
// are any. If a worker has not moved since the look before, its outcomes are stored, and its jobs are left to free slots and to the
// next worker that has time: they come before what that one has piled up. If no worker moves until the next look, they go back to
// the storage, to the places they had.
type pile struct {
	r      *run
	listed bool   // in run.piles; guarded by core.mu
	seen   uint64 // the turn at the last look; guarded by core.mu

	mu      sync.Mutex // guards what follows; whoever has core.mu too has taken that first
	waiting []*attempt // in run.attempts; the next one last
	done    []*attempt // which have completed their jobs, by doneAt
	turn    uint64     // raised whenever the worker takes a job from the pile
	cleared bool       // others had to empty it
}

const (
	defaultPrefetch = 32
	maxPrefetch     = 1000
	pileTime        = time.Millisecond
	// waitTime is less than it takes to wait for anything but the processor.
	waitTime = 5 * time.Microsecond
)

// These are variables for tests, which the race detector makes slow.
var (
	// quickTime bounds the time of a job that others may be piled up behind. No time at all does not count: the clock is too coarse.
	quickTime = 50 * time.Microsecond
	// trust is how many quick jobs in a row it takes for a worker to pile up others. After one that was not quick it takes as many
	// again, and a doubt on top, up to mostDoubt, that grows fourfold whenever others have to clear the pile.
	trust = 32
)

const mostDoubt = 1 << 16

// pace is how long a worker's latest jobs took, which only the worker looks at. Its zero value knows of none.
type pace struct {
	quick int           // how many were quick in a row, less what is in doubt
	slow  int           // how many were not, in a row
	doubt int           // how many more it takes after one that was not
	ended time.Time     // the latest
	mean  time.Duration // of those that were quick, the latest counting most; too short until there are some, as trust asks for
}

// completed counts a job that was completed at a time.
func (p *pace) completed(at time.Time) {
	took := at.Sub(p.ended)
	p.ended = at
	if took <= 0 || took >= quickTime {
		p.broken()
		return
	}
	p.slow = 0
	p.mean += (took - p.mean) / 8
	if p.quick++; p.quick == mostDoubt {
		p.doubt = 0
	}
}

// broken says that a job was not quick.
func (p *pace) broken() {
	p.quick = -p.doubt
	p.slow++
}

// cleared says that others had to clear the worker's pile.
func (p *pace) cleared() {
	p.doubt = min(max(4*p.doubt, trust), mostDoubt)
	p.broken()
}

// birth is when the program began.
var birth = clock.New().Now()

// mayPile reports whether workers may claim ahead: not if there is one, for which order is exact, nor under virtual time, under which
// everything is. A bubble of testing/synctest cannot be seen from inside, but its time begins in the year 2000.
func (c *core) mayPile() bool {
	return c.cheap != nil && c.concurrency > 1 && c.prefetch > 1 && !c.mocked && !c.clock.Now().Before(birth)
}

// claimsAhead is how many jobs a worker that has completed one claims. Jobs for free slots are left to these; but handlers that wait
// for nothing, as far as their mean time tells, are not done sooner by more workers than there are processors. If one does wait, the
// watch gives its worker's jobs to others. core.mu is held.
func (r *run) claimsAhead(d *desk) int {
	if len(r.orphans) > 0 {
		return 0
	}
	if !r.mayPile || d.pace.quick < trust {
		return 1
	}
	others := max(r.free(), 0)
	if d.pace.mean < waitTime {
		others = min(others, r.procs-1)
	}
	return min(max(r.left/(others+1), 1), r.c.prefetch)
}

// put piles up claimed attempts that are in r.attempts, in the order in which they shall run. core.mu is held.
func (p *pile) put(r *run, claimed []*attempt, now time.Time) {
	if !p.listed {
		p.r, p.listed = r, true
		r.piles = append(r.piles, p)
	}
	p.mu.Lock()
	p.turn++
	for _, a := range slices.Backward(claimed) {
		a.piled.Store(true)
		p.waiting = append(p.waiting, a)
	}
	p.mu.Unlock()
	r.watchPiles(now)
}

// takeDone empties the pile of outcomes, which it appends to list.
func (p *pile) takeDone(list []*attempt) []*attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	list = append(list, p.done...)
	clear(p.done)
	p.done = p.done[:0]
	return list
}

// takeWaiting empties the pile of jobs, which it appends to list in the order in which they wait.
func (p *pile) takeWaiting(list []*attempt) []*attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range slices.Backward(p.waiting) {
		list = append(list, a)
	}
	clear(p.waiting)
	p.waiting = p.waiting[:0]
	return list
}

// empty reports whether nothing is on the pile.
func (p *pile) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)+len(p.done) == 0
}

// goOn lays an attempt that has completed its job onto the pile of outcomes and returns the next one that waits. It returns nil, and
// has done nothing, if none waits or the outcome is not one to pile up.
func (r *run) goOn(d *desk, a *attempt, o policy.Outcome) (next *attempt) {
	if !d.ahead || !r.plain(a, o) || d.pace.slow > 1 || r.behind.Load() > 0 { // what others have left behind comes first
		return nil
	}
	now := r.c.now()
	p := &d.pile
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.waiting) - 1
	if n < 0 { // the last one, or others have cleared the pile
		if d.ahead = false; p.cleared {
			p.cleared = false
			d.pace.cleared()
		}
		return nil
	}
	if !a.context.TakeBack() { // the handler may not be done with the attempt, nor those to come
		d.pace.cleared()
		return nil
	}
	next, p.waiting[n] = p.waiting[n], nil
	p.waiting = p.waiting[:n]
	next.putOff(now)
	a.piled.Store(true)
	a.doneAt = now // and nothing is decided yet: the clock may have taken the attempt
	p.done = append(p.done, a)
	p.turn++
	d.pace.completed(now)
	return next
}

// leavePile leaves the jobs of a worker's pile to others, or to the worker when it has time.
func (r *run) leavePile(d *desk) {
	if d.ahead = false; d.pile.listed {
		r.c.mu.Lock()
		r.abandon(&d.pile)
		r.c.mu.Unlock()
	}
}

// storePile stores the outcomes of a worker's pile.
func (r *run) storePile(d *desk) {
	if d.pile.listed {
		r.storeDone(d.pile.takeDone(nil))
	}
}

// abandon leaves the jobs of a pile to others. core.mu is held.
func (r *run) abandon(p *pile) {
	r.setOrphans(p.takeWaiting(r.orphans))
	if len(r.orphans) > 0 {
		r.watchPiles(r.c.now())
		r.wake()
	}
}

// setOrphans: core.mu is held.
func (r *run) setOrphans(list []*attempt) {
	r.orphans = list
	r.behind.Store(int32(len(list)))
}

// storeDone stores outcomes that were piled up, one by one.
func (r *run) storeDone(list []*attempt) {
	if len(list) == 0 {
		return
	}
	r.c.mu.Lock()
	list = r.settling(list)
	r.c.mu.Unlock()
	r.storeEach(list, 1)
}

// settling takes attempts whose handlers have returned from running. It drops those whose jobs are no longer their own from the list
// and from r.attempts. core.mu is held.
func (r *run) settling(list []*attempt) []*attempt {
	mine := list[:0]
	for _, a := range list {
		a.returned, a.stuckAt = true, time.Time{}
		if a.phase != running {
			r.forget(a)
			continue
		}
		a.phase = settling
		mine = append(mine, a)
	}
	return mine
}

// storeEach stores the outcomes of attempts that are settling. Its first call for each of them is the n-th.
func (r *run) storeEach(list []*attempt, n int) {
	for _, a := range list {
		f := r.c.pastFate(a)
		err := r.store(f, n)
		r.tell(f, err)
		r.c.mu.Lock()
		r.ended(a, f.rec, err)
		r.c.mu.Unlock()
		f.forget()
	}
}

// pastFate is the fate of an attempt that lay on a pile.
func (c *core) pastFate(a *attempt) *fate {
	f := newFate(a.rec, c.worker)
	c.decide(f, policy.Outcome{Kind: policy.Returned}, a.began(), a.doneAt, nil) // a private attempt has nothing else to say
	return f
}

// orphan is a job that was claimed ahead by a worker which has had no time for it, nil if there is none. core.mu is held.
func (r *run) orphan() (a *attempt) {
	if len(r.orphans) > 0 {
		a = r.orphans[0]
		r.setOrphans(slices.Delete(r.orphans, 0, 1))
		r.moves++
		a.putOff(r.c.now())
	}
	return a
}

// watchPiles has somebody look at the piles. core.mu is held.
func (r *run) watchPiles(now time.Time) {
	if !r.watched {
		r.watched = true
		r.sched.Set(&r.watch, now.Add(pileTime))
	}
}

// lookAtPiles sees to the piles of workers that stay with one job.
func (r *run) lookAtPiles(now time.Time) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.watched = false
	moved, again := r.moves != r.seen, false
	r.seen = r.moves
	var done []*attempt
	for _, p := range r.piles {
		switch {
		case p.empty():
		case p.moved():
			moved, again = true, true
		default:
			r.setOrphans(p.takeWaiting(r.orphans))
			done = p.takeDone(done)
			p.noteCleared()
		}
	}
	var back []*attempt
	if r.old && !moved { // nobody has had time for any of them since the last look
		back = r.orphans
		r.setOrphans(nil)
	}
	r.old = len(r.orphans) > 0
	r.wake() // for the orphans
	r.clearAway(done, back)
	if again || r.old {
		r.watchPiles(now)
	}
}

// noteCleared tells the worker that others had to clear its pile.
func (p *pile) noteCleared() {
	p.mu.Lock()
	p.cleared = true
	p.mu.Unlock()
}

// moved reports whether the pile's worker has taken a job from it since the last time this was asked. core.mu is held.
func (p *pile) moved() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.seen
	p.seen = p.turn
	return p.turn != was
}

// clearAway gives jobs back that have not begun, and stores outcomes, on a goroutine that takes nobody's slot. core.mu is held.
func (r *run) clearAway(done, back []*attempt) {
	if len(done)+len(back) == 0 {
		return
	}
	r.working++
	r.storing++
	go func() {
		r.giveBack(back)
		r.storeDone(done)
		r.c.mu.Lock()
		defer r.c.mu.Unlock()
		r.storing--
		r.leave()
	}()
}

// giveBack undoes the claims of attempts that have not begun.
func (r *run) giveBack(list []*attempt) {
	if len(list) == 0 {
		return
	}
	c := r.c
	held := make([]storage.Held, len(list))
	for i, a := range list {
		held[i] = a.held()
	}
	n, err := c.cheap.Unclaim(r.base, c.now(), held)
	if err != nil {
		c.log.Error("giving jobs back failed", "error", err, "jobs", len(list))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !r.stopping { // they stay until somebody has time, or the storage answers
		r.setOrphans(append(list, r.orphans...))
		r.watchPiles(c.now().Add(storageBackoff(1)))
		return
	}
	for _, a := range list {
		a.phase = over
		r.forget(a)
		undone := *a.rec
		undone.Unclaim()
		c.wakeAt(undone.WakeAt()) // a look since its claim has not counted it
	}
	c.available(n)
}

// blocks says that a handler is about to wait, and clears its worker's pile. core.mu is held.
func (a *attempt) blocks() {
	if p := a.pile; !a.returned && p != nil && p.listed { // later it may be another worker's
		a.r.abandon(p)
		a.r.clearAway(p.takeDone(nil), nil)
	}
}

// off takes the pile of a worker that ends off the list.
func (p *pile) off() {
	if !p.listed {
		return
	}
	mu := &p.r.c.mu
	mu.Lock()
	defer mu.Unlock()
	p.r.piles = slices.DeleteFunc(p.r.piles, func(other *pile) bool { return other == p })
	p.r, p.listed = nil, false
}

// piled reports whether something is on a pile, or has been left there. core.mu is held.
func (r *run) piled() bool {
	return len(r.orphans) > 0 || slices.ContainsFunc(r.piles, func(p *pile) bool { return !p.empty() })
}

// busy is how many attempts have begun and are not stored yet, except those whose slots others have. core.mu is held.
func (r *run) busy() (n int) {
	for _, a := range r.attempts {
		if !a.piled.Load() && !a.storing {
			n++
		}
	}
	return n
}

// unpile gives back whatever has been claimed ahead and has not begun. core.mu is held.
func (r *run) unpile() {
	r.unpiled++
	for _, p := range r.piles {
		r.orphans = p.takeWaiting(r.orphans)
	}
	r.clearAway(nil, r.orphans)
	r.setOrphans(nil)
}
