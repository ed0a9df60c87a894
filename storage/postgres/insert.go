package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
	"github.com/ojsengine/ojs/storage/insert"
)

// Insert implements storage.Storage. In a context of WithTx it is part of that
// transaction.
func (s *Storage) Insert(
	ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.mu.RUnlock()
	if len(batch) == 0 {
		return dst, nil
	}
	if insert.Plain(batch) && insert.Check(batch, nil) == nil && txOf(ctx) == nil {
		encoded, err := encodeNew(batch)
		if err != nil {
			return dst, err
		}
		c := &insertCall{encoded: encoded, claim: claimOf(batch), ended: make(chan struct{}),
			starts: slices.Repeat([]int64{rows.Nanos(now)}, len(batch))}
		inserts := &s.inserts
		if takesTurn(encoded) {
			inserts = &s.insertsInTurn
		}
		if err := inserts.do(ctx, c); err != nil {
			if c.claim != nil {
				s.ends.Go(func() { s.giveBack(c) })
			}
			return dst, err
		}
		switch {
		case c.err != nil:
			return dst, wrap(c.err)
		case c.stored:
			var n storage.Notice
			for i, v := range c.versions {
				dst = append(dst, storage.Inserted{Version: uint64(v), Claimed: c.claimed})
				r := batch[i].Record
				if c.claimed {
					r.Claim(now, c.claim.Worker, c.claim.Lease)
				}
				n.Add(r.ID, r.State, r.WakeAt())
			}
			s.tell(ctx, &n)
			return dst, nil
		}
		// Something is in its way, which the other path finds out.
	}
	var results []storage.Inserted
	err := s.atOnce(ctx, func(t *tx) { results = fail.Must(insert.Batch(&inserter{tx: t}, now, batch)) })
	if isCode(err, uniqueViolation) { // in a transaction that does not see whose id it is
		err = duplicate(err, batch)
	}
	if err != nil {
		return dst, wrap(err)
	}
	return append(dst, results...), nil
}

// duplicate says which job of a batch the database has refused, as far as its error
// tells.
func duplicate(err error, batch []storage.Insert) error {
	said := detail(err)
	if strings.Contains(said, "(seq)=(") { // a number that the sequence has given out again
		return fmt.Errorf("%w: run postgres.Advance, as the owner of the schema: %w", ErrBehind, err)
	}
	at := slices.IndexFunc(batch, func(in storage.Insert) bool {
		return strings.Contains(said, "=("+in.Record.ID+")")
	})
	r := &batch[max(at, 0)].Record
	return &ojs.DuplicateError{ID: r.ID, State: r.State}
}

func encodeNew(batch []storage.Insert) ([]written, error) {
	encoded := make([]written, len(batch))
	for i := range batch {
		var err error
		if encoded[i], err = rows.Encode(&batch[i].Record); err != nil {
			return nil, err
		}
		encoded[i].Version = 0 // which comes from the database
	}
	return encoded, nil
}

// insertCall is an insert that asks for no lookups but of ids and draining queues.
type insertCall struct {
	encoded  []written
	claim    *storage.Claim // which may follow in the same statement; nil: none
	starts   []int64        // when each job would be claimed
	stored   bool
	claimed  bool
	versions []int64
	err      error // of the database
	ended    chan struct{}
}

func (c *insertCall) size() (int, int)      { return len(c.encoded), documentBytes(c.encoded) }
func (c *insertCall) done() <-chan struct{} { return c.ended }

// flushInserts makes calls with one statement. If one of them cannot be made, none is,
// and each is tried by itself.
func (s *Storage) flushInserts(calls []*insertCall) {
	all := *calls[0]
	for _, c := range calls[1:] {
		all.encoded, all.starts = append(all.encoded, c.encoded...), append(all.starts, c.starts...)
		if !sameClaim(all.claim, c.claim) {
			all.claim = nil
		}
	}
	s.insertAll(&all)
	if (all.err == nil && !all.stored || refused(all.err)) && len(calls) > 1 {
		for i := range calls {
			s.flushInserts(calls[i : i+1])
		}
		return
	}
	for _, c := range calls {
		if c.stored, c.claimed, c.err = all.stored, all.claimed, all.err; all.stored {
			n := len(c.encoded)
			c.versions, all.versions = all.versions[:n:n], all.versions[n:]
		}
		close(c.ended)
	}
}

