package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ojsengine/ojs"
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
		kept AS (INSERT INTO {schema}.quarantined_job (seq, place, id, queue, type, state, priority, attempt, version, wake, deadline,
				created, enqueued, started, next_retry, finished, dead, lease_until, lease, progress, worker, fingerprint, rate_key,
				args, job, outcome, checkpoint, kept, released, other_place, depends, awaited, bounds, fair_key, share, own_place)
			SELECT seq, s.place, b.id, s.queue, s.type, s.state, s.priority, s.attempt, s.version, s.wake, s.deadline,
				b.created, s.enqueued, s.started, s.next_retry, s.finished, s.dead, s.lease_until, b.lease, coalesce(s.progress, 0),
				coalesce(s.worker, ''), s.fingerprint, s.rate_key, b.args, b.job, s.outcome, s.checkpoint, s.kept, s.released, s.other_place, b.depends, s.awaited, s.bounds,
				s.fair_key, s.share, s.own_place
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
	seqs, versions, reasons := make([]int64, len(list)), make([]int64, len(list)), make([]string, len(list))
	bySeq := make(map[int64]*bad, len(list))
	for i := range list {
		seqs[i], versions[i], reasons[i] = list[i].seq, list[i].Version, rows.Reason(list[i].why)
		bySeq[list[i].seq] = &list[i]
	}
	var n storage.Notice
	err := begun(ctx, q, func(tx transaction) error {
		n = storage.Notice{}
		var key, seq int64
		var at time.Time
		args := []any{seqs, versions, reasons}
		err := tx.query(ctx, s.sql[setAsideSQL], args, each([]any{&key, &seq, &at}, func() {
			b := bySeq[seq]
			if claimed {
				b.State = rows.Available
			}
			n.Quarantined = append(n.Quarantined, storage.Quarantined{
				Key: strconv.FormatInt(key, 10), Kind: storage.KindJob, Name: b.ID,
				Reason: rows.Reason(b.why), At: at.UTC(),
				Queue: b.Queue, Type: rows.TypeName(b.Type), State: rows.State(b.State),
			})
		}))
		if err == nil && claimed {
			err = tx.exec(ctx, s.sql[undoClaimsSQL], seqs)
		}
		if err == nil && txOf(ctx) != nil { // the commit notifies every process
			err = tx.exec(ctx, s.sql[notifySQL], s.channel(), payloads("tx", &n))
		}
		return err
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
			return ctx.Err()
		}
		return again(func() error { return s.setAside(ctx, tuned{s}, claimed, list) })
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
		if err := s.setAside(ctx, s.in(ctx), false, met.met); err != nil {
			return err
		}
	}
}

var impossibleSQL = define("impossible", `SELECT {columns} FROM {whole} WHERE {impossible} LIMIT $1`)

// sweep moves jobs that no other statement may meet. It needs a connection, and as a rule
// nothing more.
func (s *Storage) sweep(ctx context.Context) error {
	list, err := selectRows(ctx, tuned{s}, false, s.sql[impossibleSQL], maxAside)
	if err != nil {
		return err
	}
	return s.setAsideRead(ctx, false, undecoded(list))
}

// undecoded are those of jobs that do not decode.
func undecoded(list []stored) (met []bad) {
	for i := range list {
		if _, err := rows.Decode(&list[i].Columns); err != nil {
			met = append(met, bad{list[i], err})
		}
	}
	return met
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
		sql, args := s.sql[setDocumentAsideSQL], []any{n.name, n.was, q.Reason, string(n.kind)}
		if n.kind == storage.KindQueue {
			sql, args = s.sql[setQueueAsideSQL], args[:3]
		}
		var key int64
		var some bool
		err := tuned{s}.query(ctx, sql, args, one(&some, &key, &q.At))
		if mayNot(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if some {
			q.Key, q.At = strconv.FormatInt(key, 10), q.At.UTC()
			s.hub.Tell(context.Background(), storage.Notice{Quarantined: []storage.Quarantined{q}})
		}
	}
	return len(list) > 0, nil
}

