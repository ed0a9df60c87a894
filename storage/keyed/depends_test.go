package keyed_test

import (
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
)

// The end of a job is not counted for one that has been cancelled and revived since it
// waited for it.
func TestRevivedJobWaitsAnew(t *testing.T) {
	s := config.Open(t).(*keyed.Storage)
	first, second, waits := job("first"), job("second"), job("waits")
	insert := func(in storage.Insert) {
		t.Helper()
		must(s.Insert(t.Context(), now, []storage.Insert{in}, nil))(t)
	}
	revive := func() {
		t.Helper()
		_, _, err := s.CancelAll(t.Context(), now, []string{"waits"})
		must(0, err)(t)
		in := storage.Insert{Record: must(s.Get(t.Context(), "waits"))(t)}
		in.Record.State, in.Record.FinishedAt = ojs.StatePending, in.Record.NextRetryAt
		must(s.Revive(t.Context(), now, []storage.Insert{in}))(t)
	}
	insert(first)
	waits.Record.State, waits.DependsOn = ojs.StatePending, []string{"first"}
	waits.Record.Dependencies = new(ojs.Dependencies)
	insert(waits)
	revive()
	second.AwaitedBy = []string{"waits"}
	insert(second)
	revive()
	r := must(s.Get(t.Context(), "second"))(t)
	r.State, r.FinishedAt = ojs.StateDiscarded, now
	settled := must(s.Settle(t.Context(), now, []storage.Change{{Record: r}}, nil))(t)
	if settled[0].Err != nil || len(settled[0].Moved) > 0 {
		t.Errorf("the end of a job has moved %v, %v", settled[0].Moved, settled[0].Err)
	}
}
