package memory_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func record(id string, state ojs.State) storage.Record {
	var r storage.Record
	r.ID, r.Type, r.Queue, r.State, r.CreatedAt, r.Lease = id, "x", "q", state, epoch, time.Minute
	return r
}

func insert(t testing.TB, s storage.Storage, recs ...storage.Record) {
	t.Helper()
	batch := make([]storage.Insert, len(recs))
	for i := range recs {
		batch[i].Record = recs[i]
	}
	if _, err := s.Insert(t.Context(), epoch, batch, nil); err != nil {
		t.Fatal(err)
	}
}

func TestEachJobToOneClaim(t *testing.T) {
	s := memory.New()
	const jobs, workers = 2000, 8
	for i := range jobs {
		insert(t, s, record(fmt.Sprint(i), ojs.StateAvailable))
	}
	var mu sync.Mutex
	got := make(map[string]int)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for w := range workers {
		wg.Go(func() {
			<-start
			for {
				recs, err := s.Claim(t.Context(), epoch, storage.Claim{Max: 3, Worker: fmt.Sprint(w)}, nil)
				if err != nil {
					t.Error(err)
				}
				if len(recs) == 0 {
					return
				}
				mu.Lock()
				for _, r := range recs {
					got[r.ID]++
				}
				mu.Unlock()
			}
		})
	}
	close(start)
	wg.Wait()
	if len(got) != jobs {
		t.Errorf("%d of %d jobs claimed", len(got), jobs)
	}
	for id, n := range got {
		if n != 1 {
			t.Errorf("job %s claimed %d times", id, n)
		}
	}
}

// Of several who settle one attempt, one wins.
func TestOneSettles(t *testing.T) {
	s := memory.New()
	for round := range 200 {
		id := fmt.Sprint(round)
		insert(t, s, record(id, ojs.StateAvailable))
		recs, err := s.Claim(t.Context(), epoch, storage.Claim{Max: 1}, nil)
		if err != nil || len(recs) != 1 {
			t.Fatal(recs, err)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		wins := 0
		for _, to := range []ojs.State{
			ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded, ojs.StateRetryable,
		} {
			wg.Go(func() {
				r := recs[0].Copy()
				r.State, r.NextRetryAt = to, epoch.Add(time.Hour)
				out, err := s.Settle(t.Context(), epoch, []storage.Change{{Record: r}}, nil)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if out[0].Err == nil {
					wins++
				} else if !errors.Is(out[0].Err, storage.ErrFenced) {
					t.Errorf("refused with %v", out[0].Err)
				}
			})
		}
		wg.Wait()
		if wins != 1 {
			t.Fatalf("%d settled", wins)
		}
	}
}

func TestInsertRefusesOtherStates(t *testing.T) {
	s := memory.New()
	for _, state := range append(ojs.AllStates(), "", "dead") {
		_, err := s.Insert(t.Context(), epoch,
			[]storage.Insert{{Record: record("ok"+string(state), ojs.StateAvailable)},
				{Record: record(string(state), state)}}, nil)
		begin := state == ojs.StateAvailable || state == ojs.StateScheduled || state == ojs.StatePending
		if begin != (err == nil) || !begin && !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%q: %v", state, err)
		}
		if _, err := s.Get(t.Context(), "ok"+string(state)); begin != (err == nil) {
			t.Errorf("%q: the batch was stored in part", state)
		}
	}
}

