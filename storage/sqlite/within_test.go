package sqlite_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	zombiezen "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/test/eachtx"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/sqlite"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// Calls within transactions behave as others do, for all values of all fields.
func TestWithinBehaves(t *testing.T) {
	cfg := config
	cfg.Open = func(tb testing.TB) storage.Storage {
		s := open(tb).(*sqlite.Storage)
		return eachtx.Storage{Storage: s,
			Within: func(ctx context.Context, f func(ctx context.Context) error) error {
				return s.Within(ctx, func(ctx context.Context, _ *zombiezen.Conn) error { return f(ctx) })
			}}
	}
	cfg.Reopen, cfg.Another, cfg.Plant, cfg.Mend, cfg.Quarantine = nil, nil, nil, nil, false
	storagetest.SameBehaviour(t, cfg)
}

// payments is a table of the program's, in the file of the jobs.
type payments struct{ *sqlite.Storage }

func paying(t *testing.T) payments {
	p := payments{fresh(t, sqlite.WithSynchronous(sqlite.Normal))}
	must(t, p.Within(t.Context(), func(_ context.Context, conn *zombiezen.Conn) error {
		return sqlitex.Execute(conn, "CREATE TABLE payment (job TEXT)", nil)
	}))
	return p
}

func pay(conn *zombiezen.Conn, job string) error {
	return sqlitex.Execute(conn, "INSERT INTO payment VALUES (?)", &sqlitex.ExecOptions{Args: []any{job}})
}

// insertIn stores a job in the transaction of a context.
func insertIn(ctx context.Context, p payments, rec storage.Record) error {
	_, err := p.Insert(ctx, time.Now(), []storage.Insert{{Record: rec}}, nil)
	return err
}

// of counts the payments of a job.
func (p payments) of(t *testing.T, job string) (n int) {
	t.Helper()
	must(t, p.Within(t.Context(), func(_ context.Context, conn *zombiezen.Conn) (err error) {
		stmt := conn.Prep("SELECT count(*) FROM payment WHERE job = ?")
		stmt.BindText(1, job)
		n, err = sqlitex.ResultInt(stmt)
		return err
	}))
	return n
}

// never is a function that must not be called.
func never(t *testing.T) func(context.Context, *zombiezen.Conn) error {
	return func(context.Context, *zombiezen.Conn) error {
		t.Error("called")
		return nil
	}
}

