package workflow

import (
	"fmt"
	"slices"

	"github.com/ojsengine/ojs"
)

// SagaPolicy says what a Saga does when a step fails.
type SagaPolicy string

// The policies.
const (
	// Compensate attempts each step once, unless its draft sets the attempts, and undoes
	// the completed steps if one fails.
	Compensate SagaPolicy = "compensate"
	// RetryFirst gives each step the attempts of its job, and then is Compensate.
	RetryFirst SagaPolicy = "retry"
	// Skip goes on after a step that has failed. Nothing is undone.
	Skip SagaPolicy = "skip"
)

// Saga runs parts one after the other, and undoes what they have done if one fails: the
// compensations of its completed steps (Undoable) run in reverse order, one at a time,
// once all jobs of the saga have ended. The first compensation that fails is the last
// that runs. A saga that has failed has failed for the parts around it, however its
// compensations end. A workflow whose root is a saga is compensating, and then
// compensated or, if a compensation has failed, failed.
//
// Steps that ran side by side, in a part that is a Group, are undone in the reverse order
// of their definition. A saga within a saga undoes its steps if it fails itself. A
// workflow that is cancelled undoes nothing.
func Saga(policy SagaPolicy, parts ...Part) Part { return &saga{policy: policy, parts: parts} }

type saga struct {
	policy SagaPolicy
	parts  []Part
	undo   []undoing // of its steps, as they are built
}

// undoing is a compensation that has yet to be built.
type undoing struct {
	step int // node
	job  ojs.Draft
	at   string
}

// Undoable is a Step of a Saga with its compensation: a job that undoes what the step has
// done. The compensation is a step of the workflow with the name "undo-" and the step's
// name. UndoneResult is the result of the step for its handler.
func Undoable(name string, job, compensation ojs.Draft) Part {
	return undoable{name, job, compensation}
}

type undoable struct {
	name      string
	job, undo ojs.Draft
}

// sagaNodes are the nodes that say how a saga ends.
type sagaNodes struct {
	Good   int `json:"g"` // completes if no step has failed
	Failed int `json:"f"` // completes if one has, once all have ended: compensations begin
	Undone int `json:"u"` // completes if all compensations have that are needed
}

func (s undoable) add(b *builder, before []int) []int {
	if b.saga == nil {
		b.fault("has a compensation, and is in no saga; use Step, or put it into a Saga")
		return nil
	}
	i := b.step(node{name: s.name, job: b.saga.once(s.job), after: before, when: ojs.AllSucceeded})
	if b.saga.policy != Skip {
		b.saga.undo = append(b.saga.undo, undoing{i, s.undo, b.at})
	}
	return []int{i}
}

// once gives a job of a saga one attempt, unless it says otherwise or the policy does.
func (s *saga) once(job ojs.Draft) ojs.Draft {
	if s == nil || s.policy != Compensate {
		return job
	}
	return job.Under(ojs.WithMaxAttempts(1))
}

func (s *saga) add(b *builder, before []int) []int {
	switch s.policy {
	case Compensate, RetryFirst, Skip:
	default:
		b.fault("has the policy %q; use Compensate, RetryFirst or Skip", s.policy)
	}
	own := &saga{policy: s.policy} // a workflow may be built at any number of times
	outer, place := b.saga, len(b.sagas)
	b.saga = own
	defer func() { b.saga = outer }()
	if s.policy == Skip {
		return s.skip(b, before)
	}
	b.sagas = append(b.sagas, sagaNodes{})
	before = b.one(before)
	first, last := len(b.nodes), before
	last = b.line(s.parts, last)
	if len(b.faults) > 0 {
		return nil
	}
	jobs := b.stepsFrom(first)
	good := b.join(ojs.AllSucceeded, last...)
	begun := slices.Clone(before) // a saga that does not begin undoes nothing
	failed := b.join(ojs.AllSucceeded, append(begun, b.join(ojs.AllEnded, jobs...), b.not(good))...)
	undone := failed
	for i := len(own.undo) - 1; i >= 0; i-- {
		undone = own.undo[i].add(b, failed, undone)
	}
	if undone == failed { // so that the two are never one
		undone = b.join(ojs.AllSucceeded, failed)
	}
	b.sagas[place] = sagaNodes{good, failed, undone}
	return []int{good}
}

// add adds a compensation, which runs if its step has completed, after all that is undone
// before it. It returns the node that completes if it has, or need not run.
func (u *undoing) add(b *builder, failed, before int) int {
	at := b.at
	b.at = u.at + ".compensation"
	after := []int{u.step, before}
	if before != failed {
		after = append(after, failed)
	}
	c := b.step(node{job: u.job, undoes: u.step + 1, after: after, when: ojs.AllSucceeded})
	b.at = at
	missing := b.join(ojs.AllSucceeded, u.step, b.not(c)) // it is needed, and has not completed
	return b.join(ojs.AllSucceeded, before, b.not(missing))
}

// skip adds the parts of a saga each of which begins when that before it has ended.
func (s *saga) skip(b *builder, before []int) []int {
	before = b.one(before)
	next := before
	defer b.inherits()()
	for i, p := range s.parts {
		first := len(b.nodes)
		b.part(p, fmt.Sprintf(".steps[%d]", i), next)
		b.begun(first)
		if len(b.faults) > 0 {
			return nil
		}
		// A saga that does not begin runs nothing.
		next = append([]int{b.join(ojs.AllEnded, b.stepsFrom(first)...)}, before...)
	}
	return next
}
