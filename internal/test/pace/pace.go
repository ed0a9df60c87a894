// Package pace has the pauses of tests, each by its reason: virtual time that passes, a
// condition that no notice tells of, and work that takes real time under load. Tests call
// time.Sleep nowhere else.
package pace

import (
	"syscall"
	"testing"
	"time"
)

// Virtual lets virtual time pass. Call it only in a bubble of package testing/synctest:
// it panics outside, where it would wait in real time.
func Virtual(d time.Duration) {
	var system syscall.Timeval // which a bubble does not change
	err := syscall.Gettimeofday(&system)
	if err != nil || time.Since(time.Unix(system.Unix())).Abs() < time.Hour {
		panic("pace: virtual time passes in a bubble of testing/synctest only: use Until or Work")
	}
	time.Sleep(d)
}

// Until waits until done returns true, which it asks every millisecond. It fails the test
// after a minute. Use it for what no channel, notice or WaitIdle tells.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Work takes real time, as a handler or a network under load does.
func Work(d time.Duration) { time.Sleep(d) }
