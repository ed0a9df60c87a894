package storagetest

import (
	"flag"
	"os"
	"strconv"
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
