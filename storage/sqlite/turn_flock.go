//go:build unix && !aix && !solaris

package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// writable returns nil if this process may write to a file or a directory.
func writable(path string) error {
	const write = 2 // W_OK
	return syscall.Access(path, write)
}

// lockFile takes a file's lock without waiting: for itself alone, or shared. It reports
// whether it has got it, and whether the system has such locks. The end of the process
// gives it back.
func lockFile(f *os.File, alone bool) (got, able bool) {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); {
		case err == nil:
			return true, true
		case errors.Is(err, syscall.EINTR):
		default:
			return false, errors.Is(err, syscall.EWOULDBLOCK)
		}
	}
}

// unlock gives the lock back, if this one has it.
func (t *turn) unlock() {
	if t.f != nil {
		_ = syscall.Flock(int(t.f.Fd()), syscall.LOCK_UN)
	}
}