// fresh reports whether jobs are available and have nothing that few jobs have. Most jobs
// are fresh.
func fresh(of []written) bool {
	return unbegun(of) && !slices.ContainsFunc(of, func(w written) bool { return w.Job != nil })
}

// unbegun is fresh of jobs that may have documents.
func unbegun(of []written) bool {
	for i := range of {
		c := &of[i]
		if c.State != rows.Available || c.Version != 0 || c.Attempt != 0 || c.Progress != 0 ||
			c.Worker != "" || c.Fingerprint != "" || c.RateKey != "" || c.FairKey != "" ||
			c.Outcome != nil || c.Checkpoint != nil ||
			c.Wake != rows.None || c.Deadline != rows.None || c.Started != rows.None ||
			c.NextRetry != rows.None || c.Finished != rows.None || c.Dead != rows.None ||
			c.LeaseUntil != rows.None || c.Kept != rows.None {
			return false
		}
	}
	return true
}

// manyNew is how many new jobs with limits an insert judges itself, as far as it can: the
// next claim would have to.
const manyNew = 100

// judge judges lanes, or leaves them to the next claim.
func (s *Storage) judge(now int64) {
	_ = tuned{s, true}.query(context.Background(),
		s.sent(judgeLimitsSQL, nil, now), s.sent(promoteSQL, nil, 1))
}

// insertSQL stores jobs, or none if one of the queues is draining.
var insertSQL = define("insert", `WITH locked AS MATERIALIZED (SELECT count({lock_rounds}) AS n FROM (SELECT DISTINCT u.queue COLLATE "C" AS queue
			FROM unnest($2::text[], $4::smallint[], $28::text[]) u (queue, state, fair_key)
			WHERE u.state = 3 AND u.fair_key <> '' ORDER BY 1) l),
		n AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, u.* FROM {given} u WHERE (SELECT n FROM locked) >= 0
			AND NOT EXISTS (SELECT FROM {schema}.queue_state s WHERE s.state = 'draining' AND s.queue = ANY ($2::text[]))),
		body AS (INSERT INTO {schema}.job (seq, created, lease, id, args, job) SELECT place, created, lease, id, args, job FROM n)
		INSERT INTO {schema}.stage {standing}
		SELECT `+standingBut("seq", "place", "version", "CASE version WHEN 0 THEN {first} ELSE version END",
	"other_place", "NULL", "released", "NULL", "created", peerCreated, "progress", "nullif(progress, 0)",
	"limited", "{limited}", "worker", "nullif(worker, '')", "awaited", "NULL", "own_place", "NULL")+`
		FROM n RETURNING version`)

// insertFreshSQL is insertSQL of fresh jobs, as freshArguments has them.
var insertFreshSQL = define("insertFresh", `WITH n AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, u.* FROM (
			SELECT u.* FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[],
				$5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[])
			WITH ORDINALITY AS u (id, queue, type, priority, created, enqueued, lease, args, ord) ORDER BY u.ord) u
			WHERE NOT EXISTS (SELECT FROM {schema}.queue_state s
				WHERE s.state = 'draining' AND s.queue = ANY ($2::text[]))),
		body AS (INSERT INTO {schema}.job (seq, created, lease, id, args)
			SELECT place, nullif(created, {none}), lease, id, args FROM n),
		counted AS (INSERT INTO {schema}.tally SELECT queue, 3, false, count(*), type FROM n GROUP BY queue, type)
		INSERT INTO {schema}.ready (seq, place, version, attempt, enqueued, priority, state, queue, type)
		SELECT place, place, {first}, 0, nullif(enqueued, {none}), priority, 3, queue, type FROM n
		RETURNING version`)

// untilStarted is when the lease of a job of insertClaim ends.
var untilStarted = strings.ReplaceAll(untilGiven("n.lease", "$13"), "$1::bigint", "n.started")

