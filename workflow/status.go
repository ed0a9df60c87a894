package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/internal/times"
)

// State is the state of a workflow.
type State string

// The states. Completed, failed and cancelled are final.
const (
	StatePending   State = "pending" // no step is available yet: the first ones wait for their times
	StateRunning   State = "running"
	StateCompleted State = "completed"
	StateFailed    State = "failed"
	StateCancelled State = "cancelled"

	// Of a workflow whose root is a Saga: a step has failed, and compensations run, or
	// have run.
	StateCompensating State = "compensating"
	StateCompensated  State = "compensated" // final
)

// Final reports whether the workflow has ended.
func (s State) Final() bool {
	return s == StateCompleted || s == StateFailed || s == StateCancelled || s == StateCompensated
}

// Status is what a workflow has come to.
type Status struct {
	ID    string
	Name  string
	State State
	Steps []StepStatus // in the order of the definition, callbacks after their batch

	CreatedAt  time.Time
	StartedAt  time.Time // when the first step was claimed; zero: none was
	FinishedAt time.Time // zero: it has not ended
}

// StepStatus is what a step has come to.
type StepStatus struct {
	Name     string
	JobID    string
	Type     string
	Callback string   // on_complete, on_success or on_failure of a Batch; "": it is none
	Undoes   string   // of a compensation of a Saga: the step that it undoes; "": it is none
	After    []string // the names of the steps that it waits for
	AddedBy  string   // the name of the Adder that has added it; "": it is of the definition
	// Job is the step's job, nil if it has been deleted.
	Job *ojs.JobInfo
}

// Follows returns the names of the steps that are before the step in a picture: those
// that it waits for, or, if an Adder has added it and it waits for none, the Adder.
func (s *StepStatus) Follows() []string {
	if len(s.After) == 0 && s.AddedBy != "" {
		return []string{s.AddedBy}
	}
	return s.After
}

// State is the state of the step's job, "" if that has been deleted. A step that waits
// for others is pending.
func (s *StepStatus) State() ojs.State {
	if s.Job == nil {
		return ""
	}
	return s.Job.State
}

// Count returns how many steps are in a state. Callbacks count, too.
func (s *Status) Count(state ojs.State) (n int) {
	for i := range s.Steps {
		if s.Steps[i].State() == state {
			n++
		}
	}
	return n
}

// Step returns the step of a name, nil if there is none.
func (s *Status) Step(name string) *StepStatus {
	for i := range s.Steps {
		if s.Steps[i].Name == name {
			return &s.Steps[i]
		}
	}
	return nil
}

// Lookup reads a job. Its args and result are decoded. ErrNotFound or ErrPruned: it is
// not stored.
type Lookup func(ctx context.Context, id string) (*ojs.JobInfo, error)

// Read looks up a workflow and all of its steps, one after the other: a step may have
// ended since an earlier one was read. ErrNotFound, or ErrPruned if it was deleted
// lately: no workflow with the id is stored. Its cost grows with the number of steps.
// operate.Workflows.Get calls it.
func Read(ctx context.Context, lookup Lookup, id string) (*Status, error) {
	r, err := openAll(ctx, lookup, id)
	if err != nil {
		return nil, err
	}
	return r.read(ctx, lookup)
}

// ErrDamaged is the error of a workflow whose record cannot be read.
var ErrDamaged = errors.New("ojs: the record of a workflow is damaged")

// ReadState returns the state of the workflow of a record, whose args are decoded. It
// looks up few of its jobs: what tells how it has ended, and, to tell StatePending from
// StateRunning, the first steps as far as they wait. If pending is false, a workflow that
// is pending counts as running. ErrNotFound: the record is of no workflow. ErrDamaged: it
// cannot be read.
func ReadState(ctx context.Context, lookup Lookup, record *ojs.JobInfo, pending bool) (State, error) {
	r, err := opened(record)
	if err != nil {
		return "", err
	}
	waits := pending && !record.State.Terminal()
	for i := 0; i < len(r.shape.Nodes) && waits; i++ {
		if n := r.shape.Nodes[i]; n.Name == "" || len(n.After) > 0 {
			continue
		}
		job, err := lookup(ctx, r.ids[i])
		if err != nil && !stored.Missing(err) {
			return "", err
		}
		waits = err == nil && (job.State == ojs.StateScheduled || job.State == ojs.StatePending)
	}
	var outcome *ojs.JobInfo
	if record.State == ojs.StateCompleted {
		if outcome, err = lookup(ctx, r.ids[r.outcome]); err != nil && !stored.Missing(err) {
			return "", err
		}
	}
	return r.state(ctx, lookup, outcome, waits)
}

// reading is a workflow as it is read.
type reading struct {
	base    uuid.UUID
	record  *ojs.JobInfo
	shape   shape    // with the nodes of what Add has added, after those of the workflow
	ids     []string // of the jobs of the nodes
	outcome int      // node
}

// open looks up the record of a workflow.
func open(ctx context.Context, lookup Lookup, id string) (*reading, error) {
	record, err := lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	return opened(record)
}

