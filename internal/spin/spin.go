// Package spin has a lock for sections that take less time than putting a goroutine to
// sleep and waking it up.
package spin

import (
	"runtime"
	"sync"

	"github.com/ojsengine/ojs/internal/locks"
)

// Mutex is a sync.Mutex whose Lock waits without sleep at first. Its zero value is
// ready.
//
// A sync.Mutex gives up after a few hundred nanoseconds, and not even tries while other
// goroutines wait for the processor. Where one is held for some microseconds, and wanted
// from two processors half a million times a second, one of them sleeps most of the time.
type Mutex struct {
	_  [64]byte // a waiter reads mu all the time, and must not slow down writers of the fields beside it
	mu sync.Mutex
	_  [64 - 8]byte
}

const (
	looks  = 400
	rest   = 20  // calls between two looks
	yields = 200 // to other goroutines, with a look after each
)

// Lock locks the mutex.
func (m *Mutex) Lock() {
	locks.Taking(m)
	for range looks {
		if m.mu.TryLock() {
			return
		}
		for i := range rest {
			pause(i)
		}
	}
	// The goroutine that has held it for that long may be waiting for this processor.
	// Sleeping costs more than the time to wake up: once a goroutine has slept at a
	// sync.Mutex for a millisecond, the mutex is handed from one sleeper to the next, and
	// no work is done under it while these wake up.
	for range yields {
		runtime.Gosched()
		if m.mu.TryLock() {
			return
		}
	}
	m.mu.Lock()
}

// TryLock locks the mutex if it is free, and reports whether it did.
func (m *Mutex) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	locks.Taking(m)
	return true
}

// pause takes about a nanosecond.
//
//go:noinline
func pause(i int) int { return i }

// Unlock unlocks the mutex, which must be locked.
func (m *Mutex) Unlock() {
	locks.Freed(m)
	m.mu.Unlock()
}