func TestWithin(t *testing.T) {
	errBack := errors.New("back")
	ends := map[string]struct {
		end  func() error
		want error // nil: any
		kept bool
	}{
		"returns": {end: func() error { return nil }, kept: true},
		"fails":   {end: func() error { return errBack }, want: errBack},
		"panics":  {end: func() error { panic("boom") }},
		"exits":   {end: func() error { runtime.Goexit(); return nil }},
	}
	for how, e := range ends {
		t.Run("all or nothing: it "+how, func(t *testing.T) {
			p := paying(t)
			eng, err := engine.New[any](p.Storage, engine.WithLogger(discard))
			must(t, err)
			var id string
			var result error
			var call sync.WaitGroup
			call.Go(func() {
				defer func() { _ = recover() }()
				result = p.Within(t.Context(), func(ctx context.Context, conn *zombiezen.Conn) error {
					ticket, err := eng.Enqueue(ctx, "x", nil)
					if err != nil {
						return err
					}
					id = ticket.ID
					if _, err := eng.Get(ctx, id); err != nil {
						t.Errorf("within: %v", err)
					}
					if _, err := eng.Get(context.Background(), id); !errors.Is(err, ojs.ErrNotFound) {
						t.Errorf("outside: %v", err)
					}
					if err := pay(conn, id); err != nil {
						return err
					}
					return e.end()
				})
			})
			call.Wait()
			if result != e.want {
				t.Errorf("%v, want %v", result, e.want)
			}
			_, err = eng.Get(t.Context(), id)
			if there := err == nil; there != e.kept || p.of(t, id) == 1 != e.kept {
				t.Errorf("job %v, %d payments", err, p.of(t, id))
			}
			counts, err := p.Counts(t.Context())
			must(t, err)
			if (len(counts) > 0) != e.kept {
				t.Errorf("counts %v", counts)
			}
		})
	}

	t.Run("a refused enqueue leaves it usable", func(t *testing.T) {
		p := paying(t)
		eng, err := engine.New[any](p.Storage, engine.WithLogger(discard))
		must(t, err)
		_, err = eng.Enqueue(t.Context(), "x", nil, ojs.WithUnique(ojs.UniquePolicy{}))
		must(t, err)
		must(t, p.Within(t.Context(), func(ctx context.Context, conn *zombiezen.Conn) error {
			_, err := eng.Enqueue(ctx, "x", nil, ojs.WithUnique(ojs.UniquePolicy{}))
			if !errors.Is(err, ojs.ErrDuplicate) {
				t.Errorf("%v", err)
			}
			return pay(conn, "a")
		}))
		if p.of(t, "a") != 1 {
			t.Error("lost")
		}
	})
	t.Run("a commit wakes the engine", func(t *testing.T) {
		p := paying(t)
		eng, err := engine.New[any](p.Storage, engine.WithLogger(discard))
		must(t, err)
		eng.Handle("x", func(context.Context, *ojs.Job[any]) error { return nil })
		runUntilEnd(t, eng)
		var ticket ojs.Ticket
		must(t, p.Within(t.Context(), func(ctx context.Context, _ *zombiezen.Conn) (err error) {
			ticket, err = eng.Enqueue(ctx, "x", nil)
			return err
		}))
		if _, err := ticket.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("misuse is refused", func(t *testing.T) {
		p := paying(t)
		other, err := engine.New[any](memory.New(), engine.WithLogger(discard))
		must(t, err)
		var after context.Context
		must(t, p.Within(t.Context(), func(ctx context.Context, _ *zombiezen.Conn) error {
			after = ctx
			nested := p.Within(ctx, never(t))
			if !errors.Is(nested, ojs.ErrUnsupported) {
				t.Errorf("nested: %v", nested)
			}
			if _, err := other.Enqueue(ctx, "x", nil); !errors.Is(err, ojs.ErrUnsupported) {
				t.Errorf("another storage: %v", err)
			}
			return nil
		}))
		if _, err := p.Get(after, "x"); err == nil || errors.Is(err, ojs.ErrNotFound) {
			t.Errorf("after the end: %v", err)
		}
		err = p.Within(t.Context(), func(ctx context.Context, conn *zombiezen.Conn) error {
			return sqlitex.Execute(conn, "COMMIT", nil)
		})
		if err == nil {
			t.Error("a commit of its own is no error")
		}
		must(t, insert(p.Storage, record(1))) // the storage still works
	})
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		t.Run("a call after "+end+" stores nothing", func(t *testing.T) {
			p := paying(t)
			err := p.Within(t.Context(), func(ctx context.Context, conn *zombiezen.Conn) error {
				must(t, sqlitex.Execute(conn, end, nil))
				if err := insertIn(ctx, p, record(1)); err == nil {
					t.Error("an insert is no error")
				}
				return nil
			})
			if err == nil {
				t.Error("the end of the transaction is no error")
			}
			if _, err := p.Get(t.Context(), record(1).ID); !errors.Is(err, ojs.ErrNotFound) {
				t.Errorf("the job is stored: %v", err)
			}
		})
	}
	t.Run("a full disk undoes it all, even if it goes on", func(t *testing.T) {
		p := paying(t)
		pages, err := p.Pages()
		must(t, err)
		most := func(n int) func(context.Context, *zombiezen.Conn) error {
			return func(_ context.Context, conn *zombiezen.Conn) error {
				return sqlitex.ExecuteTransient(conn, fmt.Sprintf("PRAGMA max_page_count = %d", n), nil)
			}
		}
		large := record(1)
		large.Args, err = ojs.NewArgs(strings.Repeat("x", 1<<18))
		must(t, err)
		isFull := func(err error) {
			t.Helper()
			if err == nil || !strings.HasPrefix(err.Error(), "ojs: sqlite: ") ||
				!strings.Contains(err.Error(), "full") {
				t.Errorf("%v", err)
			}
		}
		must(t, p.Within(t.Context(), most(pages+3)))
		isFull(p.Within(t.Context(), func(ctx context.Context, conn *zombiezen.Conn) error {
			isFull(insertIn(ctx, p, large))
			return pay(conn, "a")
		}))
		isFull(insert(p.Storage, large))
		must(t, p.Within(t.Context(), most(1<<20)))
		if n := p.of(t, "a"); n != 0 {
			t.Errorf("%d payments", n)
		}
		must(t, insert(p.Storage, large))
	})
	leaves := map[string]func(conn *zombiezen.Conn) error{
		"a statement that reads": func(conn *zombiezen.Conn) error {
			_, err := conn.Prep("SELECT job FROM payment").Step()
			return err
		},
		"a statement that writes": func(conn *zombiezen.Conn) error {
			_, err := conn.Prep("INSERT INTO payment VALUES ('b'), ('c') RETURNING job").Step()
			return err
		},
		"an interrupt": func(conn *zombiezen.Conn) error {
			ended := make(chan struct{})
			close(ended)
			conn.SetInterrupt(ended)
			return nil
		},
	}
	for what, leave := range leaves {
		for how, e := range ends {
			t.Run("it leaves "+what+" and "+how, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "jobs.db")
				p, other := payments{reopen(t, path).(*sqlite.Storage)}, reopen(t, path)
				must(t, p.Within(t.Context(), func(_ context.Context, conn *zombiezen.Conn) error {
					return sqlitex.ExecuteScript(conn, "CREATE TABLE payment (job TEXT);"+
						"INSERT INTO payment VALUES ('x'), ('y')", nil)
				}))
				var call sync.WaitGroup
				call.Go(func() {
					defer func() { _ = recover() }()
					_ = p.Within(t.Context(), func(_ context.Context, conn *zombiezen.Conn) error {
						must(t, pay(conn, "a"))
						must(t, leave(conn))
						return e.end()
					})
				})
				call.Wait()
				must(t, insert(other, record(1)))
				must(t, insert(p.Storage, record(2)))
				if n := p.of(t, "a"); n == 1 != e.kept {
					t.Errorf("%d payments", n)
				}
				must(t, errors.Join(other.Close(), p.Close()))
			})
		}
	}
	t.Run("a context that ends before is obeyed", func(t *testing.T) {
		p := paying(t)
		ctx, cancel := context.WithCancel(t.Context())
		must(t, p.Within(t.Context(), func(context.Context, *zombiezen.Conn) error {
			cancelled := make(chan error)
			go func() {
				cancelled <- p.Within(ctx, never(t))
			}()
			cancel()
			if err := <-cancelled; !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			return nil
		}))
	})
	t.Run("among calls of others", func(t *testing.T) {
		p := paying(t)
		var calls sync.WaitGroup
		for g := range 8 {
			calls.Go(func() {
				for i := range 50 {
					n := g*1000 + i
					if g%2 == 0 {
						must(t, insert(p.Storage, record(n)))
						continue
					}
					err := p.Within(t.Context(), func(ctx context.Context, conn *zombiezen.Conn) error {
						must(t, insertIn(ctx, p, record(n)))
						must(t, pay(conn, fmt.Sprint(n)))
						if i%3 == 0 {
							return errBack
						}
						return nil
					})
					if (err != nil) != (i%3 == 0) {
						t.Error(err)
					}
				}
			})
		}
		calls.Wait()
		for n := range 8000 {
			if g, i := n/1000, n%1000; i < 50 && g%2 == 1 {
				_, err := p.Get(t.Context(), record(n).ID)
				if kept := i%3 != 0; (err == nil) != kept || p.of(t, fmt.Sprint(n)) == 1 != kept {
					t.Errorf("%d: %v", n, err)
				}
			}
		}
	})
}

