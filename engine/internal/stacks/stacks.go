// Package stacks finds the stack of a goroutine by a frame in it. No function of the
// runtime finds a goroutine by anything but its stack.
package stacks

import (
	"runtime"
	"strings"
)

// maxDump bounds the stacks that are searched for one.
const maxDump = 8 << 20

// All returns the stacks of all goroutines. It stops the program for as long as that
// takes.
func All() string {
	buf := make([]byte, 64<<10)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) || len(buf) >= maxDump {
			return string(buf[:n])
		}
		buf = make([]byte, 2*len(buf))
	}
}

// NotFound is the stack of a goroutine that was not there when stacks were written.
const NotFound = "not found"

// Find returns the stack that has a frame.
func Find(all, frame string) string {
	for g := range strings.SplitSeq(all, "\n\n") {
		if strings.Contains(g, frame) {
			return g
		}
	}
	return NotFound
}
