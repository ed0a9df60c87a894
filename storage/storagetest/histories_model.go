package storagetest

import (
	"cmp"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// model is a state of the storage that a history is checked against: the Reference, with
// the versions that the storage under test has chosen. A model is not changed once it is
// made.
type model struct {
	ref      *Reference
	last     map[string]uint64    // by id: the latest version of a deleted job
	lastCron map[string]uint64    // by name: the latest version of an entry, deleted or not
	done     map[*historyCall]int // the latest part of each call of several parts, counted from 1
	byJob    bool                 // Config.JobByJob
}

// copy returns a model to make one step in.
func (m *model) copy() *model {
	c := *m
	c.ref = m.ref.copy()
	return &c
}

// copy returns a reference in the same state. The records of both share what no
// transition changes in place.
func (s *Reference) copy() *Reference {
	c := &Reference{seq: s.seq, floor: s.floor, lastVersion: s.lastVersion,
		documents: map[storage.Kind]map[string]storage.Document{
			storage.KindCron: maps.Clone(s.of(storage.KindCron))},
		limits: make(map[storage.LimitName]*refLimit)} // histories bound concurrency only, which jobs tell
	c.states, c.served = maps.Clone(s.states), maps.Clone(s.served)
	jobs := make([]refJob, len(s.jobs))
	c.jobs = make([]*refJob, len(s.jobs))
	for i, j := range s.jobs {
		jobs[i] = *j
		c.jobs[i] = &jobs[i]
	}
	return c
}

// put returns a copy of a map with one entry more.
func put[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	c := make(map[K]V, len(m)+1)
	maps.Copy(c, m)
	c[k] = v
	return c
}

// deleted notes the versions of the jobs that f deletes.
func (m *model) deleting(f func()) {
	before := slices.Clone(m.ref.jobs)
	f()
	for _, j := range before {
		if !slices.Contains(m.ref.jobs, j) {
			m.last = put(m.last, j.rec.ID, j.rec.Version)
		}
	}
}

// effect is a call of a history, or a part of a call that takes effect by itself.
type effect struct {
	*historyCall
	part int  // from 0 on
	free bool // the call was under way when the history ends, or is ambiguous: its answer is not looked at
}

// input is an effect of one check. It is no part of the effect, which a check that has
// run out of time may still read when the next one begins.
type input struct {
	*effect
	after int // the part of the call before which this one cannot be, counted from 1; 0: none
}

// ordered reports whether the part takes effect before the next parts of its call: a
// change, or a job of a page.
func (e *effect) ordered(byJob bool) bool {
	switch op := e.op.(type) {
	case *settleCall, *listCall:
		return e.parts > 1 && !e.alone(byJob)
	case *stepCall:
		return e.parts > 1 && e.part < len(op.to) && !e.alone(byJob)
	}
	return false
}

// alone reports whether the part may come before or after any other of its call: a change
// that a storage refuses that works job by job.
func (e *effect) alone(byJob bool) bool {
	return byJob && e.part < len(e.answer.Settled) && e.answer.Settled[e.part].Err != ""
}

// step makes an effect in a model. It returns what the call answered, what it should have
// answered, and the model afterwards.
func (e *effect) step(m *model) (got, want answer, next *model) {
	ordered := e.ordered(m.byJob)
	if !e.op.reads() || ordered {
		m = m.copy()
	}
	if ordered {
		m.done = put(m.done, e.historyCall, e.part+1)
	}
	if len(e.unsettled) > 0 && e.answer.Err == "" {
		states := m.ref.states
		m.ref.states = maps.Clone(states)
		maps.DeleteFunc(m.ref.states,
			func(q string, _ ojs.QueueState) bool { return slices.Contains(e.unsettled, q) })
		defer func() { m.ref.states = states }()
	}
	got, want = e.op.step(m, &e.answer, e.part)
	return got, want, m
}

// porcupineModel is the model as the checker wants it. Inputs hold the
// answers of their effects.
func porcupineModel(byJob bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return &model{ref: NewReference(), byJob: byJob} },
		Step: func(state, in, _ any) (bool, any) {
			e, m := in.(input), state.(*model)
			if m.done[e.historyCall] < e.after {
				return false, nil
			}
			got, want, next := e.step(m)
			return e.free || got.equal(&want), next
		},
		Equal:             func(a, b any) bool { return a.(*model).equal(b.(*model)) },
		Hash:              func(state any) uint64 { return state.(*model).hash() },
		DescribeOperation: func(in, _ any) string { return in.(input).String() },
		DescribeState:     func(state any) string { return state.(*model).String() },
	}
}

