package storagetest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// refLimit is what the reference remembers of a limit: every start, and what has been
// set. How many jobs are active it counts each time.
type refLimit struct {
	starts  []int64 // in order
	setting *ojs.RateLimit
	until   time.Time
	blocked time.Time
	set     bool                   // a setting or a block was made
	closed  map[ojs.RateLimit]bool // claims have told of these bounds since a job with them started
	last    ojs.RateLimit          // of the job of the key that started last
}

// limit returns what there is of a limit.
func (s *Reference) limit(name storage.LimitName) *refLimit {
	if s.limits[name] == nil {
		s.limits[name] = &refLimit{closed: make(map[ojs.RateLimit]bool)}
	}
	return s.limits[name]
}

// limitsOf returns the limits that count a job.
func limitsOf(r *storage.Record) []storage.LimitName {
	list := []storage.LimitName{
		{Kind: storage.LimitQueue, Name: r.Queue},
		{Kind: storage.LimitType, Name: r.Type},
	}
	if r.RateLimit != nil {
		list = append(list, storage.LimitName{Kind: storage.LimitKey, Name: r.RateLimit.Key})
	}
	return list
}

// inLimit returns how many jobs of a limit are in a state, without expired ones.
func (s *Reference) inLimit(name storage.LimitName, in ojs.State, now time.Time) (n int) {
	for _, j := range s.jobs {
		if j.rec.State == in && !j.rec.Expired(now) && slices.Contains(limitsOf(&j.rec), name) {
			n++
		}
	}
	return n
}

// limitOpens is when a limit lets a job start: not after now if it does, the end of time
// if another job has to end first.
func (s *Reference) limitOpens(name storage.LimitName, r *storage.Record, now time.Time) int64 {
	l := s.limit(name)
	var own ojs.RateLimit
	if name.Kind == storage.LimitKey {
		own = *r.RateLimit
	}
	b := storage.Override(own, l.inForce(now))
	active := 0
	if b.Concurrency != 0 {
		active = s.inLimit(name, ojs.StateActive, now)
	}
	at, never := storage.Opens(&b, active, l.starts, now.UnixNano())
	if never {
		at = math.MaxInt64
	}
	if l.inForce(now) != nil && !l.until.IsZero() {
		at = min(at, nanos(l.until)) // it has other bounds then
	}
	if !l.blocked.IsZero() {
		at = max(at, nanos(l.blocked))
	}
	return at
}

func (l *refLimit) inForce(now time.Time) *ojs.RateLimit {
	if l.until.IsZero() || now.Before(l.until) {
		return l.setting
	}
	return nil
}

// waits reports whether limits have a job that is available wait.
func (s *Reference) waits(r *storage.Record, now time.Time) bool {
	return s.waitsUntil(r, now) > now.UnixNano()
}

// waitsUntil is when the last limit opens for which the job waits.
func (s *Reference) waitsUntil(r *storage.Record, now time.Time) (last int64) {
	last = math.MinInt64
	for _, name := range limitsOf(r) {
		acts := name.Kind == storage.LimitKey &&
			(r.RateLimit.OnLimit == ojs.OnLimitDrop || r.RateLimit.OnLimit == ojs.OnLimitReschedule)
		if !acts {
			last = max(last, s.limitOpens(name, r, now))
		}
	}
	return last
}

// heldBack does what the OnLimit of a job says, if its limit holds it back.
func (s *Reference) heldBack(j *refJob, now time.Time, to *storage.Limited) bool {
	r := &j.rec
	if r.RateLimit == nil {
		return false
	}
	at := s.limitOpens(storage.LimitName{Kind: storage.LimitKey, Name: r.RateLimit.Key}, r, now)
	if at <= now.UnixNano() {
		return false
	}
	if r.RateLimit.OnLimit == ojs.OnLimitDrop {
		r.Limit(now)
		s.moved(j, false)
		to.Dropped = append(to.Dropped, r.Copy())
		to.Moved = append(to.Moved, s.countEnds(now)...)
		return true
	}
	var opens time.Time
	if at != math.MaxInt64 {
		opens = time.Unix(0, at).UTC()
	}
	r.Postpone(now, opens)
	s.moved(j, false)
	to.Postponed = append(to.Postponed, r.Copy())
	return true
}

// counts reports whether a limit with bounds of its own counts the job.
func (s *Reference) counts(r *storage.Record) bool {
	if r.RateLimit != nil {
		return true
	}
	for _, name := range limitsOf(r) {
		if s.limit(name).set {
			return true
		}
	}
	return false
}

// told completes what a claim says of limits that has wanted more jobs.
func (s *Reference) told(c storage.Claim, now time.Time) {
	to := c.Limits
	for _, j := range s.jobs {
		if len(c.Queues) > 0 && !slices.Contains(c.Queues, j.rec.Queue) || !s.asked(j, "", c, now) {
			continue
		}
		last := s.waitsUntil(&j.rec, now)
		to.Held = true
		s.closes(&j.rec, now, to)
		at := time.Unix(0, last).UTC()
		if last < math.MaxInt64 && (to.Opens.IsZero() || at.Before(to.Opens)) {
			to.Opens = at
		}
	}
}

