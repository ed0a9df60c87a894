package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// applied returns the last progress of an operation and the ids that it was done to.
func (b *rig) applied(op operate.Bulk) (last operate.Progress, done []string) {
	b.t.Helper()
	for p, err := range b.Jobs().Apply(b.ctx, op) {
		if err != nil {
			b.t.Fatal(err)
		}
		if last = p; p.Err == nil {
			done = append(done, p.ID)
		}
	}
	return last, done
}

func (b *rig) state(id string) ojs.State {
	b.t.Helper()
	job, err := b.Get(b.ctx, id)
	must(b.t, err)
	return job.State
}

func TestApply(t *testing.T) {
	inBubble(t, func(b *rig) {
		var pending, open []string
		for range 3 {
			pending = append(pending, b.enqueue("a", ojs.WithPending()).ID)
			open = append(open, b.enqueue("a").ID)
		}
		p, done := b.applied(operate.Bulk{Do: operate.ActivateJobs(), Limit: 2})
		if p.Done != 2 || !slices.Equal(done, pending[:2]) {
			t.Errorf("activated %v: %+v", done, p)
		}
		ids := inspect.Filter{IDs: []string{open[0], pending[2], "none", open[0]}}
		p, done = b.applied(operate.Bulk{Do: operate.PrioritizeJobs(7), On: ids})
		if p.Done != 1 || p.Refused != 2 || p.Looked != 3 || !slices.Equal(done, open[:1]) {
			t.Errorf("prioritized %v: %+v", done, p)
		}
		ids.IDs = []string{"none", pending[2], open[0], open[1]}
		p, done = b.applied(operate.Bulk{Do: operate.PrioritizeJobs(7), On: ids, Limit: 1})
		if p.Done != 1 || p.Refused != 2 || !slices.Equal(done, open[:1]) {
			t.Errorf("prioritized %v beside jobs that it is not done to: %+v", done, p)
		}
		p, _ = b.applied(operate.Bulk{Do: operate.MoveJobs("other"),
			On: inspect.Filter{Types: []string{"a"}}})
		if p.Done != 6 {
			t.Errorf("moved: %+v", p)
		}
		if job, err := b.Get(b.ctx, open[1]); err != nil || job.Queue != "other" {
			t.Errorf("moved: %v %v", job, err)
		}
		at := b.start.Add(time.Hour)
		p, _ = b.applied(operate.Bulk{Do: operate.RescheduleJobs(at), On: inspect.Filter{IDs: open}})
		if p.Done != 3 || b.state(open[0]) != ojs.StateScheduled {
			t.Errorf("rescheduled: %+v", p)
		}
		began := time.Now()
		p, _ = b.applied(operate.Bulk{Do: operate.CancelJobs(), Every: time.Minute})
		if p.Done != 6 || time.Since(began) != 5*time.Minute {
			t.Errorf("cancelled: %+v after %v", p, time.Since(began))
		}
		var copies []string
		for p, err := range b.Jobs().Apply(b.ctx, operate.Bulk{Do: operate.CopyJobs(ojs.WithPriority(3))}) {
			must(t, err)
			copies = append(copies, p.Copy)
			must(t, b.Cancel(b.ctx, p.Copy)) // so that the listing comes to it
		}
		if len(copies) != 6 {
			t.Errorf("%d copies", len(copies))
		}
		n := 0
		for p, err := range b.Jobs().Apply(b.ctx, operate.Bulk{Do: operate.DeleteJobs()}) {
			must(t, err)
			if n++; p.Done != n || p.Job == nil {
				t.Errorf("deleted: %+v", p)
			}
			if n == 4 {
				break
			}
		}
		if left := b.listed(inspect.Filter{}); len(left) != 8 {
			t.Errorf("%d are left", len(left))
		}
	})
}

// endless lists jobs that are gone when an operation comes to them.
type endless struct {
	storage.Storage
	jobs int
}

