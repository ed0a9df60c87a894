package postgres

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// removeSQL deletes jobs. It locks them, so that they stay as the statement finds them.
// If some have changed their state meanwhile, it deletes nothing, and the last number
// says how many.
var removeSQL = define("remove", `WITH there AS MATERIALIZED (SELECT s.seq, b.id FROM {schema}.job b JOIN {schema}.stage s ON s.seq = b.seq
			WHERE b.id = ANY ($1::text[]) AND s.state BETWEEN 1 AND 8),
		asked AS MATERIALIZED (SELECT seq, state FROM {schema}.stage WHERE seq = ANY (ARRAY(SELECT seq FROM there)) ORDER BY seq FOR UPDATE),
		held AS (SELECT t.id, a.state FROM asked a JOIN there t USING (seq) WHERE a.state < 6 ORDER BY array_position($1::text[], t.id) LIMIT 1),
		moved AS (SELECT (SELECT count(*) FROM there) - (SELECT count(*) FROM asked) AS n),
		gone AS (DELETE FROM {schema}.stage WHERE seq = ANY (ARRAY(SELECT seq FROM asked)) AND NOT EXISTS (SELECT FROM held)
			AND (SELECT n FROM moved) = 0 RETURNING seq),
		bodies AS (DELETE FROM {schema}.job WHERE seq = ANY (ARRAY(SELECT seq FROM gone))),
		logs AS (DELETE FROM {schema}.log WHERE seq = ANY (ARRAY(SELECT seq FROM gone)))
		SELECT (SELECT count(*) FROM gone), coalesce((SELECT id FROM held), ''), coalesce((SELECT state FROM held), 0), (SELECT n FROM moved)`)

// Delete implements storage.Storage.
func (s *Storage) Delete(ctx context.Context, ids []string) (int, error) {
	return ask(s.pooled(ctx), func(t *tx) (n int) {
		t.apart()
		if ids = sayables(ids); len(ids) == 0 {
			return 0
		}
		var held string
		var state int16
		for moved := int64(1); moved > 0; { // by others while the statement waited for them
			t.again(func() { t.query(removeSQL, one(&n, &held, &state, &moved), ids) })
		}
		if held != "" {
			fail.With(&ojs.TransitionError{ID: held, From: rows.State(int(state)), To: "deleted"})
		}
		return n
	})
}

// releases is how many kept jobs one Prune releases when their time has come. It bounds
// the time that a Prune takes. It is far above what engines delete in one Prune, so
// releasing keeps up.
const releases = 2000

// pruneSQL deletes finished jobs. $1 are the states, $2 whether dead letters, $3 before
// when, $4 beyond how many, $5 how many at most, $6 from when on spared, or the greatest
// time. A dead letter that is retried meanwhile has left its partition, and stays.
var pruneSQL = define("prune", `WITH total AS (SELECT coalesce(sum(n), 0) AS n FROM {schema}.tally WHERE state = ANY ($1::smallint[]) AND dead = $2),
		ended AS (
			SELECT e.* FROM unnest($1::smallint[]) s CROSS JOIN LATERAL (
				SELECT seq, place, coalesce(finished, {none}) AS finished FROM {schema}.done
				WHERE state = s AND kept IS NULL AND num_nonnulls(dead) = $2::boolean::integer
				ORDER BY coalesce(finished, {none}), place LIMIT $5 + 1) e),
		first AS MATERIALIZED (SELECT *, row_number() OVER (ORDER BY finished, place) AS nth FROM ended),
		going AS MATERIALIZED (SELECT count(*) AS n FROM first WHERE nth <= $5 AND nth < coalesce((SELECT min(nth) FROM first, total
			WHERE NOT (finished < $3 OR $4 > 0 AND total.n - (nth - 1) > $4 AND finished < $6)), $5 + 1)),
		gone AS MATERIALIZED (DELETE FROM {schema}.done WHERE seq = ANY (ARRAY(SELECT seq FROM first, going WHERE nth <= going.n))
			RETURNING seq, queue, state, type),
		counted AS (INSERT INTO {schema}.tally SELECT queue, state, $2, -count(*), type FROM gone GROUP BY 1, 2, 5),
		bodies AS (DELETE FROM {schema}.job WHERE seq = ANY (ARRAY(SELECT seq FROM gone)) RETURNING seq, id),
		logs AS (DELETE FROM {schema}.log WHERE seq = ANY (ARRAY(SELECT seq FROM gone)))
		SELECT coalesce((SELECT array_agg(b.id ORDER BY f.nth) FROM first f JOIN bodies b USING (seq)), '{}'),
			(SELECT n FROM total)::bigint - (SELECT count(*) FROM gone),
			coalesce((SELECT finished FROM first, going WHERE nth = going.n + 1), {none})`)

