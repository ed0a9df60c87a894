package inspect_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
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
