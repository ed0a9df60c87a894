package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// settleCall is a Settle on its way.
type settleCall struct {
	settling
	results []storage.Settled
	err     error
	ended   chan struct{}
}

func (c *settleCall) size() (int, int)      { return len(c.encoded), documentBytes(c.encoded) }
func (c *settleCall) done() <-chan struct{} { return c.ended }

// Settle implements storage.Storage. A change with a Then is a step of its own, and so
// are the changes between two of them.
func (s *Storage) Settle(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	if err := storage.CheckThen(changes); err != nil {
		return dst, err
	}
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.mu.RUnlock()
	for len(changes) > 0 {
		n := slices.IndexFunc(changes, follows)
		settle := s.settleAll
		switch n {
		case -1:
			n = len(changes)
		case 0:
			n, settle = 1, s.settleThen
		}
		settled, err := settle(ctx, now, changes[:n])
		if err != nil {
			return dst, wrap(err)
		}
		dst, changes = append(dst, settled...), changes[n:]
	}
	return dst, nil
}

// settleAll settles changes without a Then.
func (s *Storage) settleAll(
	ctx context.Context, now time.Time, changes []storage.Change,
) ([]storage.Settled, error) {
	o, err := settlingOf(now, len(changes), func(i int) *storage.Record { return &changes[i].Record })
	if err != nil {
		return nil, err
	}
	c := &settleCall{settling: o, ended: make(chan struct{})}
	for i := range changes {
		c.sameJob = c.sameJob && changes[i].AttemptFieldsOnly
	}
	apart := func(t *tx) {
		c.results = t.settleRounds(c.settling)
		t.addLogs(changes, c.results)
		s.noteSettled(&t.notice, c.encoded, c.results)
	}
	switch t := s.in(ctx); {
	case t.joined():
		err = fail.Caught(func() {
			apart(t)
			t.tellAtCommit(&t.notice)
		})
	case slices.ContainsFunc(changes, logged):
		err = s.atOnce(ctx, func(t *tx) {
			t.tune()
			apart(t)
		})
	default:
		settles := &s.settles
		if len(c.entering()) > 0 {
			settles = &s.settlesInTurn
		}
		if err := settles.do(ctx, c); err != nil { // c may be under way still
			return nil, err
		}
		if err = c.err; err == nil {
			s.noteSettled(&t.notice, c.encoded, c.results)
			s.tell(ctx, &t.notice)
		}
	}
	return c.results, err
}

// noteSettled adds to a notice what changes tell that were applied.
func (s *Storage) noteSettled(n *storage.Notice, encoded []written, results []storage.Settled) {
	for i := range encoded {
		if results[i].Err == nil {
			s.noteEnd(n, &encoded[i])
			noteMoved(n, results[i].Moved)
		}
	}
}

// noteEnd adds to a notice what a change tells.
func (s *Storage) noteEnd(n *storage.Notice, e *written) {
	if e.State == rows.Cancelled {
		n.AddTaken(e.ID, uint64(e.Version-1), ojs.ErrCancelled)
	}
	s.note(n, e)
}

// note adds to a notice what the jobs of changes tell that no limit counts.
func (o *settling) note(n *storage.Notice) {
	for i := range o.encoded {
		rows.Note(n, &o.encoded[i])
	}
}

// noteMoved adds to a notice what jobs that have moved tell.
func noteMoved(n *storage.Notice, moved []storage.Record) {
	for i := range moved {
		n.Add(moved[i].ID, moved[i].State, moved[i].WakeAt())
	}
}

func (s *Storage) flushSettles(calls []*settleCall) {
	t := s.pooled(context.Background()) // of none of the calls; each statement has its own time
	// A statement writes everything or what attempts change. Most calls are of attempts.
	var attempts, others []*settleCall
	for _, c := range calls {
		if c.sameJob {
			attempts = append(attempts, c)
		} else {
			others = append(others, c)
		}
	}
	t.settleIn(attempts)
	t.settleIn(others)
}

