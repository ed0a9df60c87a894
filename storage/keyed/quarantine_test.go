package keyed_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
)

// overwrite replaces the values of a table that f changes.
func overwrite(t *testing.T, db driver.DB, table byte, f func(value []byte) []byte) {
	t.Helper()
	tx, err := db.Begin(background, true)
	if err != nil {
		t.Fatal(err)
	}
	pairs, err := tx.Scan([]byte{table}, []byte{table + 1}, 1000, false, nil)
	if err != nil || len(pairs) == 0 {
		t.Fatal(len(pairs), err)
	}
	for i, p := range pairs {
		pairs[i].Value = f(p.Value)
	}
	if err := tx.Commit(pairs); err != nil {
		t.Fatal(err)
	}
}

// mending is a store that is mended just before each transaction that writes.
type mending struct {
	driver.DB
	mend func()
}

func (m *mending) Begin(ctx context.Context, write bool) (driver.Tx, error) {
	if write && m.mend != nil {
		m.mend()
	}
	return m.DB.Begin(ctx, write)
}

// A record that has been mended since a reader met it is not set aside.
func TestMendedSinceItWasRead(t *testing.T) {
	db := &mending{DB: drivertest.NewMemory(false, driver.Limits{})}
	s, err := keyed.Open(db, "keyed")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Insert(background, now, []storage.Insert{job("job")}, nil)
	if err == nil {
		_, err = s.SetQueueState(background, "queue", ojs.QueuePaused)
	}
	if err == nil {
		_, err = document.Of(s).SetCrons(background, []storage.Cron{{Name: "entry", NextRun: now}})
	}
	if err != nil {
		t.Fatal(err)
	}
	for table, read := range map[byte]func() error{
		keyed.JobTable:   func() error { _, err := s.Get(background, "job"); return err },
		keyed.QueueTable: func() error { _, err := s.QueueStates(background); return err },
		keyed.DocumentTable: func() error {
			_, err := document.Of(s).Crons(background, storage.DocumentQuery{})
			return err
		},
	} {
		var was []byte
		overwrite(t, db.DB, table, func(v []byte) []byte { was = v; return []byte("damaged") })
		db.mend = func() { overwrite(t, db.DB, table, func([]byte) []byte { return was }) }
		if err := read(); err != nil {
			t.Errorf("table %d: %v", table, err)
		}
		db.mend = nil
		if n, err := s.CountQuarantined(background); n != 0 || err != nil {
			t.Errorf("table %d: %d records are set aside, %v", table, n, err)
		}
	}
}

// TestDamagedHeads cuts the values of jobs at each byte.
func TestDamagedHeads(t *testing.T) {
	for n := range 40 {
		db := drivertest.NewMemory(false, driver.Limits{})
		s, err := keyed.Open(db, "keyed")
		if err != nil {
			t.Fatal(err)
		}
		keyed.KeepFronts(s, n%2*16)
		if _, err := s.Insert(background, now, []storage.Insert{job("bad")}, nil); err != nil {
			t.Fatal(err)
		}
		overwrite(t, db, keyed.JobTable, func(v []byte) []byte { return v[:n] })
		if _, err := s.Insert(background, now, []storage.Insert{job("good")}, nil); err != nil {
			t.Fatal(err)
		}
		claimed, err := s.Claim(background, now, storage.Claim{Max: 5}, nil)
		if err != nil || len(claimed) != 1 || claimed[0].ID != "good" {
			t.Errorf("a value of %d bytes: claimed %d jobs, %v", n, len(claimed), err)
		}
		var q *ojs.QuarantinedError
		if _, err := s.Get(background, "bad"); !errors.As(err, &q) {
			t.Errorf("a value of %d bytes: Get returned %v", n, err)
		}
		counts, err := s.Counts(background)
		if err != nil || len(counts) != 1 || counts[0].N != 1 || counts[0].State != ojs.StateActive {
			t.Errorf("a value of %d bytes: counts %v, %v", n, counts, err)
		}
		keyed.CheckFronts(t, s)
	}
}

