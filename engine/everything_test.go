package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// mute is a storage whose only notices are those of the test.
type mute struct {
	storage.Storage
	tell func(storage.Notice)
}

func (s *mute) Notify(_ any, f func(storage.Notice)) (stop func()) {
	s.tell = f
	return func() {}
}

// A notice of Everything makes up for every notice that was lost.
func TestEverythingMakesUpForLostNotices(t *testing.T) {
	for name, tt := range map[string]struct {
		before, lost func(b *rig, other *engine.Engine[any]) error
		after        time.Duration
	}{
		"an available job": {lost: func(b *rig, other *engine.Engine[any]) error {
			_, err := other.Enqueue(b.ctx, "x", nil)
			return err
		}},
		"a scheduled job": {lost: func(b *rig, other *engine.Engine[any]) error {
			_, err := other.Enqueue(b.ctx, "x", nil, ojs.WithDelay(10*time.Second))
			return err
		}, after: 10 * time.Second},
		"a recurring entry": {lost: func(b *rig, other *engine.Engine[any]) error {
			return other.Cron().Set(b.ctx,
				cron.Entry{Name: "e", Schedule: "* * * * *", Job: ojs.NewDraft("x", nil)})
		}, after: time.Minute},
		"the end of a pause": {
			before: func(b *rig, other *engine.Engine[any]) error {
				_, err := other.Enqueue(b.ctx, "x", nil)
				if err == nil {
					_, err = other.Queues().PauseType(b.ctx, "x", "")
				}
				return err
			},
			lost: func(b *rig, other *engine.Engine[any]) error {
				_, err := other.Queues().ResumeType(b.ctx, "x")
				return err
			}},
	} {
		t.Run(name, func(t *testing.T) {
			store := &mute{Storage: memory.New()}
			inBubbleOn(t, store, func(b *rig) {
				b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
				other, err := engine.New[any](store.Storage, quiet)
				must(t, err)
				if tt.before != nil {
					must(t, tt.before(b, other))
				}
				b.run()
				b.advance(time.Millisecond)
				must(t, tt.lost(b, other))
				store.tell(storage.Notice{Everything: true})
				if b.advance(tt.after); len(b.times()) != 1 {
					t.Errorf("ran at %v", b.times())
				}
			})
		})
	}
}
