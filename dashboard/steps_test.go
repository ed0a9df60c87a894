package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

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
