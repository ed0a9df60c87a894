package rows

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/storage"
)

// The documents. Their members are stored: one may be added, none may change its meaning.
// An absent member has its default, so that most jobs have no document.

// jobDocument is what no attempt changes and no column has.
type jobDocument struct {
	TypeVersion  string         `json:"type_version,omitempty"` // which the column of the type has, too
	Meta         meta           `json:"meta,omitempty"`
	MaxAttempts  *int           `json:"max_attempts,omitempty"` // nil: those of the policy
	ScheduledAt  time.Time      `json:"scheduled_at,omitzero"`
	ExpiresAt    time.Time      `json:"expires_at,omitzero"`
	CreatedAt    time.Time      `json:"created_at,omitzero"` // only if the column does not hold it
	Retry        *retry         `json:"retry,omitempty"`     // nil: the standard's
	Timeout      *time.Duration `json:"timeout,omitempty"`   // nil: the standard's
	TotalTimeout time.Duration  `json:"total_timeout,omitempty"`
	EnqueueTTL   time.Duration  `json:"enqueue_ttl,omitempty"`
	ResultTTL    time.Duration  `json:"result_ttl,omitempty"`
	RateLimit    *rateLimit     `json:"rate_limit,omitempty"`
	Fairness     fairness       `json:"fairness,omitzero"`
	Unique       *unique        `json:"unique,omitempty"`
	Dependencies *dependencies  `json:"dependencies,omitempty"`
}

// The types below have the fields of their namesakes, and nothing of the wire form, which
// loses some.
type (
	retry struct {
		MaxAttempts        int
		InitialInterval    time.Duration
		BackoffCoefficient float64
		MaxInterval        time.Duration
		Jitter             ojs.Jitter     `json:",omitzero"`
		BackoffStrategy    ojs.Backoff    `json:",omitzero"`
		NonRetryableErrors []string       `json:",omitzero"`
		OnExhaustion       ojs.Exhaustion `json:",omitzero"`
	}
	rateLimit struct {
		Key         string
		Concurrency int         `json:",omitzero"`
		Rate        ojs.Rate    `json:",omitzero"`
		Throttle    ojs.Rate    `json:",omitzero"`
		OnLimit     ojs.OnLimit `json:",omitzero"`
	}
	fairness struct {
		Key    string
		Weight int `json:",omitzero"`
	}
	unique struct {
		Keys         ojs.UniqueKeys `json:",omitzero"`
		ArgsKeys     []string       `json:",omitzero"`
		MetaKeys     []string       `json:",omitzero"`
		Key          string         `json:",omitzero"`
		Period       time.Duration  `json:",omitzero"`
		PeriodMonths int            `json:",omitzero"`
		States       []ojs.State    `json:",omitzero"`
		OnConflict   ojs.Conflict   `json:",omitzero"`
		MaxWait      time.Duration  `json:",omitzero"`
	}
	dependencies struct {
		Condition   ojs.Condition `json:",omitzero"`
		Unfinished  int           `json:",omitzero"`
		Failed      int           `json:",omitzero"`
		Join        bool          `json:",omitzero"`
		OrderingKey string        `json:",omitzero"`
		InLine      bool          `json:",omitzero"`
		Delay       time.Duration `json:",omitzero"`
		TTL         time.Duration `json:",omitzero"`
	}
	failure struct {
		Attempt   int
		At        time.Time
		Type      string
		Message   string
		Code      ojs.Code
		Reason    ojs.Reason `json:",omitzero"`
		Details   meta       `json:",omitzero"`
		Backtrace []string   `json:",omitzero"`
		StartedAt time.Time  `json:",omitzero"`
		Worker    string     `json:",omitzero"`
	}
	note struct {
		At        time.Time    `json:",omitzero"`
		What      ojs.NoteKind `json:",omitzero"`
		By        string       `json:",omitzero"`
		Text      string       `json:",omitzero"`
		Attempt   int          `json:",omitzero"`
		StartedAt time.Time    `json:",omitzero"`
		Worker    string       `json:",omitzero"`
		Until     time.Time    `json:",omitzero"`
	}
)

// meta is decoded as jobs have it: numbers that float64 does not hold stay what they are.
type meta map[string]any

func (m *meta) UnmarshalJSON(b []byte) error {
	v, err := jsonvalue.Decode(b)
	if err != nil {
		return err
	}
	object, ok := v.(map[string]any)
	if !ok && v != nil {
		return errors.New("meta is no object")
	}
	*m = object
	return nil
}

// standardRetry is the policy of a job whose document has none. It may not follow the
// standard's, should that ever change: jobs are stored.
var standardRetry = ojs.RetryPolicy{
	MaxAttempts: 3, InitialInterval: time.Second, BackoffCoefficient: 2, MaxInterval: 5 * time.Minute,
	Jitter: ojs.JitterOn, BackoffStrategy: ojs.BackoffExponential, NonRetryableErrors: []string{},
	OnExhaustion: ojs.ExhaustionDiscard,
}

