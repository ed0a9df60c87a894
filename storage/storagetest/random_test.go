package storagetest

import (
	"flag"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// durable is a memory storage that is opened again by going on.
type durable struct{ *memory.Storage }

func (s durable) Capabilities() storage.Capabilities {
	c := s.Storage.Capabilities()
	c.Durable = true
	return c
}

// A few hundred runs of the random operations on the memory storage reach everything that
// can occur: a hundred of one seed, and of the next ones while something is missing. The
// seeds are given, so that the test does not depend on luck; -rapid.seed sets another
// first one.
func TestRandomReachesEverything(t *testing.T) {
	if runs := flag.Lookup("rapid.checks").Value.String(); os.Getenv("OJS_STORM") == "" || runs != "100" {
		t.Skipf("it searches in 100 runs, not %s; OJS_STORM=1 has it search", runs)
	}
	seed := flag.Lookup("rapid.seed").Value
	old := seed.String()
	defer seed.Set(old)
	first := 3
	if seeded() {
		first, _ = strconv.Atoi(old)
	}
	cfg := Config{
		Open:    func(testing.TB) storage.Storage { return durable{memory.New()} },
		Reopen:  func(_ testing.TB, s storage.Storage) storage.Storage { return s },
		Notices: true, SettleClaims: true,

		coverage: newCoverage(),
	}
	missing, wrong := cfg.coverage.missing(cfg)
	for round := 0; round < 4 && len(missing) > 0 && !t.Failed(); round++ {
		if err := seed.Set(strconv.Itoa(first + round)); err != nil {
			t.Fatal(err)
		}
		Random(t, cfg)
		missing, wrong = cfg.coverage.missing(cfg)
	}
	for _, m := range missing {
		t.Errorf("did not occur: %v", m)
	}
	for _, m := range wrong {
		t.Errorf("occurred, and cannot: %v (%s)", m, m.cannot())
	}
}

// A change of attempt fields that the draws foresaw after another one is not made if a
// third one comes between: its record is not what is stored under its version.
func TestDrawsKeepTheContract(t *testing.T) {
	for _, between := range []bool{false, true} {
		w := &world{ref: NewReference(), ctx: t.Context(), now: epoch}
		policy := &ojs.UniquePolicy{OnConflict: ojs.ConflictDebounce}
		record := func(id string) (r storage.Record) {
			r.ID, r.Queue, r.Type, r.State = id, "q", "x", ojs.StateScheduled
			r.ScheduledAt, r.Fingerprint, r.Unique = epoch.Add(time.Hour), "f", policy
			return r
		}
		ends, late, next := record("1"), record("2"), record("3")
		ends.Fingerprint = ""
		next.Meta = map[string]any{"new": true}
		_, err := w.ref.Insert(w.ctx, w.now, []storage.Insert{{Record: ends}, {Record: late}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		change := func(from storage.Record, f func(c *storage.Change)) draft {
			d := draft{from: from, to: storage.Change{Record: from.Copy(), AttemptFieldsOnly: true}}
			f(&d.to)
			return d
		}
		ends, late = w.ref.find("1").rec, w.ref.find("2").rec
		list := []draft{
			change(ends, func(c *storage.Change) {
				c.Record.State = ojs.StateCancelled
				if between {
					c.Then = []storage.Insert{{Record: next}}
				}
			}),
			change(late, func(c *storage.Change) { c.Record.Progress = 0.5 }),
		}
		again := list[1].to.Record.Copy()
		again.Version++
		list = append(list, change(again, func(c *storage.Change) { c.Record.State = ojs.StateCancelled }))
		want := len(list)
		if between {
			want--
		}
		if kept := w.honest(list); len(kept) != want || w.ref.find("2").rec.Version != late.Version {
			t.Errorf("with a change between: %v, %d of %d changes are made, want %d",
				between, len(kept), len(list), want)
		}
	}
}
