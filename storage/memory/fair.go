package memory

import (
	"math"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/sorted"
	"github.com/ojsengine/ojs/storage"
)

// Jobs with a fairness key take turns in rounds (package storage, Fairness).
//
//   - ready.fair has a fairLevel for each queue and priority in which a job with a key is
//     available. Jobs without a key meet none of this.
//   - rest.round of such a job is its round: the readySeq of the job that began it. It
//     stays while the job is active, for Unclaim.
//   - A bucket has a list of jobs (level) for each key, beside that of the jobs without.
//     Each list is in the order of rounds and readySeq, and its heap has the next job.
//   - place takes a round for a job that becomes available, and displace leaves it.

// levelID names the available jobs of one queue and priority.
type levelID struct {
	queue    string
	priority int32
}

type fairLevel struct {
	rounds roundCounts             // with the number of their jobs
	keys   map[string]*roundCounts // the rounds of each key that has jobs here
	served uint64                  // the latest of which a job was claimed
}

// fairness is the job's fairness key and weight.
func (j *job) fairness() ojs.Fairness {
	if j.rest == nil {
		return ojs.Fairness{}
	}
	return j.rest.fairness
}

// stands is the readySeq of an available job, or that of the job that began its round.
func (j *job) stands() uint64 {
	if j.rest != nil && j.rest.round != 0 {
		return j.rest.round
	}
	return j.readySeq
}

func (j *job) levelID() levelID { return levelID{j.kind.queue, j.priority} }

// takeRound has a job that becomes available join a round, or begin one.
func (r *ready) takeRound(j *job) {
	if j.rest == nil {
		return
	}
	f := j.fairness()
	if j.rest.round = 0; f.Key == "" {
		return
	}
	at := j.readySeq // that of a round of its own
	if l := r.fair[j.levelID()]; l != nil {
		last, n := uint64(0), 0
		if own := l.keys[f.Key]; own != nil {
			last, n = own.last()
		}
		if last > l.served && n < storage.Share(f) {
			at = last
		} else if next, some := l.rounds.after(max(last, l.served)); some {
			at = next
		}
	}
	r.enterRound(j, at)
}

// enterRound puts an available job into a round.
func (r *ready) enterRound(j *job, at uint64) {
	id, key := j.levelID(), j.fairness().Key
	l := orMake(r.fair, id, func() *fairLevel { return &fairLevel{keys: make(map[string]*roundCounts)} })
	orMake(l.keys, key, func() *roundCounts { return new(roundCounts) }).add(at)
	l.rounds.add(at)
	j.rest.round = at
}

// leaveRound takes a job that has been available out of its round, which the job still
// names.
func (r *ready) leaveRound(j *job) {
	if j.rest == nil || j.rest.round == 0 {
		return
	}
	id, key := j.levelID(), j.fairness().Key
	l := r.fair[id]
	own := l.keys[key]
	if own.remove(j.rest.round); own.Len() == 0 {
		delete(l.keys, key)
	}
	if l.rounds.remove(j.rest.round); l.rounds.Len() == 0 {
		delete(r.fair, id)
	}
}

// serve notes that an available job is claimed.
func (r *ready) serve(j *job) {
	if j.rest != nil && j.rest.round != 0 {
		l := r.fair[j.levelID()]
		l.served = max(l.served, j.rest.round)
	}
}

// roundCounts are rounds, in order, with how many jobs each has.
type roundCounts struct{ sorted.Map[uint64, int] }

// last is the latest round and the number of its jobs, 0 if there is none.
func (t *roundCounts) last() (at uint64, n int) {
	for at, n := range t.Before(math.MaxUint64) {
		return at, n
	}
	return 0, 0
}

// after is the first round after another one.
func (t *roundCounts) after(round uint64) (at uint64, some bool) {
	for at := range t.From(round + 1) {
		return at, true
	}
	return 0, false
}

func (t *roundCounts) add(at uint64) {
	n, _ := t.Get(at)
	t.Set(at, n+1)
}

func (t *roundCounts) remove(at uint64) {
	n, _ := t.Get(at)
	if t.Set(at, n-1); n == 1 {
		t.Delete(at)
	}
}
