package ojs

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs/internal/bridge"
)

// Option sets a property of a job at its enqueue, or a default for a job type, a queue or
// an engine. The nearest to the call wins. Retry policies merge field by field; meta and
// tags add up. Times are relative to the engine's clock at the enqueue. Options of one
// call that exclude each other are refused: two unique policies, or a delay and a time.
//
// An option must do the same each time it is applied, since engines apply defaults once
// for many jobs. It must not keep the Options it is given.
type Option func(*Options)

// Options is the sum of options. Engines and test doubles read it. Programs use the
// functions that return an Option.
type Options struct {
	ID                           string // "": the engine makes one
	Queue                        string
	Priority                     int
	Delay                        time.Duration // excludes ScheduledAt
	ScheduledAt                  time.Time
	TTL                          time.Duration // excludes ExpiresAt
	ExpiresAt                    time.Time
	Timeout, TotalTimeout, Lease time.Duration
	EnqueueTTL                   time.Duration // 0: none
	// the time for which the job is kept after its end; 0: retention decides. Also
	// NoResult, KeepForever
	ResultTTL time.Duration
	Retry     RetryPolicy // zero fields inherit the standard's
	Meta      map[string]any
	RateLimit *RateLimit // nil: none
	// the member of args or meta whose value the key of RateLimit gets; "": none
	RateLimitBy string
	Fairness    Fairness // the zero value: none
	// the member of args or meta whose value is the key of Fairness; "": none
	FairnessBy string
	Unique     *UniquePolicy // nil: none
	Pending    bool          // wait for Jobs.Activate
	Name       string        // of the draft in its batch, for DependsOn; it is not stored
	DependsOn  []string      // jobs that it waits for: ids, and names of drafts of its batch
	Condition  Condition     // how they must end; "": AllSucceeded
	Join       bool          // it does not run: it completes when it could
	// jobs of one key run one at a time in the order of enqueue; "": none
	OrderingKey string
	// of the job's type; "": none
	TypeVersion string
	// attributes of a parsed draft that this version does not know
	Extra map[string]json.RawMessage

	place        bridge.Place // in a fleet; the zero value: none
	err          error        // the first option that is invalid by itself
	given        given        // set by the options of the current Apply
	timeoutGiven bool         // an option has set Timeout
}

// given is a set of properties that one call may set in one way only.
type given uint8

const (
	givenUnique given = 1 << iota
	givenDelay
	givenScheduledAt
	givenTTL
	givenExpiresAt
)

// Limits and defaults of the standard (OJS core, section 5; OJS timeouts).
const (
	DefaultTimeout = 30 * time.Minute // of one attempt
	DefaultLease   = 30 * time.Minute // visibility timeout

	// KeepForever is the WithResultTTL of a job that is never pruned. NoResult is the
	// ResultTTL of a job with WithResultTTL(0).
	KeepForever time.Duration = -1
	NoResult    time.Duration = -2

	minLease    = 100 * time.Millisecond // shorter leases would expire in a busy process
	minPeriod   = time.Millisecond       // a shorter one is a number without its unit
	maxTypeLen  = 255
	maxQueueLen = 128
)

// DefaultOptions returns the options of a job without options.
func DefaultOptions() Options {
	return Options{Queue: DefaultQueue, Timeout: DefaultTimeout, Lease: DefaultLease}
}

func init() {
	bridge.Give(bridge.Options[Options]{
		Place: func(o *Options) *bridge.Place { return &o.place },
		Cell: func(o *Options, key string, partition int) {
			if key == "" {
				o.fail(optionError("cell", "is an empty key"))
			}
			if err := validateKey("cell", key); err != nil {
				o.fail(err)
			}
			o.place.Key, o.place.Partition = key, partition
		},
	})
}

// Clone returns a copy that shares only the values of its meta with o.
func (o *Options) Clone() Options {
	c := *o
	c.Meta, c.Extra = maps.Clone(o.Meta), maps.Clone(o.Extra)
	c.DependsOn = slices.Clone(o.DependsOn)
	c.Retry.NonRetryableErrors = slices.Clone(o.Retry.NonRetryableErrors)
	if o.RateLimit != nil {
		l := *o.RateLimit
		c.RateLimit = &l
	}
	if o.Unique != nil {
		c.Unique = o.Unique.Clone()
	}
	return c
}

// Apply applies opts in order, as the options of one call: if two of them exclude each
// other, the second makes o invalid.
func (o *Options) Apply(opts ...Option) {
	outer := o.given
	o.given = 0
	defer func() { o.given = outer }()
	for _, opt := range opts {
		if opt == nil {
			o.fail(&InvalidError{Code: InvalidCodeOption, Field: "option", Reason: "is nil"})
			continue
		}
		opt(o)
	}
}

