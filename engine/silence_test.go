package engine_test

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// failedAs wants a job's first attempt to have failed.
func failedAs(b *rig, id string, errorType string, reason ojs.Reason, after time.Duration) {
	b.t.Helper()
	job := b.want(id, ojs.StateRetryable, 1)
	if job.Error == nil || job.Error.Type != errorType || job.Error.Reason != reason ||
		job.Error.At.Sub(b.start) != after {
		b.t.Errorf("failure %+v, want %s after %v", job.Error, errorType, after)
	}
}

var later = ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Hour, MaxInterval: time.Hour,
	Jitter:             ojs.JitterOff,
	NonRetryableErrors: []string{policy.ErrorTypeWorkerDeath}})

func TestWorkerDeath(t *testing.T) {
	const none = time.Duration(0)
	for name, tt := range map[string]struct {
		cfg  fetch.Config
		live func(b *rig, w *fetch.Worker, d *fetch.Delivery) // from the fetch at 0 on
		dies time.Duration                                    // none: it does not in 10 min
	}{
		"30 s after the last heartbeat": {fetch.Config{},
			func(b *rig, w *fetch.Worker, d *fetch.Delivery) {
				b.advance(5 * time.Second)
				beat(b, w)
			}, 35 * time.Second},
		"30 s after a heartbeat of its delivery": {fetch.Config{},
			func(b *rig, _ *fetch.Worker, d *fetch.Delivery) {
				b.advance(29 * time.Second)
				must(b.t, d.Heartbeat(b.ctx))
				b.advance(29 * time.Second)
				must(b.t, d.Progress(b.ctx, 0.5))
			}, 88 * time.Second},
		"every call is a sign of life": {fetch.Config{},
			func(b *rig, w *fetch.Worker, d *fetch.Delivery) {
				must(b.t, d.Heartbeat(b.ctx))
				b.enqueue("x")
				for range 3 {
					b.advance(29 * time.Second)
					other := fetched(b, w)
					must(b.t, other.Release(b.ctx))
				}
			}, 117 * time.Second},
		"a Fetch that waits is one as long as it does": {fetch.Config{},
			func(b *rig, w *fetch.Worker, d *fetch.Delivery) {
				must(b.t, d.Heartbeat(b.ctx))
				ctx, cancel := context.WithTimeout(b.ctx, 5*time.Minute)
				defer cancel()
				if _, err := w.Fetch(ctx); err == nil {
					b.t.Error("fetched")
				}
			}, 330 * time.Second},
		"30 s after the last heartbeat, with a long lease of its own": {fetch.Config{Lease: 3 * time.Hour},
			func(b *rig, w *fetch.Worker, d *fetch.Delivery) {
				b.advance(5 * time.Second)
				beat(b, w)
			}, 35 * time.Second},
		"after its own time": {fetch.Config{DeadAfter: time.Second},
			func(b *rig, w *fetch.Worker, d *fetch.Delivery) {
				beat(b, w)
			}, time.Second},
		"never, if it says so": {fetch.Config{DeadAfter: -1},
			func(b *rig, w *fetch.Worker, d *fetch.Delivery) { beat(b, w) }, none},
		"never, if it has never beaten": {fetch.Config{},
			func(*rig, *fetch.Worker, *fetch.Delivery) {}, none},
		"never, if it has told of progress alone": {fetch.Config{},
			func(b *rig, _ *fetch.Worker, d *fetch.Delivery) { must(b.t, d.Progress(b.ctx, 0.5)) }, none},
		"never, if it holds nothing more": {fetch.Config{},
			func(b *rig, w *fetch.Worker,
				d *fetch.Delivery) {
				beat(b, w)
				must(b.t, d.Ack(b.ctx, nil))
			}, none},
		"it may have quit before": {fetch.Config{},
			func(b *rig, w *fetch.Worker, d *fetch.Delivery) {
				beat(b, w)
				w.Close()
			}, 30 * time.Second},
	} {
		t.Run("P0.6 "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.run()
				sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"job.stalled",
					"worker.stopped"}})
				defer sub.Close()
				w := b.Worker("w1", tt.cfg)
				id := b.enqueue("x", later, ojs.WithLease(time.Hour), ojs.WithTimeout(2*time.Hour)).ID
				d := fetched(b, w)
				tt.live(b, w, d)
				b.advance(10*time.Minute - b.elapsed())
				if tt.dies == none {
					if job := b.job(id); job.Error != nil || len(received(sub)) > 0 {
						t.Errorf("%+v", job.Error)
					}
					return
				}
				failedAs(b, id, policy.ErrorTypeWorkerDeath, ojs.ReasonWorkerDeath, tt.dies)
				events := received(sub)
				if got := names(events); !strings.Contains(got, "worker.stopped") ||
					!strings.Contains(got, "stalled") {
					t.Errorf("events %s", got)
				}
				if err := d.Ack(b.ctx, nil); !errors.Is(err, ojs.ErrLeaseLost) {
					t.Errorf("Ack after its death: %v", err)
				}
				if got := beat(b, w).Lost; len(got) != 1 || got[0].ID != id || got[0].Token != d.Token ||
					got[0].Cause != ojs.ErrLeaseLost {
					t.Errorf("lost %+v", got)
				}
				if got := beat(b, w).Lost; len(got) != 0 {
					t.Errorf("lost %+v again", got)
				}
			})
		})
	}
	t.Run("P0.6 P0.8 it is new when it comes back", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.run()
			w := b.Worker("w1", fetch.Config{})
			b.enqueue("x", later)
			fetched(b, w)
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"worker.*"}})
			defer sub.Close()
			beat(b, w)
			b.advance(time.Minute)
			if got := b.fetchers(); !got[0].Dead || got[0].Held != 0 {
				t.Errorf("%+v", got)
			}
			beat(b, w)
			events := received(sub)
			want := "worker.heartbeat worker.stopped worker.started worker.heartbeat"
			if got := names(events); got != want {
				t.Fatalf("%s", got)
			}
			if d := events[0].Data(); d["worker_id"] != "w1" || d["state"] != "running" ||
				d["active_jobs"] != 1 {
				t.Errorf("%v", d)
			}
			if d := events[1].Data(); d["reason"] != "error" ||
				events[1].Time.Sub(b.start) != 30*time.Second {
				t.Errorf("%v", d)
			}
		})
	})
	t.Run("P0.6 a storage that fails meanwhile is asked again", func(t *testing.T) {
		f := &storagetest.Faulty{Storage: memory.New()}
		inBubbleOn(t, f, func(b *rig) {
			b.run()
			w := b.Worker("w1", fetch.Config{})
			id := b.enqueue("x", later).ID
			fetched(b, w)
			beat(b, w)
			f.OnCall(breaks("Settle", false, before(b, 40*time.Second)))
			b.advance(time.Minute)
			failedAs(b, id, policy.ErrorTypeWorkerDeath, ojs.ReasonWorkerDeath, 40*time.Second)
		})
	})
	for name, leases := range map[string][2]time.Duration{
		"":                             {},
		"for as long as the claim":     {time.Minute, time.Minute},
		"for less":                     {0, time.Minute},
		"for a little less":            {70 * time.Second, time.Minute},
		"for more, as the claim's job": {time.Minute, 0},
	} {
		t.Run("P0.6 a lease that another engine has renewed is a sign of life "+name, func(t *testing.T) {
			renewedElsewhere(t, fetch.Config{Lease: leases[0]}, fetch.Config{Lease: leases[1]})
		})
	}
}

