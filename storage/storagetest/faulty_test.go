package storagetest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// The answer to an enqueue is lost. The job was stored all the same, and an idempotency
// key finds it.
func ExampleFaulty() {
	s := &storagetest.Faulty{Storage: memory.New()}
	s.OnCall(func(c *storagetest.Call) {
		if c.Method == "Insert" && s.Calls("Insert") == 1 {
			c.Do()
			c.Err = storagetest.ErrFault
		}
	})
	eng, err := engine.New[any](s)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		key := ojs.WithIdempotencyKey("invoice-7")
		ticket, err := eng.Enqueue(context.Background(), "invoice.send", 7, key)
		fmt.Println(ticket.Deduplicated, err)
	}
	// Output:
	// false storagetest: injected fault
	// true <nil>
}

// Without a hook, and with one that only looks on, a Faulty is what it wraps.
func TestFaultyConforms(t *testing.T) {
	for name, cfg := range map[string]storagetest.Config{
		"hidden steps": {Open: func(testing.TB) storage.Storage {
			s := &storagetest.Faulty{Storage: memory.New()}
			s.OnCall(func(c *storagetest.Call) { c.Do() })
			return s
		}, Notices: true,
		},
		"stepping": {Open: func(testing.TB) storage.Storage {
			return (&storagetest.Faulty{Storage: memory.New()}).Stepping()
		}, Notices: true,

			SettleClaims: true},
	} {
		t.Run(name, func(t *testing.T) { storagetest.Conformance(t, cfg) })
	}
}

func faultyInsert(id string) []storage.Insert {
	job := ojs.JobInfo{JobHeader: ojs.JobHeader{ID: id, Type: "x", Queue: "q", MaxAttempts: 1},
		State: ojs.StateAvailable, Lease: time.Minute}
	return []storage.Insert{{Record: storage.Record{JobInfo: job}}}
}

func TestFaultyHook(t *testing.T) {
	ctx, now := t.Context(), time.Now()
	counts := func(s storage.Storage) int {
		list, err := s.Counts(ctx)
		if err != nil || len(list) > 1 {
			t.Fatalf("%v, %v", list, err)
		}
		if len(list) == 0 {
			return 0
		}
		return list[0].N
	}
	t.Run("fails a call before its work, and after it", func(t *testing.T) {
		for _, after := range []bool{false, true} {
			s := &storagetest.Faulty{Storage: memory.New()}
			s.OnCall(func(c *storagetest.Call) {
				if after {
					c.Do()
				}
				c.Err = storagetest.ErrFault
			})
			dst := make([]storage.Inserted, 1)
			dst, err := s.Insert(ctx, now, faultyInsert("a"), dst)
			s.OnCall(nil)
			if n := counts(s); len(dst) != 1 || err != storagetest.ErrFault || n == 1 != after {
				t.Errorf("after %t: %d results, %v, %d jobs", after, len(dst), err, n)
			}
		}
	})
	t.Run("sees what is asked and what comes of it", func(t *testing.T) {
		s := &storagetest.Faulty{Storage: memory.New()}
		var seen []string
		s.OnCall(func(c *storagetest.Call) {
			c.Do()
			c.Do() // does nothing
			switch in := c.In.(type) {
			case []storage.Insert:
				n := len(c.Out.([]storage.Inserted))
				seen = append(seen, fmt.Sprint(c.Method, " ", in[0].Record.ID, " ", n))
			case storage.Claim:
				seen = append(seen, fmt.Sprint(c.Method, " ", in.Max, " ", len(c.Out.([]storage.Record))))
			case storagetest.Step:
				seen = append(seen, fmt.Sprint(c.Method, " ", in.Claim.Max, " ", c.Out))
			case string:
				seen = append(seen, fmt.Sprint(c.Method, " ", in, " ", c.Err))
			}
		})
		for _, id := range []string{"a", "b"} {
			if _, err := s.Insert(ctx, now, faultyInsert(id), make([]storage.Inserted, 3)); err != nil {
				t.Fatal(err)
			}
		}
		claimed, err := s.Claim(ctx, now, storage.Claim{Max: 1}, make([]storage.Record, 2))
		if err != nil || len(claimed) != 3 || claimed[2].ID != "a" {
			t.Fatalf("%v, %v", claimed, err)
		}
		into := []*storage.Record{new(storage.Record), new(storage.Record)}
		steps := s.Stepping().(storage.SettleClaimer)
		_, n, err := steps.SettleAndClaim(ctx, now, nil, nil, storage.Claim{}, into)
		if err != nil || n != 1 || into[0].ID != "b" {
			t.Fatalf("%d, %v", n, err)
		}
		if _, err := s.Get(ctx, "none"); !errors.Is(err, ojs.ErrNotFound) {
			t.Error(err)
		}
		want := []string{"Insert a 1", "Insert b 1", "Claim 1 1", "SettleAndClaim 2 1"}
		if len(seen) != 5 || !slices.Equal(seen[:4], want) || !strings.Contains(seen[4], "not found") {
			t.Errorf("%q, want %q", seen, want)
		}
		if s.Calls("Insert", "Get") != 3 || s.Calls() != 5 || s.Calls("Prune") != 0 {
			t.Errorf("%d and %d of %d calls", s.Calls("Insert", "Get"), s.Calls("Prune"), s.Calls())
		}
	})
	t.Run("sees the calls of every part, and of bound callers", func(t *testing.T) {
		s := &storagetest.Faulty{Storage: memory.New()}
		s.OnCall(func(c *storagetest.Call) { c.Err = storagetest.ErrFault })
		if _, err := document.Of(s).SetCrons(ctx, []storage.Cron{{Name: "e"}}); err != storagetest.ErrFault {
			t.Error(err)
		}
		if _, err := s.QueueStates(ctx); err != storagetest.ErrFault {
			t.Error(err)
		}
		steps := s.Stepping()
		bound := steps.(storage.Binder).Bind("caller", steps)
		_, err := bound.Insert(ctx, now, faultyInsert("a"), nil)
		if err != storagetest.ErrFault || s.Calls("Insert") != 1 {
			t.Errorf("%v, %d calls", err, s.Calls("Insert"))
		}
		if steps.(storage.Binder).Bind("caller", s) != nil {
			t.Error("another storage is bound")
		}
	})
	t.Run("has the abilities of the storage inside", func(t *testing.T) {
		s := &storagetest.Faulty{Storage: struct{ storage.Storage }{memory.New()}}
		_, notices := storage.As[storage.Notifier](s)
		_, steps := s.Stepping().(storage.SettleClaimer)
		_, bare := storage.Storage(s).(storage.SettleClaimer)
		if notices || steps || bare {
			t.Errorf("notices %t, steps %t, %t", notices, steps, bare)
		}
	})
}
