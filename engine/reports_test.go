package engine_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
)

var reports = engine.WithReports(engine.Reports{Every: 10 * time.Second, Version: "v1.2.3"})

// nodes returns the nodes of the storage.
func (b *rig) nodes() []inspect.Node {
	b.t.Helper()
	list, err := b.Jobs().Nodes(b.ctx)
	must(b.t, err)
	return list
}

func TestNodes(t *testing.T) {
	inBubble(t, func(b *rig) {
		release := make(chan struct{})
		b.handle("a", func(ctx context.Context, _ *ojs.Job[any]) error { <-release; return nil })
		other, err := engine.New[any](b.store, quiet) // as of another process
		must(t, err)
		b.run()
		id := b.enqueue("a").ID
		b.advance(11 * time.Second)
		list := b.nodes()
		if len(list) != 1 {
			t.Fatalf("%+v", list)
		}
		n := list[0]
		if n.PID != os.Getpid() || n.Version != "v1.2.3" || n.Busy != 1 ||
			n.Slots != engine.DefaultConcurrency || len(n.Types) != 1 || n.Types[0] != "a" || n.Quiet ||
			!n.Started.Equal(b.start) ||
			!n.Seen.Equal(b.start.Add(10*time.Second)) {
			t.Errorf("%+v", n)
		}
		if len(n.Running) != 1 || n.Running[0].ID != id || !n.Running[0].Since.Equal(b.start) {
			t.Errorf("runs %+v", n.Running)
		}
		if len(n.Running) == 1 && n.Running[0].Stack != "" {
			t.Errorf("a report has the stack %q", n.Running[0].Stack)
		}
		stacks, err := other.Workers().Stacks(b.ctx, n.ID)
		must(t, err)
		if len(stacks) != 1 || stacks[0].ID != id || stacks[0].Stack == "" {
			t.Errorf("%+v", stacks)
		}
		must(t, other.Workers().Quiet(ojs.WithActor(b.ctx, "ann"), n.ID))
		b.advance(10 * time.Second)
		held := b.enqueue("a").ID
		b.advance(10 * time.Second)
		b.want(held, ojs.StateAvailable, 0)
		if !b.nodes()[0].Quiet {
			t.Error("it is not quiet")
		}
		must(t, other.Workers().Resume(b.ctx, n.ID))
		b.advance(10 * time.Second)
		b.want(held, ojs.StateActive, 1)
		if err := other.Workers().Quiet(b.ctx, "none"); !errors.Is(err, ojs.ErrNotFound) {
			t.Errorf("no node: %v", err)
		}
		close(release)
		must(t, other.Workers().Terminate(b.ctx, n.ID))
		if err := <-b.ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		b.stop()
		b.stop = nil
		if list := b.nodes(); len(list) != 0 {
			t.Errorf("after its end: %+v", list)
		}
	}, reports)
}

// A node that reports no more is gone after three reports.
func TestNodeGone(t *testing.T) {
	store := hooked(nil)
	inBubbleOn(t, store, func(b *rig) {
		b.run()
		synctest.Wait()
		store.OnCall(breaks("PutDocuments value", false, nil))
		b.advance(29 * time.Second)
		if n := len(b.nodes()); n != 1 {
			t.Errorf("%d nodes", n)
		}
		b.advance(time.Second)
		if n := len(b.nodes()); n != 0 {
			t.Errorf("%d nodes", n)
		}
		store.OnCall(nil)
		b.advance(10 * time.Second)
		if n := len(b.nodes()); n != 1 {
			t.Errorf("%d nodes", n)
		}
	}, reports)
}

func TestReportsRefused(t *testing.T) {
	_, err := engine.New[any](memory.New(), engine.WithReports(engine.Reports{Every: time.Millisecond}))
	if !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("too often: %v", err)
	}
}

