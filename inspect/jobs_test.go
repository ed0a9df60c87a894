package inspect_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// The jobs of a storage are read without an engine.
func TestWithoutAnEngine(t *testing.T) {
	store, ctx := memory.New(), t.Context()
	defer store.Close()
	args, err := ojs.NewArgs([]int{7})
	if err != nil {
		t.Fatal(err)
	}
	var batch []storage.Insert
	for _, id := range []string{"a", "b", "c"} {
		batch = append(batch, storage.Insert{Record: storage.Record{JobInfo: ojs.JobInfo{
			JobHeader: ojs.JobHeader{ID: id, Type: "mail." + id, Queue: "q", MaxAttempts: 3, CreatedAt: noon,
				ScheduledAt: noon.Add(time.Hour)},
			State: ojs.StateScheduled, Args: args}}})
	}
	if _, err := store.Insert(ctx, noon, batch, nil); err != nil {
		t.Fatal(err)
	}
	virtual := clock.NewMock()
	virtual.Set(noon)
	jobs := inspect.Open(store, virtual)
	var ids []string
	for job, err := range jobs.List(ctx, inspect.Filter{IDs: []string{"c", "none", "a"}}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, job.ID)
	}
	if want := []string{"c", "a"}; !slices.Equal(ids, want) {
		t.Errorf("listed %v, want %v", ids, want)
	}
	page, err := jobs.Page(ctx, inspect.Filter{Types: []string{"mail.*"}}, "", 2)
	if err != nil || len(page.Jobs) != 2 || page.Next == "" {
		t.Errorf("%+v, %v", page, err)
	}
	n, err := jobs.Count(ctx, inspect.Filter{Members: []inspect.Member{{Path: "args.0", Value: "7"}}}, 0)
	if err != nil || n.N != 3 || !n.Exact {
		t.Errorf("%+v, %v", n, err)
	}
	if groups, err := jobs.Failures(ctx, inspect.Filter{}, 0); err != nil || len(groups.Groups) != 0 {
		t.Errorf("%+v, %v", groups, err)
	}
	life, err := jobs.Timeline(ctx, "b")
	if err != nil || len(life.Next) != 1 || !life.Next[0].At.Equal(noon.Add(time.Hour)) {
		t.Errorf("%+v, %v", life, err)
	}
	if _, err := jobs.Timeline(ctx, "none"); !errors.Is(err, ojs.ErrNotFound) {
		t.Errorf("of no job: %v", err)
	}
}

