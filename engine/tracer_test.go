package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/telemetry"
)

// spans is a tracer that writes down each operation at its end: what it is part of, what
// it is about, and its error.
type spans struct {
	record
	lines []string
	mu    sync.Mutex // guards lines
}

type spanKey struct{}

func (s *spans) Begin(ctx context.Context, op *telemetry.Operation) (context.Context, func(error)) {
	parent, _ := ctx.Value(spanKey{}).(string)
	if op.Kind == telemetry.OpEnqueue || op.Kind == telemetry.OpEnqueueBatch {
		for _, j := range op.Jobs {
			if j.Meta == nil {
				j.Meta = make(map[string]any)
			}
			j.Meta["traceparent"] = "of " + j.Type
		}
	}
	return context.WithValue(ctx, spanKey{}, string(op.Kind)), func(err error) {
		line := string(op.Kind)
		if parent != "" {
			line = parent + " > " + line
		}
		for _, j := range op.Jobs {
			line += fmt.Sprintf(" %s/%s/%d", j.Queue, j.Type, j.Attempt)
		}
		if err != nil {
			line += ": " + err.Error()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lines = append(s.lines, line)
	}
}

// took takes the lines there are, without those of looks that found nothing.
func (s *spans) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := slices.DeleteFunc(s.lines,
		func(l string) bool {
			return slices.Contains([]string{"fetch", "scheduler.poll", "reaper.check"}, l)
		})
	s.lines = nil
	return lines
}

func TestTracer(t *testing.T) {
	type step struct {
		name string
		do   func(b *rig)
		want []string
	}
	var s spans
	ticket := func(b *rig, jobType string, opts ...ojs.Option) ojs.Ticket {
		return b.enqueue(jobType, append(opts, noJitter)...)
	}
	inBubble(t, func(b *rig) {
		b.handle("good", func(ctx context.Context, job *ojs.Job[any]) error {
			if ctx.Value(spanKey{}) != "process" || job.Meta["traceparent"] != "of good" {
				t.Errorf("the handler is in %v with %v", ctx.Value(spanKey{}), job.Meta)
			}
			return nil
		})
		b.handle("bad", func(ctx context.Context, job *ojs.Job[any]) error { return errBoom })
		b.handle("panic", func(ctx context.Context, job *ojs.Job[any]) error { panic("ouch") })
		b.handle("exit", func(ctx context.Context, job *ojs.Job[any]) error { runtime.Goexit(); return nil })
		b.handle("parent", func(ctx context.Context, job *ojs.Job[any]) error {
			_, err := b.Enqueue(ctx, "good", nil)
			return err
		})
		b.handle("block",
			func(ctx context.Context, job *ojs.Job[any]) error { <-ctx.Done(); return context.Cause(ctx) })
		b.run()
		for _, step := range []step{
			{"a job that completes", func(b *rig) { ticket(b, "good") },
				[]string{"enqueue default/good/0", "fetch default/good/1", "process default/good/1",
					"process > ack default/good/1"}},
			{"a job that fails once", func(b *rig) { ticket(b, "bad", ojs.WithMaxAttempts(1)) },
				[]string{"enqueue default/bad/0", "fetch default/bad/1", "process default/bad/1: boom",
					"process > retry.evaluate default/bad/1", "process > nack default/bad/1"}},
			{"a job that panics", func(b *rig) { ticket(b, "panic", ojs.WithMaxAttempts(1)) },
				[]string{"enqueue default/panic/0", "fetch default/panic/1",
					"process default/panic/1: panic: ouch", "process > retry.evaluate default/panic/1",
					"process > nack default/panic/1"}},
			{"a job that ends its goroutine", func(b *rig) { ticket(b, "exit", ojs.WithMaxAttempts(1)) },
				[]string{"enqueue default/exit/0", "fetch default/exit/1",
					"process default/exit/1: ojs: the handler called runtime.Goexit",
					"process > retry.evaluate default/exit/1", "process > nack default/exit/1"}},
			{"a job that enqueues another", func(b *rig) { ticket(b, "parent", ojs.WithQueue("q")) },
				[]string{"enqueue q/parent/0", "fetch q/parent/1", "process > enqueue default/good/0",
					"process q/parent/1", "process > ack q/parent/1",
					"fetch default/good/1", "process default/good/1", "process > ack default/good/1"}},
			{"a batch", func(b *rig) {
				late := ojs.NewDraft("good", nil, ojs.WithDelay(time.Hour))
				if _, err := b.EnqueueMany(b.ctx, late, late); err != nil {
					t.Error(err)
				}
			}, []string{"enqueue_batch default/good/0 default/good/0"}},
			{"a refused job", func(b *rig) {
				for range 2 {
					_, _ = b.Enqueue(b.ctx, "waits", nil, ojs.WithID("0199f1f0-0000-7000-8000-000000000001"),
						ojs.WithDelay(24*time.Hour))
				}
			}, []string{"enqueue default/waits/0",
				"enqueue default/waits/0: ojs: duplicate: job 0199f1f0-0000-7000-8000-000000000001 is scheduled"}},
			{"a cancelled job", func(b *rig) {
				id := ticket(b, "block").ID
				b.advance(0)
				if err := b.Cancel(b.ctx, id); err != nil {
					t.Error(err)
				}
				if _, err := b.Get(b.ctx, id); err != nil {
					t.Error(err)
				}
			}, []string{"enqueue default/block/0", "fetch default/block/1", "cancel //0", "get_job //0",
				"process default/block/1: ojs: cancelled"}},
		} {
			t.Run(step.name, func(t *testing.T) {
				s.took()
				step.do(b)
				b.advance(time.Minute)
				got := s.took()
				slices.Sort(got)
				slices.Sort(step.want)
				if !slices.Equal(got, step.want) {
					t.Errorf("P1.10 traced\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"),
						strings.Join(step.want, "\n\t"))
				}
			})
		}
	}, engine.WithObserver(&s))
}

