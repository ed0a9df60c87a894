package spin_test

import (
	"sync"
	"testing"

	"github.com/ojsengine/ojs/internal/spin"
)

func TestTryLock(t *testing.T) {
	var mu spin.Mutex
	if !mu.TryLock() {
		t.Fatal("a free one is not locked")
	}
	if mu.TryLock() {
		t.Error("locked twice")
	}
	mu.Unlock()
	if !mu.TryLock() {
		t.Error("not unlocked")
	}
}

func TestMutex(t *testing.T) {
	const goroutines, each = 16, 2000
	var mu spin.Mutex
	var group sync.WaitGroup
	n := 0
	for range goroutines {
		group.Go(func() {
			for i := range each {
				mu.Lock()
				if n++; i%500 == 0 { // long enough for others to give up looking
					for k := range 200_000 {
						n += k & 1
						n -= k & 1
					}
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if n != goroutines*each {
		t.Errorf("counted to %d, want %d", n, goroutines*each)
	}
}
