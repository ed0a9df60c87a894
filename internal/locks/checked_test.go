//go:build ojslocks

package locks

import (
	"strings"
	"testing"
)

// The checks are called from functions that stand for those of other packages.
func TestOrder(t *testing.T) {
	before := order
	defer func() { order = before }()
	order = []string{"locks.(*outer)", "locks"}
	var a outer
	var b Mutex
	a.lock()
	b.Lock()
	b.Unlock()
	a.mu.Unlock()

	b.Lock()
	defer b.Unlock()
	defer func() {
		const want = "locks: a lock of locks.(*outer) is taken while one of locks is held"
		if said, _ := recover().(string); !strings.HasPrefix(said, want) {
			t.Errorf("%q", said)
		}
	}()
	a.lock()
}

type outer struct{ mu Mutex }

func (o *outer) lock() { o.mu.Lock() }