// runUntilEnd runs an engine until the end of the test.
func runUntilEnd(t *testing.T, eng *engine.Engine[any]) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
}

// The payment of a job and its completion are one commit: attempts fail before it and
// after it, and no job is paid twice.
func TestCompleteWithin(t *testing.T) {
	p := paying(t)
	eng, err := engine.New[any](p.Storage, engine.WithLogger(discard), engine.WithConcurrency(4))
	must(t, err)
	eng.Handle("pay", func(ctx context.Context, job *ojs.Job[any]) error {
		errBack := errors.New("back")
		fails := rand.N(4)
		err := p.Within(ctx, func(ctx context.Context, conn *zombiezen.Conn) error {
			if err := pay(conn, job.ID); err != nil {
				return err
			}
			if fails == 0 {
				return errBack
			}
			if err := handler.Complete(ctx); err != nil {
				return err
			}
			if fails == 1 {
				return errBack
			}
			return nil
		})
		if err == nil && fails == 2 {
			return errBack // too late
		}
		return err
	})
	runUntilEnd(t, eng)
	var tickets []ojs.Ticket
	for range 100 {
		ticket, err := eng.Enqueue(t.Context(), "pay", nil, ojs.WithRetry(ojs.RetryPolicy{
			MaxAttempts: 100, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond}))
		must(t, err)
		tickets = append(tickets, ticket)
	}
	for _, ticket := range tickets {
		if _, err := ticket.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if n := p.of(t, ticket.ID); n != 1 {
			t.Errorf("%d payments of job %s", n, ticket.ID)
		}
	}
}

