package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// insertOne stores a job that no other test has.
func insertOne(ctx context.Context, s *postgres.Storage) error {
	r := record(0)
	r.ID = uuid.Must(uuid.NewV7()).String()
	return insert(ctx, s, r)
}

// A call without an answer fails with the time that it has waited. Later calls wait for
// 5 s at most until the server answers, and then for the patience again.
func TestPatience(t *testing.T) {
	t.Parallel()
	_, _, p, _, name := behindBadNetwork(t, time.Minute)
	pool := poolAt(t, p.dsn(), func(c *pgxpool.Config) { c.ConnConfig.ConnectTimeout = time.Minute })
	s := openAs(t, pool, name, postgres.WithPatience(5500*time.Millisecond), postgres.WithPoll(time.Hour))
	wantNoAnswer := func(within string) {
		t.Helper()
		err := insertOne(t.Context(), s)
		if !errors.Is(err, postgres.ErrUnavailable) ||
			!strings.Contains(err.Error(), "no answer within "+within) {
			t.Errorf("got %v, want no answer within %s", err, within)
		}
	}
	before := pool.Stat().NewConnsCount()
	p.swallow()
	wantNoAnswer("5.5s")
	wantNoAnswer("5s")
	p.spit()
	await(t, "the server answers", func() bool { return insertOne(t.Context(), s) == nil })
	if after := pool.Stat().NewConnsCount(); after == before {
		t.Error("the pool has opened no new connection")
	}
	p.swallow()
	wantNoAnswer("5.5s")
}

// A connection whose call had no answer in time frees its place in the pool at once.
func TestPlaceOfADeadConnection(t *testing.T) {
	t.Parallel()
	_, _, p, _, _ := behindBadNetwork(t, time.Minute)
	defer p.stop()                                                      // or pgx waits for 15 s
	for _, call := range []string{"Claim", "QueueStates", "SetLimit"} { // a batch, a query, a transaction
		calls, _ := onePlace(t, p)
		must(t, calls(t.Context(), "QueueStates")) // by a connection that lives
		p.swallow()
		if err := calls(t.Context(), call); !errors.Is(err, postgres.ErrUnavailable) {
			t.Errorf("%s in a black hole: %v", call, err)
		}
		p.spit()
		failures := 0
		await(t, "an answer", func() bool {
			err := calls(t.Context(), "QueueStates")
			if err != nil {
				failures++
			}
			return err == nil
		})
		if failures > 2 { // the listener may have had the only place meanwhile
			t.Errorf("%d calls failed after %s that had no answer", failures, call)
		}
	}
}

// A pool closes at most as many dead connections beside its places as it has places.
// A connection whose caller gave up keeps its place while it closes.
func TestPlacesOfDeadConnections(t *testing.T) {
	t.Parallel()
	_, _, p, _, _ := behindBadNetwork(t, time.Minute)
	defer p.stop() // or pgx waits for 15 s
	for what, tt := range map[string]struct {
		gone   bool
		places []int32 // of dead connections, after each black hole
	}{
		"the patience ends":    {false, []int32{0, 1}},
		"the caller goes away": {true, []int32{1}},
	} {
		calls, pool := onePlace(t, p)
		for _, places := range tt.places {
			must(t, calls(t.Context(), "QueueStates"))
			ctx, stop := context.WithCancel(t.Context())
			p.swallow()
			if tt.gone {
				time.AfterFunc(100*time.Millisecond, stop)
			}
			if err := calls(ctx, "QueueStates"); err == nil {
				t.Errorf("%s: an answer in a black hole", what)
			}
			stop()
			if n := pool.Stat().TotalConns(); n != places {
				t.Errorf("%s: dead connections have %d places, not %d", what, n, places)
			}
			p.spit()
		}
	}
}

// onePlace opens a storage behind a network with a pool of one place. It returns the
// calls of the storage by their names. The listener has used the place before.
func onePlace(t *testing.T, p *badNetwork) (
	call func(context.Context, string) error, pool *pgxpool.Pool) {
	t.Helper()
	pool = poolAt(t, p.dsn(), func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.ConnectTimeout = 1, time.Minute
	})
	name := schema(t, connect(t))
	ear, err := pgx.Connect(t.Context(), server)
	must(t, err)
	defer ear.Close(t.Context())
	_, err = ear.Exec(t.Context(), `LISTEN "ojs:`+name+`"`)
	must(t, err)
	s := openAs(t, pool, name, postgres.WithPatience(2*time.Second), postgres.WithPoll(time.Hour),
		postgres.WithLogger(quietLog))
	_, err = ear.WaitForNotification(t.Context()) // from the pool
	must(t, err)
	return func(ctx context.Context, call string) error { return everyCall(t, ctx, s)[call]() }, pool
}