// F065: a call through an engine that does not know the lease of the claim does not
// shorten it.
func TestProgressElsewhereKeepsTheLease(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.run()
		other, err := engine.New[any](b.store, quiet)
		must(t, err)
		id := b.enqueue("x", later, ojs.WithLease(time.Minute)).ID
		fetched(b, b.Worker("w1", fetch.Config{Lease: 2 * time.Hour}))
		b.advance(time.Second)
		rec, err := b.store.Get(b.ctx, id)
		must(t, err)
		d, err := other.Worker("w1", fetch.Config{}).DeliveryOfRecord(rec)
		must(t, err)
		must(t, d.Progress(b.ctx, 0.5))
		got, err := b.store.Get(b.ctx, id)
		must(t, err)
		if got.LeaseUntil.Before(rec.LeaseUntil) || got.Progress != 0.5 {
			t.Errorf("the lease ends at %v, and before the call at %v", got.LeaseUntil, rec.LeaseUntil)
		}
	})
}

// renewedElsewhere checks that a worker lives as long as another engine renews its lease.
func renewedElsewhere(t *testing.T, fetches, beats fetch.Config) {
	inBubble(t, func(b *rig) {
		b.run()
		other, err := engine.New[any](b.store, quiet)
		must(t, err)
		id := b.enqueue("x", later, ojs.WithLease(time.Hour)).ID
		d := fetched(b, b.Worker("w1", fetches))
		beat(b, b.Worker("w1", fetches))
		for range 10 {
			b.advance(20 * time.Second)
			got, err := other.Worker("w1", beats).Heartbeat(b.ctx, d.Token)
			if err != nil || !slices.Equal(got.Held, []string{id}) || len(got.Lost) > 0 {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		b.advance(30*time.Second - 1)
		b.want(id, ojs.StateActive, 1)
		b.advance(30 * time.Second) // the first engine looks every 30 s
		failedAs(b, id, policy.ErrorTypeWorkerDeath, ojs.ReasonWorkerDeath, 240*time.Second)
		if err := d.Ack(b.ctx, nil); !errors.Is(err, ojs.ErrLeaseLost) {
			t.Errorf("%v", err)
		}
	})
}

// renewed checks how many leases a heartbeat of w1 renews.
func renewed(
	t *testing.T, b *rig, eng *engine.Engine[any], cfg fetch.Config, want int, tokens ...string,
) {
	t.Helper()
	if got, err := eng.Worker("w1", cfg).Heartbeat(b.ctx, tokens...); err != nil || len(got.Held) != want {
		t.Errorf("%+v, %v", got, err)
	}
}

// An engine that has been started anew knows nothing of a worker until that calls.
func TestWorkersAfterARestart(t *testing.T) {
	for name, tt := range map[string]struct {
		call  func(t *testing.T, b *rig, eng *engine.Engine[any], token string) // 10 s after the fetch
		typ   string
		fails time.Duration
	}{
		"the lease is the bound": {func(*testing.T, *rig, *engine.Engine[any], string) {},
			policy.ErrorTypeLeaseExpired, 2 * time.Minute},
		"so it is after a heartbeat of the worker": {func(
			t *testing.T, b *rig, eng *engine.Engine[any], _ string,
		) {
			renewed(t, b, eng, fetch.Config{}, 0)
		}, policy.ErrorTypeLeaseExpired, 2 * time.Minute},
		"a heartbeat with the token is heard": {func(
			t *testing.T, b *rig, eng *engine.Engine[any], token string,
		) {
			renewed(t, b, eng, fetch.Config{}, 1, token, token)
		}, policy.ErrorTypeWorkerDeath, 40 * time.Second},
		"a heartbeat of the delivery does": {func(
			t *testing.T, b *rig, eng *engine.Engine[any], token string,
		) {
			d, err := eng.Worker("w1", fetch.Config{}).Delivery(b.ctx, token)
			must(t, err)
			must(t, d.Heartbeat(b.ctx))
		}, policy.ErrorTypeWorkerDeath, 40 * time.Second},
		"and its timeout holds": {func(t *testing.T, b *rig, eng *engine.Engine[any], token string) {
			renewed(t, b, eng, fetch.Config{DeadAfter: -1}, 1, token)
		}, policy.ErrorTypeTimeout, time.Minute},
	} {
		t.Run("P0.6 "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.run()
				id := b.enqueue("x", later, ojs.WithLease(2*time.Minute), ojs.WithTimeout(time.Minute)).ID
				d := fetched(b, b.Worker("w1", fetch.Config{}))
				b.enqueue("x")
				fetched(b, b.Worker("w2", fetch.Config{})) // the job of another worker is not found
				b.halt()
				eng, err := engine.New[any](b.store, quiet)
				must(t, err)
				ctx, stop := context.WithCancel(b.ctx)
				ended := make(chan error, 1)
				go func() { ended <- eng.Run(ctx) }()
				b.advance(10 * time.Second)
				tt.call(t, b, eng, d.Token)
				b.advance(5 * time.Minute)
				failure := b.want(id, ojs.StateRetryable, 1).Error
				if failure == nil || failure.Type != tt.typ || failure.At.Sub(b.start) != tt.fails {
					t.Errorf("%+v, want %s after %v", failure, tt.typ, tt.fails)
				}
				stop()
				must(t, <-ended)
			})
		})
	}
}