func TestTracerOfTheEngineItself(t *testing.T) {
	var s spans
	inBubble(t, func(b *rig) {
		b.handle("tick", func(context.Context, *ojs.Job[any]) error { return nil })
		lost := b.Worker("w", fetch.Config{})
		b.enqueue("elsewhere", ojs.WithMaxAttempts(1), ojs.WithLease(10*time.Second))
		if _, err := lost.Fetch(b.ctx); err != nil {
			t.Fatal(err)
		}
		if err := b.Cron().Set(b.ctx,
			cron.Entry{
				Name: "every", Schedule: "@hourly", Job: ojs.NewDraft("tick", nil),
			}); err != nil {
			t.Fatal(err)
		}
		s.took()
		b.run()
		b.advance(61 * time.Minute)
	}, engine.WithObserver(&s))
	got := s.lines
	for _, want := range []string{
		"scheduler.poll", "reaper.check",
		"visibility.check default/elsewhere/1", "visibility.check > retry.evaluate default/elsewhere/1",
		"visibility.check > nack default/elsewhere/1",
		"cron.trigger", "cron.trigger > enqueue default/tick/0",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("P1.10 no %q in\n\t%s", want, strings.Join(got, "\n\t"))
		}
	}
}

// broken is a tracer all of whose methods panic, or which follows nothing.
type broken struct {
	panics
	begins bool
	err    error
}

func (br broken) Begin(ctx context.Context, _ *telemetry.Operation) (context.Context, func(error)) {
	switch {
	case br.begins:
		panic("begin")
	case br.err != nil:
		return ctx, func(error) { panic(br.err) }
	}
	return nil, nil
}

func TestTracerPanics(t *testing.T) {
	for _, tracer := range []broken{{begins: true}, {err: errors.New("end")}, {}} {
		var log bytes.Buffer
		var s spans
		inBubble(t, func(b *rig) {
			b.handle("job", func(context.Context, *ojs.Job[any]) error { return nil })
			b.run()
			ticket := b.enqueue("job")
			b.advance(time.Second)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		}, engine.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), engine.WithObserver(tracer, &s))
		if logged := strings.Contains(log.String(),
			"tracer panicked\" operation=enqueue"); logged != (tracer.begins || tracer.err != nil) {
			t.Errorf("%+v: log:\n%s", tracer, &log)
		}
		if !slices.Contains(s.lines, "process default/job/1") {
			t.Errorf("%+v: the other tracer saw %q", tracer, s.lines)
		}
	}
}
