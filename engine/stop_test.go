package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// unanswering is a storage whose calls wait for a gate while there is one.
type unanswering struct {
	storage.Storage
	settle, claim, due, extend atomic.Pointer[chan struct{}]
}

func (s *unanswering) Unwrap() storage.Storage { return s.Storage }

func (s *unanswering) Settle(ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled) ([]storage.Settled, error) {
	if gate := s.settle.Load(); gate != nil {
		<-*gate
	}
	return s.Storage.Settle(ctx, now, changes, dst)
}

func (s *unanswering) Claim(ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record) ([]storage.Record, error) {
	if gate := s.claim.Load(); gate != nil {
		<-*gate
	}
	return s.Storage.Claim(ctx, now, c, dst)
}

func (s *unanswering) Due(
	ctx context.Context, now time.Time, max int, buf []storage.Record,
) (storage.Due, error) {
	if gate := s.due.Load(); gate != nil {
		<-*gate
	}
	return s.Storage.Due(ctx, now, max, buf)
}

func (s *unanswering) Extend(ctx context.Context, now time.Time, list []storage.Extension) ([]string, error) {
	if gate := s.extend.Load(); gate != nil {
		<-*gate
	}
	return s.Storage.Extend(ctx, now, list)
}

// A stop says what it has left behind: a handler that goes on, or a call of the storage.
func TestStopSaysWhatGoesOn(t *testing.T) {
	for name, tt := range map[string]struct {
		settle, claim, due, extend, handler bool // does not return
	}{
		"P1.8 nothing":                                 {},
		"P1.8 a handler":                               {handler: true},
		"P1.8 the storage with an outcome":             {settle: true},
		"P1.8 the storage with a claim":                {claim: true},
		"P1.8 the storage with both":                   {settle: true, claim: true},
		"P1.8 a handler, and the storage with a claim": {handler: true, claim: true},
		"P1.8 the storage with what is due":            {due: true},
		"P1.8 the storage with a renewal":              {extend: true, handler: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &unanswering{Storage: memory.New()}
			inBubbleOn(t, s, func(b *rig) {
				gate := make(chan struct{})
				b.handle("quick", func(ctx context.Context, _ *ojs.Job[any]) error {
					if tt.settle {
						s.settle.Store(&gate)
					}
					if tt.handler {
						<-gate
					}
					return nil
				})
				b.run()
				id := b.enqueue("quick", ojs.WithLease(time.Minute)).ID
				b.advance(time.Second)
				if tt.due {
					s.due.Store(&gate)
					b.enqueue("quick", ojs.WithDelay(time.Second))
					b.advance(time.Second)
				}
				if tt.extend {
					s.extend.Store(&gate)
					b.advance(time.Minute / 2)
				}
				if tt.claim {
					s.claim.Store(&gate)
					b.enqueue("quick")
					b.advance(time.Second)
				}
				b.stop()
				b.stop = nil
				err := <-b.ended
				storage := tt.settle || tt.claim || tt.due || tt.extend
				if errors.Is(err, engine.ErrStuck) != tt.handler || errors.Is(err, engine.ErrUnanswered) != storage || (err == nil) != !(tt.handler || storage) {
					t.Errorf("Run: %v", err)
				}
				if (tt.settle || tt.handler) != (err != nil && strings.Contains(err.Error(), id)) {
					t.Errorf("Run: %v, of job %s", err, id)
				}
				ran := len(b.times())
				close(gate)
				b.advance(time.Minute)
				if n := len(b.times()); n != ran {
					t.Errorf("%d handlers began after Run had returned", n-ran)
				}
				if tt.settle {
					b.want(id, ojs.StateCompleted, 1)
				}
			})
		})
	}
}
