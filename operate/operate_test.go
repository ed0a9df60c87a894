package operate_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage/memory"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is a storage with an engine, and an operator that does not know the engine.
type rig struct {
	*operate.Operator
	t   *testing.T
	ctx context.Context
	eng *engine.Engine[any]
}

func onStorage(t *testing.T, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		eng, err := engine.New[any](s)
		must(t, err)
		r := &rig{operate.Open(s, clock.New(), nil), t, t.Context(), eng}
		test(r)
	})
}

func (r *rig) enqueue(opts ...ojs.Option) string {
	r.t.Helper()
	ticket, err := r.eng.Enqueue(r.ctx, "x", "a", opts...)
	must(r.t, err)
	return ticket.ID
}

func (r *rig) job(id string) *ojs.JobInfo {
	r.t.Helper()
	job, err := r.eng.Get(r.ctx, id)
	must(r.t, err)
	return job
}

// run runs the engine until the test ends.
func (r *rig) run() {
	ctx, stop := context.WithCancel(r.ctx)
	ended := make(chan error)
	go func() { ended <- r.eng.Run(ctx) }()
	r.t.Cleanup(func() {
		stop()
		must(r.t, <-ended)
	})
	synctest.Wait()
}

// Each verb works on a storage alone, in the name of who does it.
func TestVerbsNeedNoEngine(t *testing.T) {
	onStorage(t, func(r *rig) {
		ctx, jobs := ojs.WithActor(r.ctx, "ann"), r.Jobs()
		id := r.enqueue()
		must(t, jobs.SetPriority(ctx, id, 7))
		must(t, jobs.Move(ctx, id, "other"))
		must(t, jobs.Edit(ctx, id, operate.Edit{Args: "b", Meta: map[string]any{"k": "v"}}))
		must(t, jobs.Reschedule(ctx, id, time.Now().Add(time.Hour)))
		job := r.job(id)
		if job.Priority != 7 || job.Queue != "other" || string(job.Args.JSON()) != `"b"` ||
			job.Meta["k"] != "v" || job.State != ojs.StateScheduled {
			t.Errorf("%+v", job)
		}
		if n := len(job.History); n != 4 || job.History[3].By != "ann" {
			t.Errorf("history %+v", job.History)
		}
		must(t, jobs.Cancel(ctx, id))
		must(t, jobs.Cancel(ctx, id))
		if err := jobs.Retry(ctx, id); !errors.Is(err, ojs.ErrTransition) {
			t.Errorf("a cancelled job is retried: %v", err)
		}
		must(t, jobs.Delete(ctx, id))
		if err := jobs.Cancel(ctx, id); !errors.Is(err, ojs.ErrNotFound) {
			t.Errorf("a deleted job is cancelled: %v", err)
		}
		pending := r.enqueue(ojs.WithPending())
		must(t, jobs.Activate(ctx, pending))
		if s := r.job(pending).State; s != ojs.StateAvailable {
			t.Errorf("activated: %s", s)
		}
		for p, err := range jobs.Apply(ctx, operate.Bulk{Do: operate.CancelJobs()}) {
			if must(t, err); p.Done != 1 || p.ID != pending {
				t.Errorf("%+v", p)
			}
		}
		if known, err := r.Queues().Pause(ctx, "default"); err != nil || !known {
			t.Errorf("pause: %v, %v", known, err)
		}
		if known, err := r.Queues().PauseType(ctx, "none", "why"); err != nil || known {
			t.Errorf("pause of an unknown type: %v, %v", known, err)
		}
		pauses, err := r.Queues().Pauses(ctx)
		must(t, err)
		if len(pauses) != 1 || pauses[0].By != "ann" || pauses[0].Reason != "why" {
			t.Errorf("%+v", pauses)
		}
		must(t, r.Limits().Set(ctx, operate.LimitOfKey("k"), ojs.RateLimit{Concurrency: 1}, time.Time{}))
		if l, err := r.Limits().Get(ctx, operate.LimitOfKey("k")); err != nil || l.Bounds.Concurrency != 1 {
			t.Errorf("%+v, %v", l, err)
		}
	})
}

// A copy without an engine is refused, and nothing is stored.
func TestCopiesNeedAnEnqueuer(t *testing.T) {
	onStorage(t, func(r *rig) {
		id := r.enqueue()
		if _, err := r.Jobs().Copy(r.ctx, id, nil); !errors.Is(err, ojs.ErrUnsupported) {
			t.Errorf("without an engine: %v", err)
		}
		copied, err := r.eng.Jobs().Copy(r.ctx, id, nil)
		must(t, err)
		n, err := r.Jobs().Count(r.ctx, inspect.Filter{}, 0)
		must(t, err)
		if n.N != 2 || r.job(copied.ID).Meta[draft.MetaCopyOf] != id {
			t.Errorf("%d jobs", n.N)
		}
	})
}

// Running engines notice what an operator does, without a look at the storage that time
// would bring.
func TestRunningEnginesNotice(t *testing.T) {
	onStorage(t, func(r *rig) {
		var ran []string
		r.eng.Handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
			if job.Queue == "slow" {
				<-ctx.Done()
				ran = append(ran, context.Cause(ctx).Error())
				return nil
			}
			ran = append(ran, job.ID)
			return ojs.Permanent(errors.New("no"))
		})
		r.run()
		synctest.Wait()
		began := time.Now()
		slow := r.enqueue(ojs.WithQueue("slow"))
		synctest.Wait()
		must(t, r.Jobs().Cancel(r.ctx, slow))
		_, err := r.Queues().PauseType(r.ctx, "x", "")
		must(t, err)
		synctest.Wait()
		id := r.enqueue()
		synctest.Wait()
		if want := []string{ojs.ErrCancelled.Error()}; !slices.Equal(ran, want) {
			t.Errorf("ran %v, want %v", ran, want)
		}
		_, err = r.Queues().ResumeType(r.ctx, "x")
		must(t, err)
		synctest.Wait()
		must(t, r.Jobs().Retry(r.ctx, id))
		synctest.Wait()
		if want := []string{ojs.ErrCancelled.Error(), id, id}; !slices.Equal(ran, want) {
			t.Errorf("ran %v, want %v", ran, want)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the engine noticed after %v", took)
		}
	})
}
