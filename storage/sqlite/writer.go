package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs/internal/notify"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// maxGroup bounds how many calls share a transaction, so that none waits for long for the
// others.
const maxGroup = 512

// writer makes the calls that change something, on one goroutine and one connection.
// Calls that come while a transaction is being committed share the next one, and its wait
// for the disk.
type writer struct {
	conn *zombiezen.Conn
	turn *turn
	busy time.Duration // how long to wait for other processes
	poll time.Duration
	hub  *notify.Hub
	// The loop's.
	lanes  rows.Lanes
	behind int64 // as the lanes know it; see tx
	limits limits
	holder *holder
	others map[int64]string // the holders of other storages, by id; nil: not known

	calls chan *call
	next  *call // the loop's: one that was taken from calls and waits for its own transaction
	done  chan struct{}
	err   error // of closing the connection; to be read when done is closed

	commits atomic.Int64
}

// call is a call that changes something, on its way through the writer.
type call struct {
	f     func(*tx) error
	alone bool         // it shares its transaction with no other call
	state atomic.Int32 // pending, then begun or given up
	err   error        // to be read when ended is closed
	ended chan struct{}
}

const (
	pending = iota
	begun
	givenUp
)

func newWriter(conn *zombiezen.Conn, turn *turn, holder *holder, cfg config, hub *notify.Hub) *writer {
	conn.SetBusyTimeout(0) // begin waits by itself
	w := &writer{
		conn: conn, turn: turn, holder: holder, busy: cfg.busy, poll: cfg.poll, hub: hub,
		calls: make(chan *call, maxGroup), done: make(chan struct{}),
	}
	go w.loop()
	return w
}

// close ends the writer. The caller makes sure that no call comes after it.
func (w *writer) close() error {
	close(w.calls)
	<-w.done
	return w.err
}

// do makes a call and returns when it is committed. A context that ends while the call
// still waits for its turn ends it.
func (w *writer) do(ctx context.Context, f func(*tx) error) error {
	c := newCall(f)
	if err := w.send(ctx, c); err != nil {
		return err
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		if c.state.CompareAndSwap(pending, givenUp) {
			return ctx.Err()
		}
		<-c.ended // what it did is known soon
	}
	return wrap(c.err)
}

func newCall(f func(*tx) error) *call { return &call{f: f, ended: make(chan struct{})} }

