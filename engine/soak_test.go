package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage/memory"
)

// soakTime is how long TestSoak keeps up its load.
func soakTime() time.Duration {
	if storm() {
		return time.Minute
	}
	return 2 * time.Second
}

// soak follows the lives of jobs by their events.
type soak struct {
	*testing.T
	eng *engine.Engine[int]

	mu     sync.Mutex           // guards the fields below
	lives  map[string]ojs.State // of jobs that have not ended
	jobs   int
	idle   chan struct{} // closed when no job is left; made by the call that waits for it
	events map[event.Type]int
}

func (s *soak) follow(sub *engine.Subscription) {
	for ev := range sub.C() {
		s.mu.Lock()
		s.events[ev.Type]++
		if ev.Missed > 0 {
			s.Errorf("missed %d events", ev.Missed)
		}
		if ev.Job != nil {
			state := s.lives[ev.Job.ID]
			if ev.Type == event.Enqueued {
				s.jobs++
			}
			if ev.Type == event.DeadLetterRetried || ev.Type == event.Available && state == "" {
				state = ojs.StateDiscarded
			}
			if state == "" && ev.Type != event.Enqueued && !ev.Job.State.Terminal() {
				s.Errorf("%s of a job that has ended or was not enqueued", ev.Type)
			}
			if state != "" || !ev.Job.State.Terminal() {
				if err := step(&state, ev); err != nil {
					s.Errorf("job %s: %v", ev.Job.ID, err)
				}
			}
			if s.lives[ev.Job.ID] = state; ev.Job.State.Terminal() {
				delete(s.lives, ev.Job.ID)
			}
		}
		if s.idle != nil && len(s.lives) == 0 {
			close(s.idle)
			s.idle = nil
		}
		s.mu.Unlock()
	}
}

func (s *soak) handle(ctx context.Context, job *ojs.Job[int]) error {
	switch job.Args % 16 {
	case 0:
		return errBoom
	case 1:
		panic("boom")
	case 2:
		return ojs.RetryAfter(time.Millisecond, errBoom)
	case 3:
		return handler.Sleep(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
	case 4:
		<-ctx.Done() // its timeout, a cancellation or a shutdown
		return ctx.Err()
	case 5:
		handler.Progress(ctx, rand.Float64())
		if err := handler.SaveCheckpoint(ctx, job.Attempt); err != nil {
			return err
		}
		return errBoom
	case 6:
		return ojs.DeadLetter(errBoom)
	case 7:
		if job.Attempt == 1 && rand.IntN(2) == 0 {
			return ojs.Snooze(time.Millisecond)
		}
		return handler.Heartbeat(ctx)
	case 8:
		if job.Args > 1<<20 {
			return nil
		}
		_, err := s.eng.Enqueue(ctx, "work", 8+1<<20, ojs.WithMaxAttempts(1))
		return err
	}
	return handler.SetResult(ctx, job.Args)
}

func (s *soak) produce(ctx context.Context, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	for n := 0; ctx.Err() == nil; n++ {
		var drafts []ojs.Draft
		for range 1 + r.IntN(8) {
			opts := []ojs.Option{
				ojs.WithQueue([]string{"a", "b", "c"}[r.IntN(3)]), ojs.WithPriority(r.IntN(3)),
				ojs.WithTimeout(30 * time.Millisecond),
				ojs.WithLease(200 * time.Millisecond),
				ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 2, InitialInterval: time.Millisecond,
					OnExhaustion: ojs.ExhaustionDeadLetter}),
			}
			switch r.IntN(8) {
			case 0:
				opts = append(opts, ojs.WithDelay(time.Duration(r.IntN(50))*time.Millisecond))
			case 1:
				opts = append(opts, ojs.WithTTL(time.Duration(1+r.IntN(100))*time.Millisecond))
			case 2:
				opts = append(opts,
					ojs.WithRateLimit(ojs.RateLimit{Key: fmt.Sprint("key", r.IntN(50)), Concurrency: 1,
						Rate: ojs.Rate{Limit: 20, Per: 100 * time.Millisecond}}))
			case 3:
				opts = append(opts, ojs.WithTotalTimeout(time.Duration(50+r.IntN(100))*time.Millisecond))
			case 4:
				if r.IntN(4) == 0 {
					opts = append(opts, ojs.WithPending())
				}
			}
			typ := "work"
			if r.IntN(6) == 0 {
				typ = "foreign"
			}
			drafts = append(drafts, ojs.NewDraft(typ, r.IntN(1000), opts...))
		}
		_, err := s.eng.EnqueueMany(ctx, drafts...)
		if err != nil && ctx.Err() == nil && !errors.Is(err, ojs.ErrQueueFull) &&
			!errors.Is(err, ojs.ErrQueueDraining) {
			s.Error(err)
		}
		wait(ctx, time.Millisecond)
	}
}

