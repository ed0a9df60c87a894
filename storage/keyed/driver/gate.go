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
	err     error        // of closing the store
	open    sync.RWMutex // for reading, each transaction holds it; Close locks it for ever
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
	select {
	case <-g.closed: // perhaps Close has not locked open yet
	default:
		if g.open.TryRLock() {
			return nil
		}
	}
	if write {
		<-g.writing
	}
	return ErrClosed
}

// Leave ends a transaction. write is that of its Enter.
func (g *Gate) Leave(write bool) {
	if write {
		<-g.writing
	}
	g.open.RUnlock()
}

// Close closes the store when the transactions under way have ended. From its call on,
// Enter fails, also where it waits. Calling Close again returns the same error.
func (g *Gate) Close(store func() error) error {
	g.once.Do(func() {
		close(g.closed)
		g.open.Lock()
		g.err = store()
	})
	return g.err
}
