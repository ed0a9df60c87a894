package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/internal/stored"
)

// AttemptLog is what an attempt has logged by handler.Logger.
type AttemptLog struct {
	Attempt    int       // as Attempt.N
	Start, End time.Time // End is zero: the attempt runs
	Worker     string

	// Lines are JSON objects with time, level, msg and the attributes, the oldest first.
	Lines []json.RawMessage

	// Encoded are the lines as codecs have encoded them, for Jobs.DecodeLog;
	// nil: they are in Lines.
	Encoded json.RawMessage

	Cut int // how many older lines were cut, or could not be encoded
}

// Logs returns what the last attempts of a job have logged, the oldest first, of engines
// with WithJobLogs. It costs one lookup, of at most 10 logs of 64 KiB. An unknown id
// gives ojs.ErrNotFound. If a log cannot be read, Logs returns the others with an error.
func (j *Jobs) Logs(ctx context.Context, id string) ([]AttemptLog, error) {
	stored, err := j.source.Logs(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(stored) == 0 {
		_, err = j.Record(ctx, id)
		return nil, err
	}
	var logs []AttemptLog
	for _, l := range stored {
		log, bad := ReadLog(l.Data)
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("ojs: the log of job %s at version %d cannot be read: %w",
				id, l.Version, bad))
			continue
		}
		logs = append(logs, log)
	}
	return logs, err
}

// DecodeLog returns a log of a job with its lines decoded by the codecs. A log
// that is not encoded stays as it is. The error is a *codec.Error.
func (j *Jobs) DecodeLog(ctx context.Context, job *ojs.JobInfo, log AttemptLog) (AttemptLog, error) {
	if log.Encoded == nil {
		return log, nil
	}
	key, _ := job.Meta[codec.MetaKeyID].(string)
	raw, err := j.eng.Codec.DecodeValue(ctx, log.Encoded, key)
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

// ReadLog reads a log as it is stored.
func ReadLog(data []byte) (AttemptLog, error) {
	var s stored.Log
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
