// Package storagetest proves storages. A storage that passes Run behaves as the memory
// storage does, so that a program can change one for the other:
//
//	func TestStorage(t *testing.T) {
//		storagetest.Run(t, storagetest.Config{
//			Open: func(tb testing.TB) storage.Storage { return mystorage.New() },
//		})
//	}
//
// Each case has an ID, the section of the contract or the standard that it proves, and a
// rule in one sentence, with which its failure begins. Random compares a storage with
// Reference over random operations, and Histories over calls that overlap. Run does all
// three, and ends with a table of what was proven and what was not.
package storagetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

// Config says how to make a storage and what it can.
type Config struct {
	// Open makes an empty storage. It may use tb to clean up, and is called for each
	// case. Required.
	Open func(tb testing.TB) storage.Storage

	// Reopen closes a storage that Open has made and opens it again, with what was
	// stored. A storage that says it is durable needs it.
	Reopen func(tb testing.TB, s storage.Storage) storage.Storage

	// Another opens the storage s once more while it is open, as another process would.
	// Optional, for storages that may be open more than once: Histories makes calls
	// through each of them.
	Another func(tb testing.TB, s storage.Storage) storage.Storage

	// JobByJob declares that calls on several jobs may handle each job at a moment of its
	// own, and count a bounded queue while it changes (package storage, Concurrency).
	// Histories then expects no more of Claim, Extend, Due, List, Prune and Insert, and
	// of changes that Settle refuses.
	JobByJob bool

	// TimePrecision is what stored times are rounded to; 0: not at all. It has to be what
	// Capabilities says.
	TimePrecision time.Duration

	// Notices and SettleClaims declare the optional abilities storage.Notifier and
	// storage.SettleClaimer. A declared ability must be there, and an ability that is
	// there must be declared.
	Notices, SettleClaims bool

	// InsertClaims declares that inserts claim new jobs (Capabilities.InsertClaims).
	InsertClaims bool

	// Quarantine declares the optional ability storage.Quarantiner, like those above. It
	// needs Plant and Mend.
	Quarantine bool

	// Plant damages the stored record of a job, past the storage, as a person or a disk
	// would: it does not decode from then on. The fields by which a claim finds a job
	// stay as they are: state, queue, type, and its times.
	Plant func(tb testing.TB, s storage.Storage, id string)

	// Mend undoes Plant for a job whose record is in the quarantine.
	Mend func(tb testing.TB, s storage.Storage, id string)

	// PlantNamed and MendNamed are Plant and Mend of the recurring entry, or of the state
	// of the queue, with a name. Optional, for storages that set these aside, too.
	PlantNamed, MendNamed func(tb testing.TB, s storage.Storage, kind storage.Kind, name string)

	// Waived are cases that are known to fail.
	Waived []Waiver

	coverage *coverage // of Random; nil: of its own
}

// Waiver excuses a storage from a case.
type Waiver struct{ ID, Reason string }

// Waive makes a Waiver.
func Waive(id, reason string) Waiver { return Waiver{id, reason} }

// Case is one rule and how to prove it.
type Case struct {
	ID     string // stable: group and number, as in "claim-3"
	Path   string // in the names of subtests, as in "Claim/FirstInFirstOut"
	Source string // of the rule: a call of the contract, or a section of the standard
	Rule   string
	needs  need
	run    func(c *C)
}

// need is what a case needs of a storage: a set.
type need uint16

const (
	needsNotices need = 1 << iota
	needsSettleClaims
	needsQuarantine
	needsReopen

	needsNothing need = 0
)

// Cases returns every case.
func Cases() []Case {
	return slices.Concat(insertCases, insertClaimCases, uniqueCases, batchCases, claimCases, settleCases,
		thenCases, dependsCases, lineCases, fairCases,
		groupCases, eachCases, settleClaimCases, unclaimCases, leaseCases, heldCases, dueCases,
		listCases, orderCases, versionCases, limitCases, valueCases, logCases,
		deleteCases, queueCases, cronCases, notifyCases, quarantineCases, generalCases,
		fieldCases, scaleCases, seldomCases, raceCases, durableCases)
}

