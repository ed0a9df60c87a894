package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func fetched(b *rig, w *fetch.Worker) *fetch.Delivery {
	b.t.Helper()
	d, err := w.Fetch(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}

func TestWorker(t *testing.T) {
	t.Run("P0.6 fetch and acknowledge", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			w := b.Worker("w1", fetch.Config{})
			id := b.enqueue("x").ID
			d := fetched(b, w)
			if job := b.want(id, ojs.StateActive, 1); d.Job.ID != id ||
				d.LeaseUntil.Sub(b.start) != ojs.DefaultLease || job.StartedAt.IsZero() {
				t.Errorf("%+v", d)
			}
			wantInvalid(t, d.Ack(b.ctx, strings.Repeat("x", jsonvalue.MaxResult)), "result")
			b.want(id, ojs.StateActive, 1)
			must(t, d.Ack(b.ctx, map[string]int{"n": 1}))
			if job := b.want(id, ojs.StateCompleted, 1); string(job.Result) != `{"n":1}` ||
				job.Progress != 1 {
				t.Errorf("%s", job.Result)
			}
			for name, err := range map[string]error{"ack": d.Ack(b.ctx, nil), "fail": d.Fail(b.ctx, errBoom),
				"beat": d.Heartbeat(b.ctx), "release": d.Release(b.ctx)} {
				if !errors.Is(err, ojs.ErrLeaseLost) {
					t.Errorf("%s after the end: %v", name, err)
				}
			}
		})
	})
	t.Run("a failure is decided as a handler's", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.run()
			w := b.Worker("w1", fetch.Config{})
			id := b.enqueue("x", noJitter).ID
			must(t, fetched(b, w).Fail(b.ctx, ojs.Errorf("gpu.lost", "no")))
			if job := b.want(id, ojs.StateRetryable, 1); job.Error.Type != "gpu.lost" {
				t.Errorf("%+v", job.Error)
			}
			d := fetched(b, w) // waits for the retry
			if b.elapsed() != time.Second || d.Job.Attempt != 2 {
				t.Errorf("attempt %d after %v", d.Job.Attempt, b.elapsed())
			}
			must(t, d.Release(b.ctx))
			synctest.Wait() // the job is due at once, and maintenance promotes it
			b.want(id, ojs.StateAvailable, 1)
			must(t, fetched(b, w).Fail(b.ctx, nil))
			if job := b.want(id, ojs.StateRetryable, 2); job.Error.Message != "ojs: failed without an error" {
				t.Errorf("%+v", job.Error)
			}
			must(t, fetched(b, w).Fail(b.ctx, ojs.DeadLetter(errBoom)))
			b.want(id, ojs.StateDiscarded, 3)
			if !slices.Equal(b.deadLetters(), []string{id}) {
				t.Error("no dead letter")
			}
		})
	})
	t.Run("fetch takes of its queues in order, and of its types", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.enqueue("x", ojs.WithQueue("b"), ojs.WithMeta("n", 3), ojs.WithPriority(9))
			b.enqueue("x", ojs.WithQueue("a"), ojs.WithMeta("n", 2))
			b.enqueue("y", ojs.WithQueue("a"), ojs.WithPriority(9))
			b.enqueue("x", ojs.WithQueue("c"), ojs.WithPriority(9))
			b.enqueue("x", ojs.WithQueue("a"), ojs.WithMeta("n", 1), ojs.WithPriority(1))
			ds, err := b.Worker("w",
				fetch.Config{Queues: []string{"a", "b"}, Types: []string{"x"}}).FetchMany(b.ctx, 10)
			must(t, err)
			var got []any
			for _, d := range ds {
				got = append(got, d.Job.Meta["n"])
			}
			if fmt.Sprint(got) != "[1 2 3]" {
				t.Errorf("fetched %v", got)
			}
		})
	})
	t.Run("fetch waits for a job, and ends with its context", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			w := b.Worker("w1", fetch.Config{Types: []string{"x"}})
			got := make(chan *fetch.Delivery, 1)
			go func() { got <- fetched(b, w) }()
			synctest.Wait()
			b.enqueue("other")
			synctest.Wait()
			if len(got) != 0 {
				t.Fatal("fetched another type")
			}
			id := b.enqueue("x").ID
			if d := <-got; d.Job.ID != id {
				t.Errorf("fetched %+v", d.Job)
			}
			ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
			defer cancel()
			if _, err := w.Fetch(ctx); !errors.Is(err, context.DeadlineExceeded) ||
				b.elapsed() != time.Minute {
				t.Errorf("%v after %v", err, b.elapsed())
			}
		})
	})
	t.Run("P0.6 a worker that does not beat loses the job, one that does keeps it", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.run()
			w := b.Worker("w1", fetch.Config{DeadAfter: -1})
			lazy, live := b.enqueue("x", noJitter, ojs.WithLease(time.Minute)).ID, b.enqueue("x", noJitter,
				ojs.WithLease(time.Minute)).ID
			dl, dv := fetched(b, w), fetched(b, w)
			for range 3 {
				b.advance(50 * time.Second)
				must(t, dv.Heartbeat(b.ctx))
			}
			b.want(live, ojs.StateActive, 1)
			job := b.want(lazy, ojs.StateAvailable, 1)
			if job.Errors[0].Type != policy.ErrorTypeLeaseExpired {
				t.Errorf("%+v", job.Errors)
			}
			if err := dl.Ack(b.ctx, nil); !errors.Is(err, ojs.ErrLeaseLost) {
				t.Errorf("%v", err)
			}
			must(t, dv.Ack(b.ctx, nil))
		})
	})
	t.Run("P0.6 a beat of the worker renews what it holds and tells its state", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.run()
			w := b.Worker("w1", fetch.Config{DeadAfter: -1})
			id, done := b.enqueue("x", ojs.WithLease(time.Minute)).ID, b.enqueue("x").ID
			d := fetched(b, w)
			must(t, fetched(b, w).Ack(b.ctx, nil))
			for range 3 {
				b.advance(50 * time.Second)
				if s, err := w.Heartbeat(b.ctx); s.State != fetch.Running || err != nil {
					t.Errorf("%v, %v", s, err)
				}
			}
			b.want(id, ojs.StateActive, 1)
			b.want(done, ojs.StateCompleted, 1)
			if got := b.fetchers(); len(got) != 1 || got[0].Held != 1 ||
				got[0].State != fetch.Running || got[0].Seen.Sub(b.start) != 150*time.Second {
				t.Errorf("%+v", got)
			}
			if !b.told(b.Workers().Quiet, "w1") || b.told(b.Workers().Quiet, "nobody") {
				t.Error("Quiet")
			}
			if s, err := w.Heartbeat(b.ctx); s.State != fetch.Quiet || err != nil {
				t.Errorf("%v, %v", s, err)
			}
			must(t, d.Ack(b.ctx, nil))
		})
	})
	t.Run("P0.6 quiet and terminate end a fetch, and there is no way back", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"worker.*"}})
			defer sub.Close()
			w := b.Worker("w1", fetch.Config{})
			errs := make(chan error)
			go func() { _, err := w.Fetch(b.ctx); errs <- err }()
			synctest.Wait()
			w.Quiet()
			if err := <-errs; !errors.Is(err, fetch.ErrQuiet) {
				t.Errorf("%v", err)
			}
			w.Close()
			w.Quiet()
			b.enqueue("x")
			if _, err := b.Worker("w1", fetch.Config{}).Fetch(b.ctx); !errors.Is(err,
				fetch.ErrTerminated) {
				t.Errorf("%v", err)
			}
			if got := names(received(sub)); got != "worker.started worker.quiet worker.stopped" {
				t.Errorf("events %s", got)
			}
			if !b.told(b.Workers().Terminate, "w1") {
				t.Error("Terminate")
			}
		})
	})
	t.Run("a token finds the delivery again, for its worker alone", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			id := b.enqueue("x").ID
			raw, err := json.Marshal(fetched(b, b.Worker("w1", fetch.Config{})))
			must(t, err)
			var d struct {
				Token string
				Job   ojs.JobInfo
			}
			must(t, json.Unmarshal(raw, &d))
			if d.Job.ID != id {
				t.Errorf("%s", raw)
			}
			if _, err := b.Worker("w2", fetch.Config{}).Delivery(b.ctx, d.Token); !errors.Is(err,
				ojs.ErrLeaseLost) {
				t.Errorf("another worker: %v", err)
			}
			for _, bad := range []string{"", "x", id, id + ".", id + ".!", ".1"} {
				if _, err := b.Worker("w1", fetch.Config{}).Delivery(b.ctx, bad); !errors.Is(err,
					ojs.ErrInvalid) {
					t.Errorf("token %q: %v", bad, err)
				}
			}
			if _, err := b.Worker("w1", fetch.Config{}).Delivery(b.ctx, "nobody.1"); !errors.Is(err,
				ojs.ErrLeaseLost) {
				t.Errorf("%v", err)
			}
			again, err := b.Worker("w1", fetch.Config{}).Delivery(b.ctx, d.Token)
			must(t, err)
			must(t, again.Ack(b.ctx, nil))
			b.want(id, ojs.StateCompleted, 1)
			_, found := b.Worker("w1", fetch.Config{}).Delivery(b.ctx, d.Token)
			beaten := again.Heartbeat(b.ctx)
			if !errors.Is(found, ojs.ErrLeaseLost) || beaten == nil || found.Error() != beaten.Error() {
				t.Errorf("after its end: %v, and a heartbeat: %v", found, beaten)
			}
		})
	})
	t.Run("timeouts hold: a beat after one fails the attempt", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			w := b.Worker("w1", fetch.Config{DeadAfter: -1})
			id := b.enqueue("x", noJitter, ojs.WithTimeout(time.Minute),
				ojs.WithTotalTimeout(90*time.Second)).ID
			d := fetched(b, w)
			b.advance(59 * time.Second)
			must(t, d.Heartbeat(b.ctx))
			b.advance(time.Second)
			if err := d.Heartbeat(b.ctx); !errors.Is(err, ojs.ErrTimeout) {
				t.Errorf("%v", err)
			}
			if job := b.want(id, ojs.StateRetryable, 1); job.Error.Type != policy.ErrorTypeTimeout {
				t.Errorf("%+v", job.Error)
			}
			b.run()
			d = fetched(b, w)
			b.halt() // or it would notice first
			b.advance(29 * time.Second)
			if err := d.Progress(b.ctx, 0.5); !errors.Is(err, ojs.ErrTimeout) {
				t.Errorf("%v", err)
			}
			if job := b.want(id, ojs.StateDiscarded, 2); job.Error.Type != policy.ErrorTypeTotalTimeout {
				t.Errorf("%+v", job.Error)
			}
		})
	})
	t.Run("P1.3 progress and checkpoints", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.run()
			w := b.Worker("w1", fetch.Config{})
			id := b.enqueue("x", noJitter).ID
			d := fetched(b, w)
			must(t, d.Progress(b.ctx, 0.5))
			must(t, d.Progress(b.ctx, 0.25))
			wantInvalid(t, d.Progress(b.ctx, 2), "progress")
			if job := b.job(id); job.Progress != 0.5 {
				t.Errorf("progress %v", job.Progress)
			}
			must(t, d.SaveCheckpoint(b.ctx, []int{7}))
			large := strings.Repeat("x", jsonvalue.MaxCheckpoint)
			wantInvalid(t, d.SaveCheckpoint(b.ctx, large), "checkpoint")
			must(t, d.Fail(b.ctx, errBoom))
			if d := fetched(b, w); string(d.Checkpoint) != "[7]" || d.Job.Progress != 0 {
				t.Errorf("%s at %v", d.Checkpoint, d.Job.Progress)
			}
		})
	})
	t.Run("cancelling takes the job away", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			w := b.Worker("w1", fetch.Config{})
			id := b.enqueue("x").ID
			d := fetched(b, w)
			must(t, b.Cancel(b.ctx, id))
			if err := d.Heartbeat(b.ctx); !errors.Is(err, ojs.ErrLeaseLost) {
				t.Errorf("%v", err)
			}
			if got := b.fetchers(); got[0].Held != 0 {
				t.Errorf("%+v", got)
			}
		})
	})
	t.Run("pauses and limits hold for workers", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.run()
			w := b.Worker("w1", fetch.Config{Queues: []string{"q", "default"}})
			for range 3 {
				b.enqueue("x", ojs.WithQueue("q"), ojs.WithLease(time.Minute))
			}
			for range 2 {
				b.enqueue("x",
					ojs.WithRateLimit(ojs.RateLimit{Key: "k",
						Rate: ojs.Rate{Limit: 1, Per: 10 * time.Second}}))
			}
			ds, err := w.FetchMany(b.ctx, 10)
			must(t, err)
			if len(ds) != 2 || ds[0].Job.Queue != "q" || ds[1].Job.Queue != "default" {
				t.Fatalf("fetched %d", len(ds))
			}
			if d := fetched(b, w); d.Job.Queue != "default" || b.elapsed() != 10*time.Second {
				t.Errorf("fetched of %s after %v", d.Job.Queue, b.elapsed())
			}
			must(t, ds[0].Ack(b.ctx, nil))
			if d := fetched(b, w); d.Job.Queue != "q" || b.elapsed() != 10*time.Second {
				t.Errorf("fetched of %s after %v", d.Job.Queue, b.elapsed())
			}
			// That worker vanishes; its job counts until its lease is over.
			if d := fetched(b, w); d.Job.Queue != "q" || b.elapsed() != 70*time.Second {
				t.Errorf("fetched of %s after %v", d.Job.Queue, b.elapsed())
			}
		}, engine.WithQueueConfig("q", engine.QueueConfig{Concurrency: 1}), engine.WithQueueConfig("default",
			engine.QueueConfig{}))
	})
	t.Run("each job of workers that vanish counts until its own lease is over", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			w := b.Worker("w1", fetch.Config{Queues: []string{"q"}})
			for _, minutes := range []time.Duration{1, 2, 9, 9} {
				b.enqueue("x", ojs.WithQueue("q"), ojs.WithLease(minutes*time.Minute))
			}
			for _, at := range []time.Duration{0, 0, time.Minute, 2 * time.Minute} {
				if fetched(b, w); b.elapsed() != at {
					t.Errorf("fetched after %v, want %v", b.elapsed(), at)
				}
			}
		}, engine.WithQueueConfig("q", engine.QueueConfig{Concurrency: 2}))
	})
	t.Run("a job counts in the limit of its queue while its worker renews its lease", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.run()
			w := b.Worker("w1", fetch.Config{Queues: []string{"q"}})
			for range 2 {
				b.enqueue("x", ojs.WithQueue("q"), ojs.WithLease(time.Minute))
			}
			d := fetched(b, w)
			for range 4 {
				ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
				if ds, err := w.FetchMany(ctx, 1); err == nil {
					t.Errorf("fetched %d after %v", len(ds), b.elapsed())
				}
				cancel()
				must(t, d.Heartbeat(b.ctx))
			}
			must(t, d.Ack(b.ctx, nil))
			fetched(b, w)
		}, engine.WithQueueConfig("q", engine.QueueConfig{Concurrency: 1}))
	})
	t.Run("the limit of a handler does not hold for workers, whether they name types or not", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.Handle("x", func(ctx context.Context, _ *ojs.Job[any]) error { <-ctx.Done(); return nil },
				handler.WithSlots(1))
			b.run()
			for range 3 {
				b.enqueue("x")
			}
			synctest.Wait()
			for _, types := range [][]string{nil, {"x"}} {
				ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
				if _, err := b.Worker("w", fetch.Config{Types: types}).Fetch(ctx); err != nil ||
					b.elapsed() != 0 {
					t.Errorf("types %v: %v after %v", types, err, b.elapsed())
				}
				cancel()
			}
		})
	})
	t.Run("an acknowledgement whose answer was lost may be repeated", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			f := &storagetest.Faulty{Storage: b.store}
			eng, err := engine.New[any](f, quiet)
			must(t, err)
			ticket, err := eng.Enqueue(b.ctx, "x", nil)
			must(t, err)
			d, err := eng.Worker("w", fetch.Config{}).Fetch(b.ctx)
			must(t, err)
			f.OnCall(breaks("Settle", true, nil))
			if err := d.Ack(b.ctx, 1); !errors.Is(err, errStorage) {
				t.Errorf("%v", err)
			}
			f.OnCall(nil)
			b.advance(time.Second)
			must(t, d.Ack(b.ctx, 1))
			b.want(ticket.ID, ojs.StateCompleted, 1)
		})
	})
	t.Run("bad workers are refused", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			_, err := b.Worker("", fetch.Config{}).Fetch(b.ctx)
			wantInvalid(t, err, "worker")
			_, err = b.Worker("w", fetch.Config{}).FetchMany(b.ctx, 0)
			wantInvalid(t, err, "max")
		})
	})
	t.Run("workers that are gone are forgotten", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			ctx, cancel := context.WithCancel(b.ctx)
			cancel()
			for i := range 10_000 {
				_, _ = b.Worker(fmt.Sprint("w", i), fetch.Config{}).Fetch(ctx)
				b.advance(time.Minute)
			}
			if n := len(b.fetchers()); n > 61 {
				t.Errorf("%d workers are remembered", n)
			}
		})
	})
	t.Run("one that is gone for an hour is forgotten, and new when it comes back", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			w := b.Worker("w1", fetch.Config{})
			b.enqueue("x")
			must(t, fetched(b, w).Ack(b.ctx, nil))
			w.Close()
			b.advance(time.Hour)
			if !b.told(b.Workers().Quiet, "w1") {
				t.Error("forgotten after an hour")
			}
			b.advance(1)
			if b.told(b.Workers().Quiet, "w1") || len(b.fetchers()) != 0 {
				t.Errorf("remembered: %+v", b.fetchers())
			}
			b.enqueue("x")
			fetched(b, w)
		})
	})
	t.Run("one that waits in Fetch is not forgotten", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			errs := make(chan error, 1)
			go func() { _, err := b.Worker("w1", fetch.Config{}).Fetch(b.ctx); errs <- err }()
			b.advance(24 * time.Hour)
			ctx, cancel := context.WithCancel(b.ctx)
			cancel()
			for i := range 100 { // so many that those who are gone are forgotten
				_, _ = b.Worker(fmt.Sprint("other", i), fetch.Config{}).Fetch(ctx)
			}
			if !b.told(b.Workers().Quiet, "w1") {
				t.Fatal("forgotten")
			}
			if err := <-errs; !errors.Is(err, fetch.ErrQuiet) {
				t.Errorf("%v", err)
			}
			if got := b.fetchers(); got[len(got)-1].ID != "w1" ||
				got[len(got)-1].State != fetch.Quiet {
				t.Errorf("%+v", got)
			}
		})
	})
	t.Run("P0.6 quiet and close before the first fetch hold for it", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"worker.*"}})
			defer sub.Close()
			b.enqueue("x")
			b.Worker("w1", fetch.Config{}).Quiet()
			b.Worker("w2", fetch.Config{}).Close()
			for id, want := range map[string]error{
				"w1": fetch.ErrQuiet, "w2": fetch.ErrTerminated,
			} {
				if _, err := b.Worker(id, fetch.Config{}).Fetch(b.ctx); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", id, err, want)
				}
			}
			b.Worker("", fetch.Config{}).Close()
			want := "worker.started worker.quiet worker.started worker.stopped"
			if got := names(received(sub)); got != want || len(b.fetchers()) != 2 {
				t.Errorf("events %s, workers %+v", got, b.fetchers())
			}
		})
	})
}

// fetchers are the workers that fetch jobs from the engine.
func (b *rig) fetchers() []fetch.Stats {
	stats, err := b.Stats(b.ctx)
	must(b.t, err)
	return stats.Workers
}

// told reports whether there is a worker that an order can be given to.
func (b *rig) told(order func(context.Context, string) error, id string) bool {
	err := order(b.ctx, id)
	if err != nil && !errors.Is(err, ojs.ErrNotFound) {
		b.t.Error(err)
	}
	return err == nil
}
