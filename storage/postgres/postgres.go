// Package postgres keeps jobs in PostgreSQL, for as many processes and machines as share
// the database.
//
//	pool, err := pgxpool.New(ctx, "postgres://...")
//	store, err := postgres.Open(ctx, pool)
//	eng, err := engine.New[Email](store)
//
// An enqueue that has returned is committed. WithTx makes it part of a transaction of the
// caller's: the job exists if and only if that commits. Concurrent enqueues share a
// statement, as concurrent results do.
//
// Engines claim jobs with FOR UPDATE SKIP LOCKED. No engine leads: any of them may stop
// at any moment. They notify each other of new jobs with LISTEN and NOTIFY. A periodic
// poll (WithPoll) finds changes whose notification was lost. Uniqueness is strong:
// enqueues of equal jobs lock a row.
//
// Time is the database's: the storage knows how far the clock of this machine is from it,
// and engines follow (storage.Clocked).
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/notify"
	"github.com/ojsengine/ojs/storage"
)

// Storage is a storage.Storage in a schema of a database. Make it with Open.
type Storage struct {
	pool   *pgxpool.Pool
	config config
	sql    []string // the texts of the statements, by their numbers

	known   int    // the version of the schema that this program is for; Open sets it
	id      string // in notifications
	clock   clock.Clock
	offset  atomic.Int64          // of the database's clock
	refusal atomic.Pointer[error] // why calls are refused, as of the last poll
	paused  atomic.Bool           // some queue is, as of the last look: how to claim quickly, not what

	healed  atomic.Pointer[time.Time]          // when heal last reset the pool; nil: never
	silent  atomic.Bool                        // the last call had no answer in time
	doubted atomic.Pointer[time.Time]          // until when the storage doubts; nil: it never did
	closing chan struct{}                      // a token for each connection that closes outside of the pool
	awaits  atomic.Bool                        // commits wait for a standby, as of the last look
	unheard atomic.Pointer[error]              // why the listener fails; nil: no failure is known
	deafen  atomic.Pointer[context.CancelFunc] // ends the connection of the listener
	proven  bool                               // probes have come back; the listener's own

	counting atomic.Bool // the last Settle or step has ended jobs that others wait for: a hint

	limited  atomic.Bool  // jobs with limits are about, as far as the last claim knows: a hint
	openTold atomic.Int64 // the latest storage.Notice.Opens
	closings closings

	// wide are the queues and types that have been set or blocked, as of the last look:
	// whose ends to tell.
	wide atomic.Pointer[map[storage.LimitName]bool]

	aside chan struct{} // holds a token while a call moves rows to the quarantine

	inserts batcher[*insertCall]
	settles batcher[*settleCall]

	isolated bool // the default isolation does not see what others commit

	// The same for calls that may wait for the rounds of a queue (fair.go).
	insertsInTurn batcher[*insertCall]
	settlesInTurn batcher[*settleCall]

	hub  notify.Hub
	out  outbox
	stop context.CancelFunc
	ends sync.WaitGroup // of the goroutines that stop stops

	mu     sync.RWMutex // held for reading by every call, for writing by Close
	closed bool
}

var (
	_ storage.Storage       = (*Storage)(nil)
	_ storage.SettleClaimer = (*Storage)(nil)
	_ storage.Notifier      = (*Storage)(nil)
	_ storage.NotifyChecker = (*Storage)(nil)
	_ storage.Clocked       = (*Storage)(nil)
	_ storage.Quarantiner   = (*Storage)(nil)
)

// Option configures Open.
type Option func(*config)

type config struct {
	schema string
	poll   time.Duration
	log    *slog.Logger
	clock  clock.Clock // of this machine
	deaf   bool        // for tests: hear nothing
	asIs   bool        // do not migrate
	keeps  bool        // do not reset the pool

	patience  time.Duration   // with a statement or a short transaction
	listenDSN string          // "": listen where the pool leads
	listen    *pgx.ConnConfig // of listenDSN
}

