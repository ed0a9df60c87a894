package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Due implements storage.Storage.
func (s *Storage) Due(
	ctx context.Context, now time.Time, limit int, buf []storage.Record,
) (storage.Due, error) {
	return ask(s.pooled(ctx), func(t *tx) (d storage.Due) {
		t.again(func() {
			d = storage.Due{Promoted: buf[:0]}
			t.dueAll(now, min(limit, maxRows), &d)
		})
		for i := range d.Stalled {
			t.notice.AddTaken(d.Stalled[i].ID, d.Stalled[i].Version-1, ojs.ErrLeaseLost)
		}
		for _, list := range [][]storage.Record{d.Promoted, d.Expired, d.Stalled} {
			for i := range list {
				t.notice.Add(list[i].ID, list[i].State, list[i].WakeAt())
			}
		}
		noteMoved(&t.notice, d.Moved)
		s.tell(ctx, &t.notice)
		return d
	})
}

// dueAll does what is due in as many rounds as it takes. As a rule that is one.
func (t *tx) dueAll(now time.Time, limit int, d *storage.Due) {
	for {
		n := 0
		err := fail.Caught(func() { n = t.due(now, limit, d) })
		if err != nil && len(d.Promoted)+len(d.Expired)+len(d.Stalled) > 0 {
			d.Next = now // the caller has to know of the changed jobs, and asks again for the rest
			return
		}
		fail.If(err)
		if limit -= n; n == 0 || limit <= 0 || d.Next.IsZero() || d.Next.After(now) {
			return
		}
	}
}

// heldPause is how soon Due is to be called again for jobs that it has left since other
// transactions hold their rounds.
const heldPause = 100 * time.Millisecond

// untilHanded is when the lease of a job ends that its caller takes over.
var untilHanded = untilOf("least(b.lease, {most_handed})")

// dueSQL promotes up to $2 jobs whose time has come at $1. It leaves jobs whose deadline
// has come to the caller, which records why they ended, and jobs in states that no due
// time changes. $3 leaves out jobs that would join rounds, for which the statement waits
// a short time only. A job that ends and that others may wait for comes alone: it may
// change the jobs behind it.
var dueSQL = define("due", `WITH found AS MATERIALIZED (
			SELECT seq, state, wake, {waits} AS place, awaited, queue, fair_key,
				state <> 4 AND deadline IS NOT NULL AND deadline <= $1 OR state NOT IN (2, 4, 5) AS expired FROM {schema}.stage
			WHERE wake <= $1 AND NOT ($3 AND fair_key IS NOT NULL AND state IN (2, 5) AND (deadline IS NULL OR deadline > $1))
			ORDER BY wake, {waits} LIMIT $2 FOR UPDATE SKIP LOCKED),
		due AS MATERIALIZED (SELECT * FROM (SELECT *, row_number() OVER () = 1 AS first,
				bool_or(awaited AND expired) OVER (ROWS UNBOUNDED PRECEDING) AS behind FROM found) f
			WHERE first OR behind IS NOT TRUE),
		gone AS MATERIALIZED (DELETE FROM {schema}.stage j WHERE j.seq = ANY (ARRAY(SELECT seq FROM due WHERE NOT expired)) RETURNING j.*),
		locked AS MATERIALIZED (SELECT count({lock_rounds}) AS n FROM (SELECT DISTINCT d.queue FROM due d
			WHERE d.fair_key IS NOT NULL AND d.state <> 4 AND NOT d.expired
			AND set_config('lock_timeout', '200ms', true) <> '' ORDER BY d.queue) l),
		ordered AS MATERIALIZED (
			SELECT nextval('{schema}.place') AS new_place, d.* FROM (SELECT * FROM gone WHERE (SELECT n FROM locked) >= 0 ORDER BY wake, {waits}) d),
		moved AS MATERIALIZED (
			SELECT j.seq, j.new_place AS place, b.id, j.queue, j.type, (CASE j.state WHEN 4 THEN 4 ELSE 3 END)::smallint AS state,
				j.priority, j.attempt, {version1} AS version, CASE j.state WHEN 4 THEN `+untilHanded+` ELSE j.deadline END AS wake, j.deadline,
				b.created, CASE j.state WHEN 4 THEN j.enqueued ELSE coalesce(j.enqueued, $1) END AS enqueued, j.started,
				CASE j.state WHEN 4 THEN j.next_retry END AS next_retry, j.finished, j.dead,
				CASE j.state WHEN 4 THEN `+untilHanded+` ELSE j.lease_until END AS lease_until, b.lease,
				coalesce(j.progress, 0) AS progress, coalesce(j.worker, '') AS worker, j.fingerprint, j.rate_key,
				b.args, b.job, j.outcome, j.checkpoint, b.depends, j.kept, j.released, j.other_place, j.limited, j.created AS peer_created, j.awaited, j.bounds,
				j.fair_key, j.share, CASE j.state WHEN 4 THEN j.own_place END AS own_place
			FROM ordered j JOIN {schema}.job b ON b.seq = j.seq),
		stored AS (INSERT INTO {schema}.stage {standing} SELECT `+
	standingBut("created", "peer_created", "progress", "nullif(progress, 0)", "worker", "nullif(worker, '')")+`
			FROM moved ORDER BY place)
		SELECT j.place AS ord, {columns} FROM moved j
		UNION ALL
		SELECT -d.ord, e.* FROM (SELECT row_number() OVER () AS ord, seq FROM due WHERE expired) d
			CROSS JOIN LATERAL (SELECT {columns} FROM {whole} WHERE j.seq = d.seq OFFSET 0) e`)

