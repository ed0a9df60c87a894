package storagetest_test

import (
	"context"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages that break the states of queues.
var _ = register([]fault{
	{"paused queues delivered if named", "queue-1", func(b *broken) {
		b.claim = func(b *broken, ctx Context, now Time, c storage.Claim, dst records) (records, error) {
			states, err := b.Storage.QueueStates(ctx)
			if err != nil {
				return dst, err
			}
			for _, q := range c.Queues {
				if states[q] == ojs.QueuePaused {
					_, _ = b.Storage.SetQueueState(ctx, q, ojs.QueueActive)
					defer b.Storage.SetQueueState(ctx, q, ojs.QueuePaused) //nolint:errcheck // a fault
				}
			}
			return b.Storage.Claim(ctx, now, c, dst)
		}
	}},
	{"draining queues accept", "queue-2", func(b *broken) {
		b.state = func(b *broken, ctx context.Context, q string, to ojs.QueueState) (ojs.QueueState, error) {
			if to == ojs.QueueDraining && q == "q" {
				return ojs.QueueActive, ctx.Err()
			}
			return b.Storage.SetQueueState(ctx, q, to)
		}
	}},
	{"active queues listed", "queue-3", func(b *broken) {
		b.states = func(b *broken, ctx context.Context) (map[string]ojs.QueueState, error) {
			m, err := b.Storage.QueueStates(ctx)
			if err == nil {
				m["c"] = ojs.QueueActive
			}
			return m, err
		}
	}},
})
