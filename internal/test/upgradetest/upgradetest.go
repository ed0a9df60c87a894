// Package upgradetest checks that jobs which an older version of a storage has stored go
// on in this one. The scripts that make the older database are in the testdata of the
// storages. All of them hold the same, stored at Begin:
//
//	1 available            6 completed            11 cancelled
//	2 scheduled in an hour 7 completed, unique    12 available, with rate limit "k" and priority 5
//	3 pending              8 dead letter          13 available in queue "expires", until 20 minutes later
//	4 active for a minute  9 available, unique
//	5 retryable in 10 min  10 available in queue "paused", which is
//
// and the recurring entry "hourly". Jobs not said to be elsewhere are in queue "work".
// The unique jobs count for a day.
package upgradetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
)

// Begin is when everything was stored.
var Begin = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

// ID is that of a job by its number.
func ID(n int) string { return fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", n) }

// Check fails the test unless everything in an upgraded storage goes on: jobs of all
// states, uniqueness, leases, what is kept, paused queues, and recurring entries.
func Check(t *testing.T, s storage.Storage) {
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	get := func(n int) storage.Record {
		t.Helper()
		r, err := s.Get(ctx, ID(n))
		must(err)
		if string(r.Args.JSON()) != fmt.Sprintf(`{"n":%d}`, n) || r.Meta["n"] != float64(n) || r.Type != "x" {
			t.Errorf("job %d: args %s, meta %v, type %s", n, r.Args.JSON(), r.Meta, r.Type)
		}
		return r
	}
	same := func(what string, got []string, want ...int) {
		t.Helper()
		var ids []string
		for _, n := range want {
			ids = append(ids, ID(n))
		}
		if !slices.Equal(got, ids) {
			t.Errorf("%s: %v, not %v", what, got, ids)
		}
	}
	ids := func(recs []storage.Record) (ids []string) {
		for _, r := range recs {
			ids = append(ids, r.ID)
		}
		return ids
	}
	end := func(r storage.Record, now time.Time, to ojs.State) {
		t.Helper()
		r.State = to
		r.DeadLetteredAt, r.FinishedAt = time.Time{}, time.Time{}
		if to.Terminal() {
			r.FinishedAt = now
		}
		out, err := s.Settle(ctx, now, []storage.Change{{Record: r, AttemptFieldsOnly: true}}, nil)
		must(err)
		must(out[0].Err)
	}

	// Everything is there.
	list, err := s.Counts(ctx)
	must(err)
	counts := make(map[ojs.State]int)
	for _, c := range list {
		counts[c.State] += c.N
	}
	for state, n := range map[ojs.State]int{
		ojs.StateAvailable: 5, ojs.StateScheduled: 1, ojs.StatePending: 1, ojs.StateActive: 1,
		ojs.StateRetryable: 1,
		ojs.StateCompleted: 2, ojs.StateDiscarded: 1, ojs.StateCancelled: 1,
	} {
		if counts[state] != n {
			t.Errorf("%d jobs are %s, not %d", counts[state], state, n)
		}
	}
	active, retryable, kept := get(4), get(5), get(7)
	if active.Progress != 0.5 || string(active.Checkpoint) != `{"at":5}` || active.Worker != "old" ||
		active.Attempt != 1 {
		t.Errorf("active: %+v", active)
	}
	if len(retryable.Errors) != 1 || retryable.Errors[0].Message != "it broke" {
		t.Errorf("retryable: %+v", retryable)
	}
	if string(kept.Result) != "42" || !kept.KeptUntil().Equal(Begin.Add(24*time.Hour)) {
		t.Errorf("kept: %+v", kept)
	}

	key, err := s.GetLimit(ctx, Begin, storage.LimitName{Kind: storage.LimitKey, Name: "k"})
	must(err)
	if key.Waiting != 1 || key.Bounds != (ojs.RateLimit{Concurrency: 1}) {
		t.Errorf("the limit of job 12: %+v", key)
	}

	// The claim of before holds.
	now := Begin.Add(30 * time.Second)
	lost, err := s.Extend(ctx, now,
		[]storage.Extension{{Held: storage.Held{ID: active.ID, Version: active.Version}}})
	must(err)
	if len(lost) > 0 {
		t.Errorf("the lease of %v is lost", lost)
	}

	// Unique jobs count.
	unique := func(n int, fingerprint string) storage.Record {
		r := storage.Record{Fingerprint: fingerprint}
		r.ID, r.Type, r.Queue, r.State = ID(n), "x", "new", ojs.StateAvailable
		r.Args, _ = ojs.NewArgs(json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)))
		r.Meta = map[string]any{"n": float64(n)}
		r.CreatedAt, r.Lease, r.Timeout = now, time.Minute, time.Minute
		r.Unique = &ojs.UniquePolicy{States: ojs.AllStates(), Period: 24 * time.Hour}
		return r
	}
	for fingerprint, old := range map[string]int{"f7": 7, "f9": 9} {
		var dup *ojs.DuplicateError
		_, err := s.Insert(ctx, now, []storage.Insert{{Record: unique(20, fingerprint)}}, nil)
		if !errors.As(err, &dup) || dup.ID != ID(old) {
			t.Errorf("a duplicate of job %d: %v", old, err)
		}
	}
	added, err := s.Insert(ctx, now, []storage.Insert{{Record: unique(20, "f20")}}, nil)
	must(err)
	if added[0].Version <= get(8).Version {
		t.Errorf("a new job has version %d, and an old one %d", added[0].Version, get(8).Version)
	}

	// Waiting jobs are claimed in their order, without paused queues.
	bound := func(n int) {
		t.Helper()
		key := storage.LimitName{Kind: storage.LimitKey, Name: "k"}
		must(s.SetLimit(ctx, now, key, ojs.RateLimit{Concurrency: n}, time.Time{}))
	}
	claim := func(c storage.Claim, want ...int) {
		t.Helper()
		recs, err := s.Claim(ctx, now, c, nil)
		must(err)
		same("claimed", ids(recs), want...)
		for _, r := range recs {
			end(r, now, ojs.StateCompleted)
		}
	}
	end(get(3), now, ojs.StateAvailable)
	end(get(8), now, ojs.StateAvailable)
	bound(ojs.NoneAtOnce)
	claim(storage.Claim{Queues: []string{"work"}, Max: 9}, 1, 9, 3, 8)
	bound(0)
	claim(storage.Claim{Queues: []string{"work", "paused"}, Max: 9}, 12)
	claim(storage.Claim{Max: 1, Types: []string{"x"}, Queues: []string{"new"}}, 20)
	was, err := s.SetQueueState(ctx, "paused", ojs.QueueActive)
	must(err)
	if was != ojs.QueuePaused {
		t.Errorf("the queue was %s", was)
	}
	claim(storage.Claim{Queues: []string{"paused"}, Max: 9}, 10)

	// Time goes on.
	due := func(minutes int, promoted, expired, stalled []int) {
		t.Helper()
		now = Begin.Add(time.Duration(minutes) * time.Minute)
		got, err := s.Due(ctx, now, 10, nil)
		must(err)
		same("promoted", ids(got.Promoted), promoted...)
		same("expired", ids(got.Expired), expired...)
		same("stalled", ids(got.Stalled), stalled...)
		for _, r := range got.Stalled {
			end(r, now, ojs.StateCompleted)
		}
	}
	due(1, nil, nil, nil)
	due(2, nil, nil, []int{4})
	due(10, []int{5}, nil, nil)
	due(20, nil, []int{13}, nil)
	due(60, []int{2}, nil, nil)
	claim(storage.Claim{Max: 9}, 5, 2)

	// So do recurring entries.
	entries, _, err := document.Of(s).DueCrons(ctx, now, nil, 10)
	must(err)
	if len(entries) != 1 || entries[0].Name != "hourly" || entries[0].Schedule != "0 * * * *" {
		t.Fatalf("due: %+v", entries)
	}
	moved := entries[0]
	moved.NextRun = now.Add(time.Hour)
	versions, err := document.Of(s).SetCrons(ctx, []storage.Cron{moved})
	must(err)
	if versions[0] <= moved.Version {
		t.Errorf("version %d after %d", versions[0], moved.Version)
	}

	// Kept jobs are kept for their time.
	prune := func(at time.Time, want ...int) {
		t.Helper()
		p, err := s.Prune(ctx, storage.Prune{Now: at, Before: at.Add(time.Second), Max: 100})
		must(err)
		same("pruned", p.IDs, want...)
	}
	day := Begin.Add(24 * time.Hour)
	prune(now, 6, 11, 1, 3, 8, 12, 10, 4, 13, 5, 2)
	prune(day.Add(-time.Nanosecond))
	prune(day, 7, 9)
	prune(day.Add(time.Minute), 20)
	if list, err := s.Counts(ctx); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}
