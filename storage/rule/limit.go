// Package rule has the decisions of the storage contract that depend on values only: it
// looks nothing up and reads no clock. Storages find the values and apply the decisions.
package rule

import (
	"math"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Limits (storage.Limited) by lanes:
//
//   - The available jobs of one key, queue, type, version and bounds are a lane.
//   - Claims look at the first jobs of a lane only, each at its own place, and only while
//     Limit.Judge says that the lane is ready. The other jobs are set aside.
//   - Each call that changes what Judge depends on judges the lanes of the key: an end, a
//     start, a setting, a block, an insert. When Verdict.At comes, a claim does.
//   - A claim judges a lane again when it meets a job of it, since clocks differ.
//
// Nothing counts while it is ready. So a job that no claim asks for, because its queue is
// paused, takes no slot from other lanes.

// None is the time of what has no time: a limit that does not open with time.
const None = math.MinInt64

// Limit is what decides about a key, queue or type. Times are nanoseconds since 1970.
type Limit struct {
	Active  int            // jobs that are active
	Setting *ojs.RateLimit // by SetLimit; nil: none
	Until   int64          // when the setting ends; None: never, or there is none
	Blocked int64          // until when BlockLimit lets no job start; None: it does not
	Window  int64          // how long a start counts at most; 0: starts are not kept
	Most    int64          // starts that count at most

	// Starts are numbered in the order of their times, the latest is Started. 0: none.
	Started, LastStart int64
}

// Starts returns the time of a start by its number. It reports false if the storage has
// forgotten that.
type Starts func(n int64) (at int64, known bool, err error)

// Earlier is the earlier of two times, either of which may be None.
func Earlier(a, b int64) int64 {
	if a == None || b != None && b < a {
		return b
	}
	return a
}

// InForce returns the setting that has an effect.
func (l *Limit) InForce(now int64) *ojs.RateLimit {
	if l.Until != None && now >= l.Until {
		return nil
	}
	return l.Setting
}

// Over reports whether the limit has a setting that has ended. The clock of a later call
// may be before that end: then a lane that is closed without the setting may open.
func (l *Limit) Over(now int64) bool { return l.Setting != nil && l.InForce(now) == nil }

// Set gives a limit bounds until a time (None: for ever), or takes them away if they
// bound nothing.
func (l *Limit) Set(bounds ojs.RateLimit, until int64) {
	l.Setting, l.Until = nil, None
	if bounds.Bounds() {
		l.Setting = &ojs.RateLimit{
			Concurrency: bounds.Concurrency, Rate: bounds.Rate, Throttle: bounds.Throttle,
		}
		l.Until = until
		l.Remember(l.Setting)
	}
}

// Block lets no job of a limit start before a time. A block that lasts longer stays, and
// None ends a block.
func (l *Limit) Block(until int64) {
	if until == None || until > l.Blocked {
		l.Blocked = until
	}
}

// Remember has the limit keep the starts that bounds count. It reports whether it kept
// fewer.
func (l *Limit) Remember(b *ojs.RateLimit) (more bool) {
	window, most := l.Window, l.Most
	if b.Rate.Limit > 0 {
		window, most = max(window, int64(b.Rate.Per)), max(most, int64(b.Rate.Limit))
	}
	if b.Throttle.Limit > 0 {
		window, most = max(window, storage.Gap(b.Throttle)), max(most, 1)
	}
	more = window != l.Window || most != l.Most
	l.Window, l.Most = window, most
	return more
}

// Open reports whether a job with bounds may start. If not, at is when time alone lets
// it; None: never.
func (l *Limit) Open(own *ojs.RateLimit, now int64, start Starts) (at int64, open bool, err error) {
	at, waits, err := l.Opens(storage.Override(*own, l.InForce(now)), now, start)
	if err != nil {
		return None, false, err
	}
	if waits {
		at = None
	} else if at = max(at, l.Blocked); at <= now {
		return at, true, nil
	}
	if l.Until > now && (at == None || l.Until < at) {
		at = max(l.Until, l.Blocked) // other bounds hold then
	}
	return at, false, nil
}

// Opens is storage.Opens with the two starts that decide.
func (l *Limit) Opens(b ojs.RateLimit, now int64, start Starts) (at int64, waits bool, err error) {
	starts := make([]int64, 0, 2)
	if n := int64(b.Rate.Limit); n > 0 {
		first, there := int64(0), false
		if l.Started >= n {
			if first, there, err = start(l.Started - n + 1); err != nil {
				return None, false, err
			}
		}
		if b.Rate.Limit = 0; there {
			b.Rate.Limit = 2
			starts = append(starts, first)
		}
	}
	if l.Started > 0 {
		starts = append(starts, l.LastStart)
	}
	at, waits = storage.Opens(&b, l.Active, starts, now)
	return at, waits, nil
}

// Closes tells which bound keeps a job of a key with bounds from starting.
func (l *Limit) Closes(key string, own *ojs.RateLimit, now int64) storage.ClosedKey {
	b := storage.Override(*own, l.InForce(now))
	last := int64(None)
	if l.Started > 0 {
		last = l.LastStart
	}
	return storage.Closes(key, &b, l.Active, last, l.Blocked, now)
}

// State is what GetLimit tells of a limit, but for the starts. own are the bounds of the
// job of the key that started last, or of one that waits.
func (l *Limit) State(
	name storage.LimitName, own ojs.RateLimit, waiting int, now int64, start Starts,
) (state storage.Limit, err error) {
	state = storage.Limit{LimitName: name, Active: l.Active, Waiting: waiting}
	if set := l.InForce(now); set != nil {
		kept := *set
		state.Setting, state.Until = &kept, Time(l.Until)
	}
	if l.Blocked > now {
		state.BlockedUntil = Time(l.Blocked)
	}
	own.Key, own.OnLimit = "", ""
	state.Bounds = storage.Override(own, state.Setting)
	at, waits, err := l.Opens(state.Bounds, now, start)
	if at = max(at, l.Blocked); !waits && at > now {
		state.Opens = Time(at)
	}
	return state, err
}

// Known reports whether there is anything to tell of a limit.
func Known(l *storage.Limit) bool { return isSet(l) || l.Active > 0 || l.Waiting > 0 }

// Listed reports whether ListLimits tells of a limit.
func Listed(l *storage.Limit) bool { return isSet(l) || l.Kind == storage.LimitKey && Known(l) }

func isSet(l *storage.Limit) bool { return l.Setting != nil || !l.BlockedUntil.IsZero() }

// Waits reports whether a job with bounds waits while it may not start. Other jobs are
// dropped or rescheduled by the claim that meets them.
func Waits(own *ojs.RateLimit) bool {
	return own.OnLimit != ojs.OnLimitDrop && own.OnLimit != ojs.OnLimitReschedule
}

// Verdict is what a limit says of a lane.
type Verdict struct {
	Open  bool  // its first job may start
	At    int64 // when time alone opens it; None: never
	Ready bool  // claims look at its first job
}

// Closed reports whether the lane's jobs wait because of the limit.
func (v Verdict) Closed(own *ojs.RateLimit) bool { return !v.Open && Waits(own) }

// Judge decides about the lane of jobs with bounds. A lane is ready while its first job
// may start, and also if a claim has to meet that job to drop or reschedule it.
func (l *Limit) Judge(own *ojs.RateLimit, now int64, start Starts) (v Verdict, err error) {
	v.At, v.Open, err = l.Open(own, now, start)
	v.Ready = v.Open || !Waits(own)
	return v, err
}
