package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// shown is a workflow as answers have it.
type shown struct {
	*workflow.Status
	record storage.Record
	out    *outline
	form   string // the type in answers; "": none

	byPath map[string]*workflow.StepStatus // members and, with their kind, callbacks
	notes  map[string]stepNote             // by the names of steps
}

// place is the key of a member in shown.byPath.
func place(path []int, callback string) string { return fmt.Sprint(path, callback) }

// stepJob reads a job of a workflow, as package workflow wants it. The shape of a
// workflow is decoded. Args and results of steps are as they are stored.
func (s *Server) stepJob(ctx context.Context, id string) (*ojs.JobInfo, error) {
	rec, err := s.record(ctx, id)
	if err != nil {
		return nil, err
	}
	if rec.Type == workflow.Type || rec.Type == workflow.AddType {
		return s.op.Jobs().Step(ctx, id)
	}
	return &rec.JobInfo, nil
}

// workflowOf reads the workflow that the path names.
func (s *Server) workflowOf(c *call) (*shown, error) {
	id := c.value("id")
	c.about("workflow", id)
	u, err := uuid.Parse(id)
	if err != nil || len(id) != 36 {
		return nil, notFound("workflow", id)
	}
	return s.workflow(c, u.String())
}

func (s *Server) workflow(c *call, id string) (*shown, error) {
	rec, err := s.record(c.ctx, id)
	if err != nil {
		return nil, err
	}
	if rec.Type != workflow.Type {
		return nil, notFound("workflow", id)
	}
	status, err := workflow.Read(c.ctx, s.stepJob, id)
	if err != nil {
		return nil, err
	}
	w := &shown{Status: status, record: rec, byPath: make(map[string]*workflow.StepStatus),
		notes: make(map[string]stepNote)}
	if v, ok := rec.Extra[keyOutline]; ok {
		if err := json.Unmarshal(v, &w.out); err != nil {
			return nil, fmt.Errorf("%w: workflow %s: %w", workflow.ErrDamaged, id, err)
		}
	}
	for i := range w.Steps {
		step := &w.Steps[i]
		if step.Job != nil {
			if err := c.may(step.Job.Queue); err != nil {
				return nil, err
			}
		}
		note, ok := noteOf(step.Job)
		if ok {
			w.notes[step.Name] = note
			if step.Undoes == "" {
				w.byPath[place(note.Path, note.Callback)] = step
			}
		}
	}
	if w.out == nil {
		w.plain()
	}
	w.form = w.out.Form
	if w.form == formGraph {
		w.form = w.out.word()
	}
	return w, nil
}

// noteOf is what the server has noted of a step.
func noteOf(j *ojs.JobInfo) (n stepNote, ok bool) {
	if j == nil {
		return n, false
	}
	v, ok := j.Extra[keyStep]
	return n, ok && json.Unmarshal(v, &n) == nil
}

// plain makes the outline of a workflow that a program has started: a graph of its steps.
func (w *shown) plain() {
	w.out = &outline{Form: formGraph, Callbacks: make(map[string]int)}
	at := make(map[string]int)
	for i := range w.Steps {
		step := &w.Steps[i]
		if step.Undoes != "" {
			continue
		}
		if step.Callback != "" && w.byPath[place(nil, step.Callback)] == nil {
			w.out.Callbacks[step.Callback] = i
			w.byPath[place(nil, step.Callback)] = step
			continue
		}
		n := len(w.out.Members)
		at[step.Name] = n
		var after []int
		for _, name := range step.After {
			if k, ok := at[name]; ok {
				after = append(after, k)
			}
		}
		w.out.Members, w.out.After = append(w.out.Members, outlined{node: i}), append(w.out.After, after)
		w.notes[step.Name] = stepNote{ID: step.Name}
		w.byPath[place([]int{n}, "")] = step
	}
}

// word is the type of a graph in answers (W066).
func (o *outline) word() string {
	if len(o.Callbacks) > 0 {
		return formBatch
	}
	line, edges := true, 0
	for i, after := range o.After {
		edges += len(after)
		line = line && (i == 0 && len(after) == 0 || i > 0 && len(after) == 1 && after[0] == i-1)
	}
	switch {
	case line && len(o.After) > 1:
		return formChain
	case edges == 0:
		return formGroup
	}
	return ""
}

// tally counts the jobs of a workflow or a part of one, without callbacks.
type tally struct{ jobs, completed, failed, cancelled int }

