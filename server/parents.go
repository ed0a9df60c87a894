package server

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// The results that a member of a workflow gets (W040-W045) are those of the steps before
// it. Its job has them as parent_results and parent_results_by_id. They are read when the
// job is fetched or looked up. No storage keeps them.

// outlines keeps what is known of workflows: it does not change.
type outlines struct {
	mu   sync.Mutex // guards byID
	byID map[string]*outlineOf
}

type outlineOf struct {
	out *outline
	ids []string // of the jobs: that of the record, and then of the nodes
}

const manyOutlines = 64

// outlineOf returns the outline of a workflow, nil if no request has made it.
func (s *Server) outlineOf(ctx context.Context, id string) (*outlineOf, error) {
	o := &s.outlines
	o.mu.Lock()
	known := o.byID[id]
	o.mu.Unlock()
	if known != nil {
		return known, nil
	}
	rec, err := s.record(ctx, id)
	if err != nil {
		return nil, err
	}
	known = &outlineOf{}
	if v, ok := rec.Extra[keyOutline]; ok {
		if err := json.Unmarshal(v, &known.out); err != nil {
			return nil, err
		}
		if known.ids, err = workflow.JobIDs(ctx, s.stepJob, id); err != nil {
			return nil, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil || len(o.byID) >= manyOutlines {
		o.byID = make(map[string]*outlineOf)
	}
	o.byID[id] = known
	return known, nil
}

// parentResults are the members of a job that tell of the steps before it; nil: it is no
// step of a workflow that a request has made.
func (s *Server) parentResults(ctx context.Context, j *ojs.JobInfo) ([]any, error) {
	note, ok := noteOf(j)
	id, _ := j.Meta[workflow.MetaWorkflow].(string)
	if !ok || id == "" {
		return nil, nil
	}
	o, err := s.outlineOf(ctx, id)
	if stored.Missing(err) || err == nil && o.out == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := parents{s: s, ctx: ctx, of: o}
	var list []parent
	if at := note.Path; note.Undoes { // the result of its step (W082)
		outer, i := at[:len(at)-1], at[len(at)-1]
		list = append(list, p.parent(p.part(outer), i, outer))
	} else {
		list = p.before(at, note.Callback)
	}
	if p.err != nil {
		return nil, p.err
	}
	return p.members(list), nil
}

// parent is a result that a member gets.
type parent struct {
	key    string // in parent_results_by_id
	value  raw
	beyond bool // it is of an earlier ancestor, which the array does not have
}

// parents reads results.
type parents struct {
	s   *Server
	ctx context.Context
	of  *outlineOf
	err error
}

// members writes results, of which the oldest are left out if all are too large together.
// The one before the member never is (W044).
func (p *parents) members(list []parent) []any {
	size := 0
	results, byID := make([]any, 0, len(list)), obj{}
	for i := len(list) - 1; i >= 0; i-- {
		if size += len(list[i].value); size > jsonvalue.MaxResult && i < len(list)-1 {
			list[i].value = nil
		}
	}
	for _, one := range list {
		if !one.beyond {
			if one.value == nil {
				results = append(results, nil)
			} else {
				results = append(results, one.value)
			}
		}
		if one.value != nil {
			byID = append(byID, one.key, one.value)
		}
	}
	return []any{"parent_results", results, "parent_results_by_id", byID}
}

// part is the part of a path.
func (p *parents) part(path []int) *outline {
	out := p.of.out
	for _, i := range path {
		if i >= len(out.Members) || out.Members[i].sub == nil {
			return out
		}
		out = out.Members[i].sub
	}
	return out
}

// before are the results that the member at a path gets, or the callback of the batch at
// it.
func (p *parents) before(path []int, callback string) (list []parent) {
	if callback != "" { // all members (W043)
		out := p.part(path)
		for i := range out.Members {
			list = append(list, p.parent(out, i, path))
		}
		return list
	}
	if len(path) == 0 {
		return nil
	}
	outer, i := path[:len(path)-1], path[len(path)-1]
	out := p.part(outer)
	switch {
	case (out.Form == formChain || out.Form == formSaga) && i > 0:
		for k := range i {
			list = append(list, p.parent(out, k, outer))
		}
		return list
	case out.Form == formGraph && i < len(out.After) && len(out.After[i]) > 0:
		return p.ancestors(out, i, outer)
	}
	return p.before(outer, "") // as the part itself would get (W042)
}

// ancestors are the results that a step of a graph gets: earlier ones first.
func (p *parents) ancestors(out *outline, i int, outer []int) []parent {
	direct := out.After[i]
	seen := slices.Clone(direct)
	var earlier []parent
	for k := 0; k < len(seen); k++ {
		for _, a := range out.After[seen[k]] {
			if !slices.Contains(seen, a) {
				seen = append(seen, a)
				one := p.parent(out, a, outer)
				one.beyond = true
				earlier = append(earlier, one)
			}
		}
	}
	slices.Reverse(earlier)
	for _, a := range direct {
		earlier = append(earlier, p.parent(out, a, outer))
	}
	return earlier
}

// parent is the result of a member.
func (p *parents) parent(out *outline, i int, outer []int) parent {
	one := parent{key: strconv.Itoa(i)}
	var id string
	one.value, id = p.result(out, i, outer)
	if out.Form == formGraph && id != "" {
		one.key = id
	}
	return one
}

// result is what a member contributes, and the id of its step (W041).
func (p *parents) result(out *outline, i int, outer []int) (value raw, id string) {
	m := out.Members[i]
	if sub := m.sub; sub != nil {
		path := append(slices.Clone(outer), i)
		if sub.Form == formChain || sub.Form == formSaga {
			value, _ = p.result(sub, len(sub.Members)-1, path)
			return value, ""
		}
		o := obj{}
		for k := range sub.Members {
			v, _ := p.result(sub, k, path)
			o = append(o, strconv.Itoa(k), v)
		}
		return appendValue(nil, o), ""
	}
	if m.node+1 >= len(p.of.ids) {
		return null, ""
	}
	rec, err := p.s.record(p.ctx, p.of.ids[m.node+1])
	if err != nil {
		if !stored.Missing(err) {
			p.err = err
		}
		return null, ""
	}
	note, _ := noteOf(&rec.JobInfo)
	return contributed(&rec), note.ID
}

// contributed is the result of a step, or its error if it has failed (W043).
func contributed(rec *storage.Record) raw {
	switch {
	case rec.State == ojs.StateCompleted && rec.Result != nil:
		return raw(rec.Result)
	case rec.State.Terminal() && rec.State != ojs.StateCompleted:
		e := obj{"job_id", rec.ID}
		if rec.Error != nil {
			e = append(e, failureWords(rec.Error)...)
		}
		return appendValue(nil, obj{"error", e})
	}
	return null
}