func (s endless) List(_ context.Context, q storage.Query) (page storage.Page, err error) {
	from, _ := strconv.Atoi(q.Cursor)
	for n := from; n < min(from+1000, s.jobs); n++ {
		page.Records = append(page.Records, storage.Record{JobInfo: ojs.JobInfo{
			JobHeader: ojs.JobHeader{ID: fmt.Sprintf("00000000-0000-7000-8000-%012d", n)}}})
	}
	if page.Looked = len(page.Records); from+1000 < s.jobs {
		page.Next = strconv.Itoa(from + 1000)
	}
	return page, nil
}

func (s endless) Get(context.Context, string) (storage.Record, error) {
	return storage.Record{}, ojs.ErrNotFound
}

// An operation on many jobs needs no more memory than one on few, in an order in which
// they keep their places.
func TestApplyNeedsNoMemory(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, order := range []inspect.Order{inspect.OrderOldest, inspect.OrderNewest} {
		store := endless{memory.New(), 33_000}
		eng, err := engine.New[any](store, quiet)
		must(t, err)
		before := heap()
		for p, err := range eng.Jobs().Apply(t.Context(),
			operate.Bulk{Do: operate.ActivateJobs(), On: inspect.Filter{Order: order}}) {
			must(t, err)
			if p.Refused == store.jobs {
				if more := int64(heap()) - int64(before); more > 1<<20 {
					t.Errorf("%d bytes after %d jobs", more, store.jobs)
				}
			} else if p.Done > 0 || p.Refused > store.jobs {
				t.Fatalf("%+v", p)
			}
		}
	}
}

// leaflet lists two jobs a page.
type leaflet struct{ storage.Storage }

func (s leaflet) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	q.Limit = 2
	return s.Storage.List(ctx, q)
}

// Copies that have ended meanwhile are not copied, in any order, even if a hook takes the
// mark of a copy away.
func TestCopiesAreNotCopied(t *testing.T) {
	forget := func(_ context.Context, job *ojs.Job[any]) error { job.Meta = nil; return nil }
	for _, order := range []inspect.Order{inspect.OrderOldest, inspect.OrderNewest, inspect.OrderFinished} {
		inBubbleOn(t, leaflet{memory.New()}, func(b *rig) {
			b.handle("a", func(context.Context, *ojs.Job[any]) error { return nil })
			b.run()
			for range 3 {
				b.enqueue("a")
			}
			b.advance(time.Second)
			copyAll := func() (copies int) {
				on := inspect.Filter{Order: order}
				for p, err := range b.Jobs().Apply(b.ctx, operate.Bulk{Do: operate.CopyJobs(), On: on}) {
					must(t, err)
					b.advance(0)
					if copies = p.Done; copies > 6 {
						t.Fatalf("%s: %+v", order, p)
					}
				}
				return copies
			}
			if n := copyAll(); n != 3 {
				t.Errorf("%s: %d jobs were copied", order, n)
			}
			if n := copyAll(); n != 6 { // the copies of the operation before are jobs as any
				t.Errorf("%s: %d jobs and copies were copied", order, n)
			}
		}, engine.WithEnqueueHook(forget))
	}
}

// A copy of an earlier operation is copied, also if its id is greater than new ones.
func TestCopiesWithChosenIDsAreCopied(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("a", func(context.Context, *ojs.Job[any]) error { return nil })
		b.run()
		first := b.enqueue("a")
		b.advance(time.Second)
		_, err := b.Jobs().Copy(b.ctx, first.ID, nil, ojs.WithID("ffffffff-0000-7000-8000-000000000001"))
		must(t, err)
		b.advance(time.Second)
		n := 0
		for p, err := range b.Jobs().Apply(b.ctx, operate.Bulk{Do: operate.CopyJobs()}) {
			must(t, err)
			n = p.Done
		}
		if n != 2 {
			t.Errorf("%d jobs were copied", n)
		}
	})
}

