package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// deafStorage is a storage that says why notices do not arrive.
type deafStorage struct {
	storage.Storage
	why error
}

func (s *deafStorage) CheckNotify() error      { return s.why }
func (s *deafStorage) Unwrap() storage.Storage { return s.Storage }

// Health and Stats know when notices of other processes do not arrive.
func TestHealthOfNotices(t *testing.T) {
	store := &deafStorage{Storage: memory.New()}
	inBubbleOn(t, store, func(b *rig) {
		b.run()
		for _, why := range []error{nil, errors.New("not listening"), nil} {
			store.why = why
			h := b.Health(context.Background())
			stats, err := b.Stats(context.Background())
			must(t, err)
			if stats.Notifications != why {
				t.Errorf("Stats has %v, and notices fail with %v", stats.Notifications, why)
			}
			if why == nil {
				if h.Status != engine.Healthy {
					t.Errorf("%+v", h)
				}
				continue
			}
			if h.Status != engine.Degraded || len(h.Problems) != 1 ||
				h.Problems[0].Code != engine.ProblemNotifications || h.Problems[0].Err != why {
				t.Errorf("%+v, and notices fail with %v", h, why)
			}
		}
	})
}
