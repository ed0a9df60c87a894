package postgres

import (
	"context"
	"runtime"
	"sync"
)

// batcher combines calls that arrive at the same time into one statement. A call that
// arrives alone is made at once. While maxFlying statements are under way, calls wait and
// share the next statement.
type batcher[C waiting] struct {
	flush func(calls []C) // and ends each of them

	mu      sync.Mutex // guards the fields below
	pending []C
	flying  int
}

// waiting is a call whose caller waits for its end.
type waiting interface {
	size() (jobs, bytes int)
	done() <-chan struct{}
}

const (
	maxFlying = 1        // statements at once
	maxBatch  = 2000     // jobs of one statement, unless a single call has more
	maxBytes  = 32 << 20 // of their documents, likewise: PostgreSQL takes 1 GB at most
)

// do makes a call. If the context ends first, do returns the context's error, and whether
// the call takes effect is unknown.
func (b *batcher[C]) do(ctx context.Context, c C) error {
	b.mu.Lock()
	b.pending = append(b.pending, c)
	if b.flying < maxFlying {
		b.flying++
		go b.fly()
	}
	b.mu.Unlock()
	select {
	case <-c.done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *batcher[C]) fly() {
	for {
		b.mu.Lock()
		n, jobs, bytes := 0, 0, 0
		for n < len(b.pending) {
			j, b := b.pending[n].size()
			if n > 0 && (jobs+j > maxBatch || bytes+b > maxBytes) {
				break
			}
			jobs, bytes = jobs+j, bytes+b
			n++
		}
		if n == 0 {
			b.flying--
			b.mu.Unlock()
			return
		}
		calls := b.pending[:n:n]
		b.pending = b.pending[n:]
		b.mu.Unlock()
		b.flush(calls)
		runtime.Gosched() // callers that had waited and ask again at once share the next statement
	}
}