// nextWakeSQL returns the next due time, and whether there are impossible jobs, in the
// words of their index.
var nextWakeSQL = define("nextWake", `SELECT (SELECT wake FROM {schema}.stage WHERE wake IS NOT NULL ORDER BY wake LIMIT 1),
		EXISTS (SELECT FROM {schema}.stage WHERE {impossible})`)

// due is a round of dueAll. It returns how many jobs it has found due.
func (t *tx) due(now time.Time, limit int, d *storage.Due) int {
	var list []stored
	locks := t.s.with(t.ctx, tuned{t.s, true})
	err := fail.Caught(func() { list = locks.rows(1, dueSQL, rows.Nanos(now), limit, false) })
	held := isCode(err, lockNotAvailable) // the rounds of a queue
	if held {
		list = t.rows(1, dueSQL, rows.Nanos(now), limit, true)
	} else {
		fail.If(err)
	}
	abs := func(n int64) int64 { return max(n, -n) }
	slices.SortFunc(list, func(a, b stored) int { return cmp.Compare(abs(a.ord), abs(b.ord)) })
	var expired []*rows.Row
	var met []bad
	for i := range list {
		row, err := list[i].decode()
		if err == nil && list[i].ord < 0 && row.Deadline().IsZero() {
			err = errors.New("deadline: is set, though the job has none")
		}
		switch {
		case err != nil:
			met = append(met, bad{list[i], err})
		case list[i].ord < 0:
			row.Expire(now)
			expired = append(expired, row)
		case list[i].State == rows.Active:
			d.Stalled = append(d.Stalled, row.Record)
		default:
			d.Promoted = append(d.Promoted, row.Record)
		}
	}
	if len(expired) > 0 {
		// The first statement has released its locks. If a job has changed since, that
		// change wins.
		results := t.settleDistinct(saving(now, expired), retries)
		for i, row := range expired {
			if results[i].Err == nil {
				d.Expired = append(d.Expired, row.Record)
				d.Moved = append(d.Moved, results[i].Moved...)
			}
		}
	}
	fail.If(t.s.setAsideRead(t.ctx, false, met))
	var next *int64
	var impossible bool
	if t.query(nextWakeSQL, one(&next, &impossible)); impossible {
		t.sweep()
	}
	d.Next = time.Time{}
	if next != nil {
		d.Next = rows.Time(*next)
	}
	if held && len(list) < limit && !d.Next.After(now) {
		d.Next = now.Add(heldPause) // what is left waits for rounds
	}
	return len(list)
}
