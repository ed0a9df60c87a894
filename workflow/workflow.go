package workflow

import (
	"strings"

	"github.com/ojsengine/ojs"
)

// The limits of a workflow.
const (
	MaxSteps = 10_000 // steps and callbacks
	MaxDepth = 8      // parts within parts
)

// Workflow is a workflow that has not been started. It is immutable, and may be started
// any number of times.
type Workflow struct {
	name   string
	root   Part
	opts   []ojs.Option
	prefix string // of the names of steps
	adder  string // of what Add adds: the job of the step that adds it
	member bool   // of what Add adds: that step is a member of a group or batch
}

// New makes a workflow. Its name is for people, and may be empty. The options hold for
// each step that does not set them itself: they override the defaults of job types, and
// the options of a draft override them.
func New(name string, root Part, opts ...ojs.Option) *Workflow {
	return &Workflow{name: name, root: root, opts: opts}
}

// Part is a part of a workflow: a step, or parts in a shape.
type Part interface {
	// add adds the part's jobs, which begin when all jobs of before have succeeded. It
	// returns the jobs that have all succeeded if and only if the part has.
	add(b *builder, before []int) (last []int)
}

// Step is one job. The name is what Result and Status call it: at most 128 characters,
// unique within the workflow. An unnamed step is called "step-N" by its place among all
// steps, from 0.
func Step(name string, job ojs.Draft) Part { return step{name, job, false} }

type step struct {
	name string
	job  ojs.Draft
	adds bool
}

// Chain runs parts one after the other. A part that fails ends the chain: the parts after
// it are cancelled. Later steps without a priority have that of the first step. A chain,
// group or graph without parts has succeeded as soon as it begins.
func Chain(parts ...Part) Part { return chain(parts) }

type chain []Part

// Group runs parts side by side. It fails if one of them fails, and the others go on.
func Group(parts ...Part) Part { return group(parts) }

type group []Part

// Batch runs parts side by side, and callbacks when all of their jobs have ended. At
// least one callback is needed. A batch whose callbacks succeed has succeeded, even if
// parts have failed. If parts fail and no callback is for that, the batch fails. A batch
// of a group without parts has succeeded, and calls OnComplete and OnSuccess.
func Batch(parts Part, callbacks ...Callback) Part { return batch{parts, callbacks} }

type batch struct {
	parts     Part
	callbacks []Callback
}

// Callback is a job that a Batch enqueues at its end. It is a step of the workflow, with
// the name on_complete, on_success or on_failure unless Named gives it another.
type Callback struct {
	when, name string
	job        ojs.Draft
}

const (
	onComplete = "on_complete"
	onSuccess  = "on_success"
	onFailure  = "on_failure"
)

// OnComplete is enqueued however the parts have ended.
func OnComplete(job ojs.Draft) Callback { return Callback{onComplete, onComplete, job} }

// OnSuccess is enqueued if no part has failed. Otherwise it is cancelled.
func OnSuccess(job ojs.Draft) Callback { return Callback{onSuccess, onSuccess, job} }

// OnFailure is enqueued if a part has failed. Otherwise it is cancelled.
func OnFailure(job ojs.Draft) Callback { return Callback{onFailure, onFailure, job} }

// Named returns the callback under a name of its own. A workflow with several batches
// needs it.
func (c Callback) Named(name string) Callback {
	c.name = name
	return c
}

// Graph runs steps in the order of their dependencies. Steps that wait for others and
// have no priority get that of the first step that waits for none.
func Graph(nodes ...Node) Part { return graph(nodes) }

type graph []Node

// Node is a step of a Graph.
type Node struct {
	Name  string // of the step
	Job   ojs.Draft
	After []string      // the names of nodes of the same graph that it waits for
	When  ojs.Condition // of their ends; "" is ojs.AllSucceeded
}

// InvalidError refuses a workflow: nothing was stored. errors.Is(err, ojs.ErrInvalid)
// holds for it.
type InvalidError struct {
	Faults []Fault // all that were found
}

// Fault is what is wrong with one part.
type Fault struct {
	Path    string // such as "$.steps[1].job", of the parts by their places
	Message string
}

// Error implements error.
func (e *InvalidError) Error() string {
	list := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		list[i] = f.Path + " " + f.Message
	}
	return "ojs: invalid workflow: " + strings.Join(list, "; ")
}

// Is makes errors.Is(err, ojs.ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ojs.ErrInvalid }
