package storagetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

// The random operations.
//
// A run draws operations one by one. Each is done to the storage and to Reference, and
// the two answers are compared. Some operations only look: at one job, at a listing, at
// the counts. A look at everything follows a third of the operations: a storage may take
// in new jobs no earlier than the next look. At its end a run looks at everything, claims
// every job that can be claimed, lets the time of every job come, and prunes, one job at
// a time: an order that no operation has asked for shows then.
//
// Versions differ between storages. The world translates them (version, token).
//
// The operations are in random_jobs.go, random_groups.go, random_look.go,
// random_crons.go, random_limits.go and random_quarantine.go, their parts in
// random_draw.go, those of values in random_values.go, the notices that listeners have to
// hear in random_notices.go, and the count of occurrences in coverage.go.

// Names of environment variables for Random.
const (
	envSeed     = "OJS_SEED"     // the seed of every random part, where -rapid.seed cannot be given
	envRandom   = "OJS_RANDOM"   // how long to go on, as in "10m"
	envCoverage = "OJS_COVERAGE" // "1": log what has occurred how often
)

// Random does random operations on a storage and on Reference and compares what they
// answer and hold, step by step. A difference is reduced to the shortest way to it that
// can be found, and printed with the seed.
//
// The flags of pgregory.net/rapid set the number of runs (-rapid.checks) and their length
// (-rapid.steps), and repeat one (-rapid.seed, -rapid.failfile). With OJS_RANDOM=10m in
// the environment, Random goes on for ten minutes. OJS_SEED=1 stands for -rapid.seed=1,
// also for packages that do not have the flag. With OJS_COVERAGE=1 it logs how often
// each operation has met each state and has changed or shown each field there.
func Random(t *testing.T, cfg Config) {
	t.Helper()
	if cfg.coverage == nil {
		cfg.coverage = newCoverage()
	}
	var end time.Time
	if text := os.Getenv(envRandom); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%s: %v", envRandom, err)
		}
		end = wall.Now().Add(d)
	}
	for {
		randomly(t, cfg)
		if seeded() || !wall.Now().Before(end) {
			break
		}
	}
	if os.Getenv(envCoverage) == "1" {
		t.Log("\n" + cfg.coverage.table(cfg))
	}
}

// randomly is one round of Random.
func randomly(t rapid.TB, cfg Config) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		// A run is drawn as one value, so that rapid shows its operations and nothing
		// else that was drawn.
		rapid.Custom(func(inner *rapid.T) bool { return newWorld(rt, cfg).play(inner) }).
			Draw(rt, "all is well")
	})
}

// world is a storage and the reference, which the same things happen to.
type world struct {
	cfg  Config
	rt   *rapid.T // told of failures
	tb   *quiet
	s    storage.Storage
	ref  *Reference
	ctx  context.Context
	now  time.Time
	unit time.Duration // the shortest time that the storage can tell from none
	ids  int           // of jobs so far
	many bool          // there are thousands of jobs

	reopens bool // the storage is closed and opened again now and then

	ahead map[string]uint64        // by id: versions in the storage less those in the reference
	ever  map[string]uint64        // by id: the latest version in the storage that a deleted job had
	gone  map[string][]tokenOfBoth // of deleted jobs
	logAt map[refLog]uint64        // versions of logs in the storage

	crons  map[string][]tokenOfBoth   // versions of recurring entries, by name, the earliest first
	pages  *listing                   // a listing under way; nil: none
	rated  map[storage.LimitName]bool // queues and types that have had a rate from the start
	values worldValues
	aside  []*asideJob // records in the quarantine, the earliest first

	listeners []*listener
	ended     map[string]bool        // jobs that have ended
	taken     map[storage.Taken]bool // claims that were taken from their holders
	cov       *coverage
	as        map[string]string // by id: what the operation under way is to a job, for the coverage
	self      string            // who makes the calls of the operation under way; "": no listener
	before    []refJob          // the latest snapshot
	wants     storage.Notice    // what others have to hear of it, besides what it does to jobs
}

// refLog is the log of a change, by the version after it in the reference. The version in
// the storage stays as it was when the job comes back from the quarantine as a later one.
type refLog struct {
	id      string
	version uint64
}

