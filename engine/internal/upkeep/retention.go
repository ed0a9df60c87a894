package upkeep

import (
	"math"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/chores"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/telemetry"
)

// Retention is how long finished jobs are kept, and how many; a field that is 0 is no
// limit. See engine.Retention.
type Retention struct {
	Completed, Cancelled, Discarded, DeadLetters time.Duration
	MaxFinished, MaxDeadLetters                  int
	MinAge                                       time.Duration
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
func (k *Upkeep) pruneFinished(chore *chores.Chore, byAge bool) (next time.Time) {
	c := k.c
	k.finished.Store(0)
	ctx, end := c.Trace(k.base, telemetry.OpReaper, nil)
	var failed error
	defer func() { end(failed) }()
	left := 0 // of the way before
	for _, p := range c.Keep.prunings() {
		if p.young && left <= p.Beyond || p.Beyond == 0 && !byAge {
			continue
		}
		for {
			now := c.Now()
			done, err := c.Store.Prune(ctx, p.at(now))
			if err != nil {
				failed = err
				chore.Fail("prune", err)
				return now.Add(pruneEvery)
			}
			c.Answered()
			k.pruned(&p, done.IDs)
			if len(done.IDs) < pruneBatch {
				left = done.Left
				if !p.young { // or the way before it has said when
					next = times.Earliest(next, p.next(&done))
				}
				break
			}
			if k.set.Quitting() {
				return time.Time{}
			}
		}
	}
	if soonest := c.Now().Add(pruneEvery); !next.IsZero() && next.Before(soonest) {
		next = soonest
	}
	return next
}

// pruned follows the deletion of jobs.
func (k *Upkeep) pruned(p *pruning, ids []string) {
	if len(ids) == 0 {
		return
	}
	c := k.c
	c.Gone.Add(ids...)
	if p.DeadLetters {
		c.Emit(event.Event{Type: event.DeadLetterPruned, Pruned: len(ids)})
	}
	if p.young && !k.warnedYoung {
		k.warnedYoung = true
		c.Log.Warn("finished jobs are deleted by number before they are old enough, and waiting for one is ojs.ErrPruned",
			"min_age", c.Keep.MinAge, "dead_letters", p.DeadLetters, "kept", p.Beyond,
			"advice",
			"ojs.WithResultTTL keeps the jobs whose outcome is asked for, engine.Retention's maxima keep more of all")
	}
}
