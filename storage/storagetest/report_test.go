package storagetest

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ojsengine/ojs/storage"
)

// durableReference says that it is durable.
type durableReference struct{ *Reference }

func (durableReference) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "durable", Durable: true, Unique: storage.Strong, Mechanism: "mutex"}
}

func TestWhatCannotRunIsSaid(t *testing.T) {
	plain := Config{Open: func(testing.TB) storage.Storage { return NewReference() }}
	durable := Config{Open: func(testing.TB) storage.Storage { return durableReference{NewReference()} }}
	noticing := plain
	noticing.Notices = true
	settling := noticing
	settling.SettleClaims = true
	aside := plain
	aside.Quarantine = true
	planted := aside
	planted.Plant = func(testing.TB, storage.Storage, string) {}
	planted.Mend = planted.Plant
	reopens := plain
	reopens.Reopen = func(_ testing.TB, s storage.Storage) storage.Storage { return s }
	for name, tt := range map[string]struct {
		cfg     Config
		need    need
		runs    bool
		missing bool
	}{
		"nothing needed":               {plain, needsNothing, true, false},
		"steps not claimed":            {plain, needsSettleClaims, false, false},
		"one of two claimed":           {noticing, needsSettleClaims | needsNotices, false, false},
		"both claimed":                 {settling, needsSettleClaims | needsNotices, true, false},
		"quarantine not claimed":       {plain, needsQuarantine, false, false},
		"no way to damage a record":    {aside, needsQuarantine, false, true},
		"a way to damage a record":     {planted, needsQuarantine, true, false},
		"not durable":                  {plain, needsReopen, false, false},
		"durable and no way to reopen": {durable, needsReopen, false, true},
		"reopens but is not durable":   {reopens, needsReopen, false, false},
	} {
		why, missing := tt.cfg.lacks(t, tt.need)
		if (why == "") != tt.runs || missing != tt.missing {
			t.Errorf("%s: %q, missing %v", name, why, missing)
		}
	}
}

func TestReport(t *testing.T) {
	r := report{results: make(map[string]string)}
	for i, result := range []string{"PASS", "PASS", "FAIL", "WAIVED: it is a toy",
		"N-A: it is not durable", "MISSING: no Reopen"} {
		r.add(Cases()[i], result)
	}
	got := r.String()
	for _, want := range []string{"PASS 2", "FAIL 1", "WAIVED 1", "N-A 1", "MISSING 1", "it is a toy",
		Cases()[3].Path} {
		if !strings.Contains(got, want) {
			t.Errorf("the report does not say %q:\n%s", want, got)
		}
	}
}

func TestCasesAreWellFormed(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range Cases() {
		if seen[c.ID] || seen[c.Path] || c.ID == "" || c.Source == "" ||
			!strings.HasSuffix(c.Rule, ".") || !strings.Contains(c.Path, "/") || c.run == nil {
			t.Errorf("%+v", c)
		}
		seen[c.ID], seen[c.Path] = true, true
	}
}

func TestWaivedCaseDoesNotRun(t *testing.T) {
	cfg := Config{Open: func(testing.TB) storage.Storage { panic("opened") },
		Waived: []Waiver{Waive("x-1", "it is a toy")}}
	c := Case{ID: "x-1", Path: "X/Y", Rule: "Rule.", run: func(*C) { t.Error("it ran") }}
	if got := runCase(t, cfg, c); got != "WAIVED: it is a toy" {
		t.Error(got)
	}
}

// A case that goes on after the test has failed for it says nothing more: the test may
// have ended.
func TestSlowCaseFailsOnce(t *testing.T) {
	for name, end := range map[string]func(c *C){
		"fails":  func(c *C) { c.failf("late") },
		"panics": func(*C) { panic("late") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{Open: func(testing.TB) storage.Storage { return NewReference() }}
				slow := Case{Rule: "A rule.", run: func(c *C) { <-c.ctx.Done(); end(c) }}
				got := ProveUntil(cfg, slow, synctest.Wait)
				if len(got) != 1 || got[0] != "A rule.\nthe storage hangs" {
					t.Errorf("%q", got)
				}
			})
		})
	}
}
