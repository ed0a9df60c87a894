// Package sqlite keeps jobs in an SQLite file: durable on one machine, with nothing to
// install.
//
//	store, err := sqlite.Open(ctx, "jobs.db")
//	eng, err := engine.New[Email](store)
//
// An enqueue that has returned is on the disk and survives a crash of the process or the
// machine (WithSynchronous may ask for less). Concurrent calls share a commit, so that
// many producers together are many times as fast as one alone. Several processes may work
// on one file, on one machine: the file must not be on a network file system.
//
// Unique jobs are strong: SQLite has one writer at a time.
//
// The driver is pure Go: SQLite itself, translated (modernc.org/sqlite), with the
// interface of zombiezen.com/go/sqlite.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	zombiezen "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/notify"
	"github.com/ojsengine/ojs/storage"
)

// Storage is a storage.Storage in a file. Make it with Open.
type Storage struct {
	path    string
	config  config
	writer  *writer
	readers chan *zombiezen.Conn
	file    os.FileInfo // as which it is noted to be open
	hub     notify.Hub
	lent    atomic.Pointer[string] // the goroutine that runs the function of a Within; nil: none

	mu     sync.RWMutex // held for reading by every call, for writing by Close
	closed bool
}

var (
	_ storage.Storage       = (*Storage)(nil)
	_ storage.Notifier      = (*Storage)(nil)
	_ storage.Quarantiner   = (*Storage)(nil)
	_ storage.SettleClaimer = (*Storage)(nil)
	_ storage.Transactor    = (*Storage)(nil)
)

// Errors of Open.
var (
	// ErrForeign refuses a file that is no SQLite database, or that of another program.
	// It is left as it was.
	ErrForeign = errors.New("ojs: sqlite: the file is not a job database")
	// ErrCorrupt refuses a damaged file. It is left as it was.
	ErrCorrupt = errors.New("ojs: sqlite: the file is damaged")
	// ErrNewer refuses a file that a later version of this package has migrated.
	ErrNewer = errors.New("ojs: sqlite: the file is of a newer version; update this program")
	// ErrMissing refuses a file without jobs, such as an empty one, if Open does not
	// migrate it: see WithoutMigration.
	ErrMissing = errors.New("ojs: sqlite: the file is empty: no program has made a job database in it")
	// ErrOlder refuses a file that an earlier version has made, if Open does not migrate
	// it: see WithoutMigration.
	ErrOlder = errors.New("ojs: sqlite: the file is of an older version")
)

// Synchronous is what a commit waits for: SQLite's setting "synchronous".
type Synchronous string

const (
	// Full waits until the disk has the commit. Acknowledged calls survive a loss of
	// power. It is the default.
	Full Synchronous = "full"
	// Normal leaves the moment to the operating system. Acknowledged calls survive the
	// end of the process, kill -9 included. A loss of power may lose the last moments,
	// and never damages the file.
	Normal Synchronous = "normal"
)

// Option configures Open.
type Option func(*config)

type config struct {
	synchronous Synchronous
	busy        time.Duration
	readers     int
	poll        time.Duration
	mode        os.FileMode // of a new file
	modeGiven   bool        // otherwise the umask decides
	asIs        bool        // the schema is not migrated
}

// WithSynchronous sets what a commit waits for.
func WithSynchronous(s Synchronous) Option { return func(c *config) { c.synchronous = s } }

// WithBusyTimeout sets how long a call waits for another process that is writing: 10 s by
// default. Then it fails, and engines try again.
func WithBusyTimeout(d time.Duration) Option { return func(c *config) { c.busy = d } }

// WithReaders sets how many listings and lookups go on at once, 4 by default. They never
// wait for writers.
func WithReaders(n int) Option { return func(c *config) { c.readers = n } }

// WithPoll sets how often a process checks whether another one has written to the file,
// 100 ms by default. The check costs some microseconds and reads no job. Engines of one
// process hear of each other's calls at once.
func WithPoll(d time.Duration) Option { return func(c *config) { c.poll = d } }

