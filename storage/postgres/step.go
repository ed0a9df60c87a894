package postgres

import (
	"context"
	"slices"
	"sort"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
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
	outcomes, err := settlingOf(now, len(to), func(i int) *storage.Record { return to[i] })
	if err != nil {
		return dst, 0, err
	}
	at := func(i int) *storage.Record { return into[i] }
	taken := claims{asking: s.asking(now, &c, len(into), true), at: at}
	results, err := s.claimAll(ctx, outcomes, &taken)
	n := taken.had
	var notice storage.Notice
	if err == nil || results != nil {
		s.noteSettled(&notice, outcomes.encoded, results)
	}
	for _, r := range into[:n] {
		notice.Add(r.ID, r.State, r.WakeAt())
	}
	s.tell(ctx, &notice)
	if err != nil {
		return dst, 0, wrap(err)
	}
	return append(dst, results...), n, nil
}

// claimAll stores outcomes and claims jobs, in as many statements as it takes. It fails
// only if it has done neither, or if a statement had no answer: the caller then has to
// look for what it has claimed. It returns results also then, if it has stored outcomes.
func (s *Storage) claimAll(ctx context.Context, o settling, c *claims) ([]storage.Settled, error) {
	results, err := s.step(ctx, o, c)
	if err != nil {
		return nil, err
	}
	err = s.claimMore(ctx, c, len(results))
	c.asked = c.asked && err == nil // the caller reads no answer of a call that has failed
	c.tell(ctx)
	return results, err
}

// claimMore claims what the first statement of a claim has left.
func (s *Storage) claimMore(ctx context.Context, c *claims, settled int) error {
	for c.took(ctx) && c.left() > 0 { // others come in the place of jobs that do not decode
		if _, err := s.step(ctx, settling{}, c); mayHaveDone(err) {
			return err
		} else if err != nil {
			break
		}
	}
	if !c.more || c.left() == 0 || txOf(ctx) != nil {
		return nil
	}
	err := s.claimLimited(ctx, c)
	if err == nil || mayHaveDone(err) || c.had+settled == 0 {
		return err
	}
	s.config.log.Warn("ojs: postgres: jobs with limits not claimed: the next claim looks again",
		"error", err)
	return nil
}

// claims are what a claim has claimed.
type claims struct {
	*asking
	at      func(i int) *storage.Record // of all jobs of the claim
	ords    []int64                     // of the jobs of the last statement, which are in this order
	met     []bad
	refused map[string]found // jobs whose outcomes the step has refused
}

// took adds the jobs of the last statement to those of the claim. It moves the jobs that
// do not decode to the quarantine, and reports whether there are any. If that fails, they
// stay active until their leases expire.
func (c *claims) took(ctx context.Context) bool {
	for i := range c.ords {
		if l := c.at(c.had + i).RateLimit; l != nil {
			c.start = append(c.start, *l)
		}
	}
	c.had += len(c.ords)
	_ = c.s.setAsideRead(ctx, true, c.met)
	return len(c.met) > 0
}

