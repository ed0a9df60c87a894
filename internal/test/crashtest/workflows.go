package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// The workflow of this test is a batch with all three callbacks, and a step after it.
const (
	last      = "last"
	onFailure = "on_failure"
	onSuccess = "on_success"
)

// startWorkflow starts a workflow.
func startWorkflow(ctx context.Context, eng *engine.Engine[task]) ([]ojs.Ticket, error) {
	job := func() ojs.Draft {
		if rand.IntN(6) == 0 { // has one chance
			return ojs.NewDraft(flaky, task{}, ojs.WithMaxAttempts(1))
		}
		return ojs.NewDraft([]string{quick, slow, flaky, exact}[rand.IntN(4)], task{})
	}
	var members []workflow.Part
	for i := range 1 + rand.IntN(6) {
		members = append(members, workflow.Step(fmt.Sprint(i), job()))
	}
	ticket, err := eng.Workflows().Start(ctx, workflow.New("", workflow.Chain(
		workflow.Batch(workflow.Group(members...), workflow.OnComplete(job()), workflow.OnSuccess(job()),
			workflow.OnFailure(job())),
		workflow.Step(last, job()))))
	return []ojs.Ticket{ticket}, err
}

// checkWorkflows: of each workflow every job is stored once, each callback that was due
// has run and no other, after all members, and the counts of the record are right.
func checkWorkflows(t *testing.T, h *history, jobs []storage.Record) {
	byID := make(map[string]*storage.Record)
	members := make(map[string]int) // jobs by workflow
	for i := range jobs {
		r := &jobs[i]
		byID[r.ID] = r
		if id, ok := r.Meta[workflow.MetaWorkflow].(string); ok {
			members[id]++
		}
	}
	lookup := func(_ context.Context, id string) (*ojs.JobInfo, error) {
		if r := byID[id]; r != nil {
			return &r.JobInfo, nil
		}
		return nil, ojs.ErrNotFound
	}
	states := make(map[workflow.State]int)
	for i := range jobs {
		if jobs[i].Type != workflow.Type {
			continue
		}
		id := jobs[i].ID
		ids, err := workflow.JobIDs(t.Context(), lookup, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range ids {
			if byID[job] == nil {
				t.Errorf("job %s of workflow %s is not stored", job, id)
			}
		}
		if len(ids) != members[id] {
			t.Errorf("workflow %s has %d jobs, of which %d are stored", id, len(ids), members[id])
		}
		s, err := workflow.Read(t.Context(), lookup, id)
		if err != nil {
			t.Fatal(err)
		}
		states[s.State]++
		checkWorkflow(t, h, &jobs[i], s)
	}
	t.Logf("workflows: %v", states)
}

func checkWorkflow(t *testing.T, h *history, record *storage.Record, s *workflow.Status) {
	var ended time.Time // the members
	failed, unfinished := false, 0
	good := make(map[string]bool)
	for i := range s.Steps {
		p := &s.Steps[i]
		good[p.Name] = p.State() == ojs.StateCompleted
		if !p.State().Terminal() {
			t.Errorf("step %s of workflow %s is %s", p.Name, s.ID, p.State())
		}
		if !good[p.Name] {
			unfinished++
		}
		if p.Callback == "" && p.Name != last {
			failed = failed || !good[p.Name]
			if p.Job.FinishedAt.After(ended) {
				ended = p.Job.FinishedAt
			}
		}
	}
	dealt := good[onSuccess] && !failed || good[onFailure] && failed
	runs := map[string]bool{"on_complete": true, onSuccess: !failed, onFailure: failed,
		last: dealt && good["on_complete"]}
	for name, due := range runs {
		p := s.Step(name)
		if ran := p.State() != ojs.StateCancelled; ran != due {
			t.Errorf("%s of workflow %s, in which a member has failed: %v, is %s", name, s.ID, failed,
				p.State())
		}
		for _, a := range h.started[run{p.JobID, 1}] {
			if a.at.Before(ended) {
				t.Errorf("%s of workflow %s ran at %v, its members ended until %v", name, s.ID, a.at, ended)
			}
		}
	}
	want := workflow.StateFailed
	if good[last] {
		want = workflow.StateCompleted
	} else {
		unfinished++ // the outcome
	}
	if d := record.Dependencies; s.State != want || d == nil || d.Unfinished != 0 || d.Failed != unfinished {
		t.Errorf("workflow %s is %s, not %s, with the counts %+v; %d have failed", s.ID, s.State, want, d,
			unfinished)
	}
}

// ofWorkflow reports whether a job is one of a workflow.
func ofWorkflow(r *storage.Record) bool { return r.Meta[workflow.MetaWorkflow] != nil }

// waitedInVain reports whether a job was cancelled because of another.
func waitedInVain(r *storage.Record) bool {
	return r.State == ojs.StateCancelled && r.Error != nil && r.Error.Type == policy.ErrorTypeDependency
}