// Run proves a storage. Each case is a subtest, Conformance/<path>.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	if cfg.Open == nil {
		t.Fatal("storagetest: Config.Open is nil")
	}
	// Calls leave much garbage, of which little lives: to collect it would take a quarter
	// of the time.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	r := conformance(t, cfg)
	if cfg.Reopen != nil && cfg.durable(t) {
		t.Run("Reopened", func(t *testing.T) { reopenedCases(t, cfg, r) })
	}
	t.Run("Random", func(t *testing.T) { Random(t, cfg) })
	t.Run("Histories", func(t *testing.T) { Histories(t, cfg) })
	t.Log(r.String())
}

// Conformance is the cases of Run without Reopened and the searches, Random and
// Histories. It is enough for another way to a database whose storage Run has proven.
func Conformance(t *testing.T, cfg Config) {
	t.Helper()
	t.Log(conformance(t, cfg).String())
}

func conformance(t *testing.T, cfg Config) *report {
	r := &report{results: make(map[string]string)}
	t.Run("Claims", func(t *testing.T) { checkClaims(t, cfg) })
	t.Run("Conformance", func(t *testing.T) {
		for _, c := range Cases() {
			r.add(c, runCase(t, cfg, c))
		}
	})
	return r
}

// reopens reports whether a case runs on a storage that is opened again between the
// calls. It does not if it opens the storage again itself, is about one handle or calls
// at once, or needs many jobs.
func (c Case) reopens() bool {
	name := strings.ToLower(c.Path)
	for _, skipped := range []string{"race", "scale", "many", "fields/", "payloads", "limits/closed"} {
		if strings.Contains(name, skipped) {
			return false
		}
	}
	return c.needs&(needsNotices|needsReopen) == 0
}

// reopenedCases runs the cases on a storage that is opened again between the calls.
func reopenedCases(t *testing.T, cfg Config, r *report) {
	for _, c := range Cases() {
		result := r.results[c.ID] // "" if only Reopened was asked for
		why, _ := cfg.lacks(t, c.needs)
		if why != "" || cfg.waived(c) != "" || !c.reopens() || result != "" && result != "PASS" {
			continue
		}
		if !runReopened(t, cfg, c) {
			r.results[c.ID] = "FAIL: opened again between calls"
		}
	}
}

func runReopened(t *testing.T, cfg Config, c Case) bool {
	return t.Run(c.Path, func(t *testing.T) { prove(t, cfg.reopening(), c) })
}

func runCase(t *testing.T, cfg Config, c Case) (result string) {
	if reason := cfg.waived(c); reason != "" {
		return "WAIVED: " + reason
	}
	if why, missing := cfg.lacks(t, c.needs); why != "" {
		if missing {
			t.Errorf("%s cannot run: %s", c.ID, why)
			return "MISSING: " + why
		}
		return "N-A: " + why
	}
	ok := t.Run(c.Path, func(t *testing.T) { prove(t, cfg, c) })
	if ok {
		return "PASS"
	}
	return "FAIL"
}

// waived is why a case is known to fail, "" if it is not.
func (cfg *Config) waived(c Case) string {
	if i := slices.IndexFunc(cfg.Waived, func(w Waiver) bool { return w.ID == c.ID }); i >= 0 {
		return cfg.Waived[i].Reason
	}
	return ""
}

