package workflow

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/draft"
)

// The job types of a workflow beside those of its steps.
const (
	Type     = "ojs.workflow"      // of the record
	JoinType = "ojs.workflow.join" // of the joins
	AddType  = "ojs.workflow.add"  // of the records of what Add has added
)

// The meta entries of the jobs of a workflow.
const (
	MetaWorkflow = "workflow_id"       // the id of the workflow
	MetaStep     = "step_id"           // the name of the step; joins have none
	metaName     = "workflow_name"     // its name, if it has one
	metaShape    = "workflow_type"     // the shape of its outermost part
	metaAddition = "workflow_part"     // the id of the record of Add, of jobs that Add has added
	metaCallback = "workflow_callback" // of a callback: which one it is
	metaMember   = "workflow_member"   // of a step of a group or batch
	metaIndex    = "step_index"        // of a step: its place among all, from 0
	metaSteps    = "workflow_steps"    // of a step that waits for none: how many steps there are
	metaAfter    = "steps_remaining"   // of a step of a line: how many follow
	metaSaga     = "workflow_saga"     // of the join before the compensations of an outermost Saga
)

// DefaultResultTTL is for how long a workflow is kept after its end, with all of its
// steps, unless an option of New says otherwise. A draft with a longer ojs.WithResultTTL
// is kept for that time after its own end. Pruning may come an hour later.
const DefaultResultTTL = 24 * time.Hour

// Start starts a workflow under an id, a UUIDv7: it stores all of its jobs in one call,
// all or none. Steps that wait for none are available when it returns. With an empty id
// it makes one. The ticket is that of the record: its ID is the workflow's, and its Wait
// returns when all steps have ended, with an *EndedError unless the workflow has
// completed. operate.Workflows.Wait returns the steps too.
//
// A second Start with an id is refused with an *ojs.DuplicateError while jobs of the
// first are stored. The error of a workflow that is none is an *InvalidError. Otherwise
// it is that of the enqueue, for the first job that it refuses: for example an
// *ojs.DuplicateError for a unique step, also one with ojs.ConflictIgnore.
func Start(ctx context.Context, q ojs.Enqueuer, w *Workflow, id string) (ojs.Ticket, error) {
	if id == "" {
		u, err := uuid.NewV7()
		if err != nil {
			return ojs.Ticket{}, fmt.Errorf("ojs: id of a workflow: %w", err)
		}
		id = u.String()
	}
	drafts, err := w.Drafts(id)
	if err != nil {
		return ojs.Ticket{}, err
	}
	tickets, err := q.EnqueueMany(ctx, drafts...)
	if err != nil {
		return ojs.Ticket{}, fmt.Errorf("ojs: workflow %s: %w", id, err)
	}
	return tickets[len(tickets)-1], nil
}

// Drafts returns the jobs of the workflow under an id, a UUIDv7, the record last. It is
// for storing a workflow along with other jobs, or with the end of a job:
//
//	err := handler.Then(ctx, drafts...)
func (w *Workflow) Drafts(id string) ([]ojs.Draft, error) {
	base, err := uuid.Parse(id)
	if err != nil || base.Version() != 7 {
		return nil, draft.Invalid("id", "%.50q is no UUIDv7", id)
	}
	b, err := w.builder()
	if err != nil {
		return nil, err
	}
	return w.drafts(b, base, Type, common(base.String(), w.name, kind(w.root))...), nil
}

