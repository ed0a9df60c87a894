package ojs

import (
	"fmt"
	"slices"
	"time"
)

// UniquePolicy says which jobs are equal to a new one, and what becomes of the new one if there is such a job (OJS unique
// jobs). Jobs with the same fingerprint are equal; see policy.Fingerprint. Only jobs that were enqueued with a policy have
// one. An equal job counts if, by the new job's policy, it is in one of States and Period has not passed since it was
// created. The zero policy is the standard's: while a job of the type has not ended, a second one is refused.
//
// A storage says how strong its guarantee is (storage.Capabilities). The check is made when a job is enqueued, and not again
// when it is retried or replayed.
type UniquePolicy struct {
	Keys     UniqueKeys // what makes jobs equal; 0: ByType, and ByArgs or ByMeta if ArgsKeys or MetaKeys is set
	ArgsKeys []string   // only these members of the args count, and must be there; nil: all of the args
	MetaKeys []string   // only these members of the meta count, and must be there; needed for ByMeta. Empty: as nil, if Keys is set
	Key      string     // an idempotency key of the caller's, in place of args and meta: at most 256 bytes

	// Period is for how long an equal job counts, from when it was created: a finished one is kept for that long. 0: as long as
	// it is in States, a finished one until it is deleted (engine.Retention). PeriodMonths is the calendar part of the period,
	// as in P1M: it ends on the same day of a later month, or on that month's last day.
	Period       time.Duration
	PeriodMonths int

	States     []State // in which an equal job counts; nil: those in which it has not ended
	OnConflict Conflict
}

// UniqueKeys is a set of the dimensions of uniqueness. The type is in every set.
type UniqueKeys uint8

// The dimensions.
const (
	ByType UniqueKeys = 1 << iota
	ByQueue
	ByArgs
	ByMeta
)

// Conflict says what becomes of a job that has an equal.
type Conflict string

// The ways to resolve a conflict (OJS unique jobs, section 5).
const (
	// ConflictReject refuses the new job with a *DuplicateError. It is the default.
	ConflictReject Conflict = "reject"

	// ConflictIgnore leaves the new job out. Its ticket is that of the equal job, and Deduplicated.
	ConflictIgnore Conflict = "ignore"

	// ConflictReplace cancels the equal jobs that have not ended and enqueues the new one, in one step. The context of a
	// running one ends with ErrReplaced; one that has ended stays.
	ConflictReplace Conflict = "replace"

	// ConflictReplaceExceptSchedule gives an equal job that is scheduled the new args and meta, and leaves its id and its time.
	// The ticket is Deduplicated. If none is scheduled it is ConflictReplace.
	ConflictReplaceExceptSchedule Conflict = "replace_except_schedule"
)

// maxUniqueKey is the longest Key.
const maxUniqueKey = 256

// defaultUniqueStates are the states in which an equal job counts unless a policy names others (OJS unique jobs, section 6.1).
var defaultUniqueStates = []State{StateAvailable, StateActive, StateScheduled, StateRetryable, StatePending}

// Dimensions returns the dimensions in force: those of Keys, with the type and with what zero Keys stands for.
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
	return keys | ByType
}

// Strategy returns OnConflict, or the default.
func (p *UniquePolicy) Strategy() Conflict {
	if p.OnConflict == "" {
		return ConflictReject
	}
	return p.OnConflict
}

// Counts reports whether an equal job in the state, created at the time given, is in the way of a new one now.
func (p *UniquePolicy) Counts(state State, created, now time.Time) bool {
	states := p.States
	if states == nil {
		states = defaultUniqueStates
	}
	return slices.Contains(states, state) && (!p.hasPeriod() || now.Before(p.PeriodEnd(created)))
}

func (p *UniquePolicy) hasPeriod() bool { return p.Period > 0 || p.PeriodMonths > 0 }

// PeriodEnd returns when the period that began at the time given is over. It has no meaning without a period.
func (p *UniquePolicy) PeriodEnd(from time.Time) time.Time {
	if p.PeriodMonths > 0 {
		first := time.Date(from.Year(), from.Month()+time.Month(p.PeriodMonths), 1, from.Hour(), from.Minute(), from.Second(), from.Nanosecond(), from.Location())
		last := first.AddDate(0, 1, -1).Day()
		from = first.AddDate(0, 0, min(from.Day(), last)-1)
	}
	return from.Add(p.Period)
}

