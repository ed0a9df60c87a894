package storage

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/times"
)

// Notifier is the ability to tell engines that share a storage what the others do, so
// that none of them has to look again and again. It is optional; see As. Notices are
// hints: they may come late, twice or, where others are in another process, never. So a
// notice of Everything follows now and then.
type Notifier interface {
	// Notify has f called whenever a call may have left something to do or to know for
	// self [notify-1, notify-2, notify-5, notify-6, notify-8, settleclaim-11, unclaim-5,
	// depend-13], unless the call was made in a context of WithCaller for the same self
	// [notify-3, settleclaim-12]. f must not call the storage, and must be quick. After
	// stop has returned, f is not called any more [notify-4].
	Notify(self any, f func(Notice)) (stop func())
}

// NotifyChecker is the ability of a Notifier to say that notices of other processes do
// not arrive. It is optional; see As. Health and Stats of an engine report it.
type NotifyChecker interface {
	// CheckNotify returns why notices of other processes do not arrive, nil if nothing is
	// known to hold them up. It asks no server.
	CheckNotify() error
}

// Notice is what others have done.
type Notice struct {
	Everything bool      // look at all there is
	Available  bool      // jobs have become available [notify-1, notify-6]
	Due        time.Time // jobs come due, or lose their lease, then at the earliest; zero: none [notify-1]
	Opens      time.Time // a limit that holds jobs back opens then at the earliest; zero: none [limit-15]
	Crons      bool      // recurring jobs have changed [notify-5]
	Values     bool      // values have been put (KindValue) [values-7]
	Taken      []Taken   // claims that were taken from their holders [notify-2]
	Ended      []string  // jobs that have ended [notify-1, each-3]

	// Quarantined are records that a call in this process has set aside [quarantine-8].
	// Its caller is told, too (Quarantiner) [quarantine-8].
	Quarantined []Quarantined
}

// Taken is a claim that was taken from its holder.
type Taken struct {
	Held
	Cause error // ojs.ErrCancelled, ojs.ErrReplaced or ojs.ErrLeaseLost [notify-2]
}

// Add adds the news of a job that has come into a state and is due to wake at wakeAt
// (Record.WakeAt).
func (n *Notice) Add(id string, state ojs.State, wakeAt time.Time) {
	switch {
	case state == ojs.StateAvailable:
		n.Available = true
	case state.Terminal():
		n.Ended = append(n.Ended, id)
	}
	n.Due = times.Earliest(n.Due, wakeAt)
}

// AddTaken adds the news that a claim was taken from its holder.
func (n *Notice) AddTaken(id string, version uint64, cause error) {
	n.Taken = append(n.Taken, Taken{Held{id, version}, cause})
}

// AddDocuments adds the news that documents of a kind have changed.
func (n *Notice) AddDocuments(kind Kind) {
	n.Crons = n.Crons || kind == KindCron
	n.Values = n.Values || kind == KindValue
}

// Empty reports whether there is nothing to tell.
func (n *Notice) Empty() bool {
	jobs := len(n.Taken) + len(n.Ended) + len(n.Quarantined)
	times := n.Due.IsZero() && n.Opens.IsZero()
	return !n.Everything && !n.Available && times && !n.Crons && !n.Values && jobs == 0
}

// Clocked is the ability to tell how far the clock that all users of the storage share is
// ahead of this machine's. It is optional; see As. Engines on the wall clock follow it,
// so that machines whose clocks differ agree on what is due.
type Clocked interface {
	// ClockOffset is cheap. It changes as clocks drift.
	ClockOffset() time.Duration
}

type selfKey struct{}

// WithCaller says who makes the calls with a context, for Notifier.
func WithCaller(ctx context.Context, self any) context.Context {
	return context.WithValue(ctx, selfKey{}, self)
}

// Caller returns what WithCaller was given, nil if nothing.
func Caller(ctx context.Context) any { return ctx.Value(selfKey{}) }
