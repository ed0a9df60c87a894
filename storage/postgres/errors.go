package postgres

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Errors of the package.
var (
	// ErrNewer refuses a schema that a later release of this package has migrated. Run a
	// program that is built with that release. A storage that is open when the schema
	// becomes too new for it fails its calls with ErrNewer from its next poll on.
	ErrNewer = errors.New("ojs: postgres: the schema is of a newer version")
	// ErrMissing says that there is no schema, if Open does not make it: see
	// WithoutMigration, Migrate and Schema.
	ErrMissing = errors.New("ojs: postgres: the schema does not exist")
	// ErrOlder refuses a schema that is older than this program needs, if Open does not
	// migrate it: see WithoutMigration, Migrate and Schema.
	ErrOlder = errors.New("ojs: postgres: the schema is of an older version")
	// ErrBehind refuses a schema whose sequences are behind the numbers of its jobs: its
	// rows have come from another database without them. Run Advance. An open storage
	// that meets such a schema, after a switch-over, fails its calls with ErrBehind until
	// Advance has run.
	ErrBehind = errors.New("ojs: postgres: the sequences are behind the stored jobs")
	// ErrPrivilege is the error of a call for which the role lacks a privilege: see
	// Grants.
	ErrPrivilege = errors.New("ojs: postgres: the role lacks a privilege")
	// ErrDeadlock is the error of a call that waited for a transaction which waited for
	// it, and which the database picked to fail. The storage repeats such calls by
	// itself, up to five times, except in a transaction of the caller's (WithTx): roll
	// that back and run it again.
	ErrDeadlock = errors.New("ojs: postgres: deadlock with another transaction")
)

// Errors of a server that has to be looked after. The database's own error is in their
// chain. Engines repeat calls that fail with them, and work goes on when the server does.
// A call that stores something may have stored it if it failed with ErrUnavailable; the
// others have changed nothing.
var (
	// ErrUnavailable says that the server does not answer: it is down, starts, shuts down
	// or has crashed, or the network has failed.
	ErrUnavailable = errors.New("ojs: postgres: the server is unavailable")
	// ErrStandby says that a commit has waited for a synchronous standby that does not
	// confirm it: bring the standby back, or take it out of synchronous_standby_names. Do
	// not cancel the waiting backends: their commits then stand on the primary alone, and
	// a fail-over loses them. So does the commit of the call that fails with it, which
	// pgx cancels. ErrUnavailable is in its chain.
	ErrStandby = errors.New("ojs: postgres: the primary waits for a synchronous standby")
	// ErrTooManyConnections says that the server, the database or the role has reached
	// its limit of connections: make pools smaller, or raise max_connections.
	ErrTooManyConnections = errors.New("ojs: postgres: the limit of connections is reached")
	// ErrReadOnly says that the server takes no changes: it is a standby, or
	// default_transaction_read_only is on. With several hosts in the connection string,
	// target_session_attrs=read-write finds the primary.
	ErrReadOnly = errors.New("ojs: postgres: the server is read-only")
	// ErrStatementTimeout says that the server has cancelled a statement, by
	// statement_timeout, lock_timeout or an administrator.
	ErrStatementTimeout = errors.New("ojs: postgres: the server has cancelled a statement")
	// ErrPooler says that a prepared statement is there already or is gone: a pooler has
	// lent the connection to others in between. Have pgx prepare none: set
	// default_query_exec_mode=exec in the connection string of the pool.
	ErrPooler = errors.New("ojs: postgres: a pooler does not keep prepared statements: set default_query_exec_mode=exec in the connection string")
	// ErrDiskFull says that the server has no room left on its disk.
	ErrDiskFull = errors.New("ojs: postgres: the disk of the server is full")
)

// wrap marks an error of the database as such.
func wrap(err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "ojs: ") || errors.Is(err, context.Canceled) {
		return err
	}
	if kind := kindOf(err); kind != nil {
		return fmt.Errorf("%w: %w", kind, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("ojs: postgres: %w", err)
}

// undone marks the error of statements that the database has not committed: they were not
// sent, or the commit of their transaction was not.
type undone struct{ error }

func (e undone) Unwrap() error { return e.error }

// mayHaveDone reports whether an error may hide that the database has done what it was
// asked for. pgconn.SafeToRetry does not tell: it is true of a commit whose connection
// has closed before the answer.
func mayHaveDone(err error) bool {
	if err == nil || errors.As(err, new(undone)) {
		return false
	}
	return code(err) == "" || kindOf(err) == ErrUnavailable
}

// kindOf is the error of this package for an error of the database or of the way to it,
// or nil.
func kindOf(err error) error {
	if c := code(err); c != "" {
		return cmp.Or(kindsByCode[c], kindsByCode[c[:min(len(c), 2)]])
	}
	var connecting *pgconn.ConnectError
	var network *net.OpError
	if errors.As(err, &connecting) || errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		pgconn.SafeToRetry(err) && !errors.Is(err, context.DeadlineExceeded) {
		return ErrUnavailable
	}
	return nil
}

// again makes a call anew while the database undoes it: up to twenty times because of a
// deadlock, which may be an earlier statement's, or a serialization failure, and five
// times because of an id that another transaction has stored since the call looked.
func again(f func() error) (err error) {
	for n := range 20 {
		err = f()
		switch code(err) {
		case deadlockDetected, serializationFailure, failedTransaction:
		case uniqueViolation:
			if n >= 4 {
				return err
			}
		default:
			return err
		}
	}
	return err
}

// Codes of PostgreSQL's errors.
const (
	uniqueViolation       = "23505"
	serializationFailure  = "40001"
	deadlockDetected      = "40P01"
	failedTransaction     = "25P02"
	insufficientPrivilege = "42501"
	readOnlyTransaction   = "25006"
	lockNotAvailable      = "55P03"
	dataException         = "22" // and what else begins so
	limitExceeded         = "54" // likewise
)

// kindsByCode are the errors of this package for codes, or for how they begin.
var kindsByCode = map[string]error{
	deadlockDetected:      ErrDeadlock,
	insufficientPrivilege: ErrPrivilege,
	readOnlyTransaction:   ErrReadOnly,
	lockNotAvailable:      ErrStatementTimeout,
	"57014":               ErrStatementTimeout, // query canceled
	"25P04":               ErrStatementTimeout, // transaction timeout
	"53300":               ErrTooManyConnections,
	"53100":               ErrDiskFull,
	"42P05":               ErrPooler,      // duplicate prepared statement
	"26000":               ErrPooler,      // unknown prepared statement
	"25P03":               ErrUnavailable, // idle in transaction timeout
	"08":                  ErrUnavailable, // connection exceptions
	"57":                  ErrUnavailable, // operator interventions
}

// code is the code of an error of the database, whichever driver it comes from, or "".
func code(err error) string {
	var of interface{ SQLState() string }
	if errors.As(err, &of) {
		return of.SQLState()
	}
	return ""
}

func isCode(err error, is string) bool { return code(err) == is }

// detail is what the database says beside an error's message.
func detail(err error) string {
	var pgxs *pgconn.PgError
	var pqs interface{ Get(byte) string } // of lib/pq
	switch {
	case errors.As(err, &pgxs):
		return pgxs.Detail
	case errors.As(err, &pqs):
		return pqs.Get('D')
	}
	return ""
}

// refused reports whether an error is about what a statement says and not about the
// database. The statement has done nothing, and one that says less may be accepted.
func refused(err error) bool {
	c := code(err)
	return strings.HasPrefix(c, dataException) || strings.HasPrefix(c, limitExceeded)
}
