package engine_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/policy"
)

// Neither a handler nor a worker begins a job whose deadline came during the claim. The
// worker gets the job behind it instead.
func TestDeadlineDuringTheClaim(t *testing.T) {
	for name, tt := range map[string]struct {
		option  ojs.Option
		attempt int
		want    string
	}{
		"P0.5 expires_at":    {ojs.WithTTL(time.Second), 0, policy.ErrorTypeExpired},
		"P0.5 total_timeout": {ojs.WithTotalTimeout(time.Second), 1, policy.ErrorTypeTotalTimeout},
	} {
		check := func(b *rig, s *gated, began func() []string) {
			synctest.Wait() // the claim of the new handler or worker has found nothing
			gate := make(chan struct{})
			s.hold <- gate
			late := b.enqueue("job", tt.option).ID
			pace.Virtual(time.Second)
			next := b.enqueue("job").ID
			close(gate)
			b.advance(time.Second)
			job := b.want(late, ojs.StateDiscarded, tt.attempt)
			if job.Error == nil || job.Error.Type != tt.want {
				b.t.Errorf("the late job ended with %+v", job.Error)
			}
			if got := began(); !slices.Equal(got, []string{next}) {
				b.t.Errorf("began %v of %s, which is late, and %s", got, late, next)
			}
		}
		t.Run(name+", a handler", func(t *testing.T) {
			onGated(t, func(b *rig, s *gated) {
				var began []string
				b.handle("job",
					func(_ context.Context,
						job *ojs.Job[any]) error {
						began = append(began, job.ID)
						return nil
					})
				check(b, s, func() []string { return began })
			})
		})
		t.Run(name+", a worker", func(t *testing.T) {
			onGated(t, func(b *rig, s *gated) {
				w := b.Worker("w", fetch.Config{})
				var began []string
				var fetch sync.WaitGroup
				fetch.Go(func() {
					d, err := w.Fetch(b.ctx)
					if err != nil {
						t.Error(err)
						return
					}
					began = append(began, d.Job.ID)
				})
				check(b, s, func() []string { fetch.Wait(); return began })
				if beat, err := w.Heartbeat(b.ctx); err != nil || !slices.Equal(beat.Held, began) ||
					len(beat.Lost) > 0 {
					t.Errorf("P0.6 the worker's heartbeat: %+v, %v", beat, err)
				}
			})
		})
	}
}
