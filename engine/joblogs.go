package engine

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/ojsengine/ojs/engine/internal/joblog"
	"github.com/ojsengine/ojs/inspect"
)

// Logs of jobs:
//
//  1. The logger of an attempt (handler.Logger) writes to the engine's log and, from the
//     level of WithJobLogs on, to a buffer of the attempt.
//  2. When the attempt is decided on, the buffer is copied and encoded by the engine's
//     codecs. Lines that come later are in the engine's log only.
//  3. The copy is part of the change that stores the outcome (storage.Change.Log).
//
// An outcome with a log is stored by Settle, since SettleAndClaim takes none.

// WithJobLogs keeps what handlers log by handler.Logger, from a level on, with the job,
// for Jobs.Logs. The level of WithLogger does not matter. An attempt keeps its last 64
// KiB of lines, as slog.JSONHandler writes them; lines before are cut. The log is stored
// in the same step as the outcome of the attempt. A job keeps the logs of its last 10
// attempts that have logged, until it is deleted. Attempts that are lost (a crash, a
// lease that ran out) leave no log.
//
// An attempt that logs nothing costs nothing. An attempt that logs costs the writing of
// its lines, and its outcome is not stored in one step with the next claim. WithCodec
// encodes the lines.
func WithJobLogs(level slog.Level) Option {
	return func(c *config) error {
		c.jobLogs = &level
		return nil
	}
}

// encodeLog returns the lines of an attempt as they are stored with its outcome, nil if
// there are none. An outcome is stored even if they cannot be encoded, without them.
func (c *core) encodeLog(f *settlement, attempt int, began time.Time, l *joblog.Lines) []byte {
	if l == nil {
		return nil
	}
	array, n, cut := l.List()
	if n == 0 && cut == 0 {
		return nil
	}
	var err error
	if c.codec != nil && n > 0 {
		array, err = c.codec.EncodeValue(context.Background(), array)
	}
	if err != nil || n == 0 {
		array, cut = json.RawMessage("[]"), cut+n
	}
	data, err := json.Marshal(inspect.StoredLog{Attempt: attempt, Start: began, End: f.at,
		Worker: f.rec.Worker, Cut: cut, Lines: array})
	if err != nil { // a line that is no JSON
		c.jobLog(&f.rec.JobHeader).Error("log of an attempt not stored", "error", err)
		return nil
	}
	return data
}

// Logger implements internal.Attempt.
func (a *attempt) Logger() *slog.Logger {
	c := a.r.c
	log := c.jobLog(&a.rec.JobHeader)
	if c.jobLogs == nil {
		return log
	}
	c.mu.Lock()
	if a.lines == nil {
		a.lines = new(joblog.Lines)
	}
	to := a.lines
	c.mu.Unlock()
	return slog.New(to.Tee(log.Handler(), *c.jobLogs, c.now))
}