// A job that dies again while the operation goes on is retried once.
func TestApplyOnce(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("a", func(context.Context, *ojs.Job[any]) error { return ojs.Permanent(errBoom) })
		b.run()
		for range 3 {
			b.enqueue("a")
		}
		b.advance(0)
		op := operate.Bulk{Do: operate.RetryJobs(), On: inspect.Filter{Order: inspect.OrderFinished}}
		for p, err := range b.Jobs().Apply(b.ctx, op) {
			must(t, err)
			b.advance(0)
			if p.Done > 3 {
				t.Fatalf("%+v", p)
			}
		}
	})
}

// A job that has moved on since it was listed is in none of the states that the operation
// selects, and stays as it is.
func TestApplyLeavesWhatHasMovedOn(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.enqueue("x")
		second := b.enqueue("x").ID
		op := operate.Bulk{Do: operate.CancelJobs(),
			On: inspect.Filter{States: []ojs.State{ojs.StateAvailable}}}
		for p, err := range b.Jobs().Apply(b.ctx, op) {
			must(t, err)
			if p.ID != second {
				fetched(b, b.Worker("w1", fetch.Config{}))
			} else if !errors.Is(p.Err, ojs.ErrTransition) {
				t.Errorf("%v", p.Err)
			}
		}
		b.want(second, ojs.StateActive, 1)
	})
}

func TestApplyRefuses(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.enqueue("a")
		unknown := inspect.Filter{IDs: []string{"x"}, States: []ojs.State{"x"}}
		for name, op := range map[string]operate.Bulk{
			"no action": {},
			"priority":  {Do: operate.PrioritizeJobs(1 << 40)},
			"time":      {Do: operate.RescheduleJobs(time.Time{})},
			"queue":     {Do: operate.MoveJobs("No Queue")},
			"limit":     {Do: operate.CancelJobs(), Limit: -1},
			"every":     {Do: operate.CancelJobs(), Every: -1},
			"state":     {Do: operate.DeleteJobs(), On: inspect.Filter{States: []ojs.State{ojs.StateActive}}},
			"no state":  {Do: operate.DeleteJobs(), On: unknown},
		} {
			if _, err := b.Jobs().Preview(b.ctx, op, 1); !errors.Is(err, ojs.ErrInvalid) {
				t.Errorf("%s: preview: %v", name, err)
			}
			n := 0
			for _, err := range b.Jobs().Apply(b.ctx, op) {
				if n++; !errors.Is(err, ojs.ErrInvalid) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if n != 1 {
				t.Errorf("%s: %d results", name, n)
			}
		}
		ended, end := context.WithCancel(b.ctx)
		end()
		for _, err := range b.Jobs().Apply(ended, operate.Bulk{Do: operate.CancelJobs()}) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("ended: %v", err)
			}
		}
	})
}

func TestPreview(t *testing.T) {
	inBubble(t, func(b *rig) {
		for range 3 {
			b.enqueue("a", ojs.WithTags("vip"))
			b.enqueue("b", ojs.WithPending())
		}
		op := operate.Bulk{Do: operate.PrioritizeJobs(1), On: inspect.Filter{Tags: []string{"vip"}}}
		p, err := b.Jobs().Preview(b.ctx, op, 2)
		must(t, err)
		if p.N != 3 || !p.Exact || len(p.Sample) != 2 || p.Sample[0].Type != "a" {
			t.Errorf("%+v", p)
		}
	})
}

