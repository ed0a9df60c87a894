package memory

import (
	"time"

	"github.com/ojsengine/ojs/scheduler"
	"github.com/ojsengine/ojs/storage"
)

// ending is how far a job has come to its deletion.
type ending uint8

const (
	open  ending = iota
	ended        // in Storage.ended
	held         // there too, and in kept: not to be pruned yet
)

// kept are the jobs that have ended and stay for their unique policies (storage.Record.KeptUntil). They keep their places in
// Storage.ended, and pruning passes over them; so that it does not walk past all of them each time, it remembers how far it came.
type kept struct {
	until scheduler.Heap[*job] // by job.wake, for which a job that has ended has no other use
	let   time.Time            // no job was let go that is to be kept until later
	of    [classes]struct {
		n        int         // in until
		passed   uint64      // the jobs of the class up to this turn are held, or in released
		released heap[place] // those of passed turns that have been held, the first of them on top; some may be gone
	}
}

// place is where a job was in Storage.ended.
type place struct {
	turn uint64
	job  *job
}

func (p place) before(q place) bool { return p.turn < q.turn }
func (place) moved(int)             {}

// keptUntil is storage.Record.KeptUntil.
func (j *job) keptUntil() time.Time {
	if whole := j.whole(); whole != nil {
		return whole.KeptUntil()
	}
	if j.kind.unique == nil {
		return time.Time{}
	}
	var r storage.Record
	r.Unique, r.CreatedAt = j.kind.unique, j.created.time()
	return r.KeptUntil()
}

// hold keeps a job that has ended, if it is to be kept.
func (k *kept) hold(j *job) {
	if until := j.keptUntil(); !until.IsZero() {
		j.end = held
		k.until.Push(&j.wake, until)
		k.of[j.class].n++
	}
}

// drop takes out a job that is held.
func (k *kept) drop(j *job) {
	j.end = ended
	k.until.Remove(&j.wake)
	k.of[j.class].n--
}

// release lets go the jobs that are kept until now at the latest, and only those: if the clock goes back, some are held again.
func (k *kept) release(now time.Time, in *[classes]index) {
	if now.Before(k.let) {
		k.let = time.Time{}
		for c := range in {
			in[c].from(0, func(e entry) bool {
				if e.job != nil && e.job.end != held {
					k.hold(e.job)
				}
				return true
			})
		}
	}
	for {
		it, ok := k.until.PopDue(now)
		if !ok {
			return
		}
		j := it.Value
		j.end = ended
		if until := j.keptUntil(); until.After(k.let) {
			k.let = until
		}
		of := &k.of[j.class]
		of.n--
		if j.turn <= of.passed {
			of.released.push(place{j.turn, j})
		}
	}
}

// next returns the first job of a class that is not held, nil if there is none.
func (k *kept) next(c class, in *index) (first *job) {
	of := &k.of[c]
	if of.n == 0 {
		of.passed, of.released.items = 0, nil
		return in.oldest()
	}
	in.from(of.passed, func(e entry) bool {
		if e.job != nil && e.job.end != held {
			first = e.job
			return false
		}
		of.passed = e.ord
		return true
	})
	for of.released.len() > 0 {
		p := of.released.items[0]
		if j := p.job; j.end == ended && j.class == c && j.turn == p.turn {
			if first == nil || j.turn < first.turn {
				first = j
			}
			break
		}
		of.released.remove(0)
	}
	return first
}