// WithSchema sets the name of the database schema, "ojs" by default: lower-case letters,
// digits and "_", the first a letter, at most 48. Storages in different schemas know
// nothing of each other.
func WithSchema(name string) Option { return func(c *config) { c.schema = name } }

// WithoutMigration has Open refuse a schema that is not up to date, with ErrOlder or
// ErrMissing, where it would migrate it otherwise. So does Open for a role that may not
// migrate.
func WithoutMigration() Option { return func(c *config) { c.asIs = true } }

// WithoutPoolReset leaves the pool alone after calls that fail with ErrReadOnly or that
// had no answer in time. Without it such a call resets the pool (pgxpool.Pool.Reset), at
// most once a second: after a fail-over the connections of the pool may still lead to the
// old primary. Give the option if the program resets the pool by itself.
func WithoutPoolReset() Option { return func(c *config) { c.keeps = true } }

// WithPoll sets how often to look for what no notification told of, 1 s by default, and
// ten times as long while notifications are known to come. The look costs some short
// statements.
func WithPoll(d time.Duration) Option { return func(c *config) { c.poll = d } }

// WithPatience sets how long a call waits for an answer of the database before it fails
// with ErrUnavailable, 30 s by default. After such a failure calls wait 5 s at most,
// until the server has answered one. The time includes the wait for a connection of the
// pool. Shorter times end an outage sooner where a server hangs without closing its
// connections; longer ones bear slower disks.
func WithPatience(d time.Duration) Option { return func(c *config) { c.patience = d } }

// WithListenDSN has the storage listen for notifications on a server of its own
// connection string, in the form that pgx.ParseConfig takes. Behind a pooler of
// transactions notifications do not arrive: give it the address of the server itself. The
// hooks BeforeConnect and AfterConnect of the pool apply to this connection, too.
func WithListenDSN(dsn string) Option { return func(c *config) { c.listenDSN = dsn } }

// WithLogger sets the logger for lost connections that no call reports. The default is
// slog.Default.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.log = l } }

var schemaName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

func (c *config) validate() error {
	switch {
	case !schemaName.MatchString(c.schema):
		return invalid("schema", "%q does not match %s", c.schema, schemaName)
	case c.poll <= 0:
		return invalid("poll", "%v is not positive", c.poll)
	case c.patience <= 0:
		return invalid("patience", "%v is not positive", c.patience)
	case c.log == nil:
		return invalid("logger", "is nil")
	case c.listenDSN == "":
		return nil
	}
	var err error
	if c.listen, err = pgx.ParseConfig(c.listenDSN); err != nil {
		return invalid("listenDSN", "%v", err)
	}
	return nil
}

// invalid refuses what an option or an argument is.
func invalid(field, reason string, args ...any) error {
	return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: field, Reason: fmt.Sprintf(reason, args...)}
}

func configure(opts []Option) (config, error) {
	cfg := config{schema: "ojs", poll: time.Second, log: slog.Default(), clock: wall,
		patience: defaultPatience}
	for _, opt := range opts {
		if opt == nil {
			return cfg, invalid("option", "is nil")
		}
		opt(&cfg)
	}
	return cfg, cfg.validate()
}

// newStorage makes a storage that is not opened.
func newStorage(pool *pgxpool.Pool, opts []Option) (*Storage, error) {
	cfg, err := configure(opts)
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, invalid("pool", "is nil")
	}
	return &Storage{pool: pool, config: cfg, sql: statementsIn(cfg.schema), id: uuid.NewString(),
		clock: cfg.clock}, nil
}

