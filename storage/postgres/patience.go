package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/internal/fail"
)

// wall is the wall clock, for waits on the network.
var wall = clock.New()

const (
	// defaultPatience is how long a statement or a short transaction may take.
	defaultPatience = 30 * time.Second
	// shortPatience is the most after one that had no answer, until another has.
	shortPatience = 5 * time.Second
)

// errNoAnswer is in the chain of errors of calls whose patience has ended.
var errNoAnswer = errors.New("no answer")

// within runs f, which speaks to the database through the pool, with a time limit. If the
// answer is lost, the storage doubts. The pool is reset if it leads to a server that
// takes no changes or does not answer.
func (s *Storage) within(ctx context.Context, f func(ctx context.Context) error) error {
	err := s.patiently(ctx, f)
	if txOf(ctx) != nil {
		return err
	}
	if mayHaveDone(err) {
		until := s.clock.Now().Add(doubtTime)
		s.doubted.Store(&until)
	}
	s.heal(err)
	if errors.Is(err, errNoAnswer) && s.awaits.Load() {
		return fmt.Errorf("%w: %w", ErrStandby, err)
	}
	return err
}

// patiently runs f, which speaks to the database, with a time limit: a network that
// swallows everything does not say so.
func (s *Storage) patiently(ctx context.Context, f func(ctx context.Context) error) error {
	patience := s.config.patience
	if s.silent.Load() {
		patience = min(patience, shortPatience)
	}
	patient, cancel := wall.WithTimeout(ctx, patience)
	defer cancel()
	if patient.Value(callers{}) == nil {
		patient = context.WithValue(patient, callers{}, ctx)
	}
	err := f(patient)
	switch answered := err == nil || code(err) != ""; {
	case answered && s.silent.Load():
		s.silent.Store(false)
	case !answered && patient.Err() != nil && ctx.Err() == nil:
		s.silent.Store(true)
		return fmt.Errorf("%w: %w within %v: %w", ErrUnavailable, errNoAnswer, patience, err)
	}
	return err
}

// callers is the key of the context of a call in the context that has its patience.
type callers struct{}

// impatient reports whether the patience of a context has ended, and not its caller's.
func impatient(ctx context.Context) bool {
	caller, ok := ctx.Value(callers{}).(context.Context)
	return ok && ctx.Err() != nil && caller.Err() == nil
}

// heal resets the pool after a call that failed because the server takes no changes or
// does not answer, at most once a second. Its connections may lead to a server that was
// the primary when they were opened. So may the listener's, which finds out by itself
// that a server does not answer or is another than the pool's, and connects anew here if
// the server is read-only.
func (s *Storage) heal(err error) {
	if s.config.keeps || !isCode(err, readOnlyTransaction) && !errors.Is(err, errNoAnswer) {
		return
	}
	now, last := s.clock.Now(), s.healed.Load()
	if last != nil && now.Sub(*last).Abs() < time.Second || !s.healed.CompareAndSwap(last, &now) {
		return
	}
	s.pool.Reset()
	if deafen := s.deafen.Load(); deafen != nil && isCode(err, readOnlyTransaction) {
		(*deafen)()
	}
}

// doubtTime is how long the storage doubts what it finds after a call without an answer:
// longer than an agent leaves a primary up that others have given up.
const doubtTime = 5 * time.Minute

// markSQL has the commit of its transaction wait for the synchronous standby, although
// nothing is changed.
var markSQL = define("mark", `SELECT CASE WHEN current_setting('transaction_read_only') = 'off' AND current_setting('synchronous_standby_names') <> ''
		THEN pg_logical_emit_message(true, 'ojs', '') END`)

// doubts reports whether a call has had no answer lately. The primary may show what that
// call has done without the synchronous standby, and a fail-over undo it. The next call
// would find it done, and its caller count on it.
func (s *Storage) doubts() bool {
	until := s.doubted.Load()
	return until != nil && s.clock.Now().Before(*until)
}

// mark waits until the synchronous standby has what a call has found with a connection,
// if the storage doubts. In a transaction the commit waits.
func (s *Storage) mark(ctx context.Context, on interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}) (err error) {
	if s.doubts() {
		_, err = on.Exec(ctx, s.sql[markSQL])
	}
	return err
}

// borrow runs f with a connection of the pool.
func (s *Storage) borrow(ctx context.Context, f func(conn *pgxpool.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return undone{err}
	}
	defer s.endLoan(ctx, conn)
	return f(conn)
}

// endLoan ends the loan of a connection. After a call without an answer the connection is
// closed, and leaves the pool at once. The pool would wait for pgx, which asks the server
// for up to 15 s to cancel the statement. A server that stands still would take all
// places of the pool for that time. As many as the pool has places close outside of it.
// The others, and those of callers that do not wait, keep their places until they are
// closed: so they are not more than twice the places.
func (s *Storage) endLoan(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() && impatient(ctx) {
		select {
		case s.closing <- struct{}{}:
			closed := conn.Hijack().PgConn().CleanupDone()
			go func() {
				<-closed
				<-s.closing
			}()
		default:
		}
	}
	conn.Release()
}

// awaitsSQL looks for a commit of the role that waits for a standby.
var awaitsSQL = define("awaits", `SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity WHERE wait_event = 'SyncRep'
		AND state_change < clock_timestamp() - interval '1 second')`)

// lookForStandby finds out whether commits wait for a synchronous standby.
func (t *tx) lookForStandby() {
	var awaits bool
	err := fail.Caught(func() { t.query(awaitsSQL, one(&awaits)) })
	if mayNot(err) {
		return
	}
	if fail.If(err); t.s.awaits.Swap(awaits) != awaits && awaits {
		t.s.config.log.Warn("ojs: postgres: commits wait for a synchronous standby")
	}
}

var listenSQL = define("listen", `LISTEN "ojs:{name}"`)

// listen opens a connection beside the pool, as the pool opens its own, and listens.
func (s *Storage) listen(ctx context.Context) (*pgx.Conn, error) {
	cfg := s.pool.Config()
	how := cmp.Or(s.config.listen, cfg.ConnConfig).Copy()
	how.OnNotification = nil      // with which pgx could not wait for one
	if cfg.BeforeConnect != nil { // which may have the password of the hour
		if err := cfg.BeforeConnect(ctx, how); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, how)
	if err != nil {
		return nil, err
	}
	if cfg.AfterConnect != nil { // which may take on a role
		err = cfg.AfterConnect(ctx, conn)
	}
	if err == nil && !s.config.deaf {
		_, err = conn.Exec(ctx, s.sql[listenSQL])
	}
	if err != nil {
		hangUp(conn)
	}
	return conn, err
}

func hangUp(conn *pgx.Conn) {
	ctx, cancel := wall.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// farewell is how long Close lets a statement of the storage's own go on.
const farewell = time.Second

// toEnd is patiently for statements that the end of ctx, which is Close, shall not break
// off: pgx asks the database to cancel what is broken off, which costs a connection more,
// and PgBouncer 1.18 exits at times when that meets a client that leaves. A statement
// that the database undoes is made anew (again).
func (s *Storage) toEnd(ctx context.Context, f func(ctx context.Context) error) error {
	lingering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { wall.AfterFunc(farewell, cancel) })
	defer stop()
	return again(func() error { return s.patiently(lingering, f) })
}
