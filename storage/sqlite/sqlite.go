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
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
)

// Storage is a storage.Storage in a file. Make it with Open. Package keyed has the rules
// of jobs.
type Storage struct {
	contract
	keyed *keyed.Storage
	store *store
}

// contract is what a Storage has of package keyed.
type contract interface {
	storage.Storage
	storage.Notifier
	storage.Quarantiner
	storage.SettleClaimer
	storage.Transactor
}

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
	db := newStore(path, cfg)
	s, err := db.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("ojs: sqlite: opening %s: %w", path, db.explain(foreign(err)))
	}
	return s, nil
}

// Capabilities implements storage.Storage.
func (s *Storage) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "sqlite", Durable: true, Unique: storage.Strong,
		Mechanism: "one writer", Shared: true}
}
