package storagetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// Storages that lose notices, or send the wrong ones.
var _ = register([]fault{
	{"nobody told", "notify-1 settleclaim-11 settleclaim-12 unclaim-5 notify-2 notify-3 notify-4 notify-8 notify-5 notify-6 notify-7", func(b *broken) {
		b.notify = func(*broken, any, func(storage.Notice)) func() { return func() {} }
	}},
	{"ends not told", "notify-1 settleclaim-11 settleclaim-12 notify-3 notify-8 notify-7",
		changeNotice(func(n *storage.Notice) { n.Ended = nil })},
	{"due times not told", "notify-1 settleclaim-11 notify-8 notify-6",
		changeNotice(func(n *storage.Notice) { n.Due = time.Time{} })},
	{"available jobs not told", "notify-1 settleclaim-11 unclaim-5 notify-4 notify-5 notify-6",
		changeNotice(func(n *storage.Notice) { n.Available = false })},
	{"claims told without their versions", "notify-2 settleclaim-11", changeNotice(func(n *storage.Notice) {
		for i := range n.Taken {
			n.Taken[i].Version = 0
		}
	})},
	{"every claim told as cancelled", "notify-2", changeNotice(func(n *storage.Notice) {
		for i := range n.Taken {
			n.Taken[i].Cause = ojs.ErrCancelled
		}
	})},
	{"callers told of their own calls", "notify-3 settleclaim-12 notify-7", func(b *broken) {
		b.notify = func(b *broken, _ any, f func(storage.Notice)) func() {
			return b.Storage.Notify(new(int), f)
		}
	}},
	{"told after stop", "notify-4", func(b *broken) {
		b.notify = func(b *broken, self any, f func(storage.Notice)) func() {
			b.Storage.Notify(self, f)
			return func() {}
		}
	}},
	{"changes of recurring entries not told", "notify-5",
		changeNotice(func(n *storage.Notice) { n.Crons = false })},
	{"resumed queues not told", "notify-5", changeNoticeOf(func(b *broken, during func() (end func())) {
		b.state = func(b *broken, ctx context.Context, q string, to ojs.QueueState) (ojs.QueueState, error) {
			defer during()()
			return b.Storage.SetQueueState(ctx, q, to)
		}
	}, func(n *storage.Notice) { n.Available = false })},
	{"jobs that a change makes available not told", "notify-6",
		changeNoticeOf(duringSettle, func(n *storage.Notice) { n.Available = false })},
	{"times that a change has brought forward not told", "notify-6 notify-8",
		changeNoticeOf(duringSettle, func(n *storage.Notice) { n.Due = time.Time{} })},
	{"promoted retries not told", "notify-6", func(b *broken) {
		retries := false
		changeNotice(func(n *storage.Notice) { n.Available = n.Available && !retries })(b)
		b.due = func(b *broken, ctx Context, now Time, max int, buf records) (storage.Due, error) {
			page, err := b.Storage.List(ctx, storage.Query{States: []ojs.State{ojs.StateRetryable}})
			retries = err == nil && len(page.Records) > 0
			defer func() { retries = false }()
			return b.Storage.Due(ctx, now, max, buf)
		}
	}},
	{"told of the calls that are their own", "notify-7", func(b *broken) {
		b.own = func(b *broken, _ any, asked storage.Storage) storage.Storage {
			if asked != storage.Storage(b) {
				return nil
			}
			return &owned{b, "another"}
		}
	}},
	{"a storage around it passed by", "notify-7", func(b *broken) {
		b.own = func(b *broken, self any, _ storage.Storage) storage.Storage { return &owned{b, self} }
	}},
})

// Notices are hints: a storage may tell to look at everything as soon as a listener is
// there, and tell each thing twice. No case takes that for a fault.
func TestEagerNoticesAreNoFault(t *testing.T) {
	eager := brokenConfig(func(b *broken) {
		b.notify = func(b *broken, self any, f func(storage.Notice)) func() {
			everything := storage.Notice{Everything: true}
			f(everything)
			return b.Storage.Notify(self, func(n storage.Notice) {
				f(n)
				f(everything)
				f(n)
			})
		}
	})
	for _, c := range storagetest.Cases() {
		if c.NeedsNotices() && storagetest.CanRun(eager, c) {
			if failures := storagetest.Prove(eager, c); len(failures) > 0 {
				t.Errorf("%s: %v", c.ID, failures)
			}
		}
	}
}