// read reads the result of the statement that claims.
func (c *claims) read(result rowSet) error {
	s := newScanner(1)
	c.ords, c.met, c.refused = nil, nil, nil
	for result.Next() {
		if err := s.scan(result); err != nil {
			return err
		}
		if c.reads(&s.row) {
			continue
		}
		if s.row.ord == 0 {
			if c.refused == nil {
				c.refused = make(map[string]found)
			}
			c.refused[s.row.ID] = found{seq: s.row.seq, version: s.row.Version, code: int16(s.row.State)}
			continue
		}
		rec, err := rows.Decode(&s.row.Columns)
		if err != nil {
			c.met = append(c.met, bad{s.row, err})
			continue
		}
		*c.at(c.had + len(c.ords)) = rec
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
	a, b := c.at(c.had+i), c.at(c.had+j)
	*a, *b = *b, *a
}

// step stores outcomes and claims what the claim lacks.
func (s *Storage) step(
	ctx context.Context, o settling, taken *claims,
) (results []storage.Settled, err error) {
	slowly := txOf(ctx) != nil || taken.left() == 0 || o.distinct() < len(o.encoded) ||
		s.counting.Load() && len(o.encoded) > 0 || len(o.entering()) > 0
	var applied []bool
	if !slowly {
		err = again(func() error {
			return s.within(ctx, func(ctx context.Context) (err error) {
				applied, slowly, err = s.stepAtOnce(ctx, o, taken)
				return err
			})
		})
	}
	if slowly && err == nil {
		return s.stepSlowly(ctx, o, taken)
	}
	if err != nil {
		return nil, err
	}
	err = fail.Caught(func() { results = s.pooled(ctx).explain(o, applied, taken.refused, retries) })
	return results, err
}

// refusedStep is what a step has not applied: the numbers for the caller, the ids for the
// claim that follows in the transaction. If other jobs may wait for one of its jobs, the
// step has applied nothing, and the claim takes nothing.
const refusedStep = `
	SELECT r.ords, CASE WHEN yes THEN set_config('ojs.held', 'yes', true) ELSE set_config('ojs.refused', r.ids, true) END, yes FROM (
		SELECT coalesce(array_agg(c.ord), '{}') AS ords, coalesce(array_agg(c.id)::text, '') AS ids FROM c
		WHERE c.ord NOT IN (SELECT ord FROM gone)) r, held`

var stepSQL = settlesWith("completeStep endStep settleStep settleAllStep", refusedStep, held, guard)

// stepAtOnce makes the statements of a step in one round trip. No job is settled twice.
// If other jobs may wait for one of the jobs, it does nothing and reports held.
func (s *Storage) stepAtOnce(
	ctx context.Context, o settling, taken *claims,
) (applied []bool, held bool, err error) {
	var before []sent
	var ords []int64
	var ids string
	if len(o.encoded) > 0 {
		of, args := o.by(stepSQL)
		before = append(before, s.sent(of, one(&ords, &ids, &held), args...))
		applied = slices.Repeat([]bool{true}, len(o.encoded))
	}
	if err := taken.send(ctx, o.bounded(), before, taken.read); err != nil {
		return nil, false, err
	}
	for _, ord := range ords {
		applied[ord-1] = false
	}
	return applied, held, nil
}

// stepSlowly is a step that claims nothing, or settles a job several times, or one that
// other jobs may wait for, or is part of a caller's transaction. Its next statement is
// sent when the one before has returned.
func (s *Storage) stepSlowly(
	ctx context.Context, o settling, taken *claims,
) (results []storage.Settled, err error) {
	err = s.transact(ctx, s.in(ctx).on, func(t *tx) {
		if results = t.settleRounds(o); taken.left() > 0 {
			taken.said = said{first: rows.None}
			t.send(taken.claiming(false, taken.read))
		}
	})
	return results, err
}

var lockedIDsSQL = define("lockedIDs",
	`SELECT {columns} FROM {whole} WHERE seq = ANY ({seqs}) ORDER BY seq FOR UPDATE`)

// Unclaim implements storage.SettleClaimer.
func (s *Storage) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	return ask(s.in(ctx), func(*tx) int { return fail.Must(s.unclaim(ctx, now, held)) })
}

func (s *Storage) unclaim(ctx context.Context, now time.Time, held []storage.Held) (n int, err error) {
	named := make(map[storage.Held]bool, len(held))
	for _, h := range held {
		named[h] = true
	}
	ids := sayables(listOf(held, func(h *storage.Held) string { return h.ID }))
	if len(ids) == 0 {
		return 0, nil
	}
	var back settling
	err = s.transact(ctx, s.in(ctx).on, func(t *tx) {
		back = settling{sameJob: true}
		var undone []storage.Record
		list, _ := decoded(t.rows(0, lockedIDsSQL, ids))
		for _, r := range list {
			if r.State != ojs.StateActive || !named[storage.Held{ID: r.ID, Version: r.Version}] {
				continue
			}
			undone = append(undone, r.Record)
			r.Unclaim()
			back.add(&r.Record, 1<<rows.Active|returns)
		}
		if len(undone) > 0 {
			t.takeBack(rows.Nanos(now), undone)
			t.rest(back.encoded)
			t.exec(countingSQL.attempt, attemptArguments(back.encoded, back.froms)...)
		}
	})
	if err != nil || len(back.encoded) == 0 {
		return 0, wrap(err)
	}
	var notice storage.Notice
	back.note(&notice)
	s.tell(ctx, &notice)
	return len(back.encoded), nil
}
