package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// often has a storage notice soon what fails.
var often = postgres.WithPoll(50 * time.Millisecond)

func poolAt(t testing.TB, dsn string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	must(t, err)
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// shop is an engine that counts which jobs it has run.
type shop struct {
	*engine.Engine[int]
	t   *testing.T
	mu  sync.Mutex
	ran map[int]bool
}

func startShop(t *testing.T, s storage.Storage) *shop {
	t.Helper()
	e := &shop{Engine: newEngine(t, s), t: t, ran: make(map[int]bool)}
	e.Handle("x", func(_ context.Context, job *ojs.Job[int]) error {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.ran[job.Args] = true
		return nil
	})
	start(t, e.Engine)
	return e
}

func (e *shop) has(n int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ran[n]
}

// await waits for a condition.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.After(time.Minute); !is(); {
		select {
		case <-late:
			t.Fatalf("%s: not in a minute", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// refuses waits until enqueues fail with an error of the package, which names the
// database's, or with one of some others.
func (e *shop) refuses(want error, says string, others ...error) {
	e.t.Helper()
	var err error
	await(e.t, "enqueues fail with "+want.Error(), func() bool {
		_, err = e.Enqueue(e.t.Context(), "x", -1)
		return err != nil
	})
	if slices.ContainsFunc(others, func(other error) bool { return errors.Is(err, other) }) {
		return
	}
	text := err.Error()
	if !errors.Is(err, want) || !strings.HasPrefix(text, want.Error()+": ") || !strings.Contains(text, says) {
		e.t.Errorf("%v, not %v with %q", err, want, says)
	}
}

// sick waits until Health names a problem.
func (e *shop) sick(problem string) {
	e.t.Helper()
	await(e.t, "Health names "+problem, func() bool {
		h := e.Health(e.t.Context())
		return h.Status != engine.Healthy && strings.Contains(fmt.Sprint(h.Problems), problem)
	})
}

// well waits until the engine is healthy and runs jobs.
func (e *shop) well(n int) {
	e.t.Helper()
	await(e.t, "an enqueue", func() bool {
		_, err := e.Enqueue(e.t.Context(), "x", n)
		return err == nil
	})
	await(e.t, fmt.Sprintf("job %d", n), func() bool { return e.has(n) })
	await(e.t, "health", func() bool { return e.Health(e.t.Context()).Status == engine.Healthy })
}

// A server that fails says why, by typed errors and by Health, and work goes on by
// itself.
func TestServerTrouble(t *testing.T) {
	t.Parallel()
	server := privateServer(t)
	admin := poolAt(t, server.DSN(), nil)
	run := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			_, err := admin.Exec(t.Context(), statement)
			must(t, err)
		}
	}
	open := func(t *testing.T, name string, change func(*pgxpool.Config)) *shop {
		return startShop(t, openAs(t, poolAt(t, server.DSN(), change), name, often))
	}
	t.Run("read only", func(t *testing.T) {
		e := open(t, "read_only", nil)
		e.well(1)
		run("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
		e.refuses(postgres.ErrReadOnly, "read-only transaction")
		e.sick(postgres.ErrReadOnly.Error())
		run("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")
		e.well(2)
	})
	t.Run("statement timeout", func(t *testing.T) {
		e := open(t, "slow", func(cfg *pgxpool.Config) {
			cfg.ConnConfig.RuntimeParams["statement_timeout"] = "200ms"
		})
		e.well(1)
		must(t, pgx.BeginFunc(t.Context(), admin, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "LOCK TABLE slow.job IN ACCESS EXCLUSIVE MODE")
			must(t, err)
			e.refuses(postgres.ErrStatementTimeout, "statement timeout")
			e.sick(postgres.ErrStatementTimeout.Error())
			return nil
		}))
		e.well(2)
	})
	t.Run("too many connections", func(t *testing.T) {
		must(t, postgres.Migrate(t.Context(), admin, postgres.WithSchema("many")))
		script, err := postgres.Grants(postgres.Worker, "many", postgres.WithSchema("many"))
		must(t, err)
		run("CREATE ROLE many LOGIN CONNECTION LIMIT 8", script)
		user := func(cfg *pgxpool.Config) { cfg.ConnConfig.User = "many" }
		pool := poolAt(t, server.DSN(), user)
		e := startShop(t, openAs(t, pool, "many", often))
		e.well(1)
		run("ALTER ROLE many CONNECTION LIMIT 0",
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'many'")
		await(t, "the connections that were cut", func() bool {
			_, err := e.Enqueue(t.Context(), "x", -1)
			return errors.Is(err, postgres.ErrTooManyConnections)
		})
		e.refuses(postgres.ErrTooManyConnections, "too many connections")
		e.sick(postgres.ErrTooManyConnections.Error())
		run("ALTER ROLE many CONNECTION LIMIT -1")
		e.well(2)
	})
	t.Run("down", func(t *testing.T) {
		e := open(t, "down", nil)
		e.well(1)
		ticket, err := e.Enqueue(t.Context(), "x", 2, ojs.WithDelay(time.Second))
		must(t, err)
		must(t, server.Down())
		e.refuses(postgres.ErrUnavailable, "")
		e.sick(postgres.ErrUnavailable.Error())
		_, err = postgres.Open(t.Context(), poolAt(t, server.DSN(), nil))
		if !errors.Is(err, postgres.ErrUnavailable) {
			t.Errorf("opened on a server that is down: %v", err)
		}
		must(t, server.Up())
		e.well(3)
		await(t, "the job from before", func() bool { return e.has(2) })
		if _, err := ticket.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A full disk fails calls with an error that says so, and work goes on when there is
// room.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	server := privateServer(t)
	admin := poolAt(t, server.DSN(), nil)
	dir := smallDisk(t, server)
	run := func(statement string) error {
		_, err := admin.Exec(t.Context(), statement)
		return err
	}
	must(t, run(fmt.Sprintf("CREATE TABLESPACE small LOCATION '%s'", dir)))
	inSmall := func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["default_tablespace"] = "small" }
	e := startShop(t, openAs(t, poolAt(t, server.DSN(), inSmall), "full", often))
	e.well(1)
	must(t, run("CREATE TABLE filler TABLESPACE small AS SELECT 1 AS n"))
	fill := "INSERT INTO filler SELECT generate_series(1, 1000)"
	await(t, "a full disk", func() bool { return run(fill) != nil })
	await(t, "an enqueue that fails", func() bool {
		_, err := e.Enqueue(t.Context(), "x", 2)
		if err != nil && !errors.Is(err, postgres.ErrDiskFull) {
			t.Fatal(err)
		}
		return err != nil
	})
	must(t, run("DROP TABLE filler"))
	must(t, run("CHECKPOINT")) // which gives the space back
	e.well(3)
	must(t, e.WaitIdle(t.Context()))
	must(t, server.Crash()) // before its disk goes
}

// smallDisk mounts a disk of some megabytes for a server, which the end of the test
// removes.
func smallDisk(t *testing.T, server *pgtest.Server) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root mounts a disk")
	}
	dir := t.TempDir()
	var owner syscall.Stat_t
	must(t, syscall.Stat(server.Dir(), &owner))
	how := fmt.Sprintf("size=4m,mode=0700,uid=%d,gid=%d", owner.Uid, owner.Gid)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, how); err != nil {
		t.Skip("no disk can be mounted: ", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	for parent := dir; parent != "/"; { // which the server passes through
		parent = parent[:max(strings.LastIndex(parent, "/"), 0)]
		if parent == "" || parent == os.TempDir() {
			break
		}
		must(t, exec.Command("chmod", "a+x", parent).Run())
	}
	return dir
}

// A server that is lost for good, and whose standby is promoted, costs time and nothing
// else: no job whose enqueue has returned is lost.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := privateServer(t)
	standby, err := primary.Standby()
	must(t, err)
	t.Cleanup(func() { _ = standby.Close() })
	both := fmt.Sprintf("host=%s,%s user=postgres dbname=postgres target_session_attrs=read-write",
		primary.Dir(), standby.Dir())
	e := startShop(t, openAs(t, poolAt(t, both, nil), "ojs", often))
	reader := openAs(t, poolAt(t, standby.DSN(), nil), "ojs", postgres.WithoutMigration(),
		postgres.WithLogger(quietLog))
	if err := insert(t.Context(), reader, record(1)); !errors.Is(err, postgres.ErrReadOnly) {
		t.Errorf("stored on a standby: %v", err)
	}
	var stored sync.Map // args whose enqueue has returned
	ctx, stop := context.WithCancel(t.Context())
	var producers sync.WaitGroup
	var last [4]int
	for p := range last {
		producers.Go(func() {
			for n := p; ctx.Err() == nil; n += len(last) {
				_, err := e.Enqueue(ctx, "x", n, ojs.WithLease(2*time.Second))
				known := errors.Is(err, postgres.ErrUnavailable) || errors.Is(err, postgres.ErrReadOnly)
				if err == nil {
					stored.Store(n, true)
				} else if ctx.Err() == nil && !known {
					t.Errorf("%v", err)
				}
			}
		})
	}
	await(t, "the first jobs", func() bool { return e.has(40) })
	must(t, primary.Crash()) // and with it the answers of claims, whose jobs come back when their leases end
	e.sick(postgres.ErrUnavailable.Error())
	must(t, standby.Promote())
	var before int
	stored.Range(func(n, _ any) bool { before = max(before, n.(int)); return true })
	await(t, "jobs of the new primary", func() bool {
		var most int
		stored.Range(func(n, _ any) bool { most = max(most, n.(int)); return true })
		return most > before+40
	})
	stop()
	producers.Wait()
	jobs := 0
	stored.Range(func(n, _ any) bool {
		jobs++
		await(t, fmt.Sprintf("job %d of all that were stored", n), func() bool { return e.has(n.(int)) })
		return true
	})
	t.Logf("%d jobs", jobs)
	e.well(-2)
}

