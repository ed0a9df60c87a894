package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
	"github.com/ojsengine/ojs/workflow"
)

func key(k string) ojs.Option { return ojs.WithOrderingKey(k) }

// Jobs of one key run one at a time in the order of enqueue, of any priority.
func TestOrderingKey(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	eng := enginetest.New[string](t)
	eng.Handle("step", func(ctx context.Context, job *ojs.Job[string]) error {
		mu.Lock()
		ran = append(ran, job.Args)
		mu.Unlock()
		if err := handler.Sleep(ctx, time.Second); err != nil {
			return err
		}
		if job.Args == "a2" && job.Attempt == 1 {
			return errors.New("no")
		}
		return nil
	}, handler.WithSlots(4))
	slow := ojs.RetryPolicy{InitialInterval: time.Minute, Jitter: ojs.JitterOff}
	tickets, err := eng.EnqueueMany(t.Context(),
		waitStep("a1", key("a")),
		waitStep("a2", key("a"), ojs.WithRetry(slow)),
		waitStep("a3", key("a"), ojs.WithPriority(50)),
		waitStep("a4", key("a"), ojs.WithDelay(time.Hour)),
	)
	must(t, err)
	last, err := eng.Enqueue(t.Context(), "step", "a5", key("a"))
	must(t, err)
	e, err := eng.Jobs().Explain(t.Context(), last.ID)
	must(t, err)
	if len(e.Obstacles) == 0 || e.Obstacles[0].Code != inspect.ObstacleOrdering {
		t.Errorf("explained by %+v", e.Obstacles)
	}
	for _, at := range []struct {
		after time.Duration
		runs  int // of tickets
	}{{0, 0}, {time.Second, 1}, {61 * time.Second, 1}, {time.Second, 2}} {
		eng.Advance(at.after)
		eng.RequireState(tickets[at.runs].ID, ojs.StateActive)
		eng.RequireState(tickets[at.runs+1].ID, ojs.StatePending)
	}
	eng.Advance(time.Second)
	eng.RequireState(tickets[3].ID, ojs.StateScheduled)
	eng.RequireState(last.ID, ojs.StatePending)
	eng.Advance(time.Hour)
	eng.RequireCompleted(tickets[3].ID)
	eng.RequireState(last.ID, ojs.StateCompleted)
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"a1", "a2", "a2", "a3", "a4", "a5"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
}

// Failed steps of a workflow that are retried wait for their turn; a step that is added
// has no key.
func TestOrderingKeyInWorkflow(t *testing.T) {
	s := newSteps(t)
	w := workflow.New("w", workflow.Chain(
		workflow.Step("one", waitStep("fails", key("a"))),
		workflow.Step("two", waitStep("two", key("a"))),
	))
	ticket, err := s.Workflows().Start(t.Context(), w)
	must(t, err)
	s.Advance(time.Second)
	other := s.enqueue(waitStep("other", key("a")))[0]
	must(t, s.Workflows().Retry(t.Context(), ticket.ID))
	status, err := s.Workflows().Get(t.Context(), ticket.ID)
	must(t, err)
	if one := status.Steps[0]; one.State() != ojs.StatePending {
		t.Errorf("step one is %s, though another job of its key has the turn", one.State())
	}
	s.Advance(2 * time.Second)
	s.want(other, ojs.StateCompleted)
	if want := []string{"fails", "other", "fails"}; !slices.Equal(s.ran, want) {
		t.Errorf("ran %v, want %v", s.ran, want)
	}
}

func TestOrderingKeyIsRefused(t *testing.T) {
	eng, err := engine.New[any](memory.New(), quiet)
	must(t, err)
	for name, opts := range map[string][]ojs.Option{
		"too long":   {key(strings.Repeat("k", 256))},
		"not UTF-8":  {key("\xff")},
		"zero":       {key("a\x00")},
		"activation": {key("k"), ojs.WithPending()},
	} {
		if _, err := eng.Enqueue(t.Context(), "a", 1, opts...); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = eng.EnqueueMany(t.Context(),
		ojs.NewDraft("a", 1, key("k"), ojs.WithDependsOn("two")),
		ojs.NewDraft("a", 2, key("k"), ojs.WithDraftName("two")))
	if !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("a job that waits for one behind it: %v", err)
	}
}

// Two engines on one storage never run two jobs of a key at once.
func TestOrderingKeyOverEngines(t *testing.T) {
	const keys, each = 3, 30
	var mu sync.Mutex
	next := make(map[int]int) // by key: number of the job that has to begin
	running := make(map[int]bool)
	all := make(chan struct{})
	left := keys * each
	store := memory.New()
	var first *engine.Engine[[2]int]
	for range 2 {
		eng, err := engine.New[[2]int](store, quiet, engine.WithConcurrency(4))
		must(t, err)
		eng.Handle("step", func(_ context.Context, job *ojs.Job[[2]int]) error {
			k, n := job.Args[0], job.Args[1]
			mu.Lock()
			defer mu.Unlock()
			if running[k] || next[k] != n {
				t.Errorf("job %d of key %d began, and %d is next", n, k, next[k])
			}
			running[k] = true
			mu.Unlock()
			mu.Lock()
			running[k], next[k] = false, n+1
			if left--; left == 0 {
				close(all)
			}
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- eng.Run(ctx) }()
		t.Cleanup(func() { stop(); must(t, <-ended) })
		first = eng
	}
	for n := range each {
		for k := range keys {
			_, err := first.Enqueue(t.Context(), "step", [2]int{k, n}, key(fmt.Sprint(k)))
			must(t, err)
		}
	}
	<-all
}

// The head of a key ends in an engine that has stored no job of the key. The next job
// starts before the storage has answered: its events come in order.
func TestOrderingKeyStoredElsewhere(t *testing.T) {
	store := memory.New()
	faulty := &storagetest.Faulty{Storage: store}
	inBubbleOn(t, faulty, func(b *rig) {
		other, err := engine.New[any](store, quiet)
		must(t, err)
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		_, err = other.Enqueue(b.ctx, "x", nil, key("k"))
		must(t, err)
		next, err := other.Enqueue(b.ctx, "x", nil, key("k"))
		must(t, err)
		faulty.OnCall(func(c *storagetest.Call) {
			if c.Method == "Settle" {
				c.Do()
				<-time.After(time.Second)
			}
		})
		s := b.Subscribe(engine.EventFilter{JobIDs: []string{next.ID}})
		b.run()
		_, err = other.Enqueue(b.ctx, "x", nil) // the engine looks for jobs
		must(t, err)
		b.advance(5 * time.Second)
		s.Close()
		var told []event.Type
		for ev := range s.C() {
			told = append(told, ev.Type)
		}
		want := []event.Type{event.Available, event.Started, event.Completed}
		if !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	}, engine.WithConcurrency(3))
}
