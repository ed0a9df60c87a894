package ojs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	internalencoded "github.com/ojsengine/ojs/internal/encoded"
	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// DefaultQueue is the queue of a job without WithQueue.
const DefaultQueue = "default"

// JobHeader is the part of a job that handlers, middlewares and hooks need. It is small:
// each attempt gets its own.
type JobHeader struct {
	ID, Type, Queue string
	TypeVersion     string // of the type, such as 2.1 (WithVersion); "": none
	Priority        int    // higher first, 0 by default
	Attempt         int    // 0 before the first run, 1 in it
	MaxAttempts     int    // all runs, the first included
	// as JSON gives it back: numbers are float64, lists []any. OJS defines tags,
	// trace_id, tenant_id and others.
	Meta        map[string]any
	Errors      []Failure // of earlier attempts, oldest first, the last 10 at least
	CreatedAt   time.Time
	ScheduledAt time.Time // zero: at once
}

// Job is a job as its handler sees it.
type Job[T any] struct {
	JobHeader
	Args T
}

// JobInfo is a job as the engine stores it, the whole OJS envelope. Lookups return it. It
// encodes to and decodes from the wire form (OJS core, section 5). A zero time means "not
// set".
type JobInfo struct {
	JobHeader
	Args  Args
	State State

	Retry        RetryPolicy   // effective: every field is set
	Timeout      time.Duration // of one attempt
	TotalTimeout time.Duration // of all attempts, from CreatedAt; 0: none
	EnqueueTTL   time.Duration // from CreatedAt to the start of the first attempt; 0: any
	// the time that an attempt holds the job without renewing: the standard's visibility
	// timeout
	Lease     time.Duration
	RateLimit *RateLimit    // nil: none
	Fairness  Fairness      // the zero value: none
	Unique    *UniquePolicy // the policy of its enqueue; nil: none
	// the jobs that it waits for, or has waited for; nil: it has not waited for any
	Dependencies *Dependencies
	// the least time that the job is kept after its end; 0: retention decides. Also
	// NoResult, KeepForever
	ResultTTL time.Duration

	ExpiresAt      time.Time // no attempt starts from then on
	EnqueuedAt     time.Time // when it first became available, or was replayed
	StartedAt      time.Time // of the latest attempt
	NextRetryAt    time.Time // only while retryable
	FinishedAt     time.Time // completed_at, cancelled_at or discarded_at, by State
	DeadLetteredAt time.Time // zero: not a dead letter

	// from 0 to 1, as the handler of the latest attempt reported it; 1 once completed
	Progress float64
	Error    *Failure        // the latest failure; nil after success
	Result   json.RawMessage // of a completed job whose handler set one

	Extra map[string]json.RawMessage // attributes this version does not know, kept as they are

	// attempts that did not count and changes by calls, oldest first, the last 20; not
	// part of the wire form
	History []Note
}

// DeadLettered reports whether the job is a dead letter.
func (j *JobInfo) DeadLettered() bool { return !j.DeadLetteredAt.IsZero() }

// DecodeResult decodes the job's result into v, as json.Unmarshal does, but for integers
// beyond 2^53-1 that meet an any: they are a json.Number. It fails if the job has no
// result, or one that is still encoded by a codec (engine.WithCodec).
func (j *JobInfo) DecodeResult(v any) error {
	if j.Result == nil {
		return errors.New("ojs: job " + j.ID + " has no result")
	}
	if internalencoded.Value(j.Result) {
		return fmt.Errorf("ojs: result of job %s is encoded by a codec: decode the job first, "+
			"by Jobs().Decode of an engine with it", j.ID)
	}
	if err := jsonvalue.Unmarshal(j.Result, v); err != nil {
		return fmt.Errorf("ojs: result of job %s: decoding into %T: %w", j.ID, v, err)
	}
	return nil
}

// Clone returns a copy that shares nothing with j.
func (j *JobInfo) Clone() *JobInfo {
	c := new(JobInfo)
	*c = *j
	c.detach()
	return c
}

// detach replaces everything that a shallow copy of j shares by copies. It costs nothing
// for a job without meta, errors, result and non-retryable errors.
func (j *JobInfo) detach() {
	j.Meta = jsonvalue.Clone(j.Meta)
	j.Errors = cloneFailures(j.Errors)
	j.History = slices.Clone(j.History)
	j.Retry.NonRetryableErrors = slices.Clone(j.Retry.NonRetryableErrors)
	j.Result = bytes.Clone(j.Result)
	j.Unique = j.Unique.Clone()
	if j.RateLimit != nil {
		l := *j.RateLimit
		j.RateLimit = &l
	}
	if j.Dependencies != nil {
		d := *j.Dependencies
		j.Dependencies = &d
	}
	if j.Error != nil {
		f := j.Error.clone()
		j.Error = &f
	}
	if j.Extra != nil {
		j.Extra = maps.Clone(j.Extra)
		for k, v := range j.Extra {
			j.Extra[k] = bytes.Clone(v)
		}
	}
}

func cloneFailures(fs []Failure) []Failure {
	if fs == nil {
		return nil
	}
	c := make([]Failure, len(fs))
	for i := range fs {
		c[i] = fs[i].clone()
	}
	return c
}

func (f *Failure) clone() Failure {
	c := *f
	c.Details = jsonvalue.Clone(f.Details)
	c.Backtrace = slices.Clone(f.Backtrace)
	return c
}
