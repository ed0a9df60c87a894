package keyed

import (
	"bytes"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// Fairness (package rule). job.tag is the start tag of a job with a fairness key while it
// is available, and 0 otherwise. The table fair has these jobs by their keys, and aged by
// their places.

// level appends the queue and priority within which a job takes turns.
func (j *job) level(k key) key { return k.name(j.Queue).number(^int64(j.Priority)) }

// share appends the level and the fairness key of a job.
func (j *job) share(k key) key { return j.level(k).name(j.Fairness.Key) }

// spent is the entry of a charge of the key of a job.
func (j *job) spent(at int64) key {
	return j.level(newKey(spentTable)).number(at).text(j.Fairness.Key)
}

func (j *job) finish() int64 { return rule.Finish(j.tag, j.Fairness) }

// startTag is the start tag of a job with a fairness key, if it takes one now.
func (t *tx) startTag(j *job) int64 {
	tag := max(1, t.virtual(j), t.number(j.share(newKey(chargedTable))))
	mine := j.share(newKey(fairTable))
	for _, value := range t.pages(mine, mine, key(bytes.Clone(mine)).number(j.Place), 1, backward) {
		return max(tag, number(value[numberLen:]))
	}
	return tag
}

// virtual is the virtual time of the level of a job, 0 at first.
func (t *tx) virtual(j *job) int64 { return t.number(j.level(newKey(virtualTable))) }

// takeTag gives a job that has become available in a new place its start tag.
func (t *tx) takeTag(j *job) {
	if j.tag = 0; j.State == ojs.StateAvailable && j.Fairness.Key != "" {
		j.tag = t.startTag(j)
	}
}

// takesAnew gives a job of a lane, which is next, another tag if it would have a later
// one now. It reports whether it does.
func (k *claimer) takesAnew(r *readyJob, c *limit, l *lane, rank string) bool {
	if k.anew == rule.MostAnew || number([]byte(rank[numberLen:])) == 0 {
		return false
	}
	k.flush() // what is picked is charged
	j := k.t.load(r.seq)
	tag := k.t.startTag(j)
	if tag <= j.tag {
		return false
	}
	k.end()
	if guest := string(l.readyKey(rank)); k.guests[guest] {
		delete(k.guests, guest)
		k.t.delete(key(guest))
	}
	k.t.attempt(j, false, func(*storage.Record) { j.tag = tag })
	k.t.show(c, l, k.t.judged(c, l))
	k.anew++
	k.again = true
	return true
}

// charge notes that a job is claimed. It forgets charges that the virtual time has
// reached, twice as many as it adds.
func (t *tx) charge(j *job) {
	if j.tag == 0 {
		return
	}
	virtual := max(t.virtual(j), j.tag)
	t.putNumber(j.level(newKey(virtualTable)), virtual)
	charged, finish := j.share(newKey(chargedTable)), j.finish()
	was := t.number(charged)
	if finish <= was {
		return
	}
	if was != 0 {
		t.delete(j.spent(was))
	}
	t.putNumber(charged, finish)
	t.put(j.spent(finish), nil)
	n := 0
	for rest := range t.scan(j.level(newKey(spentTable)), nil) {
		if n++; n > 2 || number(rest) > virtual {
			break
		}
		t.delete(append(j.level(newKey(spentTable)), rest...))
		t.delete(j.level(newKey(chargedTable)).name(string(rest[numberLen:])))
	}
}
