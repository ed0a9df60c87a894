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
	SetResult(json.RawMessage) error
	Now() time.Time // on the engine's clock
	// Sleep waits on the engine's clock. It returns ctx's cause if ctx ends first.
	Sleep(ctx context.Context, d time.Duration) error
	// Park begins a wait of the handler's goroutine on the engine's clock: for d, for the
	// end of ctx, or for Wake. A negative d has no end.
	Park(ctx context.Context, d time.Duration) Parked
	// Run is the run of an engine that the attempt belongs to, and its number of slots.
	Run() (id any, slots int)
	// AfterFunc calls f after d on the engine's clock, unless stop is called before.
	AfterFunc(d time.Duration, f func()) (stop func())
	Progress(float64)
	Heartbeat() error
	SaveCheckpoint(json.RawMessage) error
	Checkpoint() (json.RawMessage, error) // nil: none
	// Then has jobs stored with the completion of the job.
	Then(ctx context.Context, drafts []ojs.Draft) error
	// Lookup reads a job of the engine's storage, with its result decoded.
	Lookup(ctx context.Context, id string) (*ojs.JobInfo, error)
	// Complete completes the job in the transaction that ctx carries.
	Complete(ctx context.Context) error
	Enqueuer() ojs.Enqueuer // the engine
}

// Parked is a wait. Under a virtual clock its goroutine counts as idle until it ends.
type Parked interface {
	// Wait returns nil after the wait's time and after Wake. If ctx ends before, it gives
	// the cause. Each Parked wants one call of it.
	Wait(ctx context.Context) error
	// Wake ends the wait. The goroutine counts as working from then on.
	Wake()
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
