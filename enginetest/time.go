package enginetest

import (
	"context"
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs/engine"
)

// Now is what the engine's clock shows.
func (e *Engine[T]) Now() time.Time {
	if e.clock == nil {
		return wall.Now().UTC() // the bubble's
	}
	return e.clock.Now().UTC()
}

// Elapsed is how far the clock has moved since Start.
func (e *Engine[T]) Elapsed() time.Duration { return e.Now().Sub(Start) }

// Drain runs what is due now, and what that makes due now. The clock stands still.
func (e *Engine[T]) Drain() {
	e.tb.Helper()
	e.Advance(0)
}

// Advance moves the clock on by d, from one time at which something is due to the next:
// every event happens at its exact time, and has happened when Advance returns. It fails
// the test if a handler goes on for 10 s of real time, and says which one and where it
// waits.
func (e *Engine[T]) Advance(d time.Duration) {
	e.tb.Helper()
	if d < 0 {
		e.tb.Fatalf("enginetest: Advance(%v): time does not go back", d)
	}
	if e.clock == nil {
		synctest.Wait()
		wall.Sleep(d)
		synctest.Wait()
		return
	}
	e.advanceTo(e.clock.Now().Add(d))
}

func (e *Engine[T]) advanceTo(end time.Time) {
	e.tb.Helper()
	for {
		e.idle(e.Engine)
		next, some := e.NextWake()
		if !some || next.After(end) {
			break
		}
		e.clock.Set(next)
	}
	if end.After(e.clock.Now()) {
		e.clock.Set(end)
	}
	e.idle(e.Engine)
}

// SetTime moves the clock on to t, as Advance does. It fails the test if t has passed.
func (e *Engine[T]) SetTime(t time.Time) {
	e.tb.Helper()
	if now := e.Now(); t.Before(now) {
		e.tb.Fatalf("enginetest: SetTime(%v): it is %v, and time does not go back", t, now)
	}
	e.Advance(t.Sub(e.Now()))
}

// idle waits until an engine on the virtual clock has nothing to do at the clock's
// present.
func (e *Engine[T]) idle(eng *engine.Engine[T]) {
	e.tb.Helper()
	if e.mode == fake {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	t := wall.AfterFunc(patience, cancel)
	defer t.Stop()
	if err := eng.WaitIdle(ctx); err != nil {
		e.tb.Fatalf("enginetest: the engine is still busy after %v of real time\n%s", patience, blocked(eng))
	}
}

// blocked says which handlers keep an engine busy, and what to do about it.
func blocked[T any](eng *engine.Engine[T]) string {
	var b strings.Builder
	for _, r := range eng.Running() {
		if !r.Asleep {
			fmt.Fprintf(&b,
				"job %s of type %s, attempt %d, waits where the virtual clock cannot see it:\n%s\n\n",
				r.Job.ID, r.Job.Type, r.Job.Attempt, r.Stack)
		}
	}
	b.WriteString("A handler that waits for time does so in handler.Sleep. For one that waits for its context, a channel or time.Sleep, " +
		"run the test in enginetest.Test.")
	return b.String()
}