func (t *tally) add(o tally) {
	t.jobs, t.completed = t.jobs+o.jobs, t.completed+o.completed
	t.failed, t.cancelled = t.failed+o.failed, t.cancelled+o.cancelled
}

// The states of a member beside those that jobs have the same words for (W074).
const (
	memberWaiting   = "waiting"
	memberPending   = "pending"
	memberAvailable = "available"
	memberActive    = "active"
	memberCompleted = "completed"
	memberFailed    = "failed"
	memberCancelled = "cancelled"
)

// waits reports whether a step waits for others: to a client there is no job yet.
func waits(j *ojs.JobInfo) bool {
	return j != nil && j.State == ojs.StatePending && j.Dependencies != nil && j.Dependencies.Unfinished > 0
}

// stateOf is the state of a step in the words of a form.
func (w *shown) stateOf(step *workflow.StepStatus, form string) string {
	j := step.Job
	graph := form == formGraph
	switch {
	case j == nil:
		return memberCompleted // it was deleted: retention keeps a workflow whole
	case waits(j) && graph:
		return memberPending
	case waits(j):
		return memberWaiting
	}
	switch j.State {
	case ojs.StateActive, ojs.StateRetryable:
		return memberActive
	case ojs.StateCompleted:
		return memberCompleted
	case ojs.StateDiscarded:
		return memberFailed
	case ojs.StateCancelled:
		if w.State == workflow.StateCancelled || j.Error != nil &&
			j.Error.Type == policy.ErrorTypeDependency {
			return memberCancelled
		}
		return memberFailed
	}
	if graph {
		return memberAvailable
	}
	return memberPending
}

// members are those of a part, with what they count.
func (w *shown) members(out *outline, path []int) (list []obj, sum tally, states []string) {
	for i := range out.Members {
		at := append(slices.Clone(path), i)
		if sub := out.Members[i].sub; sub != nil {
			m, t, state := w.nested(out, at, i)
			list, states = append(list, m), append(states, state)
			sum.add(t)
			continue
		}
		step := w.byPath[place(at, "")]
		if step == nil {
			continue
		}
		state := w.stateOf(step, out.Form)
		t := tally{jobs: 1}
		switch state {
		case memberCompleted:
			t.completed = 1
		case memberFailed:
			t.failed = 1
		case memberCancelled:
			t.cancelled = 1
		}
		sum.add(t)
		states = append(states, state)
		list = append(list, w.member(out, path, step, i, state))
	}
	return list, sum, states
}

// member is a step that is a job (W073).
func (w *shown) member(out *outline, path []int, step *workflow.StepStatus, i int, state string) obj {
	note := w.notes[step.Name]
	id := note.ID
	if id == "" {
		id = fmt.Sprintf("%s-%d", memberWord(out.Form), i)
	}
	o := obj{"id", id, "index", i}.opt("name", note.Name)
	o = append(o, "type", step.Type, "state", state)
	j := step.Job
	if j == nil || waits(j) {
		o = append(o, "job_state", nil, "job_id", nil, "job_ids", []string{})
	} else {
		o = append(o, "job_state", string(j.State), "job_id", step.JobID, "job_ids", []string{step.JobID})
	}
	after := []string{}
	if out.Form == formGraph && i < len(out.After) {
		for _, k := range out.After[i] {
			after = append(after, w.idAt(path, k))
		}
	}
	o = append(o, "depends_on", after)
	if j == nil {
		return o
	}
	o = o.opt("started_at", j.StartedAt)
	if j.State.Terminal() {
		o = o.opt("completed_at", j.FinishedAt)
	}
	if j.State == ojs.StateCompleted && j.Result != nil {
		o = append(o, "result", raw(j.Result))
	}
	if j.Error != nil {
		o = append(o, "error", raw(appendFailure(nil, j.Error, false)))
	}
	return o
}

// idAt is the id of a member of a graph, whose members are steps.
func (w *shown) idAt(path []int, i int) string {
	if step := w.byPath[place(append(slices.Clone(path), i), "")]; step != nil {
		return w.notes[step.Name].ID
	}
	return fmt.Sprintf("step-%d", i)
}

func memberWord(form string) string {
	if form == formGroup || form == formBatch {
		return "job"
	}
	return "step"
}

