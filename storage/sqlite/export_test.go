package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs/storage"
)

var ctx = context.Background()

// Plans returns SQLite's plan of each statement that has to stay quick however many jobs
// are stored.
func (s *Storage) Plans() (map[string]string, error) {
	plans := make(map[string]string)
	for name, sql := range map[string]string{
		"head": selectHead, "by id": selectByID, "by seq": selectBySeq, "ready": selectReady,
		"claim": claimJob, "settle": updateAttempt,
		"change": updateJob, "extend": extendLease, "due": selectDue, "next": nextWake,
		"open peers": selectOpenPeers, "ended peers": selectNewestEnded,
		"delete": deleteJob, "oldest ended": oldestEnded, "oldest dead": oldestDead, "list": listJobs,
		"list dead": listDead,
		"kept":      selectKept, "release": releaseJob, "released": selectReleased, "keep again": keepAgain,
		"depth": sumDepth, "ready in all": selectReadyAll, "level": levelIn, "level of all": levelAll,
		"behind": behindIn, "behind in all": behindAll,
		"last round": lastRound, "next round": nextRound, "served": selectServed,
		"first of bounds": selectBounds,
		"list back":       listJobsBack, "newest": listNewest, "newest back": listNewestBack,
		"list dead back": listDeadBack, "last dead": listLastDead, "last dead back": listLastDeadBack,
		"active": listActive, "active back": listActiveBack, "active newest": listActiveNewest,
		"active newest back": listActiveNewestBack,
		"list due":           listDue, "list due back": listDueBack, "list ready": listReady,
		"list ready back": listReadyBack,
		"finished":        finishedStatement(&storage.Query{}, false),
		"finished back":   finishedStatement(&storage.Query{}, true),
		"logs":            selectLogs, "trim logs": trimLogs, "delete logs": deleteLogs,
		"due crons": dueCrons, "next cron": nextCron,
	} {
		err := s.writer.do(ctx, func(t *tx) error {
			q := t.query("EXPLAIN QUERY PLAN " + sql)
			for q.next() {
				q.col = 3
				plans[name] += q.text() + "\n"
			}
			return q.close()
		})
		if err != nil {
			return nil, err
		}
	}
	return plans, nil
}

// Pages returns how many pages the file has.
func (s *Storage) Pages() (n int, err error) {
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		n, err = number(conn, "PRAGMA page_count")
		return err
	})
	return n, err
}

// Commits returns how many transactions have been committed.
func (s *Storage) Commits() int64 { return s.writer.commits.Load() }

// CheckMigrations tells of a migration whose number is not that of its place.
func CheckMigrations() error {
	files, err := migrations.ReadDir("migrations")
	for i, f := range files {
		if !strings.HasPrefix(f.Name(), fmt.Sprintf("%04d_", i+1)) {
			err = errors.Join(err, fmt.Errorf("%s is migration %d", f.Name(), i+1))
		}
	}
	return err
}

// NewestVersion is that of the schema.
func NewestVersion() int {
	files, _ := migrations.ReadDir("migrations")
	return len(files)
}

// MaxReleased is how many kept jobs one call of Prune may release.
const MaxReleased = maxReleased

// Old makes a file with the schema of an older version, and runs a script in it.
func Old(path string, version int, script string) error {
	conn, err := zombiezen.OpenConn(path, zombiezen.OpenReadWrite, zombiezen.OpenCreate)
	if err != nil {
		return err
	}
	defer conn.Close()
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		return err
	}
	for _, f := range files[:version] {
		b, err := migrations.ReadFile("migrations/" + f.Name())
		if err != nil {
			return err
		}
		if err := runScript(conn, string(b)); err != nil {
			return err
		}
	}
	return runScript(conn, fmt.Sprintf("%s; PRAGMA application_id = %d; PRAGMA user_version = %d", script,
		applicationID, version))
}

// Exec runs a statement in a file, as another program might.
func Exec(path, sql string) error {
	conn, err := zombiezen.OpenConn(path, zombiezen.OpenReadWrite, zombiezen.OpenCreate)
	if err != nil {
		return err
	}
	defer conn.Close()
	return run(conn, sql)
}

// TurnTaken reports whether a process holds the turn lock of a file, as the next one to
// write. It reports false on systems without such locks.
func TurnTaken(path string) (bool, error) {
	t, err := openTurn(path, 0o600)
	if err != nil {
		return false, err
	}
	defer t.close()
	return !t.lock(), nil
}

// Writing holds the lock on writing a file until it is told to release it.
func Writing(path string) (release func() error, err error) {
	conn, err := zombiezen.OpenConn(path, zombiezen.OpenReadWrite)
	if err != nil {
		return nil, err
	}
	return conn.Close, run(conn, "BEGIN IMMEDIATE")
}

// Columns returns the names of a table's columns, in their order.
func (s *Storage) Columns(table string) (names []string, err error) {
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		q := query(conn, "SELECT name FROM pragma_table_info(?) ORDER BY cid", table)
		for q.next() {
			names = append(names, q.text())
		}
		return q.close()
	})
	return names, err
}

// Rows returns how many rows a table has.
func (s *Storage) Rows(table string) (n int, err error) {
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		n, err = number(conn, "SELECT count(*) FROM "+table)
		return err
	})
	return n, err
}

// Explain returns how SQLite makes a statement.
func (s *Storage) Explain(sql string) (plan string, err error) {
	err = s.writer.do(context.Background(), func(t *tx) error {
		q := t.query("EXPLAIN QUERY PLAN " + sql)
		for q.next() {
			q.col = 3
			plan += q.text() + "\n"
		}
		return q.close()
	})
	return plan, err
}

// SetAside sets aside a recurring entry or a state of a queue that a reader has met with
// a version, or as a state.
func (s *Storage) SetAside(kind storage.Kind, name string, was any) error {
	return s.setAsideNamed(ctx, []named{{kind, name, was, errors.New("damaged")}})
}
