// Package enginetest tests jobs under virtual time: to the nanosecond, without sleeping,
// the same every time.
//
//	func TestRetries(t *testing.T) {
//		eng := enginetest.New[Email](t)
//		eng.Handle("email.send", func(ctx context.Context, job *ojs.Job[Email]) error { ... })
//		ticket := eng.MustEnqueue(ojs.NewDraft("email.send", Email{To: "a@b.c"}))
//		eng.Advance(10 * time.Second)
//		eng.RequireCompleted(ticket.ID)
//	}
//
// New makes an engine whose clock moves only when the test moves it. A handler must wait
// in handler.Sleep, so that the clock knows of it. Test runs a test in a testing/synctest
// bubble instead, where handlers may wait for anything: a channel, the end of their
// context, time.Sleep.
//
// NewFake records jobs and runs none, for code that enqueues. NewInline runs each job at
// its enqueue.
//
// Every engine has a memory storage of its own, so tests may be parallel; NewOn takes
// another storage. Its random numbers come from a fixed seed: jitter and ids are the same
// in every run of a test that does one thing after another. engine.WithRand gives another
// seed.
package enginetest

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// Start is what an engine's clock shows first.
var Start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// patience is the real time that an engine may take to become idle.
var patience = 10 * time.Second

// wall is the wall clock, for patience.
var wall = clock.New()

// Engine is an engine on a memory storage whose clock the test moves. Its own methods
// fail the test it was made for, and must be called on its goroutine.
type Engine[T any] struct {
	*engine.Engine[T]
	tb     testing.TB
	clock  *clock.Mock // nil in a bubble
	mode   mode
	opts   []engine.Option
	faults faults

	worked   uint64   // calls of Work
	returned sync.Map // inline: what handlers returned, by job id

	cancel context.CancelFunc
	ended  chan error // Run's result; nil: it was not called
}

type mode uint8

const (
	running mode = iota
	fake
	inline
)

var _ ojs.Enqueuer = (*Engine[any])(nil)

// New starts an engine. The end of the test stops it, and fails the test if a handler
// does not end with its context.
//
// Options override the defaults of a test: a fixed seed, no pruning, warnings and errors
// in the test's log. engine.WithClock has no effect.
func New[T any](tb testing.TB, opts ...engine.Option) *Engine[T] {
	tb.Helper()
	return start[T](tb, fresh(tb), virtual(), running, opts)
}

// NewOn is New on a storage of the caller's, which stays the caller's to close, after the
// test's end (testing.TB.Cleanup before NewOn). It is for programs that are to be tested
// on the storage that they run on, and for storages that are being written: see
// docs/storage.md. Times are virtual and exact there too; the calls of the storage take
// the time that they take.
func NewOn[T any](tb testing.TB, s storage.Storage, opts ...engine.Option) *Engine[T] {
	tb.Helper()
	return start[T](tb, s, virtual(), running, opts)
}

// NewFake makes an engine that runs no jobs: a job is validated, goes through the enqueue
// hooks and stays.
func NewFake[T any](tb testing.TB, opts ...engine.Option) *Engine[T] {
	tb.Helper()
	return start[T](tb, fresh(tb), virtual(), fake, opts)
}

// NewInline makes an engine that runs each job when it is enqueued, at once and only
// once, even if its options say otherwise. Enqueue and EnqueueMany return when the jobs
// have run, with the error that the first of their handlers returned, if any.
//
// This holds for jobs enqueued on the Engine itself. A handler that sleeps moves the
// clock, unless another handler enqueued its job.
func NewInline[T any](tb testing.TB, opts ...engine.Option) *Engine[T] {
	tb.Helper()
	return start[T](tb, fresh(tb), virtual(), inline,
		append([]engine.Option{engine.WithConcurrency(1000)}, opts...))
}

// Test runs f in a testing/synctest bubble with an engine on the bubble's clock. Time
// passes when every goroutine of the test waits, so handlers may wait for anything in the
// bubble. The rules of testing/synctest hold: a goroutine that waits for something
// outside of the bubble, such as a network, does not count as waiting.
func Test[T any](t *testing.T, f func(t *testing.T, eng *Engine[T]), opts ...engine.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := start[T](t, fresh(t), nil, running, opts)
		f(t, e)
	})
}

