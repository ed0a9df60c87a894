package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// A call of the storage that hangs at the start of Run does not keep Run from returning
// at the end of its context. A later Run works.
func TestStopDuringTheStart(t *testing.T) {
	for name, method := range map[string]string{
		"P1.8 the pauses": "Documents value",
		"P1.8 the limits": "SetQueueState",
	} {
		t.Run(name, func(t *testing.T) {
			store := limitHooked{hooked(nil)}
			inBubbleOn(t, store, func(b *rig) {
				release := make(chan struct{})
				store.OnCall(hangs(method, release))
				b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
				b.run()
				b.stop()
				b.stop = nil
				b.advance(2 * time.Second)
				select {
				case err := <-b.ended:
					if !errors.Is(err, engine.ErrUnanswered) {
						t.Errorf("Run: %v", err)
					}
				default:
					t.Fatal("Run has not returned")
				}
				close(release)
				b.run()
				id := b.enqueue("x").ID
				b.advance(time.Second)
				b.want(id, ojs.StateCompleted, 1)
			}, engine.WithQueueConfig("default", engine.QueueConfig{GlobalConcurrency: 5}))
		})
	}
}

// limitHooked is a Faulty that calls SetQueueState, which has a hook, before SetLimit.
type limitHooked struct{ *storagetest.Faulty }

func (s limitHooked) SetLimit(ctx context.Context, now time.Time, name storage.LimitName,
	bounds ojs.RateLimit, until time.Time) error {
	if _, err := s.SetQueueState(ctx, "hook", ojs.QueueActive); err != nil {
		return err
	}
	return s.Faulty.SetLimit(ctx, now, name, bounds, until)
}

// A stop names the jobs whose outcomes the storage has failed to take.
func TestStopSaysWhatIsNotStored(t *testing.T) {
	for name, takes := range map[string]time.Duration{
		"P1.8 of a handler that returns":  0,
		"P1.8 of a handler that goes on":  time.Hour,
		"P1.8 of a handler that is ended": time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			store := &storagetest.Faulty{Storage: memory.New()}
			inBubbleOn(t, store, func(b *rig) {
				done := make(chan struct{})
				b.handle("x", func(context.Context, *ojs.Job[any]) error {
					select {
					case <-time.After(takes):
					case <-done:
					}
					return nil
				})
				store.OnCall(func(c *storagetest.Call) {
					if c.Method == "Settle" {
						c.Err = errStorage
					}
				})
				b.run()
				id := b.enqueue("x").ID
				b.advance(0)
				b.stop()
				b.stop = nil
				err := <-b.ended
				close(done)
				if !errors.Is(err, engine.ErrUnanswered) || !strings.Contains(err.Error(), id) {
					t.Errorf("Run: %v, of job %s", err, id)
				}
			}, engine.WithGracePeriod(time.Second/2))
		})
	}
}

// While a stop waits for a call of the start, no job is claimed.
func TestNoClaimAfterTheEnd(t *testing.T) {
	store := &uncounted{Storage: memory.New()}
	inBubbleOn(t, store, func(b *rig) {
		release := make(chan struct{})
		store.count = func() { <-release }
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		b.run()
		id := b.enqueue("x").ID
		b.advance(0)
		b.want(id, ojs.StateCompleted, 1)
		b.stop()
		b.stop = nil
		b.advance(0)
		id = b.enqueue("x").ID
		b.advance(0)
		b.want(id, ojs.StateAvailable, 0)
		close(release)
		if err := <-b.ended; err != nil {
			t.Error(err)
		}
	})
}

// uncounted has a quarantine of which only the count is asked.
type uncounted struct {
	storage.Storage
	storage.Quarantiner
	count func()
}

func (s *uncounted) CountQuarantined(context.Context) (int, error) { s.count(); return 0, nil }