// opened reads the record of a workflow.
func opened(record *ojs.JobInfo) (r *reading, err error) {
	if record.Type != Type && record.Type != AddType {
		return nil, fmt.Errorf("%w: job %s is of type %s, not a workflow", ojs.ErrNotFound, record.ID,
			record.Type)
	}
	r = &reading{record: record}
	if r.base, err = uuid.Parse(record.ID); err == nil {
		err = record.Args.Decode(&r.shape)
	}
	if err == nil {
		err = r.shape.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: job %s: %w", ErrDamaged, record.ID, err)
	}
	r.outcome = len(r.shape.Nodes) - 1
	for i := range r.shape.Nodes {
		r.ids = append(r.ids, jobID(r.base, i))
	}
	return r, nil
}

// check refuses a shape that names nodes that it does not have.
func (s *shape) check() error {
	var nodes []int
	for _, n := range s.Nodes {
		nodes = append(append(nodes, n.After...), max(n.Undoes-1, 0))
	}
	for _, saga := range s.Sagas {
		nodes = append(nodes, saga.Failed, saga.Undone)
	}
	if len(s.Nodes) == 0 || s.Root && len(s.Sagas) == 0 || slices.ContainsFunc(nodes, func(n int) bool {
		return n < 0 || n >= len(s.Nodes)
	}) {
		return errors.New("it lacks nodes")
	}
	return nil
}

// read reads the steps.
func (r *reading) read(ctx context.Context, lookup Lookup) (*Status, error) {
	s := &Status{ID: r.record.ID, Name: r.shape.Name, CreatedAt: r.record.CreatedAt}
	waits := true // every first step waits for its time
	for i, n := range r.shape.Nodes {
		if n.Name == "" {
			continue
		}
		job, err := lookup(ctx, r.ids[i])
		if err != nil && !stored.Missing(err) {
			return nil, err
		}
		step := StepStatus{Name: n.Name, JobID: r.ids[i], Type: n.Type,
			Callback: n.Callback, After: r.names(n.After), Job: job}
		if n.Undoes > 0 {
			step.Undoes = r.shape.Nodes[n.Undoes-1].Name
		}
		if n.addedBy > 0 {
			step.AddedBy = r.shape.Nodes[n.addedBy-1].Name
		}
		s.Steps = append(s.Steps, step)
		if job == nil {
			waits = false
			continue
		}
		if len(n.After) == 0 && job.State != ojs.StateScheduled && job.State != ojs.StatePending {
			waits = false
		}
		s.StartedAt = times.Earliest(s.StartedAt, firstClaim(job))
	}
	outcome, err := lookup(ctx, r.ids[r.outcome])
	if err != nil && !stored.Missing(err) {
		return nil, err
	}
	if s.State, err = r.state(ctx, lookup, outcome, waits); err != nil {
		return nil, err
	}
	if s.State.Final() {
		s.FinishedAt = r.record.FinishedAt
	}
	return s, nil
}

// firstClaim returns when a job was claimed for the first time, as far back as its
// history goes. Zero: it was not.
func firstClaim(job *ojs.JobInfo) time.Time {
	at := job.StartedAt // of the last attempt
	for i := range job.Errors {
		at = times.Earliest(at, job.Errors[i].StartedAt)
	}
	for i := range job.History {
		at = times.Earliest(at, job.History[i].StartedAt)
	}
	return at
}

// state is the state of the workflow, given the job of its outcome.
func (r *reading) state(
	ctx context.Context, lookup Lookup, outcome *ojs.JobInfo, waits bool,
) (State, error) {
	completed := func(node int) (bool, error) {
		job, err := lookup(ctx, r.ids[node])
		if stored.Missing(err) {
			return false, nil
		}
		return err == nil && job.State == ojs.StateCompleted, err
	}
	switch {
	case r.record.State == ojs.StateCancelled:
		return StateCancelled, nil
	case r.record.State == ojs.StateCompleted && outcome != nil && outcome.State == ojs.StateCompleted:
		return StateCompleted, nil
	case r.shape.Root && r.record.State.Terminal():
		undone, err := completed(r.shape.Sagas[0].Undone)
		if err == nil && undone {
			return StateCompensated, nil
		}
		return StateFailed, err
	case r.record.State.Terminal():
		return StateFailed, nil
	case waits:
		return StatePending, nil
	case r.shape.Root:
		undoing, err := completed(r.shape.Sagas[0].Failed)
		if err == nil && undoing {
			return StateCompensating, nil
		}
		return StateRunning, err
	}
	return StateRunning, nil
}

// names returns the steps that nodes stand for, directly or through joins.
func (r *reading) names(nodes []int) (names []string) {
	seen := make(map[int]bool)
	var follow func([]int)
	follow = func(list []int) {
		for _, i := range list {
			if seen[i] {
				continue
			}
			seen[i] = true
			if n := r.shape.Nodes[i]; n.Name != "" {
				names = append(names, n.Name)
			} else {
				follow(n.After)
			}
		}
	}
	follow(nodes)
	return names
}