// A lost lease is handed to an engine, which then dies, or has not got the answer.
func TestHeartbeatAfterALostLease(t *testing.T) {
	for name, tokens := range map[string]func(d *fetch.Delivery) []string{
		"without a token":        func(*fetch.Delivery) []string { return nil },
		"with that of the claim": func(d *fetch.Delivery) []string { return []string{d.Token} },
	} {
		t.Run("P0.6 "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				id := b.enqueue("x", ojs.WithLease(time.Minute)).ID
				d := fetched(b, b.Worker("w1", fetch.Config{}))
				b.advance(time.Minute)
				due, err := b.store.Due(b.ctx, time.Now(), 1, nil)
				if must(t, err); len(due.Stalled) != 1 {
					t.Fatalf("%+v", due)
				}
				b.advance(30 * time.Second)
				other, err := engine.New[any](b.store, quiet)
				must(t, err)
				w := other.Worker("w1", fetch.Config{})
				got, err := w.Heartbeat(b.ctx, tokens(d)...)
				if err != nil || len(got.Held) != 0 || len(got.Lost) != len(tokens(d)) {
					t.Fatalf("%+v, %v", got, err)
				}
				for _, lost := range got.Lost {
					if lost != (fetch.LostJob{ID: id, Token: d.Token, Cause: ojs.ErrLeaseLost}) {
						t.Errorf("%+v", lost)
					}
				}
				want := due.Stalled[0].LeaseUntil
				if rec, err := b.store.Get(b.ctx, id); err != nil || !rec.LeaseUntil.Equal(want) {
					t.Errorf("the lease of the heir ends at %s, not %s, %v", rec.LeaseUntil, want, err)
				}
				if got := beat(b, w); len(got.Lost) != 0 {
					t.Errorf("lost %+v again", got.Lost)
				}
			})
		})
	}
}