func TestClockGoesBack(t *testing.T) {
	s := memory.New()
	due := record("due", ojs.StateScheduled)
	due.ScheduledAt = epoch.Add(time.Minute)
	expiring := record("expiring", ojs.StateAvailable)
	expiring.ExpiresAt = epoch.Add(time.Minute)
	insert(t, s, due, expiring)
	for _, now := range []time.Time{epoch.Add(-time.Hour), epoch, epoch.Add(time.Minute - 1)} {
		if d, err := s.Due(t.Context(), now, 10, nil); err != nil || len(d.Promoted)+len(d.Expired)+
			len(d.Stalled) != 0 || !d.Next.Equal(epoch.Add(time.Minute)) {
			t.Errorf("at %v: %+v, %v", now, d, err)
		}
	}
	if recs, _ := s.Claim(t.Context(), epoch.Add(2*time.Minute), storage.Claim{Max: 5}, nil); len(recs) != 0 {
		t.Errorf("claimed %v", recs)
	}
	d, err := s.Due(t.Context(), epoch.Add(time.Minute), 10, nil)
	if err != nil || len(d.Promoted) != 1 || len(d.Expired) != 1 || !d.Next.IsZero() {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestListingUnderChange(t *testing.T) {
	s := memory.New()
	const jobs = 300
	for i := range jobs {
		insert(t, s, record(fmt.Sprintf("%03d", i), ojs.StateAvailable))
	}
	seen := make(map[string]int)
	q := storage.Query{Limit: 7}
	gone := 0
	for page := 0; ; page++ {
		p, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Records {
			seen[r.ID]++
		}
		if p.Next == "" {
			break
		}
		q.Cursor = p.Next
		// Behind and ahead of the cursor jobs go, change and come.
		for _, i := range []int{page, jobs - 1 - page} {
			id := fmt.Sprintf("%03d", i)
			r, err := s.Get(t.Context(), id)
			if err != nil {
				continue
			}
			r.State = ojs.StateCancelled
			if out, err := s.Settle(t.Context(), epoch, []storage.Change{{Record: r}}, nil); err != nil ||
				out[0].Err != nil {
				t.Fatal(out, err)
			}
			if n, err := s.Delete(t.Context(), []string{id}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			gone++
		}
		insert(t, s, record(fmt.Sprintf("new %d", page), ojs.StateAvailable))
	}
	for i := range jobs {
		id := fmt.Sprintf("%03d", i)
		if _, err := s.Get(t.Context(), id); err == nil && seen[id] != 1 {
			t.Errorf("job %s was there throughout and listed %d times", id, seen[id])
		}
	}
	if gone < 50 {
		t.Errorf("only %d jobs were deleted meanwhile", gone)
	}
	for id, n := range seen {
		if n > 1 {
			t.Errorf("job %s listed %d times", id, n)
		}
	}
}

// A listing that matches few of very many ends its pages early, and still finds them.
func TestListingLooksAtSomeAtATime(t *testing.T) {
	s := memory.New()
	for i := range 10_000 {
		r := record(fmt.Sprint(i), ojs.StateAvailable)
		if i%4999 == 0 {
			r.Type = "rare"
		}
		insert(t, s, r)
	}
	q, found, pages := storage.Query{Types: []string{"rare"}}, 0, 0
	for {
		p, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		found += len(p.Records)
		pages++
		if q.Cursor = p.Next; p.Next == "" {
			break
		}
	}
	if found != 3 || pages < 2 {
		t.Errorf("found %d on %d pages", found, pages)
	}
	if _, err := s.List(t.Context(), storage.Query{Cursor: "x"}); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("a foreign cursor: %v", err)
	}
}

func calls(s storage.Storage) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Insert": func(ctx context.Context) error {
			_, err := s.Insert(ctx, epoch, []storage.Insert{{Record: record("new", ojs.StateAvailable)}}, nil)
			return err
		},
		"Claim": func(ctx context.Context) error {
			_, err := s.Claim(ctx, epoch, storage.Claim{Max: 1}, nil)
			return err
		},
		"Settle": func(ctx context.Context) error {
			_, err := s.Settle(ctx, epoch, nil, nil)
			return err
		},
		"Extend": func(ctx context.Context) error { _, err := s.Extend(ctx, epoch, nil); return err },
		"Due":    func(ctx context.Context) error { _, err := s.Due(ctx, epoch, 1, nil); return err },
		"Get":    func(ctx context.Context) error { _, err := s.Get(ctx, "1"); return err },
		"List":   func(ctx context.Context) error { _, err := s.List(ctx, storage.Query{}); return err },
		"Counts": func(ctx context.Context) error { _, err := s.Counts(ctx); return err },
		"Delete": func(ctx context.Context) error { _, err := s.Delete(ctx, nil); return err },
	}
}

