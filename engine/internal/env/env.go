// Package env is what the parts of an engine share: its storage, clock, ids, log and
// events, and the calls by which a part tells the others of a change.
//
// # Invariants
//
//  1. The fields are set before the engine works. Then only those change that have a lock
//     or are atomic.
//  2. The calls of Signals take no lock that is held during a call of the storage. They
//     take locks of parts: TakenAway that of the attempts, Available and ReturnClaimed
//     that of the pipeline. With the lock of the attempts, a caller may call all but
//     TakenAway.
package env

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine/internal/ids"
	"github.com/ojsengine/ojs/engine/internal/journal"
	"github.com/ojsengine/ojs/engine/internal/logs"
	"github.com/ojsengine/ojs/engine/internal/pipeline"
	"github.com/ojsengine/ojs/engine/internal/publish"
	"github.com/ojsengine/ojs/engine/internal/tracing"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/telemetry"
)

// Env is what the parts of one engine share. It is safe for concurrent use.
type Env struct {
	*logs.Lines
	*tracing.Tracers
	*publish.Publisher
	Signals

	Store    storage.Storage
	Clock    clock.Clock
	IDs      *ids.Source
	Name     string
	Worker   string        // the engine in claims, logs and events
	Lease    time.Duration // of claims of jobs without one of their own; 0: the jobs' own
	Mocked   bool          // the clock is virtual
	Durable  bool          // the storage is
	Caller   any           // of the storage's calls
	Codec    *codec.Chain  // nil: none
	Meter    telemetry.Meters
	Journal  journal.Journal
	Holding  journal.Journal // of calls that end no job
	Operator *operate.Operator
	Offers   Bell // rings when jobs may be available, for workers that fetch
	Gone     Gone

	// Unanswers says that the storage has failed since the leases of all processes were
	// renewed last.
	Unanswers atomic.Bool

	wall   wallClock
	outage outage
}

// Signals tell the parts of an engine of a change.
type Signals struct {
	Available     func(n int)                          // n more jobs may be claimed
	WakeAt        func(t time.Time)                    // the storage has a deadline then; zero: none
	Ended         func(rec *storage.Record)            // a job has
	TakenAway     func(held storage.Held, cause error) // a transition has ended a claim
	WorkerLost    func(held storage.Held, cause error) // a worker that fetches has, if it had the job
	ReturnClaimed func()                               // jobs that were claimed ahead go back
	// ClosedBy ends the run if the storage is closed, and reports whether it is.
	ClosedBy func(err error) bool

	RecoverAt func(t time.Time) // all that waits for the storage tries again
}

// Begin readies the clock.
func (c *Env) Begin() { c.wall.start(c.Clock) }

// Unsupported is the error that says what the storage does not do.
func (c *Env) Unsupported(lacks string) error {
	return fmt.Errorf("%w: storage %s %s", ojs.ErrUnsupported, c.Store.Capabilities().Name, lacks)
}

// Get looks a job up.
func (c *Env) Get(ctx context.Context, id string) (*ojs.JobInfo, error) {
	rec, err := c.Store.Get(ctx, id)
	if err != nil {
		return nil, c.Missing(id, err)
	}
	return &rec.JobInfo, nil
}

// Lookup is Get for a caller of the engine, with a trace.
func (c *Env) Lookup(ctx context.Context, id string) (job *ojs.JobInfo, err error) {
	ctx, end := c.TraceID(ctx, telemetry.OpGet, id)
	defer func() { end(err) }()
	return c.Get(ctx, id)
}

// SaysNo reports whether an error is an answer: the storage has changed nothing.
func SaysNo(err error) bool {
	return foreign.Is(err, ojs.ErrDuplicate) || foreign.Is(err, ojs.ErrInvalid) ||
		foreign.Is(err, ojs.ErrClosed)
}

// EndedOtherwise follows the ends of jobs that did not come with the end of an attempt:
// they were cancelled, replaced, dropped or have expired, or have waited for others only.
func (c *Env) EndedOtherwise(recs []storage.Record) {
	for i := range recs {
		r := &recs[i]
		c.Meter.EndedOtherwise(r)
		switch r.State {
		case ojs.StateCancelled:
			c.LogJob(logs.LevelOf(r), "job cancelled", "lifecycle", r, "")
		case ojs.StateDiscarded:
			c.LogJob(slog.LevelError, "job discarded", "error", r, "", publish.FailureAttrs(r.Error)...)
		}
		c.Ended(r)
	}
}

