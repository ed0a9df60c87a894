package ojs

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// ParseDraft makes a draft of a job in its wire form, as a caller sends it: type, args
// and the attributes that a client may set. Attributes that only the system sets (state,
// attempt, errors, result, times of transitions) are ignored. Unknown attributes are
// kept. A backoff strategy that this program does not know is refused. Its error is an
// *InvalidError.
func ParseDraft(envelope []byte) (Draft, error) {
	if len(envelope) > jsonvalue.MaxEnvelope {
		return Draft{}, &InvalidError{Code: InvalidCodeTooLarge, Field: "envelope",
			Reason: fmt.Sprintf("has %d bytes, more than %d", len(envelope), jsonvalue.MaxEnvelope)}
	}
	if !json.Valid(envelope) {
		return Draft{}, envelopeError("envelope", "is not JSON")
	}
	if jsonvalue.Depth(envelope) > jsonvalue.MaxDepth+2 { // args in their array, in the envelope
		return Draft{}, envelopeError("envelope",
			fmt.Sprintf("is nested deeper than %d", jsonvalue.MaxDepth+2))
	}
	var job JobInfo
	members, err := decodeObject(envelope)
	if err != nil {
		return Draft{}, envelopeError("envelope", err.Error())
	}
	d := decoder{job: &job}
	for _, m := range members {
		if attr, known := attributes[m.name]; known && !attr.client {
			continue
		}
		if err := d.member(m, ""); err != nil {
			return Draft{}, err
		}
	}
	if err := d.finish(); err != nil {
		return Draft{}, err
	}
	if err := job.Retry.known(); err != nil {
		return Draft{}, err
	}
	if u := job.Unique; u != nil && u.Dimensions()&ByMeta != 0 && d.meta != nil {
		if err := jsonvalue.Strict(d.meta); err != nil { // as policy.Fingerprint does with args
			return Draft{}, &InvalidError{Code: InvalidCodeUnique, Field: "meta",
				Reason: "has no fingerprint: " + strings.TrimPrefix(err.Error(), "jsontext: ")}
		}
	}
	var opts []Option
	set := func(name string, opt Option) {
		if _, ok := d.seen[name]; ok {
			opts = append(opts, opt)
		}
	}
	set("id", WithID(job.ID))
	set("queue", WithQueue(job.Queue))
	set("priority", WithPriority(job.Priority))
	set("timeout", WithTimeout(job.Timeout))
	set("total_timeout", WithTotalTimeout(job.TotalTimeout))
	set("enqueue_ttl", WithEnqueueTTL(job.EnqueueTTL))
	set("visibility_timeout", WithLease(job.Lease))
	set("result_ttl", func(o *Options) { o.ResultTTL = job.ResultTTL })
	set("retry", WithRetry(job.Retry))
	if job.TypeVersion != "" {
		opts = append(opts, WithVersion(job.TypeVersion))
	}
	if job.Unique != nil {
		opts = append(opts, WithUnique(*job.Unique))
	}
	if job.RateLimit != nil {
		set("rate_limit", WithRateLimit(*job.RateLimit))
	}
	if job.Fairness.Key != "" {
		set("fairness", WithFairnessKey(job.Fairness.Key, job.Fairness.Weight))
	}
	set("scheduled_at", WithScheduledAt(job.ScheduledAt))
	set("expires_at", WithExpiresAt(job.ExpiresAt))
	for name, value := range job.Meta {
		opts = append(opts, WithMeta(name, value))
	}
	if job.Extra != nil {
		opts = append(opts, withExtra(job.Extra))
	}
	var probe Options
	probe.Apply(opts...)
	if probe.err != nil {
		return Draft{}, probe.err
	}
	return NewDraft(job.Type, job.Args, opts...), nil
}