// settleIn makes calls of one kind, and ends them.
func (t *tx) settleIn(calls []*settleCall) {
	if len(calls) == 0 {
		return
	}
	all := calls[0].settling
	for _, c := range calls[1:] {
		all.encoded, all.froms = append(all.encoded, c.encoded...), append(all.froms, c.froms...)
		all.nows = append(all.nows, c.nows...)
	}
	var results []storage.Settled
	err := fail.Caught(func() { results = t.settleRounds(all) })
	if refused(err) && len(calls) > 1 && all.distinct() == len(all.encoded) {
		// In one round, of which nothing is done. So each is made by itself.
		for i := range calls {
			t.settleIn(calls[i : i+1])
		}
		return
	}
	for _, c := range calls {
		if c.err = err; err == nil {
			c.results = results[:len(c.encoded):len(c.encoded)]
			results = results[len(c.encoded):]
		}
		close(c.ended)
	}
}

// settling are changes on their way to a statement.
type settling struct {
	encoded []written // with the versions after the change
	froms   []int64   // the states in which a change may find its job, and the bits below
	nows    []time.Time
	sameJob bool // each is AttemptFieldsOnly
}

// settlingOf are changes to n records, each of what attempts change.
func settlingOf(now time.Time, n int, to func(i int) *storage.Record) (o settling, err error) {
	o = settling{make([]written, n), make([]int64, n), slices.Repeat([]time.Time{now}, n), true}
	for i := range o.encoded {
		if o.encoded[i], err = rows.Encode(to(i)); err != nil {
			return o, err
		}
		o.encoded[i].Version++
		o.froms[i] = int64(rows.From(o.encoded[i].State))
	}
	return o, nil
}

// add appends a change of a job from some states.
func (o *settling) add(to *storage.Record, froms int64) {
	o.encoded, o.froms = append(o.encoded, fail.Must(rows.Encode(to))), append(o.froms, froms)
}

// ends reports whether each of the changes ends an active job, and is AttemptFieldsOnly.
func (o *settling) ends() bool {
	for i := range o.encoded {
		if o.froms[i] != 1<<rows.Active || !rows.Terminal(o.encoded[i].State) {
			return false
		}
	}
	return o.sameJob
}

// completes reports whether each of the changes completes an active job, all of them of
// one worker and with one progress, and has nothing that few completions have.
func (o *settling) completes() bool {
	if !o.ends() {
		return false
	}
	for i := range o.encoded {
		c := &o.encoded[i]
		if c.State != rows.Completed || c.Worker != o.encoded[0].Worker ||
			c.Progress != o.encoded[0].Progress || c.Outcome != nil || c.Checkpoint != nil ||
			c.Wake != rows.None || c.Deadline != rows.None || c.NextRetry != rows.None ||
			c.Finished == rows.None || c.Dead != rows.None || c.LeaseUntil != rows.None ||
			c.Kept != rows.None {
			return false
		}
	}
	return true
}

// bounded reports whether a limit of its key counts one of the jobs.
func (o *settling) bounded() bool {
	return slices.ContainsFunc(o.encoded, bounded)
}

func bounded(w written) bool { return w.Bounds != "" }

func (o *settling) part(from, to int) settling {
	return settling{o.encoded[from:to], o.froms[from:to], o.nows[from:to], o.sameJob}
}

// distinct returns how many of the changes, from the first on, are of different jobs.
func (o *settling) distinct() int {
	return distinct(len(o.encoded), func(i int) string { return o.encoded[i].ID })
}

// settleRounds applies changes in order: one statement for as many as are of different
// jobs.
func (t *tx) settleRounds(o settling) (results []storage.Settled) {
	for n := 0; len(o.encoded) > 0; o = o.part(n, len(o.encoded)) {
		n = o.distinct()
		results = append(results, t.settleDistinct(o.part(0, n), retries)...)
	}
	return results
}

// retries is how often a change is made again that missed its row.
const retries = 10

// settleDistinct applies changes of different jobs, with up to tries retries, and finds
// why others were not applied.
func (t *tx) settleDistinct(o settling, tries int) []storage.Settled {
	var applied []bool
	held := t.s.counting.Load() || len(o.entering()) > 0
	if !held {
		applied, held = t.apply(o)
	}
	if held {
		return t.settleCounting(o)
	}
	return t.explainAll(o, applied, tries)
}

