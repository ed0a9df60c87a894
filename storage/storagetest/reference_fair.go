package storagetest

import (
	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// refLevel names the available jobs of a queue and priority.
type refLevel struct {
	queue    string
	priority int
}

func levelOf(r *storage.Record) refLevel { return refLevel{r.Queue, r.Priority} }

// stands is the place of an available job, or that of its round.
func (j *refJob) stands() int {
	if j.round > 0 {
		return j.round
	}
	return j.entered
}

// comesBefore is the order of claims among jobs of equal priority.
func (j *refJob) comesBefore(k *refJob) bool {
	if a, b := j.stands(), k.stands(); a != b {
		return a < b
	}
	return j.entered < k.entered
}

// keyed are the available jobs with a fairness key in the level of a job, without itself.
func (s *Reference) keyed(j *refJob) (list []*refJob) {
	for _, other := range s.jobs {
		r := &other.rec
		if other != j && r.State == ojs.StateAvailable && r.Fairness.Key != "" &&
			levelOf(r) == levelOf(&j.rec) {
			list = append(list, other)
		}
	}
	return list
}

// rest forgets which rounds of the level of a job have been served, if it has no other
// job with a fairness key.
func (s *Reference) rest(j *refJob) {
	if len(s.keyed(j)) == 0 {
		delete(s.served, levelOf(&j.rec))
	}
}

// takeRound has a job that has become available join a round, or begin one.
func (s *Reference) takeRound(j *refJob) {
	f := j.rec.Fairness
	if j.round = 0; f.Key == "" {
		return
	}
	s.rest(j)
	var last, n int // the latest round of the key, and its jobs there
	others := s.keyed(j)
	for _, other := range others {
		switch {
		case other.rec.Fairness.Key != f.Key || other.round < last:
		case other.round == last:
			n++
		default:
			last, n = other.round, 1
		}
	}
	j.round = j.entered
	for _, other := range others {
		at := other.round
		fits := at > last || at == last && n < storage.Share(f)
		if fits && at > s.served[levelOf(&j.rec)] && at < j.round {
			j.round = at
		}
	}
}

// serve notes that a job is claimed.
func (s *Reference) serve(j *refJob) {
	level := levelOf(&j.rec)
	s.served[level] = max(s.served[level], j.round)
}
