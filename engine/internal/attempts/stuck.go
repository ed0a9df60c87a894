package attempts

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"

	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
)

// reportStuck says that an attempt's handler goes on although its context ended more than
// a grace period ago.
func (r *Run) reportStuck(a *attempt) {
	c := r.c
	stack := stackIn(stacks(), a)
	c.mu.Lock()
	if a.returned {
		c.mu.Unlock()
		return
	}
	a.stuck = true
	r.stuck++
	cause := a.cause
	c.mu.Unlock()
	c.LogJob(slog.LevelError, "handler goes on although its context has ended", "error", a.rec, c.Worker,
		slog.Any("cause", cause), slog.String("stack", stack))
}

// Works lists the attempts that handlers work on, with their stacks or without.
func (c *Attempts) Works(withStacks bool) []inspect.Running {
	// one that is another job's after the stacks were written is not in them
	before := make(map[*attempt]storage.Held)
	r := c.Run.Load()
	if r == nil {
		return nil
	}
	all := ""
	if withStacks {
		c.mu.Lock()
		for _, a := range r.attempts {
			before[a] = a.held()
		}
		c.mu.Unlock()
		all = stacks()
	}
	var list []inspect.Running
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range r.attempts {
		if a.returned || !a.started.Load() {
			continue
		}
		stack := notFound
		if before[a] == a.held() {
			stack = stackIn(all, a)
		}
		list = append(list, inspect.Running{
			Job: detached(a.rec), Since: a.began(), Asleep: a.sleep != nil, Ended: a.cause, Stack: stack,
		})
	}
	slices.SortFunc(list, func(a, b inspect.Running) int {
		if n := a.Since.Compare(b.Since); n != 0 {
			return n
		}
		return strings.Compare(a.Job.ID, b.Job.ID)
	})
	return list
}

// maxDump bounds the stacks that are searched for one.
const maxDump = 8 << 20

// stacks returns the stacks of all goroutines.
func stacks() string {
	buf := make([]byte, 64<<10)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) || len(buf) >= maxDump {
			return string(buf[:n])
		}
		buf = make([]byte, 2*len(buf))
	}
}

// notFound is the stack of a handler that was not running when stacks were written.
const notFound = "not found"

// stackIn finds the goroutine that calls the attempt's handler. No function of the
// runtime finds a goroutine by anything but its stack, in which the attempt is the
// receiver of call.
func stackIn(all string, a *attempt) string {
	frame := fmt.Sprintf(".(*attempt).call(%p", a)
	for g := range strings.SplitSeq(all, "\n\n") {
		if strings.Contains(g, frame) {
			return g
		}
	}
	return notFound
}
