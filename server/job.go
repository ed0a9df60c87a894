package server

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// keySent is the attribute of a stored job that has what of its request cannot be told
// from the job: see sent. No answer has it.
const keySent = "ojs:sent"

// sent is how a request has written what the job has in another form.
type sent struct {
	ScheduledAt string `json:"scheduled_at,omitempty"` // F009
	ExpiresAt   string `json:"expires_at,omitempty"`
	Tags        bool   `json:"tags,omitempty"`    // they were no member of meta
	Timeout     bool   `json:"timeout,omitempty"` // in seconds, as is Lease
	Lease       bool   `json:"lease,omitempty"`
}

func sentOf(j *ojs.JobInfo) (as sent) {
	if v, ok := j.Extra[keySent]; ok {
		_ = json.Unmarshal(v, &as) // or another program has written it
	}
	return as
}

// anonymous is the worker of a fetch that has named none. No answer names it.
const anonymous = "http-anonymous"

var (
	defaultRetry, _     = policy.Resolve(ojs.RetryPolicy{})
	defaultRetryJSON, _ = json.Marshal(defaultRetry)
)

// appendJob writes a job (F040). further are members that follow those of the job.
func appendJob(b []byte, rec *storage.Record, further ...any) []byte {
	as := sentOf(&rec.JobInfo)
	b = append(b, `{"specversion":"1.0","id":`...)
	b = appendString(b, rec.ID)
	b = append(b, `,"type":`...)
	b = appendString(b, rec.Type)
	b = append(b, `,"queue":`...)
	b = appendString(b, rec.Queue)
	b = append(b, `,"state":"`...)
	b = append(b, rec.State...)
	b = append(b, `","args":`...)
	args, err := rec.Args.MarshalJSON()
	if err != nil {
		args = []byte("[]")
	}
	b = append(b, args...)
	b = append(b, `,"meta":`...)
	b = appendMeta(b, rec.Meta, as.Tags)
	b = appendNumber(b, `,"priority":`, int64(rec.Priority))
	b = appendNumber(b, `,"attempt":`, int64(rec.Attempt))
	b = appendNumber(b, `,"max_attempts":`, int64(rec.Retry.Runs()))
	b = append(b, `,"tags":`...)
	b = appendTags(b, rec.Meta["tags"])
	b = appendNumber(b, `,"timeout_ms":`, draft.Milliseconds(rec.Timeout))
	b = appendNumber(b, `,"visibility_timeout_ms":`, draft.Milliseconds(rec.Lease))
	if as.Timeout {
		b = strconv.AppendFloat(append(b, `,"timeout":`...), rec.Timeout.Seconds(), 'f', -1, 64)
	}
	if as.Lease {
		b = strconv.AppendFloat(append(b, `,"visibility_timeout":`...), rec.Lease.Seconds(), 'f', -1, 64)
	}
	if v := rec.TypeVersion; v != "" {
		b = append(b, `,"version":`...)
		if _, err := strconv.ParseUint(v, 10, 64); err == nil { // as it was sent
			b = append(b, v...)
		} else {
			b = appendString(b, v)
		}
	}
	b = append(b, `,"retry":`...)
	b = appendRetry(b, rec.Retry)
	if u := rec.Unique; u != nil {
		b = append(append(b, `,"unique":`...), marshal(u)...)
		b = appendText(b, `,"unique_key":`, u.Key)
	}
	if rec.RateLimit != nil {
		b = append(append(b, `,"rate_limit":`...), marshal(rec.RateLimit)...)
	}
	b = appendWhen(b, `,"created_at":`, rec.CreatedAt, "")
	b = appendWhen(b, `,"enqueued_at":`, rec.EnqueuedAt, "")
	b = appendWhen(b, `,"scheduled_at":`, rec.ScheduledAt, as.ScheduledAt)
	b = appendWhen(b, `,"expires_at":`, rec.ExpiresAt, as.ExpiresAt)
	b = appendWhen(b, `,"started_at":`, rec.StartedAt, "")
	b = appendEnd(b, &rec.JobInfo)
	b = appendWhen(b, `,"next_retry_at":`, rec.NextRetryAt, "")
	if d, ok := retryDelay(&rec.JobInfo); ok {
		b = appendNumber(b, `,"retry_delay_ms":`, draft.Milliseconds(d))
	}
	if rec.Result != nil && rec.State == ojs.StateCompleted {
		b = append(append(b, `,"result":`...), rec.Result...)
	}
	if rec.Error != nil {
		b = append(b, `,"error":`...)
		b = appendFailure(b, rec.Error, false)
	}
	for i := range rec.Errors {
		b = append(b, map[bool]string{true: `,"errors":[`, false: `,`}[i == 0]...)
		b = appendFailure(b, &rec.Errors[i], true)
	}
	if len(rec.Errors) > 0 {
		b = append(b, ']')
	}
	if worked(rec.State) && rec.Worker != anonymous {
		b = appendText(b, `,"worker_id":`, rec.Worker)
	}
	if rec.Progress > 0 {
		b = append(append(b, `,"progress":`...), marshal(rec.Progress)...)
	}
	b = appendText(b, `,"workflow_id":`, rec.Keeper())
	if rec.Extra["root_id"] == nil { // or it is the client's
		b = appendText(b, `,"root_id":`, rec.Keeper())
	}
	b = appendRest(b, rec, further)
	for i := 0; i+1 < len(further); i += 2 {
		b = append(b, ',')
		b = append(appendString(b, further[i].(string)), ':')
		b = appendValue(b, further[i+1])
	}
	return append(b, '}')
}