// insertClaim is insertFresh of jobs, with the documents $12, whose worker $10 claims
// them at the times $9 with the lease $13, if it would take them: no queue of theirs is
// paused, no queue or type has a limit, and no other job is available in the queues $11
// of the claim. A job that another transaction has stored and not committed yet comes
// later. It returns whether it has claimed them.
var insertClaim = `WITH free AS MATERIALIZED (SELECT
		NOT EXISTS (SELECT FROM {schema}.queue_state s
			WHERE s.state = 'paused' AND s.queue = ANY ($2::text[]))
		AND NOT EXISTS (SELECT FROM {schema}.job_limit WHERE kind IN ('queue', 'type')
			AND (setting IS NOT NULL AND (until > ANY ($9::bigint[])) IS NOT FALSE
				OR blocked > ANY ($9::bigint[]) OR period > 0))
		AND (SELECT r.seq FROM {schema}.job_judge n CROSS JOIN LATERAL (SELECT r.seq FROM {schema}.ready r
			WHERE r.rate_key = n.name AND r.bounds IS NOT NULL LIMIT 1) r LIMIT 1) IS NULL
		AND (SELECT j.seq FROM {schema}.ready j WHERE j.head AND {in} LIMIT 1) IS NULL AS yes),
	n AS MATERIALIZED (SELECT nextval('{schema}.place') AS place, NULL::text AS rate_key, u.* FROM (
		SELECT u.* FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[],
			$6::bigint[], $7::bigint[], $8::bytea[], $9::bigint[], $12::bytea[]) WITH ORDINALITY
		AS u (id, queue, type, priority, created, enqueued, lease, args, started, job, ord) ORDER BY u.ord) u
		WHERE NOT EXISTS (SELECT FROM {schema}.queue_state s
			WHERE s.state = 'draining' AND s.queue = ANY ($2::text[]))),
	body AS (INSERT INTO {schema}.job (seq, created, lease, id, args, job)
		SELECT place, nullif(created, {none}), lease, id, args, job FROM n),
	counted AS (INSERT INTO {schema}.tally
		SELECT queue, CASE WHEN yes THEN 4 ELSE 3 END, false, count(*), type FROM n, free GROUP BY queue, yes, type),
	queued AS (INSERT INTO {schema}.ready
			(seq, place, version, attempt, enqueued, priority, state, limited, queue, type)
		SELECT place, place, {first}, 0, nullif(enqueued, {none}), priority, 3, {limited}, queue, type
		FROM n, free WHERE NOT yes),
	leased AS (INSERT INTO {schema}.active (seq, place, version, attempt, other_place, wake, enqueued,
			started, lease_until, priority, state, limited, queue, type, worker)
		SELECT place, place, {first} + 1, 1, place, ` + untilStarted + `, nullif(enqueued, {none}),
			started, ` + untilStarted + `, priority, 4, {limited}, queue, type, nullif($10::text, '')
		FROM n, free WHERE yes)
	SELECT {first}, yes FROM n, free`

var insertClaimInSQL = define("insertClaimIn",
	strings.ReplaceAll(insertClaim, "{in}", "j.queue = ANY ($11::text[])"))

var insertClaimAllSQL = define("insertClaimAll", strings.ReplaceAll(insertClaim, "{in}",
	"j.attempt >= 0 AND cardinality($11::text[]) = 0"))

// insertAll stores the jobs of a call, and their versions in it. It stores none, and no
// error, if an id is stored already or a queue draining.
func (s *Storage) insertAll(c *insertCall) {
	var v int64
	into := []any{&v}
	of, args, query := insertSQL, []any(nil), s.query
	switch {
	case c.claim != nil && unbegun(c.encoded):
		of, query, into = insertClaimAllSQL, tuned{s: s}.query, append(into, &c.claimed)
		if len(c.claim.Queues) > 0 {
			of = insertClaimInSQL
		}
		queues := append([]string{}, c.claim.Queues...)
		args = append(freshArguments(c.encoded), c.starts, c.claim.Worker, queues,
			argumentsOf(c.encoded, fieldsOf("job"))[0], givenLease(c.claim.Lease))
	case fresh(c.encoded):
		of, args = insertFreshSQL, freshArguments(c.encoded)
	default:
		if args = arguments(c.encoded); takesTurn(c.encoded) {
			query = tuned{s, true}.query
		}
	}
	c.err = again(func() error {
		c.versions, c.claimed = c.versions[:0], false
		read := each(into, func() { c.versions = append(c.versions, v) })
		err := query(context.Background(), s.sent(of, read, args...)) // in the time of none of the calls
		if isCode(err, uniqueViolation) {
			return nil
		}
		c.stored = err == nil && len(c.versions) == len(c.encoded)
		return err
	})
	slices.Sort(c.versions) // drawn in the order of the jobs
	if c.stored && len(c.encoded) >= manyNew && slices.ContainsFunc(c.encoded, bounded) {
		s.judge(c.starts[0])
	}
}

// inserter is a transaction as insert.Batch wants it.
type inserter struct {
	*tx

	ended  []depend.End // jobs that it has ended and that others may wait for
	awaits bool         // stored jobs are to wait for some of its jobs
}

