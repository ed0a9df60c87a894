package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/storage"
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

// readLogs reads the logs of a job. The error names those that cannot be read; the
// others are in logs.
func readLogs(id string, stored []storage.Log) (logs []AttemptLog, err error) {
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

// decoded is an encoded log with its lines decoded. key is the id of the codec's key.
func (log AttemptLog) decoded(ctx context.Context, by *codec.Chain, key string) (AttemptLog, error) {
	raw, err := by.DecodeValue(ctx, log.Encoded, key)
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
