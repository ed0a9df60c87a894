package sqlite

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/benbjohnson/clock"
	zombiezen "zombiezen.com/go/sqlite"
)

// turn is a lock beside the database file, so that writers of several processes
// alternate. A process holds it while it waits for SQLite's own lock on writing, and does
// not ask for that one without it: a process that waits goes before one that has just
// written. SQLite alone asks again ever more seldom, down to ten times a second, and
// hardly ever finds a busy writer not writing. The turn is about fairness only: SQLite's
// locks keep the file whole.
type turn struct{ f *os.File } // nil: it is another user's

// openTurn opens the lock of a database file, with the file's mode. The lock's file stays
// after close, since other processes may have it open. Without permission to open it,
// SQLite's own busy wait applies: the lock may be older than the mode of the database.
func openTurn(path string, mode os.FileMode) (*turn, error) {
	f, err := createBeside(path+"-turn", mode, 0)
	if errors.Is(err, fs.ErrPermission) {
		return &turn{}, nil
	}
	return &turn{f}, err
}

// createBeside opens a file beside the database, or makes it with the mode of that. The
// umask does not change the mode.
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

// lock takes the lock, and reports false if another one has it. A system that has no such
// locks is no reason to wait. The end of a process gives it back.
func (t *turn) lock() bool {
	if t.f == nil {
		return true
	}
	got, able := lockFile(t.f, true)
	return got || !able
}

func (t *turn) close() error {
	if t.f == nil {
		return nil
	}
	return t.f.Close()
}

const (
	// A waiting process tries again after an eighth of the time that it has waited
	// already, within these bounds: a short wait does not become a long one, and a long
	// one costs little.
	shortestWait = 50 * time.Microsecond
	longestWait  = 2 * time.Millisecond
)

// wall is the wall clock, which other processes go by too.
var wall = clock.New()

// patience is for others that have the file. The end of the context ends it.
type patience struct {
	ctx   context.Context
	since time.Time
	most  time.Duration
}

// wait waits a little, and reports false if it has been long enough.
func (p *patience) wait() bool {
	waited := wall.Since(p.since)
	if waited >= p.most || p.ctx.Err() != nil {
		return false
	}
	wall.Sleep(min(max(waited/8, shortestWait), longestWait, p.most-waited))
	return true
}

// untilFree repeats a call while another process blocks it. The connection must not wait
// by itself, since the end of the context would not end that.
func (p *patience) untilFree(f func() error) error {
	for {
		err := f()
		if zombiezen.ErrCode(err).ToPrimary() != zombiezen.ResultBusy {
			return err
		} else if !p.wait() {
			return cmp.Or(p.ctx.Err(), err)
		}
	}
}
