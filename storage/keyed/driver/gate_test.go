package driver_test

import (
	"context"
	"sync"
	"testing"

	"github.com/ojsengine/ojs/storage/keyed/driver"
)

// ending is a context that ends between two calls of Err, so that an Enter that would
// wait returns at once.
type ending struct {
	context.Context
	asked bool
}

func (e *ending) Err() error {
	if e.asked = !e.asked; e.asked {
		return nil
	}
	return e.Context.Err()
}

// Once Enter has returned ErrClosed, each later Enter does.
func TestGateStaysClosed(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for range 3_000 {
		g := driver.NewGate()
		if err := g.Enter(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		began := make(chan struct{})
		var calls sync.WaitGroup
		calls.Go(func() {
			close(began)
			for g.Enter(&ending{Context: ended}, true) != driver.ErrClosed {
			}
			if err := g.Enter(context.Background(), false); err != driver.ErrClosed {
				t.Errorf("an Enter after ErrClosed returned %v", err)
				g.Leave(false)
			}
			g.Leave(true)
		})
		<-began
		if err := g.Close(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if calls.Wait(); t.Failed() {
			return
		}
	}
}
