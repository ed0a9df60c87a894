package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/storagetest"
)

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
			var mu sync.Mutex // guards gates
			gates := make(map[string]chan struct{})
			gated := func(method string, gate chan struct{}) {
				mu.Lock()
				defer mu.Unlock()
				gates[method] = gate
			}
			s := hooked(func(c *storagetest.Call) {
				mu.Lock()
				gate := gates[c.Method]
				mu.Unlock()
				if gate != nil {
					<-gate
				}
			})
			inBubbleOn(t, s, func(b *rig) {
				gate := make(chan struct{})
				b.handle("quick", func(ctx context.Context, _ *ojs.Job[any]) error {
					if tt.settle {
						gated("Settle", gate)
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
					gated("Due", gate)
					b.enqueue("quick", ojs.WithDelay(time.Second))
					b.advance(time.Second)
				}
				if tt.extend {
					gated("Extend", gate)
					b.advance(time.Minute / 2)
				}
				if tt.claim {
					gated("Claim", gate)
					b.enqueue("quick")
					b.advance(time.Second)
				}
				b.stop()
				b.stop = nil
				err := <-b.ended
				storage := tt.settle || tt.claim || tt.due || tt.extend
				if errors.Is(err, engine.ErrStuck) != tt.handler ||
					errors.Is(err, engine.ErrUnanswered) != storage ||
					(err == nil) != !(tt.handler || storage) {
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

// A handler that returns at the very moment at which Run gives up has either returned or
// not. In neither case the storage has failed to answer.
func TestReturnAtTheEndOfTheLastCall(t *testing.T) {
	for range 300 {
		inBubble(t, func(b *rig) {
			b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error {
				<-ctx.Done() // at the end of the grace period
				pace.Virtual(time.Second)
				return nil
			})
			b.run()
			b.enqueue("x")
			b.advance(0)
			b.stop()
			b.stop = nil
			if err := <-b.ended; errors.Is(err, engine.ErrUnanswered) {
				t.Errorf("%v", err)
			}
		}, engine.WithGracePeriod(time.Second))
	}
}
