package ojs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs/internal/jsonvalue"
)

const specVersion = "1.0"

// envelope is the wire form of a job in the order of its members (OJS core, section 5;
// OJS retry, section 10).
type envelope struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id,omitempty"`
	Type        string          `json:"type"`
	Version     wireVersion     `json:"version,omitempty"`
	Queue       string          `json:"queue"`
	State       State           `json:"state,omitempty"`
	Attempt     int             `json:"attempt"`
	Args        Args            `json:"args"`
	Meta        map[string]any  `json:"meta,omitempty"`
	Priority    int             `json:"priority"`
	Timeout     seconds         `json:"timeout,omitzero"`
	Total       seconds         `json:"total_timeout,omitzero"`
	EnqueueTTL  seconds         `json:"enqueue_ttl,omitzero"`
	Lease       seconds         `json:"visibility_timeout,omitzero"`
	ResultTTL   resultTTL       `json:"result_ttl,omitzero"`
	Retry       *RetryPolicy    `json:"retry,omitempty"`
	Unique      *UniquePolicy   `json:"unique,omitempty"`
	UniqueKey   string          `json:"idempotency_key,omitempty"`
	RateLimit   *RateLimit      `json:"rate_limit,omitempty"`
	Fairness    Fairness        `json:"fairness,omitzero"`
	Depends     *Dependencies   `json:"dependencies,omitempty"`
	ScheduledAt wireTime        `json:"scheduled_at,omitzero"`
	ExpiresAt   wireTime        `json:"expires_at,omitzero"`
	CreatedAt   wireTime        `json:"created_at,omitzero"`
	EnqueuedAt  wireTime        `json:"enqueued_at,omitzero"`
	StartedAt   wireTime        `json:"started_at,omitzero"`
	NextRetryAt wireTime        `json:"next_retry_at,omitzero"`
	CompletedAt wireTime        `json:"completed_at,omitzero"`
	CancelledAt wireTime        `json:"cancelled_at,omitzero"`
	DiscardedAt wireTime        `json:"discarded_at,omitzero"`
	DeadAt      wireTime        `json:"dead_lettered_at,omitzero"`
	Progress    float64         `json:"progress,omitempty"`
	Error       *Failure        `json:"error,omitempty"`
	Errors      []Failure       `json:"errors,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
}

// MarshalJSON encodes the wire form. Attributes of Extra follow the known ones, which
// they cannot replace.
func (j JobInfo) MarshalJSON() ([]byte, error) {
	e := envelope{
		SpecVersion: specVersion, ID: j.ID, Type: j.Type, Version: wireVersion(j.TypeVersion),
		Queue: j.Queue, State: j.State, Attempt: j.Attempt,
		Args: j.Args, Meta: j.Meta, Priority: j.Priority,
		Timeout: seconds(j.Timeout), Total: seconds(j.TotalTimeout), EnqueueTTL: seconds(j.EnqueueTTL),
		Lease: seconds(j.Lease), ResultTTL: resultTTL(j.ResultTTL), Retry: &j.Retry, RateLimit: j.RateLimit,
		Fairness: j.Fairness, Unique: j.Unique, Depends: j.Dependencies,
		ScheduledAt: wireTime(j.ScheduledAt), ExpiresAt: wireTime(j.ExpiresAt),
		CreatedAt: wireTime(j.CreatedAt), EnqueuedAt: wireTime(j.EnqueuedAt),
		StartedAt: wireTime(j.StartedAt), NextRetryAt: wireTime(j.NextRetryAt),
		DeadAt: wireTime(j.DeadLetteredAt), Progress: j.Progress,
		Error: j.Error, Errors: j.Errors, Result: j.Result,
	}
	if j.Unique != nil {
		e.UniqueKey = j.Unique.Key
	}
	switch j.State {
	case StateCompleted:
		e.CompletedAt = wireTime(j.FinishedAt)
	case StateCancelled:
		e.CancelledAt = wireTime(j.FinishedAt)
	case StateDiscarded:
		e.DiscardedAt = wireTime(j.FinishedAt)
	}
	b, err := json.Marshal(e)
	if err != nil || len(j.Extra) == 0 {
		return b, err
	}
	b = b[:len(b)-1]
	for _, name := range slices.Sorted(maps.Keys(j.Extra)) {
		if _, known := attributes[name]; known || name == "specversion" {
			continue
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		b = append(append(append(append(b, ','), key...), ':'), j.Extra[name]...)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON decodes the wire form. It refuses an invalid envelope with an
// *InvalidError and then leaves j as it was. Unknown attributes go to Extra. null is the
// same as absent. Client attributes may stand in an "options" object, as HTTP requests
// have them, but not in both places.
//
// It trusts the system-managed attributes (state, attempt, errors, times), as a reader of
// stored jobs must. ParseDraft does not trust them: use it to take a job from a caller.
func (j *JobInfo) UnmarshalJSON(b []byte) error {
	members, err := decodeObject(b)
	if err != nil {
		return envelopeError("envelope", err.Error())
	}
	d := decoder{job: new(JobInfo)}
	for _, m := range members {
		if err := d.member(m, ""); err != nil {
			return err
		}
	}
	if err := d.finish(); err != nil {
		return err
	}
	*j = *d.job
	return nil
}

// decoder fills job from the members of an envelope.
type decoder struct {
	job      *JobInfo
	seen     map[string]string // attribute -> its place
	finished map[State]time.Time

	noKeys    bool   // the policy has no "keys": the version counts, too
	uniqueKey string // "idempotency_key", which goes into the policy that may come after it
	meta      json.RawMessage
}

func (d *decoder) member(m member, where string) error {
	if isNull(m.value) && m.name != "result" { // a result may be null
		return nil
	}
	switch m.name {
	case "specversion":
		if string(m.value) != strconv.Quote(specVersion) {
			return envelopeError("specversion", fmt.Sprintf("%s is not %q", clip(m.value), specVersion))
		}
		return nil
	case "options":
		if where == "" {
			return d.options(m.value)
		}
	case "delay_until": // its name in the HTTP binding
		if where != "" {
			m.name = "scheduled_at"
		}
	}
	attr, known := attributes[m.name]
	if !known {
		if d.job.Extra == nil {
			d.job.Extra = make(map[string]json.RawMessage)
		}
		d.job.Extra[m.name] = m.value
		return nil
	}
	if before, twice := d.seen[m.name]; twice {
		return envelopeError(m.name, fmt.Sprintf("set both as %q and as %q", before, where+m.name))
	}
	if d.seen == nil {
		d.seen = make(map[string]string)
	}
	d.seen[m.name] = where + m.name
	if err := attr.decode(d, m.value); err != nil {
		if _, typed := err.(*InvalidError); typed {
			return err
		}
		return envelopeError(m.name, err.Error())
	}
	return nil
}

// options hoists the members of an "options" object. Unknown members, and members that a
// client may not set, stay in Extra.
func (d *decoder) options(v json.RawMessage) error {
	members, err := decodeObject(v)
	if err != nil {
		return envelopeError("options", err.Error())
	}
	var rest []member
	for _, m := range members {
		if attr, known := attributes[m.name]; (known && attr.client && !attr.topOnly) ||
			m.name == "delay_until" {
			if err := d.member(m, "options."); err != nil {
				return err
			}
			continue
		}
		rest = append(rest, m)
	}
	if len(rest) == 0 {
		return nil
	}
	kept := make(map[string]json.RawMessage, len(rest))
	for _, m := range rest {
		kept[m.name] = m.value
	}
	raw, err := json.Marshal(kept)
	if err != nil {
		return envelopeError("options", err.Error())
	}
	if d.job.Extra == nil {
		d.job.Extra = make(map[string]json.RawMessage)
	}
	d.job.Extra["options"] = raw
	return nil
}

// finish checks the attributes against one another.
func (d *decoder) finish() error {
	j := d.job
	if name, version, suffixed := strings.Cut(j.Type, "@"); suffixed {
		j.Type = name
		if j.TypeVersion == "" {
			if err := validateVersion(version); err != nil {
				return err
			}
			j.TypeVersion = version
		}
	}
	if err := ValidateType(j.Type); err != nil {
		return err
	}
	if j.Queue == "" {
		j.Queue = DefaultQueue
	}
	if j.RateLimit != nil && j.RateLimit.Key == "" { // max_per_second without a key
		j.RateLimit.Key = "queue:" + j.Queue
	}
	if d.noKeys && j.TypeVersion != "" {
		j.Unique.Keys |= ByVersion
	}
	if d.uniqueKey != "" {
		if j.Unique == nil {
			var o Options
			WithIdempotencyKey(d.uniqueKey)(&o)
			j.Unique = o.Unique
		}
		if j.Unique.Key = d.uniqueKey; j.Unique.Validate() != nil {
			return j.Unique.Validate()
		}
	}
	j.FinishedAt = d.finished[j.State]
	j.MaxAttempts = j.Retry.Runs()
	return nil
}

// decodeFunc decodes an attribute.
type decodeFunc func(d *decoder, v json.RawMessage) error

// attribute is a known attribute of the envelope.
type attribute struct {
	decode  decodeFunc
	client  bool // a client may set it; the system manages the other attributes
	topOnly bool // it is not allowed in "options"
}

var attributes map[string]attribute

func init() { // a function, since the decoders refer to the table
	client := func(decode decodeFunc) attribute { return attribute{decode: decode, client: true} }
	top := func(decode decodeFunc) attribute { return attribute{decode: decode, client: true, topOnly: true} }
	system := func(decode decodeFunc) attribute { return attribute{decode: decode} }
	at := func(field func(*JobInfo) *time.Time) decodeFunc {
		return func(d *decoder, v json.RawMessage) error { return (*wireTime)(field(d.job)).decode(v) }
	}
	ended := func(s State) decodeFunc {
		return func(d *decoder, v json.RawMessage) error {
			var t wireTime
			if err := t.decode(v); err != nil {
				return err
			}
			if d.finished == nil {
				d.finished = make(map[State]time.Time)
			}
			d.finished[s] = time.Time(t)
			return nil
		}
	}
	period := func(field func(*JobInfo) *time.Duration) decodeFunc {
		return func(d *decoder, v json.RawMessage) error { return (*seconds)(field(d.job)).decode(v) }
	}
	attributes = map[string]attribute{
		"id": top(func(d *decoder, v json.RawMessage) error {
			s, err := decodeName(v)
			if err != nil {
				return err
			}
			if _, ok := parseID(s); !ok {
				return fmt.Errorf("%q is not a UUID of RFC 9562", clip([]byte(s)))
			}
			d.job.ID = strings.ToLower(s)
			return nil
		}),
		"type": top(func(d *decoder, v json.RawMessage) (err error) {
			d.job.Type, err = decodeName(v)
			return err
		}),
		"version": top(func(d *decoder, v json.RawMessage) (err error) {
			d.job.TypeVersion, err = decodeVersion(v)
			return err
		}),
		"queue": client(func(d *decoder, v json.RawMessage) (err error) {
			if d.job.Queue, err = decodeName(v); err != nil {
				return err
			}
			return ValidateQueue(d.job.Queue)
		}),
		"args": top(func(d *decoder, v json.RawMessage) error { return d.job.Args.UnmarshalJSON(v) }),
		"meta": client(func(d *decoder, v json.RawMessage) error {
			m, err := decodeMeta(v)
			d.job.Meta, d.meta = m, v
			return err
		}),
		"priority": client(func(d *decoder, v json.RawMessage) (err error) {
			d.job.Priority, err = decodeInt(v)
			return err
		}),
		"timeout":            client(period(func(j *JobInfo) *time.Duration { return &j.Timeout })),
		"total_timeout":      client(period(func(j *JobInfo) *time.Duration { return &j.TotalTimeout })),
		"enqueue_ttl":        client(period(func(j *JobInfo) *time.Duration { return &j.EnqueueTTL })),
		"visibility_timeout": client(period(func(j *JobInfo) *time.Duration { return &j.Lease })),
		"result_ttl": client(func(d *decoder, v json.RawMessage) error {
			return (*resultTTL)(&d.job.ResultTTL).decode(v)
		}),
		"retry": client(func(d *decoder, v json.RawMessage) error { return d.job.Retry.UnmarshalJSON(v) }),
		"unique": client(func(d *decoder, v json.RawMessage) error {
			var given struct{ Keys any }
			d.noKeys = json.Unmarshal(v, &given) == nil && given.Keys == nil
			d.job.Unique = new(UniquePolicy)
			return d.job.Unique.UnmarshalJSON(v)
		}),
		"idempotency_key": client(func(d *decoder, v json.RawMessage) (err error) {
			d.uniqueKey, err = decodeName(v)
			return err
		}),
		"rate_limit": client(func(d *decoder, v json.RawMessage) error {
			d.job.RateLimit = new(RateLimit)
			return d.job.RateLimit.UnmarshalJSON(v)
		}),
		"fairness": client(func(d *decoder, v json.RawMessage) error {
			return d.job.Fairness.UnmarshalJSON(v)
		}),
		"scheduled_at": client(at(func(j *JobInfo) *time.Time { return &j.ScheduledAt })),
		"expires_at":   client(at(func(j *JobInfo) *time.Time { return &j.ExpiresAt })),

		"state": system(func(d *decoder, v json.RawMessage) error {
			s, err := decodeName(v)
			if d.job.State = State(s); err == nil && !d.job.State.Valid() {
				err = fmt.Errorf("%q is no state", clip([]byte(s)))
			}
			return err
		}),
		"dependencies": system(func(d *decoder, v json.RawMessage) error {
			return json.Unmarshal(v, &d.job.Dependencies)
		}),
		"attempt": system(func(d *decoder, v json.RawMessage) (err error) {
			if d.job.Attempt, err = decodeInt(v); err == nil && d.job.Attempt < 0 {
				err = fmt.Errorf("%d is negative", d.job.Attempt)
			}
			return
		}),
		"created_at":       system(at(func(j *JobInfo) *time.Time { return &j.CreatedAt })),
		"enqueued_at":      system(at(func(j *JobInfo) *time.Time { return &j.EnqueuedAt })),
		"started_at":       system(at(func(j *JobInfo) *time.Time { return &j.StartedAt })),
		"next_retry_at":    system(at(func(j *JobInfo) *time.Time { return &j.NextRetryAt })),
		"completed_at":     system(ended(StateCompleted)),
		"cancelled_at":     system(ended(StateCancelled)),
		"discarded_at":     system(ended(StateDiscarded)),
		"dead_lettered_at": system(at(func(j *JobInfo) *time.Time { return &j.DeadLetteredAt })),
		"progress": system(func(d *decoder, v json.RawMessage) error {
			if err := json.Unmarshal(v, &d.job.Progress); err != nil || d.job.Progress < 0 ||
				d.job.Progress > 1 {
				return fmt.Errorf("%s is not a number from 0 to 1", clip(v))
			}
			return nil
		}),
		"error": system(func(d *decoder, v json.RawMessage) error { return json.Unmarshal(v, &d.job.Error) }),
		"errors": system(func(d *decoder, v json.RawMessage) error {
			var all []json.RawMessage
			if err := json.Unmarshal(v, &all); err != nil {
				return err
			}
			if slices.ContainsFunc(all, isNull) {
				return fmt.Errorf("has a null")
			}
			return json.Unmarshal(v, &d.job.Errors)
		}),
		"result": system(func(d *decoder, v json.RawMessage) error { d.job.Result = v; return nil }),
	}
}

func decodeMeta(v json.RawMessage) (map[string]any, error) {
	decoded, err := jsonvalue.Decode(v)
	if err != nil {
		return nil, &InvalidError{Code: InvalidCodeMeta, Field: "meta", Reason: err.Error()}
	}
	m, ok := decoded.(map[string]any)
	if !ok {
		return nil, &InvalidError{Code: InvalidCodeMeta, Field: "meta", Reason: clip(v) + " is not an object"}
	}
	if len(m) == 0 {
		return nil, nil
	}
	return m, nil
}

func envelopeError(field, reason string) error {
	return &InvalidError{Code: InvalidCodeEnvelope, Field: field, Reason: reason}
}