// tokenOfBoth is a version of a job, in the reference and in the storage.
type tokenOfBoth struct{ ref, got uint64 }

// randomOp is something to do to the world.
type randomOp struct {
	name string        // "claim"
	says func() string // what exactly, in words
	do   func()
}

// turn is an operation, who does it, and whether a look at everything follows.
type turn struct {
	randomOp
	self  string // "": no listener
	looks bool
}

// GoString is how rapid prints it.
func (o turn) GoString() string {
	text := o.says()
	if o.self != "" {
		text = o.self + ": " + text
	}
	if o.looks {
		text += "; and look at everything"
	}
	return text
}

func newWorld(rt *rapid.T, cfg Config) *world {
	return &world{
		cfg: cfg, rt: rt, tb: &quiet{outer: rt}, ref: NewReference(), ctx: context.Background(),
		now: epoch, unit: max(1, cfg.TimePrecision),
		ahead: make(map[string]uint64), ever: make(map[string]uint64),
		gone: make(map[string][]tokenOfBoth), logAt: make(map[refLog]uint64),
		crons: make(map[string][]tokenOfBoth), cov: cfg.coverage,
		rated:  make(map[storage.LimitName]bool),
		values: worldValues{make(map[string]document.Value), make(map[string]bool)},
		ended:  make(map[string]bool), taken: make(map[storage.Taken]bool),
	}
}

// play is a run: t draws its length, and w.rt its operations.
func (w *world) play(t *rapid.T) bool {
	if w.cov.hung != "" { // each run would take as long
		w.failf("%s", w.cov.hung)
	}
	defer within(w.tb.end)
	w.s = scribble(w.cfg.Open(w.tb))
	defer func() {
		if w.cov.hung != "" {
			return // it would hang, too
		}
		w.deafen()
		if !within(func() { _ = w.s.Close() }) {
			w.hangs("Close")
		}
	}()
	w.many = dice(t, 12) == 11
	w.reopens = w.cfg.Reopen != nil && w.s.Capabilities().Durable && dice(t, 2) == 1
	if dice(t, 3) == 2 {
		w.rated[storage.LimitName{Kind: storage.LimitQueue, Name: queueNames[0]}] = true
		w.rated[storage.LimitName{Kind: storage.LimitType, Name: typeNames[0]}] = true
	}
	w.knowStarts()
	w.listen()
	operations := rapid.Custom(w.draw)
	step := func(*rapid.T) {
		o := operations.Draw(w.rt, clockText(w.now))
		w.make(o)
	}
	if w.many {
		for range 10 {
			step(t)
		}
	} else {
		for range 3 {
			t.Repeat(map[string]func(*rapid.T){"step": step})
		}
	}
	if w.reopens {
		w.run(w.reopen(t))
	}
	w.run(randomOp{"look", nil, w.compare})
	w.hear()
	w.drain(dice(t, 2) == 1)
	w.hear()
	return true
}

// init runs before the flags are parsed, so that a flag goes before the environment.
func init() {
	if seed := os.Getenv(envSeed); seed != "" {
		if err := flag.Set("rapid.seed", seed); err != nil {
			panic("ojs: " + envSeed + ": " + err.Error())
		}
	}
}

// seeded reports whether a seed repeats a run.
func seeded() bool {
	f := flag.Lookup("rapid.seed")
	return f != nil && f.Value.String() != "0"
}

// clockText is a time as operations name it: counted from the epoch.
func clockText(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	if d := t.Sub(epoch); d < 0 {
		return d.String()
	}
	return "+" + t.Sub(epoch).String()
}

// nameOf is a job as operations name it.
func nameOf(id string) string {
	n := 0
	if _, err := fmt.Sscanf(id, idFormat, &n); err != nil {
		return fmt.Sprintf("job %q", id)
	}
	return fmt.Sprintf("job %d", n)
}

func namesOf(ids []string) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = nameOf(id)
	}
	if len(names) > 20 {
		names = append(names[:20], fmt.Sprintf("%d more", len(ids)-20))
	}
	return strings.Join(names, ", ")
}

// run does an operation in the name of no listener.
func (w *world) run(o randomOp) { w.make(turn{randomOp: o}) }

