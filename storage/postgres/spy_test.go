package postgres_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/storage/postgres"
)

// spy sees the statements of a storage by their names in the storage's list of them.
type spy struct {
	names  map[string]string // by their text
	pool   *pgxpool.Pool     // of the storage
	mu     sync.Mutex        // guards the fields below
	counts map[string]int
	before map[string]func()
	conns  map[*pgx.Conn]*spiedConn
	sent   map[sent][]any // the latest arguments
}

// sent is a statement, and whether the settings of tune held for it.
type sent struct {
	sql   string
	tuned bool
}

type spiedConn struct{ open, tuned bool } // a transaction, and whether it is tuned

// newSpy returns a spy on a pool of its own, for a storage in a schema.
func newSpy(t testing.TB, name string) *spy {
	t.Helper()
	y := &spy{names: postgres.StatementNames(name), counts: make(map[string]int),
		before: make(map[string]func()), conns: make(map[*pgx.Conn]*spiedConn), sent: make(map[sent][]any)}
	y.names["commit"] = "commit"
	cfg := connect(t).Config()
	cfg.ConnConfig.RuntimeParams["application_name"] = fmt.Sprintf("spied %p", y)
	cfg.ConnConfig.Tracer = y
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	y.pool = pool
	return y
}

// openSpied opens a storage in a schema, "" for a new one, on a pool that a spy watches.
func openSpied(t testing.TB, name string, opts ...postgres.Option) (*postgres.Storage, *spy, string) {
	t.Helper()
	if name == "" {
		name = schema(t, connect(t))
	}
	y := newSpy(t, name)
	looked := make(chan struct{}) // the first look of the storage, which nothing asks for, ends so
	y.once("send", func() { close(looked) })
	s, err := postgres.Open(t.Context(), y.pool, append(opts, postgres.WithSchema(name))...)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	<-looked
	return s, y, name
}

// once has f called before the storage sends the next statement of a name.
func (y *spy) once(statement string, f func()) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.before[statement] = f
}

// after has f called before the storage sends a statement that comes after another one.
func (y *spy) after(first, statement string, f func()) {
	y.once(first, func() { y.once(statement, f) })
}

// awaitWait waits, up to a minute, until a connection of the storage waits for a lock, or
// until a call has ended. It reports which.
func (y *spy) awaitWait(admin *pgxpool.Pool, ended func() bool) (waits bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for !waits && !ended() && err == nil {
		err = admin.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE application_name = $1 AND cardinality(pg_blocking_pids(pid)) > 0)`,
			fmt.Sprintf("spied %p", y)).Scan(&waits)
	}
	return waits, err
}

// count returns how many statements of each name the storage sends meanwhile.
func (y *spy) count(f func()) map[string]int {
	y.mu.Lock()
	clear(y.counts)
	y.mu.Unlock()
	f()
	y.mu.Lock()
	defer y.mu.Unlock()
	return maps.Clone(y.counts)
}

// see sees what a connection is about to send together.
func (y *spy) see(conn *pgx.Conn, together ...*pgx.QueuedQuery) {
	y.mu.Lock()
	c := y.conns[conn]
	if c == nil {
		c = new(spiedConn)
		y.conns[conn] = c
	}
	var then []func()
	for _, q := range together {
		name := y.names[q.SQL]
		switch {
		case strings.HasPrefix(q.SQL, "begin"):
			*c = spiedConn{open: true}
		case q.SQL == "commit" || q.SQL == "rollback":
			*c = spiedConn{}
		case name == "tune":
			c.tuned = true
		case name != "":
			y.sent[sent{q.SQL, c.tuned}] = q.Arguments
		}
		y.counts[name]++
		if f := y.before[name]; f != nil {
			then = append(then, f)
			delete(y.before, name)
		}
	}
	c.tuned = c.tuned && c.open // or it was for these only
	y.mu.Unlock()
	for _, f := range then {
		f()
	}
}

func (y *spy) TraceQueryStart(
	ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData,
) context.Context {
	y.see(conn, &pgx.QueuedQuery{SQL: data.SQL, Arguments: data.Args})
	return ctx
}

func (y *spy) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (y *spy) TraceBatchStart(
	ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData,
) context.Context {
	y.see(conn, data.Batch.QueuedQueries...)
	return ctx
}

func (y *spy) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (y *spy) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