// nested is a member that is a workflow, of a part at a place.
func (w *shown) nested(of *outline, path []int, i int) (obj, tally, string) {
	out := of.Members[i].sub
	list, sum, states := w.members(out, path)
	state := w.together(out, path, states)
	ids := []string{}
	w.each(out, path, func(step *workflow.StepStatus) {
		if step.Job != nil && !waits(step.Job) {
			ids = append(ids, step.JobID)
		}
	})
	inner := obj{"type", out.Form, "state", state, "steps", list}
	if memberWord(out.Form) == "job" {
		inner = append(inner, "jobs", list)
	}
	inner = append(inner, "steps_total", len(list), "steps_completed", count(states, memberCompleted),
		"jobs_total", len(list), "jobs_completed", count(states, memberCompleted))
	if len(out.Callbacks) > 0 {
		inner = append(inner, "callbacks", w.callbacks(out, path))
	}
	id := cmp.Or(out.ID, fmt.Sprintf("%s-%d", memberWord(of.Form), i))
	o := obj{"id", id, "index", i}.opt("name", out.Name)
	o = append(o, "type", out.Form, "state", state, "job_state", nil, "job_id", nil, "job_ids", ids,
		"depends_on", []string{}, "workflow", inner)
	return o, sum, state
}

func count(states []string, state string) (n int) {
	for _, s := range states {
		if s == state {
			n++
		}
	}
	return n
}

// together is the state of a part by those of its members and callbacks (W034, W035).
func (w *shown) together(out *outline, path []int, states []string) string {
	done := func(s string) bool { return s == memberCompleted || s == memberFailed || s == memberCancelled }
	all, any := true, false
	for _, s := range states {
		all = all && done(s)
		any = any || s == memberActive || done(s)
	}
	bad := count(states, memberFailed) > 0
	switch {
	case !all && any:
		return memberActive
	case !all:
		return states[0]
	}
	handled := false
	for kind := range out.Callbacks {
		step := w.byPath[place(path, kind)]
		if step == nil || step.Job == nil {
			continue
		}
		switch s := w.stateOf(step, out.Form); {
		case !done(s):
			return memberActive
		case s == memberFailed:
			return memberFailed
		case s == memberCompleted && kind != "on_success":
			handled = true
		}
	}
	switch {
	case bad && !handled:
		return memberFailed
	case !bad && count(states, memberCancelled) > 0:
		return memberCancelled
	}
	return memberCompleted
}

// each calls f with the steps of a part, without callbacks.
func (w *shown) each(out *outline, path []int, f func(*workflow.StepStatus)) {
	for i := range out.Members {
		at := append(slices.Clone(path), i)
		if sub := out.Members[i].sub; sub != nil {
			w.each(sub, at, f)
		} else if step := w.byPath[place(at, "")]; step != nil {
			f(step)
		}
	}
}

// callbacks are those of a part, by their kinds.
func (w *shown) callbacks(out *outline, path []int) obj {
	o := obj{}
	for _, kind := range []string{"on_complete", "on_success", "on_failure"} {
		if _, has := out.Callbacks[kind]; !has {
			continue
		}
		step := w.byPath[place(path, kind)]
		if step == nil {
			continue
		}
		m := w.member(out, path, step, 0, w.stateOf(step, out.Form))
		kept := obj{}
		for i := 0; i+1 < len(m); i += 2 {
			if m[i] != "index" && m[i] != "depends_on" && (m[i] != "id" || w.notes[step.Name].ID != "") {
				kept = append(kept, m[i], m[i+1])
			}
		}
		o = append(o, kind, kept)
	}
	return o
}

// summary has the members of W that need no list of steps.
func (s *Server) summary(w *shown, sum tally, states []string) obj {
	j := &w.record.JobInfo
	n, done := len(states), count(states, memberCompleted)
	o := obj{"id", w.ID, "name", w.Name}.opt("type", w.form)
	o = append(o, "state", string(w.State), "steps_total", n, "steps_completed", done, "jobs_total", n,
		"jobs_completed", done, "created_at", j.CreatedAt)
	o = o.opt("started_at", w.StartedAt)
	completed, cancelled := w.FinishedAt, time.Time{}
	if w.State == workflow.StateCancelled {
		completed, cancelled = cancelled, completed
	}
	o = o.opt("completed_at", completed).opt("cancelled_at", cancelled)
	meta := obj{"created_at", j.CreatedAt}.opt("started_at", w.StartedAt).opt("completed_at", completed).
		opt("cancelled_at", cancelled)
	return append(o, "metadata", append(meta, "job_count", sum.jobs, "completed_count", sum.completed,
		"failed_count", sum.failed))
}

