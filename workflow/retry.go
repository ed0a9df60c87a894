package workflow

import (
	"context"
	"fmt"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/stored"
)

// A retry of a workflow runs the steps again whose failures have made it fail, as if they
// had not run yet:
//
//  1. want goes from the outcome back to the steps that would have had to complete. A
//     failure that a callback has dealt with is not among them. In a saga that has begun
//     to compensate they are compensations.
//  2. A step that follows such a step, and has not completed, waits again, and so does
//     every join that follows. Steps that have completed stay as they are.
//  3. The record waits again for all.

// JobIDs returns the ids of all jobs of a workflow, that of the record first.
func JobIDs(ctx context.Context, lookup Lookup, id string) ([]string, error) {
	r, err := openAll(ctx, lookup, id)
	if err != nil {
		return nil, err
	}
	return append([]string{r.record.ID}, r.ids...), nil
}

// CancelIDs returns the ids of JobIDs in the order of a cancel, which is refused if the
// first job has ended. That is the record or, if the outermost part is a Saga, the join
// that begins its compensations.
func CancelIDs(ctx context.Context, lookup Lookup, id string) ([]string, error) {
	r, err := openAll(ctx, lookup, id)
	if err != nil {
		return nil, err
	}
	ids := append([]string{r.record.ID}, r.ids...)
	if r.shape.Root {
		i := r.shape.Sagas[0].Failed + 1
		ids[0], ids[i] = ids[i], ids[0]
	}
	return ids, nil
}

// Revival is a job of a workflow that begins anew.
type Revival struct {
	JobID     string
	DependsOn []string // nil: it begins at once
}

// Revivals returns the jobs that begin anew if the failed steps of a workflow are
// retried. It looks up every job of the workflow. A workflow that has not failed, or in
// which no step can be retried, is refused with an *ojs.TransitionError.
// operate.Workflows.Retry calls it.
func Revivals(ctx context.Context, lookup Lookup, id string) ([]Revival, error) {
	r, err := openAll(ctx, lookup, id)
	if err != nil {
		return nil, err
	}
	p := &retrying{r: r, jobs: make([]*ojs.JobInfo, len(r.shape.Nodes)),
		again: make([]bool, len(r.shape.Nodes)),
		seen:  make(map[int]bool), sagas: make(map[int]sagaNodes)}
	for _, s := range r.shape.Sagas {
		p.sagas[s.Good] = s
	}
	refused := &ojs.TransitionError{ID: id, From: r.record.State, To: ojs.StatePending,
		Allowed: "only a workflow that has failed, and has not undone its steps, can be retried"}
	if r.record.State != ojs.StateCompleted {
		return nil, refused
	}
	for i := range p.jobs {
		p.jobs[i], err = lookup(ctx, r.ids[i])
		if stored.Missing(err) {
			return nil, fmt.Errorf("ojs: workflow %s cannot be retried: its job %s has been deleted: %w", id,
				r.ids[i], err)
		}
		if err != nil {
			return nil, err
		}
	}
	if !p.completed(r.outcome) {
		p.want(r.outcome)
	}
	if len(p.roots) == 0 {
		return nil, refused
	}
	return p.revivals(), nil
}

// retrying is a workflow of which steps are retried.
type retrying struct {
	r     *reading
	jobs  []*ojs.JobInfo
	sagas map[int]sagaNodes // by their Good
	seen  map[int]bool      // nodes that want or unwant was called for
	roots []int             // steps that are retried
	again []bool            // nodes that begin anew
}

func (p *retrying) completed(i int) bool { return p.jobs[i].State == ojs.StateCompleted }

// want looks for the steps because of which a node has not completed.
func (p *retrying) want(i int) {
	if p.seen[i] || p.completed(i) {
		return
	}
	p.seen[i] = true
	if s, ok := p.sagas[i]; ok && p.completed(s.Failed) {
		p.want(s.Undone)
		return
	}
	n := &p.r.shape.Nodes[i]
	switch {
	case n.Name != "" && !waited(p.jobs[i]):
		p.roots = append(p.roots, i)
	case n.When == ojs.AnyFailed:
		for _, k := range n.After {
			p.unwant(k)
		}
	default:
		for _, k := range n.After {
			p.want(k)
		}
	}
}

// unwant looks for the steps because of which a join has completed.
func (p *retrying) unwant(i int) {
	n := &p.r.shape.Nodes[i]
	if p.seen[i] || !p.completed(i) || n.Name != "" {
		return
	}
	p.seen[i] = true
	switch n.When {
	case ojs.AnyFailed:
		for _, k := range n.After {
			p.want(k)
		}
	case ojs.AllEnded:
	default:
		for _, k := range n.After {
			p.unwant(k)
		}
	}
}

// revivals returns the roots and all that follows them.
func (p *retrying) revivals() []Revival {
	nodes := p.r.shape.Nodes
	next := make([][]int, len(nodes))
	for i := range nodes {
		for _, k := range nodes[i].After {
			next[k] = append(next[k], i)
		}
	}
	queue := p.roots
	for _, i := range queue {
		p.again[i] = true
	}
	follows := make([]bool, len(nodes))
	for ; len(queue) > 0; queue = queue[1:] {
		for _, i := range next[queue[0]] {
			follows[i] = true
			if !p.again[i] && (nodes[i].Name == "" || !p.completed(i)) {
				p.again[i] = true
				queue = append(queue, i)
			}
		}
	}
	var list []Revival
	var all []string
	for i := range nodes {
		if nodes[i].Name != "" || i == p.r.outcome || nodes[i].Type == AddType {
			all = append(all, p.r.ids[i])
		}
		if !p.again[i] {
			continue
		}
		v := Revival{JobID: p.r.ids[i]}
		if follows[i] {
			for _, k := range nodes[i].After {
				v.DependsOn = append(v.DependsOn, p.r.ids[k])
			}
		}
		list = append(list, v)
	}
	return append(list, Revival{JobID: p.r.record.ID, DependsOn: all})
}