// explainAll makes the results of changes of different jobs, of which some were applied.
func (t *tx) explainAll(o settling, applied []bool, tries int) []storage.Settled {
	var refused []string
	for i := range o.encoded {
		if !applied[i] {
			refused = append(refused, o.encoded[i].ID)
		}
	}
	return t.explain(o, applied, t.find(refused), tries)
}

// found is what is stored of a job.
type found struct {
	seq, version int64
	code         int16
	depends      bool // it was stored with DependsOn; lockKnown sets it
}

func (f found) state() ojs.State { return rows.State(int(f.code)) }

var findSQL = define("find", `SELECT b.id, b.seq, s.version, s.state
		FROM {schema}.job b JOIN {schema}.stage s ON s.seq = b.seq WHERE b.id = ANY ($1::text[])`)

// find finds jobs by their ids.
func (t *tx) find(ids []string) map[string]found {
	there := make(map[string]found, len(ids))
	if len(ids) > 0 {
		var id string
		var f found
		t.query(findSQL, each([]any{&id, &f.seq, &f.version, &f.code}, func() { there[id] = f }), ids)
	}
	return there
}

// refuses is why a job that is stored, or is not, is not changed, or nil.
func (f found) refuses(there bool, c *written) error {
	switch {
	case !there || f.state() == "": // which will be set aside
		return ojs.ErrNotFound
	case f.version != c.Version-1:
		return storage.ErrFenced
	case !rows.Settles(int(f.code), c.State):
		return &ojs.TransitionError{ID: c.ID, From: f.state(), To: rows.State(c.State)}
	}
	return nil
}

// explain is explainAll, given what is stored of the other jobs.
func (t *tx) explain(o settling, applied []bool, there map[string]found, tries int) []storage.Settled {
	results := make([]storage.Settled, len(o.encoded))
	for i := range o.encoded {
		results[i] = storage.Settled{Version: uint64(o.encoded[i].Version)}
	}
	for i := range o.encoded {
		if applied[i] {
			continue
		}
		c := &o.encoded[i]
		f, ok := there[c.ID]
		results[i] = storage.Settled{Version: uint64(f.version), Err: f.refuses(ok, c)}
		switch {
		case results[i].Err != nil:
		case tries == 0:
			fail.With(fmt.Errorf("%w: %s", errUnchanged, c.ID))
		default: // it missed the row while another statement changed it without raising its version
			results[i] = t.settleDistinct(o.part(i, i+1), tries-1)[0]
		}
	}
	return results
}

// apply changes the jobs that have the version before and a state of froms. It reports
// which those are. If other jobs may wait for one of the jobs, it changes nothing and
// reports held.
func (t *tx) apply(o settling) (applied []bool, held bool) {
	of, args := o.by(applySQL)
	t.again(func() {
		applied, held = make([]bool, len(o.encoded)), false
		var ord int64
		t.query(of, each([]any{&ord}, func() {
			if held = ord == 0; !held {
				applied[ord-1] = true
			}
		}), args...)
	})
	return applied, held
}

// settleAttempt applies changes that are AttemptFieldsOnly, as attemptArguments has them.
// The froms are the states in which each change may find its job, as bits; bit 14 says
// that the job returns to the place before its claim, bit 15 that it keeps its place, and
// those from 16 on how many more steps than one it takes. A version is that after the
// change.
const settleAttempt = settled + `
		AND j.version = ($5::bigint[])[{at}] - 1 - (($2::bigint[])[{at}] >> 16) AND (($2::bigint[])[{at}] >> j.state) & 1 = 1
		RETURNING {at} AS ord, (ARRAY(SELECT place FROM c))[{at}] AS place, ($2::bigint[])[{at}] AS froms, ($3::smallint[])[{at}] AS state,
			nullif(($12::bigint[])[{at}], {none}) AS dead, nullif(($18::bigint[])[{at}], {none}) AS kept,
			j.seq, j.place AS was_place, j.other_place AS was_other, j.state AS was, j.queue, j.type, j.priority,
			j.fingerprint, j.rate_key, j.created, j.limited, j.kept AS was_kept, j.dead AS was_dead, j.awaited, j.bounds,
			j.fair_key, j.share, j.own_place),
	stored AS (INSERT INTO {schema}.{to} {standing} SELECT seq,
		CASE WHEN was = 3 AND state = 3 THEN was_place
			WHEN (froms >> 14) & 1 = 1 THEN coalesce(was_other, place) ELSE place END,
		($5::bigint[])[ord], ($4::bigint[])[ord],
		CASE WHEN (froms >> 14) & 1 = 1 THEN place WHEN was = 3 AND state = 3 THEN was_other
			WHEN was = 3 AND state = 4 THEN was_place END,
		nullif(($6::bigint[])[ord], {none}), nullif(($7::bigint[])[ord], {none}), nullif(($8::bigint[])[ord], {none}), nullif(($9::bigint[])[ord], {none}), nullif(($10::bigint[])[ord], {none}),
		nullif(($11::bigint[])[ord], {none}), dead, nullif(($13::bigint[])[ord], {none}), kept, NULL, created, nullif(($14::float8[])[ord], 0),
		priority, state, limited, queue, type, nullif(($15::text[])[ord], ''), fingerprint, rate_key, ($16::bytea[])[ord], ($17::bytea[])[ord],
		CASE WHEN state < 6 THEN awaited END, bounds, fair_key, share,
		CASE WHEN was = 3 AND state IN (3, 4) OR (froms >> 14) & 1 = 1 THEN own_place END FROM gone)`