func TestEndedContextAndClose(t *testing.T) {
	s := memory.New()
	insert(t, s, record("1", ojs.StateAvailable))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range calls(s) {
		if err := call(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s in an ended context: %v", name, err)
		}
		if _, err := s.Get(t.Context(), "new"); err == nil {
			t.Errorf("%s has stored something", name)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, call := range calls(s) {
		if err := call(t.Context()); !errors.Is(err, ojs.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	if _, err := s.Insert(t.Context(), epoch, make([]storage.Insert, 1), nil); !errors.Is(err,
		ojs.ErrClosed) {
		t.Errorf("Insert of what it would refuse, after Close: %v", err)
	}
}

func TestPayloadsUnchanged(t *testing.T) {
	s := memory.New()
	args, err := ojs.NewArgs(map[string]any{"big": int64(9007199254740993), "text": "\x00 ü 😀 \U0010fffd"})
	if err != nil {
		t.Fatal(err)
	}
	r := record("1", ojs.StateAvailable)
	r.Args = args
	insert(t, s, r)
	got, err := s.Get(t.Context(), "1")
	if err != nil || got.Args.String() != args.String() {
		t.Errorf("%s, %v", got.Args, err)
	}
}

type wrapper struct{ storage.Storage }

func (w wrapper) Unwrap() storage.Storage { return w.Storage }

func TestAs(t *testing.T) {
	s := memory.New()
	if got, ok := storage.As[*memory.Storage](wrapper{wrapper{s}}); !ok || got != s {
		t.Error("a wrapped storage is not found")
	}
	if _, ok := storage.As[interface{ Fly() }](wrapper{s}); ok {
		t.Error("an ability that is not there is found")
	}
	if _, ok := storage.As[*memory.Storage](nil); ok {
		t.Error("found in nothing")
	}
}

// FuzzTransitions has a storage do random things to a few jobs: every state it shows
// follows from the one before by the transition table, and versions only grow.
func FuzzTransitions(f *testing.F) {
	f.Add([]byte("0123456789abcdef"))
	f.Add(binary.BigEndian.AppendUint64(nil, 0xfedcba9876543210))
	f.Fuzz(func(t *testing.T, ops []byte) {
		s := memory.New()
		now := epoch
		ids := []string{"a", "b", "c"}
		last := make(map[string]storage.Record)
		look := func() {
			for _, id := range ids {
				r, err := s.Get(t.Context(), id)
				if err != nil {
					delete(last, id)
					continue
				}
				before, known := last[id]
				switch {
				case !known, r.Version == before.Version && r.State == before.State:
				case r.Version < before.Version:
					t.Fatalf("job %s: version fell from %d to %d", id, before.Version, r.Version)
				case r.Version == before.Version:
					t.Fatalf("job %s: from %s to %s under one version", id, before.State, r.State)
				case r.Version == before.Version+1 && r.State != before.State &&
					!before.State.CanBecome(r.State):
					t.Fatalf("job %s: from %s to %s", id, before.State, r.State)
				}
				last[id] = r
			}
		}
		for _, op := range ops {
			id := ids[int(op>>4)%len(ids)]
			state := ojs.AllStates()[int(op>>4)%8]
			switch op & 7 {
			case 0:
				r := record(id, state)
				r.ScheduledAt = now.Add(time.Second)
				_, _ = s.Insert(t.Context(), now, []storage.Insert{{Record: r}}, nil)
			case 1:
				_, _ = s.Claim(t.Context(), now, storage.Claim{Max: int(op >> 6)}, nil)
			case 2, 3:
				if r, err := s.Get(t.Context(), id); err == nil {
					r.State, r.NextRetryAt = ojs.AllStates()[int(op>>5)], now.Add(time.Second)
					_, _ = s.Settle(t.Context(), now, []storage.Change{{Record: r}}, nil)
				}
			case 4:
				_, _ = s.Due(t.Context(), now, 1, nil)
			case 5:
				now = now.Add(time.Duration(op>>4) * time.Second)
			case 6:
				_, _ = s.Delete(t.Context(), []string{id})
			case 7:
				_, _ = s.Extend(t.Context(), now,
					[]storage.Extension{{Held: storage.Held{ID: id, Version: last[id].Version}}})
			}
			look()
		}
		total := 0
		counts, err := s.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range counts {
			total += c.N
		}
		if page, err := s.List(t.Context(), storage.Query{}); err != nil || len(page.Records) != total ||
			total != len(last) {
			t.Fatalf("%d counted, %d listed, %d known: %v", total, len(page.Records), len(last), err)
		}
	})
}

// Claims return jobs in the order of entry after any number of removals.
func TestOrderAfterRemovals(t *testing.T) {
	s := memory.New()
	var want []string
	for i := range 1000 {
		id := fmt.Sprintf("%04d", i)
		r := record(id, ojs.StateAvailable)
		r.Priority = i % 3
		insert(t, s, r)
	}
	for p := 2; p >= 0; p-- {
		for i := range 1000 {
			if i%3 == p && i%2 == 0 {
				want = append(want, fmt.Sprintf("%04d", i))
			}
		}
	}
	for i := 1; i < 1000; i += 2 {
		r, err := s.Get(t.Context(), fmt.Sprintf("%04d", i))
		if err != nil {
			t.Fatal(err)
		}
		r.State = ojs.StateCancelled
		if _, err := s.Settle(t.Context(), epoch, []storage.Change{{Record: r}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	recs, err := s.Claim(t.Context(), epoch, storage.Claim{Max: 1000}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range recs {
		got = append(got, r.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("claimed %v", got)
	}
}

// Due puts the jobs it promotes where the caller says, as far as there is room.
func TestDueUsesMemory(t *testing.T) {
	s := memory.New()
	for _, id := range []string{"1", "2", "3"} {
		r := record(id, ojs.StateScheduled)
		r.ScheduledAt = epoch.Add(time.Second)
		insert(t, s, r)
	}
	buf := []storage.Record{record("spoilt", ojs.StateDiscarded), record("spoilt", ojs.StateDiscarded)}
	for _, n := range []int{2, 1} {
		d, err := s.Due(t.Context(), epoch.Add(time.Minute), 2, buf)
		if err != nil || len(d.Promoted) != n || &d.Promoted[0] != &buf[0] ||
			d.Promoted[0].State != ojs.StateAvailable {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// A page of jobs in many queues does not allocate for each of them.
func TestListingOfManyQueues(t *testing.T) {
	s := memory.New()
	const queues = 500
	for i := range queues {
		r := record(fmt.Sprint(i), ojs.StateScheduled)
		r.Queue, r.ScheduledAt = fmt.Sprint("q", i), epoch.Add(time.Hour)
		insert(t, s, r)
	}
	q := storage.Query{States: []ojs.State{ojs.StateScheduled}, Limit: 10}
	if n := testing.AllocsPerRun(10, func() { _, _ = s.List(t.Context(), q) }); n > queues/2 {
		t.Errorf("%v allocations for a page of %d jobs in %d queues", n, q.Limit, queues)
	}
}

// The window of a listing of ended jobs may have moved past its cursor, as that of a page
// of the last hour does. The page then begins with the first job in the window.
func TestBackInAMovedWindow(t *testing.T) {
	s := memory.New()
	for n := range 10 {
		r := record(fmt.Sprint(n), ojs.StateAvailable)
		insert(t, s, r)
		got, err := s.Claim(t.Context(), epoch, storage.Claim{Max: 1, Worker: "w"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r = got[0]
		r.State, r.LeaseUntil = ojs.StateCompleted, time.Time{}
		r.FinishedAt = epoch.Add(time.Duration(n) * time.Second)
		if _, err := s.Settle(t.Context(), epoch, []storage.Change{{Record: r}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	list := func(q storage.Query, cursor string) storage.Page {
		t.Helper()
		q.Order, q.Limit, q.Cursor = storage.OrderFinished, 4, cursor
		q.States = []ojs.State{ojs.StateCompleted}
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	var all storage.Query
	first := list(all, "")
	second := list(all, first.Next)
	third := list(all, second.Next)
	later := storage.Query{FinishedFrom: epoch.Add(4 * time.Second)}
	if back := list(later, third.Prev); len(back.Records) != 4 || back.Records[0].ID != "7" {
		t.Errorf("back from jobs that ended too early: %d jobs", len(back.Records))
	}
	earlier := storage.Query{FinishedBefore: epoch.Add(4 * time.Second)}
	if on := list(earlier, first.Next); len(on.Records) != 4 || on.Records[0].ID != "3" {
		t.Errorf("on from jobs that ended too late: %d jobs", len(on.Records))
	}
}

// A claim of a queue without a name gets none: no queue has that name.
func TestClaimOfNoQueue(t *testing.T) {
	s := memory.New()
	insert(t, s, record("a", ojs.StateAvailable))
	got, err := s.Claim(t.Context(), epoch, storage.Claim{Max: 1, Worker: "w", Queues: []string{""}}, nil)
	if err != nil || len(got) != 0 {
		t.Errorf("%d jobs, %v", len(got), err)
	}
}