// make does an operation and notes what it has met and done.
func (w *world) make(o turn) {
	before := w.snapshot()
	heard := w.heard()
	w.as, w.self = make(map[string]string), o.self
	if o.self != "" {
		w.ctx = storage.WithCaller(context.Background(), o.self)
	}
	if !within(o.do) {
		text := o.name
		if o.says != nil {
			text = o.says()
		}
		w.hangs(text)
	}
	w.ctx = context.Background()
	w.note(o.name, before, heard)
	w.pages.follow(w)
	if o.looks {
		if !within(func() { w.compare(); w.hear() }) {
			w.hangs("look at everything")
		}
	}
}

// hangs ends the run since the storage hangs in a step, and with it all runs after it.
func (w *world) hangs(step string) {
	w.cov.hung = "the storage hangs: " + step
	w.failf("%s", w.cov.hung)
}

// weighted are the operations, each as often as it should come among the others.
func (w *world) weighted() []func(*rapid.T) randomOp {
	var list []func(*rapid.T) randomOp
	add := func(times int, f func(*rapid.T) randomOp) {
		for range times {
			list = append(list, f)
		}
	}
	if w.many {
		if len(w.ref.jobs) < 1000 {
			return []func(*rapid.T) randomOp{w.insertMany}
		}
		add(3, w.insertMany)
		add(5, w.settleMany)
		add(3, w.extendMany)
		add(3, w.insert)
		add(5, w.claim)
		add(5, w.due)
		add(6, w.prune)
		add(5, w.time)
		add(3, w.look)
		add(3, w.page)
		return list
	}
	add(1, w.nothing)
	add(17, w.insert)
	add(10, w.claim)
	add(23, w.settle)
	add(6, w.extend)
	add(10, w.due)
	add(6, w.remove)
	add(5, w.prune)
	add(12, w.time)
	add(8, w.look)
	add(4, w.page)
	add(5, w.queue)
	add(5, w.cron)
	if w.cfg.SettleClaims {
		add(8, w.settleAndClaim)
		add(5, w.unclaim)
	}
	add(1, w.cancelAll)
	add(2, w.revive)
	add(3, w.setLimit)
	add(2, w.lookLimits)
	add(2, w.putValues)
	add(2, w.lookValues)
	if w.reopens {
		add(6, w.reopen)
	}
	if w.cfg.Quarantine && w.cfg.Plant != nil && w.cfg.Mend != nil {
		add(3, w.plant)
		add(4, w.quarantine)
	}
	return list
}

// draw draws an operation, who does it, and whether a look at everything follows.
func (w *world) draw(t *rapid.T) turn {
	o := turn{randomOp: pick(t, w.weighted()...)(t)}
	if len(w.listeners) > 0 {
		o.self = pick(t, "", listenerNames[0], listenerNames[1])
	}
	o.looks = dice(t, 3) == 0
	if w.many {
		o.looks = chance(t, 4)
	}
	return o
}

func (w *world) nothing(*rapid.T) randomOp {
	return randomOp{"nothing", func() string { return "do nothing" }, func() {}}
}

// time moves the clock: on, back, or to just where something comes due, or by the
// shortest time next to that.
func (w *world) time(t *rapid.T) randomOp {
	to := w.now
	switch dice(t, 12) {
	case 0, 1, 2, 3:
		to = to.Add(time.Duration(1+dice(t, 7)) * time.Second)
	case 4, 5:
		to = to.Add(-time.Duration(1+dice(t, 3)) * time.Second)
	case 6:
		to = to.Add(pick(t, time.Hour, -time.Hour, 40*time.Hour, -40*time.Hour))
	case 7:
		to = to.Add(pick(t, w.unit, -w.unit))
	default:
		to = w.moment(t).Add(pick(t, 0, -w.unit, w.unit))
	}
	return randomOp{
		"time",
		func() string { return "the clock is set to " + clockText(to) },
		func() { w.now = to },
	}
}

// reopen closes the storage and opens it again.
func (w *world) reopen(*rapid.T) randomOp {
	return randomOp{"reopen", func() string { return "close the storage and open it again" }, func() {
		w.hear()
		w.deafen()
		s, diff := w.cfg.reopenedAs(w.ctx, w.s, w.now, func() storage.Storage {
			return scribble(w.cfg.Reopen(w.tb, unscribbled(w.s)))
		})
		if w.s = s; diff != "" {
			w.failf("%s", diff)
		}
		w.listen()
		for _, j := range w.ref.jobs {
			w.cov.shown("reopen", &j.rec)
		}
	}}
}

