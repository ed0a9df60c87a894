package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// A group with many branches is one part, also if its branches are chains with groups in
// them. A small group stays as it is.
func TestGroupsFold(t *testing.T) {
	status := &workflow.Status{}
	add := func(name string, state ojs.State, after ...string) string {
		status.Steps = append(status.Steps, workflow.StepStatus{Name: name, Type: "t", After: after,
			Job: &ojs.JobInfo{State: state}})
		return name
	}
	add("start", ojs.StateCompleted)
	var ends []string
	for i := range foldFrom {
		head := add(fmt.Sprint("head-", i), ojs.StateCompleted, "start")
		var inner []string
		for k := range foldFrom {
			state := ojs.StateCompleted
			if i == 2 && k == 3 {
				state = ojs.StateDiscarded
			}
			inner = append(inner, add(fmt.Sprint("inner-", i, "-", k), state, head))
		}
		ends = append(ends, add(fmt.Sprint("tail-", i), ojs.StatePending, inner...))
	}
	add("left", ojs.StatePending, ends...)
	add("right", ojs.StatePending, ends...)
	parts := partsOf(status, true)
	var names []string
	for i := range parts {
		names = append(names, parts[i].Name)
	}
	if want := []string{"start", "head-0", "left", "right"}; !slices.Equal(names, want) {
		t.Fatalf("%v, want %v", names, want)
	}
	p := &page{display: display{Lang: "en"}}
	group := &parts[1]
	n, says := foldFrom*(foldFrom+2), "1 discarded, 6 pending, 41 completed"
	if len(group.Steps) != n || group.State() != "discarded" ||
		p.PartName(group) != fmt.Sprintf("%d × t", n) || p.PartState(group) != says {
		t.Errorf("%s, %s: %s", p.PartName(group), group.State(), p.PartState(group))
	}
	if !slices.Equal(parts[2].After, []int{1}) || !slices.Equal(parts[1].After, []int{0}) {
		t.Errorf("%+v", parts)
	}
	if n := len(partsOf(status, false)); n != len(status.Steps) {
		t.Errorf("%d parts of %d steps", n, len(status.Steps))
	}
}

