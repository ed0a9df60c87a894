package postgres_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// The entries of an older schema are due at the times that they name, to the
// nanosecond. Versions go on where they were.
func TestUpgradeCrons(t *testing.T) {
	pool := connect(t)
	name := schema(t, pool)
	must(t, postgres.MakeVersion(t.Context(), pool, name, 3))
	_, err := pool.Exec(t.Context(), `INSERT INTO `+name+`.cron VALUES
		('whole', 7, '{"Name":"whole","Type":"x","Args":"1","NextRun":"2026-01-02T03:04:05Z"}'),
		('part', 9, '{"Name":"part","Type":"x","Args":"1","NextRun":"2026-01-02T03:04:05.00000012Z"}'),
		('never', 1, '{"Name":"never","Type":"x","Args":"1"}'),
		('bad', 1, '{"Name'),
		('worse', 1, '\xff')`)
	must(t, err)
	s, _ := open(t, name)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	due, next, err := s.DueCrons(t.Context(), at, nil, 10)
	must(t, err)
	if len(due) != 1 || due[0].Name != "whole" || due[0].Version != 7 || !next.Equal(at.Add(120)) {
		t.Errorf("due %+v, then %v", due, next)
	}
	versions, err := s.SetCrons(t.Context(),
		[]storage.Cron{{Name: "whole", Version: 7, NextRun: at.Add(time.Hour)}, {Name: "new"}})
	must(t, err)
	if versions[0] <= 9 || versions[1] <= 9 || versions[0] == versions[1] {
		t.Errorf("versions %v", versions)
	}
	if _, next, err = s.DueCrons(t.Context(), at.Add(120), &storage.Cron{Name: "part", NextRun: at.Add(120)},
		10); err != nil || !next.Equal(at.Add(time.Hour)) {
		t.Errorf("next %v, %v", next, err)
	}
}

// A call that stores a new entry is held between drawing its version and storing it,
// while the entry that is there gets a later version and is deleted.
func TestVersionsOfEntriesOnlyGrow(t *testing.T) {
	pool := connect(t)
	name := schema(t, pool)
	s, _ := open(t, name)
	versions, err := s.SetCrons(t.Context(), []storage.Cron{{Name: "x"}})
	must(t, err)
	gate, err := pool.Acquire(t.Context())
	must(t, err)
	defer gate.Release()
	_, err = gate.Exec(t.Context(), `SELECT pg_advisory_lock(4711)`)
	must(t, err)
	_, err = pool.Exec(t.Context(), `CREATE FUNCTION `+name+`.wait() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NEW; END $$;
		CREATE TRIGGER wait BEFORE INSERT ON `+name+`.cron FOR EACH ROW EXECUTE FUNCTION `+name+`.wait()`)
	must(t, err)
	// blocked reports whether n calls wait for a lock.
	blocked := func(n int) (ok bool) {
		must(t, pool.QueryRow(t.Context(), `SELECT count(*) >= $1 FROM pg_locks JOIN pg_stat_activity USING (pid)
			WHERE NOT granted AND query LIKE '%' || $2 || '%'`, n, name).Scan(&ok))
		return ok
	}
	added, changed := make(chan uint64, 1), make(chan uint64, 1)
	set := func(c storage.Cron, done chan uint64) {
		v, err := s.SetCrons(context.WithoutCancel(t.Context()), []storage.Cron{c})
		if err != nil {
			t.Error(err)
			v = make([]uint64, 1)
		}
		done <- v[0]
	}
	go set(storage.Cron{Name: "x"}, added)
	for !blocked(1) {
		runtime.Gosched()
	}
	go set(storage.Cron{Name: "x", Version: versions[0]}, changed)
	for len(changed) == 0 && !blocked(2) {
		runtime.Gosched()
	}
	_, err = s.DeleteCron(t.Context(), "x")
	must(t, err)
	_, err = gate.Exec(t.Context(), `SELECT pg_advisory_unlock(4711)`)
	must(t, err)
	later, last := <-changed, <-added
	list, err := s.Crons(t.Context(), storage.CronQuery{})
	must(t, err)
	if len(list) > 0 && list[0].Version < max(versions[0], later) {
		t.Errorf("after version %d comes %d: an entry of version %d", later, last, list[0].Version)
	}
}
