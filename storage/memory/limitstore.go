package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// SetLimit implements storage.Storage.
func (s *store) SetLimit(
	ctx context.Context, now time.Time, limit storage.LimitName, bounds ojs.RateLimit, until time.Time,
) error {
	return s.setLimit(ctx, now, limit, bounds, until, func(c *counter, end int64) { c.Set(bounds, end) })
}

// BlockLimit implements storage.Storage.
func (s *store) BlockLimit(
	ctx context.Context, now time.Time, limit storage.LimitName, until time.Time,
) error {
	return s.setLimit(ctx, now, limit, ojs.RateLimit{}, until, func(c *counter, end int64) { c.Block(end) })
}

func (s *store) setLimit(
	ctx context.Context, now time.Time, limit storage.LimitName, bounds ojs.RateLimit, until time.Time,
	set func(c *counter, until int64),
) error {
	if err := storage.CheckLimit(limit, bounds); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	s.ready.openDue(now)
	c := s.ready.limits.counter(limit)
	set(c, rule.Nanos(until))
	if limit.Kind != storage.LimitKey && len(c.lanes) == 0 {
		s.bindAll(c)
	}
	s.ready.judgeAll(c)
	s.notice.Available = s.heard
	return nil
}

// bindAll gives the counter of a queue or type its lane, sections and active jobs.
func (s *store) bindAll(c *counter) {
	l := c.add(ojs.RateLimit{})
	c.Active = s.countOf(c, active, nil)
	for x := range s.ready.counted(c) {
		s.ready.bind(x, l)
	}
}

// counted yields the sections whose jobs a counter of a queue or type counts.
func (r *ready) counted(c *counter) iter.Seq[*section] {
	return func(yield func(*section) bool) {
		for name, q := range r.queues {
			for t, x := range q.sections {
				counts := c.Kind == storage.LimitQueue && name == c.Name ||
					c.Kind == storage.LimitType && t.name == c.Name
				if counts && !yield(x) {
					return
				}
			}
		}
	}
}

// countOf counts the jobs in a state that the limit of a queue or type is about, but for
// some of each section.
func (s *store) countOf(c *counter, state int, without map[any]int) (n int) {
	if c.Kind == storage.LimitKey {
		return 0
	}
	for x := range s.ready.counted(c) {
		n += x.counts[state] - without[x]
	}
	return n
}

// GetLimit implements storage.Storage.
func (s personal) GetLimit(
	ctx context.Context, now time.Time, limit storage.LimitName,
) (storage.Limit, error) {
	if err := storage.CheckLimit(limit, ojs.RateLimit{}); err != nil {
		return storage.Limit{}, err
	}
	if err := s.enter(ctx); err != nil {
		return storage.Limit{}, err
	}
	defer s.leave()
	c := s.ready.limits.byName[limit]
	if c == nil && limit.Kind != storage.LimitKey { // it has no bounds, and may have jobs
		c = newCounter(limit)
		c.Active = s.countOf(c, active, nil)
	}
	if c != nil {
		if state := s.limitOf(c, now, s.expiredReady(now)); rule.Known(&state) {
			return state, nil
		}
	}
	return storage.Limit{}, fmt.Errorf("%w: limit of %s %q", ojs.ErrNotFound, limit.Kind, limit.Name)
}

// ListLimits implements storage.Storage.
func (s personal) ListLimits(
	ctx context.Context, now time.Time, kind storage.LimitKind, after string, most int,
) ([]storage.Limit, error) {
	if err := storage.CheckLimit(storage.LimitName{Kind: kind, Name: "any"}, ojs.RateLimit{}); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	var found []*counter
	for name, c := range s.ready.limits.byName {
		if name.Kind == kind && name.Name > after {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *counter) int { return cmp.Compare(a.Name, b.Name) })
	expired := s.expiredReady(now)
	var list []storage.Limit
	for _, c := range found {
		if len(list) >= most {
			break
		}
		if state := s.limitOf(c, now, expired); rule.Listed(&state) {
			list = append(list, state)
		}
	}
	return list, nil
}

// limitOf is the state of a limit, where expired has the available jobs of each section
// and lane whose deadline has come.
func (s *store) limitOf(c *counter, now time.Time, expired map[any]int) storage.Limit {
	own, waiting := c.last, s.countOf(c, available, expired)
	for _, l := range c.lanes {
		n := l.n - expired[l]
		if waiting += n; own.Key == "" && n > 0 {
			own = l.own
		}
	}
	ns := now.UnixNano()
	state, _ := c.State(c.LimitName, own, waiting, ns, c.start)
	if per := int64(state.Bounds.Rate.Per); state.Bounds.Rate.Limit > 0 {
		first, _ := slices.BinarySearch(c.starts, ns-per+1)
		state.Starts = len(c.starts) - first
	}
	return state
}

// expiredReady puts the jobs that are not expired at now back into their lanes, and
// counts the expired ones of each section and lane. It costs a look at each job that is
// due.
func (s *store) expiredReady(now time.Time) map[any]int {
	s.ready.bringBack(now)
	n := make(map[any]int)
	at := rule.Nanos(now)
	for due := s.wakes[open].from(math.MinInt64, 0, false); due.next() && due.at <= at; {
		if j := due.job; j.state == available {
			n[j.kind.section]++
			if b := j.level.bucket; b != nil { // lanes do not count those in ready.passed
				n[b.lane]++
			}
		}
	}
	return n
}
