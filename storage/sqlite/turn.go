package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"time"

	zombiezen "zombiezen.com/go/sqlite"
)

// turn is a lock beside the database file. A process holds it while it waits for SQLite's
// own lock on writing, and nobody asks for that one without it: one that has been waiting
// goes before one that has just written. By itself SQLite asks again ever more seldom,
// down to ten times a second, and hardly ever finds a busy writer not writing. It is a
// courtesy: what keeps the file whole are SQLite's locks.
type turn struct{ f *os.File } // nil: it is another user's

// openTurn opens the lock of a database file, for all who may use that. It stays when it
// is closed: others may have it open. One who may not open it goes without: it may be of
// a time when the database was not for others.
func openTurn(path string, mode os.FileMode) (*turn, error) {
	f, err := createBeside(path+"-turn", mode, 0)
	if errors.Is(err, fs.ErrPermission) {
		return &turn{}, nil
	}
	return &turn{f}, err
}

// createBeside opens a file beside the database, or makes it with the mode of that,
// whatever the umask.
func createBeside(path string, mode os.FileMode, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, mode)
	if err == nil {
		_ = f.Chmod(mode) // where there are modes
		return f, nil
	}
	if !errors.Is(err, fs.ErrExist) || flag&os.O_EXCL != 0 {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDONLY|os.O_CREATE, mode)
}

func (t *turn) close() error {
	if t.f == nil {
		return nil
	}
	return t.f.Close()
}

const (
	// Those who wait look after an eighth of the time that they have waited already,
	// within these bounds: a short wait does not become a long one, and a long one costs
	// little.
	shortestWait = 50 * time.Microsecond
	longestWait  = 2 * time.Millisecond
)

// patience is for others that have the file.
type patience struct {
	since time.Time
	most  time.Duration
}

// wait waits a little, and reports false if it has been long enough.
func (p *patience) wait() bool {
	waited := wall.Since(p.since)
	if waited >= p.most {
		return false
	}
	wall.Sleep(min(max(waited/8, shortestWait), longestWait, p.most-waited))
	return true
}

// untilFree makes a call again as long as somebody else is in its way.
func (p *patience) untilFree(f func() error) error {
	for {
		err := f()
		if zombiezen.ErrCode(err).ToPrimary() != zombiezen.ResultBusy || !p.wait() {
			return err
		}
	}
}

// begin begins a transaction when it is the writer's turn, or fails after the busy
// timeout.
func (w *writer) begin() error {
	p := patience{wall.Now(), w.busy}
	for !w.turn.lock() && p.wait() {
	}
	defer w.turn.unlock()
	return p.untilFree(func() error {
		q := query(w.conn, "BEGIN IMMEDIATE")
		q.next()
		return q.close()
	})
}
