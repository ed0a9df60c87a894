package ojs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs/internal/bridge"
)

// UniquePolicy defines which jobs are equal to a new one, and what happens to the
// duplicate (OJS unique jobs). The zero policy is the standard's: while a job of the type
// has not ended, a second one is refused.
//
// Jobs with the same fingerprint are equal; see policy.Fingerprint. Only jobs that were
// enqueued with a policy have one. An equal job counts if it is in one of the new job's
// States, and if Period has not passed since it was created.
//
// storage.Capabilities has the strength of a storage's guarantee. The check is made when
// a job is enqueued, not when it is retried or replayed.
type UniquePolicy struct {
	// the dimensions of equality; 0: ByType, and ByArgs or ByMeta if ArgsKeys or MetaKeys
	// is set
	Keys     UniqueKeys
	ArgsKeys []string // only these members of the args count, and must exist; nil: all of the args
	// only these members of the meta count, and must exist; required for ByMeta. Empty:
	// as nil, if Keys is set
	MetaKeys []string
	Key      string // an idempotency key, which replaces args and meta: at most 256 bytes

	// Period is the time for which an equal job counts, from its creation; a finished job
	// is kept for that time. 0: it counts while it is in States, and a finished one until
	// it is deleted (engine.Retention). PeriodMonths is the calendar part of the period,
	// as in P1M: it ends on the same day of a later month, or on that month's last day.
	Period       time.Duration
	PeriodMonths int

	States     []State // in which an equal job counts; nil: all but the terminal ones
	OnConflict Conflict

	// MaxWait is the longest time from the creation of a job for which ConflictDebounce
	// puts it off; 0: any.
	MaxWait time.Duration
}

// UniqueKeys is a set of the dimensions of uniqueness. The type is in every set.
type UniqueKeys uint8

// The dimensions.
const (
	ByType UniqueKeys = 1 << iota
	ByQueue
	ByArgs
	ByMeta
	// the version of the type (WithVersion): it counts with zero Keys too. A job without
	// a version has none that could count.
	ByVersion
)

// Conflict is what happens to a duplicate.
type Conflict string

// The ways to resolve a conflict (OJS unique jobs, section 5).
const (
	// ConflictReject refuses the new job with a *DuplicateError. It is the default.
	ConflictReject Conflict = "reject"

	// ConflictIgnore leaves the new job out. The ticket is that of the equal job, and
	// Deduplicated.
	ConflictIgnore Conflict = "ignore"

	// ConflictReplace cancels the equal jobs that have not ended and enqueues the new
	// one, in one step. The context of a running equal job ends with ErrReplaced. An
	// equal job that has ended stays.
	ConflictReplace Conflict = "replace"

	// ConflictReplaceExceptSchedule gives an equal job that is scheduled the new args and
	// meta, and keeps its id and its time. The ticket is Deduplicated. If no equal job is
	// scheduled, it is ConflictReplace.
	ConflictReplaceExceptSchedule Conflict = "replace_except_schedule"

	// ConflictDebounce gives an equal job that is scheduled the args and meta of the new
	// one, and its ScheduledAt and ExpiresAt, but no ScheduledAt later than MaxWait after
	// the equal job was created. The ticket is that of the equal job, and Deduplicated.
	// If no equal job is scheduled, or the new one is not, it is ConflictReplace. It is
	// an addition to the standard.
	ConflictDebounce Conflict = "ojs:debounce"
)

// maxUniqueKey is the longest Key.
const maxUniqueKey = 256

// defaultUniqueStates are the states in which an equal job counts unless a policy names
// others (OJS unique jobs, section 6.1).
var defaultUniqueStates = []State{StateAvailable, StateActive, StateScheduled, StateRetryable, StatePending}

// Dimensions returns the dimensions in force: Keys and the type, or the default of zero
// Keys.
func (p *UniquePolicy) Dimensions() UniqueKeys {
	keys := p.Keys
	if keys == 0 {
		if p.ArgsKeys != nil {
			keys |= ByArgs
		}
		if p.MetaKeys != nil {
			keys |= ByMeta
		}
	}
	return keys&^bridge.GivenFingerprint | ByType
}

// Strategy returns OnConflict, or the default.
func (p *UniquePolicy) Strategy() Conflict {
	if p.OnConflict == "" {
		return ConflictReject
	}
	return p.OnConflict
}

// Counts reports whether an equal job in the state, created at the given time, blocks a
// new one now.
func (p *UniquePolicy) Counts(state State, created, now time.Time) bool {
	states := p.States
	if states == nil {
		states = defaultUniqueStates
	}
	return slices.Contains(states, state) && (!p.hasPeriod() || now.Before(p.PeriodEnd(created)))
}