// An engine that runs without handlers claims once its first handler is there, with no
// other look at the storage to help it.
func TestFirstHandlerWakesTheEngine(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.run()
		b.advance(time.Second)
		id := b.enqueue("x").ID
		b.advance(0)
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		b.advance(0)
		b.want(id, ojs.StateCompleted, 1)
	})
}

// A storage that is closed ends a Run whose last call of the start hangs.
func TestClosedDuringTheStart(t *testing.T) {
	faulty := &storagetest.Faulty{Storage: memory.New()}
	faulty.OnCall(func(c *storagetest.Call) {
		if c.Method == "Claim" {
			c.Err = ojs.ErrClosed
		}
	})
	store := &uncounted{Storage: faulty}
	inBubbleOn(t, store, func(b *rig) {
		release := make(chan struct{})
		store.count = func() { <-release }
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		b.run()
		b.advance(2 * time.Second)
		select {
		case err := <-b.ended:
			if !errors.Is(err, ojs.ErrClosed) || !errors.Is(err, engine.ErrUnanswered) {
				t.Errorf("Run: %v", err)
			}
		default:
			t.Error("Run has not returned")
		}
		close(release)
		b.stop()
		b.stop = nil
	})
}

// A call of the start that panics ends Run with an error, and not the program.
func TestPanicDuringTheStart(t *testing.T) {
	store := &uncounted{Storage: memory.New(), count: func() { panic("no quarantine") }}
	inBubbleOn(t, store, func(b *rig) {
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		b.run()
		b.advance(0)
		select {
		case err := <-b.ended:
			if err == nil || !strings.Contains(err.Error(), "panicked: no quarantine") {
				t.Errorf("Run: %v", err)
			}
		default:
			t.Error("Run has not returned")
		}
		b.stop()
		b.stop = nil
	})
}

// An outcome of a job that another process has deleted is none that a stop gives up.
func TestStopWithoutAJob(t *testing.T) {
	store := &storagetest.Faulty{Storage: memory.New()}
	inBubbleOn(t, store, func(b *rig) {
		b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return nil })
		b.run()
		b.enqueue("x")
		b.advance(0)
		store.OnCall(func(c *storagetest.Call) {
			if c.Method == "Settle" {
				c.Err = ojs.ErrNotFound
			}
		})
		b.stop()
		b.stop = nil
		b.advance(time.Minute)
		if err := <-b.ended; err != nil {
			t.Error(err)
		}
	}, engine.WithGracePeriod(time.Second/2))
}

// atLine calls a function when a line is logged.
type atLine struct {
	slog.Handler
	line string
	f    func()
}

func (atLine) Enabled(context.Context, slog.Level) bool { return true }

func (a atLine) WithAttrs([]slog.Attr) slog.Handler { return a }

func (a atLine) Handle(_ context.Context, r slog.Record) error {
	if r.Message == a.line {
		a.f()
	}
	return nil
}

// A job that another engine enqueues while an engine starts is noticed, also when the
// storage has been looked at before.
func TestEnqueuedWhileAnotherStarts(t *testing.T) {
	store := memory.New()
	other, err := engine.New[int](store, quiet)
	must(t, err)
	inVain := make(chan struct{}, 1) // a claim has found no job
	looked := &storagetest.Faulty{Storage: store}
	looked.OnCall(func(c *storagetest.Call) {
		if c.Method != "Claim" {
			return
		}
		if c.Do(); len(c.Out.([]storage.Record)) == 0 {
			select {
			case inVain <- struct{}{}:
			default:
			}
		}
	})
	log := slog.New(atLine{line: "engine started", f: func() {
		<-inVain
		_, err := other.Enqueue(t.Context(), "x", 1)
		must(t, err)
	}})
	eng, err := engine.New[int](looked.Stepping(), engine.WithLogger(log))
	must(t, err)
	ran := make(chan struct{})
	eng.Handle("x", func(context.Context, *ojs.Job[int]) error { close(ran); return nil })
	started(t, eng)
	select {
	case <-ran:
	case <-time.After(time.Minute):
		t.Error("nobody has noticed the job")
	}
}
