package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/attempt"
)

// ErrNoAttempt says that a context does not come from a running attempt.
var ErrNoAttempt = errors.New("ojs: no attempt is running in this context")

// Job returns the header of the job that is running in ctx, nil outside of an attempt. It is shared by all who ask during
// the attempt: do not change it.
func Job(ctx context.Context) *ojs.JobHeader {
	if a := attempt.From(ctx); a != nil {
		return a.Header()
	}
	return nil
}

// Logger returns the engine's logger with the job's id, type, queue and attempt. Outside of an attempt it is slog.Default.
func Logger(ctx context.Context) *slog.Logger {
	if a := attempt.From(ctx); a != nil {
		return a.Logger()
	}
	return slog.Default()
}

// SetResult sets the job's result: a value that encodes to JSON. It is stored if the attempt completes the job; the last
// one counts. Outside of an attempt it returns ErrNoAttempt.
func SetResult(ctx context.Context, v any) error {
	a := attempt.From(ctx)
	if a == nil {
		return ErrNoAttempt
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("ojs: result: encoding %T: %w", v, err)
	}
	a.SetResult(raw)
	return nil
}

// Sleep waits for d on the engine's clock, which is virtual in tests, where a sleeping handler counts as idle. It returns
// nil after d, and the cause of ctx's end if that comes first. Outside of an attempt it returns ErrNoAttempt at once.
func Sleep(ctx context.Context, d time.Duration) error {
	a := attempt.From(ctx)
	if a == nil {
		return ErrNoAttempt
	}
	return a.Sleep(ctx, d)
}
