package postgres

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
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
func (t *tx) applyCounting(o settling) (applied []int64, ends []depend.End) {
	queues := o.entering()
	t.lockQueues(queues)
	if len(queues) == 0 || len(o.encoded) == 1 {
		return t.applyTogether(o)
	}
	for i := range o.encoded { // each sees the turns of those before it
		part := settling{encoded: o.encoded[i : i+1], froms: o.froms[i : i+1], sameJob: o.sameJob}
		one, end := t.applyTogether(part)
		applied, ends = append(applied, one...), append(ends, end...)
	}
	return applied, ends
}

// applyLocked is applyCounting that fails unless each change applies: the transaction has
// locked the jobs, or is undone.
func (t *tx) applyLocked(o settling) (applied []int64, ends []depend.End) {
	if applied, ends = t.applyCounting(o); slices.Contains(applied, 0) {
		fail.With(errUnchanged)
	}
	return applied, ends
}

var countingSQL = settlesWith("completeCounting endCounting settleCounting settleAllCounting",
	counting, "", "")

// applyTogether is applyCounting with one statement. Rounds are locked.
func (t *tx) applyTogether(o settling) (applied []int64, ends []depend.End) {
	of, args := o.by(countingSQL)
	applied = make([]int64, len(o.encoded))
	counts := make([]bool, len(o.encoded))
	var ord, seq int64
	var awaited bool
	t.query(of, each([]any{&ord, &seq, &awaited}, func() {
		applied[ord-1], counts[ord-1] = seq, awaited && rows.Terminal(o.encoded[ord-1].State)
	}), args...)
	return applied, o.counted(applied, counts)
}