var _ insert.Tx = (*inserter)(nil)

var takeNamesSQL = define("takeNames",
	`INSERT INTO {schema}.name_lock SELECT unnest($1::bigint[]) ON CONFLICT (name) DO UPDATE SET name = excluded.name`)

var leaveNamesSQL = define("leaveNames", `DELETE FROM {schema}.name_lock WHERE name = ANY ($1::bigint[])`)

// lock locks names until the transaction ends; other transactions that want them wait. A
// transaction that has waited has to see what the others have committed. The names are
// rows that exist for this transaction only (migration 4), because the server has room
// for some thousand advisory locks in all.
func (t *tx) lock(kind string, names []string) {
	t.checkIsolation()
	hashes := make([]int64, len(names))
	for k, name := range names {
		sum := sha256.Sum256([]byte(kind + name))
		hashes[k] = int64(binary.BigEndian.Uint64(sum[:]))
	}
	slices.Sort(hashes) // all in the same order
	hashes = slices.Compact(hashes)
	t.send(t.s.sent(takeNamesSQL, nil, hashes), t.s.sent(leaveNamesSQL, nil, hashes))
}

// seesCommits reports whether, under a level of isolation, each statement sees what was
// committed before it.
func seesCommits(level string) bool {
	return level == "read committed" || level == "read uncommitted" // which is the same
}

var isolationSQL = define("isolation", `SELECT current_setting('transaction_isolation')`)

// checkIsolation refuses a caller's transaction that does not see what others commit.
func (t *tx) checkIsolation() {
	if !t.joined() {
		return
	}
	var level string
	if t.query(isolationSQL, one(&level)); !seesCommits(level) {
		fail.With(invalid("tx", "is %s and does not see what others have enqueued since it began, "+
			"as a unique job, a bounded queue, an ordering key or a fairness key needs: make it read committed",
			level))
	}
}

// storedSQL returns the states of the stored ones of the jobs $1, and a first version
// for each id.
var storedSQL = define("stored", `SELECT b.id, s.state, 0::bigint FROM {schema}.job b JOIN {schema}.stage s ON s.seq = b.seq WHERE b.id = ANY ($1::text[])
		UNION ALL
		SELECT '', 0::smallint, {first} FROM (SELECT nextval('{schema}.place') AS place FROM generate_series(1, cardinality($1::text[]))) n`)

var getAllSQL = define("getAll", `SELECT {columns} FROM {whole} WHERE id = ANY ($1::text[])`)

// States implements insert.Tx.
func (i *inserter) States(ids []string) (map[string]ojs.State, []uint64, error) {
	found := make(map[string]ojs.State)
	var first []uint64
	var taken []string
	var id string
	var state int16
	var version int64
	i.query(storedSQL, each([]any{&id, &state, &version}, func() {
		if version > 0 {
			first = append(first, uint64(version))
		} else {
			found[id], taken = rows.State(int(state)), append(taken, id)
		}
	}), ids)
	if len(taken) > 0 { // by jobs that do not decode, perhaps
		i.jobs(getAllSQL, taken)
	}
	return found, first, nil
}

var peersSQL = define("peers", `SELECT seq FROM {schema}.stage WHERE fingerprint = ANY ($1::text[]) AND state IN (1, 2, 3, 4, 5)
		UNION ALL
		SELECT n.seq FROM unnest($1::text[]) f, unnest(ARRAY[6, 7, 8]) s CROSS JOIN LATERAL (
			SELECT seq FROM {schema}.done WHERE fingerprint = f AND state = s ORDER BY created DESC, seq DESC LIMIT 1) n`)

// lockedSQL locks both rows of each job, so that they belong together. It misses a job
// that another transaction takes to another partition meanwhile.
var lockedSQL = define("locked",
	`SELECT {columns} FROM {whole} WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR UPDATE`)

// Peers implements insert.Tx.
func (i *inserter) Peers(fingerprints []string) ([]*rows.Row, error) {
	i.lock("unique ", fingerprints)
	for {
		var seqs []int64
		if i.query(peersSQL, values(&seqs), fingerprints); len(seqs) == 0 {
			return nil, nil
		}
		if found := i.jobs(lockedSQL, seqs); len(found) == len(seqs) {
			return found, nil
		}
		// One has changed its state meanwhile, or has been deleted, and then an older one
		// of its state is the newest now.
	}
}