func TestEdit(t *testing.T) {
	inBubble(t, func(b *rig) {
		sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.Edited}})
		defer sub.Close()
		unique := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByType | ojs.ByArgs})
		b.enqueue("a", unique, ojs.WithDelay(time.Hour))
		id := b.listed(inspect.Filter{})[0]
		must(t, b.Jobs().Edit(b.ctx, id, operate.Edit{
			Args: json.RawMessage(`{"to":"b"}`), Meta: map[string]any{"tenant": "acme", "n": 1},
		}))
		must(t, b.Jobs().Edit(b.ctx, id, operate.Edit{Meta: map[string]any{"n": nil}}))
		job, err := b.Get(b.ctx, id)
		must(t, err)
		if job.Args.String() != `{"to":"b"}` || len(job.Meta) != 1 || job.Meta["tenant"] != "acme" {
			t.Errorf("edited: %s %v", job.Args, job.Meta)
		}
		if ev := <-sub.C(); ev.Subject != id || ev.Job.Meta["tenant"] != "acme" {
			t.Errorf("event %+v", ev)
		}
		// It is unique by its new args.
		_, err = b.Enqueue(b.ctx, "a", json.RawMessage(`{"to":"b"}`), unique)
		if !errors.Is(err, ojs.ErrDuplicate) {
			t.Errorf("equal to the edited one: %v", err)
		}
		err = b.Jobs().Edit(b.ctx, id, operate.Edit{Meta: map[string]any{codec.MetaKeyID: "k"}})
		if !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("meta of a codec: %v", err)
		}
		must(t, b.Cancel(b.ctx, id))
		if err := b.Jobs().Edit(b.ctx, id, operate.Edit{Args: 1}); !errors.Is(err, ojs.ErrTransition) {
			t.Errorf("edit of a cancelled job: %v", err)
		}
		if err := b.Jobs().Move(b.ctx, id, "other"); !errors.Is(err, ojs.ErrTransition) {
			t.Errorf("move of a cancelled job: %v", err)
		}
		if err := b.Jobs().Edit(b.ctx, "none", operate.Edit{}); !errors.Is(err, ojs.ErrNotFound) {
			t.Errorf("edit of no job: %v", err)
		}
	})
}

func TestEditEncoded(t *testing.T) {
	inBubble(t, func(b *rig) {
		var got []any
		b.handle("a", func(_ context.Context, job *ojs.Job[any]) error {
			got = append(got, job.Args)
			return nil
		})
		ticket, err := b.Enqueue(b.ctx, "a", strings.Repeat("first ", 4000), ojs.WithDelay(time.Hour))
		must(t, err)
		again := strings.Repeat("again ", 4000)
		must(t, b.Jobs().Edit(b.ctx, ticket.ID, operate.Edit{Meta: map[string]any{"a": "b"}}))
		must(t, b.Jobs().Edit(b.ctx, ticket.ID, operate.Edit{Args: again}))
		if job, _ := b.Get(b.ctx, ticket.ID); !codec.IsEncoded(job.Args, job.Meta) || job.Meta["a"] != "b" {
			t.Errorf("edited: %v", job)
		}
		b.run()
		b.advance(time.Hour)
		copied, err := b.Jobs().Copy(b.ctx, ticket.ID, nil)
		must(t, err)
		b.advance(0)
		job, _ := b.Get(b.ctx, copied.ID)
		if job.Meta[draft.MetaCopyOf] != ticket.ID || job.Meta["a"] != "b" {
			t.Errorf("copy: %v", job.Meta)
		}
		if _, err := b.Jobs().Copy(b.ctx, ticket.ID, "short", ojs.WithQueue("q")); err != nil {
			t.Error(err)
		}
		b.advance(0)
		if want := []any{again, again, "short"}; !slices.Equal(got, want) {
			t.Errorf("ran with %v", got)
		}
	}, engine.WithCodec(codec.Gzip()))
}

func TestMoveAndDrain(t *testing.T) {
	inBubbleOn(t, memory.New(), func(b *rig) {
		id := b.enqueue("a").ID
		must1(b.Queues().Drain(b.ctx, "closing"))
		if err := b.Jobs().Move(b.ctx, id, "closing"); !errors.Is(err, ojs.ErrQueueDraining) {
			t.Errorf("to a draining queue: %v", err)
		}
		must1(b.Queues().Drain(b.ctx, "default"))
		must(t, b.Jobs().Move(b.ctx, id, "other")) // out of it
		if job, _ := b.Get(b.ctx, id); job.Queue != "other" || job.State != ojs.StateAvailable {
			t.Errorf("%+v", job)
		}
	})
}