// give records that an option sets a property. It refuses the option if the same call has
// set a property that it excludes.
func (o *Options) give(property, excluded given, field, reason string) {
	if o.given&excluded != 0 {
		o.fail(optionError(field, reason))
	}
	o.given |= property
}

func (o *Options) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// Validate checks each option, and the options against one another. Its error is an
// *InvalidError.
func (o *Options) Validate() error {
	if o.err != nil {
		return o.err
	}
	if err := ValidateQueue(o.Queue); err != nil {
		return err
	}
	if err := o.Retry.Validate(); err != nil {
		return err
	}
	if o.TypeVersion != "" {
		if err := validateVersion(o.TypeVersion); err != nil {
			return err
		}
	}
	switch {
	case o.Priority < math.MinInt32 || o.Priority > math.MaxInt32:
		return optionError("priority", fmt.Sprintf("%d is not between -2^31 and 2^31-1", o.Priority))
	case o.Timeout < minPeriod:
		return optionError("timeout", tooShort(o.Timeout))
	case o.EnqueueTTL < 0:
		return optionError("enqueue_ttl", tooShort(o.EnqueueTTL))
	case o.TotalTimeout < 0:
		return optionError("total_timeout", fmt.Sprintf("%v is negative", o.TotalTimeout))
	case o.TotalTimeout > 0 && o.TotalTimeout < minPeriod:
		return optionError("total_timeout", tooShort(o.TotalTimeout))
	case o.TotalTimeout > 0 && o.TotalTimeout < o.Timeout && (o.timeoutGiven || o.Timeout != DefaultTimeout):
		return optionError("total_timeout", fmt.Sprintf("total_timeout %v is less than timeout %v",
			o.TotalTimeout, o.Timeout))
	case o.Lease < minLease:
		return optionError("visibility_timeout", fmt.Sprintf("%v is less than %v", o.Lease, minLease))
	case o.ResultTTL > 0 && o.ResultTTL < minPeriod:
		return optionError("result_ttl", tooShort(o.ResultTTL))
	case o.ResultTTL < 0 && o.ResultTTL != KeepForever && o.ResultTTL != NoResult:
		return optionError("result_ttl",
			fmt.Sprintf("%v is negative; use ojs.KeepForever to keep the job forever", o.ResultTTL))
	case o.Pending && len(o.DependsOn) > 0:
		return optionError("pending", "a pending job waits for its activation, not for other jobs")
	case o.Pending && o.OrderingKey != "":
		return optionError("pending", "a pending job waits for its activation, not for its turn")
	case o.Join && len(o.DependsOn) == 0 && o.OrderingKey == "":
		return optionError("join", "a join waits for other jobs: name them by ojs.WithDependsOn")
	case o.Condition != "" && !o.Condition.Valid():
		return optionError("condition", fmt.Sprintf("%q is not %s, %s or %s", o.Condition,
			AllSucceeded, AnyFailed, AllEnded))
	case !validTime(o.ScheduledAt):
		return optionError("scheduled_at", "is not in the years 1 to 9999")
	case !validTime(o.ExpiresAt):
		return optionError("expires_at", "is not in the years 1 to 9999")
	}
	return validateKey("ordering_key", o.OrderingKey)
}

// tooShort says what is wrong with a duration below minPeriod.
func tooShort(d time.Duration) string {
	if d <= 0 {
		return fmt.Sprintf("%v is not positive", d)
	}
	return fmt.Sprintf("%v is less than %v: write the unit, such as %d*time.Second", d, minPeriod, int64(d))
}

const maxKey = 255 // bytes, of an ordering key and of a fairness key

func validateKey(field, key string) error {
	switch {
	case len(key) > maxKey:
		return optionError(field, fmt.Sprintf("has %d bytes; allowed are up to %d", len(key), maxKey))
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		return optionError(field, fmt.Sprintf("%q is no UTF-8 text without zero bytes", clip([]byte(key))))
	}
	return nil
}

// RFC 3339 has the years 1 to 9999.
var beginOfTime, endOfTime = time.Time{}, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)

func validTime(t time.Time) bool { return !t.Before(beginOfTime) && t.Before(endOfTime) }

func optionError(field, reason string) error {
	return &InvalidError{Code: InvalidCodeOption, Field: field, Reason: reason}
}

// WithQueue puts the job on a queue: lower-case letters, digits, '-' and '.', at most 128
// characters. The default is "default".
func WithQueue(name string) Option { return func(o *Options) { o.Queue = name } }

