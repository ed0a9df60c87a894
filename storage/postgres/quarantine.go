package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// The quarantine. Statements change rows before this program has decoded them, and are
// committed by then. So a row that does not decode is moved out of its table by a
// statement of its own, right after; of one that was claimed the claim is undone. If that
// statement fails, the job is active or still where it was, and the next call that meets
// it moves it. Release writes the row anew, so that the columns that follow from others
// are right again.

const (
	maxAside   = 1000 // rows that one call moves only because they are impossible
	asideTries = 5    // before an insert gives up on one row in its way that it cannot move
)

// bad is a row that does not decode.
type bad struct {
	stored
	why error
}

// setAsideSQL moves the jobs $1 with the versions $2 to the quarantine, for the reasons
// $3. It skips rows that another transaction has locked.
var setAsideSQL = define("setAside", `WITH met AS MATERIALIZED (
			SELECT seq FROM {schema}.stage WHERE seq = ANY ($1::bigint[]) AND version = ($2::bigint[])[array_position($1::bigint[], seq)]
			ORDER BY seq FOR UPDATE SKIP LOCKED),
		gone AS MATERIALIZED (DELETE FROM {schema}.stage j WHERE seq = ANY (ARRAY(SELECT seq FROM met)) RETURNING j.*),
		bodies AS MATERIALIZED (DELETE FROM {schema}.job j WHERE seq = ANY (ARRAY(SELECT seq FROM met)) RETURNING j.*),
		kept AS (INSERT INTO {schema}.quarantined_job (`+standingBut()+`, id, lease, args, job, depends)
			SELECT `+standingBut("created", "b.created", "progress", "coalesce(progress, 0)",
	"worker", "coalesce(worker, '')")+`, id, lease, args, job, depends
			FROM gone s JOIN bodies b USING (seq) RETURNING id, seq),
		left_lane AS (INSERT INTO {schema}.job_judge SELECT DISTINCT rate_key FROM gone WHERE state = 3 AND bounds IS NOT NULL)
		INSERT INTO {schema}.quarantine (kind, name, seq, reason)
			SELECT 'job', id, seq, ($3::text[])[array_position($1::bigint[], seq)] FROM kept ORDER BY seq RETURNING n, seq, at`)

// undoClaimsSQL undoes the claims of jobs in the quarantine. The places before the
// claims of older versions are unknown: such jobs go by age.
var undoClaimsSQL = define("undoClaims", `UPDATE {schema}.quarantined_job SET state = 3, place = coalesce(other_place, seq), other_place = NULL, wake = deadline, lease_until = NULL, worker = '',
			attempt = attempt - (attempt BETWEEN 1 AND {most} + 1)::integer, started = CASE WHEN attempt > 1 THEN started END
		WHERE seq = ANY ($1::bigint[])`)

// setAside moves jobs to the quarantine if they are as they were read and no other
// transaction has locked them. Another call may have moved or mended the rest, so
// setAside does not return how many it moved.
func (s *Storage) setAside(ctx context.Context, q querier, claimed bool, list []bad) error {
	seqs := listOf(list, func(b *bad) int64 { return b.seq })
	versions := listOf(list, func(b *bad) int64 { return b.Version })
	reasons := listOf(list, func(b *bad) string { return rows.Reason(b.why) })
	var n storage.Notice
	err := s.begun(ctx, q, func(t *tx) {
		n = storage.Notice{}
		var key, seq int64
		var at time.Time
		t.query(setAsideSQL, each([]any{&key, &seq, &at}, func() {
			b := &list[slices.Index(seqs, seq)]
			if claimed {
				b.State = rows.Available
			}
			n.Quarantined = append(n.Quarantined, storage.Quarantined{
				Key: strconv.FormatInt(key, 10), Kind: storage.KindJob, Name: b.ID,
				Reason: rows.Reason(b.why), At: at.UTC(),
				Queue: b.Queue, Type: rows.TypeName(b.Type), State: rows.State(b.State),
			})
		}), seqs, versions, reasons)
		if claimed {
			t.exec(undoClaimsSQL, seqs)
		}
		if t.joined() { // the commit notifies every process
			t.exec(notifySQL, s.channel(), payloads("tx", &n))
		}
	})
	if err == nil && txOf(ctx) == nil {
		s.hub.Tell(context.Background(), n)
	}
	return err
}