// view is W (W071-W074).
func (s *Server) view(w *shown) obj {
	list, sum, states := w.members(w.out, nil)
	o := append(s.summary(w, sum, states), "steps", list)
	if memberWord(cmp.Or(w.form, w.out.Form)) == "job" {
		o = append(o, "jobs", list)
	}
	o = append(o, "callbacks", w.callbacks(w.out, nil))
	if w.State == workflow.StateFailed {
		o = append(o, w.failures(states)...)
	}
	return o
}

// failures say why a workflow has failed (W039).
func (w *shown) failures(states []string) (o obj) {
	if i := slices.Index(states, memberFailed); i >= 0 && (w.form == formChain || w.form == formSaga) {
		o = append(o, "failed_step_index", i)
	}
	ids, errs := []string{}, []obj{}
	for i := range w.Steps {
		step := &w.Steps[i]
		if step.Job == nil || w.stateOf(step, w.out.Form) != memberFailed {
			continue
		}
		ids = append(ids, step.JobID)
		e := obj{"job_id", step.JobID}
		if f := step.Job.Error; f != nil {
			e = append(e, failureWords(f)...)
		}
		errs = append(errs, e)
	}
	return append(o, "failed_job_ids", ids, "errors", errs)
}

// failureWords are the code, the message and the attempt of a failure.
func failureWords(f *ojs.Failure) obj {
	code, _ := f.Details[detailCode].(string)
	if code = cmp.Or(code, f.Type); code == "" || code == policy.ErrorTypeError {
		code = codeHandler
	}
	return obj{"code", code, "message", f.Message, "attempt", f.Attempt}
}

// getWorkflow answers GET /workflows/{id} (W070, W076).
func (s *Server) getWorkflow(c *call) error {
	w, err := s.workflowOf(c)
	if err != nil {
		return err
	}
	v := s.view(w)
	return c.reply(http.StatusOK, append(obj{"workflow", v}, v...))
}

// cancelWorkflow answers DELETE /workflows/{id} and POST /workflows/{id}/cancel (W075).
func (s *Server) cancelWorkflow(c *call) error {
	before, err := s.workflowOf(c)
	if err != nil {
		return err
	}
	if before.State.Final() || before.State == workflow.StateCompensating {
		return conflict(before.ID, ojs.State(before.State), "", "workflow %s is %s", before.ID, before.State)
	}
	if err := s.op.Workflows().Cancel(c.ctx, before.ID); err != nil {
		return err
	}
	w, err := s.workflow(c, before.ID)
	if err != nil {
		return err
	}
	c.audit("workflow.cancelled", w.ID)
	v := s.view(w)
	_, sum, _ := w.members(w.out, nil)
	v = append(v, "steps_cancelled", sum.cancelled, "cancelled_steps", sum.cancelled,
		"steps_already_completed", sum.completed)
	return c.reply(http.StatusOK, append(obj{"workflow", v}, v...))
}

// listWorkflows answers GET /workflows (W076).
func (s *Server) listWorkflows(c *call) error {
	p, err := c.paging()
	if err != nil {
		return err
	}
	f := inspect.Filter{Types: []string{workflow.Type}, Order: inspect.OrderNewest}
	wanted := c.names("state")
	for _, name := range wanted {
		switch workflow.State(name) {
		case workflow.StatePending, workflow.StateRunning, workflow.StateCompensating:
			f.States = append(f.States, ojs.StatePending)
		case workflow.StateCompleted, workflow.StateFailed, workflow.StateCompensated:
			f.States = append(f.States, ojs.StateCompleted)
		case workflow.StateCancelled:
			f.States = append(f.States, ojs.StateCancelled)
		default:
			return invalid("state", "is no state of a workflow").
				expected("pending, running, completed, failed, cancelled, compensating or compensated").
				received(clip(name))
		}
	}
	slices.Sort(f.States)
	f.States = slices.Compact(f.States)
	ids, total, next, err := s.workflowPage(c, &p, f, wanted)
	if err != nil {
		return err
	}
	list := []obj{}
	for _, id := range ids {
		w, err := s.workflow(c, id)
		if s.unlisted(id, err) {
			continue
		}
		if err != nil {
			return err
		}
		if len(wanted) > 0 && !slices.Contains(wanted, string(w.State)) {
			continue
		}
		_, sum, states := w.members(w.out, nil)
		list = append(list, append(s.summary(w, sum, states), "step_count", len(states)))
	}
	p.paged = true // items, too
	return c.reply(http.StatusOK, p.answer("workflows", list, len(ids), total, next))
}

