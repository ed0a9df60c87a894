package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// ErrNoAttempt says that a context does not come from a running attempt.
var ErrNoAttempt = errors.New("ojs: no attempt is running in this context")

// Job returns the header of the job that is running in ctx, nil outside of an attempt.
// All callers during the attempt share it: do not change it. If a goroutine uses this
// package and outlives the handler, call Job once before the handler returns.
func Job(ctx context.Context) *ojs.JobHeader {
	if a := attempt.From(ctx); a != nil {
		return a.Header()
	}
	return nil
}

// Logger returns the engine's logger with the job's id, type, queue and attempt. An
// engine with engine.WithJobLogs keeps the lines with the job, too. Outside of an attempt
// it is slog.Default.
func Logger(ctx context.Context) *slog.Logger {
	if a := attempt.From(ctx); a != nil {
		return a.Logger()
	}
	return slog.Default()
}

// SetResult sets the job's result: a value that encodes to at most 1 MiB of JSON. It is
// stored if the attempt completes the job. The last call counts. Outside of an attempt it
// returns ErrNoAttempt.
func SetResult(ctx context.Context, v any) error {
	a := attempt.From(ctx)
	if a == nil {
		return ErrNoAttempt
	}
	raw, err := attempt.EncodeResult(v)
	if err != nil {
		return err
	}
	return a.SetResult(raw)
}

// wall is the clock outside of attempts.
var wall = clock.New()

// Now returns the time on the engine's clock: the virtual time under a virtual clock, and
// the database's time on a storage that leads the clock of its engines. Outside of an
// attempt it is time.Now.
func Now(ctx context.Context) time.Time {
	if a := attempt.From(ctx); a != nil {
		return a.Now()
	}
	return wall.Now()
}

// Sleep waits for d on the engine's clock. It returns nil after d, and the cause of ctx's
// end if that comes first. Outside of an attempt it returns ErrNoAttempt at once. Under a
// virtual clock, as in tests, a sleeping handler counts as idle.
func Sleep(ctx context.Context, d time.Duration) error {
	a := attempt.From(ctx)
	if a == nil {
		return ErrNoAttempt
	}
	return a.Sleep(ctx, d)
}

// Progress reports how much of its work the attempt has done, from 0 to 1. A lower value
// than before, NaN, and a call outside of an attempt are ignored. It counts as a
// heartbeat. Lookups and subscribers see it, at most once a second, and the next attempt
// begins at 0 again.
func Progress(ctx context.Context, fraction float64) {
	if a := attempt.From(ctx); a != nil {
		a.Progress(fraction)
	}
}

// Heartbeat renews the attempt's lease now. Engines renew it while a handler runs. A
// handler calls Heartbeat to check that it still holds the job, for example before an
// effect that cannot be undone. If it does not, the error is the cause of the attempt's
// end. Outside of an attempt it is ErrNoAttempt. Other errors are the storage's.
func Heartbeat(ctx context.Context) error {
	a := attempt.From(ctx)
	if a == nil {
		return ErrNoAttempt
	}
	return a.Heartbeat()
}

// SaveCheckpoint stores the state of the attempt's work for the attempts after it: a
// value that encodes to at most 1 MiB of JSON. It replaces the previous one and is stored
// when the call returns nil. It outlives failures, crashes and retries by a call, and is
// deleted when the job ends.
//
// SaveCheckpoint still works after the context has ended, as long as the attempt holds
// its job. Otherwise it returns the cause of the end.
func SaveCheckpoint(ctx context.Context, v any) error {
	a := attempt.From(ctx)
	if a == nil {
		return ErrNoAttempt
	}
	raw, err := attempt.EncodeCheckpoint(v)
	if err != nil {
		return err
	}
	return a.SaveCheckpoint(raw)
}

// LoadCheckpoint decodes the latest checkpoint of the job into v, as json.Unmarshal does,
// but for integers beyond 2^53-1 that meet an any: they are a json.Number. It reports
// false if there is no checkpoint.
func LoadCheckpoint(ctx context.Context, v any) (bool, error) {
	a := attempt.From(ctx)
	if a == nil {
		return false, ErrNoAttempt
	}
	raw, err := a.Checkpoint()
	if err != nil || raw == nil {
		return false, err
	}
	if err := jsonvalue.Unmarshal(raw, v); err != nil {
		return false, fmt.Errorf("ojs: checkpoint: decoding into %T: %w", v, err)
	}
	return true, nil
}