// W024: jobs that wait for one that is completed in a transaction move with it, and
// their events follow its own.
func TestCompleteWithinMovesDependents(t *testing.T) {
	p := paying(t)
	eng, err := engine.New[any](p.Storage, engine.WithLogger(discard))
	must(t, err)
	eng.Handle("pay", func(ctx context.Context, _ *ojs.Job[any]) error {
		return p.Within(ctx, func(ctx context.Context, _ *zombiezen.Conn) error {
			return handler.Complete(ctx)
		})
	})
	sub := eng.Subscribe(engine.EventFilter{Types: []event.Type{event.Available, event.Completed}})
	defer sub.Close()
	tickets, err := eng.EnqueueMany(t.Context(),
		ojs.NewDraft("pay", nil, ojs.WithDraftName("pay")),
		ojs.NewDraft("other", nil, ojs.WithDependsOn("pay")),
		ojs.NewDraft("join", nil, ojs.WithDependsOn("pay"), ojs.WithJoin()))
	must(t, err)
	runUntilEnd(t, eng)
	if _, err := tickets[2].Wait(t.Context()); err != nil {
		t.Error(err)
	}
	for i, want := range []event.Type{event.Completed, event.Available, event.Completed} {
		if ev := <-sub.C(); ev.Type != want || ev.Subject != tickets[i].ID {
			t.Errorf("event %d: %s of %s, want %s of %s", i, ev.Type, ev.Subject, want, tickets[i].ID)
		}
	}
}

// The log of an attempt is stored in the transaction that completes its job: it is there
// if that commits, and not if it is undone.
func TestLogsOfCompleteWithin(t *testing.T) {
	p := paying(t)
	eng, err := engine.New[any](p.Storage, engine.WithLogger(discard), engine.WithJobLogs(0))
	must(t, err)
	eng.Handle("pay", func(ctx context.Context, job *ojs.Job[any]) error {
		handler.Logger(ctx).Info("paying")
		err := p.Within(ctx, func(ctx context.Context, _ *zombiezen.Conn) error {
			if err := handler.Complete(ctx); err != nil || job.Attempt > 1 {
				return err
			}
			return errors.New("the account is locked")
		})
		if err != nil {
			handler.Logger(ctx).Info("undone")
		}
		return err
	})
	ticket, err := eng.Enqueue(t.Context(), "pay", nil,
		ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Millisecond}))
	must(t, err)
	runUntilEnd(t, eng)
	job, err := ticket.Wait(t.Context())
	must(t, err)
	if job.State != ojs.StateCompleted || job.Attempt != 2 {
		t.Errorf("the job is %s after attempt %d", job.State, job.Attempt)
	}
	logs, err := eng.Jobs().Logs(t.Context(), ticket.ID)
	must(t, err)
	got := make(map[int]string)
	for _, l := range logs {
		for _, line := range l.Lines {
			var told struct{ Msg string }
			must(t, json.Unmarshal(line, &told))
			got[l.Attempt] += told.Msg + " "
		}
	}
	if want := map[int]string{1: "paying undone ", 2: "paying "}; !maps.Equal(got, want) {
		t.Errorf("the logs are %v, want %v", got, want)
	}
}