var seed = maphash.MakeSeed()

// hash tells models apart that differ in what changes most.
func (m *model) hash() uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, j := range m.ref.jobs {
		maphash.WriteComparable(&h, j.rec.ID)
		maphash.WriteComparable(&h, j.rec.Version)
		maphash.WriteComparable(&h, j.rec.State)
	}
	sum := h.Sum64()
	for name, c := range m.ref.of(storage.KindCron) {
		sum += maphash.Comparable(seed, name) * c.Version
	}
	return sum
}

// equal reports whether two models answer every call alike. It may be wrong about models
// that do.
func (m *model) equal(to *model) bool {
	a, b := m.ref, to.ref
	if len(a.jobs) != len(b.jobs) || !maps.Equal(a.states, b.states) || !maps.Equal(m.last, to.last) ||
		!maps.Equal(m.lastCron, to.lastCron) {
		return false
	}
	for i := range a.jobs {
		x, y := &a.jobs[i].rec, &b.jobs[i].rec
		if x.ID != y.ID || x.Version != y.Version || x.State != y.State || !x.LeaseUntil.Equal(y.LeaseUntil) {
			return false
		}
	}
	// The numbers of effects differ with the order of the calls. Only the order of these
	// numbers counts.
	for i := range a.jobs {
		for k := range i {
			if !slices.Equal(a.jobs[i].compare(a.jobs[k]), b.jobs[i].compare(b.jobs[k])) {
				return false
			}
		}
		if a.unserved(a.jobs[i]) != b.unserved(b.jobs[i]) {
			return false
		}
	}
	for i := range a.jobs {
		x, y := a.jobs[i], b.jobs[i]
		if x.counted != y.counted || x.key != y.key || len(x.waits) != len(y.waits) {
			return false
		}
		for k := range x.waits {
			if a.awaited(x.waits[k]) != b.awaited(y.waits[k]) {
				return false
			}
		}
		if (x.ended == 0) != (y.ended == 0) {
			return false
		}
		if !reflect.DeepEqual(&x.rec, &y.rec) {
			return false
		}
	}
	return reflect.DeepEqual(a.of(storage.KindCron), b.of(storage.KindCron))
}

// awaited returns the id of the job whose end is awaited, "" if that will not come.
func (s *Reference) awaited(w awaitedJob) string {
	for _, j := range s.jobs {
		if awaits(j) == w {
			return j.rec.ID
		}
	}
	return ""
}

// unserved reports whether no job has been claimed of the round of this one, or a later.
func (s *Reference) unserved(j *refJob) bool { return j.round > s.served[levelOf(&j.rec)] }

// compare compares the places of two jobs.
func (j *refJob) compare(to *refJob) []int {
	return []int{
		cmp.Compare(j.inserted, to.inserted), cmp.Compare(j.entered, to.entered),
		cmp.Compare(j.since, to.since), cmp.Compare(j.ended, to.ended),
		cmp.Compare(j.stands(), to.stands()),
	}
}

// adopt gives the jobs that an Insert has stored the versions that the storage has given
// them, if it may. moved are the jobs that waited for others and that it has moved.
func (m *model) adopt(batch []storage.Insert, got, want []storage.Inserted, moved []storage.Record) {
	for i := range min(len(got), len(want)) {
		id := batch[i].Record.ID
		if want[i].Version == 0 || got[i].Version <= m.last[id] {
			continue
		}
		ahead := got[i].Version - want[i].Version
		want[i].Version += ahead
		if j := m.ref.find(id); j != nil {
			j.rec.Version += ahead
		}
		for k := range want { // of the same batch, by which it has ended
			for _, list := range [][]storage.Record{want[k].Replaced, want[k].Dropped} {
				for n := range list {
					if list[n].ID == id {
						list[n].Version += ahead
					}
				}
			}
			if r := want[k].Existing; r != nil && r.ID == id {
				r.Version += ahead
			}
		}
		for n := range moved {
			if moved[n].ID == id {
				moved[n].Version += ahead
			}
		}
	}
}
