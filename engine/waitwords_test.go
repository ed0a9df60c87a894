package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
	"github.com/ojsengine/ojs/workflow"
)

// A Wait whose context ends says why the job has not ended, in the words of Explain.
func TestWaitSaysWhyAJobHasNotEnded(t *testing.T) {
	ok := func(context.Context, *ojs.Job[any]) error { return nil }
	for name, c := range map[string]struct {
		prepare func(b *rig) (id string)
		says    []string
	}{
		"no handler": {func(b *rig) string { b.run(); return b.enqueue("x").ID },
			[]string{"is available", "type x has no handler in this engine"}},
		"no Run": {func(b *rig) string { b.handle("x", ok); return b.enqueue("x").ID },
			[]string{"is available", "this engine does not run"}},
		"paused": {func(b *rig) string {
			b.handle("x", ok)
			b.run()
			_, err := b.Queues().Pause(b.ctx, "default")
			must(b.t, err)
			return b.enqueue("x").ID
		}, []string{"queue default is paused"}},
		"running": {func(b *rig) string {
			b.handle("x", func(context.Context, *ojs.Job[any]) error {
				pace.Virtual(time.Hour)
				return nil
			})
			b.run()
			return b.enqueue("x", ojs.WithTimeout(2*time.Hour)).ID
		}, []string{"attempt 1 runs in "}},
		"workflow": {func(b *rig) string {
			b.run()
			step := workflow.Step("load", ojs.NewDraft("x", nil))
			ticket, err := b.Workflows().Start(b.ctx, workflow.New("", workflow.Chain(step,
				workflow.Step("report", ojs.NewDraft("x", nil)))))
			must(b.t, err)
			return ticket.ID
		}, []string{`step "load" is available`, "type x has no handler in this engine"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				id := c.prepare(b)
				for end, ctx := range map[error]func() (context.Context, context.CancelFunc){
					context.DeadlineExceeded: func() (context.Context, context.CancelFunc) {
						return context.WithTimeout(b.ctx, time.Minute)
					},
					context.Canceled: func() (context.Context, context.CancelFunc) {
						ctx, cancel := context.WithCancel(b.ctx)
						time.AfterFunc(time.Minute, cancel)
						return ctx, cancel
					},
				} {
					ctx, cancel := ctx()
					_, err := b.Wait(ctx, id)
					cancel()
					if !errors.Is(err, end) {
						t.Errorf("%v is not %v", err, end)
					}
					for _, says := range append(c.says, id) {
						if !strings.Contains(err.Error(), says) {
							t.Errorf("%v does not say %q", err, says)
						}
					}
				}
				b.advance(2 * time.Hour)
			}, engine.WithConcurrency(1))
		})
	}
}

// A storage that fails, or that does not answer, leaves the error of a Wait as it is: the
// words are left out, and the Wait ends.
func TestWaitOnAStorageThatFails(t *testing.T) {
	for name, hook := range map[string]func(*storagetest.Call){
		"fails": func(c *storagetest.Call) { c.Err = errStorage },
		"hangs": func(c *storagetest.Call) { <-c.Context.Done(); c.Err = c.Context.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			s := &storagetest.Faulty{Storage: memory.New()}
			inBubbleOn(t, s, func(b *rig) {
				id := b.enqueue("x").ID
				ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
				defer cancel()
				time.AfterFunc(time.Second, func() { s.OnCall(hook) })
				_, err := b.Wait(ctx, id)
				if !errors.Is(err, context.DeadlineExceeded) || b.elapsed() > time.Minute+time.Second {
					t.Errorf("after %v: %v", b.elapsed(), err)
				}
				s.OnCall(nil)
			})
		})
	}
}

// An engine without handlers warns when Run begins, and when it enqueues a job of a type
// that it does not run. An engine that only enqueues does not.
func TestNoHandlerIsLogged(t *testing.T) {
	for name, runs := range map[string]bool{"runs": true, "enqueues": false} {
		t.Run(name, func(t *testing.T) {
			var out lockedBuffer
			warnings := &slog.HandlerOptions{Level: slog.LevelWarn}
			inBubble(t, func(b *rig) {
				if runs {
					b.run()
				}
				b.enqueue("x")
				b.enqueue("x")
				b.enqueue("join", ojs.WithDependsOn(b.enqueue("x").ID), ojs.WithJoin())
				got := out.String()
				want := 0
				if runs {
					want = 1
				}
				for _, line := range []string{"the engine runs without a handler",
					"job type enqueued without a handler"} {
					if n := strings.Count(got, line); n != want {
						t.Errorf("%d lines of %q in\n%s", n, line, got)
					}
				}
				if n := strings.Count(got, "\n"); n != 2*want {
					t.Errorf("%d lines:\n%s", n, got)
				}
			}, engine.WithLogger(slog.New(slog.NewTextHandler(&out, warnings))))
		})
	}
}

// A recurring entry that cannot run here, since this machine does not know its time zone,
// is a problem of the engine's health from the begin of Run on, until it can, is paused
// or is removed.
func TestHealthOfAnEntryThatCannotRun(t *testing.T) {
	inBubble(t, func(b *rig) {
		crons := b.store
		must(t, b.Cron().Set(b.ctx, cron.Entry{Name: "nightly", Schedule: "0 3 * * *",
			TimeZone: "Europe/Berlin", Job: ojs.NewDraft("x", nil)}))
		zone := func(zone string) {
			t.Helper()
			list, err := document.Of(crons).Crons(b.ctx, storage.DocumentQuery{})
			must(t, err)
			list[0].TimeZone = zone // of another machine
			_, err = document.Of(crons).SetCrons(b.ctx, list)
			must(t, err)
			b.advance(0) // the engine has looked at it
		}
		problem := func() string {
			for _, p := range b.Health(b.ctx).Problems {
				if p.Code == engine.ProblemCron {
					return p.Text
				}
			}
			return ""
		}
		zone("Mars/Olympus")
		b.run()
		got := problem()
		if !strings.Contains(got, "nightly") || !strings.Contains(got, "Mars/Olympus") {
			t.Errorf("the problem is %q", got)
		}
		if h := b.Health(b.ctx); h.Status != engine.Degraded {
			t.Errorf("%+v", h)
		}
		b.advance(24 * time.Hour)
		if again := problem(); again != got {
			t.Errorf("when it is due, the problem is %q", again)
		}
		zone("Europe/Berlin")
		if got := problem(); got != "" {
			t.Errorf("when the zone is known, the problem is %q", got)
		}
		zone("Mars/Olympus")
		b.advance(48 * time.Hour) // found when it is due
		if got := problem(); got == "" {
			t.Error("no problem")
		}
		must(t, b.Cron().Remove(b.ctx, "nightly"))
		if got := problem(); got != "" {
			t.Errorf("of an entry that is removed: %q", got)
		}
	})
}

// An enqueue that waits for room when its context ends says for which queue.
func TestWaitForRoomSaysWhichQueue(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.enqueue("x")
		// Not at a full second, when it tries again.
		ctx, cancel := context.WithTimeout(b.ctx, 59500*time.Millisecond)
		defer cancel()
		_, err := b.Enqueue(ctx, "x", nil)
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), `queue "default" is full`) {
			t.Errorf("%v", err)
		}
	}, engine.WithQueueConfig("default", engine.QueueConfig{MaxDepth: 1, Overflow: engine.OverflowBlock}))
}