// lacks says what a case needs that is not there, and whether it should be.
func (cfg *Config) lacks(t fataler, n need) (why string, missing bool) {
	switch {
	case n&needsNotices != 0 && !cfg.Notices:
		return "the storage tells no notices", false
	case n&needsSettleClaims != 0 && !cfg.SettleClaims:
		return "the storage does not settle and claim in one step", false
	case n&needsQuarantine != 0 && !cfg.Quarantine:
		return "the storage sets no records aside", false
	case n&needsQuarantine != 0 && (cfg.Plant == nil || cfg.Mend == nil):
		return "Config.Plant or Config.Mend is not set", true
	case n&needsReopen != 0 && cfg.Reopen == nil:
		return "Config.Reopen is not set", cfg.durable(t)
	case n&needsReopen != 0 && !cfg.durable(t):
		return "the storage is not durable", false
	}
	return "", false
}

func (cfg *Config) durable(t fataler) bool {
	tb := &quiet{outer: t}
	defer tb.end()
	s := cfg.Open(tb)
	defer closes(tb, s)
	return s.Capabilities().Durable
}

// checkClaims compares what is claimed with what is there.
func checkClaims(t *testing.T, cfg Config) {
	s := cfg.Open(t)
	defer closes(t, s)
	caps := s.Capabilities()
	if _, has := storage.As[storage.Notifier](s); has != cfg.Notices {
		t.Errorf("notices: claimed %v, implemented %v", cfg.Notices, has)
	}
	if _, has := s.(storage.SettleClaimer); has != cfg.SettleClaims {
		t.Errorf("settling and claiming in one step: claimed %v, implemented %v", cfg.SettleClaims, has)
	}
	if _, has := storage.As[storage.Quarantiner](s); has != cfg.Quarantine {
		t.Errorf("quarantine: claimed %v, implemented %v", cfg.Quarantine, has)
	}
	if caps.InsertClaims != cfg.InsertClaims {
		t.Errorf("claims of new jobs: claimed %v, Capabilities say %v", cfg.InsertClaims, caps.InsertClaims)
	}
	if caps.Precision != cfg.TimePrecision {
		t.Errorf("precision of times: claimed %v, Capabilities say %v", cfg.TimePrecision, caps.Precision)
	}
	if caps.Name == "" {
		t.Error("Capabilities have no name")
	}
	if caps.Unique != storage.Strong && caps.Unique != storage.BestEffort {
		t.Errorf("strength of unique jobs: %q is neither strong nor best-effort", caps.Unique)
	}
	if caps.Mechanism == "" {
		t.Error("Capabilities name no mechanism of unique jobs")
	}
	for _, w := range cfg.Waived {
		if !slices.ContainsFunc(Cases(), func(c Case) bool { return c.ID == w.ID }) {
			t.Errorf("waived case %s does not exist", w.ID)
		}
		if w.Reason == "" {
			t.Errorf("case %s is waived without a reason", w.ID)
		}
	}
}

// C is a case at work: a fresh storage and what it takes to prove a rule.
type C struct {
	tb   testing.TB
	cfg  Config
	rule string
	S    storage.Storage
	ctx  context.Context
	now  time.Time
	ids  int

	mu   sync.Mutex // guards over
	over bool       // the test has ended, though the case goes on
}

// epoch is when cases begin.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func prove(tb testing.TB, cfg Config, c Case) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &C{tb: tb, cfg: cfg, rule: c.Rule, S: scribble(cfg.Open(tb)), ctx: ctx, now: epoch}
	defer func() { // which hangs, too, if the case does
		if !within(func() { _ = w.S.Close() }) {
			w.report("%s\nClose hangs", c.Rule)
		}
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				w.report("%s\n%s\npanic: %v", c.Rule, c.Source, p)
			}
		}()
		c.run(w)
	}()
	select {
	case <-done:
	case <-wall.After(watchdog):
		w.report("%s\nthe storage hangs", c.Rule)
		w.mu.Lock()
		w.over = true
		w.mu.Unlock()
	}
}

// report fails the test, unless it has ended.
func (c *C) report(format string, args ...any) {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.tb.Errorf(format, args...)
	}
}

// failf ends the case with its rule and what went against it.
func (c *C) failf(format string, args ...any) {
	c.tb.Helper()
	c.errorf(format, args...)
	runtime.Goexit()
}

