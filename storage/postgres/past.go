package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// A claim with keys to skip takes three steps, so that it does not walk past the jobs
// that earlier claims have skipped:
//
//  1. Read which queues have jobs and are not paused, and which transactions are under
//     way.
//  2. Look without locks at the jobs behind the skipped ones, and at the first job of
//     each key that has opened (rows.Lane).
//  3. Claim the jobs that may be claimed and that no other transaction has locked.
//
// A place is drawn before its job is committed, so a job may become available before
// others that a claim has seen. A lane begins behind a place only when all transactions
// that were under way when the place was seen have ended. A job may also become available
// by hand or by an edit of another process. A claim finds that job after the next poll,
// which has the lanes forgotten.

// past is a claim with keys to skip.
type past struct {
	s      *Storage
	ctx    context.Context
	c      *storage.Claim
	now    int64
	types  claimTypes
	queue  string   // ""; all but
	paused []string // these
}

// spare is how many jobs more than are wanted to try to take: others may be taking the
// first ones.
const spare = 16

// claimPast claims up to most jobs. Jobs that it returns with an error are claimed, too.
func (s *Storage) claimPast(ctx context.Context, now int64, c *storage.Claim, most int) (claimed []storage.Record, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.forget.Swap(false) {
		s.lanes.Forget()
	}
	p := &past{s: s, ctx: ctx, c: c, now: now, types: typesOf(c.Types)}
	taken := make(map[string]bool)
	const tries = 5
	for try := 0; try < tries; try++ {
		queues, oldest, next, err := p.begin()
		if err != nil {
			return claimed, err
		}
		missed := false
		for _, p.queue = range queues {
			if len(claimed) >= most {
				break
			}
			lane := s.lanes.Of(c.SkipKeys, p.queue, c.Types)
			lane.Begin(oldest, next)
			picked, err := lane.Pick(p, rows.Wanted{Now: now, Types: c.Types, Paused: p.paused, Taken: taken, Max: most - len(claimed) + spare})
			if err != nil {
				s.lanes.Forget()
				return claimed, err
			}
			got, err := p.take(picked, most-len(claimed))
			if err != nil {
				s.lanes.Forget()
				return claimed, err
			}
			seqs := make(map[int64]bool, len(got))
			for i := range got {
				seqs[got[i].seq] = true
			}
			lane.Took(func(seq int64) bool { return seqs[seq] })
			lane.End()
			before := len(claimed)
			if claimed = s.decodeClaimed(ctx, got, claimed); len(claimed)-before < len(got) {
				try = -1 // as often again, since it goes on with fewer
			}
			for i := range claimed[before:] {
				if limit := claimed[before+i].RateLimit; limit != nil && limit.Key != "" {
					taken[limit.Key] = true
				}
			}
			missed = missed || len(claimed) < most && len(claimed)-before < len(picked)
		}
		if !missed { // or others had what was picked, and have left something behind it
			break
		}
	}
	return claimed, nil
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
	seqs, keys := make([]int64, len(picked)), make([]string, len(picked))
	for i := range picked {
		seqs[i], keys[i] = picked[i].Seq, picked[i].Key
	}
	var got []stored
	args := p.types.arguments([]any{p.now, most, p.c.Worker, p.types.names, []string{}})
	args = append(args, seqs, keys, p.queue)
	err := again(func() (err error) {
		got, err = selectRows(p.ctx, tuned{p.s}, true, p.s.sql.claimThese, args...)
		return err
	})
	slices.SortFunc(got, func(a, b stored) int { return cmp.Compare(a.ord, b.ord) })
	return got, err
}

// Behind implements rows.Looker.
func (p *past) Behind(passed map[int]int64, n int) ([]rows.Waiting, error) {
	levels, places := make([]int32, 0, len(passed)), make([]int64, 0, len(passed))
	for level, place := range passed {
		levels, places = append(levels, int32(level)), append(places, place)
	}
	if p.queue == "" {
		return p.look(p.s.sql.behindAll, levels, places, n)
	}
	return p.look(p.s.sql.behindIn, levels, places, n, p.queue)
}

// First implements rows.Looker.
func (p *past) First(keys []string) ([]rows.Waiting, error) {
	paused := p.paused
	if paused == nil {
		paused = []string{}
	}
	args := p.types.arguments([]any{keys, p.now, p.types.names})
	return p.look(p.s.sql.firstOfKeys, append(args, p.queue, paused)...)
}

func (p *past) look(sql string, args ...any) (found []rows.Waiting, err error) {
	var j rows.Waiting
	var priority int32
	err = tuned{p.s}.query(p.ctx, sql, args, each([]any{&j.Seq, &priority, &j.Place, &j.Queue, &j.Type, &j.Key, &j.Wake}, func() {
		j.Priority = int(priority)
		found = append(found, j)
	}))
	slices.SortFunc(found, func(a, b rows.Waiting) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Place, b.Place))
	})
	return found, err
}
