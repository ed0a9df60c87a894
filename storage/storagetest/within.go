package storagetest

import (
	"runtime"
	"testing"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// watchdog is how long a case, a step of Random, a history, and a Close may take.
const watchdog = time.Minute

// within calls f on a goroutine of its own and reports whether f has returned before the
// watchdog. A call of a storage that hangs thus ends the test and not the process. If f
// panics or ends its goroutine, so does within.
func within(f func()) bool {
	var failure any
	returned := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { failure = recover() }()
		f()
		returned = true
	}()
	select {
	case <-done:
	case <-wall.After(watchdog):
		return false
	}
	if failure != nil {
		panic(failure)
	}
	if !returned {
		runtime.Goexit()
	}
	return true
}

// closes closes a storage at the end of a test. It fails the test if Close hangs.
func closes(tb testing.TB, s storage.Storage) {
	tb.Helper()
	if !within(func() { _ = s.Close() }) {
		tb.Error("Close hangs")
	}
}
