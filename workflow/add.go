package workflow

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/stored"
)

// An addition is stored like a workflow: steps, joins, an outcome and a record, under an
// id that follows from the id of the step's job.
//
//  1. Add stores these jobs in one step. In the same step each job that waits for the
//     adding step waits for the outcome, too, or, if it waits for all ends, for the
//     record; the record above waits for both (storage.Insert.AwaitedBy).
//  2. If none of these jobs waits, the workflow was cancelled, and Add is refused.
//  3. A second Add of a step finds the id taken.
//  4. A reading of the workflow looks for the record of each Adder.

// Adder is a Step whose handler may call Add.
func Adder(name string, job ojs.Draft) Part { return step{name, job, true} }

// Add adds a part to the workflow of the step that runs in ctx, which must be an Adder.
// The part begins at once, beside the step. All that waits for the step waits for the
// part, too, and needs its success as it needs the step's. Its steps are named by the
// name of the adding step, a slash, and their own.
//
// A step adds once: added is false, and nothing is done, if an earlier call has added a
// part, also one of an earlier attempt. So steps are added exactly once, however often
// the handler runs. They are not taken back if the step fails after that.
//
// A part without steps, such as an empty Group, counts as added. Callbacks of a Batch of
// nothing run when the step has ended.
//
// In a step that is no Adder, Add fails with an *ojs.InvalidError, and with an
// *InvalidError for a part that is none. In a workflow that was cancelled it fails with
// an *ojs.TransitionError. Its options are those of New. Other errors are those of an
// enqueue.
func Add(ctx context.Context, part Part, opts ...ojs.Option) (added bool, err error) {
	a := attempt.From(ctx)
	if a == nil {
		return false, handler.ErrNoAttempt
	}
	header := a.Header()
	root, _ := header.Meta[MetaWorkflow].(string)
	above, ok := header.Meta[metaAddition].(string)
	if !ok {
		above = root
	}
	if root == "" {
		return false, draft.Invalid("workflow", "job %s is no step of a workflow", header.ID)
	}
	r, err := open(ctx, a.Lookup, above)
	if err != nil {
		return false, err
	}
	node := -1
	for i, id := range r.ids {
		if id == header.ID && r.shape.Nodes[i].Adds {
			node = i
		}
	}
	name, _ := header.Meta[MetaStep].(string)
	if node < 0 {
		return false, draft.Invalid("step", "%.50q is no workflow.Adder", name)
	}
	base := additionID(header.ID)
	w := &Workflow{name: name, root: part, opts: opts, prefix: name + "/",
		adder: header.ID, member: header.Meta[metaMember] != nil}
	b, err := w.builder()
	if err != nil {
		return false, err
	}
	of := Describe(&ojs.JobInfo{JobHeader: *header})
	drafts := w.drafts(b, base, AddType, append(common(root, of.Name, of.Shape),
		ojs.WithMeta(metaAddition, base.String()))...)
	outcome := []string{r.record.ID}
	record := []string{r.record.ID}
	for i, n := range r.shape.Nodes {
		for _, k := range n.After {
			switch {
			case k != node:
			case n.When == ojs.AllEnded:
				record = append(record, r.ids[i])
			default:
				outcome = append(outcome, r.ids[i])
			}
		}
	}
	ctx = attempt.WithAwaited(ctx, attempt.Awaited{
		jobID(base, len(b.nodes)-1): outcome, base.String(): record,
	})
	_, err = a.Enqueuer().EnqueueMany(ctx, drafts...)
	var twice *ojs.DuplicateError
	switch {
	case err == nil:
		return true, nil
	case foreign.As(err, &twice) && twice.Fingerprint == "" && twice.ID == jobID(base, 0):
		return false, nil
	case foreign.Is(err, ojs.ErrDependency):
		return false, &ojs.TransitionError{ID: root, From: ojs.StateCancelled, To: ojs.StatePending,
			Allowed: "steps can be added to a workflow that goes on"}
	}
	return false, fmt.Errorf("ojs: workflow %s: %w", root, err)
}

// additionID is the id of the record of what the step with a job has added: a UUIDv7 of
// the same time.
func additionID(job string) uuid.UUID {
	id := uuid.MustParse(job)
	sum := sha256.Sum256(id[:])
	copy(id[6:], sum[:10])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// openAll reads the record of a workflow, and those of all additions.
func openAll(ctx context.Context, lookup Lookup, id string) (*reading, error) {
	r, err := open(ctx, lookup, id)
	if err != nil {
		return nil, err
	}
	if r.record.Type != Type {
		return nil, fmt.Errorf("%w: job %s is a part of a workflow", ojs.ErrNotFound, id)
	}
	for i := 0; i < len(r.shape.Nodes); i++ { // it grows
		if !r.shape.Nodes[i].Adds {
			continue
		}
		x, err := open(ctx, lookup, additionID(r.ids[i]).String())
		switch {
		case stored.Missing(err):
		case err != nil:
			return nil, err
		default:
			r.include(i, x)
		}
	}
	return r, nil
}

// include appends the nodes of what a step has added, and has those that wait for the
// step wait for them.
func (r *reading) include(step int, x *reading) {
	offset := len(r.shape.Nodes)
	outcome, record := offset+x.outcome, offset+len(x.shape.Nodes)
	for i := range r.shape.Nodes {
		n := &r.shape.Nodes[i]
		for _, k := range n.After {
			if k != step {
				continue
			}
			if n.When == ojs.AllEnded {
				n.After = append(n.After, record)
			} else {
				n.After = append(n.After, outcome)
			}
			break
		}
	}
	last := shapedNode{Type: AddType, When: ojs.AllEnded}
	for i, n := range x.shape.Nodes {
		for k := range n.After {
			n.After[k] += offset
		}
		if n.Undoes > 0 {
			n.Undoes += offset
		}
		n.addedBy = step + 1
		r.shape.Nodes = append(r.shape.Nodes, n)
		if n.Name != "" || i == x.outcome {
			last.After = append(last.After, offset+i)
		}
	}
	for _, s := range x.shape.Sagas {
		s.Good, s.Failed, s.Undone = s.Good+offset, s.Failed+offset, s.Undone+offset
		r.shape.Sagas = append(r.shape.Sagas, s)
	}
	r.shape.Nodes = append(r.shape.Nodes, last)
	r.ids = append(append(r.ids, x.ids...), x.record.ID)
}