func virtual() *clock.Mock {
	c := clock.NewMock()
	c.Set(Start)
	return c
}

// fresh makes a memory storage for a test.
func fresh(tb testing.TB) storage.Storage {
	s := memory.New()
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func start[T any](tb testing.TB, s storage.Storage, c *clock.Mock, m mode, opts []engine.Option) *Engine[T] {
	tb.Helper()
	e := &Engine[T]{tb: tb, clock: c, mode: m}
	e.opts = append([]engine.Option{
		engine.WithRand(rand.New(rand.NewPCG(1, 1))),
		engine.WithRetention(engine.Retention{
			Completed: -1, Cancelled: -1, Discarded: -1, DeadLetters: -1, MaxFinished: -1, MaxDeadLetters: -1,
		}),
		engine.WithLogger(slog.New(slog.NewTextHandler(tb.Output(),
			&slog.HandlerOptions{Level: slog.LevelWarn}))),
	}, opts...)
	if c != nil {
		e.opts = append(e.opts, engine.WithClock(c))
	}
	e.Engine = e.make(s, nil, e.note, e.faults.inject)
	if m != fake {
		e.cancel, e.ended = run(e.Engine)
		tb.Cleanup(func() { e.stop(e.Engine, e.cancel, e.ended) })
	}
	return e
}

// make makes an engine like e's over another storage.
func (e *Engine[T]) make(s storage.Storage, more []engine.Option,
	ms ...handler.Middleware) *engine.Engine[T] {
	e.tb.Helper()
	eng, err := engine.New[T](s, append(slices.Concat(e.opts, more), engine.WithMiddleware(ms...))...)
	if err != nil {
		e.tb.Fatalf("enginetest: %v", err)
	}
	return eng
}

func run[T any](eng *engine.Engine[T]) (context.CancelFunc, chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	return cancel, ended
}

// stop stops an engine. Its grace period passes on the virtual clock while handlers run.
// Without any the clock hardly moves, or a call of the storage on a slow machine would
// seem to take seconds.
func (e *Engine[T]) stop(eng *engine.Engine[T], cancel context.CancelFunc, ended chan error) {
	e.tb.Helper()
	cancel()
	if e.clock == nil {
		if err := <-ended; err != nil {
			e.tb.Errorf("enginetest: the engine does not stop: %v", err)
		}
		return
	}
	late := wall.After(patience)
	for rounds := 1; ; rounds++ {
		select {
		case err := <-ended:
			if err != nil {
				e.tb.Errorf("enginetest: the engine does not stop: %v", err)
			}
			return
		case <-late:
			e.tb.Errorf("enginetest: the engine does not stop\n%s", blocked(eng))
			return
		case <-wall.After(2 * time.Millisecond):
			if len(eng.Running()) > 0 || rounds%250 == 0 {
				e.clock.Add(time.Second)
			}
		}
	}
}

// Enqueue is engine.Engine.Enqueue.
func (e *Engine[T]) Enqueue(ctx context.Context, jobType string, args T,
	opts ...ojs.Option) (ojs.Ticket, error) {
	tickets, err := e.EnqueueMany(ctx, ojs.NewDraft(jobType, args, opts...))
	switch {
	case len(tickets) == 0:
		return ojs.Ticket{}, err
	case err == nil && tickets[0].Dropped:
		return ojs.Ticket{}, ojs.ErrDropped
	}
	return tickets[0], err
}

// EnqueueMany is engine.Engine.EnqueueMany.
func (e *Engine[T]) EnqueueMany(ctx context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error) {
	if e.mode == inline {
		return e.enqueueInline(ctx, drafts)
	}
	return e.Engine.EnqueueMany(ctx, drafts...)
}

// MustEnqueue enqueues, or fails the test.
func (e *Engine[T]) MustEnqueue(d ojs.Draft) ojs.Ticket {
	e.tb.Helper()
	tickets, err := e.EnqueueMany(context.Background(), d)
	if err == nil && tickets[0].Dropped {
		err = ojs.ErrDropped
	}
	if err != nil {
		e.tb.Fatalf("enginetest: enqueue of %s: %v", d.Type(), err)
	}
	return tickets[0]
}
