package memory

import (
	"maps"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage/rule"
)

// Fairness (package rule).
//
//   - ready.fair has a fairLevel for each queue and priority in which a job with a key
//     has been available. Jobs without a key meet none of this.
//   - rest.tag of such a job is its start tag. It stays while the job is active, for
//     Unclaim.
//   - A bucket has a list of jobs (level) for each key, beside that of the jobs without.
//     Each list is in the order of tags and turns, and its heap has the next job.
//   - The jobs of a key that wait in a level are linked in the order of their turns.

// levelID names the available jobs of one queue and priority.
type levelID struct {
	queue    string
	priority int32
}

type fairLevel struct {
	virtual int64
	keys    map[string]*fairKey
	sweep   int // the number of keys at which to forget some
}

type fairKey struct {
	charged     int64
	first, last *job // of those that wait; nil: none
}

// fairness is the job's fairness key and weight.
func (j *job) fairness() ojs.Fairness {
	if j.rest == nil {
		return ojs.Fairness{}
	}
	return j.rest.fairness
}

// tag is the start tag of an available job.
func (j *job) tag() int64 {
	if j.rest == nil {
		return 0
	}
	return j.rest.tag
}

// finish is the finish tag of a job with a key.
func (j *job) finish() int64 { return rule.Finish(j.rest.tag, j.rest.fairness) }

// shareID names the jobs of a fairness key in a level.
type shareID struct {
	levelID
	key string
}

func (j *job) shareID() shareID {
	return shareID{levelID{j.kind.queue, j.priority}, j.fairness().Key}
}

// share finds the level and the key of a job, or makes them.
func (r *ready) share(j *job) (*fairLevel, *fairKey) {
	id := j.shareID()
	l := r.fair[id.levelID]
	if l == nil {
		if r.fair == nil {
			r.fair = make(map[levelID]*fairLevel)
		}
		l = &fairLevel{virtual: 1, keys: make(map[string]*fairKey), sweep: firstSweep}
		r.fair[id.levelID] = l
	}
	k := l.keys[id.key]
	if k == nil {
		if len(l.keys) >= l.sweep {
			maps.DeleteFunc(l.keys, func(_ string, k *fairKey) bool { return k.idle(l) })
			l.sweep = max(firstSweep, 2*len(l.keys))
		}
		k = new(fairKey)
		l.keys[id.key] = k
	}
	return l, k
}

// idle reports whether the key has nothing that a new one would not have.
func (k *fairKey) idle(l *fairLevel) bool { return k.last == nil && k.charged <= l.virtual }

// takeTag gives a job that becomes available its start tag.
func (r *ready) takeTag(j *job) {
	if j.rest == nil {
		return
	}
	if j.rest.tag = 0; j.rest.fairness.Key == "" {
		return
	}
	l, k := r.share(j)
	j.rest.tag = k.start(l, k.last)
	k.link(j, k.last)
}

// start is the tag of a job that comes after one of its key; nil: after none.
func (k *fairKey) start(l *fairLevel, after *job) int64 {
	tag := max(l.virtual, k.charged)
	if after != nil {
		tag = max(tag, after.finish())
	}
	return tag
}

// keepTag gives a job that is available again the tag that it had, if it had one. It is
// about to have its turn again.
func (r *ready) keepTag(j *job, turn uint64, tag int64) {
	if j.tag() == 0 {
		return
	}
	l, k := r.share(j)
	k.unlink(j)
	var before *job
	for next := k.first; next != nil && next.turn < turn; next = next.rest.after {
		before = next
	}
	if j.rest.tag = tag; tag == 0 {
		j.rest.tag = k.start(l, before)
	}
	k.link(j, before)
}

// link enters a job behind another; nil: it is the first.
func (k *fairKey) link(j, before *job) {
	after := k.first
	if before != nil {
		after, before.rest.after = before.rest.after, j
	} else {
		k.first = j
	}
	if after != nil {
		after.rest.before = j
	} else {
		k.last = j
	}
	j.rest.before, j.rest.after = before, after
}

func (k *fairKey) unlink(j *job) {
	before, after := j.rest.before, j.rest.after
	if before != nil {
		before.rest.after = after
	} else {
		k.first = after
	}
	if after != nil {
		after.rest.before = before
	} else {
		k.last = before
	}
	j.rest.before, j.rest.after = nil, nil
}

// leaveShare takes a job that has been available from those of its key.
func (r *ready) leaveShare(j *job) {
	if j.tag() == 0 {
		return
	}
	l, k := r.share(j)
	if k.unlink(j); k.idle(l) {
		delete(l.keys, j.rest.fairness.Key)
	}
}

// takesAnew gives a job that is next, and that its rate limit has held back, another tag
// if its key or its level have gone past its own. It reports whether it does.
func (r *ready) takesAnew(j *job) bool {
	if j.limit == nil || j.tag() == 0 {
		return false
	}
	l, k := r.share(j)
	tag := k.start(l, j.rest.before)
	if tag <= j.rest.tag {
		return false
	}
	turn := j.turn
	r.remove(j)
	j.rest.tag = tag
	r.add(j)
	r.moveUp(j, turn)
	return true
}

// charge notes that an available job is claimed.
func (r *ready) charge(j *job) {
	if j.tag() != 0 {
		l, k := r.share(j)
		l.virtual, k.charged = max(l.virtual, j.rest.tag), max(k.charged, j.finish())
	}
}
