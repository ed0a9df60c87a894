package postgres_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// waitsFor is a job that waits for others.
func waitsFor(n int, ids ...string) storage.Insert {
	in := storage.Insert{Record: record(n), DependsOn: ids}
	in.Record.State = ojs.StatePending
	in.Record.Dependencies = &ojs.Dependencies{Condition: ojs.AllSucceeded}
	return in
}

// The end of a job with a log needs one connection, also if a job that waits for it does
// not decode.
func TestLoggedEndOnOneConnection(t *testing.T) {
	name := schema(t, connect(t))
	pool := poolAt(t, server, func(c *pgxpool.Config) { c.MaxConns = 1 })
	s, err := postgres.Open(t.Context(), pool, postgres.WithSchema(name))
	must(t, err)
	defer s.Close()
	batch := []storage.Insert{{Record: record(1)}, waitsFor(2, record(1).ID)}
	_, err = s.Insert(t.Context(), time.Now(), batch, nil)
	must(t, err)
	end := completed(claimOne(t, s, record(1).ID))
	end.Log = []byte("x")
	execAll(t, connect(t), "UPDATE "+name+`.job SET args = '\x7b' WHERE id = '`+record(2).ID+"'")
	settled, err := s.Settle(t.Context(), time.Now(), []storage.Change{end}, nil)
	if err != nil || settled[0].Err != nil {
		t.Fatal(err, settled)
	}
	logs, err := s.Logs(t.Context(), record(1).ID)
	if err != nil || len(logs) != 1 {
		t.Error(logs, err)
	}
}

// An insert asks of a dependency whether it has ended, and reads nothing else of it: it
// may be large, and need not decode.
func TestInsertDoesNotReadDependencies(t *testing.T) {
	s, name := open(t, "")
	args, err := ojs.NewArgs(fmt.Appendf(nil, "[%q]", bytes.Repeat([]byte("a"), 300_000)))
	must(t, err)
	var ids []string
	for i := range 100 {
		r := record(i)
		r.Args = args
		must(t, insert(t.Context(), s, r))
		ids = append(ids, r.ID)
	}
	execAll(t, connect(t), "UPDATE "+name+`.job SET args = '\x7b' WHERE id = '`+ids[0]+"'")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = s.Insert(t.Context(), time.Now(), []storage.Insert{waitsFor(100, ids...)}, nil)
	must(t, err)
	runtime.ReadMemStats(&after)
	if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 10 {
		t.Errorf("%d MB were allocated", mb)
	}
	if n, err := s.CountQuarantined(t.Context()); err != nil || n != 0 {
		t.Errorf("%d records were set aside, %v", n, err)
	}
}

// The release of an active job gives no limit to its queue and type.
func TestReleaseMakesNoLimit(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	must(t, insert(t.Context(), s, record(1)))
	claimed := claimOne(t, s, record(1).ID)
	execAll(t, pool, "UPDATE "+name+`.job SET args = '\x7b'`)
	_, _ = s.Get(t.Context(), claimed.ID) // which sets it aside
	list, err := s.Quarantined(t.Context(), "", 10)
	must(t, err)
	execAll(t, pool, "UPDATE "+name+`.quarantined_job SET args = '\x6e756c6c'`)
	must(t, s.ReleaseQuarantined(t.Context(), list[0].Key))
	if got, err := s.Get(t.Context(), claimed.ID); err != nil || got.State != ojs.StateActive {
		t.Error(got.State, err)
	}
	var n int
	must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+name+".job_limit").Scan(&n))
	if n != 0 {
		t.Errorf("%d limits are stored", n)
	}
}

// A job that waits for one that has ended, and that a later job of its batch replaces,
// stays cancelled.
func TestReplacedInItsBatch(t *testing.T) {
	s, _ := open(t, "")
	must(t, insert(t.Context(), s, record(1)))
	settle(t, t.Context(), s, completed(claimOne(t, s, record(1).ID)).Record)
	batch := []storage.Insert{waitsFor(2, record(1).ID), waitsFor(3, record(1).ID)}
	for i := range batch {
		r := &batch[i].Record
		r.Fingerprint, r.Unique = "f", &ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}
	}
	_, err := s.Insert(t.Context(), time.Now(), batch, nil)
	must(t, err)
	for n, want := range map[int]ojs.State{2: ojs.StateCancelled, 3: ojs.StateAvailable} {
		if got, err := s.Get(t.Context(), record(n).ID); err != nil || got.State != want {
			t.Errorf("job %d is %s, not %s: %v", n, got.State, want, err)
		}
	}
}