// send hands a call to the loop.
func (w *writer) send(ctx context.Context, c *call) error {
	select {
	case w.calls <- c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *writer) loop() {
	defer close(w.done)
	defer func() { w.err = errors.Join(w.conn.Close(), w.turn.close(), w.holder.leave()) }()
	look := wall.Ticker(w.poll)
	defer look.Stop()
	seen, _ := number(w.conn, dataVersion)
	group := make([]*call, 0, maxGroup)
	transact := func(c *call) {
		group = append(group[:0], c)
		w.transact(&group)
		for _, c := range group {
			close(c.ended)
		}
	}
	for {
		for w.next != nil {
			c := w.next
			w.next = nil
			transact(c)
		}
		select {
		case c, ok := <-w.calls:
			if !ok {
				return
			}
			transact(c)
		case <-look.C:
			// The number changes when another connection commits, and no other of this
			// process writes.
			v, err := number(w.conn, dataVersion)
			changed := err == nil && v != seen
			if changed {
				seen = v
			}
			if buried := w.watchHolders(changed); changed || buried {
				w.hub.Tell(context.Background(), storage.Notice{Everything: true})
			}
		}
	}
}

// lend waits for the end of the function of a Within, which has the transaction
// meanwhile. When the busy timeout is over, the calls that wait for the function fail,
// since the function may wait for one of them.
func (w *writer) lend(back <-chan error) error {
	late := wall.Ticker(max(w.busy, time.Millisecond))
	defer late.Stop()
	for {
		select {
		case err := <-back:
			return err
		case <-late.C:
		}
		for refusing := true; refusing; {
			select {
			case c, ok := <-w.calls:
				if refusing = ok; ok {
					c.err = ErrWithin
					close(c.ended)
				}
			default:
				refusing = false
			}
		}
	}
}

// wall is the wall clock, which other processes go by too.
var wall = clock.New()

// transact runs a transaction for the call in group and for those that have come
// meanwhile, which it adds.
func (w *writer) transact(group *[]*call) {
	t := &tx{conn: w.conn, lanes: &w.lanes, limits: &w.limits, holder: w.holder.id}
	ran := 0 // calls whose effects the commit is about
	failed := w.begin()
	if failed == nil {
		t.broken = t.refresh()
		if t.behind != w.behind {
			w.lanes.Forget()
		}
		for i := 0; t.broken == nil && i < len(*group); i++ {
			c := (*group)[i]
			if c.state.CompareAndSwap(pending, begun) {
				if c.err = t.try(c.f); c.err == nil {
					ran++
				}
			} else {
				c.err = context.Canceled // the caller has left
			}
			if t.broken == nil && i == len(*group)-1 && len(*group) < maxGroup && !c.alone {
				select {
				case next, ok := <-w.calls:
					switch {
					case ok && next.alone:
						w.next = next
					case ok:
						*group = append(*group, next)
					}
				default:
				}
			}
		}
		if failed = t.end(); failed == nil {
			w.behind = t.behind
			w.commits.Add(1)
		}
	}
	if failed == nil {
		return
	}
	w.lanes.Forget() // what has been taken is there again
	w.limits = limits{}
	for _, c := range *group {
		if c.state.CompareAndSwap(pending, begun) || c.err == nil {
			c.err = failed
		}
	}
}

// tx is a transaction that several calls share.
type tx struct {
	conn    *zombiezen.Conn
	lanes   *rows.Lanes
	limits  *limits
	holder  int64 // 0: none
	broken  error // the transaction is of no more use
	written bool  // the call under way has begun to write

	seq, place int64 // the latest that were given out
	behind     int64 // how often comesBehind was called, by any process
	changed    int64 // the latest number of a change of a limit
	settings   int64 // how often a limit of a queue or type was set
	forgotten  int64 // the highest change of a limit that was forgotten
	given      bool  // any of these has changed
	moved      map[kind]int
	levels     map[level]*servedRound // that the transaction has looked at
	states     map[string]string      // of queues; nil: not read yet
	notice     *storage.Notice        // what the call under way does; nil: no listener

	toCount []dependency // jobs that others may wait for and that the call under way has ended

	// what the call under way has set aside, which stays even if the call fails
	quarantined []storage.Quarantined
}

// kind is what the tally counts.
type kind struct {
	queue string
	state int
	dead  bool
	kept  bool // not to be pruned yet
}

// class is what the tally has for dead and kept.
func (k *kind) class() (class int) {
	if k.dead {
		class |= 1
	}
	if k.kept {
		class |= 2
	}
	return class
}

// refresh reads what another process may have changed since the last transaction.
func (t *tx) refresh() error {
	q := t.query(selectCounter)
	if q.next() {
		t.seq, t.place, t.behind = q.int64(), q.int64(), q.int64()
		t.changed, t.settings, t.forgotten = q.int64(), q.int64(), q.int64()
	}
	return q.close()
}

// comesBehind says that a job becomes available in a place that claims may have passed,
// or changes there. The claims of every process then look from the beginning again.
func (t *tx) comesBehind() {
	t.lanes.Forget()
	t.behind++
	t.given = true
}

// try makes a call. If it fails, nothing of it stays: calls check what may refuse them
// before they write. A failure after the first write is the database's, and fails the
// transaction.
func (t *tx) try(f func(*tx) error) error {
	t.written, t.notice, t.quarantined, t.toCount = false, nil, nil, nil
	err := protect(t, f)
	if err != nil && t.written {
		t.broken = err
	}
	return err
}

// protect keeps the writer alive: a panic is an error of the call.
func protect(t *tx, f func(*tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("ojs: sqlite: panic: %v", p)
		}
	}()
	return f(t)
}

// end commits, or rolls back what is broken.
func (t *tx) end() error {
	err := t.broken
	if err == nil {
		err = t.flush()
	}
	if err == nil {
		err = t.exec("COMMIT")
	}
	if err != nil && !t.conn.AutocommitEnabled() {
		err = errors.Join(err, t.exec("ROLLBACK"))
	}
	return err
}

// flush writes what the transaction has collected.
func (t *tx) flush() error {
	for k, n := range t.moved {
		if n == 0 {
			continue
		}
		if err := t.exec(upsertTally, k.queue, k.state, k.class(), n); err != nil {
			return err
		}
		if n < 0 {
			if err := t.exec(trimTally, k.queue, k.state, k.class()); err != nil {
				return err
			}
		}
	}
	if err := t.flushServed(); err != nil {
		return err
	}
	if t.given {
		return t.exec(updateCounter, t.seq, t.place, t.behind, t.changed, t.settings, t.forgotten)
	}
	return nil
}

func (t *tx) count(k kind, n int) {
	if t.moved == nil {
		t.moved = make(map[kind]int)
	}
	t.moved[k] += n
}

// note keeps what others may want to know of a job that has changed.
func (t *tx) note(c *rows.Columns) {
	if t.notice != nil {
		rows.Note(t.notice, c)
	}
}

// taken keeps that a claim has been taken from its holder.
func (t *tx) taken(id string, version int64, cause error) {
	if t.notice != nil {
		t.notice.Taken = append(t.notice.Taken,
			storage.Taken{Held: storage.Held{ID: id, Version: uint64(version)}, Cause: cause})
	}
}

func (t *tx) nextSeq() int64 {
	t.given = true
	t.seq++
	return t.seq
}

// firstVersion is that of a new job, above all that others have or had: no version is
// above the latest place.
func (t *tx) firstVersion() int64 { return t.nextPlace() }

// coversVersion keeps that no version is above the latest place.
func (t *tx) coversVersion(v int64) {
	if t.place < v {
		t.given = true
		t.place = v
	}
}

func (t *tx) nextPlace() int64 {
	t.given = true
	t.place++
	return t.place
}