const standardTimeout = 30 * time.Minute

func isStandard(p *ojs.RetryPolicy) bool {
	q := &standardRetry
	return p.MaxAttempts == q.MaxAttempts && p.InitialInterval == q.InitialInterval &&
		p.BackoffCoefficient == q.BackoffCoefficient &&
		p.MaxInterval == q.MaxInterval && p.Jitter == q.Jitter && p.BackoffStrategy == q.BackoffStrategy &&
		p.OnExhaustion == q.OnExhaustion &&
		p.NonRetryableErrors != nil && len(p.NonRetryableErrors) == 0
}

// Keeper is storage.Record.Keeper of a job with a document, "" for one that is damaged.
func Keeper(job []byte) string {
	var d struct{ Meta meta }
	if job == nil || json.Unmarshal(job, &d) != nil {
		return ""
	}
	r := storage.Record{JobInfo: ojs.JobInfo{JobHeader: ojs.JobHeader{Meta: d.Meta}}}
	return r.Keeper()
}

// EncodeJob returns what no attempt changes and no column has; nil: all of it is as it is
// by default.
func EncodeJob(r *storage.Record) ([]byte, error) {
	standard := isStandard(&r.Retry)
	if standard && r.TypeVersion == "" &&
		r.MaxAttempts == standardRetry.MaxAttempts && len(r.Meta) == 0 && r.ScheduledAt.IsZero() &&
		r.ExpiresAt.IsZero() &&
		r.Timeout == standardTimeout && r.TotalTimeout == 0 && r.EnqueueTTL == 0 && r.ResultTTL == 0 &&
		r.RateLimit == nil && r.Fairness == (ojs.Fairness{}) && r.Unique == nil && r.Dependencies == nil &&
		len(r.Extra) == 0 && exact(r.CreatedAt) {
		return nil, nil
	}
	d := jobDocument{TypeVersion: r.TypeVersion, Meta: r.Meta,
		ScheduledAt: r.ScheduledAt, ExpiresAt: r.ExpiresAt,
		TotalTimeout: r.TotalTimeout, EnqueueTTL: r.EnqueueTTL, ResultTTL: r.ResultTTL,
		Fairness: fairness(r.Fairness)}
	if r.MaxAttempts != r.Retry.Runs() {
		d.MaxAttempts = &r.MaxAttempts
	}
	if !standard {
		p := retry(r.Retry)
		d.Retry = &p
	}
	if r.Timeout != standardTimeout {
		d.Timeout = &r.Timeout
	}
	if !exact(r.CreatedAt) {
		d.CreatedAt = r.CreatedAt
	}
	if r.RateLimit != nil {
		l := rateLimit(*r.RateLimit)
		d.RateLimit = &l
	}
	if r.Unique != nil {
		u := unique(*r.Unique)
		d.Unique = &u
	}
	if r.Dependencies != nil {
		w := dependencies(*r.Dependencies)
		d.Dependencies = &w
	}
	b, err := json.Marshal(&d)
	if err != nil || len(r.Extra) == 0 {
		return b, err
	}
	// Raw values go in by hand: encoding/json would rewrite them.
	o := object{b: b[:len(b)-1], some: len(b) > 2}
	o.b = append(o.key("extra"), '{')
	o.some = false
	for _, name := range slices.Sorted(maps.Keys(r.Extra)) {
		o.raw(name, r.Extra[name])
	}
	return append(o.b, "}}"...), nil
}

// DecodeJob gives a record what EncodeJob was given. The columns are there.
func DecodeJob(r *storage.Record, b []byte) error {
	d := struct {
		jobDocument
		Extra map[string]json.RawMessage `json:"extra"`
	}{}
	if b != nil {
		if err := json.Unmarshal(b, &d); err != nil {
			return err
		}
	}
	r.TypeVersion, r.Meta, r.Extra = d.TypeVersion, d.Meta, d.Extra
	r.EnqueueTTL, r.Fairness = d.EnqueueTTL, ojs.Fairness(d.Fairness)
	r.ScheduledAt, r.ExpiresAt, r.TotalTimeout, r.ResultTTL = d.ScheduledAt, d.ExpiresAt,
		d.TotalTimeout, d.ResultTTL
	if !exact(r.CreatedAt) {
		r.CreatedAt = d.CreatedAt
	}
	r.Retry = standardRetry
	if d.Retry != nil {
		r.Retry = ojs.RetryPolicy(*d.Retry)
	}
	r.MaxAttempts = r.Retry.Runs()
	if d.MaxAttempts != nil {
		r.MaxAttempts = *d.MaxAttempts
	}
	r.Timeout = standardTimeout
	if d.Timeout != nil {
		r.Timeout = *d.Timeout
	}
	if d.RateLimit != nil {
		l := ojs.RateLimit(*d.RateLimit)
		r.RateLimit = &l
	}
	if d.Unique != nil {
		u := ojs.UniquePolicy(*d.Unique)
		r.Unique = &u
	}
	if d.Dependencies != nil {
		w := ojs.Dependencies(*d.Dependencies)
		r.Dependencies = &w
	}
	return nil
}