func (p *UniquePolicy) hasPeriod() bool { return p.Period > 0 || p.PeriodMonths > 0 }

// PeriodEnd returns the end of the period that began at the given time. It has no meaning
// without a period.
func (p *UniquePolicy) PeriodEnd(from time.Time) time.Time {
	if p.PeriodMonths > 0 {
		first := time.Date(from.Year(), from.Month()+time.Month(p.PeriodMonths), 1, from.Hour(),
			from.Minute(), from.Second(), from.Nanosecond(), from.Location())
		last := first.AddDate(0, 1, -1).Day()
		from = first.AddDate(0, 0, min(from.Day(), last)-1)
	}
	return from.Add(p.Period)
}

// Validate checks the policy by itself. Its error is an *InvalidError of
// InvalidCodeUnique, the standard's invalid_request.
func (p *UniquePolicy) Validate() error {
	dims := p.Dimensions()
	known := ByType | ByQueue | ByArgs | ByMeta | ByVersion
	if len(p.Key) == 64 && strings.Trim(p.Key, "0123456789abcdef") == "" {
		known |= bridge.GivenFingerprint
	}
	switch {
	case p.Keys&^known != 0:
		return uniqueError("keys", fmt.Sprintf("%#b has an unknown dimension", uint8(p.Keys)))
	case dims&ByMeta != 0 && len(p.MetaKeys) == 0:
		return uniqueError("meta_keys", "must name what of the meta counts")
	case len(p.Key) > maxUniqueKey:
		return uniqueError("key", fmt.Sprintf("has %d bytes, more than %d", len(p.Key), maxUniqueKey))
	case p.Key != "" && dims&(ByArgs|ByMeta) != 0:
		return uniqueError("key", "replaces args and meta, which the policy names too: drop one or the other")
	case p.Period < 0:
		return uniqueError("period", fmt.Sprintf("%v is negative", p.Period))
	case p.PeriodMonths < 0:
		return uniqueError("period", fmt.Sprintf("%d months are negative", p.PeriodMonths))
	case p.PeriodMonths > 12*9999:
		return uniqueError("period", fmt.Sprintf("%d months are more than 9999 years", p.PeriodMonths))
	case p.MaxWait < 0:
		return uniqueError("max_wait", fmt.Sprintf("%v is negative", p.MaxWait))
	case p.MaxWait > 0 && p.OnConflict != ConflictDebounce:
		return uniqueError("max_wait", "goes with on_conflict "+string(ConflictDebounce)+" only")
	case p.States != nil && len(p.States) == 0:
		return uniqueError("states", "is empty: no job would ever count")
	}
	if k, twice := repeated(p.ArgsKeys); twice {
		return uniqueError("args_keys", fmt.Sprintf("%q occurs twice", k))
	}
	if k, twice := repeated(p.MetaKeys); twice {
		return uniqueError("meta_keys", fmt.Sprintf("%q occurs twice", k))
	}
	if s, twice := repeated(p.States); twice {
		return uniqueError("states", fmt.Sprintf("%q occurs twice", s))
	}
	for _, s := range p.States {
		if !s.Valid() {
			return uniqueError("states", fmt.Sprintf("%q is not a state of a job, such as completed",
				clip([]byte(s))))
		}
	}
	switch p.OnConflict {
	case "", ConflictReject, ConflictIgnore, ConflictReplace, ConflictReplaceExceptSchedule, ConflictDebounce:
		return nil
	}
	return uniqueError("on_conflict",
		fmt.Sprintf("%q is none of reject, ignore, replace, replace_except_schedule, ojs:debounce",
			clip([]byte(p.OnConflict))))
}

// repeated returns an entry that occurs twice in the list, if there is one.
func repeated[S ~[]E, E comparable](list S) (E, bool) {
	const short = 16 // comparing each entry of a long list with all others would take too long
	var seen map[E]struct{}
	if len(list) > short {
		seen = make(map[E]struct{}, len(list))
	}
	for i, e := range list {
		_, twice := seen[e]
		if twice || seen == nil && slices.Contains(list[:i], e) {
			return e, true
		}
		if seen != nil {
			seen[e] = struct{}{}
		}
	}
	var none E
	return none, false
}

func uniqueError(field, reason string) error {
	return &InvalidError{Code: InvalidCodeUnique, Field: "unique." + field, Reason: reason}
}

// Clone returns a copy that shares no memory with p. That of nil is nil.
func (p *UniquePolicy) Clone() *UniquePolicy {
	if p == nil {
		return nil
	}
	c := *p
	c.ArgsKeys, c.MetaKeys, c.States = slices.Clone(p.ArgsKeys), slices.Clone(p.MetaKeys),
		slices.Clone(p.States)
	return &c
}

