package sqlite_test

import (
	"context"
	"errors"
	"testing"
	"time"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// A job that is gone leaves nothing behind: no log, no edge, no place in a line, nothing
// in the quarantine.
func TestNothingOfAJobIsLeft(t *testing.T) {
	s := fresh(t, sqlite.WithSynchronous(sqlite.Normal))
	ctx, now := t.Context(), time.Now()
	ended := func(r storage.Record, to ojs.State) storage.Change {
		r.State, r.FinishedAt = to, now
		return storage.Change{Record: r, Log: []byte("log")}
	}
	line := func(n int) storage.Insert {
		in := storage.Insert{Record: record(n), OrderingKey: "k"}
		in.Record.State = ojs.StatePending
		in.Record.Dependencies = &ojs.Dependencies{Condition: ojs.AllSucceeded}
		return in
	}
	after := line(4)
	after.OrderingKey, after.DependsOn = "", []string{record(1).ID, record(2).ID}
	_, err := s.Insert(ctx, now,
		[]storage.Insert{{Record: record(0)}, line(1), line(2), line(3), after, line(5)}, nil)
	must(t, err)
	files.Store(storage.Storage(s), file(t, s))
	damaged := func(n int) {
		t.Helper()
		config.Plant(t, s, record(n).ID)
		if _, err := s.Get(ctx, record(n).ID); err == nil {
			t.Fatal("a damaged job decodes")
		}
		list, err := s.Quarantined(ctx, "", 0)
		must(t, err)
		must(t, s.DeleteQuarantined(ctx, list[0].Key))
	}
	damaged(5) // while it waits in its line
	claimed, err := s.Claim(ctx, now, storage.Claim{Max: 2}, nil)
	must(t, err)
	var changes []storage.Change
	for _, n := range []int{4, 3, 2} {
		r, err := s.Get(ctx, record(n).ID)
		must(t, err)
		changes = append(changes, ended(r, ojs.StateCancelled))
	}
	for _, r := range claimed {
		changes = append(changes, ended(r, ojs.StateCompleted))
	}
	out, err := s.Settle(ctx, now, changes, nil)
	must(t, err)
	for _, o := range out {
		must(t, o.Err)
	}
	damaged(0) // with a log
	if n, err := s.Delete(ctx, []string{record(1).ID}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := s.Prune(ctx, storage.Prune{Now: now, Before: now.Add(time.Hour), Max: 10}); err != nil {
		t.Fatal(err)
	}
	const meta, handles = 1, 33 // the tables of package keyed with counters, and with who has the file open
	for table := byte(meta + 1); table < 255; table++ {
		if table == handles {
			continue
		}
		if n, err := s.Keys(table); n > 0 || err != nil {
			t.Errorf("%d keys of table %d, %v", n, table, err)
		}
	}
}

// A claim obeys the state that its transaction has given a queue, or has released from
// the quarantine.
func TestStatesOfQueuesWithin(t *testing.T) {
	s := fresh(t, sqlite.WithSynchronous(sqlite.Normal))
	must(t, insert(s, record(0)))
	files.Store(storage.Storage(s), file(t, s))
	within := func(states map[string]func(context.Context) error, claims int) {
		t.Helper()
		for name, set := range states {
			must(t, s.Within(t.Context(), func(ctx context.Context, _ *zombiezen.Conn) error {
				before := storage.Claim{Queues: []string{"none"}, Max: 1}
				if _, err := s.Claim(ctx, time.Now(), before, nil); err != nil {
					return err
				}
				if err := set(ctx); err != nil {
					return err
				}
				after := storage.Claim{Queues: []string{record(0).Queue}, Max: 1}
				got, err := s.Claim(ctx, time.Now(), after, nil)
				if len(got) != claims {
					t.Errorf("%s: claimed %d jobs, not %d", name, len(got), claims)
				}
				return err
			}))
		}
	}
	set := func(to ojs.QueueState) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.SetQueueState(ctx, record(0).Queue, to)
			return err
		}
	}
	within(map[string]func(context.Context) error{"paused": set(ojs.QueuePaused)}, 0)
	config.PlantNamed(t, s, storage.KindQueue, record(0).Queue)
	_, err := s.QueueStates(t.Context())
	must(t, err)
	list, err := s.Quarantined(t.Context(), "", 0)
	must(t, err)
	config.MendNamed(t, s, storage.KindQueue, record(0).Queue)
	within(map[string]func(context.Context) error{"released": func(ctx context.Context) error {
		return s.ReleaseQuarantined(ctx, list[0].Key)
	}}, 0)
	within(map[string]func(context.Context) error{"resumed": set(ojs.QueueActive)}, 1)
}