// counted are the ends that count of changes that apply to the jobs seqs.
func (o *settling) counted(seqs []int64, counts []bool) (ends []depend.End) {
	for i, seq := range seqs {
		if counts[i] {
			ends = append(ends, o.end(i, seq))
		}
	}
	return ends
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
func (t *tx) settleCounting(o settling) (results []storage.Settled) {
	var met []bad
	var some bool
	err := t.s.transact(t.ctx, t.on, func(t *tx) { results, met, some = t.settleCountingIn(o) })
	if errors.Is(err, errInTurn) {
		results = nil
		for i := range o.encoded {
			results = append(results, t.settleCounting(o.part(i, i+1))...)
		}
		return results
	}
	t.s.counting.Store(some)
	fail.If(err)
	if _, joined := t.on.(transaction); !joined { // else it is left to calls that are in none
		_ = t.s.setAsideRead(t.ctx, false, met)
	}
	return results
}

var leaveLineSQL = define("leaveLine",
	`UPDATE {schema}.line SET waits = false WHERE seq = ANY ($1::bigint[])`)

func (t *tx) settleCountingIn(o settling) (results []storage.Settled, met []bad, some bool) {
	t.tune()
	several := len(o.encoded) > 1
	applies, counts, left := t.lockChanged(o)
	c := t.counter()
	list := o.counted(applies, counts)
	if len(left) > 0 {
		if several {
			fail.With(errInTurn)
		}
		t.exec(leaveLineSQL, left)
	}
	if !several && len(list) > 0 {
		c.jobs[list[0].Seq] = nil // it waits no more, though its row says so until it is stored
	}
	if c.load(list); several && c.lines.shared {
		fail.With(errInTurn)
	}
	moved := make([][]storage.Record, len(o.encoded))
	for i, seq := range applies {
		if counts[i] {
			c.ends = []depend.End{o.end(i, seq)}
			moved[i] = depend.Count(c, o.nows[i], nil)
		}
	}
	// A job that has ended by the count may share a line with one of the changes.
	if several && (c.lines.shared || c.meets(o.encoded, applies)) {
		fail.With(errInTurn)
	}
	// Each change, and behind it the jobs that it moves, so that all have their order.
	all, applied := settling{sameJob: o.sameJob}, make([]bool, len(applies))
	for i := range o.encoded {
		if applied[i] = applies[i] > 0; applied[i] {
			all.encoded, all.froms = append(all.encoded, o.encoded[i]), append(all.froms, o.froms[i])
			all.move(moved[i])
		}
	}
	if len(all.encoded) > 0 {
		t.applyLocked(all)
	}
	c.moved = nil
	c.store()
	results = t.explainAll(o, applied, retries)
	for i := range moved {
		results[i].Moved = moved[i]
	}
	return results, c.met, len(list) > 0
}

// errUnchanged undoes changes of which one missed its job.
var errUnchanged = errors.New("ojs: postgres: a job does not change though nothing is in its way")

// move appends the changes that move waiting jobs.
func (o *settling) move(moved []storage.Record) {
	for i := range moved {
		o.add(&moved[i], 1<<rows.Pending)
	}
}

var lockChangedSQL = define("lockChanged", `SELECT id, seq, version, state, depends IS NOT NULL, coalesce(awaited, false) FROM {whole}
		WHERE seq = ANY ({seqs}) ORDER BY seq FOR UPDATE`)

// lockChanged locks the jobs of changes. It returns the number of the job of each change
// that applies, or 0, whether the change ends a job that others may wait for, and the
// jobs that leave pending before their turn.
func (t *tx) lockChanged(o settling) (applies []int64, counts []bool, left []int64) {
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
	var depends, awaited bool
	t.query(lockChangedSQL, each([]any{&id, &seq, &version, &state, &depends, &awaited}, func() {
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
	}), ids)
	return applies, counts, left
}

// counter is the depend.Tx of a transaction.
type counter struct {
	*tx

	edges map[int64][]int64 // by an awaited job: the jobs that wait for it, until its end is counted
	taken map[int64]bool    // jobs whose stored edges are in edges
	jobs  map[int64]*waiter // that wait, or have waited until now
	byID  map[string]*waiter
	ends  []depend.End
	lines lines
	moved []*waiter // in the order of their transitions

	met []bad // waiting jobs that do not decode
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

func (t *tx) counter(ends ...depend.End) *counter {
	return &counter{tx: t, ends: ends, edges: make(map[int64][]int64),
		taken: make(map[int64]bool), jobs: make(map[int64]*waiter), byID: make(map[string]*waiter),
		lines: newLines()}
}

// Ends implements depend.Tx.
func (c *counter) Ends() *[]depend.End { return &c.ends }

// takeEdgesSQL deletes the edges from the jobs $1, which have ended, and takes these out
// of their lines. It returns the jobs that wait for them, and the keys of the lines.
var takeEdgesSQL = define("takeEdges", `WITH edges AS (DELETE FROM {schema}.edge WHERE dependency = ANY ($1::bigint[])
			RETURNING dependency, waiting),
		lines AS (DELETE FROM {schema}.line WHERE seq = ANY ($1::bigint[]) RETURNING seq, key, waits)
		SELECT dependency, waiting, '', false FROM edges UNION ALL SELECT seq, 0, key, waits FROM lines`)

// load takes the edges from jobs that have ended, and locks and reads what waits for
// them.
func (c *counter) load(ends []depend.End) {
	var from []int64
	for _, e := range ends {
		if !c.taken[e.Seq] {
			from = append(from, e.Seq)
			c.taken[e.Seq] = true
		}
	}
	if len(from) == 0 {
		return
	}
	var dependency, waiting int64
	var key string
	var waits bool
	var unread []int64
	var turns []string
	c.query(takeEdgesSQL, each([]any{&dependency, &waiting, &key, &waits}, func() {
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
	}), from)
	c.readWaiting(unread)
	c.lockLines(turns)
}

// waitingJobsSQL locks the pending ones of the jobs $1. Its first column is 1 if other
// jobs may wait for the job.
var waitingJobsSQL = define("waitingJobs", `SELECT coalesce(awaited, false)::integer::bigint, {columns} FROM {whole}
		WHERE seq = ANY ($1::bigint[]) AND state = 1 ORDER BY seq FOR UPDATE`)

var stillWaitingSQL = define("stillWaiting", `SELECT s.seq FROM {schema}.stage s JOIN {schema}.job b ON b.seq = s.seq
		WHERE s.seq = ANY ($1::bigint[]) AND s.state = 1`)

// readWaiting locks and reads those of the jobs that wait.
func (c *counter) readWaiting(seqs []int64) {
	for len(seqs) > 0 && c.read(waitingJobsSQL, seqs) < len(seqs) {
		// A change moves the row of a job: a statement that waits for the change misses
		// the job, and a later one finds it.
		missed := slices.DeleteFunc(slices.Clone(seqs), func(seq int64) bool { return c.jobs[seq] != nil })
		seqs = nil
		c.query(stillWaitingSQL, values(&seqs), missed)
		seqs = slices.DeleteFunc(seqs, func(seq int64) bool {
			return slices.ContainsFunc(c.met, func(b bad) bool { return b.seq == seq })
		})
	}
}

// read locks and reads waiting jobs, and returns how many there are.
func (c *counter) read(of statement, args ...any) int {
	list := c.rows(1, of, args...)
	for i := range list {
		row, err := list[i].decode()
		if err != nil {
			c.met = append(c.met, bad{list[i], err})
			continue
		}
		awaited := list[i].ord != 0 || len(c.edges[row.Seq]) > 0 // which are not stored, perhaps
		c.jobs[row.Seq] = &waiter{Row: row, awaited: awaited, depends: list[i].Depends != nil}
		c.byID[row.ID] = c.jobs[row.Seq]
	}
	return len(list)
}

// Take implements depend.Tx.
func (c *counter) Take(ends []depend.End) (waiting []*waiter, line string) {
	e := ends[0]
	if !c.taken[e.Seq] {
		c.load(ends)
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

// Find implements depend.Tx. learn has added the job.
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

// store stores the counts of jobs, and those that have moved.
func (c *counter) store() {
	var seqs []int64
	var depends, documents [][]byte
	for seq, w := range c.jobs {
		if w == nil || !w.counted {
			continue
		}
		w.counted = false
		var document []byte
		if w.State != ojs.StatePending && w.Retimed() {
			document = fail.Must(rows.Encode(&w.Record)).Job
		}
		seqs, documents = append(seqs, seq), append(documents, document)
		depends = append(depends, fail.Must(rows.EncodeDepends(w.Dependencies)))
	}
	if len(seqs) > 0 {
		c.exec(setDependsSQL, seqs, depends, c.lines.given, documents)
		c.lines.given = nil
	}
	moves := settling{sameJob: true}
	for _, w := range c.moved {
		moves.add(&w.Record, 1<<rows.Pending)
	}
	if c.moved = nil; len(moves.encoded) > 0 {
		c.applyLocked(moves)
	}
}

// setDependsSQL stores the counts $2 of the jobs $1, of which $3 have the turn, and the
// documents $4 of some. The transaction has locked or stored these jobs, so that a join
// finds each of them.
var setDependsSQL = define("setDepends", `WITH lines AS (UPDATE {schema}.line SET waits = false WHERE seq = ANY ($3::bigint[]))
		UPDATE {schema}.job b SET depends = u.depends, job = coalesce(u.job, b.job)
		FROM unnest($1::bigint[], $2::bytea[], $4::bytea[]) u (seq, depends, job) WHERE b.seq = u.seq`)

// Known implements insert.Tx. It locks the jobs, so that none ends before the insert
// has.
func (i *inserter) Known(ids []string) (map[string]bool, error) {
	known := make(map[string]bool, len(ids))
	for id := range i.lockKnown(ids) {
		known[id] = true
	}
	return known, nil
}

// Waiting implements insert.Tx. It locks the jobs, as Known does.
func (i *inserter) Waiting(ids []string) (map[string]bool, error) {
	i.awaits = true
	waiting := make(map[string]bool, len(ids))
	for id, f := range i.lockKnown(ids) {
		waiting[id] = f.code == rows.Pending && f.depends
	}
	return waiting, nil
}

// lockKnown locks the stored jobs among ids, and returns them by their ids. A statement
// misses a job that another transaction takes to another partition meanwhile.
func (t *tx) lockKnown(ids []string) map[string]found {
	ids = sayables(ids)
	for {
		locked := make(map[string]found, len(ids))
		var id string
		var f found
		var awaited bool
		columns := []any{&id, &f.seq, &f.version, &f.code, &f.depends, &awaited}
		t.query(lockChangedSQL, each(columns, func() { locked[id] = f }), ids)
		there := t.find(ids)
		maps.DeleteFunc(there, func(id string, _ found) bool { return locked[id].seq > 0 })
		if len(there) == 0 {
			return locked
		}
	}
}

// Await implements insert.Tx.
func (i *inserter) Await(
	now time.Time, batch []storage.Insert, added func(int) bool,
) ([]storage.Record, error) {
	c := i.counter(i.ended...)
	c.learn(batch, added)
	moved := depend.Await(c, now, batch, added)
	if c.end(moved); len(c.met) > 0 {
		fail.With(&undecodable{c.met})
	}
	return moved, nil
}

// end stores what the counter has come to, and adds to the notice what the jobs tell that
// have moved.
func (c *counter) end(moved []storage.Record) {
	c.addEdges()
	c.store()
	noteMoved(&c.notice, moved)
}

// waitingIDsSQL returns the pending ones of the jobs with the ids $1, which the
// transaction has locked.
var waitingIDsSQL = define("waitingIDs", `SELECT coalesce(awaited, false)::integer::bigint, {columns} FROM {whole}
		WHERE seq = ANY ({seqs}) AND state = 1`)

// learn adds the jobs of a batch, which are stored, and the jobs to which its edges lead,
// which Known and Waiting have locked. It reads only the jobs that are to wait: the
// counter needs no more of a dependency than its number and state.
func (c *counter) learn(batch []storage.Insert, added func(int) bool) {
	if !storage.DependsOn(batch) {
		return
	}
	own := make(map[string]bool)
	var waiting, ids []string
	for k := range batch {
		if in := &batch[k]; added(k) {
			own[in.Record.ID] = true
			ids = append(append(ids, in.Record.ID), in.DependsOn...)
			waiting = append(waiting, in.AwaitedBy...)
		}
	}
	waiting = slices.DeleteFunc(sayables(waiting), func(id string) bool { return own[id] })
	if len(waiting) > 0 {
		c.read(waitingIDsSQL, waiting)
	}
	there := c.find(sayables(ids))
	for id, f := range there {
		if c.byID[id] == nil {
			w := &waiter{Row: &rows.Row{Seq: f.seq}}
			w.ID, w.State = id, f.state()
			c.byID[id] = w
		}
	}
	for k := range batch {
		in := &batch[k]
		if !added(k) {
			continue
		}
		w := c.byID[in.Record.ID]
		if c.taken[w.Seq] = in.OrderingKey == ""; in.Waits() { // the edges from it are not stored yet
			columns := fail.Must(rows.Encode(&in.Record))
			columns.Version = there[w.ID].version
			columns.State = int(there[w.ID].code) // another job of the batch may have replaced it
			w.Record = fail.Must(rows.Read(&columns))
			w.Was = w.Version
			w.Wait(in)
			c.jobs[w.Seq] = w
		}
		for _, id := range in.DependsOn {
			if c.byID[id] == nil {
				fail.With(&ojs.DependencyError{ID: in.Record.ID, Dependency: id})
			}
		}
	}
}

var addEdgesSQL = define("addEdges", `INSERT INTO {schema}.edge SELECT * FROM unnest($1::bigint[], $2::bigint[])
		ON CONFLICT DO NOTHING`)

var setAwaitedSQL = define("setAwaited", `UPDATE {schema}.stage SET awaited = true
		WHERE seq = ANY ($1::bigint[]) AND awaited IS NULL`)

// addEdges stores the edges that are not counted.
func (c *counter) addEdges() {
	var from, to, awaited []int64
	for dependency, waiting := range c.edges {
		for _, seq := range waiting {
			from, to = append(from, dependency), append(to, seq)
		}
		if len(waiting) > 0 {
			awaited = append(awaited, dependency)
		}
	}
	if len(from) > 0 {
		c.exec(setAwaitedSQL, awaited)
		c.exec(addEdgesSQL, from, to)
	}
}