// WithPriority sets the job's priority within its queue, from -2^31 to 2^31-1. Higher
// runs first; jobs of equal priority run in the order in which they became available. A
// retried job keeps its priority. The default is 0 (OJS core, section 5.2).
func WithPriority(p int) Option { return func(o *Options) { o.Priority = p } }

// WithDelay runs the job no earlier than d after the enqueue; at once if d is not
// positive. With WithDependsOn, and so for a step of a workflow, d counts from when the
// jobs that it waits for have ended.
func WithDelay(d time.Duration) Option {
	return func(o *Options) {
		o.give(givenDelay, givenScheduledAt, "scheduled_at",
			"a delay and a time are given: use WithDelay or WithScheduledAt")
		o.Delay, o.ScheduledAt = max(d, 0), time.Time{}
	}
}

// WithScheduledAt runs the job no earlier than t; at once if t has passed. The zero time
// is no time: it removes a delay or time that a default has set.
func WithScheduledAt(t time.Time) Option {
	return func(o *Options) {
		o.give(givenScheduledAt, givenDelay, "scheduled_at",
			"a delay and a time are given: use WithDelay or WithScheduledAt")
		o.Delay, o.ScheduledAt = 0, t
	}
}

// WithExpiresAt discards the job if it is still waiting at t: for its first attempt or
// for a retry. A running attempt is left alone.
func WithExpiresAt(t time.Time) Option {
	return func(o *Options) {
		o.give(givenExpiresAt, givenTTL, "expires_at",
			"a time to live and a time are given: use WithTTL or WithExpiresAt")
		o.TTL, o.ExpiresAt = 0, t
	}
}

// WithTTL is WithExpiresAt for d after the enqueue; d must be at least 1 ms. With
// WithDependsOn, and so for a step of a workflow, d counts from when the jobs that it
// waits for have ended.
func WithTTL(d time.Duration) Option {
	return func(o *Options) {
		if d < minPeriod {
			o.fail(optionError("ttl", tooShort(d)))
		}
		o.give(givenTTL, givenExpiresAt, "expires_at",
			"a time to live and a time are given: use WithTTL or WithExpiresAt")
		o.TTL, o.ExpiresAt = d, time.Time{}
	}
}

// WithEnqueueTTL discards the job if its first attempt has not started d after the job
// was created, whether it is scheduled, pending or available then. The error type is
// enqueue_ttl_expired. The first attempt ends the limit, also one that fails, snoozes or
// is given back; WithTTL limits the waits for retries too. An attempt starts when it is
// claimed. d must be at least 1 ms and longer than the job's delay. By default there is
// no limit.
func WithEnqueueTTL(d time.Duration) Option {
	return func(o *Options) {
		if d < minPeriod {
			o.fail(optionError("enqueue_ttl", tooShort(d)))
		}
		o.EnqueueTTL = d
	}
}

// WithTimeout ends the context of an attempt that has run for d. The attempt then fails,
// unless its handler completes the job within the engine's grace period. The default is
// 30 minutes; d must be at least 1 ms.
func WithTimeout(d time.Duration) Option {
	return func(o *Options) { o.Timeout, o.timeoutGiven = d, true }
}

// WithTotalTimeout ends the job d after it was created, even if attempts are left. It
// ends a running attempt as its timeout would. A retry that could not start in time is
// not scheduled. 0, the default, means none; otherwise d must be at least 1 ms. If
// WithTimeout is set, d must not be less than that timeout.
func WithTotalTimeout(d time.Duration) Option { return func(o *Options) { o.TotalTimeout = d } }

// WithLease sets how long an attempt holds its job without renewing, at least 100 ms: the
// standard's visibility timeout. An engine renews the lease every d/3 while the handler
// runs. If a process dies, its attempts fail after at most d. The default is 30 minutes
// for workers that fetch (fetch.Worker). An engine holds jobs of the default lease for
// 90 s (engine.WithClaimLease).
func WithLease(d time.Duration) Option { return func(o *Options) { o.Lease = d } }

// WithResultTTL keeps the job for at least d after its end, completed, cancelled or
// discarded, even if engine.Retention would delete it. Until then Ticket.Wait and lookups
// return it with its result or failure. Use it for jobs whose outcome is needed later.
// Finished jobs take memory, or rows, until they are pruned. Without it, retention alone
// decides.
//
// KeepForever keeps the job until a call deletes it. 0 stores no result, and leaves the
// rest to retention. These are the standard's result_ttl -1 and 0 (OJS results). Other
// negative durations, and those below 1 ms, are refused.
func WithResultTTL(d time.Duration) Option {
	if d == 0 {
		d = NoResult
	}
	return func(o *Options) { o.ResultTTL = d }
}

