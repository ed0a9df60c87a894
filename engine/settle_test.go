package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
	"github.com/ojsengine/ojs/workflow"
)

// A call that fails may have stored its outcome. An outcome that another caller has
// stored meanwhile is not taken for it, however alike the two are.
func TestOutcomeOfAnotherIsNotItsOwn(t *testing.T) {
	for name, tt := range map[string]struct {
		fails  bool
		change func(*storage.Record)
	}{
		"a retry at another time": {true, func(r *storage.Record) {
			r.NextRetryAt = r.NextRetryAt.Add(time.Hour)
		}},
		"another end": {false, func(r *storage.Record) {
			r.FinishedAt = r.FinishedAt.Add(time.Second)
		}},
		"another state": {false, func(r *storage.Record) { r.State = ojs.StateCancelled }},
	} {
		t.Run(name, func(t *testing.T) {
			onFaulty(t, func(b *rig, s *storagetest.Faulty) {
				ends := []event.Type{event.Retrying, event.Completed}
				sub := b.Subscribe(engine.EventFilter{Types: ends})
				defer sub.Close()
				b.handle("x", func(context.Context, *ojs.Job[any]) error {
					if tt.fails {
						return errBoom
					}
					return nil
				})
				var once sync.Once
				s.OnCall(func(c *storagetest.Call) {
					changes, _ := c.In.([]storage.Change)
					if len(changes) == 0 {
						return
					}
					once.Do(func() {
						theirs := slices.Clone(changes)
						tt.change(&theirs[0].Record)
						out, err := s.Storage.Settle(b.ctx, time.Now(), theirs, nil)
						if err != nil || out[0].Err != nil {
							t.Error(out, err)
						}
						c.Err = errStorage
					})
				})
				b.enqueue("x", noJitter)
				b.advance(time.Minute)
				if len(sub.C()) > 0 {
					t.Errorf("%+v", <-sub.C())
				}
			})
		})
	}
}

// Each of the outcomes that one call has stored is followed.
func TestEachOutcomeOfACallIsFollowed(t *testing.T) {
	var most atomic.Int64 // outcomes in a call
	s := &storagetest.Faulty{Storage: durable{memory.New()}}
	s.OnCall(func(c *storagetest.Call) {
		if changes, ok := c.In.([]storage.Change); ok {
			for n := most.Load(); n < int64(len(changes)) && !most.CompareAndSwap(n, int64(len(changes))); {
				n = most.Load()
			}
			<-time.After(time.Second)
		}
	})
	var logged lockedBuffer
	inBubbleOn(t, s, func(b *rig) {
		b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
			return handler.Sleep(ctx, time.Second)
		})
		for range 8 {
			b.enqueue("x")
		}
		b.run()
		b.advance(time.Minute)
		if n := strings.Count(logged.String(), "job completed"); n != 8 || most.Load() < 2 {
			t.Errorf("the log has %d of 8 outcomes, at most %d in a call:\n%s",
				n, most.Load(), logged.String())
		}
	}, engine.WithConcurrency(8), engine.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
}

// An attempt whose handler goes on after its timeout, and whose failure the storage
// refuses, has lost its job: its lease is not renewed.
func TestRefusedTimeoutEndsTheRenewals(t *testing.T) {
	onFaulty(t, func(b *rig, s *storagetest.Faulty) {
		b.handle("x", func(context.Context, *ojs.Job[any]) error { <-time.After(2 * time.Hour); return nil })
		id := b.enqueue("x", ojs.WithTimeout(time.Minute), ojs.WithLease(time.Hour)).ID
		b.advance(time.Second)
		rec := must1(s.Storage.Get(b.ctx, id))
		rec.State, rec.FinishedAt = ojs.StateCancelled, time.Now() // by another process
		out := must1(s.Storage.Settle(b.ctx, time.Now(), []storage.Change{{Record: rec}}, nil))
		must(t, out[0].Err)
		b.advance(time.Hour)
		if n := s.Calls("Extend"); n > 0 {
			t.Errorf("%d renewals", n)
		}
		b.advance(2 * time.Hour)
		b.want(id, ojs.StateCancelled, 1)
	})
}

