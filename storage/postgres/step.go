package postgres

import (
	"context"
	"slices"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// A step stores outcomes and claims jobs in one transaction. Its statements are sent
// together: one round trip and one commit.
//
// Invariants:
//
//  1. A step waits for locks in its settle statement and as it counts ends (depends.go).
//     The claim after it skips locked rows. So a step deadlocks only with what a Settle
//     deadlocks with.
//  2. The claim sees what the step has settled.
//  3. A claimed row keeps the place that it had in its queue (other_place), and Unclaim
//     returns the job there.

// SettleAndClaim implements storage.SettleClaimer.
//
// A job whose meta or extra members have a member "rate_limit" or "enqueue_ttl" ends the
// claim, too.
func (s *Storage) SettleAndClaim(
	ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled,
	c storage.Claim, into []*storage.Record,
) ([]storage.Settled, int, error) {
	if err := s.enter(ctx); err != nil {
		return dst, 0, err
	}
	defer s.mu.RUnlock()
	outcomes := settling{
		make([]written, len(to)), make([]int64, len(to)), slices.Repeat([]time.Time{now}, len(to)), true,
	}
	for i, r := range to {
		var err error
		if outcomes.encoded[i], err = encode(r); err != nil {
			return dst, 0, err
		}
		outcomes.encoded[i].Version++
		outcomes.froms[i] = int64(rows.From(outcomes.encoded[i].State))
	}
	c.ResetLimits()
	c.Limits.Held = s.held.Load()
	taken := claims{into: into}
	results, err := s.step(ctx, now, outcomes, &c, &taken)
	if err != nil {
		return dst, 0, wrap(err)
	}
	for s.setAsideMet(ctx, &taken) && len(taken.ords) < len(into) { // others come in their place
		more := claims{into: into[len(taken.ords):]}
		if _, err := s.step(ctx, now, settling{}, &c, &more); err != nil {
			break // what was claimed before is
		}
		taken.ords, taken.met, taken.counted = append(taken.ords, more.ords...), more.met, more.counted
	}
	n := len(taken.ords)
	if taken.counted && n < len(into) && txOf(ctx) == nil {
		n += s.claimCounted(ctx, now, &c, into, n)
	} else if n < len(into) {
		c.Limits.Held = false
	}
	var notice storage.Notice
	s.noteSettled(&notice, outcomes.encoded, results)
	for _, r := range into[:n] {
		notice.Add(r.ID, r.State, r.WakeAt())
	}
	s.tell(ctx, &notice)
	return append(dst, results...), n, nil
}

// claimCounted claims jobs behind the first had of a step, which has ended at a job that
// a limit counts. It returns how many it has written into records behind those. The
// outcomes of the step are stored already: if this fails, the step has claimed fewer.
func (s *Storage) claimCounted(
	ctx context.Context, now time.Time, c *storage.Claim, into []*storage.Record, had int,
) int {
	more, err := s.claimPast(ctx, rows.Nanos(now), c, len(into)-had, had, true)
	if err != nil {
		s.config.log.Warn("ojs: postgres: jobs with limits not claimed: the next claim looks again",
			"error", err)
	}
	for i := range more {
		*into[had+i] = more[i]
	}
	return len(more)
}

// setAsideMet moves the rows to the quarantine that a step has claimed and that do not
// decode. It reports whether there are any.
func (s *Storage) setAsideMet(ctx context.Context, c *claims) bool {
	_ = s.setAsideRead(ctx, true, c.met)
	return len(c.met) > 0
}

// claims are what a step has claimed.
type claims struct {
	into    []*storage.Record
	ords    []int64 // of the records, which are in this order
	met     []bad
	counted bool             // the step has ended at a job that a limit counts
	refused map[string]found // jobs whose outcomes the step has refused
}

// read reads the result of the statement that claims.
func (c *claims) read(result rowSet) error {
	s := newScanner(true)
	for result.Next() {
		if err := s.scan(result); err != nil {
			return err
		}
		if s.row.ord < 0 {
			c.counted = true
			continue
		}
		if s.row.ord == 0 {
			if c.refused == nil {
				c.refused = make(map[string]found)
			}
			c.refused[s.row.ID] = found{s.row.Version, s.state}
			continue
		}
		rec, err := rows.Decode(&s.row.Columns)
		if err != nil {
			c.met = append(c.met, bad{s.row, err})
			continue
		}
		*c.into[len(c.ords)] = rec
		c.ords = append(c.ords, s.row.ord)
	}
	if !slices.IsSorted(c.ords) {
		sort.Sort(c)
	}
	return result.Err()
}

// Len, Less and Swap implement sort.Interface.
func (c *claims) Len() int           { return len(c.ords) }
func (c *claims) Less(i, j int) bool { return c.ords[i] < c.ords[j] }
func (c *claims) Swap(i, j int) {
	c.ords[i], c.ords[j] = c.ords[j], c.ords[i]
	*c.into[i], *c.into[j] = *c.into[j], *c.into[i]
}

// step stores outcomes and claims as many jobs as there are records for them.
func (s *Storage) step(
	ctx context.Context, now time.Time, o settling, c *storage.Claim, taken *claims,
) (results []storage.Settled, err error) {
	into := taken.into
	slowly := txOf(ctx) != nil || len(into) == 0 || o.distinct() < len(o.encoded) ||
		s.counting.Load() && len(o.encoded) > 0 || len(o.entering()) > 0
	var applied []bool
	if !slowly {
		err = again(func() error {
			return s.within(ctx, func(ctx context.Context) (err error) {
				*taken = claims{into: into}
				applied, slowly, err = s.stepAtOnce(ctx, now, o, c, taken)
				return err
			})
		})
	}
	if slowly && err == nil {
		err = again(func() (err error) {
			*taken = claims{into: into}
			results, err = s.stepSlowly(ctx, now, o, c, taken)
			return err
		})
		return results, err
	}
	if err != nil {
		return nil, err
	}
	results = make([]storage.Settled, len(o.encoded))
	err = s.explain(ctx, tuned{s}, o, applied, taken.refused, results, retries)
	return results, err
}

// stepAtOnce makes the statements of a step in one round trip. No job is settled twice.
// If other jobs may wait for one of the jobs, it does nothing and reports held.
func (s *Storage) stepAtOnce(
	ctx context.Context, now time.Time, o settling, c *storage.Claim, taken *claims,
) (applied []bool, held bool, err error) {
	var b pgx.Batch
	b.Queue(s.sql.tune)
	if len(o.encoded) > 0 {
		switch {
		case o.completes():
			b.Queue(o.of(s.sql.completeStep), completionArguments(o.encoded)...)
		case o.ends():
			b.Queue(o.of(s.sql.endStep), attemptArguments(o.encoded, o.froms)...)
		default:
			b.Queue(o.of(s.sql.settleStep), attemptArguments(o.encoded, o.froms)...)
		}
	}
	sql, args := s.claimingAhead(now, c, len(taken.into))
	b.Queue(sql, args...)
	results := s.pool.SendBatch(ctx, &b)
	defer func() {
		if closing := results.Close(); err == nil {
			err = closing
		}
	}()
	if _, err := results.Exec(); err != nil {
		return nil, false, err
	}
	next := func(read func(rowSet) error) error {
		result, err := results.Query()
		if err != nil {
			return err
		}
		return readAll(result, read)
	}
	if len(o.encoded) > 0 {
		applied = slices.Repeat([]bool{true}, len(o.encoded))
		var some bool
		var ords []int64
		var ids string
		if err := next(one(&some, &ords, &ids, &held)); err != nil {
			return nil, false, err
		}
		for _, ord := range ords {
			applied[ord-1] = false
		}
	}
	return applied, held, next(taken.read)
}

// stepSlowly is a step that claims nothing, or settles a job several times, or one that
// other jobs may wait for, or is part of a caller's transaction. Its next statement is
// sent when the one before has returned.
func (s *Storage) stepSlowly(
	ctx context.Context, now time.Time, o settling, c *storage.Claim, taken *claims,
) (results []storage.Settled, err error) {
	err = s.within(ctx, func(ctx context.Context) error {
		return begun(ctx, s.in(ctx), func(tx transaction) (err error) {
			if results, err = s.settleRounds(ctx, tx, o); err != nil || len(taken.into) == 0 {
				return err
			}
			sql, args := s.claimingAhead(now, c, len(taken.into))
			return tx.query(ctx, sql, args, taken.read)
		})
	})
	return results, err
}

// claimingAhead is the statement that claims up to most jobs, up to the first one whose
// claim Unclaim could not undo.
func (s *Storage) claimingAhead(now time.Time, c *storage.Claim, most int) (sql string, args []any) {
	types := typesOf(c.Types)
	args = types.claimArguments(rows.Nanos(now), most, c)
	switch {
	case len(c.Queues) > 0:
		return s.sql.aheadIn, append(args, c.Queues)
	case s.paused.Load():
		return s.sql.aheadAround, args
	}
	return s.sql.aheadAll, args
}

// Unclaim implements storage.SettleClaimer.
func (s *Storage) Unclaim(ctx context.Context, _ time.Time, held []storage.Held) (n int, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.RUnlock()
	return s.unclaim(ctx, held)
}

func (s *Storage) unclaim(ctx context.Context, held []storage.Held) (n int, err error) {
	named := make(map[storage.Held]bool, len(held))
	ids := make([]string, 0, len(held))
	for _, h := range held {
		if sayable(h.ID) {
			named[h] = true
			ids = append(ids, h.ID)
		}
	}
	if len(ids) == 0 {
		return 0, nil
	}
	var back settling
	err = again(func() error {
		return s.within(ctx, func(ctx context.Context) error {
			return begun(ctx, s.in(ctx), func(tx transaction) error {
				list, err := selectRows(ctx, tx, false, s.sql.lockedIDs, ids)
				if err != nil {
					return err
				}
				back = settling{sameJob: true}
				var undone []storage.Record
				for i := range list {
					r, err := list[i].decode()
					if err != nil || list[i].State != rows.Active ||
						!named[storage.Held{ID: r.ID, Version: r.Version}] {
						continue
					}
					undone = append(undone, r.Record)
					r.Unclaim()
					w, err := encode(&r.Record)
					if err != nil {
						return err
					}
					back.encoded = append(back.encoded, w)
					back.froms = append(back.froms, 1<<rows.Active|returns)
				}
				if len(back.encoded) == 0 {
					return nil
				}
				if err := s.takeBack(ctx, tx, undone); err != nil {
					return err
				}
				if err := s.rest(ctx, tx, back.encoded); err != nil {
					return err
				}
				sql, args := back.of(s.sql.settleCounting), attemptArguments(back.encoded, back.froms)
				return tx.exec(ctx, sql, args...)
			})
		})
	})
	if err != nil {
		return 0, wrap(err)
	}
	if len(back.encoded) == 0 {
		return 0, nil
	}
	s.forget.Store(true) // lanes are past these places
	s.out.addBehind()
	var notice storage.Notice
	for i := range back.encoded {
		rows.Note(&notice, &back.encoded[i].Columns)
	}
	s.tell(ctx, &notice)
	return len(back.encoded), nil
}
