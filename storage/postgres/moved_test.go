package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage/postgres"
)

// endpoint is an address that can move from server to server. Connections stay with the
// server that they were opened to.
type endpoint struct {
	listener net.Listener
	socket   atomic.Value // of the server that new connections go to
	opened   atomic.Int64 // connections
}

// startEndpoint makes an endpoint before a server, which the end of the test closes.
func startEndpoint(t *testing.T, server *pgtest.Server) *endpoint {
	t.Helper()
	return startEndpointAt(t, socketOf(server))
}

func socketOf(server *pgtest.Server) string { return filepath.Join(server.Dir(), ".s.PGSQL.5432") }

func startEndpointAt(t *testing.T, socket string) *endpoint {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	e := &endpoint{listener: listener}
	e.socket.Store(socket)
	var ends sync.WaitGroup
	ends.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			e.opened.Add(1)
			ends.Go(func() { e.connect(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		ends.Wait()
	})
	return e
}

func (e *endpoint) moveTo(server *pgtest.Server) { e.socket.Store(socketOf(server)) }

func (e *endpoint) connect(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", e.socket.Load().(string))
	if err != nil {
		return
	}
	var answers sync.WaitGroup
	answers.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	_, _ = io.Copy(server, client)
	_ = server.Close()
	answers.Wait()
}

func (e *endpoint) dsn() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable",
		e.listener.Addr().(*net.TCPAddr).Port)
}

// execAll runs statements on a server.
func execAll(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		_, err := pool.Exec(t.Context(), sql)
		must(t, err)
	}
}

// After a switch-over the old server is read-only and keeps its connections. The endpoint
// leads to the new one. The pool follows, as the calls that fail reset it.
func TestMovedEndpoint(t *testing.T) {
	t.Parallel()
	for name, attrs := range map[string]string{
		"plain": "", "read-write": " target_session_attrs=read-write",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := privateServer(t)
			after, err := before.Standby()
			must(t, err)
			t.Cleanup(func() { _ = after.Close() })
			end := startEndpoint(t, before)
			e := startShop(t, openAs(t, poolAt(t, end.dsn()+attrs, nil), "ojs", often))
			e.well(1)
			waits, err := e.Enqueue(t.Context(), "x", 2, ojs.WithDelay(time.Second))
			must(t, err)
			admin := poolAt(t, before.DSN(), nil)
			execAll(t, admin,
				"ALTER SYSTEM RESET synchronous_standby_names",
				"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
			var others []error
			if attrs != "" { // a new connection fails that would only read
				others = append(others, postgres.ErrUnavailable)
			}
			e.refuses(postgres.ErrReadOnly, "read-only transaction", others...)
			must(t, after.Promote())
			moved := time.Now()
			end.moveTo(after)
			e.well(3)
			t.Logf("a job has run %v after the endpoint moved", time.Since(moved))
			if _, err := waits.Wait(t.Context()); err != nil {
				t.Errorf("the job from before: %v", err)
			}
			await(t, "the listener has left the old server", func() bool {
				var n int
				must(t, admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
					WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&n))
				return n == 0
			})
		})
	}
}