// worked reports whether the worker of a job in a state is of interest.
func worked(s ojs.State) bool {
	return s == ojs.StateActive || s == ojs.StateRetryable || s.Terminal()
}

func appendNumber(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}

func appendText(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	return appendString(append(b, name...), text)
}

// appendWhen writes a time unless it is zero: as it was sent, if that is the same time.
func appendWhen(b []byte, name string, t time.Time, given string) []byte {
	if t.IsZero() {
		return b
	}
	b = append(b, name...)
	if given != "" {
		if at, ok := parseTime(given); ok && at.Sub(t).Abs() < time.Millisecond {
			return appendString(b, given)
		}
	}
	return appendTime(b, t)
}

// appendEnd writes when the job ended.
func appendEnd(b []byte, j *ojs.JobInfo) []byte {
	completed, cancelled, discarded := ends(j)
	b = appendWhen(b, `,"completed_at":`, completed, "")
	b = appendWhen(b, `,"cancelled_at":`, cancelled, "")
	return appendWhen(b, `,"discarded_at":`, discarded, "")
}

// ends are the times of the ends of a job (F076). A discarded job whose last attempt
// failed has two.
func ends(j *ojs.JobInfo) (completed, cancelled, discarded time.Time) {
	switch j.State {
	case ojs.StateCompleted:
		completed = j.FinishedAt
	case ojs.StateCancelled:
		cancelled = j.FinishedAt
	case ojs.StateDiscarded:
		discarded = j.FinishedAt
		if failed(j) {
			completed = j.FinishedAt
		}
	}
	return completed, cancelled, discarded
}

// failed reports whether a discarded job ended with a failed attempt, and not since it
// had expired or was dropped.
func failed(j *ojs.JobInfo) bool {
	if j.Error == nil {
		return false
	}
	switch j.Error.Reason {
	case ojs.ReasonExpired, ojs.ReasonDropped, ojs.ReasonDependency, ojs.ReasonRateLimited:
		return false
	}
	return true
}

// retryDelay is the delay before the next attempt of a retryable job, or before the
// attempt of an active one (F075).
func retryDelay(j *ojs.JobInfo) (time.Duration, bool) {
	if len(j.Errors) == 0 {
		return 0, false
	}
	last := &j.Errors[len(j.Errors)-1]
	switch {
	case j.State == ojs.StateRetryable && !j.NextRetryAt.IsZero():
		return max(j.NextRetryAt.Sub(last.At), 0), true
	case j.State != ojs.StateActive || last.Attempt != j.Attempt-1:
	case last.Reason == ojs.ReasonLeaseExpired || last.Reason == ojs.ReasonWorkerDeath:
		return 0, true // F163
	default:
		// The storage keeps no delay. It is that of the policy, as far as jitter lets it
		// be known, and never longer than the wait.
		waited := max(j.StartedAt.Sub(last.At), 0)
		least, most := policy.Delay(j.Retry, last.Attempt, 0), policy.Delay(j.Retry, last.Attempt, 1)
		return max(min(waited, most), min(least, waited)), true
	}
	return 0, false
}

func appendMeta(b []byte, meta map[string]any, withoutTags bool) []byte {
	if len(meta) == 0 {
		return append(b, "{}"...)
	}
	if withoutTags {
		meta = maps.Clone(meta)
		delete(meta, "tags")
	}
	return append(b, marshal(meta)...)
}

func appendTags(b []byte, tags any) []byte {
	switch v := tags.(type) {
	case []string:
		return appendList(b, v)
	case []any:
		texts := make([]string, 0, len(v))
		for _, t := range v {
			if t, ok := t.(string); ok {
				texts = append(texts, t)
			}
		}
		return appendList(b, texts)
	}
	return append(b, "[]"...)
}

func appendRetry(b []byte, p ojs.RetryPolicy) []byte {
	if p.Equal(defaultRetry) {
		return append(b, defaultRetryJSON...)
	}
	return append(b, marshal(p)...)
}

// appendRest writes the attributes of the core that the binding does not list, and
// unknown ones (F040, F174). An unknown one with the name of a member that follows is
// left out.
func appendRest(b []byte, rec *storage.Record, further []any) []byte {
	seconds := func(name string, d time.Duration) {
		if d > 0 {
			b = append(append(b, name...), marshal(d.Seconds())...)
		}
	}
	seconds(`,"total_timeout":`, rec.TotalTimeout)
	seconds(`,"enqueue_ttl":`, rec.EnqueueTTL)
	switch rec.ResultTTL {
	case ojs.KeepForever:
		b = append(b, `,"result_ttl":-1`...)
	case ojs.NoResult:
		b = append(b, `,"result_ttl":0`...)
	default:
		seconds(`,"result_ttl":`, rec.ResultTTL)
	}
	if rec.Fairness != (ojs.Fairness{}) {
		b = append(append(b, `,"fairness":`...), marshal(rec.Fairness)...)
	}
	if rec.Dependencies != nil {
		b = append(append(b, `,"dependencies":`...), marshal(rec.Dependencies)...)
	}
	b = appendWhen(b, `,"dead_lettered_at":`, rec.DeadLetteredAt, "")
	if len(rec.Extra) == 0 {
		return b
	}
	for _, name := range slices.Sorted(maps.Keys(rec.Extra)) {
		_, taken := attributes[name]
		for i := 0; i < len(further); i += 2 {
			taken = taken || further[i] == name
		}
		if taken {
			continue
		}
		b = append(b, ',')
		b = append(appendString(b, name), ':')
		b = append(b, rec.Extra[name]...)
	}
	return b
}

// marshal encodes a value of the library, which encodes.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return null
	}
	return b
}
