package storagetest

import (
	"flag"
	"testing"

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

// A hundred runs of the random operations on the memory storage reach everything that can
// occur. They have one seed, so that the test does not depend on luck; -rapid.seed sets
// another one.
func TestRandomReachesEverything(t *testing.T) {
	if runs := flag.Lookup("rapid.checks").Value.String(); testing.Short() || runs != "100" {
		t.Skipf("it is about 100 runs, not %s", runs)
	}
	if !seeded() {
		f := flag.Lookup("rapid.seed")
		old := f.Value.String()
		defer f.Value.Set(old)
		if err := f.Value.Set("3"); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{
		Open:   func(testing.TB) storage.Storage { return durable{memory.New()} },
		Reopen: func(_ testing.TB, s storage.Storage) storage.Storage { return s },
		Queues: true, Crons: true, Notices: true, SettleClaims: true,
		Then: true, Orders: true, DependsOn: true, Groups: true, Versions: true, Limits: true,
		coverage: newCoverage(),
	}
	Random(t, cfg)
	missing, wrong := cfg.coverage.missing(cfg)
	for _, m := range missing {
		t.Errorf("did not occur: %v", m)
	}
	for _, m := range wrong {
		t.Errorf("occurred, and cannot: %v (%s)", m, m.cannot())
	}
}
