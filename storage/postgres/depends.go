package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/depend"
)

// Jobs that wait for others (storage.Insert.DependsOn).
//
// The table edge has a row for each job that another waits for and that has not ended.
// That job has awaited set in its row of stage. The column job.depends of a waiting job
// has its counts; no change of the job writes it. Numbers of jobs (seq) are given once,
// so that an edge to a deleted job leads nowhere.
//
// Most jobs are awaited by none. The statements that apply changes find that
// out, and then change nothing if one of their jobs is awaited, as jobs with an ordering
// key are, too. The call begins anew:
//
//	begin
//	lock the jobs, and find out which changes apply
//	delete the edges of the jobs that end, and take these out of their lines (line.go)
//	lock the jobs that wait for them, in the order of their numbers
//	lock the keys of the lines, and the jobs that are first there
//	count, and give turns; the same for jobs that end by that
//	apply the changes, and behind each the moves that follow from it
//	store the counts
//	commit
//
// Invariants:
//
//  1. An insert locks a dependency before it reads its state, and sets awaited before it
//     commits. A change of the dependency then waits for the insert, and reads awaited in
//     the row as it is then.
//  2. Only the transaction that ends a job deletes the edges from it. It holds the job's
//     row then. So each end is counted once.
//  3. Counts are read and written by the transaction that holds the rows of the waiting
//     job. Of two jobs that end at the same time, the second one's transaction waits for
//     the first one's and reads what that has counted.
//  4. A waiting job that a statement misses, though it is still pending, is looked for
//     again (readWaiting): another transaction was changing it.
//  5. Jobs of one level are locked in one order. Levels may come in any order, so that
//     transactions may wait for each other in rare graphs. PostgreSQL then undoes one of
//     them, and the call repeats it (again).

// applyCounting is apply for jobs that others may wait for. It returns the number of the
// job of each change that was applied, or 0, and the ends of jobs that others may wait
// for, in the order of the changes.
func (s *Storage) applyCounting(
	ctx context.Context, tx transaction, o settling,
) (applied []int64, ends []depend.End, err error) {
	queues := o.entering()
	if err := s.lockQueues(ctx, tx, queues); err != nil {
		return nil, nil, err
	}
	if len(queues) == 0 || len(o.encoded) == 1 {
		return s.applyTogether(ctx, tx, o)
	}
	for i := range o.encoded { // each sees the turns of those before it
		part := settling{encoded: o.encoded[i : i+1], froms: o.froms[i : i+1], sameJob: o.sameJob}
		one, end, err := s.applyTogether(ctx, tx, part)
		if err != nil {
			return nil, nil, err
		}
		applied, ends = append(applied, one...), append(ends, end...)
	}
	return applied, ends, nil
}

// applyLocked is applyCounting for jobs that the transaction has locked.
func (s *Storage) applyLocked(
	ctx context.Context, tx transaction, o settling,
) (applied []int64, ends []depend.End, err error) {
	applied, ends, err = s.applyCounting(ctx, tx, o)
	if err == nil && slices.Contains(applied, 0) {
		err = errNotLocked
	}
	return applied, ends, err
}

var countingSQL = settlesWith("completeCounting endCounting settleCounting settleAllCounting",
	counting, "", "")

// applyTogether is applyCounting with one statement. Rounds are locked.
func (s *Storage) applyTogether(
	ctx context.Context, tx transaction, o settling,
) (applied []int64, ends []depend.End, err error) {
	sql, args := o.by(countingSQL)
	applied = make([]int64, len(o.encoded))
	counts := make([]bool, len(o.encoded))
	var ord, seq int64
	var awaited bool
	err = tx.query(ctx, s.sql[sql], args, each([]any{&ord, &seq, &awaited}, func() {
		applied[ord-1], counts[ord-1] = seq, awaited && rows.Terminal(o.encoded[ord-1].State)
	}))
	for i, seq := range applied {
		if counts[i] {
			ends = append(ends, o.end(i, seq))
		}
	}
	return applied, ends, err
}

// end is the end that a change has brought to a job.
func (o *settling) end(i int, seq int64) depend.End {
	c := &o.encoded[i]
	return depend.End{Seq: seq, ID: c.ID, State: rows.State(c.State)}
}

// errInTurn undoes changes of which one moves the job of another: they have to be made
// one after the other.
var errInTurn = errors.New("ojs: postgres: changes of jobs that wait for each other")