// settled begins a statement that applies changes, of which $1 are the ids. A job that
// another transaction has changed meanwhile without raising its version, as Extend does,
// is compared again, which takes arrays: in a join it would not find its other half.
const settled = `WITH c AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, u.id, u.ord,
		(SELECT b.seq FROM {schema}.job b WHERE b.id = u.id) AS seq
		FROM (SELECT u.id, u.ord FROM unnest($1::text[]) WITH ORDINALITY AS u (id, ord) ORDER BY u.ord) u),
	{by_seq}{held},
	gone AS MATERIALIZED (DELETE FROM {schema}.{from} j WHERE j.seq = ANY ((SELECT seqs FROM by_seq)::bigint[]){guard}`

// settleAll applies changes of everything, as arguments has them, with the froms of
// settleAttempt.
var settleAll = `WITH n AS MATERIALIZED (SELECT nextval('{schema}.place') AS new_place, u.*, f.froms FROM {given} u
		JOIN unnest($30::bigint[]) WITH ORDINALITY f (froms, ord) USING (ord) ORDER BY u.ord),
	c AS MATERIALIZED (SELECT n.*, (SELECT b.seq FROM {schema}.job b WHERE b.id = n.id) AS seq FROM n),
	{by_seq}{held},
	taken AS MATERIALIZED (DELETE FROM {schema}.stage j WHERE j.seq = ANY ((SELECT seqs FROM by_seq)::bigint[]){guard}
		AND j.version = ($7::bigint[])[{at}] - 1 - (($30::bigint[])[{at}] >> 16)
		AND (($30::bigint[])[{at}] >> j.state) & 1 = 1
		RETURNING j.seq, j.place, j.other_place, j.state AS was, j.queue AS was_queue, j.priority AS was_priority, j.awaited,
			j.rate_key AS was_key, j.bounds AS was_bounds, j.fair_key AS was_fair_key, j.own_place),
	gone AS MATERIALIZED (SELECT f.*, t.other_place, t.was, t.awaited, t.was_key, t.was_bounds,
		CASE WHEN same_key OR t.was <> 3 OR f.state <> 4 THEN t.place ELSE coalesce(t.own_place, t.place) END AS place,
		CASE WHEN same_key THEN t.own_place WHEN f.fair_key IS NOT NULL THEN coalesce(t.own_place, t.place) END AS own_place,
		(f.froms >> 15) & 1 = 1 OR t.was = 3 AND f.state = 3 AND t.was_queue = f.queue AND t.was_priority = f.priority
			AND same_key AS stays
		FROM c f JOIN taken t ON t.seq = f.seq CROSS JOIN LATERAL (SELECT f.fair_key IS NOT DISTINCT FROM t.was_fair_key AS same_key) k),
	body AS (UPDATE {schema}.job b SET created = g.created, lease = g.lease, args = g.args, job = g.job
		FROM gone g WHERE b.seq = g.seq),
	stored AS (INSERT INTO {schema}.stage {standing} SELECT ` + standingBut("place", "CASE WHEN stays THEN place ELSE new_place END",
	"other_place", "CASE WHEN stays THEN other_place WHEN was = 3 AND state = 4 THEN place END",
	"released", "NULL", "created", peerCreated, "progress", "nullif(progress, 0)",
	"limited", "{limited}", "worker", "nullif(worker, '')",
	"awaited", "CASE WHEN state < 6 THEN awaited END",
	"own_place", "CASE WHEN stays OR was = 3 AND state = 4 THEN own_place END") + `
		FROM gone),
	left_lane AS (INSERT INTO {schema}.job_judge SELECT DISTINCT was_key FROM gone WHERE was = 3 AND was_bounds IS NOT NULL)`

