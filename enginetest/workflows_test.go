package enginetest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/workflow"
)

func TestWorkflow(t *testing.T) {
	begin := func(t testing.TB) (*enginetest.Engine[time.Duration], string) {
		eng := enginetest.New[time.Duration](t)
		eng.Handle("sleep", func(ctx context.Context, job *ojs.Job[time.Duration]) error {
			if job.Args == 0 {
				return ojs.Discard(errors.New("no time"))
			}
			return handler.Sleep(ctx, job.Args)
		})
		sleep := func(name string, d time.Duration) workflow.Part {
			return workflow.Step(name, ojs.NewDraft("sleep", d))
		}
		return eng, eng.MustStart(workflow.New("", workflow.Chain(
			workflow.Group(sleep("short", time.Minute), sleep("long", 3*time.Minute)),
			sleep("last", time.Minute), sleep("fails", 0))))
	}
	t.Run("at exact times", func(t *testing.T) {
		eng, id := begin(t)
		eng.Advance(2 * time.Minute)
		eng.RequireStep(id, "short", ojs.StateCompleted)
		eng.RequireStep(id, "last", ojs.StatePending)
		eng.Advance(time.Hour)
		s := eng.RequireWorkflow(id, workflow.StateFailed)
		if took := s.FinishedAt.Sub(s.CreatedAt); took != 4*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
	for name, c := range map[string]struct {
		require func(eng *enginetest.Engine[time.Duration], id string)
		want    string
	}{
		"the state of a workflow": {func(eng *enginetest.Engine[time.Duration], id string) {
			eng.RequireWorkflow(id, workflow.StateCompleted)
		}, "is failed, not completed"},
		"the state of a step": {func(eng *enginetest.Engine[time.Duration], id string) {
			eng.RequireStep(id, "last", ojs.StateDiscarded)
		}, `step "last" is completed, not discarded`},
		"no step": {func(eng *enginetest.Engine[time.Duration], id string) {
			eng.RequireStep(id, "x", ojs.StateDiscarded)
		}, `has no step "x"`},
	} {
		t.Run("a failure draws the steps: "+name, func(t *testing.T) {
			failed := failure(t, func(t testing.TB) {
				eng, id := begin(t)
				eng.Advance(time.Hour)
				c.require(eng, id)
			})
			for _, want := range []string{c.want,
				"  short |==========                              | completed 0s to 1m0s, attempt 1\n",
				"  long  |==============================          | completed 0s to 3m0s, attempt 1\n",
				"  last  |                              ==========| completed 3m0s to 4m0s, attempt 1\n",
				"  fails |                                       =| discarded 4m0s to 4m0s, attempt 1, " +
					"error error: no time\n",
			} {
				if !strings.Contains(failed, want) {
					t.Errorf("want %q in\n%s", want, failed)
				}
			}
		})
	}
}