// settleCounting is settleDistinct for jobs that others may wait for.
func (s *Storage) settleCounting(
	ctx context.Context, q querier, o settling, results []storage.Settled,
) error {
	var met []bad
	var some bool
	err := s.transact(ctx, q, func(ctx context.Context, tx transaction) (err error) {
		met, some, err = s.settleCountingIn(ctx, tx, o, results)
		return err
	})
	if errors.Is(err, errInTurn) {
		for i := range o.encoded {
			if err := s.settleCounting(ctx, q, o.part(i, i+1), results[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	s.counting.Store(some)
	if err == nil {
		_ = s.setAsideRead(ctx, false, met)
	}
	return err
}

var leaveLineSQL = define("leaveLine",
	`UPDATE {schema}.line SET waits = false WHERE seq = ANY ($1::bigint[])`)

func (s *Storage) settleCountingIn(
	ctx context.Context, tx transaction, o settling, results []storage.Settled,
) (met []bad, ends bool, err error) {
	if txOf(ctx) == nil {
		if err := tx.exec(ctx, s.sql[tuneSQL]); err != nil {
			return nil, false, err
		}
	}
	applies, counts, left, err := s.lockChanged(ctx, tx, o)
	if err != nil {
		return nil, false, err
	}
	c := s.counter(ctx, tx)
	var list []depend.End
	for i, seq := range applies {
		if counts[i] {
			list = append(list, o.end(i, seq))
		}
	}
	if len(left) > 0 {
		if len(o.encoded) > 1 {
			return nil, false, errInTurn
		}
		if err := tx.exec(ctx, s.sql[leaveLineSQL], left); err != nil {
			return nil, false, err
		}
	}
	if len(o.encoded) == 1 && len(list) > 0 {
		c.jobs[list[0].Seq] = nil // it waits no more, though its row says so until it is stored
	}
	if err := c.load(list); err != nil {
		return nil, false, err
	}
	if len(o.encoded) > 1 && c.lines.shared {
		return nil, false, errInTurn
	}
	moved := make([][]storage.Record, len(o.encoded))
	for i, seq := range applies {
		if counts[i] {
			c.ends = []depend.End{o.end(i, seq)}
			moved[i] = depend.Count(c, o.nows[i], nil)
		}
	}
	if c.err != nil {
		return nil, false, c.err
	}
	// A job that has ended by the count may share a line with one of the changes.
	if len(o.encoded) > 1 && (c.lines.shared || c.meets(o.encoded, applies)) {
		return nil, false, errInTurn
	}
	// Each change, and behind it the jobs that it moves, so that all have their order.
	all := settling{sameJob: o.sameJob}
	for i := range o.encoded {
		if applies[i] == 0 {
			continue
		}
		all.encoded, all.froms = append(all.encoded, o.encoded[i]), append(all.froms, o.froms[i])
		if err := all.move(moved[i]); err != nil {
			return nil, false, err
		}
	}
	if len(all.encoded) > 0 {
		if _, _, err := s.applyLocked(ctx, tx, all); err != nil {
			return nil, false, err
		}
	}
	c.moved = nil
	if err := c.store(); err != nil {
		return nil, false, err
	}
	some := make([]bool, len(applies))
	for i := range applies {
		some[i] = applies[i] > 0
	}
	if err := s.explainAll(ctx, tx, o, some, results, retries); err != nil {
		return nil, false, err
	}
	for i := range moved {
		results[i].Moved = moved[i]
	}
	return c.met, len(list) > 0, nil
}

var errNotLocked = errors.New("ojs: postgres: a job does not change though it is locked")

// move appends the changes that move waiting jobs.
func (o *settling) move(moved []storage.Record) error {
	for i := range moved {
		w, err := rows.Encode(&moved[i])
		if err != nil {
			return err
		}
		o.encoded, o.froms = append(o.encoded, w), append(o.froms, 1<<rows.Pending)
	}
	return nil
}

var lockChangedSQL = define("lockChanged", `SELECT id, seq, version, state, coalesce(awaited, false) FROM {whole}
		WHERE seq = ANY ({seqs}) ORDER BY seq FOR UPDATE`)

// lockChanged locks the jobs of changes. It returns the number of the job of each change
// that applies, or 0, whether the change ends a job that others may wait for, and the
// jobs that leave pending before their turn.
func (s *Storage) lockChanged(
	ctx context.Context, tx transaction, o settling,
) (applies []int64, counts []bool, left []int64, err error) {
	at := make(map[string]int, len(o.encoded))
	ids := make([]string, len(o.encoded))
	for i := range o.encoded {
		ids[i] = o.encoded[i].ID
		at[ids[i]] = i
	}
	applies, counts = make([]int64, len(o.encoded)), make([]bool, len(o.encoded))
	var id string
	var seq, version int64
	var state int16
	var awaited bool
	read := each([]any{&id, &seq, &version, &state, &awaited}, func() {
		i := at[id]
		c := &o.encoded[i]
		if version != c.Version-1-o.froms[i]>>16 || state < 1 || o.froms[i]>>state&1 == 0 {
			return
		}
		applies[i] = seq
		switch {
		case awaited && rows.Terminal(c.State):
			counts[i] = true
		case awaited && state == rows.Pending && c.State != rows.Pending:
			left = append(left, seq)
		}
	})
	err = tx.query(ctx, s.sql[lockChangedSQL], []any{ids}, read)
	return applies, counts, left, err
}

// counter is the depend.Tx of a transaction.
type counter struct {
	ctx context.Context
	s   *Storage
	tx  transaction

	edges map[int64][]int64 // by an awaited job: the jobs that wait for it, until its end is counted
	taken map[int64]bool    // jobs whose stored edges are in edges
	jobs  map[int64]*waiter // that wait, or have waited until now
	byID  map[string]*waiter
	ends  []depend.End
	lines lines
	moved []*waiter // in the order of their transitions

	met     []bad          // waiting jobs that do not decode
	damaged map[int64]bool // their numbers
	err     error          // the first
}

var _ depend.Tx[*waiter] = (*counter)(nil)

// waiter is a job that waits for others. Of one that others are to wait for it has the
// number, the id and the state only.
type waiter struct {
	*rows.Row
	awaited bool // by others in turn
	depends bool // it was stored with DependsOn
	counted bool // since it was read
}

func newWaiter(seq int64, id string, state ojs.State) *waiter {
	w := &waiter{Row: &rows.Row{Seq: seq}}
	w.ID, w.State = id, state
	return w
}

func (s *Storage) counter(ctx context.Context, tx transaction, ends ...depend.End) *counter {
	return &counter{ctx: ctx, s: s, tx: tx, ends: ends, edges: make(map[int64][]int64),
		taken: make(map[int64]bool), jobs: make(map[int64]*waiter), byID: make(map[string]*waiter),
		lines: newLines(), damaged: make(map[int64]bool)}
}

// Ends implements depend.Tx.
func (c *counter) Ends() *[]depend.End { return &c.ends }

// fail keeps the first error.
func (c *counter) fail(err error) { c.err = cmp.Or(c.err, err) }

// takeEdgesSQL deletes the edges from the jobs $1, which have ended, and takes these out
// of their lines. It returns the jobs that wait for them, and the keys of the lines.
var takeEdgesSQL = define("takeEdges", `WITH edges AS (DELETE FROM {schema}.edge WHERE dependency = ANY ($1::bigint[])
			RETURNING dependency, waiting),
		lines AS (DELETE FROM {schema}.line WHERE seq = ANY ($1::bigint[]) RETURNING seq, key, waits)
		SELECT dependency, waiting, '', false FROM edges UNION ALL SELECT seq, 0, key, waits FROM lines`)

// load takes the edges from jobs that have ended, and locks and reads what waits for
// them.
func (c *counter) load(ends []depend.End) error {
	var from []int64
	for _, e := range ends {
		if !c.taken[e.Seq] {
			from = append(from, e.Seq)
			c.taken[e.Seq] = true
		}
	}
	if len(from) == 0 {
		return nil
	}
	var dependency, waiting int64
	var key string
	var waits bool
	var unread []int64
	var turns []string
	read := each([]any{&dependency, &waiting, &key, &waits}, func() {
		if key != "" {
			if c.leave(dependency, key, waits) {
				turns = append(turns, key)
			}
			return
		}
		c.edges[dependency] = append(c.edges[dependency], waiting)
		if _, ok := c.jobs[waiting]; !ok {
			c.jobs[waiting] = nil
			unread = append(unread, waiting)
		}
	})
	err := c.tx.query(c.ctx, c.s.sql[takeEdgesSQL], []any{from}, read)
	if err == nil {
		err = c.readWaiting(unread)
	}
	if err == nil {
		err = c.lockLines(turns)
	}
	return err
}

// waitingJobsSQL locks the pending ones of the jobs $1. Its first column is 1 if other
// jobs may wait for the job.
var waitingJobsSQL = define("waitingJobs", `SELECT coalesce(awaited, false)::integer::bigint, {columns} FROM {whole}
		WHERE seq = ANY ($1::bigint[]) AND state = 1 ORDER BY seq FOR UPDATE`)

var stillWaitingSQL = define("stillWaiting", `SELECT s.seq FROM {schema}.stage s JOIN {schema}.job b ON b.seq = s.seq
		WHERE s.seq = ANY ($1::bigint[]) AND s.state = 1`)

// readWaiting locks and reads those of the jobs that wait.
func (c *counter) readWaiting(seqs []int64) error {
	for len(seqs) > 0 {
		found, err := c.read(c.s.sql[waitingJobsSQL], seqs)
		if err != nil || found == len(seqs) {
			return err
		}
		// A change moves the row of a job: a statement that waits for the change misses
		// the job, and a later one finds it.
		missed := slices.DeleteFunc(slices.Clone(seqs), func(seq int64) bool { return c.jobs[seq] != nil })
		var seq int64
		seqs = nil
		if err = c.tx.query(c.ctx, c.s.sql[stillWaitingSQL], []any{missed}, each([]any{&seq}, func() {
			if !c.damaged[seq] {
				seqs = append(seqs, seq)
			}
		})); err != nil {
			return err
		}
	}
	return nil
}

// read locks and reads waiting jobs, and returns how many there are.
func (c *counter) read(sql string, args ...any) (int, error) {
	list, err := selectRows(c.ctx, c.tx, true, sql, args...)
	for i := range list {
		row, err := list[i].decode()
		if err != nil {
			c.met = append(c.met, bad{list[i], err})
			c.damaged[list[i].seq] = true
			continue
		}
		awaited := list[i].ord != 0 || len(c.edges[row.Seq]) > 0 // which are not stored, perhaps
		c.jobs[row.Seq] = &waiter{Row: row, awaited: awaited, depends: list[i].Depends != nil}
		c.byID[row.ID] = c.jobs[row.Seq]
	}
	return len(list), err
}

// Take implements depend.Tx.
func (c *counter) Take(ends []depend.End) (waiting []*waiter, line string) {
	e := ends[0]
	if !c.taken[e.Seq] && c.err == nil {
		c.fail(c.load(ends))
	}
	if c.err != nil {
		return nil, ""
	}
	seqs := c.edges[e.Seq]
	slices.Sort(seqs)
	for _, seq := range seqs {
		if w := c.jobs[seq]; w != nil {
			waiting = append(waiting, w)
		}
	}
	line = c.lines.left[e.Seq]
	delete(c.edges, e.Seq)
	delete(c.lines.left, e.Seq)
	return waiting, line
}

// Change implements depend.Tx.
func (c *counter) Change(
	w *waiter, by depend.Step, moved []storage.Record,
) []storage.Record {
	w.counted = true
	if !by.Count(&w.Record) {
		return moved
	}
	by.Move(&w.Record)
	c.moved = append(c.moved, w)
	if w.State.Terminal() && w.awaited {
		c.ends = append(c.ends, depend.End{Seq: w.Seq, ID: w.ID, State: w.State})
	}
	return append(moved, w.Record)
}

// Find implements depend.Tx. know or learn has added the job.
func (c *counter) Find(id string) *waiter {
	w := c.byID[id]
	if other := c.jobs[w.Seq]; other != nil { // which has been read since
		return other
	}
	return w
}

// State implements depend.Tx.
func (c *counter) State(w *waiter) ojs.State { return w.State }

// Waiter implements depend.Tx.
func (c *counter) Waiter(id string) (w *waiter, some bool) {
	w = c.byID[id]
	return w, w != nil && w.State == ojs.StatePending && w.depends
}

// Edge implements depend.Tx.
func (c *counter) Edge(from, to *waiter) {
	c.edges[from.Seq] = append(c.edges[from.Seq], to.Seq)
	from.awaited = true
}

// meets reports whether a job of changes waits for one that has ended, or did before the
// changes.
func (c *counter) meets(changes []written, applied []int64) bool {
	ids := make(map[string]bool, len(changes))
	for i := range changes {
		ids[changes[i].ID] = true
		if _, ok := c.jobs[applied[i]]; ok {
			return true
		}
	}
	for _, w := range c.jobs {
		if w != nil && ids[w.ID] {
			return true
		}
	}
	return false
}

var setDocumentsSQL = define("setDocuments", `UPDATE {schema}.job b SET job = u.job
		FROM unnest($1::bigint[], $2::bytea[]) u (seq, job) WHERE b.seq = u.seq`)

// store stores the counts of jobs, and those that have moved.
func (c *counter) store() error {
	var seqs, retimed []int64
	var depends, documents [][]byte
	for seq, w := range c.jobs {
		if w == nil || !w.counted {
			continue
		}
		if w.State != ojs.StatePending && w.Retimed() {
			columns, err := rows.Encode(&w.Record)
			if err != nil {
				return err
			}
			retimed, documents = append(retimed, seq), append(documents, columns.Job)
		}
		b, err := rows.EncodeDepends(w.Dependencies)
		if err != nil {
			return err
		}
		seqs, depends, w.counted = append(seqs, seq), append(depends, b), false
	}
	if err := c.storeCounts(seqs, depends); err != nil {
		return err
	}
	if len(retimed) > 0 {
		if err := c.tx.exec(c.ctx, c.s.sql[setDocumentsSQL], retimed, documents); err != nil {
			return err
		}
	}
	if len(c.moved) == 0 {
		return nil
	}
	moves := settling{sameJob: true}
	for _, w := range c.moved {
		if err := moves.move([]storage.Record{w.Record}); err != nil {
			return err
		}
	}
	c.moved = nil
	_, _, err := c.s.applyLocked(c.ctx, c.tx, moves)
	return err
}

// setDependsSQL stores the counts $2 of the jobs $1. The transaction has locked or
// stored these jobs, so that a join finds each of them.
var setDependsSQL = define("setDepends", `UPDATE {schema}.job b SET depends = u.depends
		FROM unnest($1::bigint[], $2::bytea[]) u (seq, depends) WHERE b.seq = u.seq`)

// giveTurnsSQL is setDependsSQL of jobs of which $3 have the turn.
var giveTurnsSQL = define("giveTurns", `WITH lines AS (UPDATE {schema}.line SET waits = false WHERE seq = ANY ($3::bigint[]))
		UPDATE {schema}.job b SET depends = u.depends
		FROM unnest($1::bigint[], $2::bytea[]) u (seq, depends) WHERE b.seq = u.seq`)

// storeCounts stores the counts of jobs, and the turns given.
func (c *counter) storeCounts(seqs []int64, depends [][]byte) error {
	switch turns := c.lines.given; {
	case len(turns) > 0: // these jobs are among the others
		c.lines.given = nil
		return c.tx.exec(c.ctx, c.s.sql[giveTurnsSQL], seqs, depends, turns)
	case len(seqs) > 0:
		return c.tx.exec(c.ctx, c.s.sql[setDependsSQL], seqs, depends)
	}
	return nil
}

var lockKnownSQL = define("lockKnown", `SELECT id FROM (SELECT s.seq, b.id FROM {schema}.job b JOIN {schema}.stage s ON s.seq = b.seq) j
		WHERE seq = ANY ({seqs}) ORDER BY seq FOR UPDATE`)

// Known implements insert.Tx. It locks the jobs, so that none ends before the insert
// has.
func (i *inserter) Known(ids []string) (map[string]bool, error) {
	known := make(map[string]bool, len(ids))
	ids = sayables(ids)
	for {
		var id string
		read := each([]any{&id}, func() { known[id] = true })
		if err := i.tx.query(i.ctx, i.s.sql[lockKnownSQL], []any{ids}, read); err != nil {
			return nil, err
		}
		all, err := i.s.lockedAll(i.ctx, i.tx, ids, known)
		if err != nil || all {
			return known, err
		}
	}
}

// lockedAll reports whether a statement has locked all of some jobs. It misses a job that
// another transaction takes to another partition meanwhile.
func (s *Storage) lockedAll(
	ctx context.Context, tx transaction, ids []string, locked map[string]bool,
) (bool, error) {
	there, err := s.find(ctx, tx, ids)
	for id := range there {
		if !locked[id] {
			return false, err
		}
	}
	return true, err
}

// Await implements insert.Tx.
func (i *inserter) Await(
	now time.Time, batch []storage.Insert, added func(int) bool,
) (moved []storage.Record, err error) {
	c := i.s.counter(i.ctx, i.tx, i.ended...)
	waits := storage.DependsOn(batch)
	for k := range batch {
		if waits && added(k) {
			a := i.added[batch[k].Record.ID]
			a.columns.State = int(a.code) // another job of the batch may have replaced it
			c.know(&batch[k], a.seq, &a.columns)
		}
	}
	if c.learn(batch, added); c.err == nil {
		moved = depend.Await(c, now, batch, added)
	}
	if err = c.end(); err == nil && len(c.met) > 0 {
		err = &undecodable{c.met}
	}
	if err != nil {
		return nil, err
	}
	noteMoved(i.notice, moved)
	return moved, nil
}

// end stores what the counter has come to, and returns its error.
func (c *counter) end() error {
	if c.err == nil {
		c.err = c.addEdges()
	}
	if c.err == nil {
		c.err = c.store()
	}
	return c.err
}

// know adds a job that has just been stored, with these columns.
func (c *counter) know(in *storage.Insert, seq int64, columns *rows.Columns) {
	w := newWaiter(seq, columns.ID, rows.State(columns.State))
	c.byID[w.ID] = w
	c.taken[seq] = in.OrderingKey == "" // the edges from it are not stored yet
	if !in.Waits() {
		return
	}
	r, err := rows.Read(columns)
	if err != nil {
		c.fail(err)
		return
	}
	r.Wait(in)
	w.Record, w.Was = r, r.Version
	c.jobs[seq] = w
}

// waitingIDsSQL returns the pending ones of the jobs with the ids $1, which the
// transaction has stored or locked.
var waitingIDsSQL = define("waitingIDs", `SELECT coalesce(awaited, false)::integer::bigint, {columns} FROM {whole}
		WHERE seq = ANY ({seqs}) AND state = 1`)

// learn adds stored jobs to which edges of a batch lead, by AwaitedBy and DependsOn. All
// are locked: see Known and Waiting.
func (c *counter) learn(batch []storage.Insert, added func(int) bool) {
	var waiting, ids []string
	for k := range batch {
		if added(k) {
			waiting = append(waiting, batch[k].AwaitedBy...)
			ids = append(ids, batch[k].DependsOn...)
		}
	}
	known := func(id string) bool { return c.byID[id] != nil }
	if waiting = slices.DeleteFunc(sayables(waiting), known); len(waiting) > 0 {
		_, err := c.read(c.s.sql[waitingIDsSQL], waiting)
		c.fail(err)
	}
	ids = slices.DeleteFunc(ids, known)
	there, err := c.s.find(c.ctx, c.tx, ids)
	c.fail(err)
	for id, f := range there {
		c.byID[id] = newWaiter(f.seq, id, f.state())
	}
	for k := range batch {
		for _, id := range batch[k].DependsOn {
			if added(k) && !known(id) {
				c.fail(&ojs.DependencyError{ID: batch[k].Record.ID, Dependency: id})
			}
		}
	}
}

var addEdgesSQL = define("addEdges", `INSERT INTO {schema}.edge SELECT * FROM unnest($1::bigint[], $2::bigint[])
		ON CONFLICT DO NOTHING`)

var setAwaitedSQL = define("setAwaited", `UPDATE {schema}.stage SET awaited = true
		WHERE seq = ANY ($1::bigint[]) AND awaited IS NULL`)

// addEdges stores the edges that are not counted.
func (c *counter) addEdges() error {
	var from, to, awaited []int64
	for dependency, waiting := range c.edges {
		for _, seq := range waiting {
			from, to = append(from, dependency), append(to, seq)
		}
		if len(waiting) > 0 {
			awaited = append(awaited, dependency)
		}
	}
	if len(from) == 0 {
		return nil
	}
	if err := c.tx.exec(c.ctx, c.s.sql[setAwaitedSQL], awaited); err != nil {
		return err
	}
	return c.tx.exec(c.ctx, c.s.sql[addEdgesSQL], from, to)
}