var quarantinedIDSQL = define("quarantinedID",
	`SELECT n, reason FROM {schema}.quarantine WHERE name = $1 AND kind = 'job' ORDER BY n DESC LIMIT 1`)

// missing is the error for a job that is not stored: it may be in the quarantine.
func (s *Storage) missing(ctx context.Context, id string) error {
	e := &ojs.QuarantinedError{ID: id}
	var key int64
	var some bool
	err := s.in(ctx).query(ctx, s.sql[quarantinedIDSQL], []any{id}, one(&some, &key, &e.Reason))
	if err != nil {
		return err
	}
	if !some {
		return fmt.Errorf("%w: job %q", ojs.ErrNotFound, id)
	}
	e.Key = strconv.FormatInt(key, 10)
	return e
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
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	if err := s.sweep(ctx); err != nil {
		return nil, wrap(err)
	}
	var q storage.Quarantined
	var key int64
	var kind string
	var state int16
	into := []any{&key, &kind, &q.Name, &q.Reason, &q.At, &q.Queue, &q.Type, &state}
	err = tuned{s}.query(ctx, s.sql[quarantinedSQL], []any{from, limit}, each(into, func() {
		q.Key, q.Kind, q.At, q.State = strconv.FormatInt(key, 10), storage.Kind(kind), q.At.UTC(),
			rows.State(int(state))
		q.Type = rows.TypeName(q.Type)
		list = append(list, q)
	}))
	return list, wrap(err)
}

var countQuarantinedSQL = define("countQuarantined", `SELECT count(*) FROM {schema}.quarantine`)

// CountQuarantined implements storage.Quarantiner.
func (s *Storage) CountQuarantined(ctx context.Context) (n int, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.RUnlock()
	if err := s.sweep(ctx); err != nil {
		return 0, wrap(err)
	}
	var some bool
	err = tuned{s}.query(ctx, s.sql[countQuarantinedSQL], nil, one(&some, &n))
	return n, wrap(err)
}

var releaseDocumentSQL = define("releaseDocument", `INSERT INTO {schema}.document
		VALUES ($1, $2, $3, nullif($4::bigint, {none}), $5) ON CONFLICT DO NOTHING`)

var releaseQueueSQL = define("releaseQueue",
	`INSERT INTO {schema}.queue_state VALUES ($1, $2) ON CONFLICT DO NOTHING`)

// ReleaseQuarantined implements storage.Quarantiner.
func (s *Storage) ReleaseQuarantined(ctx context.Context, key string) error {
	var n storage.Notice
	err := s.withEntry(ctx, key, func(ctx context.Context, tx inTx, e *entry) error {
		n = storage.Notice{}
		switch e.kind {
		case storage.KindJob:
			return s.releaseJob(ctx, tx, e, &n)
		case storage.KindQueue:
			if state := ojs.QueueState(e.body); !state.Valid() || state == ojs.QueueActive {
				return e.still(rows.NoQueueState(string(e.body)))
			}
			if string(e.body) == string(ojs.QueuePaused) {
				s.paused.Store(true)
			}
			return e.put(ctx, tx, s.sql[releaseQueueSQL], e.name, string(e.body))
		}
		d := storage.Document{Name: e.name, Version: uint64(e.version), Data: e.body}
		if err := rows.CheckDocument(e.kind, &d); err != nil {
			return e.still(err)
		}
		n.AddDocuments(e.kind)
		return e.put(ctx, tx, s.sql[releaseDocumentSQL], string(e.kind), d.Name, e.version,
			rows.Nanos(d.Due), d.Data)
	})
	if err == nil {
		s.tell(ctx, &n)
	}
	return err
}

