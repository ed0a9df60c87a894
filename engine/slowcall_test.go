package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// A slow call of maintenance costs no attempt its lease: it is renewed before what is due
// is looked for.
func TestSlowCallKeepsLeases(t *testing.T) {
	slow := &storagetest.Faulty{Storage: memory.New()}
	inBubbleOn(t, slow, func(b *rig) {
		b.handle("long", func(ctx context.Context, _ *ojs.Job[any]) error {
			select {
			case <-time.After(4 * time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		b.run()
		id := b.enqueue("long").ID
		b.enqueue("elsewhere", ojs.WithTimeout(300*time.Millisecond))
		must1(b.Worker("w", fetch.Config{Types: []string{"elsewhere"}}).Fetch(b.ctx))
		var once atomic.Bool
		slow.OnCall(func(c *storagetest.Call) {
			if c.Method == "Get" && !once.Swap(true) { // of the timeout
				<-time.After(1500 * time.Millisecond)
			}
		})
		b.advance(10 * time.Second)
		b.want(id, ojs.StateCompleted, 1)
	}, engine.WithClaimLease(time.Second))
}

// A claim that fails has no Wait look at the storage, which may fail for it, too.
func TestWaitWhileClaimsFail(t *testing.T) {
	faulty := &storagetest.Faulty{Storage: memory.New()}
	inBubbleOn(t, faulty, func(b *rig) {
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		b.run()
		ticket := b.enqueue("x", ojs.WithDelay(5*time.Second))
		waited := make(chan error, 1)
		go func() { _, err := ticket.Wait(b.ctx); waited <- err }()
		b.advance(time.Second)
		faulty.OnCall(func(c *storagetest.Call) {
			if c.Method == "Claim" || c.Method == "Get" {
				c.Err = errStorage
			}
		})
		b.enqueue("x")
		b.advance(50 * time.Millisecond)
		faulty.OnCall(nil)
		b.advance(10 * time.Second)
		must(b.t, <-waited)
	})
}
