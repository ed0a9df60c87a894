package driver

import (
	"context"
	"sync"
)

// Gate admits transactions, for stores whose lock on writing knows no contexts, or whose
// Close does not wait. Begin calls Enter, the end of a transaction calls Leave once, and
// Close calls Close. Make it with NewGate.
type Gate struct {
	writing chan struct{} // has an element while a transaction writes
	closed  chan struct{}
	once    sync.Once
	err     error // of closing the store

	mu   sync.Mutex     // held for an addition to open, and to close closed
	open sync.WaitGroup // transactions; none is added once closed is closed
}

// NewGate returns a gate that admits transactions.
func NewGate() *Gate {
	return &Gate{writing: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Enter admits a transaction. With write set it waits until no other transaction writes.
// The error is that of a context that has ended, or ErrClosed.
func (g *Gate) Enter(ctx context.Context, write bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if write {
		select {
		case g.writing <- struct{}{}:
		case <-g.closed:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.closed:
		if write {
			<-g.writing
		}
		return ErrClosed
	default:
		g.open.Add(1)
		return nil
	}
}

// Leave ends a transaction. write is that of its Enter.
func (g *Gate) Leave(write bool) {
	if write {
		<-g.writing
	}
	g.open.Done()
}

// Close closes the store when the transactions under way have ended. From its call on,
// Enter fails, also where it waits. Calling Close again returns the same error.
func (g *Gate) Close(store func() error) error {
	g.once.Do(func() {
		g.mu.Lock()
		close(g.closed)
		g.mu.Unlock()
		g.open.Wait()
		g.err = store()
	})
	return g.err
}
