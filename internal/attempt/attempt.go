// Package attempt is what lies between an engine and package handler: the engine puts the
// running attempt into the handler's context, and the functions of package handler find
// it there.
package attempt

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/ojsengine/ojs"
)

// Attempt is one run of a job, as its handler can talk to it. Its methods are safe for
// concurrent use.
type Attempt interface {
	Header() *ojs.JobHeader
	Logger() *slog.Logger
	SetResult(json.RawMessage)
	// Sleep waits on the engine's clock. It returns ctx's cause if ctx ends first.
	Sleep(ctx context.Context, d time.Duration) error
	// AfterFunc calls f after d on the engine's clock, unless stop is called before.
	AfterFunc(d time.Duration, f func()) (stop func())
	Progress(float64)
	Heartbeat() error
	SaveCheckpoint(json.RawMessage) error
	Checkpoint() json.RawMessage // nil: none
}

// Key is the context key of the Attempt. The engine reuses an attempt for another job
// unless a call has asked for it by this key. A call that first asks after the handler
// has returned gets none.
type Key struct{}

// From returns the attempt that ctx belongs to, nil if none.
func From(ctx context.Context) Attempt {
	a, _ := ctx.Value(Key{}).(Attempt)
	return a
}
