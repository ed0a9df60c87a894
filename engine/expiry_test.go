package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

// P0.5: a job that expires while its claim is under way does not begin.
func TestExpiresDuringTheClaim(t *testing.T) {
	onGated(t, func(b *rig, s *gated) {
		began := 0
		b.handle("job", func(context.Context, *ojs.Job[any]) error { began++; return nil })
		gate := make(chan struct{})
		s.hold <- gate
		id := b.enqueue("job", ojs.WithTTL(time.Second)).ID
		time.Sleep(time.Second)
		close(gate)
		b.advance(time.Second)
		job := b.want(id, ojs.StateDiscarded, 0)
		if began > 0 || job.Error == nil || job.Error.Type != ojs.TypeExpired {
			t.Errorf("P0.5 the handler began %d times, and the job ended with %+v", began, job.Error)
		}
	})
}