// setAsideRead moves jobs that a call has met after its own statement, which stands if
// this fails. One call does so at a time: another would skip the rows that the first has
// locked, and return before they are in the quarantine. A role that may not move them
// leaves them where they are.
func (s *Storage) setAsideRead(ctx context.Context, claimed bool, list []bad) error {
	if len(list) == 0 || txOf(ctx) != nil { // what is part of a transaction is left to calls that are not
		return nil
	}
	err := s.within(context.WithoutCancel(ctx), func(ctx context.Context) error {
		select {
		case s.aside <- struct{}{}:
			defer func() { <-s.aside }()
		case <-ctx.Done():
			return undone{ctx.Err()}
		}
		return again(func() error { return s.setAside(ctx, tuned{s: s}, claimed, list) })
	})
	if mayNot(err) {
		return nil
	}
	return err
}

// mayNot reports whether a statement failed because of the role's privileges, or because
// the database or the transaction takes no changes.
func mayNot(err error) bool {
	return isCode(err, insufficientPrivilege) || isCode(err, readOnlyTransaction)
}

// undecodable is the error of an insert that has met jobs that do not decode. Nothing of
// it is done.
type undecodable struct{ met []bad }

func (u *undecodable) Error() string {
	return "ojs: postgres: job " + u.met[0].ID +
		" is in the way, which does not decode and which another transaction has locked"
}

// around makes an insert. If it meets jobs that do not decode, they are set aside, and it
// is made again. So it is if a queue begins to drain meanwhile, which it finds out then.
func (s *Storage) around(ctx context.Context, insert func() error) error {
	var last int64
	for tries := 1; ; tries++ {
		err := insert()
		if errors.Is(err, errDraining) && tries < asideTries {
			continue
		}
		var met *undecodable
		if !errors.As(err, &met) {
			return err
		}
		if first := met.met[0].seq; first != last { // what was in the way is gone
			last, tries = first, 1
		}
		if tries == asideTries {
			return err
		}
		if err := s.setAside(ctx, s.in(ctx).on, false, met.met); err != nil {
			return err
		}
	}
}

var impossibleSQL = define("impossible", `SELECT {columns} FROM {whole} WHERE {impossible} LIMIT $1`)

// sweep moves jobs that no other statement may meet. It needs a connection, and as a rule
// nothing more.
func (t *tx) sweep() {
	_, met := decoded(t.s.pooled(t.ctx).rows(0, impossibleSQL, maxAside))
	fail.If(t.s.setAsideRead(t.ctx, false, met))
}

// decoded are those of jobs that decode, and the others.
func decoded(list []stored) (jobs []*rows.Row, met []bad) {
	for i := range list {
		row, err := list[i].decode()
		if err != nil {
			met = append(met, bad{list[i], err})
			continue
		}
		jobs = append(jobs, row)
	}
	return jobs, met
}

// named is a row other than a job's that does not decode.
type named struct {
	kind storage.Kind
	name string
	was  any // its version, or the state: it is moved if it still has that
	why  error
}

var setDocumentAsideSQL = define("setDocumentAside", `WITH gone AS (DELETE FROM {schema}.document WHERE name = $1 AND version = $2 AND kind = $4
			RETURNING kind, name, version, data)
		INSERT INTO {schema}.quarantine (kind, name, reason, version, body) SELECT kind, name, $3, version, data FROM gone RETURNING n, at`)

var setQueueAsideSQL = define("setQueueAside", `WITH gone AS (DELETE FROM {schema}.queue_state WHERE queue = $1 AND state = $2 RETURNING queue, state)
		INSERT INTO {schema}.quarantine (kind, name, reason, body)
			SELECT 'queue', queue, $3, convert_to(state, 'UTF8') FROM gone RETURNING n, at`)

