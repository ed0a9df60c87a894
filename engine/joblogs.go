package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine/internal/joblog"
	"github.com/ojsengine/ojs/storage"
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

// AttemptLog is what an attempt has logged by handler.Logger.
type AttemptLog struct {
	Attempt    int // as Attempt.N
	Start, End time.Time
	Worker     string

	// Lines are JSON objects with time, level, msg and the attributes, the oldest first.
	Lines []json.RawMessage

	// Encoded are the lines as the engine's codecs have encoded them, for Jobs.DecodeLog;
	// nil: they are in Lines.
	Encoded json.RawMessage

	Cut int // how many older lines were cut, or could not be encoded
}

// Logs returns what the last attempts of a job have logged, the oldest first, of engines
// with WithJobLogs. It costs one lookup, of at most 10 logs of 64 KiB. An unknown id
// gives ojs.ErrNotFound. If a log cannot be read, Logs returns the others with an error.
func (j *Jobs) Logs(ctx context.Context, id string) ([]AttemptLog, error) {
	stored, err := j.core.store.Logs(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(stored) == 0 {
		_, err = j.core.get(ctx, id)
		return nil, err
	}
	var logs []AttemptLog
	for _, l := range stored {
		log, bad := readLog(l.Data)
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("ojs: the log of job %s at version %d cannot be read: %w",
				id, l.Version, bad))
			continue
		}
		logs = append(logs, log)
	}
	return logs, err
}

// DecodeLog returns a log of a job with its lines decoded by the engine's codecs. A log
// that is not encoded stays as it is. The error is a *codec.Error.
func (j *Jobs) DecodeLog(ctx context.Context, job *ojs.JobInfo, log AttemptLog) (AttemptLog, error) {
	if log.Encoded == nil {
		return log, nil
	}
	raw, err := j.core.decodeValue(ctx, &storage.Record{JobInfo: *job}, log.Encoded)
	if err != nil {
		return log, err
	}
	if err := json.Unmarshal(raw, &log.Lines); err != nil {
		return log, &codec.Error{Type: codec.ErrorTypeDecodeFailed,
			Err: errors.New("the decoded log is no list of lines")}
	}
	log.Encoded = nil
	return log, nil
}

// storedLog is a log as the storage has it. Its lines may be encoded.
type storedLog struct {
	Attempt int             `json:"attempt"`
	Start   time.Time       `json:"start"`
	End     time.Time       `json:"end"`
	Worker  string          `json:"worker"`
	Cut     int             `json:"cut,omitzero"`
	Lines   json.RawMessage `json:"lines"`
}

func readLog(data []byte) (AttemptLog, error) {
	var s storedLog
	if err := json.Unmarshal(data, &s); err != nil {
		return AttemptLog{}, err
	}
	log := AttemptLog{Attempt: s.Attempt, Start: s.Start, End: s.End, Worker: s.Worker, Cut: s.Cut}
	if codec.IsEncodedValue(s.Lines) {
		log.Encoded = s.Lines
		return log, nil
	}
	return log, json.Unmarshal(s.Lines, &log.Lines)
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
	data, err := json.Marshal(storedLog{attempt, began, f.at, f.rec.Worker, cut, array})
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