// An old primary whose agent has died stays up: its commits wait for the standby that has
// taken its place. The pool and the listener leave it for the server that the endpoint
// leads to. Backends that wait for the standby stay: pgx asks to cancel them through the
// endpoint, which leads to the other server.
func TestForsakenPrimary(t *testing.T) {
	t.Parallel()
	before := privateServer(t)
	after, err := before.Standby()
	must(t, err)
	t.Cleanup(func() { _ = after.Close() })
	end := startEndpoint(t, before)
	e := startShop(t, openAs(t, poolAt(t, end.dsn(), nil), "ojs", often, postgres.WithPatience(2*time.Second),
		postgres.WithLogger(quietLog)))
	e.well(1)
	must(t, after.Promote())
	await(t, "commits wait for the standby", func() bool {
		_, err := e.Enqueue(t.Context(), "x", -1)
		return errors.Is(err, postgres.ErrStandby)
	})
	end.moveTo(after)
	e.well(2)
	admin := poolAt(t, before.DSN(), nil)
	await(t, "the listener has left the old server", func() bool {
		var n int
		must(t, admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
			AND wait_event IS DISTINCT FROM 'SyncRep'`).Scan(&n))
		return n == 0
	})
}

// Calls that fail on a read-only server reset the pool once a second, and not at all with
// WithoutPoolReset.
func TestPoolReset(t *testing.T) {
	t.Parallel()
	server := privateServer(t)
	admin := poolAt(t, server.DSN(), nil)
	for name, opts := range map[string][]postgres.Option{
		"resets": nil, "keeps": {postgres.WithoutPoolReset()},
	} {
		t.Run(name, func(t *testing.T) {
			pool := poolAt(t, server.DSN(), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
			machine := clock.NewMock()
			s := openAs(t, pool, name, append(opts, postgres.WithClock(machine),
				postgres.WithPoll(time.Hour), postgres.WithLogger(quietLog))...)
			must(t, insert(t.Context(), s, record(1)))
			execAll(t, admin, "ALTER SYSTEM SET default_transaction_read_only = on",
				"SELECT pg_reload_conf()")
			fails := func() {
				t.Helper()
				await(t, "an error of a read-only server", func() bool {
					return errors.Is(insert(t.Context(), s, record(2)), postgres.ErrReadOnly)
				})
			}
			fails()
			fails() // on a connection that the reset has let in
			began, want := pool.Stat().NewConnsCount(), int64(0)
			for range 3 {
				machine.Add(time.Second)
				for range 5 {
					fails()
				}
				if opts == nil {
					want++
				}
				if n := pool.Stat().NewConnsCount() - began; n != want {
					t.Errorf("%d new connections, not %d", n, want)
				}
			}
			execAll(t, admin, "ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")
			await(t, "the server takes changes", func() bool {
				return insert(t.Context(), s, record(3)) == nil // 2 may be there
			})
		})
	}
}

// A listener does not stay with a server that has become a standby.
func TestListenerLeavesAStandby(t *testing.T) {
	t.Parallel()
	primary := privateServer(t)
	s := openAs(t, poolAt(t, primary.DSN(), nil), "ojs")
	standby, err := primary.Standby()
	must(t, err)
	t.Cleanup(func() { _ = standby.Close() })
	conn, err := pgx.Connect(t.Context(), standby.DSN())
	must(t, err)
	defer conn.Close(context.Background())
	if err := s.Look(t.Context(), conn); !errors.Is(err, postgres.ErrReadOnly) {
		t.Errorf("a look at a standby: %v", err)
	}
}

// While the listener fails and the pool works, Health says so.
func TestHealthOfTheListener(t *testing.T) {
	t.Parallel()
	var refused atomic.Bool
	dsn := privateServer(t).DSN()
	pool := poolAt(t, dsn, func(cfg *pgxpool.Config) {
		cfg.BeforeConnect = func(_ context.Context, to *pgx.ConnConfig) error {
			if to.RuntimeParams["application_name"] == "listener" && refused.Load() {
				return errors.New("no password for this hour")
			}
			return nil
		}
	})
	e := startShop(t, openAs(t, pool, "ojs", often, postgres.WithLogger(quietLog),
		postgres.WithListenDSN(dsn+" application_name=listener")))
	e.well(1)
	refused.Store(true)
	execAll(t, pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name = 'listener'`)
	e.sick("notices of other processes do not arrive: ojs: postgres: no password for this hour")
	await(t, "a job that is found without notices", func() bool {
		_, err := e.Enqueue(t.Context(), "x", 2)
		return err == nil && e.has(2)
	})
	refused.Store(false)
	e.well(3)
}
