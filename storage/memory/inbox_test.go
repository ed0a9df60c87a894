package memory_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// A storage with jobs in the inbox answers as one whose jobs go directly into the
// indexes.
func TestInbox(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// A listener on the other makes every insert there bypass the inbox.
		both := [2]*memory.Storage{memory.New(), memory.New()}
		defer both[1].Notify("listener", func(storage.Notice) {})()
		ctx, now, ids := t.Context(), epoch, 0
		var active, pending []storage.Record
		same := func(what string, f func(storage.Storage) any) any {
			t.Helper()
			got, want := f(both[0]), f(both[1])
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %v, want %v", what, got, want)
			}
			return got
		}
		draw := func(what string, most int) int { return rapid.IntRange(0, most).Draw(t, what) }
		steps := map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				batch := make([]storage.Insert, 1+draw("n", 40)/(1+draw("few", 40)))
				// of special jobs: none, those with a priority, bounded ones, all
				kind := rapid.SampledFrom([]int{-1, 0, 3, 15}).Draw(t, "kind")
				queue, jobType := rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "queue"),
					rapid.SampledFrom([]string{"x", "x", "x", "y"}).Draw(t, "type")
				for i := range batch {
					r := record(fmt.Sprintf("%06d", ids), ojs.StateAvailable)
					ids++
					r.Queue, r.Type, r.CreatedAt = queue, jobType, now
					special := kind
					if kind == 15 {
						special = draw("special", kind)
					}
					switch special {
					case 0:
						r.Priority = draw("priority", 2) - 1
					case 1:
						r.Fingerprint, r.Unique = "f", &ojs.UniquePolicy{OnConflict: ojs.ConflictReplace}
					case 2:
						r.State = ojs.StatePending
						pending = append(pending, r)
						pending[len(pending)-1].Version = 1
					case 3:
						batch[i].MaxDepth = 10
					case 4:
						r.TotalTimeout = time.Second
					case 5:
						r.RateLimit = &ojs.RateLimit{Key: "k", Concurrency: 3}
					}
					batch[i].Record = r
				}
				same("insert", func(s storage.Storage) any {
					for i := range batch {
						batch[i].IDIsNew = true
					}
					got, err := s.Insert(ctx, now, batch, nil)
					return []any{got, fmt.Sprint(err)}
				})
			},
			"claim": func(t *rapid.T) {
				c := storage.Claim{Max: draw("max", 20), Worker: "w"}
				if draw("from", 3) == 0 {
					c.Queues = rapid.SampledFrom([][]string{{"a"}, {"b", "a"}}).Draw(t, "queues")
				}
				if draw("of", 3) == 0 {
					c.Types = []string{"x"}
				}
				active = append(active, same("claim", func(s storage.Storage) any {
					got, err := s.Claim(ctx, now, c, nil)
					if err != nil {
						t.Fatal(err)
					}
					return got
				}).([]storage.Record)...)
			},
			"settle and claim": func(t *rapid.T) {
				var to []*storage.Record
				for range draw("settle", 20) {
					if len(active) == 0 {
						break
					}
					r := active[0]
					active = active[1:]
					r.State, r.LeaseUntil, r.FinishedAt = ojs.StateCompleted, time.Time{}, now
					to = append(to, &r)
				}
				if len(pending) > 0 && draw("activate", 1) == 0 {
					r := pending[0]
					pending = pending[1:]
					r.State, r.EnqueuedAt = ojs.StateAvailable, now
					to = append(to, &r)
				}
				claim := storage.Claim{Worker: "w"}
				if draw("from", 5) == 0 {
					claim.Queues = []string{"b", "a"}
				}
				n := draw("claim", 20)
				claimed := same("settle and claim", func(s storage.Storage) any {
					into := make([]*storage.Record, n)
					for i := range into {
						into[i] = new(storage.Record)
					}
					settled, n, err := s.(storage.SettleClaimer).SettleAndClaim(ctx, now, to,
						nil, claim, into)
					if err != nil {
						t.Fatal(err)
					}
					return []any{fmt.Sprint(settled), claimedInto(into[:n])}
				}).([]any)
				active = append(active, claimed[1].([]storage.Record)...)
			},
			"look up": func(t *rapid.T) {
				id := fmt.Sprintf("%06d", draw("id", ids))
				same("look up", func(s storage.Storage) any {
					r, err := s.Get(ctx, id)
					return []any{r, fmt.Sprint(err)}
				})
			},
			"count": func(*rapid.T) {
				same("count", func(s storage.Storage) any {
					counts, err := s.Counts(ctx)
					if err != nil {
						t.Fatal(err)
					}
					m := make(map[string]int)
					for _, c := range counts {
						m[c.Queue+" "+c.Type+" "+string(c.State)] = c.N
					}
					return m
				})
			},
			"prune": func(t *rapid.T) {
				p := storage.Prune{Beyond: 1 + draw("beyond", 3), Max: 100}
				same("prune", func(s storage.Storage) any {
					pruned, err := s.Prune(ctx, p)
					if err != nil {
						t.Fatal(err)
					}
					return pruned
				})
			},
			"queue": func(t *rapid.T) {
				to := rapid.SampledFrom([]ojs.QueueState{ojs.QueueActive, ojs.QueueActive, ojs.QueueActive,
					ojs.QueueActive, ojs.QueuePaused, ojs.QueueDraining}).Draw(t, "state")
				same("queue", func(s storage.Storage) any {
					was, err := s.SetQueueState(ctx, "a", to)
					if err != nil {
						t.Fatal(err)
					}
					return was
				})
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Second)
				same("due", func(s storage.Storage) any {
					due, err := s.Due(ctx, now, 100, nil)
					if err != nil {
						t.Fatal(err)
					}
					return due
				})
				active = nil // their leases may be over
			},
		}
		for range 4 {
			t.Repeat(steps)
		}
		same("list", func(s storage.Storage) any {
			page, err := s.List(ctx, storage.Query{})
			if err != nil {
				t.Fatal(err)
			}
			return page.Records
		})
	})
}

