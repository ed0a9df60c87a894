package postgres

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
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

// ended is a job that a transaction has ended and that others may wait for.
type ended struct {
	ord   int // of its change, from 0 on
	seq   int64
	id    string
	state ojs.State
}

// applyCounting is apply for jobs that others may wait for. It returns the number of the
// job of each change that was applied, or 0, and the jobs that it has ended and that
// others may wait for, in the order of the changes.
func (s *Storage) applyCounting(
	ctx context.Context, tx transaction, o settling,
) (applied []int64, list []ended, err error) {
	queues := o.entering()
	if err := s.lockQueues(ctx, tx, queues); err != nil {
		return nil, nil, err
	}
	if len(queues) == 0 || len(o.encoded) == 1 {
		return s.applyTogether(ctx, tx, o)
	}
	for i := range o.encoded { // each sees the turns of those before it
		part := settling{encoded: o.encoded[i : i+1], froms: o.froms[i : i+1], sameJob: o.sameJob}
		one, ends, err := s.applyTogether(ctx, tx, part)
		if err != nil {
			return nil, nil, err
		}
		applied = append(applied, one...)
		for _, e := range ends {
			e.ord = i
			list = append(list, e)
		}
	}
	return applied, list, nil
}

// applyLocked is applyCounting for jobs that the transaction has locked.
func (s *Storage) applyLocked(
	ctx context.Context, tx transaction, o settling,
) (applied []int64, list []ended, err error) {
	applied, list, err = s.applyCounting(ctx, tx, o)
	if err == nil && slices.Contains(applied, 0) {
		err = errNotLocked
	}
	return applied, list, err
}

var countingSQL = settlesWith("completeCounting endCounting settleCounting settleAllCounting",
	counting, "", "")

// applyTogether is applyCounting with one statement. Rounds are locked.
func (s *Storage) applyTogether(
	ctx context.Context, tx transaction, o settling,
) (applied []int64, list []ended, err error) {
	sql, args := o.by(countingSQL)
	applied = make([]int64, len(o.encoded))
	var ord, seq int64
	var awaited bool
	err = tx.query(ctx, s.sql[sql], args, each([]any{&ord, &seq, &awaited}, func() {
		applied[ord-1] = seq
		if c := &o.encoded[ord-1]; awaited && rows.Terminal(c.State) {
			list = append(list, ended{int(ord) - 1, seq, c.ID, rows.State(c.State)})
		}
	}))
	slices.SortFunc(list, func(a, b ended) int { return a.ord - b.ord })
	return applied, list, err
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
	applies, list, left, err := s.lockChanged(ctx, tx, o)
	if err != nil {
		return nil, false, err
	}
	c := s.counter(ctx, tx)
	if len(left) > 0 {
		if len(o.encoded) > 1 {
			return nil, false, errInTurn
		}
		if err := tx.exec(ctx, s.sql[leaveLineSQL], left); err != nil {
			return nil, false, err
		}
	}
	if len(o.encoded) == 1 && len(list) > 0 {
		c.jobs[list[0].seq] = nil // it waits no more, though its row says so until it is stored
	}
	if err := c.load(list); err != nil {
		return nil, false, err
	}
	if len(o.encoded) > 1 && c.lines.shared {
		return nil, false, errInTurn
	}
	moved := make([][]storage.Record, len(o.encoded))
	for _, e := range list {
		if moved[e.ord], err = c.count(o.nows[e.ord], e); err != nil {
			return nil, false, err
		}
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
	for _, e := range list {
		results[e.ord].Moved = moved[e.ord]
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
// that applies, or 0, the jobs that the changes end and that others may wait for, and
// the jobs that leave pending before their turn.
func (s *Storage) lockChanged(
	ctx context.Context, tx transaction, o settling,
) (applies []int64, list []ended, left []int64, err error) {
	at := make(map[string]int, len(o.encoded))
	ids := make([]string, len(o.encoded))
	for i := range o.encoded {
		ids[i] = o.encoded[i].ID
		at[ids[i]] = i
	}
	applies = make([]int64, len(o.encoded))
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
			list = append(list, ended{i, seq, c.ID, rows.State(c.State)})
		case awaited && state == rows.Pending && c.State != rows.Pending:
			left = append(left, seq)
		}
	})
	err = tx.query(ctx, s.sql[lockChangedSQL], []any{ids}, read)
	slices.SortFunc(list, func(a, b ended) int { return a.ord - b.ord })
	return applies, list, left, err
}

