package storage

import (
	"context"
	"math"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

// LimitKind is what a limit bounds.
type LimitKind string

// The kinds of limits.
const (
	LimitKey   LimitKind = "key"   // the jobs of a RateLimit.Key
	LimitQueue LimitKind = "queue" // the jobs of a queue
	LimitType  LimitKind = "type"  // the jobs of a type, of every version
)

// Valid reports whether k is one of the three kinds.
func (k LimitKind) Valid() bool { return k == LimitKey || k == LimitQueue || k == LimitType }

// LimitName names a limit. The three kinds have names of their own [limit-6].
type LimitName struct {
	Kind LimitKind
	Name string // of the key, queue or type
}

// Limited receives what limits have done in a claim (Claim.Limits). Every claim obeys
// them, with or without it [limit-1]. The storage counts for all of its users together,
// in the step of the claim [limit-1, race-7].
//
// A job may start if the limits of its queue, of its type and of its RateLimit.Key allow
// it, each by itself [limit-6]. A queue or type has the bounds that SetLimit gives it
// [limit-6]. Each job of a key has the bounds of its own RateLimit [limit-5]. A setting
// of the key replaces the bounds that it names [limit-8].
//
//   - Concurrency: fewer jobs of the limit than that are active, by whichever call
//     [limit-1, limit-2, limit-18]. ojs.NoneAtOnce allows none [limit-2].
//   - Rate: fewer jobs of the limit than Rate.Limit have started less than Rate.Per ago
//     [limit-3].
//   - Throttle: none has started less than Throttle.Per / Throttle.Limit ago, rounded up
//     to a nanosecond [limit-4].
//   - LimitStore.BlockLimit has not blocked the limit until later [limit-9].
//
// A claim is a start [limit-3]. Unclaim takes the start
// back [limit-10]. A start that is later than now, since clocks differ, counts [limit-3].
// A storage forgets starts that count for no bound, and may not know the starts of a key
// from before the first one under a rate or throttle, nor those of a queue or type from
// before it had one. It keeps every other start, however many limits there are
// [limit-17].
//
// Each job that a claim takes counts before the next [limit-1]. A job that may not start
// is skipped and stays where it is, unless a limit of its key holds it back and has
// another OnLimit [limit-1, limit-11]. The claim meets such a job where it would have
// taken it, and then the job is dropped (Record.Limit) or rescheduled (Record.Postpone)
// [limit-11]. A claim that has all that it wants meets no more jobs [limit-11].
type Limited struct {
	// Now is how many of the claim's jobs start at once; 0: all of them [limit-14]. The
	// rest waits in the caller, and should not count meanwhile: behind that many jobs,
	// the claim ends at the first that a limit counts [limit-14].
	Now int

	Dropped   []Record // as they are stored now, in the order of the claim [limit-11]
	Postponed []Record // those that are scheduled again [limit-11]
	Moved     []Record // that waited for dropped ones, in the order of their transitions [limit-12]

	// Opens is when time alone next lets a job start that the claim asks for and a limit
	// holds back [limit-3, limit-4]. It may be earlier if several limits hold a job back.
	// It is zero if no limit opens with time, or if the claim took all that it wanted
	// [limit-3, limit-4] or ended because of Now [limit-14].
	Opens time.Time

	// Held says that limits hold back jobs that the claim asks for [limit-1]. It may be
	// set without such a job.
	Held bool

	// Closed are the keys whose jobs wait and whose limits the claim has found closed
	// [limit-16]. A key and bounds that an earlier claim of this handle has told are told
	// again after a job with these bounds has started [limit-16]. They are not told again
	// while these bounds let no job start, unless the handle forgot [limit-16]. A claim
	// that has all that it wants, or tells of a hundred, may leave the others to the next
	// one [limit-16]. The order is open, and a key may have several entries [limit-16].
	Closed []ClosedKey
}

// ClosedKey is a key that lets no job start, and the bound that decides.
type ClosedKey struct {
	Key      string
	Strategy LimitStrategy // [limit-16]
	Bound    int           // its number; of a block 0 [limit-16]

	// Current is how many jobs are active, or how many have started in the period of a
	// rate, which is Bound at the least [limit-16]. It is 0 of a throttle and a block
	// [limit-16].
	Current int
}

// Closes tells which bound closes a key, given its bounds in force, how many jobs are
// active, when the latest has started and until when it is blocked, in nanoseconds since
// 1970. The rate decides if nothing else does.
func Closes(key string, b *ojs.RateLimit, active int, last, blocked, now int64) ClosedKey {
	switch n := max(b.Concurrency, 0); {
	case b.Concurrency != 0 && active >= n:
		return ClosedKey{key, LimitedByConcurrency, n, active}
	case blocked > now:
		return ClosedKey{Key: key, Strategy: LimitedByBlock}
	case b.Throttle.Limit > 0 && later(last, Gap(b.Throttle)) > now:
		return ClosedKey{Key: key, Strategy: LimitedByThrottle, Bound: b.Throttle.Limit}
	}
	return ClosedKey{key, LimitedByRate, b.Rate.Limit, b.Rate.Limit}
}

// LimitStore keeps settings of limits and looks at them, for every engine on the storage.
// Invalid names and bounds fail a call with an error that is ojs.ErrInvalid [limit-13].
type LimitStore interface {
	// SetLimit stores the bounds of a limit in the place of those it has, with effect
	// from the next claim [limit-6, limit-8]. Running jobs go on [limit-6]. From until
	// on, unless that is zero, the setting has no effect [limit-8]. Bounds that bound
	// nothing remove the setting [limit-8]. Only Concurrency, Rate and Throttle of the
	// bounds count.
	SetLimit(ctx context.Context, now time.Time, limit LimitName, bounds ojs.RateLimit, until time.Time) error

	// BlockLimit lets no job of a limit start before a time [limit-9]. An earlier block
	// that lasts longer stays [limit-9]. The zero time ends a block [limit-9].
	BlockLimit(ctx context.Context, now time.Time, limit LimitName, until time.Time) error

	// GetLimit returns the state of a limit [limit-13]. It returns ojs.ErrNotFound if no
	// job of the limit is available or active, and it has no setting and no block
	// [limit-13].
	GetLimit(ctx context.Context, now time.Time, limit LimitName) (Limit, error)

	// ListLimits returns the limits that GetLimit finds, up to max of a kind by name,
	// after a name [limit-13]. Of queues and types it has those with a setting or a block
	// [limit-13].
	ListLimits(ctx context.Context, now time.Time, kind LimitKind, after string, max int) ([]Limit, error)
}

// Limit is the state of a limit.
type Limit struct {
	LimitName
	Active  int // jobs that are active [limit-13]
	Waiting int // jobs that are available and whose deadline has not come [limit-13]

	// Setting are the bounds that SetLimit has given, without a Key; nil: none [limit-8,
	// limit-13].
	Setting *ojs.RateLimit

	Until        time.Time // when the setting ends; zero: never [limit-13]
	BlockedUntil time.Time // zero: it is not blocked [limit-9]

	// Bounds are those in force, without a Key and an OnLimit [limit-13]. A key has those
	// of its job that started last, or else of one that waits, with the bounds that the
	// setting names [limit-13]. A queue or type has those of its setting.
	Bounds ojs.RateLimit

	Starts int // less than Bounds.Rate.Per ago [limit-13]

	// Opens is when time alone lets a job with Bounds start [limit-13]. Zero: one may
	// start, or another has to end first [limit-13].
	Opens time.Time
}

// CheckLimit refuses a name that is none, and bounds that are not valid [limit-13].
func CheckLimit(limit LimitName, bounds ojs.RateLimit) error {
	refuse := func(field, reason string) error {
		return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: field, Reason: reason}
	}
	if !limit.Kind.Valid() {
		return refuse("limit.kind", "is none of key, queue and type")
	}
	if limit.Name == "" {
		return refuse("limit.name", "is empty")
	}
	return bounds.ValidateBounds()
}