func TestHeartbeatWithForeignTokens(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.enqueue("x")
		d := fetched(b, b.Worker("w1", fetch.Config{}))
		got, err := b.Worker("w2", fetch.Config{}).Heartbeat(b.ctx, d.Token)
		if err != nil || len(got.Held) != 0 || len(got.Lost) != 1 {
			t.Errorf("w2: %+v, %v", got, err)
		}
		if got := beat(b, b.Worker("w1", fetch.Config{})); len(got.Held) != 1 || len(got.Lost) != 0 {
			t.Errorf("w1 holds it: %+v", got)
		}
		_, err = b.Worker("w1", fetch.Config{}).Heartbeat(b.ctx, "none")
		if !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%v", err)
		}
	})
}

func TestTimeoutOfASilentWorker(t *testing.T) {
	for name, tt := range map[string]struct {
		opts  []ojs.Option
		beats time.Duration // every so often; 0: never
		typ   string
		at    time.Duration
	}{
		"its timeout": {[]ojs.Option{ojs.WithTimeout(time.Minute)}, 0,
			policy.ErrorTypeTimeout, time.Minute},
		"its timeout, whatever heartbeats": {[]ojs.Option{ojs.WithTimeout(time.Minute)}, 7 * time.Second,
			policy.ErrorTypeTimeout, time.Minute},
		"its total timeout": {[]ojs.Option{ojs.WithTotalTimeout(90 * time.Second)}, 0,
			policy.ErrorTypeTotalTimeout, 90 * time.Second},
		"its lease ends first": {[]ojs.Option{ojs.WithTimeout(time.Hour),
			ojs.WithLease(time.Minute)}, 0, policy.ErrorTypeLeaseExpired, time.Minute},
		"its lease ends at the same time": {[]ojs.Option{ojs.WithTimeout(time.Minute),
			ojs.WithLease(time.Minute)}, 0, policy.ErrorTypeLeaseExpired, time.Minute},
	} {
		t.Run("P0.5 P0.6 "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.run()
				w := b.Worker("w1", fetch.Config{})
				id := b.enqueue("x", append([]ojs.Option{later}, tt.opts...)...).ID
				d := fetched(b, w)
				var lost []fetch.LostJob
				for tt.beats > 0 && b.elapsed() < 2*time.Minute {
					b.advance(tt.beats)
					lost = append(lost, beat(b, w).Lost...)
				}
				b.advance(2 * time.Hour)
				job := b.job(id)
				if first := job.Errors[0]; first.Type != tt.typ || first.At.Sub(b.start) != tt.at {
					t.Errorf("%+v", first)
				}
				if err := d.Ack(b.ctx, nil); !errors.Is(err, ojs.ErrLeaseLost) {
					t.Errorf("Ack: %v", err)
				}
				if tt.beats > 0 && (len(lost) != 1 || lost[0].ID != id || lost[0].Cause != ojs.ErrTimeout) {
					t.Errorf("lost %+v", lost)
				}
			})
		})
	}
}