// setAsideNamed moves documents or states of queues, unless they have changed
// since. It reports false if there are none or if the role may not move them.
func (s *Storage) setAsideNamed(ctx context.Context, list []named) (aside bool, err error) {
	for _, n := range list {
		q := storage.Quarantined{Kind: n.kind, Name: n.name, Reason: rows.Reason(n.why)}
		of, args := setDocumentAsideSQL, []any{n.name, n.was, q.Reason, string(n.kind)}
		if n.kind == storage.KindQueue {
			of, args = setQueueAsideSQL, args[:3]
		}
		var key int64
		err := tuned{s: s}.query(ctx, s.sent(of, each([]any{&key, &q.At}, func() {
			q.Key, q.At = strconv.FormatInt(key, 10), q.At.UTC()
		}), args...))
		if mayNot(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if q.Key != "" {
			s.hub.Tell(context.Background(), storage.Notice{Quarantined: []storage.Quarantined{q}})
		}
	}
	return len(list) > 0, nil
}

var quarantinedIDSQL = define("quarantinedID",
	`SELECT n, reason FROM {schema}.quarantine WHERE name = $1 AND kind = 'job' ORDER BY n DESC LIMIT 1`)

// missing is the error for a job that is not stored: it may be in the quarantine.
func (t *tx) missing(id string) error {
	err := fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
	var key int64
	var reason string
	t.query(quarantinedIDSQL, each([]any{&key, &reason}, func() {
		err = &ojs.QuarantinedError{ID: id, Key: strconv.FormatInt(key, 10), Reason: reason}
	}), id)
	return err
}

var quarantinedSQL = define("quarantined", `SELECT q.n, q.kind, q.name, q.reason, q.at, coalesce(j.queue, ''), coalesce(j.type, ''), coalesce(j.state, 0::smallint)
		FROM {schema}.quarantine q LEFT JOIN {schema}.quarantined_job j USING (seq) WHERE q.n > $1 ORDER BY q.n LIMIT $2`)

// Quarantined implements storage.Quarantiner.
func (s *Storage) Quarantined(
	ctx context.Context, after string, limit int,
) (list []storage.Quarantined, err error) {
	from, limit, err := rows.QuarantinePage(after, limit)
	if err != nil {
		return nil, err
	}
	err = s.pooled(ctx).run(func(t *tx) {
		t.sweep()
		var q storage.Quarantined
		var key int64
		var kind string
		var state int16
		columns := []any{&key, &kind, &q.Name, &q.Reason, &q.At, &q.Queue, &q.Type, &state}
		t.query(quarantinedSQL, each(columns, func() {
			q.Key, q.Kind, q.At, q.State = strconv.FormatInt(key, 10), storage.Kind(kind), q.At.UTC(),
				rows.State(int(state))
			q.Type = rows.TypeName(q.Type)
			list = append(list, q)
		}), from, limit)
	})
	return list, err
}

var countQuarantinedSQL = define("countQuarantined", `SELECT count(*) FROM {schema}.quarantine`)

// CountQuarantined implements storage.Quarantiner.
func (s *Storage) CountQuarantined(ctx context.Context) (n int, err error) {
	err = s.pooled(ctx).run(func(t *tx) {
		t.sweep()
		t.query(countQuarantinedSQL, one(&n))
	})
	return n, err
}

var releaseDocumentSQL = define("releaseDocument", `INSERT INTO {schema}.document
		VALUES ($1, $2, $3, nullif($4::bigint, {none}), $5) ON CONFLICT DO NOTHING RETURNING name`)

var releaseQueueSQL = define("releaseQueue",
	`INSERT INTO {schema}.queue_state VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING queue`)

// ReleaseQuarantined implements storage.Quarantiner.
func (s *Storage) ReleaseQuarantined(ctx context.Context, key string) error {
	var n storage.Notice
	err := s.withEntry(ctx, key, func(t *tx, e *entry) {
		n = storage.Notice{}
		switch e.kind {
		case storage.KindJob:
			t.releaseJob(e, &n)
			return
		case storage.KindQueue:
			if state := ojs.QueueState(e.body); !state.Valid() || state == ojs.QueueActive {
				e.still(rows.NoQueueState(string(e.body)))
			}
			if string(e.body) == string(ojs.QueuePaused) {
				s.paused.Store(true)
			}
			t.putBack(e, releaseQueueSQL, e.name, string(e.body))
			return
		}
		d := storage.Document{Name: e.name, Version: uint64(e.version), Data: e.body}
		e.still(rows.CheckDocument(e.kind, &d))
		n.AddDocuments(e.kind)
		t.putBack(e, releaseDocumentSQL, string(e.kind), d.Name, e.version, rows.Nanos(d.Due), d.Data)
	})
	if err == nil {
		s.tell(ctx, &n)
	}
	return err
}

// DeleteQuarantined implements storage.Quarantiner.
func (s *Storage) DeleteQuarantined(ctx context.Context, key string) error {
	return s.withEntry(ctx, key, func(*tx, *entry) {})
}

// entry is what the quarantine says of a record.
type entry struct {
	n            int64
	kind         storage.Kind
	name         string
	seq, version int64
	body         []byte
}

var quarantineEntrySQL = define("quarantineEntry",
	`SELECT kind, name, coalesce(seq, 0), coalesce(version, 0), body FROM {schema}.quarantine WHERE n = $1 FOR UPDATE`)

// deleteQuarantinedSQL deletes an entry. The logs of a job that was released stay, and
// its place in line.
var deleteQuarantinedSQL = define("deleteQuarantined", `WITH gone AS (DELETE FROM {schema}.quarantine WHERE n = $1 RETURNING seq),
		logs AS (DELETE FROM {schema}.log l WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
			AND NOT EXISTS (SELECT FROM {schema}.job b WHERE b.seq = l.seq)),
		lines AS (DELETE FROM {schema}.line l WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
			AND NOT EXISTS (SELECT FROM {schema}.job b WHERE b.seq = l.seq))
		DELETE FROM {schema}.quarantined_job WHERE seq IN (SELECT seq FROM gone)`)

// withEntry locks an entry, calls do with it, and deletes it, in one transaction.
func (s *Storage) withEntry(ctx context.Context, key string, do func(*tx, *entry)) error {
	return s.pooled(ctx).run(func(t *tx) {
		t.apart()
		unknown := fmt.Errorf("%w: %q in the quarantine", ojs.ErrNotFound, key)
		n, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			fail.With(unknown)
		}
		fail.If(s.transact(ctx, t.on, func(t *tx) {
			e := entry{n: n}
			t.query(quarantineEntrySQL, one(&e.kind, &e.name, &e.seq, &e.version, &e.body), n)
			if e.kind == "" {
				fail.With(unknown)
			}
			do(t, &e)
			t.exec(deleteQuarantinedSQL, n)
		}))
	})
}