// A step that fails after its workflow was cancelled is cancelled with the storing of its
// failure, and not when its retry begins.
func TestFailedStepOfACancelledWorkflow(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("step", func(ctx context.Context, _ *ojs.Job[any]) error {
			return errors.Join(handler.Sleep(ctx, time.Second), errBoom)
		})
		b.run()
		ticket := must1(b.Workflows().Start(b.ctx,
			workflow.New("w", workflow.Chain(workflow.Step("", ojs.NewDraft("step", nil)),
				workflow.Step("", ojs.NewDraft("step", nil))))))
		b.advance(500 * time.Millisecond)
		must(t, b.Workflows().Cancel(b.ctx, ticket.ID))
		b.advance(501 * time.Millisecond)
		s := must1(b.Workflows().Get(b.ctx, ticket.ID))
		for _, step := range s.Steps {
			if step.State() != ojs.StateCancelled {
				t.Errorf("step %q is %s", step.Name, step.State())
			}
		}
	})
}

// A workflow is there without a step that was deleted, also while the engine remembers
// the step.
func TestWorkflowWithoutADeletedStep(t *testing.T) {
	inBubble(t, func(b *rig) {
		ticket := must1(b.Workflows().Start(b.ctx, workflow.New("w", workflow.Group(
			workflow.Step("gone", ojs.NewDraft("step", nil)), workflow.Step("", ojs.NewDraft("step", nil))))))
		for _, step := range must1(b.Workflows().Get(b.ctx, ticket.ID)).Steps {
			if step.Name == "gone" {
				must(t, b.Jobs().Cancel(b.ctx, step.JobID))
				must(t, b.Jobs().Delete(b.ctx, step.JobID))
			}
		}
		if s := must1(b.Workflows().Get(b.ctx, ticket.ID)); s.State != workflow.StateRunning {
			t.Errorf("the workflow is %s", s.State)
		}
	})
}

// A failure by a lease that was not renewed says for how long the attempt had run.
func TestLostLeaseSaysHowLong(t *testing.T) {
	onFaulty(t, func(b *rig, s *storagetest.Faulty) {
		b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return nil })
		s.OnCall(breaks("Extend", false, nil))
		id := b.enqueue("x", ojs.WithLease(time.Minute), ojs.WithMaxAttempts(1)).ID
		b.advance(2 * time.Minute)
		job := b.want(id, ojs.StateDiscarded, 1)
		if got := job.Error.Details["elapsed_seconds"]; got != 60.0 {
			t.Errorf("elapsed %v s: %+v", got, job.Error)
		}
	})
}

// rough is a storage whose times are as precise as a second.
type rough struct{ storage.Storage }

func (s rough) Capabilities() storage.Capabilities {
	c := s.Storage.Capabilities()
	c.Precision = time.Second
	return c
}

// The look for the jobs of a lost claim leaves alone an attempt that began at its time
// and has lost its lease since, while the failure of that cannot be stored.
func TestLostClaimAndLostLease(t *testing.T) {
	s := &storagetest.Faulty{Storage: rough{memory.New()}}
	inBubbleOn(t, s, func(b *rig) {
		b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
			if job.Attempt == 1 {
				<-ctx.Done()
			}
			return nil
		})
		lost := false
		s.OnCall(func(c *storagetest.Call) {
			changes, _ := c.In.([]storage.Change)
			switch {
			case c.Method == "Claim" && !lost, c.Method == "Extend":
				lost = true
				c.Err = errStorage
			case len(changes) > 0 && changes[0].Record.Error != nil && b.elapsed() < 15*time.Second:
				c.Err = errStorage
			}
		})
		id := b.enqueue("x", ojs.WithLease(time.Second), noJitter).ID
		b.run()
		b.advance(time.Minute)
		b.want(id, ojs.StateCompleted, 2)
		if n := len(b.times()); n != 2 || !lost {
			t.Errorf("%d handlers ran", n)
		}
	})
}