// beat is a heartbeat that succeeds.
func beat(b *rig, w *fetch.Worker) fetch.Beat {
	b.t.Helper()
	got, err := w.Heartbeat(b.ctx)
	if err != nil {
		b.t.Error(err)
	}
	return got
}

func TestHeartbeatNamesLostJobs(t *testing.T) {
	unique := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByType, OnConflict: ojs.ConflictReplace})
	for name, tt := range map[string]struct {
		opts  []ojs.Option
		lose  func(b *rig, id string)
		cause error
	}{
		"cancelled": {nil, func(b *rig, id string) { must(b.t, b.Cancel(b.ctx, id)) }, ojs.ErrCancelled},
		"replaced": {[]ojs.Option{unique}, func(b *rig, _ string) { b.enqueue("x", unique) },
			ojs.ErrReplaced},
		"its lease": {[]ojs.Option{ojs.WithLease(time.Second)},
			func(b *rig, _ string) { b.run(); b.advance(time.Second) }, ojs.ErrLeaseLost},
		"cancelled through another engine": {nil, func(b *rig, id string) {
			other, err := engine.New[any](b.store, quiet)
			must(b.t, err)
			must(b.t, other.Cancel(b.ctx, id))
		}, ojs.ErrCancelled},
		"timed out, and nobody has noticed": {[]ojs.Option{ojs.WithTimeout(time.Second)},
			func(b *rig, _ string) { b.advance(time.Second) }, ojs.ErrTimeout},
	} {
		t.Run("P0.6 "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				w := b.Worker("w1", fetch.Config{})
				kept := b.enqueue("y").ID
				fetched(b, w)
				id := b.enqueue("x", append(tt.opts, later)...).ID
				d := fetched(b, w)
				tt.lose(b, id)
				got := beat(b, w)
				if !slices.Equal(got.Held, []string{kept}) || len(got.Lost) != 1 ||
					got.Lost[0] != (fetch.LostJob{ID: id, Token: d.Token, Cause: tt.cause}) {
					t.Errorf("%+v", got)
				}
				if got := beat(b, w); len(got.Lost) != 0 || len(got.Held) != 1 {
					t.Errorf("again: %+v", got)
				}
			})
		})
	}
	t.Run("P0.6 not what it has ended itself", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			w := b.Worker("w1", fetch.Config{})
			b.enqueue("x")
			must(t, fetched(b, w).Ack(b.ctx, nil))
			b.enqueue("x")
			must(t, fetched(b, w).Release(b.ctx))
			if got := beat(b, w); len(got.Lost)+len(got.Held) > 0 {
				t.Errorf("%+v", got)
			}
		})
	})
	t.Run("P0.6 a heartbeat that fails forgets none", func(t *testing.T) {
		f := &storagetest.Faulty{Storage: memory.New()}
		inBubbleOn(t, f, func(b *rig) {
			w := b.Worker("w1", fetch.Config{})
			b.enqueue("x")
			b.enqueue("x")
			ds, err := w.FetchMany(b.ctx, 2)
			must(t, err)
			beat(b, w)
			must(t, b.Cancel(b.ctx, ds[0].Job.ID))
			f.OnCall(breaks("Extend", false, nil))
			if got, err := w.Heartbeat(b.ctx); !errors.Is(err, errStorage) || len(got.Lost) != 0 {
				t.Errorf("%+v, %v", got, err)
			}
			f.OnCall(nil)
			if got := beat(b, w); len(got.Lost) != 1 || len(got.Held) != 1 {
				t.Errorf("%+v", got)
			}
		})
	})
	t.Run("bad workers are refused", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			_, err := b.Worker("", fetch.Config{}).Heartbeat(b.ctx)
			wantInvalid(t, err, "worker")
		})
	})
}

