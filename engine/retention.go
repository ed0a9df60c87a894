package engine

import (
	"math"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Retention is how long finished jobs are kept for lookups. A zero field stays as it was, at first the default; a negative one
// is no limit. Engines that share a storage each prune it by their own rule.
//
// A job whose unique policy counts it after its end (ojs.WithThrottle, ojs.WithIdempotencyKey) is kept at least until the policy's
// period is over, whatever its age and number. It does not count for the maxima until then, and goes with the first pruning after that.
//
// Pruning happens beside the work: at the start of Run, when jobs have reached their age but at most every five minutes, and when as
// many have finished as an eighth of the lower maximum, or 64 if that is more. In between there may be that many too many, and under
// full load those of the milliseconds for which pruning waits for a processor. No event is sent for a single pruned job.
type Retention struct {
	Completed time.Duration // 7 days
	Cancelled time.Duration // 7 days
	Discarded time.Duration // 30 days; dead letters excepted

	DeadLetters time.Duration // 180 days

	MaxFinished    int // 10,000 completed, cancelled and discarded jobs together, the latest; dead letters excepted
	MaxDeadLetters int // 10,000, the latest
}

const day = 24 * time.Hour

var defaultRetention = Retention{
	Completed: 7 * day, Cancelled: 7 * day, Discarded: 30 * day, DeadLetters: 180 * day,
	MaxFinished: 10_000, MaxDeadLetters: 10_000,
}

// WithRetention sets how long finished jobs are kept.
func WithRetention(r Retention) Option {
	return func(c *config) error {
		set := func(to *time.Duration, d time.Duration) {
			if d != 0 {
				*to = max(d, 0)
			}
		}
		set(&c.retention.Completed, r.Completed)
		set(&c.retention.Cancelled, r.Cancelled)
		set(&c.retention.Discarded, r.Discarded)
		set(&c.retention.DeadLetters, r.DeadLetters)
		if r.MaxFinished != 0 {
			c.retention.MaxFinished = max(r.MaxFinished, 0)
		}
		if r.MaxDeadLetters != 0 {
			c.retention.MaxDeadLetters = max(r.MaxDeadLetters, 0)
		}
		return nil
	}
}

const (
	pruneEvery = 5 * time.Minute // at most
	pruneBatch = 256             // jobs in one call of the storage
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
func (r *Retention) bounded() bool { return *r != Retention{} }

// prunes are the calls that r asks for, and the age that each goes by; 0 for none.
func (r *Retention) prunes() ([]storage.Prune, []time.Duration) {
	var calls []storage.Prune
	var ages []time.Duration
	add := func(p storage.Prune, age time.Duration) {
		if age > 0 || p.Beyond > 0 {
			p.Max = pruneBatch
			calls, ages = append(calls, p), append(ages, age)
		}
	}
	add(storage.Prune{States: []ojs.State{ojs.StateCompleted}}, r.Completed)
	add(storage.Prune{States: []ojs.State{ojs.StateCancelled}}, r.Cancelled)
	add(storage.Prune{States: []ojs.State{ojs.StateDiscarded}}, r.Discarded)
	add(storage.Prune{DeadLetters: true, Beyond: r.MaxDeadLetters}, r.DeadLetters)
	add(storage.Prune{Beyond: r.MaxFinished}, 0)
	return calls, ages
}

// prune deletes what need not be kept, and says when time will next make it look; zero: only when more has finished.
func (k *keeper) prune() (next time.Time) {
	c := k.r.c
	ctx, end := c.trace(k.r.base, OpReaper, nil)
	var failed error
	defer func() { end(failed) }()
	calls, ages := c.retention.prunes()
	for i, p := range calls {
		for {
			now := c.now()
			p.Now = now
			if ages[i] > 0 {
				p.Before = now.Add(-ages[i])
			}
			done, err := c.store.Prune(ctx, p)
			if err != nil {
				failed = err
				c.log.Error("pruning finished jobs failed", "error", err, "retry_in", pruneEvery)
				return now.Add(pruneEvery)
			}
			if p.DeadLetters && len(done.IDs) > 0 {
				c.emit(ojs.Event{Type: ojs.EventDeadLetterPruned, Pruned: len(done.IDs)})
			}
			if len(done.IDs) < p.Max {
				if at := done.Oldest.Add(ages[i] + time.Millisecond); ages[i] > 0 && !done.Oldest.IsZero() && (next.IsZero() || at.Before(next)) {
					next = at
				}
				break
			}
			if k.quitting() {
				return time.Time{}
			}
		}
	}
	if soonest := c.now().Add(pruneEvery); !next.IsZero() && next.Before(soonest) {
		next = soonest
	}
	return next
}
