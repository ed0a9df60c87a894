package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	zombiezen "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// A job that is enqueued before a restart runs after it.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "jobs")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "jobs.db")

	store, err := sqlite.Open(ctx, path)
	if err != nil {
		log.Fatal(err)
	}
	eng, err := engine.New[string](store)
	if err != nil {
		log.Fatal(err)
	}
	ticket, err := eng.Enqueue(ctx, "greet", "world")
	if err != nil {
		log.Fatal(err)
	}
	store.Close() // the process ends

	store, err = sqlite.Open(ctx, path) // and another one begins
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	eng, err = engine.New[string](store)
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan string)
	eng.Handle("greet", func(_ context.Context, job *ojs.Job[string]) error {
		ran <- "hello, " + job.Args
		return nil
	})
	run, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- eng.Run(run) }()
	fmt.Println(<-ran)
	if err := eng.WaitIdle(ctx); err != nil {
		log.Fatal(err)
	}
	job, err := eng.Get(ctx, ticket.ID)
	fmt.Println(job.State, err)
	stop()
	fmt.Println(<-ended)
	// Output:
	// hello, world
	// completed <nil>
	// <nil>
}

// A record that does not decode is set aside. A person looks at it and deletes it.
func ExampleOpen_quarantine() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "jobs")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "jobs.db")
	store, err := sqlite.Open(ctx, path)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	eng, err := engine.New[string](store, engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	ticket, err := eng.Enqueue(ctx, "greet", "world")
	if err != nil {
		log.Fatal(err)
	}
	shell(path, `UPDATE ojs_kv SET v = substr(v, 1, 30) WHERE k >= x'02' AND k < x'03'`) // a disk fails

	_, err = eng.Get(ctx, ticket.ID)
	fmt.Println(errors.Is(err, ojs.ErrQuarantined))
	for q, err := range eng.Quarantine().List(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(q.Kind, q.Type, q.State)
		// a release finds that it still does not decode
		fmt.Println(errors.Is(eng.Quarantine().Release(ctx, q.Key), ojs.ErrQuarantined))
		fmt.Println(eng.Quarantine().Delete(ctx, q.Key))
	}
	_, err = eng.Get(ctx, ticket.ID)
	fmt.Println(errors.Is(err, ojs.ErrNotFound))
	// Output:
	// true
	// job greet available
	// true
	// <nil>
	// true
}

// shell runs a statement as the command sqlite3 does.
func shell(path, sql string) {
	if err := sqlite.Exec(path, sql); err != nil {
		log.Fatal(err)
	}
}

// The account and the job that welcomes it are there together, or not at all. The table
// of accounts is in the file of the jobs.
func ExampleStorage_Within() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "jobs")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := sqlite.Open(ctx, filepath.Join(dir, "jobs.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	eng, err := engine.New[int64](store)
	if err != nil {
		log.Fatal(err)
	}
	signUp := func(name string) error {
		return store.Within(ctx, func(ctx context.Context, conn *zombiezen.Conn) error {
			values := &sqlitex.ExecOptions{Args: []any{name}}
			if err := sqlitex.Execute(conn, "INSERT INTO account (name) VALUES (?)", values); err != nil {
				return err
			}
			_, err := eng.Enqueue(ctx, "welcome", conn.LastInsertRowID())
			return err
		})
	}
	err = store.Within(ctx, func(_ context.Context, conn *zombiezen.Conn) error {
		return sqlitex.Execute(conn, "CREATE TABLE account (id INTEGER PRIMARY KEY, name TEXT UNIQUE)", nil)
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ann:", signUp("ann"))
	fmt.Println("ann again is refused:", signUp("ann") != nil)
	stats, err := eng.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stats.Total[ojs.StateAvailable], "job")
	// Output:
	// ann: <nil>
	// ann again is refused: true
	// 1 job
}
