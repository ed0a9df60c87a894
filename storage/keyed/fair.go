package keyed

import (
	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Jobs with a fairness key take turns in rounds (package storage, Fairness).
//
//   - job.round is the round of such a job while it is available, and 0 otherwise. Claims
//     go by priority, round and place; without a key the place stands for the round.
//   - The table fair has the jobs of a key by their rounds, and round how many jobs a
//     round has. The table served has the latest round of which a job was claimed. It
//     means nothing while its level has no job: a job that enters clears it.

// level is the queue and priority within which a job takes turns.
func (j *job) level(t table) key { return newKey(t).name(j.Queue).number(^int64(j.Priority)) }

// fairKey is the entry of a job in the table fair, and of its key without its round and
// seq.
func (j *job) fairKey() key { return j.level(fairTable).name(j.Fairness.Key) }

// enterRound gives a job that has become available in a new place its round.
func (t *tx) enterRound(j *job) {
	if j.round = 0; j.State != ojs.StateAvailable || j.Fairness.Key == "" {
		return
	}
	t.enterLevel(j)
	served := t.number(j.level(servedTable))
	last, n := int64(0), 0 // the latest round of the key, and its jobs there
	mine := j.fairKey()
	for rest := range t.pages(mine, mine, behind(mine), 2, backward) {
		if n > 0 && number(rest) != last {
			break
		}
		last = number(rest)
		n++
	}
	if j.round = j.Place; last > served && n < storage.Share(j.Fairness) {
		j.round = last
	} else {
		for next := range t.scan(j.level(roundTable), key{}.number(max(last, served)+1)) {
			j.round = number(next)
			break
		}
	}
	t.join(j)
}

// enterLevel forgets which round jobs were claimed of if the level has no job.
func (t *tx) enterLevel(j *job) {
	served := j.level(servedTable)
	if some, _ := t.first(j.level(roundTable)); some == nil && t.get(served) != nil {
		t.delete(served)
	}
}

// join enters a job in its round, if it has one.
func (t *tx) join(j *job) {
	if j.round != 0 {
		t.enterLevel(j)
		t.put(j.fairKey().number(j.round).number(j.Seq), nil)
		t.add(j.level(roundTable).number(j.round), 1)
	}
}

// leaveRound takes a job out of its round.
func (t *tx) leaveRound(j *job) {
	if j.round != 0 {
		t.delete(j.fairKey().number(j.round).number(j.Seq))
		t.add(j.level(roundTable).number(j.round), -1)
	}
}

// serve notes that a claim takes a job.
func (t *tx) serve(j *job) {
	if k := j.level(servedTable); j.round > t.number(k) {
		t.putNumber(k, j.round)
	}
}