// A page of an exact filter looks at its jobs alone and is full. Any other page says how
// far it looked, and that more follow. A count of what was not all looked at says so.
func TestExact(t *testing.T) {
	store, ctx := memory.New(), t.Context()
	defer store.Close()
	const jobs, few = 9_000, 30
	var batch []storage.Insert
	for i := range jobs {
		var r storage.Record
		r.ID, r.Type, r.Queue, r.CreatedAt = fmt.Sprintf("%06d", i), "many", "q", noon
		if r.State = ojs.StateAvailable; i%(jobs/few) == 7 {
			r.State, r.Type = ojs.StateScheduled, "few"
			r.Meta = map[string]any{"workflow_id": "000007", "x": "y"}
			r.ScheduledAt = noon.Add(time.Duration(i) * time.Second)
		}
		batch = append(batch, storage.Insert{Record: r})
	}
	if _, err := store.Insert(ctx, noon, batch, nil); err != nil {
		t.Fatal(err)
	}
	virtual := clock.NewMock()
	virtual.Set(noon)
	view := inspect.Open(store, virtual)
	scheduled := []ojs.State{ojs.StateScheduled}
	for _, tc := range []struct {
		f     inspect.Filter
		exact bool // the page
		count bool
	}{
		{inspect.Filter{}, true, true},
		{inspect.Filter{Order: inspect.OrderClaim}, false, true}, // it may end after 10,000
		{inspect.Filter{States: scheduled}, true, true},
		{inspect.Filter{States: scheduled, Order: inspect.OrderDue}, true, true},
		{inspect.Filter{States: scheduled, Queues: []string{"q"}, Types: []string{"f*"}}, true, true},
		{inspect.Filter{Workflow: "000007"}, true, true},
		{inspect.Filter{Types: []string{"ojs.workflow"}}, true, true},
		{inspect.Filter{DeadLettered: true, Types: []string{"ojs.workflow"}}, true, true},
		{inspect.Filter{DeadLettered: true, Types: []string{"few"}}, true, true},
		{inspect.Filter{IDs: []string{"000007"}}, true, true},
		{inspect.Filter{Types: []string{"few"}}, false, true},
		{inspect.Filter{States: []ojs.State{ojs.StateAvailable}, Types: []string{"few"}}, false, true},
		{inspect.Filter{States: scheduled, Tags: []string{"vip"}}, false, true}, // all were looked at
		{inspect.Filter{Members: []inspect.Member{{Path: "meta.x", Value: "y"}}}, false, false},
		{inspect.Filter{Args: "text"}, false, false},
		{inspect.Filter{CreatedFrom: noon.Add(time.Hour)}, false, false},
	} {
		if got := tc.f.Exact(); got != tc.exact {
			t.Errorf("%s: exact is %v", tc.f, got)
		}
		page, err := view.Page(ctx, tc.f, "", 50)
		if err != nil {
			t.Fatal(err)
		}
		all := page.Next == "" && page.Looked <= few
		if full := len(page.Jobs) == 50 && page.Looked == 50; tc.exact && !all && !full {
			t.Errorf("%s: %d jobs on a page, and %d were looked at", tc.f, len(page.Jobs), page.Looked)
		}
		if !tc.count && (page.Next == "" || page.Looked >= jobs) {
			t.Errorf("%s: a page of %d jobs has looked at %d", tc.f, len(page.Jobs), page.Looked)
		}
		n, err := view.Count(ctx, tc.f, 0)
		if err != nil || n.Exact != tc.count || n.Looked > 3*inspect.DefaultLook ||
			!n.Exact && n.Looked == 0 {
			t.Errorf("%s: counted %+v, %v", tc.f, n, err)
		}
		if found := len(page.Jobs); page.Next == "" && n.N != found {
			t.Errorf("%s: counted %d jobs, and found %d", tc.f, n.N, found)
		}
	}
	facets, err := view.Facets(ctx, inspect.Filter{Queues: []string{"q"}}, inspect.FacetType, 0)
	want := []inspect.FacetValue{{Value: "many", N: jobs - few}, {Value: "few", N: few}}
	if err != nil || !facets.Exact || facets.Looked != 0 || !slices.Equal(facets.Values, want) {
		t.Errorf("%+v, %v", facets, err)
	}
}

// The workflows that run are found among many newer ones that have ended.
func TestRunningWorkflows(t *testing.T) {
	store, ctx := memory.New(), t.Context()
	defer store.Close()
	const running, all = 3, 6_003
	var batch []storage.Insert
	var changes []storage.Change
	for i := range all {
		var r storage.Record
		r.ID, r.Type, r.Queue, r.CreatedAt = fmt.Sprintf("%06d", i), workflow.Type, "q", noon
		r.Meta = map[string]any{"workflow_id": r.ID}
		if r.State = ojs.StatePending; i >= running {
			r.State = ojs.StateAvailable
		}
		batch = append(batch, storage.Insert{Record: r})
	}
	_, err := store.Insert(ctx, noon, batch, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended, err := store.Claim(ctx, noon, storage.Claim{Queues: []string{"q"}, Max: all, Worker: "w"}, nil)
	if err != nil || len(ended) != all-running {
		t.Fatalf("%d claimed, %v", len(ended), err)
	}
	for _, r := range ended {
		r.State, r.FinishedAt = ojs.StateCompleted, noon
		changes = append(changes, storage.Change{Record: r})
	}
	if _, err := store.Settle(ctx, noon, changes, nil); err != nil {
		t.Fatal(err)
	}
	virtual := clock.NewMock()
	virtual.Set(noon)
	for _, order := range []inspect.Order{inspect.OrderOldest, inspect.OrderNewest} {
		f := inspect.Filter{Types: []string{workflow.Type}, Order: order}
		f.States = []ojs.State{ojs.StatePending}
		page, err := inspect.Open(store, virtual).Page(ctx, f, "", 50)
		full := len(page.Jobs) == running && page.Looked == running && page.Next == ""
		if err != nil || !full || !f.Exact() {
			t.Errorf("%s: %d jobs, %d looked at, %v", f, len(page.Jobs), page.Looked, err)
		}
	}
}
