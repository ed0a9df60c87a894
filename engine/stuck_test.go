package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pace"
)

// ignores goes on even if its context ends. Its name stands in the reported stack.
func ignores(release chan struct{}) func(context.Context, *ojs.Job[any]) error {
	return func(context.Context, *ojs.Job[any]) error { <-release; return nil }
}

func TestStuckHandlers(t *testing.T) {
	t.Run("are reported with their stack, and keep their slots", func(t *testing.T) {
		var logged bytes.Buffer
		inBubble(t, func(b *rig) {
			release := make(chan struct{})
			b.Handle("stuck", ignores(release))
			b.handle("x", nothing)
			b.run()
			var ids []string
			for range 2 {
				ids = append(ids, b.enqueue("stuck").ID)
			}
			b.advance(0)
			for _, id := range ids {
				must(t, b.Cancel(b.ctx, id))
			}
			waits := b.enqueue("x").ID
			b.advance(9 * time.Second)
			if s, err := b.Stats(b.ctx); err != nil || s.Stuck != 0 {
				t.Errorf("%+v, %v", s, err)
			}
			b.advance(time.Hour)
			b.want(waits, ojs.StateAvailable, 0)
			s, err := b.Stats(b.ctx)
			if err != nil || s.Stuck != 2 || s.Busy != 2 {
				t.Errorf("%+v, %v", s, err)
			}
			if h := b.Health(b.ctx); h.Status != engine.Degraded {
				t.Errorf("%+v", h)
			}
			lines := strings.Split(strings.TrimSpace(logged.String()), "\n")
			for _, line := range lines {
				var l struct {
					Msg, Level string
					Attributes struct{ Stack string }
				}
				if err := json.Unmarshal([]byte(line), &l); err != nil || l.Level != "ERROR" ||
					!strings.Contains(l.Attributes.Stack, ".ignores.") ||
					strings.Contains(l.Attributes.Stack, "\n\n") {
					t.Errorf("line %s, %v", line, err)
				}
			}
			if len(lines) != 2 {
				t.Errorf("%d lines", len(lines))
			}
			close(release)
			b.advance(0)
			if s, _ := b.Stats(b.ctx); s.Stuck != 0 || s.Busy != 0 {
				t.Errorf("after they returned: %+v", s)
			}
			b.want(waits, ojs.StateCompleted, 1)
		}, engine.WithConcurrency(2), engine.WithGracePeriod(10*time.Second), engine.WithLogger(
			slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError}))))
	})
	t.Run("one that returns in the grace period is not stuck", func(t *testing.T) {
		var logged bytes.Buffer
		inBubble(t, func(b *rig) {
			b.Handle("slow", func(ctx context.Context, _ *ojs.Job[any]) error {
				<-ctx.Done()
				pace.Virtual(9 * time.Second)
				return nil
			})
			b.run()
			id := b.enqueue("slow").ID
			b.advance(0)
			must(t, b.Cancel(b.ctx, id))
			b.advance(time.Hour)
			if logged.Len() > 0 {
				t.Error(logged.String())
			}
		}, engine.WithGracePeriod(10*time.Second),
			engine.WithLogger(
				slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError}))))
	})
}