// held and guard make a statement that applies changes change nothing if other jobs may
// wait for one of its jobs. See depends.go.
const (
	held = `,
	held AS MATERIALIZED (SELECT EXISTS (SELECT FROM {schema}.{from} a
		WHERE a.awaited AND a.seq = ANY ((SELECT seqs FROM by_seq)::bigint[])) AS yes)`
	guard = ` AND j.awaited IS NULL AND NOT (SELECT yes FROM held)`
)

// completeAll applies plain completions, as completionArguments has them. Most outcomes
// are such.
const completeAll = settled + `
		AND j.version = ($2::bigint[])[{at}] - 1
		RETURNING {at} AS ord, 6::smallint AS state, NULL::bigint AS kept, NULL::bigint AS dead,
			j.seq, j.state AS was, j.queue, j.type, j.priority, j.fingerprint, j.rate_key, j.created, j.limited, j.kept AS was_kept, j.dead AS was_dead,
			j.awaited, j.bounds, j.fair_key, j.share),
	stored AS (INSERT INTO {schema}.done (seq, place, version, attempt, enqueued, started, finished, created,
			progress, priority, state, limited, queue, type, worker, fingerprint, rate_key, bounds, fair_key, share)
		SELECT seq, (ARRAY(SELECT place FROM c))[ord], ($2::bigint[])[ord], ($3::bigint[])[ord], nullif(($4::bigint[])[ord], {none}),
			nullif(($5::bigint[])[ord], {none}), ($6::bigint[])[ord], created, nullif($8::float8, 0), priority, state, limited,
			queue, type, nullif($7::text, ''), fingerprint, rate_key, bounds, fair_key, share FROM gone)`

// Ends of active jobs, which most outcomes are, name the partitions, and count.
const endsCounted = `,
	counted AS (INSERT INTO {schema}.tally SELECT m.queue, m.state, m.dead, m.n, m.type FROM (
		SELECT queue, state, {alike} AS dead, count(*) AS n, type FROM gone GROUP BY 1, 2, 3, 5
		UNION ALL
		SELECT queue, 4, CASE WHEN was_kept IS NULL THEN was_dead IS NOT NULL END, -count(*), type FROM gone GROUP BY 1, 2, 3, 5) m)`

// leftLanes notes the keys whose jobs leave their lanes without a claim.
const leftLanes = `,
	left_lane AS (INSERT INTO {schema}.job_judge SELECT DISTINCT rate_key FROM gone WHERE was = 3 AND bounds IS NOT NULL)`

// applied is which changes were applied. Number 0 says that none was, since other jobs
// may wait for one of the jobs.
const applied = `
	SELECT ord FROM gone UNION ALL SELECT 0 FROM held WHERE yes`

// counting is which changes were applied, and to which jobs, and whether other jobs may
// wait for these.
const counting = `
	SELECT ord, seq, coalesce(awaited, false) FROM gone`

// settles are the statements that apply changes: plain completions, other ends of active
// jobs, other changes of attempts, and changes of everything.
type settles struct{ complete, end, attempt, all statement }

// settlesWith defines the statements that apply changes, which end with then.
func settlesWith(names, then, held, guard string) (all settles) {
	ending := func(i int, sql, from, to string) statement {
		sql = strings.NewReplacer("{held}", held, "{guard}", guard, "{by_seq}", bySeq).Replace(sql + then)
		sql = strings.NewReplacer("{from}", from, "{to}", to, "{at}", ordOf).Replace(sql)
		return define(strings.Fields(names)[i], sql)
	}
	return settles{
		ending(0, completeAll+endsCounted, "active", "done"),
		ending(1, settleAttempt+endsCounted, "active", "done"),
		ending(2, settleAttempt+leftLanes, "stage", "stage"),
		ending(3, settleAll, "stage", "stage"),
	}
}