// claimedInto is what SettleAndClaim has claimed, as Claim returns it.
func claimedInto(into []*storage.Record) (recs []storage.Record) {
	for _, r := range into {
		recs = append(recs, *r)
	}
	return recs
}

// Jobs come out of the inbox in the order in which they went in, whichever call drains
// it. None is lost if the storage is closed or a queue is drained meanwhile.
func TestInboxConcurrently(t *testing.T) {
	const producers, each = 4, 2000
	s := memory.New()
	var group sync.WaitGroup
	for p := range producers {
		group.Go(func() {
			for i := range each {
				r := record(fmt.Sprintf("%d-%06d", p, i), ojs.StateAvailable)
				if _, err := s.Insert(t.Context(), epoch, []storage.Insert{{Record: r, IDIsNew: true}},
					nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Go(func() {
		for range 100 { // a state of another queue has jobs enqueued the long way
			for _, to := range []ojs.QueueState{ojs.QueuePaused, ojs.QueueActive} {
				if _, err := s.SetQueueState(t.Context(), "other", to); err != nil {
					t.Error(err)
				}
			}
		}
	})
	last, got := make(map[string]string), 0
	for got < producers*each {
		recs, err := s.Claim(t.Context(), epoch, storage.Claim{Max: 7}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			if p := r.ID[:1]; r.ID <= last[p] {
				t.Fatalf("%s after %s", r.ID, last[p])
			} else {
				last[p] = r.ID
			}
		}
		got += len(recs)
	}
	group.Wait()
	if n := available(t, s); n != 0 {
		t.Errorf("%d jobs left", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Insert(context.Background(), epoch,
		[]storage.Insert{{Record: record("late", ojs.StateAvailable), IDIsNew: true}}, nil)
	if !errors.Is(err, ojs.ErrClosed) {
		t.Errorf("a closed storage says %v", err)
	}
}

func available(t *testing.T, s storage.Storage) (n int) {
	counts, err := s.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		if c.State == ojs.StateAvailable {
			n += c.N
		}
	}
	return n
}
