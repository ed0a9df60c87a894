package sqlite_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/test/upgradetest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// fill makes what testdata/version16.sql holds: something of everything that a storage
// can, with times around upgradetest.Begin. The same calls make the same in any storage,
// but for versions. The file has damaged records besides.
func fill(t *testing.T, s storage.Storage) {
	t.Helper()
	ctx, now := t.Context(), upgradetest.Begin
	n := 0
	job := func(f func(in *storage.Insert)) storage.Insert {
		n++
		var in storage.Insert
		r := &in.Record
		r.ID, r.Type, r.Queue, r.State = upgradetest.ID(n), "mail", "work", ojs.StateAvailable
		r.Args, _ = ojs.NewArgs(json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)))
		r.CreatedAt, r.EnqueuedAt, r.Lease, r.Timeout = now, now, time.Minute, time.Minute
		r.MaxAttempts, r.Retry = 3, ojs.RetryPolicy{MaxAttempts: 3, InitialInterval: time.Second}
		if f != nil {
			f(&in)
		}
		return in
	}
	put := func(batch ...storage.Insert) {
		t.Helper()
		_, err := s.Insert(ctx, now, batch, nil)
		must(t, err)
	}
	settle := func(r storage.Record, to ojs.State, log string) storage.Record {
		t.Helper()
		r.State, r.LeaseUntil = to, time.Time{}
		if to.Terminal() {
			r.FinishedAt = now
		}
		c := storage.Change{Record: r}
		if log != "" {
			c.Log = []byte(log)
		}
		out, err := s.Settle(ctx, now, []storage.Change{c}, nil)
		must(t, err)
		must(t, out[0].Err)
		r.Version = out[0].Version
		return r
	}
	take := func(queue string, want int) []storage.Record {
		t.Helper()
		recs, err := s.Claim(ctx, now, storage.Claim{Queues: []string{queue}, Max: want, Worker: "w"}, nil)
		must(t, err)
		if len(recs) != want {
			t.Fatalf("claimed %d jobs of %s, not %d", len(recs), queue, want)
		}
		return recs
	}
	state := func(to ojs.State) func(in *storage.Insert) {
		return func(in *storage.Insert) {
			in.Record.State = to
			if to == ojs.StateScheduled {
				in.Record.ScheduledAt = now.Add(time.Hour)
			}
		}
	}
	in := func(queue string, more func(in *storage.Insert)) func(in *storage.Insert) {
		return func(in *storage.Insert) {
			if in.Record.Queue = queue; more != nil {
				more(in)
			}
		}
	}

	// Jobs that are run: active, retryable, completed, discarded, dead letters.
	failed := &ojs.Failure{Type: "smtp", Message: "it broke"}
	for range 5 {
		put(job(in("run", nil)))
	}
	put(job(in("run", func(in *storage.Insert) { in.Record.ResultTTL = time.Hour })),
		job(in("run", func(in *storage.Insert) {
			in.Record.Fingerprint = "kept"
			in.Record.Unique = &ojs.UniquePolicy{States: ojs.AllStates(), Period: 24 * time.Hour}
		})), job(in("run", nil)))
	now = now.Add(time.Second)
	ran := take("run", 8)
	_, err := s.Extend(ctx, now, []storage.Extension{{
		Held:       storage.Held{ID: ran[1].ID, Version: ran[1].Version},
		Checkpoint: json.RawMessage(`{"at":5}`), Progress: 0.5}})
	must(t, err)
	retries := ran[2]
	retries.Error, retries.Errors, retries.NextRetryAt = failed, []ojs.Failure{*failed}, now.Add(time.Minute)
	settle(retries, ojs.StateRetryable, "second")
	done := ran[3]
	done.Result = json.RawMessage(`"done"`)
	settle(done, ojs.StateCompleted, "third")
	dead := ran[4]
	dead.Error, dead.Errors, dead.DeadLetteredAt = failed, []ojs.Failure{*failed}, now
	settle(dead, ojs.StateDiscarded, "")
	settle(ran[5], ojs.StateCompleted, "")
	settle(ran[6], ojs.StateCompleted, "")
	discarded := ran[7]
	discarded.Error = failed
	now = now.Add(time.Second)
	settle(discarded, ojs.StateDiscarded, "")

	// Jobs that wait.
	put(job(nil), job(func(in *storage.Insert) { in.Record.Priority = 7 }), job(state(ojs.StateScheduled)),
		job(state(ojs.StatePending)),
		job(func(in *storage.Insert) {
			in.Record.ExpiresAt, in.Record.Meta = now.Add(20*time.Minute), map[string]any{"a": "b"}
		}),
		job(func(in *storage.Insert) { in.Record.TypeVersion = "2.1.0" }),
		job(func(in *storage.Insert) {
			in.Record.Fingerprint = "waits"
			in.Record.Unique = &ojs.UniquePolicy{States: []ojs.State{ojs.StateAvailable}}
		}),
		job(in("paused", nil)), job(nil))
	_, _, err = s.CancelAll(ctx, now, []string{upgradetest.ID(n)})
	must(t, err)
	_, err = s.SetQueueState(ctx, "paused", ojs.QueuePaused)
	must(t, err)

	// Limits: of a key with a rate and starts, of a closed key, a queue and a type.
	limit := func(l ojs.RateLimit) func(in *storage.Insert) {
		return func(in *storage.Insert) { in.Record.RateLimit = &l }
	}
	rate := ojs.RateLimit{Key: "rate", Rate: ojs.Rate{Limit: 2, Per: time.Hour}}
	one := ojs.RateLimit{Key: "one", Concurrency: 1}
	for range 4 {
		put(job(in("limited", limit(rate))), job(in("limited", limit(one))))
	}
	take("limited", 3)
	must(t, s.SetLimit(ctx, now, storage.LimitName{Kind: storage.LimitKey, Name: "raised"},
		ojs.RateLimit{Concurrency: 9}, now.Add(time.Hour)))
	must(t, s.SetLimit(ctx, now, storage.LimitName{Kind: storage.LimitQueue, Name: "bound"},
		ojs.RateLimit{Rate: ojs.Rate{Limit: 3, Per: time.Hour}}, time.Time{}))
	blocked := storage.LimitName{Kind: storage.LimitType, Name: "blocked"}
	must(t, s.BlockLimit(ctx, now, blocked, now.Add(time.Hour)))
	for range 3 {
		put(job(in("bound", nil)))
	}
	take("bound", 2)

	// Turns of fairness: two keys, and one job of the first is claimed.
	for i := range 6 {
		put(job(in("fair", func(in *storage.Insert) {
			in.Record.Fairness = ojs.Fairness{Key: []string{"a", "a", "a", "a", "b", "b"}[i], Weight: 2}
		})))
	}
	take("fair", 3)

	// An ordering line, a job that waits for two, one of which has failed.
	waits := func(key string, ids ...string) func(in *storage.Insert) {
		return in("later", func(in *storage.Insert) {
			in.Record.State = ojs.StatePending
			in.Record.Dependencies = &ojs.Dependencies{Condition: ojs.AllEnded}
			in.OrderingKey, in.DependsOn = key, ids
		})
	}
	put(job(waits("line")), job(waits("line")), job(waits("line")))
	put(job(waits("", upgradetest.ID(1), upgradetest.ID(8), upgradetest.ID(n-1))))

	// Recurring entries with a history, values, what was set aside.
	_, err = document.Of(s).SetCrons(ctx, []storage.Cron{
		{Name: "hourly", Schedule: "0 * * * *", Type: "mail", CreatedAt: now, NextRun: now.Add(time.Hour),
			LastRun: now, Runs: 2, LastJobID: upgradetest.ID(3),
			History: []storage.CronRun{
				{Due: now.Add(-time.Hour), JobID: upgradetest.ID(2), Outcome: "completed"},
				{Due: now, JobID: upgradetest.ID(3)}}},
		{Name: "paused", Schedule: "0 0 * * *", Type: "mail", Paused: true}, {Name: "damaged", Type: "mail"}})
	must(t, err)
	must(t, document.Of(s).PutValues(ctx, now, []document.Value{
		{Key: "a", Data: []byte("1"), Expires: now.Add(time.Hour)},
		{Key: "b", Data: []byte{0, 1}}}))
}