// Open opens the storage in a database. It makes the schema if there is none and brings
// it up to date, unless WithoutMigration is given. The pool stays the caller's, to be
// closed after the storage. Open waits for other processes that migrate, and for its own
// migrations, until ctx ends; later calls wait for an answer of the database as long as
// WithPatience says.
//
// A schema of a newer version fails it with ErrNewer. If Open may not migrate, an older
// schema fails it with ErrOlder, and a missing one with ErrMissing. If the sequences of
// the schema are behind its jobs, Open fails with ErrBehind. Other errors are those of
// options and of the database.
func Open(ctx context.Context, pool *pgxpool.Pool, opts ...Option) (*Storage, error) {
	s, err := newStorage(pool, opts)
	if err != nil {
		return nil, err
	}
	if err = s.ready(ctx); err == nil {
		err = s.checkPlaces(ctx)
	}
	if err == nil {
		err = s.within(ctx, func(ctx context.Context) error {
			return again(func() error { return fail.Caught(s.with(ctx, bare{pool}).lookAround) })
		})
	}
	if err != nil {
		return nil, wrap(err)
	}
	s.aside = make(chan struct{}, 1)
	s.closing = make(chan struct{}, pool.Config().MaxConns)
	s.inserts.flush, s.insertsInTurn.flush = s.flushInserts, s.flushInserts
	s.settles.flush, s.settlesInTurn.flush = s.flushSettles, s.flushSettles
	s.out.signal = make(chan struct{}, 1)
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.ends.Go(func() { s.watch(ctx) })
	s.ends.Go(func() { s.send(ctx) })
	return s, nil
}

// lookAround asks for what calls have to know of the database.
func (t *tx) lookAround() {
	var level string
	t.query(isolationSQL, one(&level))
	t.s.isolated = !seesCommits(level)
	t.measureClock()
	t.lookAtStates()
}

// Capabilities implements storage.Storage.
func (s *Storage) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "postgres", Durable: true, Unique: storage.Strong,
		Mechanism:    "row locks",
		InsertClaims: true, Shared: true}
}

// Close implements storage.Storage. It waits for the calls that are under way, and leaves
// the pool open.
func (s *Storage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.stop()
	s.ends.Wait()
	return nil
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
		return fmt.Errorf("%w: postgres storage", ojs.ErrClosed)
	}
	if refusal := s.refusal.Load(); refusal != nil && *refusal != nil {
		s.mu.RUnlock()
		return *refusal
	}
	return nil
}

// sent is a statement with what reads its result; nil: its rows are dropped.
type sent struct {
	sql  string
	args []any
	read func(rowSet) error
}

func (s *Storage) sent(of statement, read func(rowSet) error, args ...any) sent {
	return sent{s.sql[of], args, read}
}

// querier is what statements are made with.
type querier interface {
	begin(ctx context.Context) (transaction, error)
	query(ctx context.Context, list ...sent) error // in one round trip if the driver can
}

// transaction is one of the storage's, or one of the caller's of pgx or of database/sql,
// or a savepoint in one.
type transaction interface {
	querier
	commit(ctx context.Context) error
	rollback(ctx context.Context) error
}

// rowSet is the result of a statement.
type rowSet interface {
	Next() bool
	Scan(dst ...any) error
	Err() error
}

// bare makes statements as they are, with a pool, a connection or a transaction.
type bare struct {
	on interface {
		Begin(ctx context.Context) (pgx.Tx, error)
		SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	}
}

func (q bare) begin(ctx context.Context) (transaction, error) {
	tx, err := q.on.Begin(ctx)
	return inTx{Tx: tx}, err
}

func (q bare) query(ctx context.Context, list ...sent) (err error) {
	var b pgx.Batch
	for _, m := range list {
		b.Queue(m.sql, m.args...)
	}
	results := q.on.SendBatch(ctx, &b)
	defer func() {
		if closing := results.Close(); err == nil {
			err = closing
		}
	}()
	for _, m := range list {
		result, err := results.Query()
		if err != nil {
			return err
		}
		if err := m.readAll(result); err != nil {
			return err
		}
	}
	return nil
}

// inTx makes statements in a transaction. The planner works as its owner wants it to.
type inTx struct {
	pgx.Tx
	s    *Storage      // nil: it is a savepoint, or the caller's
	conn *pgxpool.Conn // of s, which the end of the transaction gives back
}

