package ojs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// Priorities with a name. Any integer from -2^31 to 2^31-1 is a priority; higher runs first.
const (
	PriorityLow    = -10
	PriorityNormal = 0
	PriorityHigh   = 10
)

// DefaultQueue is the queue of a job that names none.
const DefaultQueue = "default"

// Meta entries that an engine writes when it replays a dead letter (OJS dead letter, section 7.2).
const (
	MetaReplayCount    = "ojs.replay_count"     // how often the job has been replayed, by a person or a rule: a number
	MetaLastReplayedAt = "ojs.last_replayed_at" // RFC 3339
	MetaReplayRule     = "ojs.replay_rule"      // the rule that replayed it last; absent if a person did
)

// JobHeader is what every part of a running program needs of a job. It is small: handlers get one per attempt.
type JobHeader struct {
	ID, Type, Queue string
	Priority        int            // higher first, 0 by default
	Attempt         int            // 0 before the first run, 1 in it
	MaxAttempts     int            // all runs, the first included
	Meta            map[string]any // as JSON gives it back: numbers are float64, lists []any. tags, trace_id, tenant_id, ... have known meanings
	Errors          []Failure      // of earlier attempts, oldest first, the last 10 at least
	CreatedAt       time.Time
	ScheduledAt     time.Time // zero: at once
}

// Job is a job as its handler sees it.
type Job[T any] struct {
	JobHeader
	Args T
}

// JobInfo is a job as the engine stores it, the whole OJS envelope: what lookups return. It encodes to and decodes from
// the wire form (OJS core, section 5). A zero time means "not set".
type JobInfo struct {
	JobHeader
	Args  Args
	State State

	Retry        RetryPolicy   // effective: every field is set
	Timeout      time.Duration // of one attempt
	TotalTimeout time.Duration // of all attempts, from CreatedAt; 0: none
	Lease        time.Duration // how long an attempt holds the job without renewing; the standard's visibility timeout
	RateLimit    *RateLimit    // nil: none
	Unique       *UniquePolicy // that it was enqueued with; nil: none
	ResultTTL    time.Duration // how long the job is kept after its end at least; 0: as the engine's retention says. Also NoResult, KeepForever

	ExpiresAt      time.Time // from then on the job no longer starts
	EnqueuedAt     time.Time // when it first became available, or was replayed
	StartedAt      time.Time // of the latest attempt
	NextRetryAt    time.Time // only while retryable
	FinishedAt     time.Time // completed_at, cancelled_at or discarded_at, by State
	DeadLetteredAt time.Time // zero: not a dead letter

	Progress float64         // of the latest attempt, as its handler reported it: from 0 to 1, and 1 once completed
	Error    *Failure        // the latest failure; nil after success
	Result   json.RawMessage // of a completed job whose handler set one

	Extra map[string]json.RawMessage // attributes this version does not know, kept as they are
}

// DeadLettered reports whether the job is a dead letter.
func (j *JobInfo) DeadLettered() bool { return !j.DeadLetteredAt.IsZero() }

// DecodeResult decodes the job's result into v, as json.Unmarshal does. It fails if the job has none.
func (j *JobInfo) DecodeResult(v any) error {
	if j.Result == nil {
		return errors.New("ojs: job " + j.ID + " has no result")
	}
	if err := json.Unmarshal(j.Result, v); err != nil {
		return fmt.Errorf("ojs: result of job %s: decoding into %T: %w", j.ID, v, err)
	}
	return nil
}

// Clone returns a copy that shares nothing with j.
func (j *JobInfo) Clone() *JobInfo {
	c := new(JobInfo)
	*c = *j
	c.Detach()
	return c
}

// Detach gives j copies of its own of all that a shallow copy of it shares, as a storage does before it hands out a
// record. It costs nothing for a job without meta, errors, result and non-retryable errors.
func (j *JobInfo) Detach() {
	j.Meta = jsonvalue.Clone(j.Meta)
	j.Errors = cloneFailures(j.Errors)
	j.Retry.NonRetryableErrors = slices.Clone(j.Retry.NonRetryableErrors)
	j.Result = bytes.Clone(j.Result)
	if j.Unique != nil {
		j.Unique = j.Unique.clone()
	}
	if j.RateLimit != nil {
		l := *j.RateLimit
		j.RateLimit = &l
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
