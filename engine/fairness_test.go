package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
)

type tenantArgs struct {
	Tenant any    `json:"tenant"`
	Name   string `json:"name"`
}

// A tenant's single job starts after one job of the tenant that has many.
func TestFairness(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	eng := enginetest.New[tenantArgs](t, engine.WithConcurrency(1))
	eng.Handle("fair.step", func(_ context.Context, job *ojs.Job[tenantArgs]) error {
		mu.Lock()
		defer mu.Unlock()
		if ran = append(ran, job.Args.Name); job.Args.Name == "large1" && job.Attempt == 1 {
			return errors.New("again")
		}
		return nil
	})
	by := ojs.WithFairnessBy("args.tenant", 1)
	step := func(tenant any, name string, opts ...ojs.Option) ojs.Draft {
		return ojs.NewDraft("fair.step", tenantArgs{tenant, name}, append([]ojs.Option{by}, opts...)...)
	}
	twice := ojs.WithFairnessKey("7", 2)
	tickets, err := eng.EnqueueMany(t.Context(),
		step("large", "large1"), step("large", "large2"), step("large", "large3"), step("large", "large4"),
		step("small", "small"),
		step("7", "paid1", twice), step("7", "paid2", twice), step("7", "paid3", twice), step(7, "number"),
	)
	must(t, err)
	eng.Advance(time.Hour)
	job, err := eng.Get(t.Context(), tickets[5].ID)
	must(t, err)
	if want := (ojs.Fairness{Key: "7", Weight: 2}); job.Fairness != want {
		t.Errorf("the job has %+v, not %+v", job.Fairness, want)
	}
	want := []string{"large1", "small", "paid1", "paid2", "large2", "paid3", "large3", "number",
		"large4", "large1"}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(ran, want) {
		t.Errorf("ran %v, not %v", ran, want)
	}
}
