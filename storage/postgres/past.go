package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// A claim that meets a job that limits count (limits.go) takes three steps, so that it
// does not walk past the jobs that earlier claims have skipped:
//
//  1. Read which queues have jobs and are not paused, and which transactions are under
//     way.
//  2. Look without locks at the jobs behind the skipped ones, and at the first job of
//     each of the bounds that have opened (rows.Lane).
//  3. Claim the jobs that may be claimed and that no other transaction has locked.
//
// A place is drawn before its job is committed, so a job may become available before
// others that a claim has seen. A lane begins behind a place only when all transactions
// that were under way when the place was seen have ended. A job may also become available
// by hand or by an edit of another process. A claim finds that job after the next poll,
// which has the lanes forgotten.

// past is a claim that looks behind jobs.
type past struct {
	s       *Storage
	ctx     context.Context
	c       *storage.Claim
	now     int64
	types   claimTypes
	most    int
	had     int
	queue   string   // ""; all but
	paused  []string // these
	plain   bool     // the first job ends it that has an enqueue TTL
	over    bool     // by such a job
	claimed []storage.Record
	obedience
}

// spare is how many jobs more than are wanted to try to take: others may be taking the
// first ones.
const spare = 16

// claimPast claims up to most jobs. If plain is set, the first job ends it that has an
// enqueue TTL. The claim has had jobs already. Jobs that it returns with an error are
// claimed, too.
func (s *Storage) claimPast(
	ctx context.Context, now int64, c *storage.Claim, most, had int, plain bool,
) (claimed []storage.Record, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	forget := s.forget.Swap(false)
	if forget {
		s.lanes.Forget()
	}
	p := &past{
		s: s, ctx: ctx, c: c, now: now, types: typesOf(c.Types),
		most: most, had: had, plain: plain,
		obedience: obedience{bounds: make(map[int64]string), opens: rows.None},
	}
	if err := p.follow(forget); err != nil {
		return nil, err
	}
	const tries = 20
	for try := 0; try < tries; try++ {
		queues, oldest, next, err := p.begin()
		if err != nil {
			return p.claimed, err
		}
		missed := false
		for _, p.queue = range queues {
			if len(p.claimed) >= most || p.over {
				break
			}
			missing, progress, err := p.from(oldest, next, most)
			if err != nil {
				s.lanes.Forget()
				return p.claimed, err
			}
			missed = missed || missing
			if progress {
				try = -1 // as often again, since it goes on with fewer
			}
		}
		if !missed || p.over || len(p.claimed) >= most {
			break // or others had what was picked, and have left something behind it
		}
	}
	p.tell(len(p.claimed) < most)
	return p.claimed, nil
}

// mostPicked is how many jobs a claim looks at together when it meets jobs that wait.
const mostPicked = 1000

// from claims jobs of a queue, or of all as if they were one. It reports whether others
// had some of the jobs that it picked, and whether it has met jobs that do not decode.
func (p *past) from(oldest, next uint64, most int) (missed, progress bool, err error) {
	var last *rows.Lane
	defer func() {
		if last != nil && err == nil {
			last.End()
		}
	}()
	for wait := 0; len(p.claimed) < most && !p.over; {
		if p.leaves(&rows.Waiting{Queue: p.queue}) {
			return missed, progress, nil
		}
		left := most - len(p.claimed)
		wanted := rows.Wanted{
			Now: p.now, Types: p.c.Types, Paused: p.paused, Max: left + spare + wait, Leave: p.leaves,
		}
		lane := p.s.lanes.Of(p.s.limits.closed, p.queue, p.c.Types, p.leftLane())
		if lane != last {
			if last != nil {
				last.End()
			}
			last = lane
			lane.Begin(oldest, next)
		}
		picked, err := lane.Pick(p, wanted)
		if err != nil {
			return missed, progress, err
		}
		names := p.namesOf(picked)
		if len(names) == 0 && !p.plain {
			got, err := p.take(picked, left)
			if err != nil {
				return missed, progress, err
			}
			lane.Took(func(seq int64) bool {
				return slices.ContainsFunc(got, func(r stored) bool { return r.seq == seq })
			})
			n := p.add(got)
			// Only behind a full pick may be jobs that no other transaction has.
			missed = missed || len(p.claimed) < most && n < len(picked) && len(picked) == wanted.Max
			return missed, progress || n < len(got), nil
		}
		r, err := p.takeWithin(picked, left, names)
		if err != nil {
			return missed, progress, err
		}
		lane.Took(func(seq int64) bool { return r.done[seq] })
		n := p.add(r.got)
		progress = progress || n < len(r.got)
		again := r.recount || r.missed && len(picked) == wanted.Max
		missed = missed || again || n < len(r.got)
		all := !r.more && len(p.claimed) < most && len(picked) < wanted.Max
		if again || all {
			return missed, progress, nil
		}
		if len(r.done) == 0 { // many wait, perhaps
			wait = min(2*wait+left+spare, mostPicked)
		}
		p.forgetRead()
	}
	return missed, progress, nil
}