// unlisted reports whether the error of a workflow leaves it out of a list: it was
// deleted meanwhile, or its record is damaged.
func (s *Server) unlisted(id string, err error) bool {
	damaged := errors.Is(err, workflow.ErrDamaged)
	if damaged {
		s.conf.log.Warn("a list leaves out a workflow", "workflow_id", id, "error", err)
	}
	return damaged || stored.Missing(err)
}

// mostRead is how many workflows a list reads to find those in some states. If there are
// more, its pages have gaps, and its total counts workflows in other states, too.
const mostRead = 1000

// workflowPage returns a page of the ids of the workflows of a filter that are in some
// states. The jobs of several states are in one state of the storage. The cursor is the
// storage's, a place in its order: workflows may change their states between two pages.
func (s *Server) workflowPage(
	c *call, p *paging, f inspect.Filter, states []string,
) (ids []string, total int, next string, err error) {
	n, err := s.op.Jobs().Count(c.ctx, f, 0)
	if err != nil {
		return nil, 0, "", err
	}
	if len(states) == 0 || n.N > mostRead {
		recs, total, next, err := s.jobPage(c, p, f)
		for i := range recs {
			ids = append(ids, recs[i].ID)
		}
		return ids, total, next, err
	}
	chosen, last, err := s.workflowsIn(c.ctx, f, states)
	if err != nil {
		return nil, 0, "", err
	}
	q, err := f.Query()
	if err != nil {
		return nil, 0, "", err
	}
	q.Cursor = p.cursor
	skip := 0
	if p.cursor == "" {
		skip = p.offset
	}
	for {
		q.Limit = p.limit - len(ids) + skip
		page, err := s.op.Jobs().RecordPage(c.ctx, &f, q)
		if err != nil {
			return nil, 0, "", badCursor(err)
		}
		for i := range page.Records {
			switch id := page.Records[i].ID; {
			case !chosen[id]:
			case skip > 0:
				skip--
			default:
				ids = append(ids, id)
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" || len(ids) == p.limit {
			break
		}
	}
	if len(ids) > 0 && ids[len(ids)-1] != last {
		next = q.Cursor
	}
	return ids, len(chosen), next, nil
}

// workflowsIn returns the ids of the workflows of a filter that are in some states, and
// the last one.
func (s *Server) workflowsIn(
	ctx context.Context, f inspect.Filter, states []string,
) (chosen map[string]bool, last string, err error) {
	pending := slices.Contains(states, string(workflow.StatePending)) !=
		slices.Contains(states, string(workflow.StateRunning)) // else it does not matter which
	chosen = make(map[string]bool)
	for rec, err := range s.op.Jobs().Records(ctx, f) {
		if err != nil {
			return nil, "", err
		}
		state, err := workflow.ReadState(ctx, s.stepJob, s.op.Jobs().Readable(ctx, &rec.JobInfo), pending)
		switch {
		case s.unlisted(rec.ID, err):
		case err != nil:
			return nil, "", err
		case slices.Contains(states, string(state)):
			chosen[rec.ID], last = true, rec.ID
		}
	}
	return chosen, last, nil
}

// workflowProgress answers GET /workflows/{id}/progress (W077).
func (s *Server) workflowProgress(c *call) error {
	w, err := s.workflowOf(c)
	if err != nil {
		return err
	}
	var sum, done, current float64
	steps := []obj{}
	w.each(w.out, nil, func(step *workflow.StepStatus) {
		p := 0.0
		if j := step.Job; j != nil {
			if p = j.Progress; j.State == ojs.StateCompleted {
				p, done = 1, done+1
			} else if j.State == ojs.StateActive {
				current = max(current, p)
			}
		}
		sum += p
		state := w.stateOf(step, w.out.Form)
		steps = append(steps, obj{"job_id", step.JobID, "type", step.Type, "state", state, "progress", p})
	})
	total := 0.0
	if n := float64(len(steps)); n > 0 {
		switch w.form {
		case formChain, formSaga:
			total = (done + current) / n
		case formBatch:
			total = done / n
		default:
			total = sum / n
		}
	}
	o := obj{"workflow_id", w.ID}.opt("type", w.form)
	return c.reply(http.StatusOK, append(o, "progress", total, "steps", steps))
}
