package sqlite

import (
	"os"
	"time"

	zombiezen "zombiezen.com/go/sqlite"
)

// turn is a lock beside the database file. A process holds it while it waits for SQLite's own lock on writing, and nobody asks
// for that one without it: who has been waiting comes before who has just written. SQLite by itself has those who wait ask again
// ever more seldom, up to ten times a second, and a process that writes all the time is hardly ever found not writing. It is a
// courtesy: what keeps the file whole are SQLite's locks.
type turn struct{ f *os.File }

// openTurn makes the lock of a database file. It stays there when it is closed: others may have it.
func openTurn(path string) (*turn, error) {
	f, err := os.OpenFile(path+"-turn", os.O_RDWR|os.O_CREATE, 0o666)
	return &turn{f}, err
}

func (t *turn) close() error { return t.f.Close() }

const (
	// Those who wait look after an eighth of the time that they have waited already, within these bounds: a short wait does not
	// become a long one, and a long one costs little.
	shortestWait = 50 * time.Microsecond
	longestWait  = 2 * time.Millisecond
)

// begin begins a transaction when it is the writer's turn, or fails after the busy timeout.
func (w *writer) begin() error {
	began := wall.Now()
	wait := func() bool { // false: it has been long enough
		waited := wall.Since(began)
		if waited >= w.busy {
			return false
		}
		wall.Sleep(min(max(waited/8, shortestWait), longestWait, w.busy-waited))
		return true
	}
	for !w.turn.lock() && wait() {
	}
	defer w.turn.unlock()
	for {
		q := query(w.conn, "BEGIN IMMEDIATE")
		q.next()
		err := q.close()
		if zombiezen.ErrCode(err).ToPrimary() != zombiezen.ResultBusy || !wait() {
			return err
		}
	}
}