func (q inTx) begin(ctx context.Context) (transaction, error) { return bare{q.Tx}.begin(ctx) }
func (q inTx) query(ctx context.Context, list ...sent) error {
	return bare{q.Tx}.query(ctx, list...)
}

func (q inTx) commit(ctx context.Context) error {
	if q.s == nil {
		return q.Commit(ctx)
	}
	defer q.s.endLoan(ctx, q.conn)
	if err := q.s.mark(ctx, q.Tx); err != nil {
		return undone{errors.Join(err, q.Rollback(ctx))}
	}
	return q.Commit(ctx)
}

// unconfirmed says that what a transaction has found may be undone: see doubts.
type unconfirmed struct{ error }

func (e unconfirmed) Unwrap() error { return e.error }

func (q inTx) rollback(ctx context.Context) error {
	if q.s == nil {
		return q.Rollback(ctx)
	}
	defer q.s.endLoan(ctx, q.conn)
	err := q.Rollback(ctx)
	if err == nil {
		if err = q.s.mark(ctx, q.conn); err != nil {
			err = unconfirmed{err}
		}
	}
	return err
}

// tuned makes each statement in a transaction of its own, with settings that have the
// planner take the index that the statement was written for. By default the planner
// follows statistics. If they are missing, or of a time when the queue was empty, it
// sorts a million jobs to find the first. The settings also have it plan once, because
// one plan serves all arguments.
type tuned struct {
	s     *Storage
	locks bool // statements lock by themselves: see together
}

// begin begins a transaction in which each statement sees what was committed before it,
// even if the default of the database is another isolation. After a wait for a lock, a
// statement has to see what the holder of the lock has done.
func (q tuned) begin(ctx context.Context) (transaction, error) {
	conn, err := q.s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		q.s.endLoan(ctx, conn)
		return nil, err
	}
	return inTx{tx, q.s, conn}, nil
}

// query makes statements in one round trip with their transaction.
func (q tuned) query(ctx context.Context, list ...sent) error {
	list = slices.Concat([]sent{q.s.sent(tuneSQL, nil)}, list)
	return q.s.within(ctx, func(ctx context.Context) error { return q.s.together(ctx, q.locks, list) })
}

// together makes statements in one transaction and one round trip. If they lock, later
// ones see what the holders of the locks before have done. If the default isolation is
// not read committed, that takes a transaction that is.
func (s *Storage) together(ctx context.Context, locks bool, list []sent) error {
	if locks && s.isolated {
		list = slices.Concat(
			[]sent{{sql: "BEGIN ISOLATION LEVEL READ COMMITTED"}}, list, []sent{{sql: "COMMIT"}})
	}
	return s.borrow(ctx, func(conn *pgxpool.Conn) error {
		err := bare{conn}.query(ctx, list...)
		if err == nil {
			err = s.mark(ctx, conn)
		}
		return err
	})
}

func (m *sent) readAll(result pgx.Rows) error {
	defer result.Close()
	if m.read != nil {
		if err := m.read(result); err != nil {
			return err
		}
	}
	result.Close()
	return result.Err()
}

// query makes a statement by itself, without the settings of tuned.
func (s *Storage) query(ctx context.Context, list ...sent) error {
	return s.within(ctx, func(ctx context.Context) error {
		return s.borrow(ctx, func(conn *pgxpool.Conn) error { return bare{conn}.query(ctx, list...) })
	})
}

// each calls f after scanning each row into dst.
func each(dst []any, f func()) func(rowSet) error {
	return func(result rowSet) error {
		for result.Next() {
			if err := result.Scan(dst...); err != nil {
				return err
			}
			f()
		}
		return result.Err()
	}
}

// values appends the only column of each row to a list.
func values[T any](to *[]T) func(rowSet) error {
	var v T
	return each([]any{&v}, func() { *to = append(*to, v) })
}

// one scans the only row, if there is one.
func one(dst ...any) func(rowSet) error { return each(dst, func() {}) }
