package workflow

import (
	"context"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/policy"
)

// Describe returns what the metadata of a job say of its workflow, nil if it is of none.
// Package engine makes events of it.
func Describe(job *ojs.JobInfo) *event.Workflow {
	w := &event.Workflow{Remaining: -1}
	entry := func(to *string, key string) { *to, _ = job.Meta[key].(string) }
	if entry(&w.ID, MetaWorkflow); w.ID == "" {
		return nil
	}
	entry(&w.Name, metaName)
	entry(&w.Shape, metaShape)
	entry(&w.Callback, metaCallback)
	if entry(&w.Step, MetaStep); w.Step != "" {
		w.StepType = job.Type
		if i, ok := number(job, metaIndex); ok {
			w.Place = i + 1
		}
		if left, ok := number(job, metaAfter); ok {
			w.Remaining = left
		}
	}
	return w
}

// number returns a meta value that is a whole number.
func number(job *ojs.JobInfo, key string) (int, bool) {
	n, ok := job.Meta[key].(float64)
	return int(n), ok
}

// StepsOf returns how many steps a workflow has, given the job of a step for which Begins
// holds: without those that Add has added. 0: it is not known.
func StepsOf(job *ojs.JobInfo) int {
	n, _ := number(job, metaSteps)
	return n
}

// line reports whether each step but the first waits for the one before, and nothing
// else.
func (s *shape) line() bool {
	for i, n := range s.Nodes {
		outcome := i == len(s.Nodes)-1
		switch {
		case n.Name == "" && !outcome, n.When != "":
			return false
		case i > 0 && (len(n.After) != 1 || n.After[0] != i-1):
			return false
		}
	}
	return true
}

// Begins reports whether the attempt that a job is in, or was in last, is the first one
// of a step that waits for no other.
func Begins(job *ojs.JobInfo) bool {
	return job.Attempt == 1 && job.Dependencies == nil && len(job.Errors) == 0 &&
		job.Meta[MetaStep] != nil && job.Meta[metaAddition] == nil
}

// IsCallback reports whether a job is a callback of a Batch.
func IsCallback(job *ojs.JobInfo) bool {
	return job.Meta[metaCallback] != nil && job.Meta[MetaWorkflow] != nil
}

// IsMember reports whether a job is a step within a group or batch, and no callback.
func IsMember(job *ojs.JobInfo) bool { return job.Meta[metaMember] != nil }

// Compensates reports whether a job is the join whose completion says that the
// compensations of a workflow begin: a Saga's that is its outermost part.
func Compensates(job *ojs.JobInfo) bool { return job.Meta[metaSaga] != nil }

// Steps returns how many steps a workflow has, given its record: without those that Add
// has added.
func Steps(record *ojs.JobInfo) (n int, err error) {
	var s shape
	err = record.Args.Decode(&s)
	return s.steps(), err
}

func (s *shape) steps() (n int) {
	for i := range s.Nodes {
		if s.Nodes[i].Name != "" {
			n++
		}
	}
	return n
}

// Ending is how a workflow has ended. Step is the one because of which it has failed: nil
// if it has not, or if no single step is the reason.
type Ending struct {
	State State
	Steps int
	Step  *StepStatus
}

// Ended returns how the workflow whose record has just completed has ended. It looks up
// the record, its outcome and, if it has failed, the jobs between the outcome and one
// failed step.
func Ended(ctx context.Context, lookup Lookup, id string) (*Ending, error) {
	r, err := openAll(ctx, lookup, id)
	if err != nil {
		return nil, err
	}
	outcome, err := lookup(ctx, r.ids[r.outcome])
	if err != nil && !stored.Missing(err) {
		return nil, err
	}
	e := &Ending{Steps: r.shape.steps()}
	if e.State, err = r.state(ctx, lookup, outcome, false); err != nil {
		return nil, err
	}
	if e.State != StateCompleted {
		places := make(map[string]int, len(r.ids))
		for i, id := range r.ids {
			places[id] = i
		}
		e.Step, err = r.cause(ctx, lookup, places, r.outcome)
	}
	return e, err
}

// cause returns a step because of which a node has not completed, nil if none is found.
func (r *reading) cause(
	ctx context.Context, lookup Lookup, places map[string]int, i int,
) (*StepStatus, error) {
	n := &r.shape.Nodes[i]
	job, err := lookup(ctx, r.ids[i])
	switch {
	case stored.Missing(err):
		return nil, nil
	case err != nil:
		return nil, err
	case job.State == ojs.StateCompleted:
		return nil, nil
	case n.Name != "" && !waited(job):
		return &StepStatus{Name: n.Name, JobID: job.ID, Type: n.Type, Callback: n.Callback, Job: job}, nil
	case n.When != ojs.AnyFailed:
		id, _ := failureOf(job).Details["dependency"].(string)
		k, ok := places[id]
		if !ok {
			return nil, nil
		}
		return r.cause(ctx, lookup, places, k)
	}
	for _, k := range n.After { // none has failed: that is, nodes that these stand for have
		if not := &r.shape.Nodes[k]; not.Name == "" && not.When == ojs.AnyFailed && len(not.After) == 1 {
			if step, err := r.cause(ctx, lookup, places, not.After[0]); step != nil || err != nil {
				return step, err
			}
		}
	}
	return nil, nil
}

// waited reports whether a job ended because of those that it waited for, and did not
// run.
func waited(job *ojs.JobInfo) bool { return failureOf(job).Type == policy.ErrorTypeDependency }

func failureOf(job *ojs.JobInfo) *ojs.Failure {
	if job.Error == nil {
		return &ojs.Failure{}
	}
	return job.Error
}

// kind names the shape of a part for events.
func kind(p Part) string {
	switch p.(type) {
	case chain:
		return "chain"
	case group:
		return "group"
	case batch:
		return "batch"
	case graph:
		return "graph"
	case *saga:
		return "saga"
	}
	return "step"
}

// common are the metadata that all jobs of a workflow have.
func common(id, name, shape string) []ojs.Option {
	opts := []ojs.Option{ojs.WithMeta(MetaWorkflow, id), ojs.WithMeta(metaShape, shape)}
	if name != "" {
		opts = append(opts, ojs.WithMeta(metaName, name))
	}
	return opts
}
