package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// mostClaimed is a hook that notes the largest number of jobs that one step asks for.
func mostClaimed(most *atomic.Int32) func(*storagetest.Call) {
	return func(c *storagetest.Call) {
		if step, ok := c.In.(storagetest.Step); ok && int32(step.Claim.Max) > most.Load() {
			most.Store(int32(step.Claim.Max))
		}
	}
}

// lineCount counts the lines that say that a job has started.
type lineCount struct {
	slog.Handler
	level slog.Leveler // nil: all of them
	n     atomic.Int32
}

func (c *lineCount) Enabled(_ context.Context, l slog.Level) bool {
	return c.level == nil || l >= c.level.Level()
}

func (c *lineCount) WithAttrs([]slog.Attr) slog.Handler { return c }

func (c *lineCount) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "job started" {
		c.n.Add(1)
	}
	return nil
}

// prefetched is how many rigs have claimed ahead. On a machine that is busy with other
// things some have not.
var prefetched atomic.Int32

// prefetching is an engine that claims ahead, and what its handlers have done. Jobs are
// numbers. Jobs from first on block.
type prefetching struct {
	*testing.T
	*engine.Engine[int]
	tickets []ojs.Ticket
	first   int

	handle  func(*prefetching, context.Context, int) error // what jobs from first on do; nil: block
	begun   chan int                                       // the numbers of jobs that block
	release chan struct{}                                  // lets them go

	mu        sync.Mutex // guards the fields below
	ran       map[int]int
	cancelled map[int]bool

	stop func() error
}