// Override returns the bounds of a job with what a setting names in their place.
func Override(own ojs.RateLimit, setting *ojs.RateLimit) ojs.RateLimit {
	if setting == nil {
		return own
	}
	if setting.Concurrency != 0 {
		own.Concurrency = setting.Concurrency
	}
	if setting.Rate.Limit > 0 {
		own.Rate = setting.Rate
	}
	if setting.Throttle.Limit > 0 {
		own.Throttle = setting.Throttle
	}
	return own
}

// Opens is when bounds let another job start, given how many are active and when jobs
// have started, in nanoseconds since 1970 and in order. It is now or earlier if one may
// start; never, if one that is active has to end first; else time alone lets it start.
func Opens(b *ojs.RateLimit, active int, starts []int64, now int64) (at int64, never bool) {
	if b.Concurrency != 0 && active >= max(b.Concurrency, 0) {
		return 0, true
	}
	at = math.MinInt64
	if n := b.Rate.Limit; n > 0 && len(starts) >= n {
		at = later(starts[len(starts)-n], int64(b.Rate.Per))
	}
	if len(starts) > 0 && b.Throttle.Limit > 0 {
		at = max(at, later(starts[len(starts)-1], Gap(b.Throttle)))
	}
	return at, false
}

// Gap is how far apart the starts of a throttle are. It is rounded up: down would let one
// too many start in a long run.
func Gap(throttle ojs.Rate) int64 {
	n := int64(throttle.Limit)
	gap := int64(throttle.Per) / n
	if int64(throttle.Per)%n > 0 {
		gap++
	}
	return gap
}

// later is d after a time, or the end of time.
func later(ns, d int64) int64 {
	if d = max(d, 0); ns > math.MaxInt64-d {
		return math.MaxInt64
	}
	return ns + d
}

// Limit ends an available job that a limit with ojs.OnLimitDrop keeps from starting
// [limit-11]. It never becomes a dead letter [limit-11].
func (r *Record) Limit(now time.Time) {
	r.discard(now, &ojs.Failure{
		Code: ojs.CodeDiscard, Type: policy.ErrorTypeRateLimited, Reason: ojs.ReasonRateLimited,
		Message: "the limit of key " + r.RateLimit.Key + " let no job start",
	})
}

// LimitDelay is how long a job with ojs.OnLimitReschedule waits at the least if a limit
// does not open with time: if its concurrency is reached.
const LimitDelay = time.Second

// Postpone schedules an available job that a limit with ojs.OnLimitReschedule keeps from
// starting [limit-11]. opens is when time alone lets it start; if it is zero, since
// others have to end first, the job is due after LimitDelay [limit-11].
func (r *Record) Postpone(now, opens time.Time) {
	if opens.IsZero() {
		opens = now.Add(LimitDelay)
	}
	r.State = ojs.StateScheduled
	r.ScheduledAt = opens
	r.Version++
}

// LimitStrategy is a bound of a key that holds jobs back.
type LimitStrategy string

// The bounds of a key.
const (
	LimitedByConcurrency LimitStrategy = "concurrency" // ojs.RateLimit.Concurrency
	LimitedByRate        LimitStrategy = "rate"        // ojs.RateLimit.Rate
	LimitedByThrottle    LimitStrategy = "throttle"    // ojs.RateLimit.Throttle
	LimitedByBlock       LimitStrategy = "block"       // ojs.RateLimitedUntil, or a call that blocks the key
)