// drafts returns the jobs of a workflow, or of a part that is added to one, under an id.
// meta is what all of them have in common.
func (w *Workflow) drafts(b *builder, base uuid.UUID, recordType string, meta ...ojs.Option) []ojs.Draft {
	nodes := b.nodes
	drafts := make([]ojs.Draft, 0, len(nodes)+1)
	common := append([]ojs.Option{ojs.WithResultTTL(DefaultResultTTL)}, w.opts...)
	shape := w.shape(b)
	line := shape.line()
	index := 0 // of the next step
	var all []string
	for i := range nodes {
		n := &nodes[i]
		opts := append([]ojs.Option{ojs.WithID(jobID(base, i))}, meta...)
		if len(n.after) > 0 {
			ids := make([]string, len(n.after))
			for k, j := range n.after {
				ids[k] = jobID(base, j)
			}
			opts = append(opts, ojs.WithDependsOn(ids...), ojs.WithCondition(n.when))
		}
		switch {
		case !n.join():
			opts = append(opts, ojs.WithMeta(MetaStep, n.name), ojs.WithMeta(metaIndex, index))
			index++
			if line {
				opts = append(opts, ojs.WithMeta(metaAfter, b.steps-index))
			}
			if len(n.after) == 0 && recordType == Type {
				opts = append(opts, ojs.WithMeta(metaSteps, b.steps))
			}
			if n.member {
				opts = append(opts, ojs.WithMeta(metaMember, true))
			}
			if n.callback != "" {
				opts = append(opts, ojs.WithMeta(metaCallback, n.callback))
			}
			job := n.job.Under(common...)
			if n.priority != nil {
				job = job.Under(ojs.WithPriority(*n.priority))
			}
			drafts = append(drafts, job.With(append(opts, refuseDuplicate)...))
		default:
			if shape.Root && recordType == Type && i == shape.Sagas[0].Failed {
				opts = append(opts, ojs.WithMeta(metaSaga, string(StateCompensating)))
			}
			switch {
			case len(n.after) > 0:
			case w.adder != "":
				opts = append(opts, ojs.WithDependsOn(w.adder), ojs.WithCondition(ojs.AllEnded))
			default:
				opts = append(opts, ojs.WithOrderingKey(jobID(base, i)))
			}
			drafts = append(drafts, ojs.NewDraft(JoinType, nil, common...).With(asJoin).With(opts...))
		}
		if !n.join() || i == len(nodes)-1 {
			all = append(all, jobID(base, i))
		}
	}
	record := ojs.NewDraft(recordType, shape, common...).With(asJoin).With(meta...).With(
		ojs.WithID(base.String()), ojs.WithDependsOn(all...), ojs.WithCondition(ojs.AllEnded))
	return append(drafts, record)
}

// asJoin makes a job a join or a record. It drops the times, limits and uniqueness that
// options of the workflow and defaults of the engine set for steps.
func asJoin(o *ojs.Options) {
	o.Join = true
	o.ScheduledAt, o.Delay, o.Pending = time.Time{}, 0, false
	o.ExpiresAt, o.TTL, o.EnqueueTTL, o.TotalTimeout = time.Time{}, 0, 0, 0
	o.Unique, o.OrderingKey, o.TypeVersion = nil, "", ""
	o.RateLimit, o.RateLimitBy, o.Fairness, o.FairnessBy = nil, "", ojs.Fairness{}, ""
}

// refuseDuplicate makes a step that would be left out as a duplicate (ojs.ConflictIgnore)
// one that is refused: other jobs wait for the step.
func refuseDuplicate(o *ojs.Options) {
	if o.Unique != nil && o.Unique.OnConflict == ojs.ConflictIgnore {
		refusing := *o.Unique
		refusing.OnConflict = ojs.ConflictReject
		o.Unique = &refusing
	}
}

// jobID is the id of a node's job. It differs from the workflow's in the last 32 bits.
func jobID(workflow uuid.UUID, i int) string {
	tail := workflow[12:]
	binary.BigEndian.PutUint32(tail, binary.BigEndian.Uint32(tail)^uint32(i+1))
	return workflow.String()
}

// shape is the args of a record: what the workflow is made of.
type shape struct {
	Name  string       `json:"name,omitempty"`
	Nodes []shapedNode `json:"nodes"` // in the order of their ids; the last is the outcome
	Sagas []sagaNodes  `json:"sagas,omitempty"`
	Root  bool         `json:"saga,omitempty"` // the first of Sagas is the root
}

type shapedNode struct {
	Name     string        `json:"n,omitempty"` // of a step; joins have none
	Type     string        `json:"t,omitempty"` // of a step's job
	Callback string        `json:"c,omitempty"` // on_complete, on_success or on_failure
	Undoes   int           `json:"u,omitempty"` // of a compensation: the step that it undoes, from 1
	Adds     bool          `json:"x,omitempty"` // an Adder
	After    []int         `json:"a,omitempty"`
	When     ojs.Condition `json:"w,omitempty"` // "": AllSucceeded

	addedBy int // of a node that is read from the record of Add: the Adder, from 1
}

func (w *Workflow) shape(b *builder) shape {
	s := shape{Name: w.name, Nodes: make([]shapedNode, len(b.nodes)), Sagas: b.sagas}
	if root, ok := w.root.(*saga); ok {
		s.Root = root.policy != Skip
	}
	for i, n := range b.nodes {
		s.Nodes[i] = shapedNode{Name: n.name, Callback: n.callback, Undoes: n.undoes, Adds: n.adds,
			After: n.after}
		if !n.join() {
			s.Nodes[i].Type = n.job.Type()
		}
		if n.when != ojs.AllSucceeded {
			s.Nodes[i].When = n.when
		}
	}
	return s
}
