package engine

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
)

// reportStuck says that an attempt's handler goes on although its context ended more than a grace period ago, and lets
// another attempt run beside it.
func (r *run) reportStuck(a *attempt) {
	c := r.c
	stack := stackOf(a)
	c.mu.Lock()
	if a.returned {
		c.mu.Unlock()
		return
	}
	if a.replaced = r.stuck < c.maxStuck; a.replaced {
		r.stuck++
		r.wake()
	}
	cause, replaced := a.cause, a.replaced
	c.mu.Unlock()
	c.logJob(slog.LevelError, "handler goes on although its context has ended", "error", &a.rec, c.worker,
		slog.Any("cause", cause), slog.Bool("slot_replaced", replaced), slog.String("stack", stack))
}

// maxDump bounds the stacks that are searched for a stuck one.
const maxDump = 8 << 20

// stackOf returns the stack of the goroutine that calls the attempt's handler. No function of the runtime finds a goroutine by
// anything but its stack, in which the attempt is the receiver of call.
func stackOf(a *attempt) string {
	buf := make([]byte, 64<<10)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) || len(buf) >= maxDump {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	frame := fmt.Sprintf(".(*attempt).call(%p", a)
	for g := range strings.SplitSeq(string(buf), "\n\n") {
		if strings.Contains(g, frame) {
			return g
		}
	}
	return "not found"
}