// outcomeDocument is what attempts have come to and no column has.
type outcomeDocument struct {
	Error   *failure  `json:"error,omitempty"`
	Errors  []failure `json:"errors,omitempty"`
	History []note    `json:"history,omitempty"`
	Far     *farTimes `json:"far,omitempty"`
}

// farTimes are times that their columns do not hold.
type farTimes struct {
	EnqueuedAt     time.Time `json:",omitzero"`
	StartedAt      time.Time `json:",omitzero"`
	NextRetryAt    time.Time `json:",omitzero"`
	FinishedAt     time.Time `json:",omitzero"`
	DeadLetteredAt time.Time `json:",omitzero"`
	LeaseUntil     time.Time `json:",omitzero"`
}

func encodeFailure(f *ojs.Failure) failure {
	return failure{f.Attempt, f.At, f.Type, f.Message, f.Code, f.Reason, f.Details, f.Backtrace,
		f.StartedAt, f.Worker}
}

func (f *failure) decode() ojs.Failure {
	return ojs.Failure{
		Attempt: f.Attempt, At: f.At, Type: f.Type, Message: f.Message, Code: f.Code, Reason: f.Reason,
		Details: f.Details, Backtrace: f.Backtrace, StartedAt: f.StartedAt, Worker: f.Worker,
	}
}

func times(r *storage.Record, f *farTimes) [6][2]*time.Time {
	return [6][2]*time.Time{
		{&r.EnqueuedAt, &f.EnqueuedAt}, {&r.StartedAt, &f.StartedAt}, {&r.NextRetryAt, &f.NextRetryAt},
		{&r.FinishedAt, &f.FinishedAt}, {&r.DeadLetteredAt, &f.DeadLetteredAt},
		{&r.LeaseUntil, &f.LeaseUntil},
	}
}

// near reports whether columns hold the times of a record.
func near(r *storage.Record) bool {
	for _, t := range times(r, new(farTimes)) {
		if !exact(*t[0]) {
			return false
		}
	}
	return true
}

// EncodeOutcome returns what attempts have come to and no column has; nil: nothing.
func EncodeOutcome(r *storage.Record) ([]byte, error) {
	if r.Error == nil && len(r.Errors) == 0 && len(r.History) == 0 && r.Result == nil && near(r) {
		return nil, nil
	}
	var d outcomeDocument
	var far farTimes
	for _, t := range times(r, &far) {
		if !exact(*t[0]) {
			*t[1] = *t[0]
			d.Far = &far
		}
	}
	if r.Error != nil {
		f := encodeFailure(r.Error)
		d.Error = &f
	}
	for i := range r.Errors {
		d.Errors = append(d.Errors, encodeFailure(&r.Errors[i]))
	}
	for _, n := range r.History {
		d.History = append(d.History, note(n))
	}
	b, err := json.Marshal(&d)
	if err != nil {
		return nil, err
	}
	o := object{b: b[:len(b)-1], some: len(b) > 2}
	if r.Result != nil {
		o.raw("result", r.Result)
	}
	return append(o.b, '}'), nil
}

// DecodeOutcome adds to a record what EncodeOutcome was given. The columns are there.
func DecodeOutcome(r *storage.Record, b []byte) error {
	if b == nil {
		return nil
	}
	d := struct {
		outcomeDocument
		Result json.RawMessage `json:"result"`
	}{}
	if err := json.Unmarshal(b, &d); err != nil {
		return err
	}
	if d.Error != nil {
		f := d.Error.decode()
		r.Error = &f
	}
	for i := range d.Errors {
		r.Errors = append(r.Errors, d.Errors[i].decode())
	}
	for _, n := range d.History {
		r.History = append(r.History, ojs.Note(n))
	}
	r.Result = d.Result
	if d.Far != nil {
		for _, t := range times(r, d.Far) {
			if !exact(*t[0]) { // or a statement has changed the column since
				*t[0] = *t[1]
			}
		}
	}
	return nil
}

// object is a JSON object that is being written.
type object struct {
	b    []byte
	some bool // it has a member
}

func (o *object) key(name string) []byte {
	if o.some {
		o.b = append(o.b, ',')
	}
	o.some = true
	key, _ := json.Marshal(name) // strings always encode
	o.b = append(append(o.b, key...), ':')
	return o.b
}

func (o *object) raw(name string, value json.RawMessage) { o.b = append(o.key(name), value...) }

// EncodeDepends returns Dependencies as a column of their own has them.
func EncodeDepends(d *ojs.Dependencies) ([]byte, error) { return json.Marshal((*dependencies)(d)) }

func decodeDepends(r *storage.Record, b []byte) error {
	var d *dependencies
	if err := json.Unmarshal(b, &d); err != nil {
		return err
	}
	if d == nil {
		return errors.New("is null")
	}
	r.Dependencies = (*ojs.Dependencies)(d)
	return nil
}
