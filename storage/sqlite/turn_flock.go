//go:build unix && !aix && !solaris

package sqlite

import (
	"errors"
	"syscall"
)

// lock takes the lock, and reports false if another one has it. A system that has no such locks is no reason to wait. The end of
// a process gives it back.
func (t *turn) lock() bool {
	if t.f == nil {
		return true
	}
	err := syscall.Flock(int(t.f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	return !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR)
}

// unlock gives the lock back, if this one has it.
func (t *turn) unlock() {
	if t.f != nil {
		_ = syscall.Flock(int(t.f.Fd()), syscall.LOCK_UN)
	}
}
