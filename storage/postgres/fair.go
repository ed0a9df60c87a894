package postgres

import (
	"context"
	"slices"

	"github.com/ojsengine/ojs/internal/rows"
)

// Fairness (package rule).
//
//   - The column tag is the start tag of a job with a fairness key while it is available,
//     and of an active one for Unclaim. Other jobs have none. So the order of claims is
//     priority, tag, place for all jobs.
//   - A job that becomes available is stored in ready without a tag. The trigger take_tag
//     (migration 24) gives it one. The trigger costs jobs without a key the look at two
//     columns.
//   - A claim adds the tags and finish tags of its jobs to the table served, by their
//     keys. Rows are only added, so claims do not wait for each other. Of a queue and
//     priority the greatest tag counts, and of a key there its greatest finish tag. Other
//     rows are deleted now and then (notify.go).
//   - A claim may meet a job with a rate limit whose tag is too low now. It gives the job
//     another tag and ends its transaction (limitclaim.go). The job is no head then, and
//     its lane is judged anew.
//
// Invariants:
//
//  1. A transaction in which a job takes a tag has locked the queue, by lockTurns, before
//     it draws the place of the job. So of two jobs of a key, the transaction of the
//     second sees the first job, and has the later place.
//  2. A transaction locks all queues of an insert, or of a call of Due, in the order of
//     their bytes. The collation of the database does not change that. An insert that
//     replaces jobs with a key locks the queues of each part of its batch (insert.Batch).
//  3. A transaction may lock jobs before and after a queue, and queues of several changes
//     in any order. If transactions wait for each other, PostgreSQL undoes one of them,
//     and the call repeats it (again).
//  4. A call that waits for a queue shares its statement with none that does not: see
//     insertsInTurn and settlesInTurn.
//  5. Due waits a short time for queues. If one is held for longer, Due leaves the jobs
//     that would take tags to a later call, so that other jobs are not late.
//  6. Claims and Unclaim lock no queue. A job that a claim under way takes still counts
//     as waiting: the other job has become available before that claim.

// entering are the queues in which changes have a job with a fairness key become
// available, or keep it so.
func (o *settling) entering() (queues []string) {
	for i := range o.encoded {
		if o.enters(i) {
			queues = append(queues, o.encoded[i].Queue)
		}
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}

func (o *settling) enters(i int) bool {
	return takesTurn(o.encoded[i:i+1]) && o.froms[i]&returns == 0
}

// takesTurn reports whether one of some jobs is available and has a fairness key.
func takesTurn(of []written) bool {
	return slices.ContainsFunc(of, func(w written) bool {
		return w.State == rows.Available && w.FairKey != ""
	})
}

// lockTurnsSQL locks the turns of queues one after the other. A statement that locked
// them as it goes would find rows gone that it has waited for.
var lockTurnsSQL = define("lockTurns", `SELECT {lock_turns} FROM unnest($1::text[]) l (queue)`)

// lockQueues locks the turns of queues until the transaction ends.
func (s *Storage) lockQueues(ctx context.Context, tx transaction, queues []string) error {
	if len(queues) == 0 {
		return nil
	}
	if err := s.entersIn(ctx, tx); err != nil {
		return err
	}
	return tx.exec(ctx, s.sql[lockTurnsSQL], queues)
}

// entersIn prepares a transaction in which jobs may take tags.
func (s *Storage) entersIn(ctx context.Context, tx transaction) error {
	if txOf(ctx) == nil {
		return tx.exec(ctx, s.sql[tuneSQL])
	}
	return s.checkIsolation(ctx, tx)
}

// joining makes statements that lock turns by themselves. If the default isolation is
// not read committed, they need a transaction, to see the jobs that came while they
// waited.
type joining struct{ tuned }

func (q joining) query(ctx context.Context, sql string, args []any, read func(rowSet) error) error {
	return q.s.within(ctx, func(ctx context.Context) error {
		return q.s.together(ctx, true, []sent{{sql: q.s.sql[tuneSQL]}, {sql, args, read}})
	})
}