var applySQL = settlesWith("complete endAttempt settleAttempt settleAll", applied, held, guard)

// by is that of some statements which applies the changes.
func (o *settling) by(of settles) (sql statement, args []any) {
	switch {
	case o.completes():
		return of.complete, completionArguments(o.encoded)
	case o.ends():
		return of.end, attemptArguments(o.encoded, o.froms)
	case o.sameJob:
		return of.attempt, attemptArguments(o.encoded, o.froms)
	}
	return of.all, append(arguments(o.encoded), o.froms)
}

// Extend implements storage.Storage.
func (s *Storage) Extend(
	ctx context.Context, now time.Time, extensions []storage.Extension,
) ([]string, error) {
	return ask(s.pooled(ctx), func(t *tx) (lost []string) {
		for len(extensions) > 0 {
			n := distinct(len(extensions), func(i int) string { return extensions[i].ID })
			lost = append(lost, t.extend(rows.Nanos(now), extensions[:n])...)
			extensions = extensions[n:]
		}
		return lost
	})
}

// distinct returns how many ids, from the first on, are different ones.
func distinct(n int, id func(i int) string) int {
	seen := make(map[string]struct{}, n)
	for i := range n {
		if _, twice := seen[id(i)]; twice {
			return i
		}
		seen[id(i)] = struct{}{}
	}
	return n
}

// foundAt is the number of a job j among those of found.
const foundAt = `array_position(ARRAY(SELECT seq FROM found), j.seq)`

// untilExtended is when the lease of a job j ends.
var untilExtended = strings.ReplaceAll(untilGiven(`(ARRAY(SELECT lease FROM found))[`+foundAt+`]`,
	`(ARRAY(SELECT given FROM found))[`+foundAt+`]`), "$1::", "$5::")

// extendSQL renews leases, with arrays and no join: if another call has extended a lease
// meanwhile, PostgreSQL compares the changed row again, which in a join would not find
// its other half.
var extendSQL = define("extend", strings.NewReplacer("{at}", foundAt, "{until_of}", untilExtended).Replace(`WITH c AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, u.* FROM (
			SELECT * FROM unnest($1::text[], $2::bigint[], $3::float8[], $4::bytea[], $6::bigint[]) WITH ORDINALITY
			u (id, version, progress, checkpoint, given, ord) ORDER BY u.ord) u),
		found AS MATERIALIZED (SELECT c.*, b.seq, b.lease FROM c JOIN {schema}.job b ON b.id = c.id)
		UPDATE {schema}.active j SET lease_until = {until_of}, wake = {until_of},
			progress = greatest(j.progress, nullif((ARRAY(SELECT progress FROM found))[{at}], 0)),
			checkpoint = coalesce((ARRAY(SELECT checkpoint FROM found))[{at}], j.checkpoint), place = (ARRAY(SELECT place FROM found))[{at}]
		WHERE j.seq = ANY (ARRAY(SELECT seq FROM found)) AND j.version = (ARRAY(SELECT version FROM found))[{at}]
		RETURNING (ARRAY(SELECT id FROM found))[{at}]`))

func (t *tx) extend(now int64, extensions []storage.Extension) (lost []string) {
	ids := listOf(extensions, func(x *storage.Extension) string { return x.ID })
	versions := listOf(extensions, func(x *storage.Extension) int64 { return int64(x.Version) })
	progress := listOf(extensions, func(x *storage.Extension) float64 { return x.Progress })
	checkpoints := listOf(extensions, func(x *storage.Extension) []byte { return x.Checkpoint })
	leases := listOf(extensions, func(x *storage.Extension) int64 { return givenLease(x.Lease) })
	extended := make(map[string]bool, len(ids))
	t.again(func() {
		var id string
		t.query(extendSQL, each([]any{&id}, func() { extended[id] = true }),
			ids, versions, progress, checkpoints, now, leases)
	})
	return slices.DeleteFunc(ids, func(id string) bool { return extended[id] })
}
