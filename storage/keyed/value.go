package keyed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// The value of a job has three parts.
//
//  1. The head is its place, its state, its queue and type, what the storage notes of it,
//     and its version. A listing decodes no more of the jobs that it does not select.
//  2. The attempt is what attempts change. Times that do not fit are in the outcome.
//  3. The body is what no attempt changes, behind the version of the format. A change of
//     nothing but what attempts change copies its bytes.

// format is the version of the value. keyedtest damages it.
const format = 1

// encode appends the value of a job.
func (j *job) encode(v key) key {
	v = v.uint(uint64(j.Place)).byte(byte(rows.Code(j.State))).name(j.Queue).name(j.Type)
	v = v.byte(byte(j.flags)).uint(uint64(j.round)).uint(uint64(j.since))
	if j.State == ojs.StateActive {
		v = v.uint(uint64(j.back.place)).uint(uint64(j.back.round)).uint(uint64(j.handle))
	}
	if j.flags&keptOn != 0 {
		v = v.time(j.keptOn)
	}
	v = v.name(limitOf(&j.Record)).uint(j.Version)

	v = v.uint(uint64(j.Attempt)).uint(math.Float64bits(j.Progress))
	for _, t := range j.times() {
		v = v.nanos(*t)
	}
	v = v.string(j.Worker).bytes(j.Checkpoint).bytes(fail.Must(rows.EncodeOutcome(&j.Record)))

	if j.body != nil {
		return append(v, j.body...)
	}
	v = v.byte(format).string(j.ID).string(j.Fingerprint)
	v = v.int(int64(j.Priority)).int(int64(j.Lease)).nanos(j.CreatedAt)
	args := j.Args.JSON()
	if string(args) == "null" {
		args = nil
	}
	return v.bytes(args).bytes(fail.Must(rows.EncodeJob(&j.Record)))
}

// times are the times that attempts change.
func (j *job) times() [6]*time.Time {
	return [6]*time.Time{&j.EnqueuedAt, &j.StartedAt, &j.NextRetryAt, &j.FinishedAt, &j.DeadLetteredAt,
		&j.LeaseUntil}
}

// readJob returns the job of a value. If a record is given, what no attempt changes is
// that of the record, unless the storage changes that too.
func readJob(seq, v []byte, known *storage.Record) *job {
	j := &job{}
	if err := j.decode(v, known); err != nil {
		fail.With(&undecodable{kind: storage.KindJob, key: jobKey(seq), why: err})
	}
	j.Seq = number(seq)
	return j
}

// decodeHead reads the head, and returns what follows it. Its error says that the value
// is damaged.
func (j *job) decodeHead(v []byte) (r reader, err error) {
	r = readerOf(v)
	j.Place, j.State, j.Queue, j.Type = int64(r.Uint()), rows.State(int(r.byte())), r.name(), r.name()
	j.flags, j.round, j.since = flags(r.byte()), int64(r.Uint()), int64(r.Uint())
	if j.State == ojs.StateActive {
		j.back, j.handle = spot{int64(r.Uint()), int64(r.Uint())}, int64(r.Uint())
	}
	if j.flags&keptOn != 0 {
		j.keptOn = timeOf(r.Take(timeLen))
	}
	if j.limit, j.Version = r.name(), r.Uint(); r.Short || j.State == "" {
		return r, errors.New("the head of the record is damaged")
	}
	return r, nil
}

// decode reads a value. known is that of readJob.
func (j *job) decode(v []byte, known *storage.Record) error {
	r, err := j.decodeHead(v)
	if err != nil {
		return err
	}
	borrows := known != nil && j.flags&counted == 0
	if borrows {
		state, version := j.State, j.Version
		j.Record = *known
		j.State, j.Version = state, version
	}
	j.Attempt, j.Progress = int(r.Uint()), math.Float64frombits(r.Uint())
	for _, t := range j.times() {
		*t = r.nanos()
	}
	j.Worker, j.Checkpoint = r.Text(), bytes.Clone(r.Bytes())
	outcome := r.Bytes()
	j.body = r.B
	if version := r.byte(); !r.Short && version != format {
		return fmt.Errorf("the record has format %d, and this program knows %d", version, format)
	}
	j.Error, j.Errors, j.History, j.Result = nil, nil, nil, nil
	if err = rows.DecodeOutcome(&j.Record, outcome); err != nil || borrows {
		return err
	}
	j.ID, j.Fingerprint = r.Text(), r.Text()
	j.Priority, j.Lease, j.CreatedAt = int(r.Int()), time.Duration(r.Int()), r.nanos()
	args, document := bytes.Clone(r.Bytes()), r.Bytes()
	if r.Short || len(r.B) > 0 {
		return errors.New("the record is damaged")
	}
	if args != nil {
		if j.Args, err = ojs.NewArgs(json.RawMessage(args)); err != nil {
			return fmt.Errorf("args: %w", err)
		}
	}
	return rows.DecodeJob(&j.Record, document)
}
