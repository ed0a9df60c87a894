package storage

// Implement last what is in this file, and what the list below names. A storage that has
// none of it is complete, and passes every case. Each hint saves time only.
//
//   - Insert.IDIsNew: the id need not be looked for.
//   - Insert.Claim: new jobs and their claim are one call.
//   - Change.AttemptFieldsOnly: args, meta and options need not be written again.
//   - SettleClaimer: an outcome and the next claim are one call.
//   - Binder: the caller need not be looked for in each context.
//
// An engine looks for SettleClaimer and Binder in the storage that it is given, and not
// with As in what that storage wraps: they would pass by a wrapper's methods.

import (
	"context"
	"time"
)

// SettleClaimer is the ability to settle attempts and to claim what their worker does
// next in one step, which costs less than two. It is optional. The storage itself must
// have it: one that it wraps is not asked. A durable storage makes a step one
// transaction: after a crash all of it is there or nothing [settleclaim-16, unclaim-7].
// Engines claim one job in a step, or a few, of a storage that is not durable, and up to
// some hundreds of one that is.
type SettleClaimer interface {
	// SettleAndClaim is Settle of an AttemptFieldsOnly change to every record in to, with
	// the results appended to dst [settleclaim-1, settleclaim-2, settleclaim-14], and
	// then, even if these were refused, Claim of at most len(into) jobs, for any c.Max
	// [settleclaim-3, settleclaim-4, settleclaim-5, settleclaim-7, settleclaim-10,
	// settleclaim-13]. It writes them where into points and returns how many there are
	// [settleclaim-7]. The rest of these records is undefined, and all of them if the
	// call fails. It claims no job that has an enqueue TTL, which an undone claim would
	// not give back as it was, and none that Claim would have taken after one
	// [settleclaim-15].
	SettleAndClaim(ctx context.Context, now time.Time, to []*Record, dst []Settled,
		c Claim, into []*Record) ([]Settled, int, error)

	// Unclaim undoes claims of jobs whose attempts have not begun (Record.Unclaim): they
	// are available again in the places that they had [unclaim-1, unclaim-2, unclaim-4].
	// It skips jobs whose claim is not the one named, and returns how many are available
	// now [unclaim-3, unclaim-6]. A call that fails has undone nothing, unless the
	// storage cannot know [settleclaim-9].
	Unclaim(ctx context.Context, now time.Time, held []Held) (int, error)
}

// Binder is the ability of a Notifier to know its callers without a WithCaller in each
// call's context. It is optional. The storage itself must have it, not one that it wraps.
type Binder interface {
	Notifier
	// Bind returns asked as caller uses it: its Insert, Claim, Settle, Extend and Due are
	// caller's calls, in any context [notify-7]. It returns nil unless asked is the
	// storage itself: a type that embeds the storage has this method too, and its own
	// calls would be passed by [notify-7].
	Bind(caller any, asked Storage) Storage
}
