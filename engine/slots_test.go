package engine_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// Each end of an attempt frees its slot of handler.WithSlots for the next job of
// the type.
func TestAttemptFreesTheSlotOfItsType(t *testing.T) {
	panics := func(context.Context) error { panic("boom") }
	waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, c := range []struct {
		name  string
		outer bool // a middleware ends the attempt
		lease time.Duration
		end   func(context.Context) error
	}{
		{"success", false, time.Hour, func(context.Context) error { return nil }},
		{"an error", false, time.Hour, func(context.Context) error { return errBoom }},
		{"a panic", false, time.Hour, panics},
		{"a middleware's panic", true, time.Hour, panics},
		{"Goexit", false, time.Hour, func(context.Context) error { runtime.Goexit(); return nil }},
		{"a snooze", false, time.Hour, func(context.Context) error { return ojs.Snooze(time.Hour) }},
		{"a timeout", false, time.Hour, waits},
		{"a lost lease", false, 30 * time.Second, waits},
	} {
		t.Run(c.name, func(t *testing.T) {
			ends := c.end // of the first attempt
			attempt := func(ctx context.Context) error {
				if end := ends; end != nil {
					ends = nil
					return end(ctx)
				}
				return nil
			}
			outer := func(ctx context.Context, _ *ojs.JobHeader, next handler.Next) error {
				if c.outer {
					return attempt(ctx)
				}
				return next(ctx)
			}
			onFaulty(t, func(b *rig, s *storagetest.Faulty) {
				if c.lease < time.Minute {
					s.OnCall(breaks("Extend", false, nil))
				}
				b.Handle("x", func(ctx context.Context, _ *ojs.Job[any]) error { return attempt(ctx) },
					handler.WithSlots(1))
				opts := []ojs.Option{ojs.WithMaxAttempts(1), ojs.WithTimeout(time.Minute),
					ojs.WithLease(c.lease)}
				b.enqueue("x", opts...)
				next := b.enqueue("x", opts...)
				b.advance(2 * time.Minute)
				b.want(next.ID, ojs.StateCompleted, 1)
			}, engine.WithMiddleware(outer))
		})
	}
}

// A lease is renewed while the storage fails to store the outcome of its attempt: no
// other attempt begins.
func TestLeaseIsRenewedWhileAnOutcomeWaits(t *testing.T) {
	onFaulty(t, func(b *rig, s *storagetest.Faulty) {
		b.handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		s.OnCall(breaks("Settle", false, before(b, 10*time.Minute)))
		ticket := b.enqueue("x", ojs.WithLease(10*time.Second))
		b.advance(9 * time.Minute)
		b.want(ticket.ID, ojs.StateActive, 1)
		b.advance(2 * time.Minute)
		b.want(ticket.ID, ojs.StateCompleted, 1)
		if n := len(b.times()); n != 1 {
			t.Errorf("%d attempts began", n)
		}
	})
}