// WithRetry sets the retry policy. Fields of p that are zero are inherited. A repeated
// entry of NonRetryableErrors counts once.
func WithRetry(p RetryPolicy) Option {
	p.NonRetryableErrors = distinct(p.NonRetryableErrors)
	return func(o *Options) {
		own := p
		own.NonRetryableErrors = slices.Clone(p.NonRetryableErrors)
		o.Retry = own.Inherit(o.Retry)
	}
}

// WithMaxAttempts sets the number of attempts, the first included. NoRetry, 0 and 1 all
// run the job once: 0 is the standard's max_attempts 0, which is stored as NoRetry. In a
// RetryPolicy 0 is different: there it inherits.
func WithMaxAttempts(n int) Option {
	if n == 0 {
		n = NoRetry
	} else if n < 0 && n != NoRetry {
		reason := attemptsReason(n)
		return func(o *Options) { o.fail(retryError("max_attempts", reason)) }
	}
	return WithRetry(RetryPolicy{MaxAttempts: n})
}

// WithMeta sets one entry of the job's meta, which travels with the job. The value must
// encode to JSON and comes back as JSON gives it: a number as float64, a list as []any, a
// struct as map[string]any. An integer beyond 2^53 comes back as json.Number. The option
// keeps the value: do not modify it afterwards.
func WithMeta(key string, value any) Option {
	return func(o *Options) { o.setMeta(key, value) }
}

// WithTags adds tags to the meta entry "tags".
func WithTags(tags ...string) Option {
	tags = slices.Clone(tags)
	return func(o *Options) {
		var have []string
		switch v := o.Meta["tags"].(type) {
		case []string:
			have = slices.Clip(v)
		case []any: // of a draft in its wire form
			for _, t := range v {
				if t, ok := t.(string); ok {
					have = append(have, t)
				}
			}
		}
		for _, t := range tags {
			if !slices.Contains(have, t) {
				have = append(have, t)
			}
		}
		if len(have) > 0 {
			o.setMeta("tags", have)
		}
	}
}

func (o *Options) setMeta(key string, value any) {
	if o.Meta == nil {
		o.Meta = make(map[string]any)
	}
	o.Meta[key] = value
}

// WithID sets the job's id, a UUIDv7. An id that exists already is refused with a
// *DuplicateError. So an enqueue is safe to repeat while the job is stored;
// engine.Retention decides how long a finished job is stored.
func WithID(id string) Option {
	return func(o *Options) {
		if u, ok := parseID(id); !ok || u.Version() != 7 {
			o.fail(optionError("id", fmt.Sprintf("%q is no UUIDv7", clip([]byte(id)))))
			return
		}
		o.ID = strings.ToLower(id)
	}
}

// parseID reports whether id is a UUID of RFC 9562 in its usual form, of any version.
func parseID(id string) (uuid.UUID, bool) {
	u, err := uuid.Parse(id)
	return u, err == nil && len(id) == 36 && u.Variant() == uuid.RFC4122
}

// WithPending stores the job as pending: it waits until operate.Jobs.Activate is called,
// and then for its time, if that is yet to come.
func WithPending() Option { return func(o *Options) { o.Pending = true } }

// WithDraftName names a draft among those of the same call of EnqueueMany or
// handler.Then, so that other drafts of the call can wait for its job by WithDependsOn.
// The name is not stored. Two drafts of a call with the same name, and a name that is a
// UUID or empty, are refused with an *InvalidError.
func WithDraftName(name string) Option {
	return func(o *Options) {
		if _, id := parseID(name); id || name == "" {
			o.fail(optionError("name", fmt.Sprintf("%q is empty or a UUID", clip([]byte(name)))))
			return
		}
		o.Name = name
	}
}

// WithDependsOn has the job wait for others: for stored jobs, named by their ids, and for
// jobs of the same call of EnqueueMany or handler.Then, named by WithDraftName or WithID.
// It is pending until they have ended as WithCondition asks, by default all with success.
// Then it becomes available, or scheduled if its time is yet to come: WithDelay and
// WithTTL count from then. If they end otherwise, it is cancelled with a Failure of
// policy.ErrorTypeDependency, and so are the jobs that wait for it to succeed. All of
// that is one step of the storage with the end of the last job, so that it happens
// exactly once, with or without an engine that runs.
//
// Several of this option add up. A job that is not stored is refused with a
// *DependencyError: enqueue it before, and keep it with WithResultTTL. Jobs that wait for
// each other in a circle are refused with an *InvalidError.
//
// WithEnqueueTTL, WithTotalTimeout and the time of WithExpiresAt go on while the job
// waits. operate.Jobs.Activate makes it available without waiting any longer. A job that
// has ended and is replayed is not waited for again.
func WithDependsOn(jobs ...string) Option {
	return func(o *Options) {
		for _, job := range jobs {
			if job == "" {
				o.fail(optionError("depends_on", "has an empty id or name"))
				return
			}
		}
		o.DependsOn = append(slices.Clip(o.DependsOn), jobs...)
	}
}