// Errors of the database and of the way to it are of the package's kinds.
func TestErrorKinds(t *testing.T) {
	for code, want := range map[string]error{
		"08006": postgres.ErrUnavailable,
		"57P01": postgres.ErrUnavailable,
		"57P03": postgres.ErrUnavailable,
		"57014": postgres.ErrStatementTimeout,
		"55P03": postgres.ErrStatementTimeout,
		"53300": postgres.ErrTooManyConnections,
		"53100": postgres.ErrDiskFull,
		"25006": postgres.ErrReadOnly,
		"42501": postgres.ErrPrivilege,
		"40P01": postgres.ErrDeadlock,
	} {
		err := postgres.Wrap(fmt.Errorf("so: %w", stateError(code)))
		if !errors.Is(err, want) || !errors.Is(err, stateError(code)) ||
			!strings.HasPrefix(err.Error(), "ojs: ") {
			t.Errorf("%s: %v", code, err)
		}
	}
	err := postgres.Wrap(stateError("22012"))
	for _, kind := range []error{
		postgres.ErrUnavailable, postgres.ErrReadOnly, postgres.ErrStatementTimeout,
	} {
		if errors.Is(err, kind) || !strings.HasPrefix(err.Error(), "ojs: postgres: ") {
			t.Error(err)
		}
	}
}

// stateError is an error with a code of the database's, of any driver.
type stateError string

func (e stateError) Error() string    { return "failed with " + string(e) }
func (e stateError) SQLState() string { return string(e) }