// A call whose commit waits for a synchronous standby fails with ErrStandby. The server
// answers other calls, so the pool is not reset.
func TestAbsentStandby(t *testing.T) {
	t.Parallel()
	server := privateServer(t)
	pool := poolAt(t, server.DSN(), nil)
	s := openAs(t, pool, "ojs", postgres.WithPatience(2*time.Second), postgres.WithPoll(10*time.Millisecond))
	execAll(t, poolAt(t, server.DSN(), nil), "ALTER SYSTEM SET synchronous_standby_names = 'absent'",
		"SELECT pg_reload_conf()")
	var failed error
	await(t, "a call waits for the standby", func() bool {
		failed = insertOne(t.Context(), s)
		return failed != nil
	})
	if !errors.Is(failed, postgres.ErrStandby) || !errors.Is(failed, postgres.ErrUnavailable) {
		t.Errorf("got %v", failed)
	}
	execAll(t, poolAt(t, server.DSN()+" options='-c synchronous_commit=local'", nil),
		"ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
	await(t, "the standby is no longer waited for", func() bool { return insertOne(t.Context(), s) == nil })
}

// A commit that waits for an absent standby stands on the primary when pgx has cancelled
// it, and a fail-over undoes it. So a call that finds it done waits for the standby, too.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	server := privateServer(t)
	pool := poolAt(t, server.DSN(), nil)
	s := openAs(t, pool, "ojs", postgres.WithPatience(time.Second), postgres.WithPoll(10*time.Millisecond))
	var claimed [3]storage.Record
	for i := range claimed {
		must(t, insert(t.Context(), s, record(i)))
		claimed[i] = claimOne(t, s, record(i).ID)
	}
	ended, gone := claimed[0], claimed[2]
	ended.State, ended.FinishedAt = ojs.StateCompleted, time.Now()
	gone.State, gone.FinishedAt = ended.State, ended.FinishedAt
	settle(t, t.Context(), s, gone)
	calls := map[string]func() error{
		"Insert": func() error { return insert(t.Context(), s, record(9)) },
		"Delete": func() error {
			_, err := s.Delete(t.Context(), []string{gone.ID})
			return err
		},
		"Settle": func() error {
			_, err := s.Settle(t.Context(), time.Now(),
				[]storage.Change{{Record: ended, AttemptFieldsOnly: true}}, nil)
			return err
		},
		"Unclaim": func() error {
			held := []storage.Held{{ID: claimed[1].ID, Version: claimed[1].Version}}
			_, err := s.Unclaim(t.Context(), time.Now(), held)
			return err
		},
		"Unclaim of a job that is not there": func() error { // a transaction that locks nothing
			_, err := s.Unclaim(t.Context(), time.Now(), []storage.Held{{ID: record(8).ID, Version: 1}})
			return err
		},
	}
	execAll(t, poolAt(t, server.DSN(), nil), "ALTER SYSTEM SET synchronous_standby_names = 'absent'",
		"SELECT pg_reload_conf()")
	await(t, "a call waits for the standby", func() bool { return insertOne(t.Context(), s) != nil })
	for name, call := range calls {
		for range 3 {
			if err := call(); !errors.Is(err, postgres.ErrUnavailable) || errors.Is(err, ojs.ErrDuplicate) {
				t.Errorf("%s: an answer without the standby, with the error %v", name, err)
			}
		}
	}
	local := poolAt(t, server.DSN()+" options='-c synchronous_commit=local'", nil)
	execAll(t, local, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
	await(t, "the listener has lost its connection", func() bool { return s.CheckNotify() != nil })
	await(t, "the listener is back without the standby", func() bool { return s.CheckNotify() == nil })
	execAll(t, local, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
	for name, call := range calls {
		await(t, name+" is answered", func() bool {
			err := call()
			return err == nil || errors.Is(err, ojs.ErrDuplicate)
		})
	}
}

// Behind a transaction pooler, a storage with WithListenDSN receives notifications by a
// connection of its own.
func TestListenDSN(t *testing.T) {
	t.Parallel()
	server := privateServer(t)
	connectTo := pooled(t, server, 5)
	open := func(opts ...postgres.Option) *postgres.Storage {
		return openAs(t, connectTo(pgx.QueryExecModeExec), "ojs", opts...)
	}
	seldom := postgres.WithPoll(time.Hour)
	hears, says := open(seldom, postgres.WithListenDSN(server.DSN())), open(seldom)
	heard := make(chan struct{}, 100)
	defer hears.Notify("", func(n storage.Notice) {
		if n.Available && !n.Everything {
			heard <- struct{}{}
		}
	})()
	await(t, "the storage listens", func() bool {
		must(t, insertOne(t.Context(), says))
		select {
		case <-heard:
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
	_, err := postgres.Open(t.Context(), connectTo(pgx.QueryExecModeExec), postgres.WithListenDSN("port=x"))
	if !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("a string that is no DSN: %v", err)
	}
}

// jumping is a clock that a test sets to another time.
type jumping struct {
	clock.Clock
	by atomic.Int64
}

func (c *jumping) Now() time.Time { return c.Clock.Now().Add(time.Duration(c.by.Load())) }

// The next poll logs a jump between the clocks of the database and this machine.
func TestClockThatJumps(t *testing.T) {
	t.Parallel()
	logged := make(lines, 100)
	machine := &jumping{Clock: clock.New()}
	s, _ := open(t, "", postgres.WithClock(machine), postgres.WithPoll(10*time.Millisecond),
		postgres.WithLogger(slog.New(logged)))
	machine.by.Store(int64(-time.Hour))
	if line := <-logged; !strings.Contains(line, "have moved apart") {
		t.Errorf("logged %q", line)
	}
	if by := s.ClockOffset(); by < 59*time.Minute {
		t.Errorf("the database's clock is %v ahead", by)
	}
}
