package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// A file of the version that kept no jobs: one that has ended and whose policy counts it
// for an hour, a dead letter, and a job of the same policy that waits.
const version1 = `
	INSERT INTO job (seq, place, id, queue, type, state, priority, attempt, version, created, finished, dead, lease, progress, worker,
		fingerprint, args, job) VALUES
		(1, 1, '01890a5d-ac96-774b-bcce-000000000001', 'q', 'x', 6, 0, 1, 3, 1000000000, 2000000000, NULL, 60000000000, 0, 'w',
			'a', CAST('[1]' AS BLOB), CAST('{"unique":{"Period":3600000000000,"States":["completed"]}}' AS BLOB)),
		(2, 2, '01890a5d-ac96-774b-bcce-000000000002', 'q', 'x', 8, 0, 1, 3, 1000000000, 2000000000, 2000000000, 60000000000, 0, 'w',
			NULL, NULL, NULL),
		(3, 3, '01890a5d-ac96-774b-bcce-000000000003', 'q', 'x', 3, 0, 0, 1, 1000000000, NULL, NULL, 60000000000, 0, '',
			'b', NULL, CAST('{"unique":{"Period":3600000000000,"States":["completed"]}}' AS BLOB));
	INSERT INTO tally (queue, state, dead, n) VALUES ('q', 6, 0, 1), ('q', 8, 1, 1), ('q', 3, 0, 1);
	UPDATE counter SET seq = 3, place = 3`

// A file of the first version is upgraded. Jobs that have ended there are kept for their
// time, as those are that end after the upgrade.
func TestUpgradeToKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	must(t, sqlite.Old(path, 1, version1))
	s, err := sqlite.Open(t.Context(), path)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	counts := func(want map[ojs.State]int) {
		t.Helper()
		list, err := s.Counts(t.Context())
		must(t, err)
		got := make(map[ojs.State]int)
		for _, c := range list {
			got[c.State] = c.N
		}
		for _, state := range ojs.AllStates() {
			if got[state] != want[state] {
				t.Errorf("%d are %s, not %d", got[state], state, want[state])
			}
		}
	}
	counts(map[ojs.State]int{ojs.StateCompleted: 1, ojs.StateDiscarded: 1, ojs.StateAvailable: 1})
	ended, err := s.Get(t.Context(), record(1).ID)
	must(t, err)
	if ended.KeptUntil() != time.Unix(3601, 0).UTC() || string(ended.Args.JSON()) != "[1]" ||
		ended.Version != 3 {
		t.Errorf("%+v", ended)
	}
	now := time.Unix(10, 0).UTC()
	complete(t, s, now, 1)
	prune := func(p storage.Prune, want int) {
		t.Helper()
		p.Max, p.Before = 10, now.Add(2*time.Hour)
		if got, err := s.Prune(t.Context(), p); err != nil || len(got.IDs) != want {
			t.Errorf("%+v: %+v, %v, not %d", p, got, err, want)
		}
	}
	prune(storage.Prune{Now: now}, 0)
	prune(storage.Prune{Now: now, DeadLetters: true}, 1)
	counts(map[ojs.State]int{ojs.StateCompleted: 2})
	prune(storage.Prune{Now: time.Unix(3601, 0)}, 2)
	counts(nil)
}

// complete claims jobs and completes them.
func complete(t *testing.T, s storage.Storage, now time.Time, n int) {
	t.Helper()
	claimed, err := s.Claim(t.Context(), now, storage.Claim{Max: n, Worker: "w"}, nil)
	must(t, err)
	changes := make([]storage.Change, len(claimed))
	for i := range claimed {
		changes[i] = storage.Change{Record: claimed[i], AttemptFieldsOnly: true}
		changes[i].Record.State, changes[i].Record.FinishedAt = ojs.StateCompleted, now
	}
	settled, err := s.Settle(t.Context(), now, changes, nil)
	must(t, err)
	if len(settled) != n {
		t.Fatalf("%d jobs were claimed, not %d", len(settled), n)
	}
	for _, done := range settled {
		must(t, done.Err)
	}
}

// maxReleased is how many kept jobs one call of Prune may release.
const maxReleased = 1000

// If more jobs than maxReleased are to be released at once, one call releases that many
// of them. Kept jobs are always counted with the others, and can be deleted.
func TestManyKeptAtOnce(t *testing.T) {
	s := fresh(t, sqlite.WithSynchronous(sqlite.Normal))
	const n = maxReleased + 100
	now := time.Unix(10, 0).UTC()
	recs := make([]storage.Record, n)
	for i := range recs {
		recs[i] = record(i)
		recs[i].CreatedAt = now
		recs[i].Unique = &ojs.UniquePolicy{States: ojs.AllStates(), Period: time.Hour}
	}
	must(t, insert(s, recs...))
	complete(t, s, now, n)
	if deleted, err := s.Delete(t.Context(), []string{recs[n-1].ID, recs[n-2].ID}); err != nil ||
		deleted != 2 {
		t.Fatalf("%d deleted, %v", deleted, err)
	}
	over := now.Add(time.Hour)
	left := n - 2
	for _, p := range []struct {
		now  time.Time
		want int
	}{{over.Add(-time.Nanosecond), 0}, {over, maxReleased}, {over, n - 2 - maxReleased},
		{over, 0}} {
		got, err := s.Prune(t.Context(), storage.Prune{Now: p.now, Before: over, Max: 2 * n})
		if err != nil || len(got.IDs) != p.want {
			t.Errorf("at %v: %+v, %v, not %d", p.now, got, err, p.want)
		}
		left -= p.want
		counts, err := s.Counts(t.Context())
		must(t, err)
		sum := 0
		for _, c := range counts {
			sum += c.N
		}
		if sum != left {
			t.Errorf("at %v: %d are left, not %d", p.now, sum, left)
		}
	}
}