// pairsOf returns what a store has.
func pairsOf(t *testing.T, db driver.DB) (pairs []driver.Pair) {
	t.Helper()
	tx, err := db.Begin(background, false)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Discard()
	found, err := tx.Scan([]byte{0}, []byte{255}, 1000, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range found {
		pairs = append(pairs, driver.Pair{Key: bytes.Clone(p.Key), Value: bytes.Clone(p.Value)})
	}
	return pairs
}

// TestDamagedReady cuts what a claim asks of a job with a rate limit at each byte. The
// claim fails, and stores nothing: a lane that is not that of the job counts no start.
func TestDamagedReady(t *testing.T) {
	limited := func(id string) storage.Insert {
		in := job(id)
		in.Record.RateLimit = &ojs.RateLimit{Key: "customer", Concurrency: 5}
		return in
	}
	for _, table := range []byte{keyed.ReadyTable, keyed.HeldTable} {
		for n, more := 0, true; more; n++ {
			db := drivertest.NewMemory(false, driver.Limits{})
			s, err := keyed.Open(db, "keyed")
			if err == nil {
				_, err = s.Insert(background, now, []storage.Insert{limited("head"), limited("next")}, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			unlimited := false // what is left is the whole value of a job without a limit
			overwrite(t, db, table, func(v []byte) []byte {
				key := bytes.Index(v, []byte("customer"))
				unlimited, more = n == key-1, n+1 < key+len("customer")
				return v[:n]
			})
			before := pairsOf(t, db)
			_, err = s.Claim(background, now, storage.Claim{Max: 5}, nil)
			if err == nil && !unlimited {
				t.Errorf("table %d, a value of %d bytes: the claim has not failed", table, n)
			} else if err != nil && !slices.EqualFunc(pairsOf(t, db), before, samePair) {
				t.Errorf("table %d, a value of %d bytes: the failed claim has stored something", table, n)
			}
		}
	}
}

func samePair(a, b driver.Pair) bool {
	return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
}

// TestDamagedReadyAndJob: a job that does not decode is set aside although what a claim
// asks of it is cut short, too.
func TestDamagedReadyAndJob(t *testing.T) {
	db := drivertest.NewMemory(false, driver.Limits{})
	s, err := keyed.Open(db, "keyed")
	if err != nil {
		t.Fatal(err)
	}
	in := job("a")
	in.Record.RateLimit = &ojs.RateLimit{Key: "customer", Concurrency: 5}
	if _, err := s.Insert(background, now, []storage.Insert{in}, nil); err != nil {
		t.Fatal(err)
	}
	overwrite(t, db, keyed.ReadyTable, func(v []byte) []byte { return v[:12] })
	overwrite(t, db, keyed.JobTable, func(v []byte) []byte { return v[:9] })
	var q *ojs.QuarantinedError
	if _, err := s.Get(background, "a"); !errors.As(err, &q) {
		t.Errorf("Get returned %v", err)
	}
	if recs, err := s.Claim(background, now, storage.Claim{Max: 5}, nil); err != nil || len(recs) > 0 {
		t.Errorf("a claim returned %v, %v", recs, err)
	}
}

func TestDamagedEntries(t *testing.T) {
	db := drivertest.NewMemory(false, driver.Limits{})
	s, err := keyed.Open(db, "keyed")
	if err != nil {
		t.Fatal(err)
	}
	entry := storage.Cron{Name: "hourly", NextRun: now}
	if _, err := document.Of(s).SetCrons(background, []storage.Cron{entry}); err != nil {
		t.Fatal(err)
	}
	var was []byte
	overwrite(t, db, keyed.DocumentTable, func(v []byte) []byte { was = v; return []byte("damaged") })
	due, _, err := document.Of(s).DueCrons(background, now, nil, 5)
	if err != nil || len(due) != 0 {
		t.Errorf("of a damaged entry, %d are due, %v", len(due), err)
	}
	list, err := s.Quarantined(background, "", 0)
	if err != nil || len(list) != 1 || list[0].Kind != storage.KindCron || list[0].Name != "hourly" {
		t.Fatalf("the quarantine has %+v, %v", list, err)
	}
	var q *ojs.QuarantinedError
	if err := s.ReleaseQuarantined(background, list[0].Key); !errors.As(err, &q) {
		t.Errorf("a release of a damaged entry returned %v", err)
	}
	overwrite(t, db, keyed.AsideTable, func(v []byte) []byte {
		return append(v[:len(v)-len("damaged")], was...)
	})
	if err := s.ReleaseQuarantined(background, list[0].Key); err != nil {
		t.Error(err)
	}
	if due, _, err = document.Of(s).DueCrons(background, now, nil, 5); err != nil || len(due) != 1 {
		t.Errorf("after its release, %d entries are due, %v", len(due), err)
	}
}