// counter counts jobs that a transaction has ended, for the jobs that wait for them.
type counter struct {
	ctx context.Context
	s   *Storage
	tx  transaction

	edges map[int64][]int64 // by an awaited job: the jobs that wait for it, until its end is counted
	taken map[int64]bool    // jobs whose stored edges are in edges
	jobs  map[int64]*waiter // that wait, or have waited until now
	lines lines
	moved []*waiter // in the order of their transitions

	met     []bad          // waiting jobs that do not decode
	damaged map[int64]bool // their numbers
}

// waiter is a job that waits for others.
type waiter struct {
	*rows.Row
	awaited bool // by others in turn
	depends bool // it was stored with DependsOn
	counted bool // since it was read
}

func (s *Storage) counter(ctx context.Context, tx transaction) *counter {
	return &counter{ctx: ctx, s: s, tx: tx, edges: make(map[int64][]int64),
		taken: make(map[int64]bool), jobs: make(map[int64]*waiter), lines: newLines(),
		damaged: make(map[int64]bool)}
}

// takeEdgesSQL deletes the edges from the jobs $1, which have ended, and takes these out
// of their lines. It returns the jobs that wait for them, and the keys of the lines.
var takeEdgesSQL = define("takeEdges", `WITH edges AS (DELETE FROM {schema}.edge WHERE dependency = ANY ($1::bigint[])
			RETURNING dependency, waiting),
		lines AS (DELETE FROM {schema}.line WHERE seq = ANY ($1::bigint[]) RETURNING seq, key, waits)
		SELECT dependency, waiting, '', false FROM edges UNION ALL SELECT seq, 0, key, waits FROM lines`)