// WithCondition says how the jobs of WithDependsOn must end. Without it that is
// AllSucceeded.
func WithCondition(c Condition) Option { return func(o *Options) { o.Condition = c } }

// WithJoin makes the job one that waits for others and does not run: it completes as soon
// as its condition holds, and needs no handler. A thousand jobs that wait for one join of
// a thousand others need 2,000 dependencies instead of a million.
func WithJoin() Option { return func(o *Options) { o.Join = true } }

// WithOrderingKey has jobs of one key run one at a time in the order of enqueue, over all
// queues, types and engines of a storage:
//
//	orders.New(Change{Order: 7, To: "paid"}, ojs.WithOrderingKey("order-7"))
//
// A job has its turn when every job of the key that was enqueued before it has ended, in
// any way: it has completed, was cancelled or discarded, or has expired. Until then it is
// pending, and its deadlines count. The storage gives the turn in the step of that end,
// once, with or without an engine that runs. A job that waits for its retry, its
// scheduled time or other jobs (WithDependsOn) keeps its turn, and holds up those behind
// it, of any priority. Jobs of one EnqueueMany take their turns in the order of the call.
//
// For jobs that let others pass while they wait for a retry, use a rate limit with a
// concurrency of 1 and no ordering key (WithRateLimit).
//
// operate.Jobs.Activate runs a job before its turn. A job that is replayed after its end
// runs at once, beside the others of its key; only operate.Workflows.Retry has it wait
// for its turn. A key has at most 255 bytes; jobs with an empty one have no order.
func WithOrderingKey(key string) Option { return func(o *Options) { o.OrderingKey = key } }

func withExtra(extra map[string]json.RawMessage) Option {
	return func(o *Options) { o.Extra = maps.Clone(extra) }
}

// ValidateType checks the name of a job type: dot-separated words of lower-case letters,
// digits, '_' and '-', each starting with a letter, at most 255 characters (OJS core,
// section 5.1, which has no '-'; the HTTP binding has).
func ValidateType(name string) error {
	if !validName(name, maxTypeLen, func(c, before byte) bool {
		switch {
		case 'a' <= c && c <= 'z':
			return true
		case '0' <= c && c <= '9', c == '_', c == '-':
			return before != 0 && before != '.'
		}
		return c == '.' && before != 0 && before != '.'
	}) || name[len(name)-1] == '.' {
		return &InvalidError{Code: InvalidCodeType, Field: "type", Reason: nameReason(name, maxTypeLen,
			"lower-case words of letters, digits, _ and -, joined by dots, each beginning with a letter, such as email.send")}
	}
	return nil
}

// ValidateQueue checks the name of a queue: lower-case letters, digits, '-' and '.',
// starting with a letter or digit, at most 128 characters (OJS core, section 5.1).
func ValidateQueue(name string) error {
	if !validName(name, maxQueueLen, func(c, before byte) bool {
		return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || before != 0 && (c == '-' || c == '.')
	}) {
		return &InvalidError{Code: InvalidCodeQueue, Field: "queue", Reason: nameReason(name, maxQueueLen,
			"lower-case letters, digits, - and ., beginning with a letter or digit, such as email-bulk")}
	}
	return nil
}

// nameReason says what is wrong with a name, and what names are allowed.
func nameReason(name string, most int, allowed string) string {
	switch {
	case name == "":
		return "is empty: use " + allowed
	case len(name) > most:
		return fmt.Sprintf("%q has %d characters, more than %d", clip([]byte(name)), len(name), most)
	}
	return fmt.Sprintf("%q: use %s", clip([]byte(name)), allowed)
}

// validName reports whether name has 1 to most bytes, and ok holds for each of them and
// the one before it (0 for the first). Each enqueue calls it, so it uses no regular
// expression.
func validName(name string, most int, ok func(c, before byte) bool) bool {
	if name == "" || len(name) > most {
		return false
	}
	var before byte
	for i := range len(name) {
		if !ok(name[i], before) {
			return false
		}
		before = name[i]
	}
	return true
}
