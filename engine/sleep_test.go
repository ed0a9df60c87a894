package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// The clean stop that Run documents: WaitIdle, then the end of ctx.
func TestStopAfterWaitIdleLosesNothing(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context) error{
		"handler.Sleep": func(ctx context.Context) error { return handler.Sleep(ctx, time.Hour) },
		"time.Sleep":    func(context.Context) error { pace.Virtual(time.Hour); return nil },
	} {
		t.Run("P1.8 "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.Handle("x", func(ctx context.Context, _ *ojs.Job[any]) error { return f(ctx) })
				b.run()
				id := b.enqueue("x", ojs.WithTimeout(2*time.Hour)).ID
				b.advance(time.Second)
				must(t, b.WaitIdle(b.ctx))
				b.halt()
				b.want(id, ojs.StateCompleted, 1)
			})
		})
	}
	t.Run("P1.8 a storage that does not answer is not idle", func(t *testing.T) {
		f := &storagetest.Faulty{Storage: memory.New()}
		inBubbleOn(t, f, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
			id := b.enqueue("x").ID
			f.OnCall(breaks("Claim", false, before(b, time.Minute)))
			b.run()
			must(t, b.WaitIdle(b.ctx))
			b.halt()
			b.want(id, ojs.StateCompleted, 1)
		})
	})
}

func TestStopTellsWhatItGivesBack(t *testing.T) {
	var out lockedBuffer
	log := engine.WithLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	t.Run("P1.8 on a storage that is not durable", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x",
				func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return context.Cause(ctx) })
			b.handle("y",
				func(ctx context.Context,
					_ *ojs.Job[any]) error {
					<-ctx.Done()
					pace.Virtual(time.Hour)
					return nil
				})
			b.handle("z", func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return nil })
			b.run()
			first := b.enqueue("x").ID
			for range 30 {
				b.enqueue("x")
			}
			b.enqueue("y")
			b.enqueue("z")
			synctest.Wait()
			b.stop()
			b.stop = nil
			<-b.ended
			got := out.String()
			if strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "jobs=32") ||
				!strings.Contains(got, first) {
				t.Errorf("logged: %s", got)
			}
			if n := strings.Count(got, first[:8]); n > 20 {
				t.Errorf("%d ids", n)
			}
			b.advance(2 * time.Hour)
		}, log, engine.WithConcurrency(50))
	})
	for name, work := range map[string]func(b *rig){
		"nothing was given back": func(b *rig) { b.enqueue("z"); synctest.Wait() },
		"what waits had not begun, and Run's documentation says so": func(b *rig) {
			b.enqueue("z", ojs.WithDelay(time.Hour))
		},
	} {
		t.Run("P1.8 "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("z", func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return nil })
				b.run()
				out.b.Reset()
				work(b)
				b.halt()
				if got := out.String(); got != "" {
					t.Errorf("logged: %s", got)
				}
			}, log)
		})
	}
}

// A sleep that does not end with the attempt's context counts as one until it ends.
func TestSleepBeyondTheContext(t *testing.T) {
	for name, ms := range map[string][]handler.Middleware{
		"P0.5 the timeout passes":                 nil,
		"P0.5 the timeout of a middleware passes": {handler.Timeout(time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			mock := clock.NewMock()
			store := memory.New()
			defer store.Close()
			eng, err := engine.New[any](store, quiet, engine.WithClock(mock),
				engine.WithGracePeriod(time.Second))
			must(t, err)
			woke := make(chan time.Time, 1)
			eng.Handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
				err := handler.Sleep(context.WithoutCancel(ctx), time.Hour)
				woke <- mock.Now()
				return err
			}, handler.WithMiddleware(ms...))
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- eng.Run(ctx) }()
			start := mock.Now()
			_, err = eng.Enqueue(ctx, "x", nil, ojs.WithTimeout(time.Minute), ojs.WithMaxAttempts(1))
			must(t, err)
			for mock.Now().Before(start.Add(2 * time.Hour)) {
				patience, cancel := context.WithTimeout(ctx, time.Minute)
				if err := eng.WaitIdle(patience); err != nil {
					t.Fatalf("at %v: %v\n%s", mock.Now().Sub(start), err, fmt.Sprint(eng.Running()))
				}
				cancel()
				if next, some := eng.NextWake(); some {
					mock.Set(next)
				} else {
					break
				}
			}
			if at := <-woke; !at.Equal(start.Add(time.Hour)) {
				t.Errorf("woke after %v", at.Sub(start))
			}
			stop()
			must(t, <-ended)
		})
	}
}