// The page of a workflow has its states with counts, its groups folded until the reader
// wants each step, and its attempts in time.
func TestPageOfAWorkflow(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	s.eng.Handle("resize", func(context.Context, *ojs.Job[any]) error { return nil })
	var branches []workflow.Part
	for i := range 8 {
		branches = append(branches, workflow.Step(fmt.Sprint("size-", i), ojs.NewDraft("resize", i)))
	}
	flow := workflow.New("album", workflow.Chain(workflow.Group(branches...),
		workflow.Step("publish", ojs.NewDraft("no.handler", nil))))
	ticket, err := s.eng.Workflows().Start(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	s.run()
	path := "/workflows/" + ticket.ID + "/"
	body := s.has(path, "8 × resize", "8 completed", "Show each step of the groups", `class="m-completed"`,
		`<svg class="names"`, `completed</span> <span class="count">8</span>`)
	wellFormed(t, path, strings.ReplaceAll(body, `</svg><svg`, "</svg>\n<svg"))
	if strings.Contains(body, `<text x="18" y="22">size-3`) {
		t.Error("a step of a folded group is in the graph")
	}
	s.has(path+"?open=1", ">size-3</text>", "Fold groups")
}

// getsOf counts what is read of workflows.
type getsOf struct {
	storage.Storage
	n int
}

func (g *getsOf) Get(ctx context.Context, id string) (storage.Record, error) {
	g.n++
	return g.Storage.Get(ctx, id)
}

// Of the workflows of a page the failed ones come first, and their tab says how many
// there are. A workflow that has ended is read once.
func TestFailedWorkflowsFirst(t *testing.T) {
	store := &getsOf{Storage: memory.New()}
	s := siteOn(t, store, WithAuthorizer(AllowAll))
	s.eng.Handle("ok", func(context.Context, *ojs.Job[any]) error { return nil })
	s.eng.Handle("bad", func(context.Context, *ojs.Job[any]) error { return ojs.Permanent(errors.New("no")) })
	for _, name := range []string{"bad", "ok", "none"} {
		flow := workflow.New("flow-"+name, workflow.Step("a", ojs.NewDraft(name, nil)))
		if _, err := s.eng.Workflows().Start(t.Context(), flow); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.eng.Run(ctx) }()
	for flow, err := range s.eng.Workflows().List(t.Context(), ojs.StatePending) {
		if err != nil {
			t.Fatal(err)
		}
		if flow.Name != "flow-none" {
			_, _ = s.eng.Workflows().Wait(t.Context(), flow.ID)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	body := s.has("/workflows/", `failed <span class="count">1<`, "Retry failed steps")
	var places []int
	for _, name := range []string{"flow-bad", "flow-none", "flow-ok"} {
		places = append(places, strings.Index(body, name))
	}
	if places[0] < 0 || !slices.IsSorted(places) {
		t.Errorf("failed, unfinished and completed at %v", places)
	}
	before := store.n
	s.ok("/workflows/?state=failed")
	if n := store.n - before; n > 3 { // of the one that goes on
		t.Errorf("%d reads for workflows that have ended", n)
	}
}

// A step waits until its first attempt after it was enqueued, whichever attempt is known
// last. Attempts of a group that overlap are one bar, however many they are.
func TestBars(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	failed := func(from, to int) ojs.Failure { return ojs.Failure{StartedAt: at(from), At: at(to)} }
	step := func(state ojs.State, errs ...ojs.Failure) *workflow.StepStatus {
		job := &ojs.JobInfo{State: state}
		job.Errors, job.EnqueuedAt, job.StartedAt, job.FinishedAt = errs, at(10), at(60), at(70)
		return &workflow.StepStatus{Name: "s", Job: job}
	}
	for name, tt := range map[string]struct {
		step *workflow.StepStatus
		want [][2]int
	}{
		"retried": {step(ojs.StateCompleted, failed(20, 30), failed(40, 50)),
			[][2]int{{10, 20}, {60, 70}, {20, 30}, {40, 50}}},
		"retryable": {step(ojs.StateRetryable, failed(20, 30)), [][2]int{{10, 20}, {20, 30}}},
		"by hand":   {step(ojs.StateAvailable, failed(1, 2)), [][2]int{{10, 99}, {1, 2}}},
		"cancelled": {step(ojs.StateCancelled), nil},
		"many": {step(ojs.StateRetryable, ojs.Failure{Attempt: 9, StartedAt: at(20), At: at(30)}),
			[][2]int{{20, 30}}},
	} {
		var got [][2]int
		for _, b := range barsOf(&part{Steps: []*workflow.StepStatus{tt.step}}, at(99), 1) {
			got = append(got, [2]int{int(b.from.Sub(start).Seconds()), int(b.to.Sub(start).Seconds())})
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	group := &part{}
	for i := range 10_000 {
		s := step(ojs.StateCompleted, failed(20+i, 21+i))
		s.Job.StartedAt, s.Job.FinishedAt = at(22+i), at(23+i)
		group.Steps = append(group.Steps, s)
	}
	bars := barsOf(group, at(20_000), time.Second*10_000/maxBars)
	if len(bars) != 3 || bars[2].class != "m-failed" || bars[2].n != 10_000 || !bars[2].to.Equal(at(10_020)) {
		t.Errorf("%d bars: %+v", len(bars), bars[0])
	}
}

// A group is in the state of its steps that are stored.
func TestStateOfAGroupWithDeletedSteps(t *testing.T) {
	gone, bad := &workflow.StepStatus{}, &workflow.StepStatus{Job: &ojs.JobInfo{State: ojs.StateDiscarded}}
	for _, steps := range [][]*workflow.StepStatus{{gone, bad}, {bad, gone}} {
		if got := (&part{Steps: steps}).State(); got != "discarded" {
			t.Errorf("the group is %q", got)
		}
	}
}