// load takes the edges from jobs that have ended, and locks and reads what waits for
// them.
func (c *counter) load(list []ended) error {
	var from []int64
	for _, e := range list {
		if !c.taken[e.seq] {
			from = append(from, e.seq)
			c.taken[e.seq] = true
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
	}
	return len(list), err
}

// count counts ends in their order, and those that follow from them. It returns the jobs
// that this moves.
func (c *counter) count(now time.Time, list ...ended) (moved []storage.Record, err error) {
	for len(list) > 0 {
		if err := c.load(list); err != nil {
			return nil, err
		}
		e := list[0]
		list = list[1:]
		waiting := c.edges[e.seq]
		delete(c.edges, e.seq)
		slices.Sort(waiting)
		for _, seq := range waiting {
			w := c.jobs[seq]
			if w == nil || w.State != ojs.StatePending {
				continue
			}
			if c.resolve(now, w, e) {
				moved = append(moved, w.Record)
				if w.State.Terminal() && w.awaited {
					list = append(list, ended{seq: seq, id: w.ID, state: w.State})
				}
			}
		}
		key := c.lines.left[e.seq]
		if key == "" {
			continue
		}
		delete(c.lines.left, e.seq)
		w, err := c.nextTurn(now, key)
		if err != nil {
			return nil, err
		}
		if w != nil {
			moved = append(moved, w.Record)
			if w.State.Terminal() {
				list = append(list, ended{seq: w.Seq, id: w.ID, state: w.State})
			}
		}
	}
	return moved, nil
}

// resolve counts an end for a job, and reports whether this moves it.
func (c *counter) resolve(now time.Time, w *waiter, e ended) bool {
	w.Count(e.state)
	w.counted = true
	if !w.Resolve(now, e.id, e.state) {
		return false
	}
	c.moved = append(c.moved, w)
	return true
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
) ([]storage.Record, error) {
	c := i.s.counter(i.ctx, i.tx)
	new := make(map[string]found, len(i.added))
	for id, a := range i.added {
		new[id] = a.found
	}
	moved, more, err := c.awaitNew(now, batch, new, added)
	for k := range batch {
		if in := &batch[k]; err == nil && in.Waits() && added(k) {
			a := i.added[in.Record.ID]
			a.columns.State = int(a.code) // another job of the batch may have replaced it
			err = c.enter(in, a.seq, &a.columns)
		}
	}
	if err == nil {
		err = c.enterLines(batch, new, added)
	}
	var counted, awaiting []storage.Record
	if err == nil {
		counted, err = c.count(now, append(i.ended, more...)...)
	}
	if err == nil && storage.DependsOn(batch) {
		awaiting, err = c.await(now, batch, new, added)
	}
	if err == nil {
		err = c.store()
	}
	if err == nil && len(c.met) > 0 {
		err = &undecodable{c.met}
	}
	if err != nil {
		return nil, err
	}
	moved = slices.Concat(moved, counted, awaiting)
	noteMoved(i.notice, moved)
	return moved, nil
}

// enter has the counter know a job that has just been stored, with these columns.
func (c *counter) enter(in *storage.Insert, seq int64, columns *rows.Columns) error {
	if !in.Waits() {
		return nil
	}
	r, err := rows.Read(columns)
	if err != nil {
		return err
	}
	r.Wait(in)
	c.jobs[seq] = &waiter{Row: &rows.Row{Record: r, Seq: seq, Was: r.Version}, awaited: len(in.AwaitedBy) > 0,
		depends: true, counted: true}
	// The edges from it are not stored yet.
	c.taken[seq] = in.OrderingKey == "" && len(in.AwaitedBy) == 0
	return nil
}

// waitingIDsSQL returns the pending ones of the jobs with the ids $1, which the
// transaction has stored or locked.
var waitingIDsSQL = define("waitingIDs", `SELECT coalesce(awaited, false)::integer::bigint, {columns} FROM {whole}
		WHERE seq = ANY ({seqs}) AND state = 1`)

// await has jobs that have just been stored wait for others, and their lines give turns.
func (c *counter) await(
	now time.Time, batch []storage.Insert, new map[string]found, added func(int) bool,
) (moved []storage.Record, err error) {
	var ids []string
	for k := range batch {
		for _, id := range batch[k].DependsOn {
			if _, there := new[id]; !there && added(k) {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	heads, err := c.s.find(c.ctx, c.tx, slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	if heads == nil {
		heads = make(map[string]found)
	}
	maps.Copy(heads, new)
	for k := range batch {
		if in := &batch[k]; in.Waits() && added(k) {
			more, err := c.awaitOne(now, in, heads)
			if err != nil {
				return nil, err
			}
			moved = append(moved, more...)
		}
	}
	return moved, c.addEdges()
}

// awaitOne has a job that has just been stored wait for others, and its line give the
// turn. The line of a job that the batch has replaced gives its turn, too. heads are
// those of these jobs.
func (c *counter) awaitOne(
	now time.Time, in *storage.Insert, heads map[string]found,
) (moved []storage.Record, err error) {
	h := heads[in.Record.ID]
	// moves adds a job that has moved, and each job that its end moves.
	moves := func(w *waiter) error {
		moved = append(moved, w.Record)
		if !w.State.Terminal() || !w.awaited {
			return nil
		}
		more, err := c.count(now, ended{seq: w.Seq, id: w.ID, state: w.State})
		moved = append(moved, more...)
		return err
	}
	w := c.jobs[h.seq]
	for _, id := range in.DependsOn {
		// If the batch has replaced it, or what has ended decides, it waits for none.
		if w.State != ojs.StatePending {
			break
		}
		d, ok := heads[id]
		if !ok {
			return nil, &ojs.DependencyError{ID: in.Record.ID, Dependency: id}
		}
		state, other := d.state(), c.jobs[d.seq]
		if other != nil {
			state = other.State
		}
		if !state.Terminal() {
			c.edges[d.seq] = append(c.edges[d.seq], h.seq)
			if other != nil {
				other.awaited = true
			}
			continue
		}
		if c.resolve(now, w, ended{seq: d.seq, id: id, state: state}) {
			if err := moves(w); err != nil {
				return nil, err
			}
		}
	}
	if in.OrderingKey == "" {
		return moved, nil
	}
	if w, err = c.nextTurn(now, in.OrderingKey); err == nil && w != nil {
		err = moves(w)
	}
	return moved, err
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