func (c *C) errorf(format string, args ...any) {
	c.tb.Helper()
	for i, a := range args {
		if hasFields(reflect.TypeOf(a)) {
			args[i] = fields.Text(a)
		}
	}
	c.report("%s\n%s", c.rule, fmt.Sprintf(format, args...))
}

// hasFields reports whether a failure shows the fields of a value.
func hasFields(t reflect.Type) bool {
	for t != nil {
		switch {
		case t == reflect.TypeFor[time.Time]():
			return true
		case t.Implements(reflect.TypeFor[error]()), t.Implements(reflect.TypeFor[fmt.Stringer]()):
			return false
		case t.Kind() == reflect.Struct:
			return true
		case t.Kind() != reflect.Pointer && t.Kind() != reflect.Slice:
			return false
		}
		t = t.Elem()
	}
	return false
}

// noErr wants a call of the storage to succeed.
func (c *C) noErr(call string, err error) {
	c.tb.Helper()
	if err != nil {
		c.failf("%s failed: %v", call, err)
	}
}

// wantErr wants a call to fail with an error that is target.
func (c *C) wantErr(call string, err, target error) {
	c.tb.Helper()
	if !errors.Is(err, target) {
		c.failf("%s returned %v, not an error that is %q", call, err, target)
	}
}

// report is the table at the end.
type report struct {
	order   []Case
	results map[string]string
}

func (r *report) add(c Case, result string) {
	r.order = append(r.order, c)
	r.results[c.ID] = result
}

func (r *report) String() string {
	var b strings.Builder
	count := make(map[string]int)
	for _, c := range r.order {
		word, _, _ := strings.Cut(r.results[c.ID], ":")
		count[word]++
	}
	for _, word := range []string{"PASS", "FAIL", "WAIVED", "N-A", "MISSING"} {
		fmt.Fprintf(&b, "%s %d  ", word, count[word])
	}
	b.WriteByte('\n')
	for _, c := range r.order {
		fmt.Fprintf(&b, "%-14s %-44s %s\n", c.ID, c.Path, r.results[c.ID])
	}
	return b.String()
}

// fataler is told of a failure that leaves nothing to go on with.
type fataler interface {
	Fatalf(format string, args ...any)
}

// quiet is a testing.TB for looks at a storage that are no test.
type quiet struct {
	testing.TB
	outer    fataler    // the test that looks; nil: there is none
	mu       sync.Mutex // guards the fields below
	cleanups []func()
	failures []string
}

func (q *quiet) Helper()      {}
func (q *quiet) Name() string { return "storagetest" }
func (q *quiet) Cleanup(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cleanups = append(q.cleanups, f)
}
func (q *quiet) TempDir() string {
	dir, err := os.MkdirTemp("", "storagetest")
	if err != nil {
		q.Fatal(err)
	}
	q.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
func (q *quiet) Errorf(format string, args ...any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failures = append(q.failures, fmt.Sprintf(format, args...))
}
func (q *quiet) Fatalf(format string, args ...any) {
	q.Errorf(format, args...)
	if q.outer != nil {
		q.outer.Fatalf(format, args...)
	}
	runtime.Goexit()
}
func (q *quiet) Fatal(args ...any)   { q.Fatalf("%s", fmt.Sprint(args...)) }
func (q *quiet) Error(args ...any)   { q.Errorf("%s", fmt.Sprint(args...)) }
func (q *quiet) Failed() bool        { q.mu.Lock(); defer q.mu.Unlock(); return len(q.failures) > 0 }
func (q *quiet) Log(...any)          {}
func (q *quiet) Logf(string, ...any) {}

func (q *quiet) end() {
	q.mu.Lock()
	fs := q.cleanups
	q.cleanups = nil
	q.mu.Unlock()
	for _, f := range slices.Backward(fs) {
		f()
	}
}