// A change without the context of f would wait for f, and f for it. It is refused at
// once, and the transaction goes on.
func TestOuterContextWithin(t *testing.T) {
	p := paying(t)
	eng, err := engine.New[any](p.Storage, engine.WithLogger(discard))
	must(t, err)
	outer, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(t, p.Within(outer, func(ctx context.Context, conn *zombiezen.Conn) error {
		_, enqueue := eng.Enqueue(outer, "x", nil)
		for call, err := range map[string]error{
			"Enqueue": enqueue, "Insert": insertIn(outer, p, storage.Record{}),
			"Within": p.Within(outer, never(t)), "Close": p.Close(),
		} {
			var invalid *ojs.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "ctx" {
				t.Errorf("%s returned %v", call, err)
			}
		}
		_, err := eng.Enqueue(ctx, "x", nil)
		must(t, err)
		return pay(conn, "a")
	}))
	_, err = eng.Enqueue(outer, "x", nil)
	must(t, err)
	if n := p.of(t, "a"); n != 1 {
		t.Errorf("%d payments", n)
	}
}

// A change that f waits for, on another goroutine, fails after the busy timeout.
func TestWithinWaitsForItself(t *testing.T) {
	s := fresh(t, sqlite.WithSynchronous(sqlite.Normal), sqlite.WithBusyTimeout(time.Millisecond))
	eng, err := engine.New[any](s, engine.WithLogger(discard))
	must(t, err)
	outer, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(t, s.Within(outer, func(ctx context.Context, _ *zombiezen.Conn) error {
		result := make(chan error)
		for range 2 {
			go func() {
				_, err := eng.Enqueue(outer, "x", nil)
				result <- err
			}()
		}
		for range 2 {
			if err := <-result; !errors.Is(err, sqlite.ErrWithin) {
				t.Errorf("an enqueue that f waits for: %v", err)
			}
		}
		_, err := eng.Enqueue(ctx, "x", nil)
		return err
	}))
	_, err = eng.Enqueue(outer, "x", nil)
	must(t, err)
}

// A statement that f has left, and that nothing can end, fails Close with an error of the
// storage.
func TestCloseAfterWithin(t *testing.T) {
	s := reopen(t, filepath.Join(t.TempDir(), "jobs.db")).(*sqlite.Storage)
	must(t, s.Within(t.Context(), func(_ context.Context, conn *zombiezen.Conn) error {
		_, _, err := conn.PrepareTransient("SELECT 1")
		return err
	}))
	if err := s.Close(); err == nil || !strings.HasPrefix(err.Error(), "ojs: sqlite: ") {
		t.Error(err)
	}
}

// Within without a function is refused, as every call with a nil transaction is.
func TestWithinNothing(t *testing.T) {
	p := paying(t)
	if err := p.Within(t.Context(), nil); !errors.Is(err, ojs.ErrInvalid) {
		t.Error(err)
	}
	none := storage.WithTx(t.Context(), (*zombiezen.Conn)(nil))
	_, err := p.Get(none, "a")
	for call, err := range map[string]error{
		"Insert": insertIn(none, p, storage.Record{}), "Get": err, "Within": p.Within(none, never(t)),
	} {
		var invalid *ojs.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "tx" {
			t.Errorf("%s returned %v", call, err)
		}
	}
}
