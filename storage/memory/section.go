package memory

import (
	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// section is the jobs of a type and version in a queue. Its bucket has the available ones
// without a rate limit.
type section struct {
	bucket
	home *queue
	of   *typeBranch

	kinds  []*kind   // those that are looked for
	n      int       // kinds, the others included
	counts [8]int    // by stateIndex
	rare   [8]orders // by stateIndex: lists of the jobs in a rare state

	keyed      map[*lane]*bucket // of available jobs with a limit: not empty ones, and the spare one
	spareKeyed *bucket           // an empty one: a lone job that comes and goes allocates none
	lanes      []*lane           // of the limits of its queue and type; nil: none
}

// orders are lists of the same jobs.
type orders struct {
	inserted index // by job.ord
	timed    index // by job.timed, without those that wait for no time
	dead     index // the dead letters, by job.turn
}

// listed reports whether the section has a list of the jobs of the job's state.
func (j *job) listed() bool {
	return j.state != available && j.state != active && j.state != completedState
}

// enterSection counts a job in its queue and its section, and lists it there.
func (s *store) enterSection(j *job) {
	j.kind.section.counts[j.state]++
	if !j.ended() {
		j.kind.section.home.live++
	}
	if j.listed() {
		s.eachList(j, (*index).add)
	}
}

// leaveSection undoes enterSection, before the record of the job changes.
func (s *store) leaveSection(j *job) {
	j.kind.section.counts[j.state]--
	if !j.ended() {
		j.kind.section.home.live--
	}
	if j.listed() {
		s.eachList(j, (*index).remove)
	}
}

// eachList calls f with each list of a job in a rare state, and where it is there.
func (s *store) eachList(j *job, f func(*index, int64, *job)) {
	o := &j.kind.section.rare[j.state]
	f(&o.inserted, int64(j.ord), j)
	at := int64(j.timed)
	if j.timed != never || j.ended() {
		f(&o.timed, at, j)
	}
	if j.deadLettered() {
		f(&o.dead, int64(j.turn), j)
	}
	if whole := j.whole(); j.current() == ojs.StateDiscarded && whole != nil && whole.Error != nil {
		within(s.failed, whole.Error.Type, func(x *index) { f(x, at, j) })
	}
}

// within calls f with the index of a name, and forgets it if it is empty then.
func within(byName map[string]*index, name string, f func(*index)) {
	x := orMake(byName, name, func() *index { return new(index) })
	if f(x); x.n == 0 {
		delete(byName, name)
	}
}

// keeper is storage.Record.Keeper.
func (j *job) keeper() string {
	if whole := j.whole(); whole != nil {
		return whole.Keeper()
	}
	return ""
}

// inWorkflow calls f with the lists of the workflow of a job, by job.ord, if it has one.
func (s *store) inWorkflow(j *job, keeper string, f func(*index, int64, *job)) {
	if keeper == "" {
		return
	}
	within(s.workflows, keeper, func(x *index) { f(x, int64(j.ord), j) })
	if keeper == j.id {
		f(&s.keepers, int64(j.ord), j)
	}
}

// sections calls f for each section of which a query may select jobs in a state.
func (s *store) sections(q *storage.Query, f func(*section, int)) {
	for name, queue := range s.ready.queues {
		for t, x := range queue.sections {
			for i, n := range x.counts {
				if n > 0 && q.MayMatch(states[i], name, t.name) {
					f(x, i)
				}
			}
		}
	}
}
