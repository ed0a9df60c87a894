package engine

import (
	"math"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/chores"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/storage"
)

// Retention is how long finished jobs are kept, for Ticket.Wait and for lookups. A zero
// field stays as it was, at first the default; a negative one is no limit. Engines that
// share a storage each prune it by their own rule.
//
// A job with ojs.WithResultTTL is kept at least for that time after its end, even if its
// age or number exceeds the limits below. A job whose unique policy counts it after its
// end (ojs.WithThrottle, ojs.WithIdempotencyKey) is kept at least until the policy's
// period is over. A step of a workflow is kept at least as long as the workflow, which is
// kept for its ojs.WithResultTTL after its end. Such jobs do not count for the maxima
// until then, and go with the first pruning after that, steps within another hour.
//
// A job that finished less than MinAge ago is not deleted by number, so that a program
// which enqueues first and waits for its tickets afterwards finds them. That holds for
// ten times the maximum, which bounds memory however fast jobs finish. When younger jobs
// are deleted all the same, the engine logs a warning once in each Run. A lookup of a
// deleted job is ojs.ErrPruned. Finished jobs keep their args and results: with the
// defaults, 100,000 of them at most. A program whose args or results are large lowers
// MaxFinished, or sets MinAge to -1.
//
// Pruning happens beside the work: at the start of Run, when jobs have reached their age
// but at most every five minutes, and when as many have finished as an eighth of the
// lower maximum, or 64 if that is more. In between there may be that many too many, and
// under full load those of the milliseconds for which pruning waits for a processor. No
// event is sent for a single pruned job.
type Retention struct {
	Completed time.Duration // 7 days
	Cancelled time.Duration // 7 days
	Discarded time.Duration // 30 days; dead letters excepted

	DeadLetters time.Duration // 180 days

	MaxFinished    int // the latest 10,000 completed, cancelled and discarded jobs; dead letters excepted
	MaxDeadLetters int // 10,000, the latest

	MinAge time.Duration // 1 minute: number is no reason to delete a younger job, up to ten times the maximum
}

const day = 24 * time.Hour

var defaultRetention = Retention{
	Completed: 7 * day, Cancelled: 7 * day, Discarded: 30 * day, DeadLetters: 180 * day,
	MaxFinished: 10_000, MaxDeadLetters: 10_000, MinAge: time.Minute,
}

// WithRetention sets how long finished jobs are kept.
func WithRetention(r Retention) Option {
	return func(c *config) error {
		bound(&c.retention.Completed, r.Completed)
		bound(&c.retention.Cancelled, r.Cancelled)
		bound(&c.retention.Discarded, r.Discarded)
		bound(&c.retention.DeadLetters, r.DeadLetters)
		bound(&c.retention.MinAge, r.MinAge)
		bound(&c.retention.MaxFinished, r.MaxFinished)
		bound(&c.retention.MaxDeadLetters, r.MaxDeadLetters)
		return nil
	}
}

// bound sets a bound that is given. A negative one is none.
func bound[T int | time.Duration](to *T, given T) {
	if given != 0 {
		*to = max(given, 0)
	}
}

const (
	pruneEvery = 5 * time.Minute // at most
	pruneBatch = 256             // jobs in one call of the storage
	youngest   = 10              // times a maximum may be exceeded by jobs younger than MinAge
)

// slack is how many jobs may finish before their number is looked at.
func (r *Retention) slack() int {
	n := math.MaxInt
	for _, most := range []int{r.MaxFinished, r.MaxDeadLetters} {
		if most > 0 {
			n = min(n, most)
		}
	}
	return max(n/8, 64)
}

// bounded reports whether there is anything to prune by.
func (r *Retention) bounded() bool {
	var none Retention
	none.MinAge = r.MinAge
	return *r != none
}

// pruning is one way in which jobs are pruned.
type pruning struct {
	storage.Prune
	age    time.Duration // 0: any age
	minAge time.Duration // for Beyond; 0: any age
	young  bool          // it deletes jobs that are younger than Retention.MinAge
}