// namesOf returns the limits that count some of the jobs.
func (p *past) namesOf(picked []rows.Waiting) (names []storage.LimitName) {
	seen := make(map[storage.LimitName]bool)
	for i := range picked {
		j := &picked[i]
		for _, name := range limitsOf(p.s.limits.wide, j.Queue, j.Type, p.bounds[j.Seq], j.Key) {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// add adds claimed jobs. It returns how many, which is less than there are if some do not
// decode.
func (p *past) add(got []stored) int {
	before := len(p.claimed)
	p.claimed = p.s.decodeClaimed(p.ctx, got, p.claimed)
	return len(p.claimed) - before
}

// forgetRead forgets the bounds of jobs that were read.
func (p *past) forgetRead() {
	if len(p.bounds) > mostPicked {
		clear(p.bounds)
	}
}

// begin returns the queues to look into, "" for all but the paused ones, and what
// transactions are under way: those before oldest have ended, those from next on have not
// begun.
func (p *past) begin() (queues []string, oldest, next uint64, err error) {
	asked := p.c.Queues
	if asked == nil {
		asked = []string{}
	}
	p.paused = nil
	var least, above int64
	err = tuned{p.s}.query(p.ctx, p.s.sql.beginPast, []any{asked}, func(result rowSet) error {
		for result.Next() {
			if err := result.Scan(&queues, &p.paused, &least, &above); err != nil {
				return err
			}
		}
		return result.Err()
	})
	if len(asked) == 0 {
		queues = []string{""}
	} else {
		p.paused = nil // they are left out already
	}
	return queues, uint64(least), uint64(above), err
}

// take claims jobs, up to so many.
func (p *past) take(picked []rows.Waiting, most int) ([]stored, error) {
	if len(picked) == 0 {
		return nil, nil
	}
	these := make([]*rows.Waiting, len(picked))
	for i := range picked {
		these[i] = &picked[i]
	}
	var got []stored
	err := again(func() (err error) {
		got, err = p.takeThese(p.ctx, tuned{p.s}, these, most)
		return err
	})
	return got, err
}

// takeThese claims jobs, up to so many. It leaves a job that has been changed since it
// was looked at, or that another transaction has locked.
func (p *past) takeThese(
	ctx context.Context, q querier, these []*rows.Waiting, most int,
) ([]stored, error) {
	n := len(these)
	seqs, keys, bounds := make([]int64, n), make([]string, n), make([]string, n)
	queues, types := make([]string, n), make([]string, n)
	for i, j := range these {
		seqs[i], keys[i], bounds[i], queues[i], types[i] = j.Seq, j.Key, p.bounds[j.Seq], j.Queue, j.Type
	}
	args := p.types.claimArguments(p.now, most, p.c)
	args = append(args, seqs, keys, bounds, queues, types)
	got, err := selectRows(ctx, q, true, p.s.sql.claimThese, args...)
	slices.SortFunc(got, func(a, b stored) int { return cmp.Compare(a.ord, b.ord) })
	return got, err
}

// Behind implements rows.Looker.
func (p *past) Behind(passed map[int]rows.Spot, n int) ([]rows.Waiting, error) {
	levels, places, own := make([]int32, 0, len(passed)), make([]int64, 0, len(passed)),
		make([]int64, 0, len(passed))
	for level, spot := range passed {
		levels, places, own = append(levels, int32(level)), append(places, spot.Place), append(own, spot.Own)
	}
	if p.queue == "" {
		return p.look(p.s.sql.behindAll, levels, places, own, n)
	}
	return p.look(p.s.sql.behindIn, levels, places, own, n, p.queue)
}

// First implements rows.Looker.
func (p *past) First(bounds []string) (found []rows.Waiting, err error) {
	args := p.types.arguments([]any{bounds, p.now, p.types.names})
	return p.look(p.s.sql.firstOfBounds, append(args, p.queue,
		append(p.leftNames(storage.LimitQueue), p.paused...), p.most-len(p.claimed),
		p.leftNames(storage.LimitType))...)
}

func (p *past) look(sql string, args ...any) (found []rows.Waiting, err error) {
	var j rows.Waiting
	var priority int32
	var bounds string
	err = tuned{p.s}.query(p.ctx, sql, args, each([]any{
		&j.Seq, &priority, &j.Place, &j.Own, &j.Queue, &j.Type, &j.Key, &j.Wake, &bounds,
	}, func() {
		j.Priority, j.Limit = int(priority), ""
		if bounds != "" {
			p.bounds[j.Seq], j.Limit = bounds, bounds
		}
		found = append(found, j)
	}))
	sortWaiting(found)
	return found, err
}

func sortWaiting(list []rows.Waiting) {
	slices.SortFunc(list, func(a, b rows.Waiting) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Spot.Compare(b.Spot))
	})
}
