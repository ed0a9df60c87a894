package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// hangs is a hook in which the calls of a method wait for a release.
func hangs(method string, release <-chan struct{}) func(*storagetest.Call) {
	return func(call *storagetest.Call) {
		if call.Method == method {
			<-release
		}
	}
}

// An engine reports also while a call of one of its chores hangs: no other engine takes
// it for dead.
func TestReportsWhileAChoreHangs(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		ctx := context.Background()
		slow, release := c.nodes[0], make(chan struct{})
		ticket, err := slow.Enqueue(ctx, "sleep", nil, ojs.WithLease(time.Hour))
		must(t, err)
		c.advance(time.Second)
		slow.net.OnCall(hangs("Due", release))
		_, err = slow.Enqueue(ctx, "sleep", nil, ojs.WithDelay(time.Second))
		must(t, err)
		c.advance(50 * time.Second)
		if job := c.get(ticket.ID); job.State != ojs.StateActive || job.Attempt != 1 {
			t.Errorf("the job of an engine that lives is %s in attempt %d", job.State, job.Attempt)
		}
		close(release)
	})
}

// An engine whose chore hangs takes orders.
func TestOrderWhileAChoreHangs(t *testing.T) {
	store := hooked(nil)
	inBubbleOn(t, store, func(b *rig) {
		b.run()
		release := make(chan struct{})
		store.OnCall(hangs("Due", release))
		b.enqueue("a", ojs.WithDelay(time.Second))
		other, err := engine.New[any](b.store, quiet) // as of another process
		must(t, err)
		must(t, other.Workers().Quiet(b.ctx, b.nodes()[0].ID))
		b.advance(20 * time.Second)
		if !b.nodes()[0].Quiet {
			t.Error("it is not quiet")
		}
		close(release)
	}, reports)
}

// The last report of a run is made also if a chore hangs, and a last report that hangs is
// no error of Run.
func TestLastReport(t *testing.T) {
	for _, method := range []string{"Due", "PutDocuments value"} {
		t.Run(method, func(t *testing.T) {
			store := hooked(nil)
			inBubbleOn(t, store, func(b *rig) {
				b.run()
				id := b.nodes()[0].ID
				release := make(chan struct{})
				store.OnCall(hangs(method, release))
				b.enqueue("a", ojs.WithDelay(time.Second))
				b.advance(2 * time.Second)
				b.stop()
				b.stop = nil
				err := <-b.ended
				if wantErr := method == "Due"; wantErr != isErr(err, engine.ErrUnanswered) {
					t.Errorf("Run: %v", err)
				}
				if wantNode := method != "Due"; wantNode != hasNode(b, id) {
					t.Errorf("the node is there: %v", !wantNode)
				}
				close(release)
			}, reports)
		})
	}
}

func hasNode(b *rig, id string) bool {
	for _, n := range b.nodes() {
		if n.ID == id {
			return true
		}
	}
	return false
}

// The first report of a run is made before its first claim. A stop does not wait for it.
func TestFirstReport(t *testing.T) {
	store := hooked(nil)
	inBubbleOn(t, store, func(b *rig) {
		b.handle("a", func(context.Context, *ojs.Job[any]) error { return nil })
		var reported, claimed atomic.Bool
		release := make(chan struct{})
		store.OnCall(func(call *storagetest.Call) {
			switch call.Method {
			case "PutDocuments value":
				<-release
				reported.Store(true)
			case "Claim", "SettleAndClaim":
				claimed.Store(true)
				if !reported.Load() {
					t.Error("a claim before the first report")
				}
			}
		})
		ctx, stop := context.WithCancel(b.ctx)
		go func() { b.ended <- b.Run(ctx) }()
		b.advance(time.Second)
		stop()
		must(t, <-b.ended)
		if b.elapsed() > 10*time.Second {
			t.Errorf("the stop took %v", b.elapsed())
		}
		close(release)
		b.advance(time.Second)
		reported.Store(false)
		b.run()
		if !claimed.Load() {
			t.Error("no claim")
		}
	}, reports)
}

// A report of an earlier Run that hangs does not take away what the next Run reports.
func TestRunAfterAHungReport(t *testing.T) {
	store := hooked(nil)
	inBubbleOn(t, store, func(b *rig) {
		var began atomic.Bool
		release := make(chan struct{})
		store.OnCall(func(call *storagetest.Call) {
			if call.Method == "PutDocuments value" && !began.Swap(true) {
				<-release
			}
		})
		ctx, stop := context.WithCancel(b.ctx)
		go func() { b.ended <- b.Run(ctx) }()
		b.advance(time.Second)
		stop()
		must(t, <-b.ended)
		b.run()
		close(release)
		b.advance(time.Second)
		if nodes, err := b.Jobs().Nodes(b.ctx); err != nil || len(nodes) != 1 {
			t.Errorf("%d nodes, %v", len(nodes), err)
		}
	}, reports)
}