// Encoded payloads.
//
// The storage, events, logs and listings get the encoded form, a handler gets the plain
// one. The places where one becomes the other:
//
//  1. Args are encoded at the end of prepare, after hooks, checks and fingerprint. Args
//     that come encoded, from a client with keys of its own, stay as they are.
//  2. Results and checkpoints are encoded when the handler or the worker hands them in,
//     and the details of an error when the attempt is decided on.
//  3. Args are decoded in attempt.call, before the middlewares; checkpoints when the
//     handler loads them; a whole job when a caller waits for it or asks for it.
//  4. A recurring entry is stored encoded. Its args are decoded for each run, and encoded
//     anew with the job.

// EncodeValue encodes a result or a checkpoint. It refuses one that is then larger than
// most bytes.
func (c *Env) EncodeValue(
	ctx context.Context, field string, raw json.RawMessage, most int,
) (json.RawMessage, error) {
	if c.Codec == nil || raw == nil {
		return raw, nil
	}
	raw, err := c.Codec.EncodeValue(ctx, raw)
	if err == nil && len(raw) > most {
		return nil, draft.InvalidAs(ojs.InvalidCodeResultTooLarge, field,
			"encoded, has %d bytes of JSON, more than %d", len(raw), most)
	}
	return raw, err
}

// EncodeGiven is EncodeValue of a worker's value, which the worker may have encoded.
func (c *Env) EncodeGiven(
	ctx context.Context, field string, raw json.RawMessage, most int,
) (json.RawMessage, error) {
	if codec.IsEncodedValue(raw) {
		return raw, nil
	}
	return c.EncodeValue(ctx, field, raw, most)
}

// DecodeValue decodes the checkpoint of a job.
func (c *Env) DecodeValue(
	ctx context.Context, rec *storage.Record, raw json.RawMessage,
) (json.RawMessage, error) {
	if !codec.IsEncodedValue(raw) {
		return raw, nil
	}
	id, _ := rec.Meta[codec.MetaKeyID].(string)
	return c.Codec.DecodeValue(ctx, raw, id)
}

// DependentsMoved follows jobs that the ends of others have moved.
func (c *Env) DependentsMoved(moved []storage.Record) {
	if len(moved) == 0 {
		return
	}
	c.Depends.Store(true)
	available, wake := 0, time.Time{}
	for i := range moved {
		switch r := &moved[i]; {
		case r.State.Terminal():
			c.EndedOtherwise(moved[i : i+1])
			continue
		case r.State == ojs.StateAvailable:
			available++
		}
		wake = times.Earliest(wake, moved[i].WakeAt())
	}
	c.WakeAt(wake)
	c.Available(available)
}

// Overdue reports whether the deadline of a claimed job, its ExpiresAt or the end of its
// total timeout, has come before its attempt began: the claim may have been slow, and the
// attempt may have waited after it. Such an attempt does not begin, and ends as one that
// is given back: a job past its total timeout is discarded at once, an expired one by the
// storage. The claim itself is in time for an enqueue TTL.
func Overdue(rec *storage.Record, now time.Time) bool {
	deadline := rec.Deadline()
	return !deadline.IsZero() && !now.Before(deadline)
}

// CheckTx is draft.CheckTx of the engine's storage.
func (c *Env) CheckTx(ctx context.Context) error { return draft.CheckTx(ctx, c.Store) }

// Unknown stands for a number of available jobs that has not been counted.
const Unknown = pipeline.Unknown

// TimesOut is when an attempt of the job that began then exceeds its timeout, or the job
// its total timeout.
func TimesOut(rec *storage.Record, began time.Time) time.Time {
	end := began.Add(rec.Timeout)
	if rec.TotalTimeout > 0 {
		if total := rec.CreatedAt.Add(rec.TotalTimeout); total.Before(end) {
			return total
		}
	}
	return end
}

// PlainArgs returns the args of a job for its handler.
func (c *Env) PlainArgs(
	ctx context.Context, rec *storage.Record,
) (args ojs.Args, decoded bool, err error) {
	if !codec.IsEncoded(rec.Args, rec.Meta) {
		return rec.Args, false, nil
	}
	if args, err = c.Codec.DecodeArgs(ctx, rec.Args, rec.Meta); err == nil {
		return args, true, nil
	}
	var e *codec.Error
	if foreign.As(err, &e) && !e.DoNotRetry() && rec.Attempt >= rec.Retry.Runs() {
		err = ojs.DeadLetter(err) // the policy might drop a job that lacks nothing but a key
	}
	return args, true, err
}

// Detached is the header of a job for its handler. It shares nothing with the job.
func Detached(rec *storage.Record) ojs.JobHeader {
	if rec.Meta == nil && rec.Errors == nil {
		return rec.JobHeader
	}
	h := rec.Copy().JobHeader
	if h.Meta != nil {
		h.Meta = codec.PlainMeta(h.Meta)
	}
	return h
}
