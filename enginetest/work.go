package enginetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
)

// Worked is the outcome of one attempt.
type Worked struct {
	Job    *ojs.JobInfo  // after it: its state, its next retry, its errors tell what was decided
	Err    error         // what the handler returned
	Events []event.Event // from the job's enqueue on
}

// Work runs exactly one attempt of a job, now, and returns its outcome. The job is not in
// the engine's queues: it has a storage of its own, in which nothing else is unique,
// paused or full. Its handler is that of the engine. A handler that sleeps moves the
// clock.
func (e *Engine[T]) Work(d ojs.Draft) Worked {
	e.tb.Helper()
	var w Worked
	var mu sync.Mutex // guards w.Err
	var eng *engine.Engine[T]
	e.worked++
	seed := engine.WithRand(rand.New(rand.NewPCG(2, e.worked))) // the engine's own serves one engine
	eng = e.make(fresh(e.tb), []engine.Option{seed},
		func(ctx context.Context, job *ojs.JobHeader, next handler.Next) error {
			// one attempt, and no second one
			if _, err := eng.Queues().Pause(context.Background(), job.Queue); err != nil {
				return err
			}
			err := next(ctx)
			mu.Lock()
			defer mu.Unlock()
			w.Err = err
			return err
		}, e.faults.inject)
	eng.Register(e.Describe().Handlers...)
	if !e.handles(d.Type()) {
		e.tb.Fatalf("enginetest: Work: job type %s has no handler", d.Type())
	}
	sub := eng.Subscribe(engine.EventFilter{Types: []event.Type{"job.*", "dead_letter.*"}})
	defer sub.Close()
	if _, err := eng.EnqueueMany(context.Background(), now(d)); err != nil {
		e.tb.Fatalf("enginetest: Work: enqueue of %s: %v", d.Type(), err)
	}
	cancel, ended := run(eng)
	for !settled(w.Events) {
		w.Events = append(w.Events, e.await(eng, sub)...)
	}
	e.stop(eng, cancel, ended)
	w.Job = w.Events[len(w.Events)-1].Job.Clone() // as the attempt left it: it may have come due again since
	mu.Lock()
	defer mu.Unlock()
	return w
}

func (e *Engine[T]) handles(jobType string) bool {
	is := func(h handler.Handler) bool { return h.Type() == jobType }
	return slices.ContainsFunc(e.Describe().Handlers, is)
}

// now is a draft that waits for nothing.
func now(d ojs.Draft) ojs.Draft {
	return ojs.NewDraft(d.Type(), d.Args(), func(o *ojs.Options) {
		o.Apply(d.Defaults()...)
		o.Apply(d.Options()...)
		o.Delay, o.ScheduledAt, o.Pending = 0, time.Time{}, false
	})
}

// settled reports whether the events tell of the end of an attempt.
func settled(events []event.Event) bool {
	return slices.ContainsFunc(events, func(ev event.Event) bool {
		return ev.Type == event.Cancelled || ev.Job != nil && ev.Job.State != ojs.StateActive &&
			ev.Job.State != ojs.StateAvailable
	})
}

// await returns events that have come, and moves the clock if none can come otherwise.
func (e *Engine[T]) await(eng *engine.Engine[T], sub *engine.Subscription) (events []event.Event) {
	e.tb.Helper()
	if e.clock == nil {
		events = append(events, <-sub.C()) // the bubble's clock moves by itself
		synctest.Wait()                    // for the others of the same transition
	} else {
		e.idle(eng)
	}
	for {
		select {
		case ev := <-sub.C():
			events = append(events, ev)
			continue
		default:
		}
		break
	}
	if e.clock != nil && !settled(events) {
		if next, some := eng.NextWake(); some {
			e.advanceTo(next)
		}
	}
	return events
}

// enqueueInline enqueues drafts and waits until they have run.
func (e *Engine[T]) enqueueInline(ctx context.Context, drafts []ojs.Draft) ([]ojs.Ticket, error) {
	at := make([]ojs.Draft, len(drafts))
	for i, d := range drafts {
		d = now(d)
		at[i] = ojs.NewDraft(d.Type(), d.Args(), append(slices.Clone(d.Options()), ojs.WithMaxAttempts(0))...)
	}
	tickets, err := e.Engine.EnqueueMany(ctx, at...)
	if err != nil {
		return nil, err
	}
	for i, t := range tickets {
		if t.Dropped {
			continue
		}
		if !e.handles(at[i].Type()) {
			return tickets, fmt.Errorf("enginetest: job type %s has no handler", at[i].Type())
		}
		if waitErr := e.ran(ctx, t); waitErr != nil && err == nil {
			err = waitErr
		}
	}
	return tickets, err
}

// ran waits until a job has run, and returns what its handler did. The clock moves if
// every handler sleeps.
func (e *Engine[T]) ran(ctx context.Context, t ojs.Ticket) error {
	ended := make(chan error, 1)
	go func() { _, err := t.Wait(ctx); ended <- err }()
	idle, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		quiet := make(chan error, 1)
		go func() { quiet <- e.WaitIdle(idle) }()
		select {
		case err := <-ended:
			return e.inlineError(t.ID, err)
		case err := <-quiet:
			if err != nil {
				return err
			}
		}
		// Wait's goroutine may not have been heard yet, and time must not go on for a job
		// that is done.
		if job, err := e.Get(ctx, t.ID); err != nil || job.State.Terminal() {
			return e.inlineError(t.ID, <-ended)
		}
		next, some := e.NextWake()
		if !some {
			return nil // it waits for something else than time
		}
		e.clock.Set(next)
	}
}

// inlineError is the handler's own error where there is one.
func (e *Engine[T]) inlineError(id string, err error) error {
	if err == nil {
		return nil
	}
	if own, ok := e.returned.LoadAndDelete(id); ok {
		return own.(error)
	}
	return err
}

// note keeps what a handler returns for its job's enqueue.
func (e *Engine[T]) note(ctx context.Context, job *ojs.JobHeader, next handler.Next) error {
	err := next(ctx)
	if err != nil && e.mode == inline {
		e.returned.Store(job.ID, err)
	}
	return err
}
