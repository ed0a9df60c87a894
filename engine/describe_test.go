package engine_test

import (
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
)

// The caller may change a description: it is a copy.
func TestDescribeIsACopy(t *testing.T) {
	inBubble(t, func(b *rig) {
		d := b.Describe()
		d.Configs["q"].Defaults[0] = ojs.WithPriority(9)
		d.Queues[0] = "other"
		if job := must1(b.Get(b.ctx, b.enqueue("x", ojs.WithQueue("q")).ID)); job.Priority != 1 {
			t.Errorf("priority %d, want 1", job.Priority)
		}
		if name := b.Describe().Queues[0]; name != "q" {
			t.Errorf("the first queue is %s", name)
		}
	}, engine.WithQueueConfig("q", engine.QueueConfig{Defaults: []ojs.Option{ojs.WithPriority(1)}}))
}