// Everything in a file of the last version before the table ojs_kv goes on as in a
// storage in which the same was done.
func TestUpgradeFrom16(t *testing.T) {
	script, err := os.ReadFile("testdata/version16.sql")
	must(t, err)
	path := filepath.Join(t.TempDir(), "jobs.db")
	must(t, sqlite.Old(path, 16, string(script)))
	must(t, sqlite.Exec(path, "CREATE TABLE account (name TEXT)")) // of the program
	versions := make(map[string]uint64)
	must(t, sqlite.Each(path, "SELECT id, version FROM job", func(stmt *zombiezen.Stmt) {
		versions[stmt.ColumnText(0)] = uint64(stmt.ColumnInt64(1))
	}))
	got := reopen(t, path)
	defer func() { must(t, got.Close()) }()
	want := open(t)
	defer func() { must(t, want.Close()) }()
	fill(t, want)
	ctx, now := t.Context(), upgradetest.Begin.Add(10*time.Second)

	// Damaged records are in the quarantine. They can be deleted, and not released.
	quarantine := got.(storage.Quarantiner)
	aside, err := quarantine.Quarantined(ctx, "", 0)
	must(t, err)
	var names []string
	for _, q := range aside {
		names = append(names, fmt.Sprint(q.Kind, " ", q.Name, " ", q.State))
		var refused *ojs.QuarantinedError
		if err := quarantine.ReleaseQuarantined(ctx, q.Key); !errors.As(err, &refused) || q.Reason == "" {
			t.Errorf("%+v is released: %v", q, err)
		}
		must(t, quarantine.DeleteQuarantined(ctx, q.Key))
	}
	slices.Sort(names)
	if s := strings.Join(names, ", "); s != "cron damaged , job "+upgradetest.ID(200)+" available, job "+
		upgradetest.ID(201)+" available, job "+upgradetest.ID(202)+" , queue odd " {
		t.Errorf("the quarantine has %s", s)
	}
	_, err = document.Of(want).DeleteCron(ctx, "damaged") // which fill has made
	must(t, err)

	// Both have the same to begin with, and after each step.
	for id, version := range versions {
		if r, err := got.Get(ctx, id); err == nil && r.Version != version {
			t.Errorf("job %s has version %d, not %d", id, r.Version, version)
		}
	}
	compare := func(when string, look func(s storage.Storage) any) {
		t.Helper()
		if g, w := look(got), look(want); !reflect.DeepEqual(g, w) {
			t.Errorf("%s:\n%+v\nnot\n%+v", when, g, w)
		}
	}
	all := func(when string) {
		t.Helper()
		for _, order := range []storage.Order{storage.OrderOldest, storage.OrderNewest, storage.OrderFinished,
			storage.OrderDue, storage.OrderClaim} {
			compare(when+": "+string(order), func(s storage.Storage) any { return records(t, s, order) })
		}
		compare(when+": counts", func(s storage.Storage) any {
			list, err := s.Counts(ctx)
			must(t, err)
			return list
		})
	}
	all("at first")
	compare("logs", func(s storage.Storage) any {
		var all []string
		for n := range 50 {
			list, err := s.Logs(ctx, upgradetest.ID(n))
			must(t, err)
			for _, log := range list {
				all = append(all, fmt.Sprint(n, string(log.Data)))
			}
		}
		return all
	})
	compare("entries", func(s storage.Storage) any {
		list, err := document.Of(s).Crons(ctx, storage.DocumentQuery{})
		must(t, err)
		due, next, err := document.Of(s).DueCrons(ctx, now.Add(2*time.Hour), nil, 10)
		must(t, err)
		return []any{list, due, next}
	})
	compare("values", func(s storage.Storage) any {
		list, err := document.Of(s).Values(ctx, now, "", "", 0)
		must(t, err)
		return list
	})
	compare("queues", func(s storage.Storage) any { m, err := s.QueueStates(ctx); must(t, err); return m })
	for _, kind := range []storage.LimitKind{storage.LimitKey, storage.LimitQueue, storage.LimitType} {
		compare("limits", func(s storage.Storage) any {
			list, err := s.ListLimits(ctx, now, kind, "", 100)
			must(t, err)
			return list
		})
	}
	compare("pruned", func(s storage.Storage) any {
		p, err := s.Prune(ctx, storage.Prune{Now: now, Before: now.Add(time.Second), Max: 100})
		must(t, err)
		return p
	})
	compare("turns", func(s storage.Storage) any {
		r := record(310)
		r.Queue, r.Fairness.Key, r.CreatedAt = "fair", "c", now
		must(t, insert(s, r))
		return claimAll(t, s, now, "fair")
	})
	compare("equal jobs", func(s storage.Storage) any {
		r := record(300)
		r.Fingerprint, r.CreatedAt = "waits", now
		r.Unique = &ojs.UniquePolicy{States: []ojs.State{ojs.StateAvailable}}
		return fmt.Sprint(insert(s, r))
	})
	// Active jobs end: others that wait for them, for their turn or for a limit move.
	for round := range 8 {
		compare("ends", func(s storage.Storage) any { return endActive(t, s, now) })
		compare("claims", func(s storage.Storage) any {
			return claimAll(t, s, now, "later", "limited", "bound", "work", "paused")
		})
		now = now.Add(20 * time.Minute)
		compare("due", func(s storage.Storage) any {
			d, err := s.Due(ctx, now, 100, nil)
			must(t, err)
			return []any{ids(d.Promoted), ids(d.Expired), ids(d.Stalled)}
		})
		all(fmt.Sprint("after round ", round))
	}
	next := record(301)
	next.CreatedAt = now
	added, err := got.Insert(ctx, now, []storage.Insert{{Record: next}}, nil)
	must(t, err)
	if newest := slices.Max(slices.Collect(maps.Values(versions))); added[0].Version <= newest {
		t.Errorf("a new job has version %d, and an old one has %d", added[0].Version, newest)
	}
	tables := 0
	must(t, sqlite.Each(path, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
		func(*zombiezen.Stmt) { tables++ }))
	if tables != 2 {
		t.Errorf("the file has %d tables, not ojs_kv and account", tables)
	}
}