// closes tells of the key of a job that waits, if its limit is closed and no claim has
// told of its bounds.
func (s *Reference) closes(r *storage.Record, now time.Time, to *storage.Limited) {
	if r.RateLimit == nil {
		return
	}
	name := storage.LimitName{Kind: storage.LimitKey, Name: r.RateLimit.Key}
	l := s.limit(name)
	if l.closed[*r.RateLimit] || s.limitOpens(name, r, now) <= now.UnixNano() {
		return
	}
	l.closed[*r.RateLimit] = true
	b := storage.Override(*r.RateLimit, l.inForce(now))
	last, blocked := int64(math.MinInt64), int64(math.MinInt64)
	if n := len(l.starts); n > 0 {
		last = l.starts[n-1]
	}
	if !l.blocked.IsZero() {
		blocked = nanos(l.blocked)
	}
	active := s.inLimit(name, ojs.StateActive, now)
	to.Closed = append(to.Closed, storage.Closes(name.Name, &b, active, last, blocked, now.UnixNano()))
}

// started counts a start.
func (s *Reference) started(r *storage.Record, now time.Time) {
	for _, name := range limitsOf(r) {
		l := s.limit(name)
		l.starts = append(l.starts, now.UnixNano())
		slices.Sort(l.starts)
		if name.Kind == storage.LimitKey {
			delete(l.closed, *r.RateLimit)
			l.last = *r.RateLimit
		}
	}
}

// takeBack forgets the start of a job whose claim is undone.
func (s *Reference) takeBack(r *storage.Record) {
	for _, name := range limitsOf(r) {
		l := s.limit(name)
		if i := slices.Index(l.starts, r.StartedAt.UnixNano()); i >= 0 {
			l.starts = slices.Delete(l.starts, i, i+1)
		}
	}
}

// SetLimit implements storage.Storage.
func (s *Reference) SetLimit(ctx context.Context, now time.Time, limit storage.LimitName,
	bounds ojs.RateLimit, until time.Time) error {
	if err := storage.CheckLimit(limit, bounds); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	l := s.limit(limit)
	l.set, l.setting, l.until = true, nil, until
	if bounds.Bounds() {
		l.setting = &ojs.RateLimit{
			Concurrency: bounds.Concurrency,
			Rate:        bounds.Rate,
			Throttle:    bounds.Throttle,
		}
	}
	return nil
}

// BlockLimit implements storage.Storage.
func (s *Reference) BlockLimit(ctx context.Context, now time.Time, limit storage.LimitName,
	until time.Time) error {
	if err := storage.CheckLimit(limit, ojs.RateLimit{}); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.limit(limit).set = true
	if l := s.limit(limit); until.IsZero() || until.After(l.blocked) {
		l.blocked = until
	}
	return nil
}

// GetLimit implements storage.Storage.
func (s *Reference) GetLimit(ctx context.Context, now time.Time, limit storage.LimitName) (storage.Limit,
	error) {
	if err := storage.CheckLimit(limit, ojs.RateLimit{}); err != nil {
		return storage.Limit{}, err
	}
	if err := s.enter(ctx); err != nil {
		return storage.Limit{}, err
	}
	defer s.mu.Unlock()
	if state, there := s.limitState(limit, now); there {
		return state, nil
	}
	return storage.Limit{}, fmt.Errorf("%w: limit of %s %q", ojs.ErrNotFound, limit.Kind, limit.Name)
}

// ListLimits implements storage.Storage.
func (s *Reference) ListLimits(ctx context.Context, now time.Time, kind storage.LimitKind, after string,
	most int) (list []storage.Limit, err error) {
	if err := storage.CheckLimit(storage.LimitName{Kind: kind, Name: "any"}, ojs.RateLimit{}); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		for _, name := range limitsOf(&j.rec) {
			s.limit(name)
		}
	}
	for name := range s.limits {
		state, there := s.limitState(name, now)
		set := state.Setting != nil || !state.BlockedUntil.IsZero()
		if name.Kind == kind && name.Name > after && there && (set || kind == storage.LimitKey) {
			list = append(list, state)
		}
	}
	slices.SortFunc(list, func(a, b storage.Limit) int { return cmp.Compare(a.Name, b.Name) })
	return list[:min(len(list), max(most, 0))], nil
}

// limitState is the state of a limit. It reports false if there is nothing to tell.
func (s *Reference) limitState(name storage.LimitName, now time.Time) (storage.Limit, bool) {
	l := s.limit(name)
	state := storage.Limit{LimitName: name, Active: s.inLimit(name, ojs.StateActive, now),
		Waiting: s.inLimit(name, ojs.StateAvailable, now)}
	if set := l.inForce(now); set != nil {
		kept := *set
		state.Setting, state.Until = &kept, l.until
	}
	if l.blocked.After(now) {
		state.BlockedUntil = l.blocked
	}
	own := l.last
	for _, j := range s.jobs {
		if own.Key == "" && name.Kind == storage.LimitKey && j.rec.State == ojs.StateAvailable &&
			!j.rec.Expired(now) && slices.Contains(limitsOf(&j.rec), name) {
			own = *j.rec.RateLimit
		}
	}
	own.Key, own.OnLimit = "", ""
	state.Bounds = storage.Override(own, state.Setting)
	for _, at := range l.starts {
		if state.Bounds.Rate.Limit > 0 && at > now.UnixNano()-int64(state.Bounds.Rate.Per) {
			state.Starts++
		}
	}
	at, never := storage.Opens(&state.Bounds, state.Active, l.starts, now.UnixNano())
	if !state.BlockedUntil.IsZero() {
		at = max(at, nanos(state.BlockedUntil))
	}
	if !never && at > now.UnixNano() {
		state.Opens = time.Unix(0, at).UTC()
	}
	set := state.Setting != nil || !state.BlockedUntil.IsZero()
	return state, state.Active > 0 || state.Waiting > 0 || set
}

// nanos is a time in ns since 1970, or the last one there is.
func nanos(t time.Time) int64 {
	if t.After(time.Unix(0, math.MaxInt64)) {
		return math.MaxInt64
	}
	return t.UnixNano()
}