func TestWorkerStoppedSaysWhy(t *testing.T) {
	reason := func(t *testing.T, b *rig, stop func()) any {
		sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"worker.stopped"}})
		defer sub.Close()
		stop()
		events := received(sub)
		if len(events) != 1 {
			t.Fatalf("%d events", len(events))
		}
		return events[0].Data()["reason"]
	}
	t.Run("P0.8 the end of Run's context", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.run()
			if got := reason(t, b, b.halt); got != "shutdown" {
				t.Errorf("%v", got)
			}
		})
	})
	t.Run("P0.8 handlers that go on", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", func(context.Context, *ojs.Job[any]) error { pace.Virtual(time.Hour); return nil })
			b.run()
			b.enqueue("x")
			synctest.Wait()
			if got := reason(t, b, func() { b.stop(); b.stop = nil; <-b.ended }); got != "error" {
				t.Errorf("%v", got)
			}
			b.advance(2 * time.Hour)
		})
	})
	t.Run("P0.8 where a Run takes jobs, and how many", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"worker.*"}})
			defer sub.Close()
			b.handle("x", func(context.Context, *ojs.Job[any]) error {
				pace.Virtual(time.Second)
				return nil
			})
			b.run()
			b.enqueue("x")
			b.enqueue("x")
			synctest.Wait()
			b.halt()
			events := received(sub)
			if got := names(events); got != "worker.started worker.quiet worker.stopped" {
				t.Fatalf("events %s", got)
			}
			started, quiet := events[0].Data(), events[1].Data()
			queues, _ := started["queues"].([]string)
			if started["concurrency"] != 7 || !slices.Equal(queues, []string{"default"}) {
				t.Errorf("%v", started)
			}
			if quiet["active_jobs"] != 2 {
				t.Errorf("%v", quiet)
			}
		}, engine.WithQueueConfig("default", engine.QueueConfig{}), engine.WithConcurrency(7))
	})
	t.Run("P0.8 a worker that closes", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			if got := reason(t, b, b.Worker("w", fetch.Config{}).Close); got != "shutdown" {
				t.Errorf("%v", got)
			}
		})
	})
	t.Run("P0.8 a signal", func(t *testing.T) {
		eng, err := engine.New[any](newMemory(t), quiet)
		must(t, err)
		sub := eng.Subscribe(engine.EventFilter{Types: []event.Type{"worker.stopped"}})
		defer sub.Close()
		ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGUSR1)
		defer stop()
		p, err := os.FindProcess(os.Getpid())
		must(t, err)
		must(t, p.Signal(syscall.SIGUSR1))
		must(t, eng.Run(ctx))
		if ev := <-sub.C(); ev.Data()["reason"] != "signal" {
			t.Errorf("%v", ev.Data())
		}
	})
}

func TestHeartbeatEventSaysUntilWhen(t *testing.T) {
	inBubble(t, func(b *rig) {
		sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"job.heartbeat"}})
		defer sub.Close()
		b.enqueue("x", ojs.WithLease(time.Minute))
		d := fetched(b, b.Worker("w", fetch.Config{}))
		b.advance(5 * time.Second)
		must(t, d.Heartbeat(b.ctx))
		events := received(sub)
		if got := events[0].Data()["visible_until"]; got != b.start.Add(65*time.Second).UTC().Format(
			time.RFC3339Nano) {
			t.Errorf("P0.8 %v", got)
		}
	})
}

// P0.6: a worker has sent a heartbeat once the storage has taken one. Until then the
// lease is the bound.
func TestRefusedHeartbeatDoesNotCount(t *testing.T) {
	for name, call := range map[string]func(b *rig, w *fetch.Worker, d *fetch.Delivery) error{
		"of a delivery": func(b *rig, _ *fetch.Worker, d *fetch.Delivery) error {
			return d.Heartbeat(b.ctx)
		},
		"of the worker": func(b *rig, w *fetch.Worker, d *fetch.Delivery) error {
			_, err := w.Heartbeat(b.ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := hooked(nil)
			inBubbleOn(t, store, func(b *rig) {
				b.run()
				id := b.enqueue("x").ID
				w := b.Worker("w1", fetch.Config{})
				d := fetched(b, w)
				store.OnCall(breaks("Extend", false, nil))
				if err := call(b, w, d); !errors.Is(err, errStorage) {
					t.Fatal(err)
				}
				store.OnCall(nil)
				b.advance(10 * time.Minute)
				b.want(id, ojs.StateActive, 1)
				must(t, call(b, w, d))
				b.advance(29 * time.Second)
				b.want(id, ojs.StateActive, 1)
				b.advance(time.Second)
				b.want(id, ojs.StateRetryable, 1)
			})
		})
	}
}