// An idle engine writes no history, also if its jobs have failed before.
func TestIdleEngineWritesNoHistory(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("a", func(_ context.Context, job *ojs.Job[any]) error {
			if job.Attempt == 1 {
				return ojs.RetryAfter(0, errors.New("again"))
			}
			return ojs.Permanent(errors.New("no"))
		})
		b.handle("b", func(context.Context, *ojs.Job[any]) error { return nil })
		b.run()
		b.enqueue("a")
		b.enqueue("b")
		b.advance(time.Hour)
		for _, width := range []time.Duration{10 * time.Second, time.Minute} {
			list, err := b.History(b.ctx, b.start, time.Now(), width)
			must(t, err)
			if len(list) != 1 {
				t.Errorf("%d buckets of %s", len(list), width)
			}
		}
	}, reports)
}

// The history has what all engines have counted, in three widths, for their times.
func TestHistory(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("a", func(context.Context, *ojs.Job[any]) error {
			pace.Virtual(time.Second)
			return nil
		})
		other, err := engine.New[any](b.store, quiet, reports)
		must(t, err)
		other.Handle("a", func(context.Context, *ojs.Job[any]) error { return nil })
		b.run()
		for range 3 {
			b.enqueue("a")
		}
		b.advance(35 * time.Second)
		b.halt()
		_, err = other.Enqueue(b.ctx, "a", 1)
		must(t, err)
		b.Engine = other
		b.run()
		b.advance(2 * time.Minute)
		at := func(width time.Duration, from time.Time) (n []uint64) {
			list, err := b.History(b.ctx, from, time.Now(), width)
			must(t, err)
			for i, bucket := range list {
				ordered := i == 0 || bucket.Start.After(list[i-1].Start)
				if bucket.Width != width || len(bucket.Meters) != 1 || !ordered {
					t.Errorf("%+v", bucket)
				}
				m := bucket.Meters[0]
				if n = append(n, m.Completed); m.Run.Count != m.Completed || m.Type != "a" {
					t.Errorf("%+v", m)
				}
			}
			return n
		}
		// The second may be apart: it has the enqueue that the first report of a run saw.
		if n := at(10*time.Second, b.start); n[0] != 3 || n[len(n)-1] != 1 || len(n) > 3 {
			t.Errorf("10 s: %v", n)
		}
		if n := at(time.Minute, b.start); len(n) != 1 || n[0] != 4 {
			t.Errorf("1 min: %v", n)
		}
		if n := at(time.Hour, b.start); len(n) != 1 || n[0] != 4 {
			t.Errorf("1 h: %v", n)
		}
		list, err := b.History(b.ctx, b.start, time.Now(), 0)
		must(t, err)
		if len(list) < 2 || list[0].Width != 10*time.Second ||
			list[0].Meters[0].Run.Quantile(0.5) < time.Second/2 {
			t.Errorf("%+v", list)
		}
		b.advance(3 * time.Hour)
		b.enqueue("a")
		b.advance(time.Minute)
		if n := at(10*time.Second, b.start); len(n) != 1 || n[0] != 1 {
			t.Errorf("10 s, later: %v", n)
		}
		if n := at(time.Minute, b.start); len(n) != 2 {
			t.Errorf("1 min, later: %v", n)
		}
		if n := at(time.Minute, b.start.Add(time.Hour)); len(n) != 1 {
			t.Errorf("1 min, since: %v", n)
		}
		if _, err := b.History(b.ctx, b.start, time.Now(), time.Second); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("no width: %v", err)
		}
	}, reports)
}

// A refused report loses no counts, though their buckets have been closed meanwhile.
func TestRefusedReportLosesNoCounts(t *testing.T) {
	store := hooked(nil)
	inBubbleOn(t, store, func(b *rig) {
		b.handle("a", func(context.Context, *ojs.Job[any]) error { return nil })
		b.run()
		store.OnCall(breaks("PutDocuments value", false, nil))
		b.enqueue("a")
		b.advance(3 * time.Minute)
		store.OnCall(nil)
		b.advance(10 * time.Second)
		buckets, err := b.History(b.ctx, b.start, time.Now(), 10*time.Second)
		must(t, err)
		n := uint64(0)
		for _, bucket := range buckets {
			for _, m := range bucket.Meters {
				n += m.Completed
			}
		}
		if n != 1 {
			t.Errorf("%d completed jobs in %d buckets, want 1", n, len(buckets))
		}
	}, reports)
}
