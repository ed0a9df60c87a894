package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/crashtest"
	"github.com/ojsengine/ojs/internal/test/limittest"
	"github.com/ojsengine/ojs/internal/test/memdir"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/sqlite"
)

func TestMain(m *testing.M) {
	crashtest.Child(openForCrash, withinForCrash)
	limittest.Child(openForCrash)
	lookAsChild()
	holdAsChild()
	_ = os.Setenv("TMPDIR", memdir.Dir()) // for testing.T.TempDir
	if os.Getenv("RAPID_CHECKS") == "" {  // 100 runs of storagetest.Random take 40 seconds
		_ = flag.Set("rapid.checks", "25") // a flag of the command line overrides it
	}
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func file(t testing.TB, s *sqlite.Storage) string {
	path, _ := files.Load(s)
	return path.(string)
}

// fresh opens a storage in a new file, which the end of the test closes.
func fresh(t testing.TB, opts ...sqlite.Option) *sqlite.Storage {
	path := filepath.Join(t.TempDir(), "jobs.db")
	s, err := sqlite.Open(t.Context(), path, opts...)
	must(t, err)
	files.Store(s, path)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// record is an available job.
func record(n int) storage.Record {
	var r storage.Record
	r.ID, r.Type, r.Queue, r.State = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", n), "x", "q",
		ojs.StateAvailable
	r.CreatedAt, r.Lease, r.Timeout = time.Now(), time.Minute, time.Minute
	return r
}

func insert(s storage.Storage, recs ...storage.Record) error {
	batch := make([]storage.Insert, len(recs))
	for i := range recs {
		batch[i].Record = recs[i]
	}
	_, err := s.Insert(context.Background(), time.Now(), batch, nil)
	return err
}

// A file that is not ours is refused, and stays as it is.
func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, content, 0o600))
		return path
	}
	other := filepath.Join(dir, "other.db")
	must(t, sqlite.Exec(other, "CREATE TABLE job (id)"))
	mine := filepath.Join(dir, "mine.db")
	s, err := sqlite.Open(t.Context(), mine)
	must(t, err)
	for n := range 100 {
		must(t, insert(s, record(n)))
	}
	must(t, s.Close())
	whole, err := os.ReadFile(mine)
	must(t, err)
	broken := bytes.Clone(whole)
	for i := 100; i < len(broken); i++ {
		broken[i] = 0xAA
	}
	newer := filepath.Join(dir, "newer.db")
	s, err = sqlite.Open(t.Context(), newer)
	must(t, err)
	must(t, s.Close())
	must(t, sqlite.Exec(newer, fmt.Sprintf("PRAGMA user_version = %d", sqlite.Schema+1)))
	for path, want := range map[string]error{
		write("text",
			[]byte("a letter to a friend, and long enough to be taken for the header of a file of some kind or other, surely")): sqlite.ErrForeign,
		write("short", []byte("short")): sqlite.ErrForeign,
		other:                           sqlite.ErrForeign,
		write("broken.db", broken):      sqlite.ErrCorrupt,
		newer:                           sqlite.ErrNewer,
	} {
		before, err := os.ReadFile(path)
		must(t, err)
		if _, err := sqlite.Open(t.Context(), path); !errors.Is(err, want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, not %v", filepath.Base(path), err, want)
		}
		after, err := os.ReadFile(path)
		must(t, err)
		if !bytes.Equal(before, after) {
			t.Errorf("%s has changed", filepath.Base(path))
		}
	}
	if _, err := sqlite.Open(t.Context(), filepath.Join(dir, "no", "such", "directory")); err == nil ||
		errors.Is(err, sqlite.ErrForeign) {
		t.Errorf("no directory: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sqlite.Open(ended, filepath.Join(dir, "new.db")); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for field, opt := range map[string]sqlite.Option{
		"option": nil, "synchronous": sqlite.WithSynchronous("never"),
		"busy_timeout": sqlite.WithBusyTimeout(-1),
		"readers":      sqlite.WithReaders(0), "poll": sqlite.WithPoll(0),
	} {
		path := filepath.Join(t.TempDir(), "jobs.db")
		var invalid *ojs.InvalidError
		if _, err := sqlite.Open(t.Context(), path, opt); !errors.As(err, &invalid) ||
			invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: a file was made", field)
		}
	}
}

// However many open a new file at once, one of them makes the schema.
func TestOpenTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			s, err := sqlite.Open(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			if err := insert(s, record(n)); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s, err := sqlite.Open(t.Context(), path)
	must(t, err)
	defer s.Close()
	counts, err := s.Counts(t.Context())
	if err != nil || len(counts) != 1 || counts[0].N != 8 {
		t.Errorf("%+v, %v", counts, err)
	}
}

