package postgres

import (
	"slices"

	"github.com/ojsengine/ojs/internal/rows"
)

// Jobs with a fairness key take turns in rounds (package storage, Fairness).
//
//   - The column place of such a job is that of its round while it is available, and
//     own_place is where it would stand without its key. Other jobs have no own_place. So
//     the order of claims is priority, place, own_place for all jobs.
//   - A job that becomes available is stored in ready without an own_place. The trigger
//     take_turn (migration 20) then has it join a round, or begin one. The trigger costs
//     jobs without a key the look at two columns.
//   - A claim keeps place in other_place, and own_place, for Unclaim. It adds the latest
//     of its rounds to the table served, whose latest row counts. Rows are only added,
//     so claims do not wait for each other.
//   - served means nothing once no job with a key is available in its queue and priority.
//     A claim need not look for that: a job that enters does, and Unclaim.
//
// Invariants:
//
//  1. A transaction in which a job joins a round has locked the queue, by lockRounds,
//     before it draws the place of the job. So of two jobs that enter the same rounds,
//     the second one's transaction sees the first job, and has the later place.
//  2. A transaction locks all queues of an insert, or of a call of Due, in the order of
//     their bytes. The collation of the database does not change that. An insert that
//     replaces jobs in rounds locks the queues of each part of its batch (insert.Batch).
//  3. A transaction may lock jobs before and after a queue, and queues of several changes
//     in any order. If transactions wait for each other, PostgreSQL undoes one of them,
//     and the call repeats it (again).
//  4. A call that waits for a queue shares its statement with none that does not: see
//     insertsInTurn and settlesInTurn.
//  5. Due waits a short time for queues. If one is held for longer, Due leaves the jobs
//     that would join rounds to a later call, so that other jobs are not late.
//  6. Claims lock no queue. A job that a claim under way takes still counts as waiting:
//     the other job has become available before that claim.

// entering are the queues in which changes have a job with a fairness key become
// available, or keep it so.
func (o *settling) entering() (queues []string) {
	for i := range o.encoded {
		if takesTurn(o.encoded[i:i+1]) && o.froms[i]&returns == 0 {
			queues = append(queues, o.encoded[i].Queue)
		}
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}

// takesTurn reports whether one of some jobs is available and has a fairness key.
func takesTurn(of []written) bool {
	return slices.ContainsFunc(of, func(w written) bool {
		return w.State == rows.Available && w.FairKey != ""
	})
}

// lockRoundsSQL locks the rounds of queues one after the other. A statement that locked
// them as it goes would find rows gone that it has waited for.
var lockRoundsSQL = define("lockRounds", `SELECT {lock_rounds} FROM unnest($1::text[]) l (queue)`)

// lockQueues locks the rounds of queues until the transaction ends.
func (t *tx) lockQueues(queues []string) {
	if len(queues) > 0 {
		t.entersIn()
		t.exec(lockRoundsSQL, queues)
	}
}

// entersIn prepares a transaction in which jobs may join rounds.
func (t *tx) entersIn() {
	t.tune()
	t.checkIsolation()
}

// tryRoundsSQL locks the rounds of the queues $1 that no other transaction holds.
var tryRoundsSQL = define("tryRounds", `SELECT set_config('ojs.rounds', coalesce(array_agg(l.queue), '{}')::text, true)
		FROM unnest($1::text[]) l (queue) WHERE pg_try_advisory_xact_lock({rounds_key})`)

// restRoundsSQL forgets the rounds of the queues $1 and the priorities $2 that have no
// job with a key. It comes after the statement that locks, and sees the jobs of the
// transactions that held the locks.
var restRoundsSQL = define("restRounds", `DELETE FROM {schema}.served s USING unnest($1::text[], $2::integer[]) l (queue, priority)
		WHERE l.queue = ANY (current_setting('ojs.rounds', true)::text[]) AND s.queue = l.queue AND s.priority = l.priority AND (SELECT j.seq FROM {schema}.ready j
			WHERE j.queue = l.queue AND j.priority = l.priority AND j.own_place IS NOT NULL ORDER BY -j.place LIMIT 1) IS NULL`)

// rest forgets which rounds were served where jobs that are given back find no other job
// with a key. It leaves out the queues that another transaction holds: there the next job
// may stand a round later than it could, and nothing waits.
func (t *tx) rest(back []written) {
	back = slices.DeleteFunc(slices.Clone(back), func(c written) bool { return c.FairKey == "" })
	if len(back) == 0 {
		return
	}
	t.entersIn()
	queues := listOf(back, func(c *written) string { return c.Queue })
	priorities := listOf(back, func(c *written) int32 { return int32(c.Priority) })
	t.send(t.s.sent(tryRoundsSQL, nil, queues), t.s.sent(restRoundsSQL, nil, queues, priorities))
}
