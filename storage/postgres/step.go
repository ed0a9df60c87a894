package postgres

import (
	"context"
	"slices"
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
	taken := s.asking(now, &c, len(into), true, func(i int) *storage.Record { return into[i] })
	results, err := s.claimAll(ctx, outcomes, taken)
	var notice storage.Notice
	s.noteSettled(&notice, outcomes.encoded, results)
	for _, r := range into[:taken.had] {
		notice.Add(r.ID, r.State, r.WakeAt())
	}
	s.tell(ctx, &notice)
	if err != nil {
		return dst, 0, wrap(err)
	}
	return append(dst, results...), taken.had, nil
}

// claimAll stores outcomes and claims jobs, in as many statements as it takes. It fails
// only if it has done neither, or if a statement had no answer: the caller then has to
// look for what it has claimed. It returns results also then, if it has stored outcomes.
func (s *Storage) claimAll(ctx context.Context, o settling, c *asking) ([]storage.Settled, error) {
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
func (s *Storage) claimMore(ctx context.Context, c *asking, settled int) error {
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
	s.config.log.Warn("ojs: postgres: jobs with limits not claimed: the next claim looks again", "error", err)
	return nil
}

// step stores outcomes and claims what the claim lacks.
func (s *Storage) step(
	ctx context.Context, o settling, taken *asking,
) (results []storage.Settled, err error) {
	slowly := txOf(ctx) != nil || taken.left() == 0 || o.distinct() < len(o.encoded) ||
		s.counting.Load() && len(o.encoded) > 0 || len(o.entering()) > 0
	if !slowly {
		results, slowly, err = s.stepAtOnce(ctx, o, taken)
	}
	if slowly && err == nil {
		return s.stepSlowly(ctx, o, taken)
	}
	return results, err
}

// refusedStep returns the numbers of the changes that a step has not applied, and sets
// ojs.refused to the ids of their jobs, which the claim that follows in the transaction
// reads (refusedBefore). If other jobs may wait for one of its jobs, the step has applied
// nothing, and sets ojs.held, so that the claim takes nothing.
const refusedStep = `
	SELECT r.ords, yes, CASE WHEN yes THEN set_config('ojs.held', 'yes', true) ELSE set_config('ojs.refused', r.ids, true) END FROM held, (
		SELECT coalesce(array_agg(c.ord), '{}') AS ords, coalesce(array_agg(c.id)::text, '') AS ids FROM c
		WHERE c.ord NOT IN (SELECT ord FROM gone)) r`

var stepSQL = settlesWith("completeStep endStep settleStep settleAllStep", refusedStep, held, guard)

// stepAtOnce makes the statements of a step in one round trip. No job is settled twice.
// If other jobs may wait for one of the jobs, it does nothing and reports held.
func (s *Storage) stepAtOnce(
	ctx context.Context, o settling, taken *asking,
) (results []storage.Settled, held bool, err error) {
	var before []sent
	var ords []int64
	var set string // of the transaction
	if len(o.encoded) > 0 {
		of, args := o.by(stepSQL)
		before = append(before, s.sent(of, one(&ords, &held, &set), args...))
	}
	err = taken.claimBehind(ctx, slices.ContainsFunc(o.encoded, bounded), before)
	if err != nil || held {
		return nil, held, err
	}
	refused := make(map[string]found, len(ords))
	for _, ord := range ords {
		id := o.encoded[ord-1].ID
		refused[id] = taken.refused[id]
	}
	err = fail.Caught(func() { results = s.pooled(ctx).explain(o, refused, retries) })
	return results, false, err
}

// stepSlowly is a step that claims nothing, or settles a job several times, or one that
// other jobs may wait for, or is part of a caller's transaction. Its next statement is
// sent when the one before has returned.
func (s *Storage) stepSlowly(
	ctx context.Context, o settling, taken *asking,
) (results []storage.Settled, err error) {
	err = s.transact(ctx, s.in(ctx).on, func(t *tx) {
		if results = t.settleRounds(o); taken.left() > 0 {
			taken.said = said{first: rows.None}
			t.send(taken.claiming(false))
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
