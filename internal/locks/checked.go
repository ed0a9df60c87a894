//go:build ojslocks

package locks

import (
	"bytes"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Mutex is a sync.Mutex that keeps to the order. The goroutine that locks it unlocks it.
type Mutex struct{ mu sync.Mutex }

// Lock locks the mutex.
func (m *Mutex) Lock() {
	taking(m, 4)
	m.mu.Lock()
}

// TryLock locks the mutex if it is free, and reports whether it did.
func (m *Mutex) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	taking(m, 4)
	return true
}

// Unlock unlocks the mutex.
func (m *Mutex) Unlock() {
	Freed(m)
	m.mu.Unlock()
}

// Taking is called before a lock is taken that is no Mutex.
func Taking(lock any) { taking(lock, 5) }

// held is a lock that a goroutine holds.
type held struct {
	lock any
	rank int // of the package that took it
}

var (
	mu      sync.Mutex
	holding = make(map[string][]held) // by goroutine, in the order in which they were taken
)

// taking notes a lock, and panics if it comes before one that the goroutine holds.
func taking(lock any, skip int) {
	pkg, method := callerOf(skip)
	h := held{lock, slices.Index(order, method)}
	if h.rank < 0 {
		h.rank = slices.Index(order, pkg)
	}
	if h.rank < 0 {
		panic("locks: package " + pkg + " has no place in the order of locks")
	}
	g := goroutine()
	mu.Lock()
	defer mu.Unlock()
	for _, other := range holding[g] {
		if other.rank >= h.rank {
			panic(fmt.Sprintf("locks: a lock of %s is taken while one of %s is held",
				order[h.rank], order[other.rank]))
		}
	}
	holding[g] = append(holding[g], h)
}

// Freed is called after a lock is given back that is no Mutex.
func Freed(lock any) {
	g := goroutine()
	mu.Lock()
	defer mu.Unlock()
	list := holding[g]
	i := slices.IndexFunc(list, func(h held) bool { return h.lock == lock })
	if i < 0 {
		panic("locks: a goroutine gives back a lock that it has not taken")
	}
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(holding, g)
	} else {
		holding[g] = list
	}
}

// callerOf is the package of the function that is skip calls away, and its type if it is
// a method.
func callerOf(skip int) (pkg, method string) {
	pcs := make([]uintptr, 1)
	runtime.Callers(skip, pcs)
	frame, _ := runtime.CallersFrames(pcs).Next()
	parts := strings.SplitN(path.Base(frame.Function), ".", 3)
	return parts[0], strings.Join(parts[:min(2, len(parts))], ".")
}

// goroutine is the id of this goroutine, as its stack begins with it.
func goroutine() string {
	b := make([]byte, 32)
	b = b[:runtime.Stack(b, false)]
	return string(bytes.Fields(b)[1])
}