// version is a version of a job that the storage has answered with, as the reference has
// it.
func (w *world) version(id string, got uint64) uint64 { return got - w.ahead[id] }

// mine is what the storage says of jobs, with the versions that the reference has.
func (w *world) mine(recs ...storage.Record) []storage.Record {
	recs = slices.Clone(recs)
	for i := range recs {
		recs[i].Version = w.version(recs[i].ID, recs[i].Version)
	}
	return recs
}

// token is the version of a job of the reference that a caller has, as the storage has
// it: the current one, the one before, or that of a deleted job with the same id.
func (w *world) token(t *rapid.T, r storage.Record) tokenOfBoth {
	v := tokenOfBoth{r.Version, r.Version + w.ahead[r.ID]}
	switch old := w.gone[r.ID]; {
	case len(old) > 0 && chance(t, 2):
		return pick(t, old...)
	case chance(t, 8) && v.ref > 0:
		return tokenOfBoth{v.ref - 1, v.got - 1}
	}
	return v
}

// deleting keeps the tokens of jobs that f deletes.
func (w *world) deleting(f func()) {
	before := make(map[string]uint64)
	for _, j := range w.ref.jobs {
		before[j.rec.ID] = j.rec.Version
	}
	f()
	for _, j := range w.ref.jobs {
		delete(before, j.rec.ID)
	}
	for id, last := range before {
		w.ever[id] = max(w.ever[id], last+w.ahead[id])
		for v := last; v > 0 && v+5 > last; v-- {
			w.gone[id] = append(w.gone[id], tokenOfBoth{v, v + w.ahead[id]})
		}
	}
}

// deleted are the ids of jobs that were deleted, of which some are there again.
func (w *world) deleted() []string { return slices.Sorted(maps.Keys(w.gone)) }

// failf ends the run.
func (w *world) failf(format string, args ...any) {
	w.rt.Helper()
	w.rt.Fatalf(format, args...)
}

// same compares what a storage answers with what the reference does. Errors are compared
// by what programs see of them.
func (w *world) same(what string, got, want any) {
	w.rt.Helper()
	if d := fields.Diff(w.normal(got), w.normal(want)); len(d) > 0 {
		w.failf("%s:\n%s", what, strings.Join(d, "\n"))
	}
}

// sameJobs compares lists of jobs: first which they are, and then each.
func (w *world) sameJobs(what string, got, want []storage.Record) {
	w.rt.Helper()
	if g, e := ids(got), ids(want); !slices.Equal(g, e) {
		w.failf("%s: %s, want %s", what, listText(g), listText(e))
	}
	for i := range got {
		w.same(what+": "+nameOf(got[i].ID), got[i], want[i])
	}
}

func listText(ids []string) string {
	if len(ids) == 0 {
		return "no job"
	}
	return namesOf(ids)
}

func (w *world) normal(v any) any {
	switch v := v.(type) {
	case storage.Record:
		return w.cfg.normal(v)
	case []string:
		return append([]string(nil), v...)
	case []storage.Settled:
		var out []any
		for _, s := range v {
			out = append(out, s.Version, w.normal(s.Err))
		}
		return out
	case error:
		var dup *ojs.DuplicateError
		var full *ojs.QueueError
		var bad *ojs.TransitionError
		var aside *ojs.QuarantinedError
		var unknown *ojs.DependencyError
		switch {
		case errors.As(v, &unknown):
			return *unknown
		case errors.As(v, &dup):
			return *dup
		case errors.As(v, &full):
			return *full
		case errors.As(v, &bad):
			return *bad
		case errors.As(v, &aside):
			return ojs.QuarantinedError{Key: aside.Key, ID: aside.ID}
		}
		for _, known := range []error{storage.ErrFenced, ojs.ErrNotFound, ojs.ErrInvalid} {
			if errors.Is(v, known) {
				return known
			}
		}
		return v.Error()
	}
	return v
}