// still refuses a release because of what a record is still; nil: it is not.
func (e *entry) still(why error) {
	if why != nil {
		fail.With(&ojs.QuarantinedError{
			Key: strconv.FormatInt(e.n, 10), ID: e.name, Reason: rows.Reason(why)})
	}
}

// putBack puts back what has a name, unless something else has it now.
func (t *tx) putBack(e *entry, of statement, args ...any) {
	var name []string
	if t.query(of, values(&name), args...); len(name) == 0 {
		fail.With(&ojs.DuplicateError{ID: e.name})
	}
}

var quarantinedJobSQL = define("quarantinedJob",
	`SELECT {columns} FROM {schema}.quarantined_job j WHERE seq = $1 FOR UPDATE`)

var releaseJobSQL = define("releaseJob", `WITH n AS MATERIALIZED (SELECT * FROM {schema}.quarantined_job WHERE seq = $1),
		body AS (INSERT INTO {schema}.job (seq, created, lease, id, args, job, depends) SELECT seq, created, lease, id, args, job, depends FROM n)
		INSERT INTO {schema}.stage {standing} SELECT `+standingBut("created", peerCreated,
	"progress", "nullif(progress, 0)", "limited", "{limited}", "worker", "nullif(worker, '')")+` FROM n`)

func (t *tx) releaseJob(e *entry, n *storage.Notice) {
	list := t.rows(0, quarantinedJobSQL, e.seq)
	if len(list) == 0 {
		e.still(errors.New("its row of quarantined_job is gone"))
	}
	rec, err := rows.Restore(&list[0].Columns)
	e.still(err)
	w, err := rows.Encode(&rec)
	e.still(err)
	if f, ok := t.find([]string{rec.ID})[rec.ID]; ok {
		fail.With(&ojs.DuplicateError{ID: rec.ID, State: f.state()})
	}
	n.Add(rec.ID, rec.State, rec.WakeAt())
	if rec.State == ojs.StateActive { // claims that limits count have counted without it
		names := limitsOf(w.Queue, w.Type, w.Bounds, w.RateKey)
		there := t.storedLimits(names, true)
		t.lockLimits(wall.Now().UnixNano(), slices.DeleteFunc(names, func(n storage.LimitName) bool {
			return n.Kind != storage.LimitKey && !there[n]
		}))
	}
	t.exec(releaseJobSQL, e.seq)
	// As it is now and in its place, with the columns that follow from others.
	t.exec(countingSQL.all, append(arguments([]written{w}), []int64{anyState | keepsPlace | -1<<16})...)
}
