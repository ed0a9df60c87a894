package memory

import (
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Jobs with a fairness key take turns in rounds (package storage, Fairness).
//
//   - ready.fair has a fairLevel for each queue and priority in which a job with a key is
//     available. Jobs without a key meet none of this.
//   - rest.round of such a job is its round: the turn of the job that began it. It stays
//     while the job is active, for Unclaim.
//   - A bucket has a list of jobs (level) for each key, beside that of the jobs without.
//     Each list is in the order of rounds and turns, and its heap has the next job.
//   - place takes a round for a job that becomes available, and displace leaves it.

// levelID names the available jobs of one queue and priority.
type levelID struct {
	queue    string
	priority int32
}

type fairLevel struct {
	rounds turns             // with the number of their jobs
	keys   map[string]*turns // the rounds of each key that has jobs here
	served uint64            // the latest of which a job was claimed
}

// fairness is the job's fairness key and weight.
func (j *job) fairness() ojs.Fairness {
	if j.rest == nil {
		return ojs.Fairness{}
	}
	return j.rest.fairness
}

// stands is the turn of an available job, or that of its round.
func (j *job) stands() uint64 {
	if j.rest != nil && j.rest.round != 0 {
		return j.rest.round
	}
	return j.turn
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
	at := r.seq + 1 // that of a round of its own
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
	l := r.fair[id]
	if l == nil {
		if r.fair == nil {
			r.fair = make(map[levelID]*fairLevel)
		}
		l = &fairLevel{keys: make(map[string]*turns)}
		r.fair[id] = l
	}
	own := l.keys[key]
	if own == nil {
		own = new(turns)
		l.keys[key] = own
	}
	own.add(at)
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
	if own.remove(j.rest.round); own.jobs == 0 {
		delete(l.keys, key)
	}
	if l.rounds.remove(j.rest.round); l.rounds.jobs == 0 {
		delete(r.fair, id)
	}
}

// moveRound gives a job that is not available, and has another key, a round of its own
// for Unclaim.
func (j *job) moveRound() {
	switch {
	case j.rest == nil:
	case j.fairness().Key == "":
		j.rest.round = 0
	default:
		j.rest.round = j.turn
	}
}

// serve notes that an available job is claimed.
func (r *ready) serve(j *job) {
	if j.rest != nil && j.rest.round != 0 {
		l := r.fair[j.levelID()]
		l.served = max(l.served, j.rest.round)
	}
}

// turns is a list of rounds, in order, with how many jobs each has. Rounds enter at the
// end and leave at the begin, as a rule: that costs the same for any number of them. A
// round that has lost its jobs between others stays in the list until half of it is such.
type turns struct {
	list  []turnsOf // from first on; neither the first nor the last is empty
	first int
	empty int
	jobs  int
}

type turnsOf struct {
	at uint64
	n  int
}

func (t *turns) find(at uint64) (int, bool) {
	i, found := slices.BinarySearchFunc(t.list[t.first:], at, func(r turnsOf, at uint64) int {
		switch {
		case r.at < at:
			return -1
		case r.at > at:
			return 1
		}
		return 0
	})
	return t.first + i, found
}

// last is the latest round and the number of its jobs, 0 if there is none.
func (t *turns) last() (at uint64, n int) {
	if t.first == len(t.list) {
		return 0, 0
	}
	r := t.list[len(t.list)-1]
	return r.at, r.n
}

// after is the first round after a place.
func (t *turns) after(place uint64) (at uint64, some bool) {
	i, _ := t.find(place + 1)
	for ; i < len(t.list); i++ {
		if t.list[i].n > 0 {
			return t.list[i].at, true
		}
	}
	return 0, false
}

func (t *turns) add(at uint64) {
	t.jobs++
	i := len(t.list)
	if last, _ := t.last(); at <= last {
		found := false
		if i, found = t.find(at); found {
			if t.list[i].n == 0 {
				t.empty--
			}
			t.list[i].n++
			return
		}
	}
	switch {
	case t.first > 0 && i-t.first <= len(t.list)-i: // the shorter side moves
		copy(t.list[t.first-1:], t.list[t.first:i])
		t.first--
		t.list[i-1] = turnsOf{at, 1}
	case t.first > len(t.list)/2 && len(t.list) == cap(t.list):
		t.compact()
		t.jobs--
		t.add(at)
	default:
		t.list = slices.Insert(t.list, i, turnsOf{at, 1})
	}
}

func (t *turns) remove(at uint64) {
	t.jobs--
	i, _ := t.find(at)
	if t.list[i].n--; t.list[i].n > 0 {
		return
	}
	t.empty++
	for t.first < len(t.list) && t.list[t.first].n == 0 {
		t.first++
		t.empty--
	}
	for len(t.list) > t.first && t.list[len(t.list)-1].n == 0 {
		t.list = t.list[:len(t.list)-1]
		t.empty--
	}
	if t.empty > (len(t.list)-t.first)/2 {
		t.compact()
	}
}

// compact drops what is empty.
func (t *turns) compact() {
	kept := t.list[:0]
	for _, r := range t.list[t.first:] {
		if r.n > 0 {
			kept = append(kept, r)
		}
	}
	t.list, t.first, t.empty = kept, 0, 0
}