// at is the call for it at a time.
func (p *pruning) at(now time.Time) storage.Prune {
	call := p.Prune
	call.Now, call.Max = now, pruneBatch
	if p.age > 0 {
		call.Before = now.Add(-p.age)
	}
	if p.minAge > 0 {
		call.Spare = now.Add(-p.minAge)
	}
	return call
}

// next is when there will be more to delete, zero if only more jobs bring that.
func (p *pruning) next(done *storage.Pruned) time.Time {
	age := p.age
	if tooMany := p.Beyond > 0 && done.Left > p.Beyond; tooMany && p.minAge > 0 && (age == 0 ||
		p.minAge < age) {
		age = p.minAge
	}
	if age == 0 || done.Oldest.IsZero() {
		return time.Time{}
	}
	return done.Oldest.Add(age + time.Millisecond)
}

// prunings are the ways in which r asks to prune.
func (r *Retention) prunings() []pruning {
	var list []pruning
	add := func(p storage.Prune, age time.Duration) {
		if age == 0 && p.Beyond == 0 {
			return
		}
		way := pruning{Prune: p, age: age}
		if p.Beyond > 0 {
			way.minAge = r.MinAge
		}
		list = append(list, way)
		if way.minAge > 0 && p.Beyond <= math.MaxInt/youngest {
			p.Beyond *= youngest
			list = append(list, pruning{Prune: p, young: true})
		}
	}
	add(storage.Prune{States: []ojs.State{ojs.StateCompleted}}, r.Completed)
	add(storage.Prune{States: []ojs.State{ojs.StateCancelled}}, r.Cancelled)
	add(storage.Prune{States: []ojs.State{ojs.StateDiscarded}}, r.Discarded)
	add(storage.Prune{DeadLetters: true, Beyond: r.MaxDeadLetters}, r.DeadLetters)
	add(storage.Prune{Beyond: r.MaxFinished}, 0)
	return list
}

// pruneFinished deletes what need not be kept, and says when time will next make it look;
// zero: only when more has finished. If byAge is not set, it leaves what only grows old.
func (k *maintenance) pruneFinished(chore *chores.Chore, byAge bool) (next time.Time) {
	c := k.r.c
	k.finished.Store(0)
	ctx, end := c.trace(k.r.base, OpReaper, nil)
	var failed error
	defer func() { end(failed) }()
	left := 0 // of the way before
	for _, p := range c.retention.prunings() {
		if p.young && left <= p.Beyond || p.Beyond == 0 && !byAge {
			continue
		}
		for {
			now := c.now()
			done, err := c.store.Prune(ctx, p.at(now))
			if err != nil {
				failed = err
				chore.Fail("prune", err)
				return now.Add(pruneEvery)
			}
			c.answered()
			k.pruned(&p, done.IDs)
			if len(done.IDs) < pruneBatch {
				left = done.Left
				if !p.young { // or the way before it has said when
					next = earliest(next, p.next(&done))
				}
				break
			}
			if k.Quitting() {
				return time.Time{}
			}
		}
	}
	if soonest := c.now().Add(pruneEvery); !next.IsZero() && next.Before(soonest) {
		next = soonest
	}
	return next
}

// pruned follows the deletion of jobs.
func (k *maintenance) pruned(p *pruning, ids []string) {
	if len(ids) == 0 {
		return
	}
	c := k.r.c
	c.gone.add(ids...)
	if p.DeadLetters {
		c.emit(event.Event{Type: event.DeadLetterPruned, Pruned: len(ids)})
	}
	if p.young && !k.warnedYoung {
		k.warnedYoung = true
		c.log.Warn("finished jobs are deleted by number before they are old enough, and waiting for one is ojs.ErrPruned",
			"min_age", c.retention.MinAge, "dead_letters", p.DeadLetters, "kept", p.Beyond,
			"advice",
			"ojs.WithResultTTL keeps the jobs whose outcome is asked for, engine.Retention's maxima keep more of all")
	}
}