// Jobs that are kept do not count for the bounds of Prune, though a job of no known state
// has had all jobs counted anew.
func TestKeptJobsAfterACount(t *testing.T) {
	s := fresh(t, sqlite.WithSynchronous(sqlite.Normal))
	ctx, now := t.Context(), time.Now()
	kept := record(0)
	kept.ResultTTL = time.Hour
	must(t, insert(s, kept, record(1), record(2)))
	claimed, err := s.Claim(ctx, now, storage.Claim{Max: 2}, nil)
	must(t, err)
	for _, r := range claimed {
		r.State, r.FinishedAt = ojs.StateCompleted, now
		_, err := s.Settle(ctx, now, []storage.Change{{Record: r}}, nil)
		must(t, err)
	}
	const third = "(SELECT max(k) FROM ojs_kv WHERE k < x'03')" // the key of the third job
	must(t, sqlite.Exec(file(t, s), "UPDATE ojs_kv SET v = x'' WHERE k = "+third))
	must(t, s.Within(ctx, func(ctx context.Context, _ *zombiezen.Conn) error {
		if err := insertIn(ctx, payments{s}, record(3)); err != nil {
			return err
		}
		_, err := s.List(ctx, storage.Query{}) // which meets the damaged job
		return err
	}))
	if n, err := s.CountQuarantined(ctx); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	counts, err := s.Counts(ctx)
	must(t, err)
	for _, c := range counts {
		if want := map[ojs.State]int{ojs.StateCompleted: 2, ojs.StateAvailable: 1}[c.State]; c.N != want {
			t.Errorf("%d jobs are %s, not %d", c.N, c.State, want)
		}
	}
	out, err := s.Prune(ctx, storage.Prune{Now: now, Beyond: 5, Max: 10})
	if err != nil || out.Left != 1 {
		t.Errorf("%+v, %v", out, err)
	}
}

// The depth of a queue has the changes of the transaction once. A claim that was undone
// leaves its job to the next one.
func TestCountsWithin(t *testing.T) {
	s := fresh(t, sqlite.WithSynchronous(sqlite.Normal))
	now := time.Now()
	for n := range 20 { // which claims pass
		skipped := record(100 + n)
		skipped.Type, skipped.Queue = "skipped", "another"
		must(t, insert(s, skipped))
	}
	must(t, insert(s, record(0), record(1), record(2)))
	next := func(ctx context.Context, n int) storage.Record {
		t.Helper()
		got, err := s.Claim(ctx, now, storage.Claim{Max: 1, Types: []string{record(0).Type}}, nil)
		must(t, err)
		if len(got) != 1 || got[0].ID != record(n).ID {
			t.Fatalf("claimed %+v, not job %d", got, n)
		}
		return got[0]
	}
	r := next(t.Context(), 0)
	errBack := errors.New("back")
	err := s.Within(t.Context(), func(ctx context.Context, _ *zombiezen.Conn) error {
		next(ctx, 1)
		return errBack
	})
	if err != errBack {
		t.Fatal(err)
	}
	must(t, s.Within(t.Context(), func(ctx context.Context, _ *zombiezen.Conn) error {
		r.State, r.FinishedAt = ojs.StateCompleted, now
		if _, err := s.Settle(ctx, now, []storage.Change{{Record: r}}, nil); err != nil {
			return err
		}
		out, err := s.Insert(ctx, now, []storage.Insert{{Record: record(3), MaxDepth: 3}}, nil)
		if err == nil && out[0].Depth != 3 {
			t.Errorf("%d jobs in the queue, not 3", out[0].Depth)
		}
		return err
	}))
	next(t.Context(), 1)
}

// Listeners hear of a transaction of Within once it is committed, and of one that was
// undone never.
func TestNoticesOfWithin(t *testing.T) {
	s := fresh(t, sqlite.WithSynchronous(sqlite.Normal), sqlite.WithPoll(time.Hour))
	told := make(chan storage.Notice, 10)
	defer s.Notify("self", func(n storage.Notice) { told <- n })()
	for i, result := range []error{errors.New("back"), nil} {
		err := s.Within(t.Context(), func(ctx context.Context, _ *zombiezen.Conn) error {
			must(t, insertIn(ctx, payments{s}, record(i)))
			if len(told) > 0 {
				t.Errorf("told before the commit: %+v", <-told)
			}
			return result
		})
		if err != result || len(told) != i {
			t.Fatalf("%v: told %d times", err, len(told))
		}
	}
	if n := <-told; !n.Available {
		t.Errorf("told %+v", n)
	}
}
