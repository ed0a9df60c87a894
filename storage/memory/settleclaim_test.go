package memory_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// SettleAndClaim does what Settle and Claim do, whatever it is asked.
func TestSettleAndClaim(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		both, twin := memory.New(), memory.New()
		ctx := t.Context()
		for i := range rapid.IntRange(1, 12).Draw(t, "jobs") {
			r := record(fmt.Sprintf("%02d", i), ojs.StateAvailable)
			r.Priority = rapid.IntRange(0, 2).Draw(t, "priority")
			r.Queue = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue")
			for _, s := range []storage.Storage{both, twin} {
				if _, err := s.Insert(ctx, epoch, []storage.Insert{{Record: r}}, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		claim := storage.Claim{Max: 1, Worker: "w"}
		running, err := both.Claim(ctx, epoch, claim, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := twin.Claim(ctx, epoch, claim, nil); err != nil {
			t.Fatal(err)
		}
		now := epoch
		for len(running) > 0 {
			now = now.Add(time.Second)
			var to []*storage.Record
			var changes []storage.Change
			for range rapid.IntRange(1, len(running)).Draw(t, "settle") {
				r := running[0]
				running = running[1:]
				r.State = rapid.SampledFrom([]ojs.State{ojs.StateCompleted, ojs.StateRetryable, ojs.StateDiscarded, ojs.StateScheduled}).Draw(t, "to")
				r.LeaseUntil, r.FinishedAt = time.Time{}, now
				if rapid.IntRange(0, 9).Draw(t, "late") == 0 {
					r.Version--
				}
				to = append(to, &r)
				changes = append(changes, storage.Change{Record: r, SameJob: true})
			}
			claim.Max = rapid.IntRange(1, 3).Draw(t, "max")
			into := make([]*storage.Record, claim.Max)
			for i := range into {
				into[i] = &storage.Record{Worker: "of before"}
			}
			claim.Queues = rapid.SampledFrom([][]string{nil, {"b"}, {"b", "a"}}).Draw(t, "queues")
			settled, n, err := both.SettleAndClaim(ctx, now, to, nil, claim, into)
			if err != nil {
				t.Fatal(err)
			}
			claimed := claimedInto(into[:n])
			wantSettled, err := twin.Settle(ctx, now, changes, nil)
			if err != nil {
				t.Fatal(err)
			}
			wantClaimed, err := twin.Claim(ctx, now, claim, nil)
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(settled) != fmt.Sprint(wantSettled) || !reflect.DeepEqual(claimed, wantClaimed) {
				t.Fatalf("%v, %v; want %v, %v", settled, claimed, wantSettled, wantClaimed)
			}
			running = append(running, claimed...)
		}
		got, err := both.List(ctx, storage.Query{})
		if err != nil {
			t.Fatal(err)
		}
		if want, err := twin.List(ctx, storage.Query{}); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v, want %v, %v", got, want, err)
		}
	})
	t.Run("no job with a rate limit, and none behind one", func(t *testing.T) {
		s := memory.New()
		first, limited, low := record("1", ojs.StateAvailable), record("2", ojs.StateAvailable), record("3", ojs.StateAvailable)
		limited.RateLimit, low.Priority = &ojs.RateLimit{Key: "k", Concurrency: 1}, -1
		insert(t, s, first, limited, low)
		running, err := s.Claim(t.Context(), epoch, storage.Claim{Max: 1}, nil)
		if err != nil || len(running) != 1 {
			t.Fatal(running, err)
		}
		for _, queues := range [][]string{nil, {"q"}, {"q", "other"}} {
			to := running[0]
			to.State = ojs.StateCompleted
			into := []*storage.Record{new(storage.Record), new(storage.Record)}
			settled, n, err := s.SettleAndClaim(t.Context(), epoch, []*storage.Record{&to}, nil, storage.Claim{Queues: queues}, into)
			if err != nil || n != 0 || (settled[0].Err == nil) != (queues == nil) {
				t.Errorf("%v: %v, %d, %v", queues, settled, n, err)
			}
		}
		if next, err := s.Claim(t.Context(), epoch, storage.Claim{Max: 1}, nil); err != nil || next[0].ID != "2" {
			t.Errorf("%v, %v", next, err)
		}
	})
}

// claimedInto is what SettleAndClaim has claimed, as Claim returns it.
func claimedInto(into []*storage.Record) (recs []storage.Record) {
	for _, r := range into {
		recs = append(recs, *r)
	}
	return recs
}

// Calls of the storage that For returns are self's.
func TestFor(t *testing.T) {
	s := memory.New()
	var heard []storage.Notice
	stop := s.Notify("self", func(n storage.Notice) { heard = append(heard, n) })
	defer stop()
	insert(t, s.For("self"), record("mine", ojs.StateAvailable))
	if len(heard) != 0 {
		t.Errorf("heard %v of its own calls", heard)
	}
	insert(t, s.For("other"), record("theirs", ojs.StateAvailable))
	insert(t, s, record("nobody's", ojs.StateAvailable))
	if len(heard) != 2 {
		t.Errorf("heard %v of two others' calls", heard)
	}
}