// jobs reads jobs. If some do not decode, it fails and names them.
func (i *inserter) jobs(of statement, args ...any) []*rows.Row {
	found, met := decoded(i.rows(0, of, args...))
	if len(met) > 0 {
		fail.With(&undecodable{met})
	}
	return found
}

var drainingSQL = define("draining", `SELECT u.queue FROM unnest($1::text[]) WITH ORDINALITY u (queue, ord) JOIN {schema}.queue_state s USING (queue)
		WHERE s.state = 'draining' ORDER BY u.ord LIMIT 1`)

// Draining implements insert.Tx.
func (i *inserter) Draining(queues []string) (queue string, err error) {
	i.query(drainingSQL, one(&queue), queues)
	return queue, nil
}

var depthSQL = define("depth",
	`SELECT coalesce(sum(n), 0)::bigint FROM {schema}.tally WHERE queue = $1 AND state < 6`)

// Depth implements insert.Tx.
func (i *inserter) Depth(queue string) (n int, err error) {
	i.lock("depth ", []string{queue})
	i.query(depthSQL, one(&n), queue)
	return n, nil
}

var oldestSQL = define("oldest", `SELECT {columns} FROM {whole_ready} WHERE seq = ANY (ARRAY(SELECT seq FROM {schema}.ready
			WHERE queue = $1 AND (deadline IS NULL OR deadline > $2)
			AND seq <> ALL (ARRAY(SELECT b.seq FROM {schema}.job b WHERE b.id = ANY ($4::text[])))
			ORDER BY coalesce(own_place, place) LIMIT $3 FOR UPDATE SKIP LOCKED))
		ORDER BY coalesce(own_place, place)`)

// Oldest implements insert.Tx.
func (i *inserter) Oldest(queue string, now time.Time, n int, without []string) ([]*rows.Row, error) {
	return i.jobs(oldestSQL, queue, rows.Nanos(now), n, append([]string{}, without...)), nil
}

// Add implements insert.Tx.
func (i *inserter) Add(recs []*storage.Record) error {
	// Now, so that the order of insertion of one key is the order of its inserts.
	var keys []string
	for _, r := range recs {
		if r.Dependencies != nil {
			keys = append(keys, r.Dependencies.OrderingKey)
		}
	}
	i.lockKeys(keys)
	encoded := make([]written, len(recs))
	for k, r := range recs {
		encoded[k] = fail.Must(rows.Encode(r))
		rows.Note(&i.notice, &encoded[k])
	}
	if takesTurn(encoded) {
		i.entersIn()
	}
	var stored []int64
	if i.query(insertSQL, values(&stored), arguments(encoded)...); len(stored) < len(encoded) {
		fail.With(errDraining)
	}
	return nil
}

// errDraining undoes an insert into a queue that has begun to drain since the insert
// looked at its state.
var errDraining = errors.New(
	"ojs: postgres: a queue of the insert begins to drain each time the insert has found it active: enqueue again")

// Save implements insert.Tx.
func (i *inserter) Save(changed []*rows.Row) error {
	o := saving(time.Time{}, changed)
	for k, r := range changed {
		if r.State == ojs.StateCancelled && r.Seq != 0 { // no claim has a job of the batch
			i.notice.AddTaken(r.ID, r.Was, ojs.ErrReplaced)
		}
		i.s.note(&i.notice, &o.encoded[k])
	}
	applied, list := i.applyCounting(o)
	for k, r := range changed {
		switch {
		case len(list) > 0 && list[0].ID == r.ID:
			i.ended, list = append(i.ended, list[0]), list[1:]
		case r.Seq == 0 && i.awaits && r.State.Terminal(): // it is new: no edge from it is stored yet
			i.ended = append(i.ended, o.end(k, applied[k]))
		}
	}
	return nil
}

// Bits of a change: the states that the job may be in, and what its place is.
const (
	anyState   = 1<<(rows.Discarded+1) - 1
	returns    = 1 << 14 // the job returns to the place before its claim
	keepsPlace = 1 << 15
)

// saving are the changes that write rows that were read and then changed, if the stored
// rows are as they were read.
func saving(now time.Time, changed []*rows.Row) (o settling) {
	for _, r := range changed {
		froms := anyState | int64(r.Version-r.Was-1)<<16
		if r.State == ojs.StateScheduled { // it was given other args and meta, and nothing else
			froms |= keepsPlace
		}
		o.add(&r.Record, froms)
	}
	o.nows = slices.Repeat([]time.Time{now}, len(changed))
	return o
}