// WithFileMode sets the mode of a file that Open makes, such as 0o600. The umask does not
// change it. The default is 0o644 without the bits of the umask. A file that is there
// keeps its mode. The files beside it, "-wal" and "-shm", which hold jobs too, and the
// empty lock files "-turn" and "-live-...", get the mode of the database. On Windows
// modes mean little.
func WithFileMode(mode os.FileMode) Option {
	return func(c *config) { c.mode, c.modeGiven = mode, true }
}

// WithoutMigration has Open refuse a file whose schema is not up to date, with ErrOlder
// or ErrMissing, where otherwise it brings the schema up to date. Open then makes no file
// either. Programs that look at the file of another program need it.
func WithoutMigration() Option { return func(c *config) { c.asIs = true } }

func (c *config) validate() error {
	bad := func(field, reason string) error {
		return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: field, Reason: reason}
	}
	switch {
	case c.synchronous != Full && c.synchronous != Normal:
		return bad("synchronous", fmt.Sprintf("%q is neither full nor normal", c.synchronous))
	case c.busy < 0:
		return bad("busy_timeout", fmt.Sprintf("%v is negative; 0 does not wait", c.busy))
	case c.readers < 1:
		return bad("readers", fmt.Sprintf("%d is less than 1", c.readers))
	case c.modeGiven && (c.mode&0o600 != 0o600 || c.mode&^0o777 != 0):
		return bad("file_mode",
			fmt.Sprintf("%#o is no mode with which the owner may read and write, such as 0o600",
				uint32(c.mode)))
	case c.poll <= 0:
		return bad("poll", fmt.Sprintf("%v is not positive", c.poll))
	}
	return nil
}

// Open opens the storage in a file, which it makes if there is none, and brings its
// schema up to date, unless WithoutMigration is given. The path is that of a file in a
// directory that exists. A URI and ":memory:" are refused: storage/memory keeps jobs in
// memory. The errors are ErrForeign, ErrCorrupt, ErrNewer, ErrOlder, ErrMissing, an
// *ojs.InvalidError of the path or an option, and those of SQLite with their reasons.
func Open(ctx context.Context, path string, opts ...Option) (*Storage, error) {
	cfg := config{synchronous: Full, busy: 10 * time.Second, readers: 4, poll: 100 * time.Millisecond}
	for _, opt := range opts {
		if opt == nil {
			return nil, &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "option", Reason: "is nil"}
		}
		opt(&cfg)
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := checkPath(path); err != nil {
		return nil, err
	}
	s := &Storage{path: path, config: cfg}
	if err := s.open(ctx); err != nil {
		return nil, fmt.Errorf("ojs: sqlite: opening %s: %w", path, s.explain(foreign(err)))
	}
	return s, nil
}

func (s *Storage) open(ctx context.Context) (err error) {
	conn, err := s.connectFirst(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, conn.Close(), s.closeReaders())
			letGo(s.file)
		}
	}()
	// When several processes open a new file, SQLite tells some at once that it is
	// locked, where waiting would not help.
	p := patience{wall.Now(), s.config.busy}
	err = p.untilFree(func() error {
		if err := migrate(conn, s.config.asIs); err != nil {
			return err
		}
		return configure(conn, s.config)
	})
	if err != nil {
		return err
	}
	s.readers = make(chan *zombiezen.Conn, s.config.readers)
	for range s.config.readers {
		r, err := s.connect(ctx)
		if err != nil {
			return err
		}
		s.readers <- r
		if err := run(r, "PRAGMA query_only = 1"); err != nil {
			return err
		}
	}
	turn, err := openTurn(s.path, s.file.Mode().Perm())
	if err != nil {
		return err
	}
	h := newHolder(s.path, s.file.Mode().Perm())
	var gone []string
	p = patience{wall.Now(), s.config.busy}
	err = p.untilFree(func() (err error) {
		end, err := sqlitex.ImmediateTransaction(conn)
		if err != nil {
			return err
		}
		defer end(&err)
		gone, err = h.enter(&tx{conn: conn})
		return err
	})
	if err != nil {
		return errors.Join(err, turn.close(), h.leave())
	}
	for _, path := range gone {
		_ = os.Remove(path) // or another process does
	}
	s.writer = newWriter(conn, turn, h, s.config, &s.hub)
	return nil
}

