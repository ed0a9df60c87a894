package postgres

import (
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Jobs with an ordering key (storage.Insert.OrderingKey).
//
// The table line has a row for each that has not ended, which says whether the job waits
// for its turn. Such a job has awaited set, so that the end of it is counted
// (depends.go). A job in the quarantine keeps its row and is in no line meanwhile.
//
// Invariants:
//
//  1. The row of a job in line is changed by the transaction that has locked or stored
//     the job. So a transaction that ends a job reads for certain whether it has the
//     turn.
//  2. A transaction that has a job enter a line, or gives a turn, has locked the name of
//     the key before it looks at the line, and until its end. So of two ends, or of an
//     end and an insert, the second one sees what the first has done.
//  3. Locks are taken in this order: jobs that change, keys in the order of their
//     hashes, the first jobs in line. Transactions that change several jobs of several
//     keys may still wait for each other. PostgreSQL then undoes one of them, and the
//     call repeats it (again).
//  4. The end of a job that waits for its turn locks no key, unless none has the turn.

// lockKeys locks the ordering keys of jobs that are to enter lines; "" is none.
func (t *tx) lockKeys(keys []string) {
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == "" })
	if len(keys) > 0 {
		t.lock("line ", keys)
	}
}

// enterLinesSQL puts the pending jobs $1 into the lines of the keys $2.
var enterLinesSQL = define("enterLines", `WITH
		awaited AS (UPDATE {schema}.stage SET awaited = true WHERE seq = ANY ($1::bigint[])
			AND state = 1)
		INSERT INTO {schema}.line SELECT u.seq, u.key, true FROM unnest($1::bigint[], $2::text[]) u (seq, key)
		ON CONFLICT (seq) DO UPDATE SET key = excluded.key, waits = true`)

// Enter implements depend.Tx. The keys are locked.
func (c *counter) Enter(batch []storage.Insert, added func(int) bool) {
	var seqs []int64
	var keys []string
	for k := range batch {
		in := &batch[k]
		if !in.Waits() || !added(k) {
			continue
		}
		w := c.Find(in.Record.ID)
		w.depends, w.counted = true, true
		if in.OrderingKey == "" {
			continue
		}
		c.lines.locked[in.OrderingKey] = true
		if w.State == ojs.StatePending { // or it has been replaced
			w.awaited = true
			seqs, keys = append(seqs, w.Seq), append(keys, in.OrderingKey)
		}
	}
	if len(seqs) > 0 {
		c.exec(enterLinesSQL, seqs, keys)
	}
}

// lines are the lines of the jobs that a transaction has ended or stored.
type lines struct {
	left   map[int64]string // keys of jobs that have ended, until their ends are counted
	shared bool             // several jobs of a key have ended
	locked map[string]bool  // keys
	first  map[string]int64 // by key, as look has found it; 0: none waits, or one has the turn
	turns  map[string]int64 // by key: the job that the transaction has given the turn
	given  []int64          // jobs whose turns are not stored yet
	aside  []int64          // jobs in line that do not decode
}

func newLines() lines {
	return lines{left: make(map[int64]string), locked: make(map[string]bool),
		first: make(map[string]int64), turns: make(map[string]int64)}
}

// leave notes that a job that has ended has left its line. It reports whether the job had
// the turn.
func (c *counter) leave(seq int64, key string, waits bool) (turn bool) {
	for _, k := range c.lines.left {
		c.lines.shared = c.lines.shared || k == key
	}
	c.lines.left[seq] = key
	w := c.jobs[seq]
	return !waits || w != nil && !w.Dependencies.InLine
}

// lockLines locks keys, and looks who is first in their lines.
func (c *counter) lockLines(keys []string) {
	if len(keys) == 0 {
		return
	}
	c.lock("line ", keys)
	for _, k := range keys {
		c.lines.locked[k] = true
	}
	c.look(keys)
}

// firstInLineSQL returns the first job in line of each of the keys $1 of which no job
// has the turn, without the jobs $2. A job that has left the state pending has the turn.
var firstInLineSQL = define("firstInLine", `SELECT u.key, l.seq FROM unnest($1::text[]) u (key) CROSS JOIN LATERAL (
			SELECT l.seq, l.waits AND (SELECT s.state FROM {schema}.stage s WHERE s.seq = l.seq) = 1 AS waits
			FROM {schema}.line l WHERE l.key = u.key AND l.seq <> ALL ($2::bigint[])
			AND (SELECT s.state FROM {schema}.stage s WHERE s.seq = l.seq) < 6
			ORDER BY l.waits, l.seq LIMIT 1) l
		WHERE l.waits`)

// look finds, locks and reads the first in line of each of the keys of which no job has
// the turn.
func (c *counter) look(keys []string) {
	without := append([]int64{}, c.lines.aside...)
	for seq, w := range c.jobs {
		if w != nil && w.State.Terminal() {
			without = append(without, seq)
		}
	}
	for _, k := range keys {
		c.lines.first[k] = 0
	}
	var key string
	var seq int64
	var unread []int64
	c.query(firstInLineSQL, each([]any{&key, &seq}, func() {
		c.lines.first[key] = seq
		if c.jobs[seq] == nil {
			unread = append(unread, seq)
		}
	}), keys, without)
	c.readWaiting(unread)
}

// First implements depend.Tx. It locks the key.
func (c *counter) First(key string) (first *waiter, some bool) {
	if w := c.jobs[c.lines.turns[key]]; w != nil && !w.State.Terminal() {
		return nil, false
	}
	var missed int64
	for {
		seq, looked := c.lines.first[key]
		switch {
		case !looked:
			c.look([]string{key})
			continue
		case seq != 0 && !c.lines.locked[key]: // there may be others by now
			c.lockLines([]string{key})
			continue
		}
		delete(c.lines.first, key)
		w := c.jobs[seq]
		switch {
		case seq == 0:
			return nil, false
		case w == nil: // it has left the line since; or, if it is still there, does not decode
			if seq == missed {
				c.lines.aside = append(c.lines.aside, seq)
			}
			missed = seq
		case w.State.Terminal():
		case !w.InLine():
			return nil, false
		default:
			c.lines.turns[key] = seq
			c.lines.given = append(c.lines.given, seq)
			return w, true
		}
	}
}
