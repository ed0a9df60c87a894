package keyed_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
)

// A restored store goes on: claims hold, jobs that wait move, starts count, numbers rise.
func TestRestore(t *testing.T) {
	db := drivertest.NewMemory(false, driver.Limits{})
	s, err := keyed.Open(db, "keyed")
	if err != nil {
		t.Fatal(err)
	}
	record := func(id string, state ojs.State, version uint64) storage.Record {
		r := job(id).Record
		r.State, r.Version = state, version
		return r
	}
	active, waits, limited := record("active", ojs.StateActive, 7), record("waits", ojs.StatePending, 2),
		record("limited", ojs.StateAvailable, 3)
	active.LeaseUntil = now.Add(time.Hour)
	waits.Dependencies = &ojs.Dependencies{Condition: ojs.AllEnded, Unfinished: 1}
	ended := record("ended", ojs.StateCompleted, 4)
	ended.FinishedAt, ended.ResultTTL = now.Add(-time.Minute), time.Hour
	mended := keyed.StoredCron(&storage.Cron{Name: "mended", Version: 5, NextRun: now})
	bounds := ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: time.Hour}}
	limited.RateLimit = &bounds
	err = s.Restore(background, &keyed.Saved{
		Last: 50, LastCron: 9,
		Jobs: []keyed.SavedJob{
			{Record: active, Seq: 3, Place: 20, Awaited: true,
				Logs: []storage.Log{{Version: 6, Data: []byte("log")}}},
			{Record: waits, Seq: 5, Place: 5, Counted: true, WaitsFor: []int64{3}},
			{Record: limited, Seq: 8, Place: 8},
			{Record: ended, Seq: 9, Place: 9, KeptUntil: now.Add(2 * time.Hour)},
		},
		Crons: []storage.Cron{{Name: "hourly", Version: 4, NextRun: now}},
		Limits: []keyed.SavedLimit{{LimitName: storage.LimitName{Kind: storage.LimitKey, Name: "k"},
			Last: &bounds, Window: time.Hour, Most: 1, Starts: []time.Time{now}}},
		Quarantine: []keyed.SavedAside{
			{Value: []byte("old"), Quarantined: storage.Quarantined{
				Kind: storage.KindJob, Name: "bad", Reason: "it is damaged"}},
			{Value: mended, Quarantined: storage.Quarantined{Kind: storage.KindCron, Name: "mended"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	keyed.CheckLanes(t, s)
	claimed, err := s.Claim(background, now, storage.Claim{Max: 9}, nil)
	if err != nil || len(claimed) != 0 {
		t.Errorf("claimed %d jobs of a key whose start counts, %v", len(claimed), err)
	}
	active.State, active.FinishedAt, active.LeaseUntil = ojs.StateCompleted, now, time.Time{}
	out, err := s.Settle(background, now, []storage.Change{{Record: active}}, nil)
	if err != nil || out[0].Err != nil || len(out[0].Moved) != 1 || out[0].Moved[0].ID != "waits" {
		t.Errorf("the end of the active job: %+v, %v", out, err)
	}
	if logs, err := s.Logs(background, "active"); err != nil || len(logs) != 1 || logs[0].Version != 6 {
		t.Errorf("logs %+v, %v", logs, err)
	}
	for after, n := range []int{0, 0, 1} { // hours: its workflow keeps it for longer than its result
		at := now.Add(time.Duration(after)*time.Hour + time.Minute)
		gone, err := s.Prune(background, storage.Prune{Now: at, Before: now,
			States: []ojs.State{ojs.StateCompleted}, Max: 9})
		if want := []string{"ended"}[:n]; err != nil || !slices.Equal(gone.IDs, want) {
			t.Errorf("pruned %v after %d hours, not %v, %v", gone.IDs, after, want, err)
		}
	}
	added, err := s.Insert(background, now, []storage.Insert{job("new")}, nil)
	if err != nil || added[0].Version <= 50 {
		t.Errorf("a new job has version %+v, %v", added, err)
	}
	due, _, err := document.Of(s).DueCrons(background, now, nil, 9)
	if err != nil || len(due) != 1 {
		t.Fatalf("due: %+v, %v", due, err)
	}
	if versions, err := document.Of(s).SetCrons(background, due); err != nil || versions[0] <= 9 {
		t.Errorf("versions %v, %v", versions, err)
	}
	list, err := s.Quarantined(background, "", 0)
	if err != nil || len(list) != 2 || list[0].Name != "bad" {
		t.Fatalf("the quarantine has %+v, %v", list, err)
	}
	var q *ojs.QuarantinedError
	if err := s.ReleaseQuarantined(background, list[0].Key); !errors.As(err, &q) {
		t.Errorf("released: %v", err)
	}
	if err := s.ReleaseQuarantined(background, list[1].Key); err != nil {
		t.Error(err)
	}
	if due, _, err := document.Of(s).DueCrons(background, now, nil, 9); err != nil || len(due) != 2 {
		t.Errorf("due after the release: %+v, %v", due, err)
	}

	tx, err := db.Begin(background, false)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Discard()
	from, to := keyed.Jobs()
	pairs, err := tx.Scan(from, to, 9, false, nil)
	if err != nil || len(pairs) != 4 {
		t.Fatalf("%d jobs, %v", len(pairs), err)
	}
	if r, err := keyed.ReadJob(pairs[0].Value); err != nil || r.ID != "active" {
		t.Errorf("read %+v, %v", r, err)
	}
	if _, err := keyed.ReadJob(pairs[0].Value[:9]); err == nil {
		t.Error("a damaged job is read")
	}
}