func newPrefetching(t *testing.T, jobs, first int, handle func(*prefetching, context.Context, int) error,
	opts ...engine.Option) *prefetching {
	var most atomic.Int32
	store := hooked(mostClaimed(&most)).Stepping()
	eng, err := engine.New[int](store, append([]engine.Option{quiet}, opts...)...)
	must(t, err)
	p := &prefetching{
		T: t, Engine: eng, first: first, handle: handle, begun: make(chan int, jobs),
		release: make(chan struct{}), ran: make(map[int]int), cancelled: make(map[int]bool),
	}
	eng.Handle("x", func(ctx context.Context, job *ojs.Job[int]) error {
		p.mu.Lock()
		p.ran[job.Args]++
		// one whose start was under way finds its context ended
		if p.cancelled[job.Args] && ctx.Err() == nil {
			t.Errorf("job %d runs although it was cancelled before", job.Args)
		}
		p.mu.Unlock()
		if job.Args < p.first {
			return nil
		}
		if p.handle != nil {
			return p.handle(p, ctx, job.Args)
		}
		p.begun <- job.Args
		select {
		case <-p.release:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return nil
	})
	for i := range jobs {
		ticket, err := eng.Enqueue(t.Context(), "x", i)
		must(t, err)
		p.tickets = append(p.tickets, ticket)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	p.stop = sync.OnceValue(func() error {
		cancel()
		err := <-ended
		if most.Load() > 1 {
			prefetched.Add(1)
		}
		return err
	})
	t.Cleanup(func() { must(t, p.stop()) })
	return p
}

// until waits until the states of the jobs are what is wanted.
func (p *prefetching) until(want map[ojs.State]int) {
	p.Helper()
	pace.Until(p.T, fmt.Sprintf("jobs %v", want), func() bool {
		stats, err := p.Stats(p.Context())
		must(p.T, err)
		return !slices.ContainsFunc(ojs.AllStates(), func(state ojs.State) bool {
			return stats.Total[state] != want[state]
		})
	})
}

// settles waits until that many jobs that block are active and no others are, and what
// does not block has run, but for what was behind one that does when that took the last
// slot.
func (p *prefetching) settles(workers int) {
	p.Helper()
	pace.Until(p.T, "the jobs that block are active, and no others", func() bool {
		stats, err := p.Stats(p.Context())
		must(p.T, err)
		done, active := stats.Total[ojs.StateCompleted], stats.Total[ojs.StateActive]
		return active == workers && done+active+stats.Total[ojs.StateAvailable] == len(p.tickets) &&
			done <= p.first && done > p.first-workers*32
	})
}

// once checks that each job has run once, at its first attempt.
func (p *prefetching) once() {
	p.Helper()
	for i, ticket := range p.tickets {
		if n := p.ran[i]; n != 1 {
			p.Errorf("job %d has run %d times", i, n)
		}
		job, err := p.Get(p.Context(), ticket.ID)
		must(p.T, err)
		if job.State != ojs.StateCompleted || job.Attempt != 1 {
			p.Errorf("job %d is %s at attempt %d", i, job.State, job.Attempt)
		}
	}
}

// Jobs that were claimed ahead wait for no handler that blocks while another slot is
// free, nor do outcomes that are not stored yet.
func TestPrefetch(t *testing.T) {
	prefetched.Store(0)
	const jobs, first = 2000, 1500
	t.Run("others go on", func(t *testing.T) {
		p := newPrefetching(t, jobs, jobs-1, nil, engine.WithConcurrency(4))
		<-p.begun
		p.until(map[ojs.State]int{ojs.StateCompleted: jobs - 1, ojs.StateActive: 1})
		close(p.release)
		p.until(map[ojs.State]int{ojs.StateCompleted: jobs})
		p.once()
	})
	t.Run("all slots are taken", func(t *testing.T) {
		const workers = 3
		p := newPrefetching(t, jobs, first, nil, engine.WithConcurrency(workers))
		for range workers {
			<-p.begun
		}
		p.settles(workers)
		if stats, err := p.Stats(t.Context()); err != nil || stats.Busy != workers ||
			len(p.Running()) != workers {
			t.Errorf("%d slots are busy, %d handlers run, %v", stats.Busy, len(p.Running()), err)
		}
		close(p.release)
		p.until(map[ojs.State]int{ojs.StateCompleted: jobs})
		p.once()
	})
	t.Run("logged", func(t *testing.T) {
		const workers = 3
		starts := new(lineCount)
		p := newPrefetching(t, jobs, first, nil, engine.WithConcurrency(workers),
			engine.WithLogger(slog.New(starts)))
		for range workers {
			<-p.begun
		}
		p.settles(workers) // the others have been given back
		close(p.release)
		p.until(map[ojs.State]int{ojs.StateCompleted: jobs})
		if n := starts.n.Load(); n != jobs {
			t.Errorf("%d of %d jobs are said to have started", n, jobs)
		}
	})
	t.Run("asleep", func(t *testing.T) {
		const workers = 3
		p := newPrefetching(t, jobs, first, func(_ *prefetching, ctx context.Context, i int) error {
			if i < first+workers {
				return handler.Sleep(ctx, 100*time.Millisecond)
			}
			return nil
		}, engine.WithConcurrency(workers))
		must(t, p.WaitIdle(t.Context()))
		stats, err := p.Stats(t.Context())
		must(t, err)
		if stats.Total[ojs.StateActive] != stats.Busy {
			t.Errorf("idle, with %d handlers, and %d jobs are active", stats.Busy,
				stats.Total[ojs.StateActive])
		}
		p.until(map[ojs.State]int{ojs.StateCompleted: jobs})
		p.once()
	})
	t.Run("cancelled", func(t *testing.T) {
		const workers = 2
		starts := new(lineCount)
		p := newPrefetching(t, jobs, first, nil, engine.WithConcurrency(workers),
			engine.WithLogger(slog.New(starts)))
		for range workers {
			<-p.begun
		}
		for i := jobs - 1; i >= first; i-- {
			if i%2 == 0 {
				must(t, p.Cancel(t.Context(), p.tickets[i].ID))
				p.mu.Lock()
				p.cancelled[i] = true
				p.mu.Unlock()
			}
		}
		close(p.release)
		p.until(map[ojs.State]int{ojs.StateCompleted: jobs - (jobs-first)/2,
			ojs.StateCancelled: (jobs - first) / 2})
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := int(starts.n.Load()); n != len(p.ran) {
			t.Errorf("%d jobs have run, and %d are said to have started", len(p.ran), n)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		const workers = 2
		p := newPrefetching(t, jobs, first, nil, engine.WithConcurrency(workers),
			engine.WithGracePeriod(time.Millisecond))
		for range workers {
			<-p.begun
		}
		must(t, p.stop())
		for i, ticket := range p.tickets {
			job, err := p.Get(t.Context(), ticket.ID)
			must(t, err)
			// Some that do not block may have been behind one that does.
			if done := i < first && p.ran[i] > 0; done != (job.State == ojs.StateCompleted) ||
				job.State == ojs.StateActive || job.Attempt != map[bool]int{true: 1}[done] {
				t.Errorf("job %d is %s at attempt %d", i, job.State, job.Attempt)
			}
		}
	})
	t.Run("paused", func(t *testing.T) {
		const workers = 4
		var begun, after atomic.Int32
		var paused atomic.Bool
		p := newPrefetching(t, jobs, first, func(*prefetching, context.Context, int) error {
			begun.Add(1)
			if paused.Load() {
				after.Add(1)
			}
			pace.Work(300 * time.Microsecond)
			return nil
		}, engine.WithConcurrency(workers))
		for begun.Load() == 0 {
			pace.Work(100 * time.Microsecond)
		}
		must1(p.Queues().Pause(t.Context(), "default"))
		paused.Store(true)
		must(t, p.WaitIdle(t.Context()))
		if n := after.Load(); n > workers { // which were between their claim and their handler
			t.Errorf("%d jobs have begun since the queue was paused", n)
		}
		paused.Store(false)
		must1(p.Queues().Resume(t.Context(), "default"))
		p.until(map[ojs.State]int{ojs.StateCompleted: jobs})
		p.once()
	})
	t.Run("a handler waits for a job behind it", func(t *testing.T) {
		p := newPrefetching(t, jobs, first, func(p *prefetching, ctx context.Context, i int) error {
			if i%250 == 125 {
				_, err := p.tickets[i+1].Wait(ctx)
				return err
			}
			return nil
		}, engine.WithConcurrency(2))
		p.until(map[ojs.State]int{ojs.StateCompleted: jobs})
		p.once()
	})
	if prefetched.Load() == 0 {
		t.Error("no engine has claimed ahead")
	}
}

// An engine claims one job at a time where it matters which comes next, or when.
func TestNoPrefetch(t *testing.T) {
	run := func(t *testing.T, opts ...engine.Option) int32 {
		var most atomic.Int32
		eng, err := engine.New[int](hooked(mostClaimed(&most)).Stepping(), append(opts, quiet)...)
		must(t, err)
		eng.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
		for i := range 1000 {
			_, err := eng.Enqueue(t.Context(), "x", i)
			must(t, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- eng.Run(ctx) }()
		must(t, eng.WaitIdle(ctx))
		stop()
		must(t, <-ended)
		return most.Load()
	}
	t.Run("one worker", func(t *testing.T) {
		if n := run(t, engine.WithConcurrency(1)); n != 1 {
			t.Errorf("claimed %d at once", n)
		}
	})
	t.Run("virtual clock", func(t *testing.T) {
		if n := run(t, engine.WithClock(clock.NewMock())); n != 1 {
			t.Errorf("claimed %d at once", n)
		}
	})
	t.Run("bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			if n := run(t, engine.WithConcurrency(4)); n != 1 {
				t.Errorf("claimed %d at once", n)
			}
		})
	})
	t.Run("no prefetch", func(t *testing.T) {
		if n := run(t, engine.WithConcurrency(4), engine.WithPrefetch(1)); n != 1 {
			t.Errorf("claimed %d at once", n)
		}
	})
	t.Run("limits", func(t *testing.T) {
		if n := run(t, engine.WithConcurrency(4),
			engine.WithQueueConfig("default", engine.QueueConfig{Concurrency: 3})); n != 0 {
			t.Errorf("claimed %d at once", n)
		}
	})
}
