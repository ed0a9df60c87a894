package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// joining is a storage that joins transactions of type pending.
type joining struct{ storage.Storage }

// pending is a transaction with one change.
type pending struct{ commit func() }

func (s joining) Unwrap() storage.Storage { return s.Storage }

func (s joining) Joins(tx any) bool { _, ok := tx.(*pending); return ok }

func (s joining) Settle(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	tx, ok := storage.Tx(ctx).(*pending)
	if !ok {
		return s.Storage.Settle(ctx, now, changes, dst)
	}
	there, err := s.Get(ctx, changes[0].Record.ID)
	if err != nil {
		return dst, err
	}
	if err := there.CanSettle(&changes[0].Record); err != nil {
		return append(dst, storage.Settled{Version: there.Version, Err: err}), nil
	}
	tx.commit = func() {
		if _, err := s.Storage.Settle(context.WithoutCancel(ctx), now, changes, nil); err != nil {
			panic(err)
		}
	}
	return append(dst, storage.Settled{Version: there.Version + 1}), nil
}

func TestComplete(t *testing.T) {
	const minute = time.Minute
	outcomes := map[string]struct {
		then  func(ctx context.Context, tx *pending) error // after Complete
		state ojs.State
		error string // that is stored
		logs  string
	}{
		"commits": {
			then:  func(_ context.Context, tx *pending) error { tx.commit(); return nil },
			state: ojs.StateCompleted,
		},
		"commits after the timeout and the time of a renewal": {
			then: func(_ context.Context, tx *pending) error {
				pace.Virtual(15 * minute)
				tx.commit()
				return nil
			},
			state: ojs.StateCompleted,
		},
		"commits and fails": {
			then:  func(_ context.Context, tx *pending) error { tx.commit(); return errBoom },
			state: ojs.StateCompleted,
			logs:  "handler failed after the commit",
		},
		"commits and panics": {
			then:  func(_ context.Context, tx *pending) error { tx.commit(); panic("boom") },
			state: ojs.StateCompleted,
			logs:  "handler failed after the commit",
		},
		"rolls back": {
			then:  func(context.Context, *pending) error { return errBoom },
			state: ojs.StateRetryable,
			error: "boom",
		},
		"rolls back and discards": {
			then:  func(context.Context, *pending) error { return ojs.Discard(errBoom) },
			state: ojs.StateDiscarded,
			error: "boom",
		},
		"forgets to commit": {
			then:  func(context.Context, *pending) error { return nil },
			state: ojs.StateRetryable,
			error: "ojs: the transaction of handler.Complete was not committed when the handler returned",
		},
		"rolls back and commits another": {
			then: func(ctx context.Context, _ *pending) error {
				tx := new(pending)
				if err := handler.Complete(storage.WithTx(ctx, tx)); err != nil {
					return err
				}
				tx.commit()
				return nil
			},
			state: ojs.StateCompleted,
		},
		"asks for more": {
			then: func(ctx context.Context, tx *pending) error {
				for _, err := range []error{
					handler.Heartbeat(ctx),
					handler.SaveCheckpoint(ctx, 1),
					handler.Then(ctx, ojs.NewDraft("child", nil)),
				} {
					if !errors.Is(err, ojs.ErrUnsupported) {
						return err
					}
				}
				tx.commit()
				return nil
			},
			state: ojs.StateCompleted,
		},
	}
	for how, o := range outcomes {
		t.Run(how, func(t *testing.T) {
			var during atomic.Bool
			faulty := hooked(func(c *storagetest.Call) {
				if during.Load() && (c.Method == "Extend" || c.Method == "Settle") &&
					storage.Tx(c.Context) == nil {
					t.Errorf("%s would wait for the transaction", c.Method)
				}
			})
			log := new(lockedBuffer)
			inBubbleOn(t, joining{faulty}, func(b *rig) {
				b.handle("pay", func(ctx context.Context, _ *ojs.Job[any]) error {
					must(t, handler.SetResult(ctx, "paid"))
					must(t, handler.Then(ctx, ojs.NewDraft("child", nil)))
					tx := new(pending)
					must(t, handler.Complete(storage.WithTx(ctx, tx)))
					if commit := tx.commit; commit != nil {
						during.Store(true)
						tx.commit = func() { during.Store(false); commit() }
					}
					defer during.Store(false)
					return o.then(ctx, tx)
				})
				sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.Completed}})
				defer sub.Close()
				b.run()
				late := ojs.RetryPolicy{InitialInterval: time.Hour, MaxInterval: time.Hour,
					Jitter: ojs.JitterOff}
				ticket := b.enqueue("pay", ojs.WithTimeout(minute), ojs.WithRetry(late))
				b.advance(20 * minute)
				job := b.want(ticket.ID, o.state, 1)
				if o.error != "" && (job.Error == nil || job.Error.Message != o.error) {
					t.Errorf("failed with %+v, want %s", job.Error, o.error)
				}
				children, ends := 0, 0
				if o.state == ojs.StateCompleted {
					children, ends = 1, 1
					if string(job.Result) != `"paid"` {
						t.Errorf("result %s", job.Result)
					}
					if done, err := ticket.Wait(b.ctx); err != nil || done.State != ojs.StateCompleted {
						t.Errorf("%+v, %v", done, err)
					}
				}
				b.wantOf("child", children, ojs.StateAvailable)
				if got := len(received(sub)); got != ends {
					t.Errorf("%d events of the completion, want %d", got, ends)
				}
				if !strings.Contains(log.String(), o.logs) {
					t.Errorf("log: %s", log)
				}
			}, engine.WithGracePeriod(time.Second),
				engine.WithClaimLease(0), // Due of this storage does not skip the row of the transaction
				engine.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		})
	}

	t.Run("an attempt that has lost its job writes nothing", func(t *testing.T) {
		inBubbleOn(t, joining{memory.New()}, func(b *rig) {
			var errs []error
			b.handle("pay", func(ctx context.Context, _ *ojs.Job[any]) error {
				<-ctx.Done()
				tx := new(pending)
				errs = append(errs, handler.Complete(storage.WithTx(ctx, tx)))
				if tx.commit != nil {
					t.Error("written")
				}
				return nil
			})
			b.run()
			id := b.enqueue("pay").ID
			b.advance(0)
			must(t, b.Cancel(b.ctx, id))
			b.advance(0)
			if len(errs) != 1 || !errors.Is(errs[0], ojs.ErrCancelled) {
				t.Errorf("%v", errs)
			}
			b.want(id, ojs.StateCancelled, 1)
		})
	})
	t.Run("a claim that was lost unnoticed is fenced", func(t *testing.T) {
		inBubbleOn(t, joining{memory.New()}, func(b *rig) {
			var got error
			b.handle("pay", func(ctx context.Context, job *ojs.Job[any]) error {
				rec, err := b.store.Get(ctx, job.ID)
				must(t, err)
				rec.State, rec.FinishedAt, rec.LeaseUntil = ojs.StateDiscarded, time.Now(), time.Time{}
				_, err = b.store.Settle(ctx, time.Now(), []storage.Change{{Record: rec}}, nil)
				must(t, err)
				tx := new(pending)
				got = handler.Complete(storage.WithTx(ctx, tx))
				if tx.commit != nil {
					t.Error("written")
				}
				return got
			})
			b.run()
			id := b.enqueue("pay").ID
			b.advance(0)
			if !errors.Is(got, ojs.ErrLeaseLost) {
				t.Errorf("%v", got)
			}
			b.want(id, ojs.StateDiscarded, 1)
		})
	})
	t.Run("a lookup that fails is made again", func(t *testing.T) {
		var down atomic.Bool
		faulty := hooked(breaks("Get", false, down.Load))
		inBubbleOn(t, joining{faulty}, func(b *rig) {
			b.handle("pay", func(ctx context.Context, _ *ojs.Job[any]) error {
				tx := new(pending)
				must(t, handler.Complete(storage.WithTx(ctx, tx)))
				tx.commit()
				down.Store(true)
				return nil
			})
			sub := b.Subscribe(engine.EventFilter{Types: jobEvents})
			defer sub.Close()
			b.run()
			b.enqueue("pay")
			b.advance(10 * time.Second)
			down.Store(false)
			b.advance(time.Minute)
			if got := names(received(sub)); got != "enqueued started completed" {
				t.Errorf("%s", got)
			}
		})
	})
	t.Run("a stop does not wait for the transaction", func(t *testing.T) {
		inBubbleOn(t, joining{memory.New()}, func(b *rig) {
			b.handle("pay", func(ctx context.Context, _ *ojs.Job[any]) error {
				tx := new(pending)
				must(t, handler.Complete(storage.WithTx(ctx, tx)))
				pace.Virtual(time.Hour)
				tx.commit()
				return nil
			})
			b.run()
			id := b.enqueue("pay").ID
			b.advance(0)
			b.stop()
			b.stop = nil
			if err := <-b.ended; !errors.Is(err, engine.ErrStuck) {
				t.Errorf("%v", err)
			}
			b.want(id, ojs.StateActive, 1)
			b.advance(2 * time.Hour)
			b.want(id, ojs.StateCompleted, 1)
		}, engine.WithGracePeriod(time.Second))
	})
	t.Run("a batch completes its jobs in one transaction", func(t *testing.T) {
		inBubbleOn(t, joining{memory.New()}, func(b *rig) {
			pay := func(ctx context.Context, jobs []*ojs.Job[any]) []error {
				var commits []func()
				for _, job := range jobs {
					tx := new(pending)
					must(t, handler.Complete(storage.WithTx(handler.JobContext(ctx, job), tx)))
					commits = append(commits, tx.commit)
				}
				for _, commit := range commits {
					commit()
				}
				return nil
			}
			b.Register(handler.ForBatch(ojs.Define[any]("pay"), pay, handler.WithBatch(3, time.Minute)))
			b.run()
			for range 3 {
				b.enqueue("pay")
			}
			b.advance(0)
			b.wantOf("pay", 3, ojs.StateCompleted)
		})
	})
}

func TestCompleteRefused(t *testing.T) {
	if err := handler.Complete(context.Background()); !errors.Is(err, handler.ErrNoAttempt) {
		t.Errorf("%v", err)
	}
	for on, store := range map[string]func() storage.Storage{
		"memory":  func() storage.Storage { return memory.New() },
		"joining": func() storage.Storage { return joining{memory.New()} },
	} {
		inBubbleOn(t, store(), func(b *rig) {
			b.handle("pay", func(ctx context.Context, _ *ojs.Job[any]) error {
				wantInvalid(t, handler.Complete(ctx), "tx")
				err := handler.Complete(storage.WithTx(ctx, "other"))
				if !errors.Is(err, ojs.ErrUnsupported) {
					t.Errorf("%s: %v", on, err)
				}
				return nil
			})
			b.run()
			id := b.enqueue("pay").ID
			b.advance(0)
			b.want(id, ojs.StateCompleted, 1)
		})
	}
}