// Validate checks the policy by itself. Its error is an *InvalidError of CodeUniqueInvalid, the standard's invalid_request.
func (p *UniquePolicy) Validate() error {
	dims := p.Dimensions()
	switch {
	case p.Keys&^(ByType|ByQueue|ByArgs|ByMeta) != 0:
		return uniqueError("keys", fmt.Sprintf("%#b has an unknown dimension", uint8(p.Keys)))
	case dims&ByMeta != 0 && len(p.MetaKeys) == 0:
		return uniqueError("meta_keys", "must name what of the meta counts")
	case len(p.Key) > maxUniqueKey:
		return uniqueError("key", fmt.Sprintf("has %d bytes, more than %d", len(p.Key), maxUniqueKey))
	case p.Key != "" && dims&(ByArgs|ByMeta) != 0:
		return uniqueError("key", "takes the place of args and meta, which are named too")
	case p.Period < 0:
		return uniqueError("period", fmt.Sprintf("%v is negative", p.Period))
	case p.PeriodMonths < 0:
		return uniqueError("period", fmt.Sprintf("%d months are negative", p.PeriodMonths))
	case p.PeriodMonths > 12*9999:
		return uniqueError("period", fmt.Sprintf("%d months are more than 9999 years", p.PeriodMonths))
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
			return uniqueError("states", fmt.Sprintf("%q is no state", clip([]byte(s))))
		}
	}
	switch p.OnConflict {
	case "", ConflictReject, ConflictIgnore, ConflictReplace, ConflictReplaceExceptSchedule:
		return nil
	}
	return uniqueError("on_conflict", fmt.Sprintf("%q is none of reject, ignore, replace, replace_except_schedule", clip([]byte(p.OnConflict))))
}

// repeated returns an entry that occurs twice in the list, if there is one.
func repeated[S ~[]E, E comparable](list S) (E, bool) {
	const short = 16 // a longer list may come from a stranger, and is not compared with itself
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
	return &InvalidError{Code: CodeUniqueInvalid, Field: "unique." + field, Reason: reason}
}

func (p *UniquePolicy) clone() *UniquePolicy {
	c := *p
	c.ArgsKeys, c.MetaKeys, c.States = slices.Clone(p.ArgsKeys), slices.Clone(p.MetaKeys), slices.Clone(p.States)
	return &c
}

// WithUnique makes the job unique. It replaces, as a whole, a policy that the job would inherit. Two policies in one call are
// refused, those of WithThrottle and the like included.
func WithUnique(p UniquePolicy) Option {
	c := p.clone()
	return func(o *Options) {
		if err := c.Validate(); err != nil {
			o.fail(err)
		}
		o.give(givenUnique, givenUnique, "unique", "two unique policies are given: a job has one")
		o.Unique = c.clone()
	}
}

// uniqueBy is a policy for the type and the args, or some members of the args.
func uniqueBy(argsKeys []string, states []State, period time.Duration, c Conflict) Option {
	return WithUnique(UniquePolicy{Keys: ByType | ByArgs, ArgsKeys: argsKeys, States: states, Period: period, OnConflict: c})
}

// WithThrottle enqueues a job with the same args at most once per period, whatever became of the previous one: further ones
// are ignored. With argsKeys only these members of the args count. It is a unique policy, as WithUnique sets.
func WithThrottle(period time.Duration, argsKeys ...string) Option {
	if period <= 0 {
		return func(o *Options) { o.fail(uniqueError("period", fmt.Sprintf("%v is not positive", period))) }
	}
	return uniqueBy(argsKeys, AllStates(), period, ConflictIgnore)
}

// WithDebounce runs only the last of several jobs with the same args, once the quiet time has passed without another:
// each replaces the one before that is still waiting for its time. With argsKeys only these members of the args count. It
// is a unique policy, as WithUnique sets, and a delay.
func WithDebounce(quiet time.Duration, argsKeys ...string) Option {
	if quiet <= 0 {
		return func(o *Options) { o.fail(optionError("delay", fmt.Sprintf("%v is not positive", quiet))) }
	}
	unique, delay := uniqueBy(argsKeys, []State{StateScheduled}, 0, ConflictReplace), WithDelay(quiet)
	return func(o *Options) { unique(o); delay(o) }
}

// WithOneWaiting keeps at most one job with the same args waiting; further ones are ignored. A running job does not count: it
// may have begun before the change that the new one is about. Any number may therefore run at once. A RateLimit with a
// Concurrency of 1 and a key of the same args runs them one after the other. With argsKeys only these members of the args
// count. It is a unique policy, as WithUnique sets.
func WithOneWaiting(argsKeys ...string) Option {
	return uniqueBy(argsKeys, []State{StateAvailable, StateScheduled, StatePending, StateRetryable}, 0, ConflictIgnore)
}

// WithIdempotencyKey enqueues a job of the type at most once in 24 hours for a key, such as the id of a request: 1 to
// 256 bytes. Further ones are ignored. It is a unique policy, as WithUnique sets.
func WithIdempotencyKey(key string) Option {
	if key == "" {
		return func(o *Options) { o.fail(uniqueError("key", "is empty")) }
	}
	return WithUnique(UniquePolicy{Key: key, States: AllStates(), Period: 24 * time.Hour, OnConflict: ConflictIgnore})
}