// wait paces the load. Nothing is decided by how long it takes.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (s *soak) work(ctx context.Context, id string) {
	w := s.eng.Worker(id, fetch.Config{Types: []string{"foreign"}})
	for n := 0; ; n++ {
		d, err := w.Fetch(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.Error(err)
			}
			return
		}
		switch n % 6 {
		case 0:
			err = d.Fail(ctx, errBoom)
		case 1:
			err = d.Release(ctx)
		case 2:
			err = d.Heartbeat(ctx)
			if err == nil {
				err = d.Ack(ctx, n)
			}
		case 3:
			continue // it forgets the job, whose lease runs out
		default:
			err = d.Ack(ctx, nil)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, ojs.ErrLeaseLost) &&
			!errors.Is(err, ojs.ErrTimeout) {
			s.Error(err)
		}
	}
}

// operate does what operators do, at random.
func (s *soak) operate(ctx context.Context, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	jobs, queues := s.eng.Jobs(), s.eng.Queues()
	pick := func(states ...ojs.State) (ids []string) {
		page, err := jobs.Page(ctx, inspect.Filter{States: states}, "", 20)
		if err != nil && ctx.Err() == nil {
			s.Error(err)
		}
		for _, job := range page.Jobs {
			ids = append(ids, job.ID)
		}
		return ids
	}
	for ctx.Err() == nil {
		var errs []error
		switch queue := []string{"a", "b", "c"}[r.IntN(3)]; r.IntN(9) {
		case 0:
			_, err := queues.Pause(ctx, queue)
			errs = append(errs, err)
		case 1:
			_, err := queues.Drain(ctx, queue)
			errs = append(errs, err)
		case 2, 3:
			_, err := queues.Resume(ctx, queue)
			errs = append(errs, err)
		case 4:
			for _, id := range pick(ojs.StateActive, ojs.StateRetryable) {
				errs = append(errs, s.eng.Cancel(ctx, id))
			}
		case 5:
			for _, id := range pick(ojs.StateAvailable, ojs.StateScheduled) {
				errs = append(errs, jobs.SetPriority(ctx, id, r.IntN(5)),
					jobs.Reschedule(ctx, id, time.Now().Add(time.Duration(r.IntN(20))*time.Millisecond)))
			}
		case 6:
			for _, id := range pick(ojs.StatePending) {
				errs = append(errs, jobs.Activate(ctx, id))
			}
		case 7:
			_, err := results(jobs.Apply(ctx, operate.Bulk{Do: operate.RetryJobs(ojs.WithMaxAttempts(1),
				ojs.WithRetry(ojs.RetryPolicy{OnExhaustion: ojs.ExhaustionDiscard})),
				On: inspect.Filter{DeadLettered: true, Queues: []string{queue}, Types: []string{"foreign"}}}))
			_, err2 := results(jobs.Apply(ctx, operate.Bulk{Do: operate.DeleteJobs(),
				On: inspect.Filter{Queues: []string{queue}}}))
			errs = append(errs, err, err2)
		case 8:
			stats, err := s.eng.Stats(ctx)
			if stats.Busy > stats.Slots {
				s.Errorf("%+v", stats)
			}
			errs = append(errs, err)
		}
		for _, err := range errs {
			if err != nil && ctx.Err() == nil && !errors.Is(err, ojs.ErrTransition) &&
				!errors.Is(err, ojs.ErrNotFound) && !errors.Is(err, ojs.ErrPruned) &&
				!errors.Is(err, ojs.ErrInvalid) {
				s.Error(err)
			}
		}
		wait(ctx, 5*time.Millisecond)
	}
}