// DeleteQuarantined implements storage.Quarantiner.
func (s *Storage) DeleteQuarantined(ctx context.Context, key string) error {
	return s.withEntry(ctx, key, func(context.Context, inTx, *entry) error { return nil })
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
func (s *Storage) withEntry(
	ctx context.Context, key string, do func(context.Context, inTx, *entry) error,
) error {
	if err := s.enterApart(ctx); err != nil {
		return err
	}
	defer s.mu.RUnlock()
	unknown := fmt.Errorf("%w: %q in the quarantine", ojs.ErrNotFound, key)
	n, err := strconv.ParseInt(key, 10, 64)
	if err != nil {
		return unknown
	}
	err = s.transact(ctx, tuned{s}, func(ctx context.Context, tx transaction) error {
		e, some := entry{n: n}, false
		err := tx.query(ctx, s.sql[quarantineEntrySQL], []any{n},
			one(&some, &e.kind, &e.name, &e.seq, &e.version, &e.body))
		if err == nil && !some {
			err = unknown
		}
		if err == nil {
			err = do(ctx, tx.(inTx), &e)
		}
		if err == nil {
			err = tx.exec(ctx, s.sql[deleteQuarantinedSQL], e.n)
		}
		return err
	})
	return wrap(err)
}

// still refuses a release because of what a record is still.
func (e *entry) still(why error) error {
	return &ojs.QuarantinedError{Key: strconv.FormatInt(e.n, 10), ID: e.name, Reason: rows.Reason(why)}
}

// put puts back what has a name, unless something else has it now.
func (e *entry) put(ctx context.Context, tx inTx, sql string, args ...any) error {
	tag, err := tx.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() == 0 {
		err = &ojs.DuplicateError{ID: e.name}
	}
	return err
}

var quarantinedJobSQL = define("quarantinedJob",
	`SELECT {columns} FROM {schema}.quarantined_job j WHERE seq = $1 FOR UPDATE`)

var releaseJobSQL = define("releaseJob", `WITH n AS MATERIALIZED (SELECT * FROM {schema}.quarantined_job WHERE seq = $1),
		body AS (INSERT INTO {schema}.job (seq, created, lease, id, args, job, depends) SELECT seq, created, lease, id, args, job, depends FROM n)
		INSERT INTO {schema}.stage {standing} SELECT `+standingBut("created", peerCreated,
	"progress", "nullif(progress, 0)", "limited", "{limited}", "worker", "nullif(worker, '')")+` FROM n`)

func (s *Storage) releaseJob(ctx context.Context, tx inTx, e *entry, n *storage.Notice) error {
	list, err := selectRows(ctx, tx, false, s.sql[quarantinedJobSQL], e.seq)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return e.still(errors.New("its row of quarantined_job is gone"))
	}
	rec, err := rows.Restore(&list[0].Columns)
	if err != nil {
		return e.still(err)
	}
	w, err := rows.Encode(&rec)
	if err != nil {
		return e.still(err)
	}
	there, err := s.find(ctx, tx, []string{rec.ID})
	if err != nil {
		return err
	}
	if f, ok := there[rec.ID]; ok {
		return &ojs.DuplicateError{ID: rec.ID, State: f.state()}
	}
	n.Add(rec.ID, rec.State, rec.WakeAt())
	if rec.State == ojs.StateActive { // claims that limits count have counted without it
		names := limitsOf(*s.wide.Load(), w.Queue, w.Type, w.Bounds, w.RateKey)
		if len(names) > 0 {
			if err := s.lockLimits(ctx, tx, wall.Now().UnixNano(), names); err != nil {
				return err
			}
		}
	}
	if _, err := tx.Exec(ctx, s.sql[releaseJobSQL], e.seq); err != nil {
		return err
	}
	// As it is now and in its place, with the columns that follow from others.
	_, err = tx.Exec(ctx, s.sql[countingSQL.all],
		append(arguments([]written{w}), []int64{anyState | keepsPlace | -1<<16})...)
	return err
}