// Prune implements storage.Storage. Jobs that are kept are neither in the index that it
// goes by nor among those it counts: a job becomes one of the others when it is released.
func (s *Storage) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	states := []int{rows.Completed, rows.Cancelled, rows.Discarded}
	asked := rows.Codes(p.States)
	states = slices.DeleteFunc(states, func(state int) bool {
		return p.DeadLetters && state != rows.Discarded || len(asked) > 0 && !slices.Contains(asked, state)
	})
	spare := int64(math.MaxInt64)
	if !p.Spare.IsZero() {
		spare = rows.Nanos(p.Spare)
	}
	return ask(s.pooled(ctx), func(t *tx) (out storage.Pruned) {
		if len(states) == 0 {
			return out
		}
		t.release(p.Now)
		var oldest int64
		t.again(func() {
			t.query(pruneSQL, one(&out.IDs, &out.Left, &oldest),
				states, p.DeadLetters, rows.Nanos(p.Before), p.Beyond, min(p.Max, maxRows), spare)
		})
		out.Oldest = rows.Time(oldest)
		return out
	})
}

// keptUntilSQL returns the jobs that are kept until $1 at the latest. It keeps all jobs
// again that a later clock has released: a prune would delete the rest too early. Calls
// that release at the same time skip the jobs of each other.
var keptUntilSQL = define("keptUntil", `WITH again AS (UPDATE {schema}.stage SET kept = released, released = NULL WHERE seq = ANY (ARRAY(
			SELECT seq FROM {schema}.done WHERE released > $1 ORDER BY released, seq FOR UPDATE)))
		SELECT d.seq, coalesce(d.finished, {none}), (SELECT CASE WHEN position('"workflow_id"'::bytea IN job) > 0 THEN job END FROM {schema}.job WHERE seq = d.seq)
		FROM {schema}.done d WHERE d.kept <= $1 ORDER BY d.kept LIMIT $2`)

// keepOnSQL keeps the jobs $2 until $4, as their workflows $3 are kept at $1.
var keepOnSQL = define("keepOn", `UPDATE {schema}.done d SET kept = ($4::bigint[])[array_position($2::bigint[], d.seq)]
		WHERE d.kept <= $1 AND d.seq = ANY (ARRAY(
			SELECT d.seq FROM {schema}.done d WHERE d.seq = ANY ($2::bigint[])
			AND EXISTS (SELECT FROM {schema}.job b JOIN {schema}.stage s ON s.seq = b.seq
				WHERE b.id = ($3::text[])[array_position($2::bigint[], d.seq)] AND (s.state < 6 OR s.kept > $1))
			ORDER BY d.seq FOR UPDATE SKIP LOCKED)) RETURNING d.seq`)

// releaseSQL ends the keeping of the jobs $2.
var releaseSQL = define("release", `UPDATE {schema}.stage SET released = kept, kept = NULL WHERE seq = ANY (ARRAY(
		SELECT seq FROM {schema}.done WHERE seq = ANY ($2::bigint[]) AND kept <= $1 ORDER BY seq FOR UPDATE SKIP LOCKED))`)

// release ends the keeping of each job that is kept until now at the latest, but keeps
// the job on if its workflow keeps it. If the clock has gone back, it keeps jobs again
// that a later time has released. Its statements are transactions of their own, so
// that the statement that prunes sees their effect. A job that it has not looked at is
// not released: a call that meets a lock of another leaves the job to that.
func (t *tx) release(now time.Time) {
	ns := rows.Nanos(now)
	var over, members, until []int64
	var keepers []string
	t.again(func() {
		over, members, keepers, until = nil, nil, nil, nil
		var seq, finished int64
		var job []byte
		t.query(keptUntilSQL, each([]any{&seq, &finished, &job}, func() {
			over = append(over, seq)
			if keeper := rows.Keeper(job); keeper != "" && sayable(keeper) {
				members, keepers = append(members, seq), append(keepers, keeper)
				until = append(until, rows.Nanos(storage.KeptOn(now, rows.Time(finished))))
			}
		}), ns, releases)
	})
	if len(members) > 0 {
		t.again(func() { t.exec(keepOnSQL, ns, members, keepers, until) })
	}
	if len(over) > 0 {
		t.again(func() { t.exec(releaseSQL, ns, over) })
	}
}