// Everything at once. Nothing is lost, nothing is leaked, and the events of
// every job are a legal walk of the transition table.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two seconds, a minute with OJS_STORM")
	}
	store := memory.New()
	eng, err := engine.New[int](store, quiet, engine.WithConcurrency(8),
		engine.WithGracePeriod(5*time.Second),
		engine.WithQueueConfig("a",
			engine.QueueConfig{Weight: 3, MaxDepth: 500, Overflow: engine.OverflowDropOldest}),
		engine.WithQueueConfig("b", engine.QueueConfig{Weight: 2, Concurrency: 4, MaxDepth: 500}),
		engine.WithQueueConfig("c", engine.QueueConfig{Weight: 1, MaxDepth: 500,
			Overflow:  engine.OverflowBlock,
			RateLimit: ojs.RateLimit{Rate: ojs.Rate{Limit: 500, Per: 100 * time.Millisecond}}}),
		engine.WithQueueConfig("default", engine.QueueConfig{Weight: 1}))
	must(t, err)
	s := &soak{T: t, eng: eng, lives: make(map[string]ojs.State), events: make(map[event.Type]int)}
	eng.Handle("work", s.handle)
	sub := eng.Subscribe(engine.EventFilter{Buffer: 1_000_000})
	followed := make(chan struct{})
	go func() { defer close(followed); s.follow(sub) }()

	ctx, stop := context.WithTimeout(t.Context(), soakTime())
	defer stop()
	workers, dismiss := context.WithCancel(t.Context())
	defer dismiss()
	var load, staff sync.WaitGroup
	for i := range uint64(3) {
		load.Go(func() { s.produce(ctx, i) })
		load.Go(func() { s.operate(ctx, i) })
		staff.Go(func() { s.work(workers, fmt.Sprint("worker", i)) })
	}
	for ctx.Err() == nil {
		run, halt := context.WithTimeout(ctx, time.Duration(rand.IntN(1000))*time.Millisecond)
		if err := eng.Run(run); err != nil {
			t.Error(err)
		}
		halt()
	}
	load.Wait()

	// The load is over: what is left runs to its end.
	run, halt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(run) }()
	for _, q := range []string{"a", "b", "c"} {
		must1(eng.Queues().Resume(t.Context(), q))
	}
	pending := inspect.Filter{States: []ojs.State{ojs.StatePending}}
	for job, err := range eng.Jobs().List(t.Context(), pending) {
		must(t, err)
		if err := eng.Jobs().Activate(t.Context(), job.ID); err != nil &&
			!errors.Is(err, ojs.ErrTransition) && !errors.Is(err, ojs.ErrNotFound) &&
			!errors.Is(err, ojs.ErrPruned) {
			t.Error(err)
		}
	}
	idle := make(chan struct{})
	s.mu.Lock()
	if s.idle = idle; len(s.lives) == 0 {
		s.idle = nil
		close(idle)
	}
	s.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(time.Minute):
		s.mu.Lock()
		t.Errorf("%d jobs do not end", len(s.lives))
		for id := range s.lives {
			job, err := eng.Get(t.Context(), id)
			t.Logf("%s: %+v, %v", id, job, err)
			break
		}
		s.mu.Unlock()
	}
	dismiss()
	staff.Wait()
	halt()
	must(t, <-ended)
	sub.Close()
	<-followed
	stats, err := eng.Stats(t.Context())
	must(t, err)
	for state, n := range stats.Total {
		if !state.Terminal() && n > 0 {
			t.Errorf("%d jobs are left %s", n, state)
		}
	}
	t.Logf("%d jobs; events %v", s.jobs, s.events)
	must(t, store.Close())
}