// Equal reports whether two policies are equal, or both nil. An empty list differs from
// nil.
func (p *UniquePolicy) Equal(q *UniquePolicy) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.Keys == q.Keys && p.Key == q.Key && p.Period == q.Period && p.PeriodMonths == q.PeriodMonths &&
		p.OnConflict == q.OnConflict && p.MaxWait == q.MaxWait && sameList(p.ArgsKeys, q.ArgsKeys) &&
		sameList(p.MetaKeys, q.MetaKeys) && sameList(p.States, q.States)
}

// sameList reports whether two lists are equal. An empty one differs from nil.
func sameList[E comparable](a, b []E) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }

// WithUnique makes the job unique. It replaces an inherited policy as a whole. Two
// policies in one call are refused, also those of WithThrottle and the like.
func WithUnique(p UniquePolicy) Option {
	c := p.Clone()
	return func(o *Options) {
		if err := c.Validate(); err != nil {
			o.fail(err)
		}
		o.give(givenUnique, givenUnique, "unique", "two unique policies are given: a job has one")
		o.Unique = c.Clone()
	}
}

// uniqueBy is a policy for the type and the args, or some members of the args.
func uniqueBy(argsKeys []string, states []State, period time.Duration, c Conflict) Option {
	return WithUnique(UniquePolicy{Keys: ByType | ByArgs, ArgsKeys: argsKeys, States: states, Period: period,
		OnConflict: c})
}

// WithThrottle enqueues a job with the same args at most once per period, even if the
// previous one has ended: duplicates are ignored. With argsKeys only these members of the
// args count. It sets a unique policy, as WithUnique does.
func WithThrottle(period time.Duration, argsKeys ...string) Option {
	if period <= 0 {
		return func(o *Options) { o.fail(uniqueError("period", fmt.Sprintf("%v is not positive", period))) }
	}
	return uniqueBy(argsKeys, AllStates(), period, ConflictIgnore)
}

// WithDebounce runs only the last of several jobs with the same args, once the quiet time
// has passed without another. Each replaces the previous one if that still waits for its
// time. With argsKeys only these members of the args count. It sets a unique policy, as
// WithUnique does, and a delay.
func WithDebounce(quiet time.Duration, argsKeys ...string) Option {
	if quiet <= 0 {
		return func(o *Options) { o.fail(optionError("delay", fmt.Sprintf("%v is not positive", quiet))) }
	}
	unique, delay := uniqueBy(argsKeys, []State{StateScheduled}, 0, ConflictReplace), WithDelay(quiet)
	return func(o *Options) { unique(o); delay(o) }
}

// WithDebounceMax is WithDebounce with a bound: however many jobs follow, the last one is
// due at most maxWait after the first, which is at least the quiet time. The jobs that
// follow change the first one (ConflictDebounce), so that their tickets are its own.
func WithDebounceMax(quiet, maxWait time.Duration, argsKeys ...string) Option {
	if quiet <= 0 {
		return func(o *Options) { o.fail(optionError("delay", fmt.Sprintf("%v is not positive", quiet))) }
	}
	if maxWait < quiet {
		return func(o *Options) {
			o.fail(uniqueError("max_wait", fmt.Sprintf("%v is less than the quiet time %v", maxWait, quiet)))
		}
	}
	unique, delay := WithUnique(UniquePolicy{
		Keys: ByType | ByArgs, ArgsKeys: argsKeys, States: []State{StateScheduled},
		OnConflict: ConflictDebounce, MaxWait: maxWait,
	}), WithDelay(quiet)
	return func(o *Options) { unique(o); delay(o) }
}

// WithOneWaiting keeps at most one job with the same args waiting: duplicates are
// ignored. With argsKeys only these members of the args count. It sets a unique policy,
// as WithUnique does.
//
// A running job does not count, since it may have begun before the change that the new
// one is about. So any number may run at once. A RateLimit with a Concurrency of 1 and a
// key of the same args runs them one after the other.
func WithOneWaiting(argsKeys ...string) Option {
	return uniqueBy(argsKeys, []State{StateAvailable, StateScheduled, StatePending, StateRetryable}, 0,
		ConflictIgnore)
}

// WithIdempotencyKey enqueues a job of the type at most once in 24 hours for a key, such
// as the id of a request: 1 to 256 bytes. Duplicates are ignored. It sets a unique
// policy, as WithUnique does.
func WithIdempotencyKey(key string) Option {
	if key == "" {
		return func(o *Options) { o.fail(uniqueError("key", "is empty")) }
	}
	return WithUnique(UniquePolicy{Key: key, States: AllStates(), Period: 24 * time.Hour,
		OnConflict: ConflictIgnore})
}