// An upgrade that fails changes nothing. Of several that begin at once, one is made.
func TestUpgradeAllOrNothing(t *testing.T) {
	script, err := os.ReadFile("testdata/version16.sql")
	must(t, err)
	path := filepath.Join(t.TempDir(), "jobs.db")
	must(t, sqlite.Old(path, 16, string(script)))
	const limit = " WHERE kind = 'queue' AND name = 'bound'"
	must(t, sqlite.Exec(path, "UPDATE job_limit SET setting = setting || 'x'"+limit))
	if s, err := sqlite.Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), `"bound"`) {
		t.Fatalf("a limit that is none: %v, %v", s, err)
	}
	must(t, sqlite.Exec(path, "UPDATE job_limit SET setting = substr(setting, 1, length(setting) - 1)"+limit))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := sqlite.Open(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			counts, err := s.Counts(t.Context())
			n := 0
			for _, c := range counts {
				n += c.N
			}
			if err != nil || n != 38 {
				t.Errorf("%d jobs, %v", n, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func ids(recs []storage.Record) (list []string) {
	for _, r := range recs {
		list = append(list, r.ID)
	}
	return list
}

// records lists all jobs in an order, without their versions.
func records(t *testing.T, s storage.Storage, order storage.Order) []storage.Record {
	t.Helper()
	page, err := s.List(t.Context(), storage.Query{Order: order})
	must(t, err)
	for i := range page.Records {
		page.Records[i].Version = 0
	}
	return page.Records
}

// claimAll claims what there is in queues, and returns the ids.
func claimAll(t *testing.T, s storage.Storage, now time.Time, queues ...string) []string {
	t.Helper()
	recs, err := s.Claim(t.Context(), now, storage.Claim{Queues: queues, Max: 100, Worker: "w"}, nil)
	must(t, err)
	return ids(recs)
}

// endActive completes the active jobs. It returns the ids of the jobs that waited for
// them and have moved.
func endActive(t *testing.T, s storage.Storage, now time.Time) (moved []string) {
	t.Helper()
	page, err := s.List(t.Context(), storage.Query{States: []ojs.State{ojs.StateActive}})
	must(t, err)
	for _, r := range page.Records {
		r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, now, time.Time{}
		out, err := s.Settle(t.Context(), now, []storage.Change{{Record: r, AttemptFieldsOnly: true}}, nil)
		must(t, err)
		must(t, out[0].Err)
		moved = append(moved, ids(out[0].Moved)...)
	}
	return moved
}