// A call that fails takes nothing with it, and nothing of it stays.
func TestFailuresAmongOthers(t *testing.T) {
	s := fresh(t)
	must(t, insert(s, record(0)))
	var wg sync.WaitGroup
	for n := 1; n <= 50; n++ {
		wg.Go(func() {
			if err := insert(s, record(n), record(n+100)); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := insert(s, record(n+200), record(0)); !errors.Is(err, ojs.ErrDuplicate) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	counts, err := s.Counts(t.Context())
	if err != nil || counts[0].N != 101 {
		t.Errorf("%+v, %v", counts, err)
	}
	if _, err := s.Get(t.Context(), record(201).ID); !errors.Is(err, ojs.ErrNotFound) {
		t.Errorf("of a call that failed: %v", err)
	}
}

// A transaction whose first read fails ends there: it blocks no other call, and the
// storage works as soon as the file is well again.
func TestFailureOfTheFirstRead(t *testing.T) {
	s := fresh(t)
	must(t, insert(s, record(0)))
	must(t, sqlite.Exec(file(t, s), "ALTER TABLE ojs_kv RENAME TO gone"))
	for n := range 3 {
		if err := insert(s, record(1)); err == nil || !strings.Contains(err.Error(),
			"no such table: ojs_kv") {
			t.Fatalf("call %d: %v", n+1, err)
		}
	}
	must(t, sqlite.Exec(file(t, s), "ALTER TABLE gone RENAME TO ojs_kv")) // another program writes
	must(t, insert(s, record(1)))
	counts, err := s.Counts(t.Context())
	if err != nil || len(counts) != 1 || counts[0].N != 2 {
		t.Errorf("%+v, %v", counts, err)
	}
}

// Every statement of transactions finds its rows by the primary key.
func TestPlans(t *testing.T) {
	plans, err := fresh(t).Plans()
	must(t, err)
	for sql, plan := range plans {
		if !strings.Contains(plan, "SEARCH ojs_kv USING PRIMARY KEY (k") && sql != sqlite.Pin &&
			plan != "" || strings.Count(plan, "\n") > 1 {
			t.Errorf("%s: %s", sql, plan)
		}
	}
}

// The space of jobs that are pruned is used again.
func TestNoBloat(t *testing.T) {
	s := fresh(t, sqlite.WithSynchronous(sqlite.Normal))
	cycle := func(round int) int {
		var recs []storage.Record
		for n := range 500 {
			recs = append(recs, record(round*500+n))
		}
		must(t, insert(s, recs...))
		claimed, err := s.Claim(t.Context(), time.Now(), storage.Claim{Max: 500, Worker: "w"}, nil)
		must(t, err)
		changes := make([]storage.Change, len(claimed))
		for i := range claimed {
			changes[i] = storage.Change{Record: claimed[i], AttemptFieldsOnly: true}
			changes[i].Record.State, changes[i].Record.FinishedAt = ojs.StateCompleted, time.Now()
		}
		_, err = s.Settle(t.Context(), time.Now(), changes, nil)
		must(t, err)
		_, err = s.Prune(t.Context(), storage.Prune{Beyond: 100, Max: 1000})
		must(t, err)
		pages, err := s.Pages()
		must(t, err)
		return pages
	}
	early := 0
	for round := range 40 {
		pages := cycle(round)
		if round == 5 {
			early = pages
		}
		if round > 5 && pages > early+early/10 {
			t.Fatalf("%d pages after round %d, %d after the fifth", pages, round, early)
		}
	}
}

// Two storages on one file, as in two processes: what one does the other one's engine
// finds.
func TestTwoOnOneFile(t *testing.T) {
	works := fresh(t, sqlite.WithPoll(5*time.Millisecond))
	other, err := sqlite.Open(t.Context(), file(t, works), sqlite.WithPoll(5*time.Millisecond))
	must(t, err)
	defer other.Close()
	quiet := engine.WithLogger(discard)
	eng, err := engine.New[int](works, quiet)
	must(t, err)
	enqueues, err := engine.New[int](other, quiet)
	must(t, err)
	eng.Handle("x", func(context.Context, *ojs.Job[int]) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	must(t, eng.WaitIdle(ctx))
	for n := range 10 {
		ticket, err := enqueues.Enqueue(ctx, "x", n, ojs.WithDelay(time.Duration(n)*time.Millisecond))
		must(t, err)
		if job, err := ticket.Wait(ctx); err != nil || job.State != ojs.StateCompleted {
			t.Errorf("%+v, %v", job, err)
		}
	}
	stop()
	must(t, <-ended)
}

var discard = slog.New(slog.DiscardHandler)

// A record that does not encode fails its own call, and none of those that share the
// transaction.
func TestNoDocument(t *testing.T) {
	s := fresh(t)
	var all sync.WaitGroup
	for n := range 200 {
		all.Go(func() {
			if err := insert(s, record(n)); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			batch := []storage.Insert{{Record: record(1000 + n), MaxDepth: 1 << 30},
				{Record: record(2000 + n)}}
			batch[1].Record.Meta = map[string]any{"none": math.NaN()}
			if _, err := s.Insert(t.Context(), time.Now(), batch, nil); err == nil {
				t.Error("what no JSON can hold is stored")
			}
		})
	}
	all.Wait()
}