// connectFirst makes a connection to a file that has been looked at.
func (s *Storage) connectFirst(ctx context.Context) (*zombiezen.Conn, error) {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if !isOpen(s.path) {
		if err := checkFile(s.path); err != nil {
			return nil, err
		}
		if s.config.modeGiven {
			if err := makeFile(s.path, s.config.mode); err != nil {
				return nil, err
			}
		}
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	if s.file, err = keepOpen(s.path); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (s *Storage) connect(ctx context.Context) (*zombiezen.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	flags := []zombiezen.OpenFlags{zombiezen.OpenReadWrite}
	if !s.config.asIs {
		flags = append(flags, zombiezen.OpenCreate)
	}
	conn, err := zombiezen.OpenConn(s.path, flags...)
	if err != nil {
		return nil, err
	}
	conn.SetBusyTimeout(s.config.busy)
	return conn, nil
}

func (s *Storage) closeReaders() (err error) {
	for len(s.readers) > 0 {
		err = errors.Join(err, (<-s.readers).Close())
	}
	return err
}

// Capabilities implements storage.Storage.
func (s *Storage) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "sqlite", Durable: true, Unique: storage.Strong,
		Mechanism: "one writer", Shared: true}
}

// Close implements storage.Storage. It waits for the calls that are under way.
func (s *Storage) Close() error {
	if err := s.refuseWithin(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	defer letGo(s.file)
	return errors.Join(s.writer.close(), s.closeReaders())
}

// enter begins a call, which s.mu.RUnlock ends.
func (s *Storage) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := storage.CheckTx(ctx); err != nil {
		return err
	}
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return fmt.Errorf("%w: sqlite storage", ojs.ErrClosed)
	}
	return nil
}

// write makes a call that changes something: f, within a transaction that it may share
// with others. If f fails, what it did is undone.
func (s *Storage) write(ctx context.Context, f func(*tx) error) error {
	if j := s.joins(ctx); j != nil {
		return j.write(ctx, f)
	}
	if err := s.refuseWithin(); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.RUnlock()
	if !s.hub.HasListeners() {
		return s.writer.do(ctx, f)
	}
	var n storage.Notice
	var aside []storage.Quarantined
	heard := s.hub.Heard(ctx)
	err := s.writer.do(ctx, func(t *tx) error {
		if heard {
			t.notice = &n
		}
		defer func() { aside = t.quarantined }()
		return f(t)
	})
	if err == nil {
		s.hub.Tell(ctx, n)
	}
	if len(aside) > 0 { // of which the caller, too, wants to hear
		s.hub.Tell(context.Background(), storage.Notice{Quarantined: aside})
	}
	return err
}

// Notify implements storage.Notifier. A call in this process notifies the listeners
// before it returns. They hear of another process's calls at the next check (WithPoll).
func (s *Storage) Notify(self any, f func(storage.Notice)) (stop func()) {
	return s.hub.Notify(self, f)
}

// read makes a call that changes nothing, of one moment.
func (s *Storage) read(ctx context.Context, f func(*zombiezen.Conn) error) error {
	if j := s.joins(ctx); j != nil {
		return j.read(ctx, f)
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.RUnlock()
	var conn *zombiezen.Conn
	select {
	case conn = <-s.readers:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.readers <- conn }()
	conn.SetInterrupt(ctx.Done())
	err := query(conn, "BEGIN").exec()
	if err == nil {
		err = f(conn)
	}
	conn.SetInterrupt(nil) // the transaction ends even if ctx has ended
	if !conn.AutocommitEnabled() {
		err = errors.Join(err, query(conn, "ROLLBACK").exec())
	}
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	return wrap(err)
}

// wrap marks an error of SQLite as such.
func wrap(err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "ojs: ") || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("ojs: sqlite: %w", err)
}
