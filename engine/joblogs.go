package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
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

// maxJobLog is how many bytes of lines are kept of an attempt.
const maxJobLog = 64 << 10

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

// lines is what an attempt has logged: complete lines, each ended by a newline.
type lines struct {
	mu    sync.Mutex
	buf   []byte
	start int // where the lines that are not cut begin
	cut   int
}

// Write adds a line, and cuts the oldest ones beyond the bound.
func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(line) > maxJobLog {
		l.cut++
		return len(line), nil
	}
	l.buf = append(l.buf, line...)
	for len(l.buf)-l.start > maxJobLog {
		l.start += bytes.IndexByte(l.buf[l.start:], '\n') + 1
		l.cut++
	}
	if l.start > maxJobLog {
		l.buf = l.buf[:copy(l.buf, l.buf[l.start:])]
		l.start = 0
	}
	return len(line), nil
}

// list returns the lines as a JSON array, nil if there are none; how many there are, and
// how many were cut.
func (l *lines) list() (array json.RawMessage, n, cut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf) == l.start {
		return nil, 0, l.cut
	}
	kept, newline := l.buf[l.start:len(l.buf)-1], []byte("\n")
	array = append(json.RawMessage("["), bytes.ReplaceAll(kept, newline, []byte(","))...)
	return append(array, ']'), bytes.Count(kept, newline) + 1, l.cut
}

// encodeLog returns the lines of an attempt as they are stored with its outcome, nil if
// there are none. An outcome is stored even if they cannot be encoded, without them.
func (c *core) encodeLog(f *settlement, attempt int, began time.Time, l *lines) []byte {
	if l == nil {
		return nil
	}
	array, n, cut := l.list()
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

// tee is the handler of an attempt's logger: it writes to the engine's log and to the
// lines of the attempt.
type tee struct {
	log, lines slog.Handler
	now        func() time.Time
}

func (t tee) Enabled(ctx context.Context, l slog.Level) bool {
	return t.lines.Enabled(ctx, l) || t.log.Enabled(ctx, l)
}

func (t tee) Handle(ctx context.Context, r slog.Record) error {
	if t.lines.Enabled(ctx, r.Level) {
		line := r
		line.Time = t.now()
		_ = t.lines.Handle(ctx, line) // which writes to memory
	}
	if !t.log.Enabled(ctx, r.Level) {
		return nil
	}
	return t.log.Handle(ctx, r)
}

func (t tee) WithAttrs(as []slog.Attr) slog.Handler {
	return tee{t.log.WithAttrs(as), t.lines.WithAttrs(as), t.now}
}

func (t tee) WithGroup(name string) slog.Handler {
	return tee{t.log.WithGroup(name), t.lines.WithGroup(name), t.now}
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
		a.lines = new(lines)
	}
	to := a.lines
	c.mu.Unlock()
	kept := slog.NewJSONHandler(to, &slog.HandlerOptions{Level: *c.jobLogs})
	return slog.New(tee{log.Handler(), kept, c.now})
}
