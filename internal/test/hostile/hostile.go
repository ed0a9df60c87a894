// Package hostile tests storages in SQL databases with rows that do not decode, or cannot
// be true: each among good jobs, which all have to run as if it were not there.
package hostile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Config is a database to test.
type Config struct {
	// Open makes an empty storage.
	Open func(tb testing.TB) storage.Storage
	// Exec runs a statement in the database of a storage, as a person would: {job},
	// {document} and {queue_state} are its tables, and {quarantined_job} and {quarantine}
	// those of what was set aside.
	Exec func(tb testing.TB, s storage.Storage, sql string)
	// Bytes is the literal of a document.
	Bytes func(document string) string
}

// A row is one that no program of ours has written.
type row struct {
	name    string
	set     string               // SQL of what is wrong with it
	fits    func(ojs.State) bool // nil: in any state
	follows bool                 // from what it is about: a release mends it
}

// hugest is the largest number that a column holds.
const hugest = "9223372036854775807"

func (cfg *Config) rows() []row {
	doc := func(column, document string) string { return column + " = " + cfg.Bytes(document) }
	is := func(states ...ojs.State) func(ojs.State) bool {
		return func(s ojs.State) bool {
			for _, one := range states {
				if s == one {
					return true
				}
			}
			return false
		}
	}
	list := []row{
		{name: "args are no JSON", set: doc("args", "{")},
		{name: "args are empty", set: doc("args", "")},
		{name: "args are bytes", set: doc("args", "\xff\x00")},
		{name: "the job is no JSON", set: doc("job", "nonsense")},
		{name: "the job is a list", set: doc("job", "[1]")},
		{name: "the retry policy is a number", set: doc("job", `{"retry":7}`)},
		{name: "meta is a list", set: doc("job", `{"meta":[1]}`)},
		{name: "a time of no calendar", set: doc("job", `{"expires_at":"9999999-01-01T00:00:00Z"}`)},
		{name: "a timeout beyond any number", set: doc("job", `{"timeout":1e400}`)},
		{name: "the outcome is no JSON", set: doc("outcome", `{"errors":`)},
		{name: "the history is a word", set: doc("outcome", `{"errors":"none"}`)},
		{name: "a failure without end", set: doc("outcome", `{"error":`+strings.Repeat("[", 20_000)+`}`)},
		{name: "an unknown state", set: "state = 99"},
		{name: "state 0", set: "state = 0"},
		{name: "a negative state", set: "state = -1"},
		{name: "the hugest attempt", set: "attempt = " + hugest},
		{name: "a negative attempt", set: "attempt = -1"},
		{name: "the hugest version", set: "version = " + hugest},
		{name: "a version beyond all", set: "version = 4611686018427387905"},
		{name: "version 0", set: "version = 0"},
		{name: "a negative version", set: "version = -" + hugest},
		{name: "no time to wake", set: "wake = NULL",
			fits: is(ojs.StateScheduled, ojs.StateRetryable, ojs.StateActive), follows: true},
		{name: "woken where nothing wakes", set: "wake = 1",
			fits: is(ojs.StatePending, ojs.StateAvailable, ojs.StateCompleted), follows: true},
	}
	// before a claim mends it
	decoded := is(ojs.StatePending, ojs.StateScheduled, ojs.StateActive, ojs.StateRetryable,
		ojs.StateCompleted)
	return append(list, row{name: "endless progress", set: "progress = 'Infinity'", fits: decoded},
		row{name: "no share", set: "progress = 'NaN'", fits: decoded})
}

// harmless are rows which are strange and can be worked with.
func (cfg *Config) harmless() []row {
	return []row{
		{name: "the lowest priority", set: "priority = -2147483648"},
		{name: "the highest priority", set: "priority = 2147483647"},
		{name: "never created", set: "created = NULL"},
		{name: "created at the end of time", set: "created = " + hugest},
		{name: "never enqueued", set: "enqueued = NULL"},
		{name: "no args", set: "args = NULL"},
	}
}

// wall is the clock on the wall: the database goes by it.
var wall = clock.New()

// states are those in which the rows are when they are spoilt.
var states = []ojs.State{ojs.StatePending, ojs.StateScheduled, ojs.StateAvailable, ojs.StateActive,
	ojs.StateRetryable, ojs.StateCompleted}

// Run tests a storage.
func Run(t *testing.T, cfg Config) {
	for _, state := range states {
		t.Run("P2.1 "+string(state), func(t *testing.T) { cfg.run(t, state, false) })
	}
	for _, state := range []ojs.State{ojs.StateScheduled, ojs.StateAvailable, ojs.StateActive} {
		t.Run("P2.1 "+string(state)+" beside a closed key", func(t *testing.T) { cfg.run(t, state, true) })
	}
	t.Run("P2.1 recurring entries and states of queues", cfg.named)
}

// a rig is a storage with good and bad jobs in it.
type rig struct {
	*testing.T
	Config
	store storage.Storage
	ctx   context.Context
	now   time.Time
	n     int

	held    chan struct{} // closed when the job that closes its key runs
	release chan struct{} // closed to let it end
}

func (cfg Config) open(t *testing.T) *rig {
	r := &rig{T: t, Config: cfg, store: cfg.Open(t), now: wall.Now().Truncate(time.Microsecond),
		held: make(chan struct{}), release: make(chan struct{})}
	var cancel context.CancelFunc
	r.ctx, cancel = wall.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(func() {
		cancel()
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// exec is Config.Exec with arguments.
func (r *rig) exec(format string, args ...any) {
	r.Helper()
	r.Exec(r, r.store, fmt.Sprintf(format, args...))
}

// id is that of the latest job.
func (r *rig) id() string { return fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", r.n) }

// job stores a job and brings it into a state, in which time does something to it at
// once.
func (r *rig) job(state ojs.State, change ...func(*storage.Record)) string {
	r.Helper()
	r.n++
	var rec storage.Record
	rec.ID = r.id()
	rec.Type, rec.Queue, rec.State = "work", "default", ojs.StateAvailable
	args, err := ojs.NewArgs(r.n)
	r.must(err)
	rec.Args, rec.CreatedAt, rec.EnqueuedAt = args, r.now, r.now
	rec.Lease, rec.Timeout, rec.MaxAttempts = time.Hour, time.Minute, 5
	rec.Retry = ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: time.Millisecond, BackoffCoefficient: 1,
		MaxInterval: time.Second}
	switch state {
	case ojs.StateScheduled:
		rec.State, rec.ScheduledAt, rec.EnqueuedAt = state, r.now, time.Time{}
	case ojs.StatePending:
		rec.State, rec.EnqueuedAt = state, time.Time{}
	case ojs.StateActive, ojs.StateRetryable, ojs.StateCompleted:
		rec.Queue = "made-" + fmt.Sprint(r.n) // where no other can be claimed
	}
	for _, f := range change {
		f(&rec)
	}
	_, err = r.store.Insert(r.ctx, r.now, []storage.Insert{{Record: rec}}, nil)
	r.must(err)
	switch state {
	case ojs.StateActive, ojs.StateRetryable, ojs.StateCompleted:
	default:
		return rec.ID
	}
	claimed, err := r.store.Claim(r.ctx, r.now.Add(-time.Hour-time.Second),
		storage.Claim{Queues: []string{rec.Queue}, Max: 1, Worker: "gone"}, nil)
	r.must(err)
	if len(claimed) != 1 {
		r.Fatalf("%d jobs claimed", len(claimed))
	}
	if state == ojs.StateActive {
		return rec.ID // its lease is over
	}
	to := claimed[0]
	to.State, to.LeaseUntil = state, time.Time{}
	if state == ojs.StateRetryable {
		to.NextRetryAt = r.now
		to.Error = &ojs.Failure{Attempt: 1, At: r.now, Type: "x", Message: "x", Code: ojs.CodeRetry}
		to.Errors = []ojs.Failure{*to.Error}
	} else {
		to.FinishedAt = r.now
	}
	done, err := r.store.Settle(r.ctx, r.now, []storage.Change{{Record: to}}, nil)
	r.must(err)
	r.must(done[0].Err)
	return rec.ID
}

// run works on good jobs with bad ones of a state among them; all the while, if it is
// said so, a rate limit key is closed.
func (cfg Config) run(t *testing.T, state ojs.State, closed bool) {
	r := cfg.open(t)
	attempts := make(map[string]int) // of good jobs, when they have ended
	add := func(s ojs.State) {
		attempts[r.job(s)] = 1
		if s == ojs.StateActive || s == ojs.StateRetryable {
			attempts[r.id()] = 2
		}
	}
	bad, harmless := make(map[string]row), make(map[string]row)
	add(state)
	add(ojs.StateAvailable)
	for _, k := range cfg.rows() {
		if k.fits == nil || k.fits(state) {
			bad[r.job(state)] = k
			add(state)
			add(ojs.StateAvailable)
		}
	}
	for _, k := range cfg.harmless() {
		harmless[r.job(state)] = k
	}
	r.exec("CREATE TABLE {as_it_was} AS SELECT * FROM {job}")
	for _, spoilt := range []map[string]row{bad, harmless} {
		for id, k := range spoilt {
			r.exec("UPDATE {job} SET %s WHERE id = '%s'", k.set, id)
		}
	}

	// All that is good is worked on, and nothing is spent.
	log := &lines{}
	eng := r.engine(log)
	var held []string
	if closed {
		_, err := eng.Queues().Pause(r.ctx, "default")
		r.must(err)
		for range 3 {
			held = append(held, r.job(ojs.StateAvailable, func(rec *storage.Record) {
				rec.Type, rec.Queue, rec.RateLimit = "hold", "held",
					&ojs.RateLimit{Key: "closed", Concurrency: 1}
			}))
		}
	}
	stop := r.start(eng)
	if closed { // no claim for the jobs comes before the key is
		select {
		case <-r.held:
		case <-r.ctx.Done():
			t.Fatal("the job that closes its key does not begin")
		}
		_, err := eng.Queues().Resume(r.ctx, "default")
		r.must(err)
	}
	r.complete(eng, state, attempts, "is good")
	for i, id := range held {
		job, err := eng.Get(r.ctx, id)
		r.must(err)
		if i == 0 && job.State != ojs.StateActive || i > 0 &&
			(job.State != ojs.StateAvailable || job.Attempt != 0) {
			t.Errorf("job %d of a key that allows one at once is %s, attempt %d", i+1, job.State, job.Attempt)
		}
	}
	for id, k := range harmless {
		r.complete(eng, state, map[string]int{id: 0}, "is strange: "+k.name)
	}

	close(r.release)
	for _, id := range held {
		r.complete(eng, state, map[string]int{id: 1}, "waits for a key")
	}

	// Calls set aside what they meet. A row that maintenance has locked is left to the
	// next one.
	soon, cancel := wall.WithTimeout(r.ctx, 10*time.Second)
	defer cancel()
	for aside := 0; aside < len(bad) && soon.Err() == nil; {
		for _, err := range eng.Jobs().List(r.ctx, inspect.Filter{}) {
			r.must(err)
		}
		stats, err := eng.Stats(r.ctx)
		r.must(err)
		aside = stats.Quarantined
	}

	// Everything else goes on.
	listed := make(map[storage.Count]int)
	for job, err := range eng.Jobs().List(r.ctx, inspect.Filter{}) {
		r.must(err)
		if k, is := bad[job.ID]; is {
			t.Errorf("%s: it is listed", k.name)
		}
		listed[storage.Count{Queue: job.Queue, Type: job.Type, State: job.State}]++
	}
	counts, err := r.store.Counts(r.ctx)
	r.must(err)
	for _, n := range counts {
		if kind := (storage.Count{Queue: n.Queue, Type: n.Type, State: n.State}); listed[kind] != n.N {
			t.Errorf("%d jobs of %s are %s, and %d are counted", listed[kind], n.Queue, n.State, n.N)
		}
	}
	_, err = r.store.Prune(r.ctx, storage.Prune{Now: r.now, Beyond: 10_000, Max: 100})
	r.must(err)

	// Each bad one is in the quarantine, and every call shows that.
	keys := r.quarantined(eng, bad)
	if stats, err := eng.Stats(r.ctx); err != nil || stats.Quarantined != len(bad) {
		t.Errorf("Stats: %d of %d, %v", stats.Quarantined, len(bad), err)
	}
	health := eng.Health(r.ctx)
	if health.Status != engine.Degraded || health.Quarantined != len(bad) || len(health.Problems) != 1 ||
		health.Problems[0].Code != engine.ProblemQuarantine {
		t.Errorf("Health: %+v", health)
	}
	for id, k := range bad {
		_, err := eng.Get(r.ctx, id)
		var q *ojs.QuarantinedError
		if !errors.As(err, &q) || q.ID != id || q.Key != keys[id] || q.Reason == "" ||
			!errors.Is(err, ojs.ErrNotFound) {
			t.Errorf("%s: Get: %v", k.name, err)
		}
	}
	r.must(stop())
	for id, k := range bad { // the call that has set a row aside tells of it before it returns
		if n := log.count(slog.LevelWarn, id); n != 1 {
			t.Errorf("%s: %d lines", k.name, n)
		}
	}

	// A release is refused until a person has mended the row. Then it is as it was.
	for id, k := range bad {
		err := eng.Quarantine().Release(r.ctx, keys[id])
		if k.follows {
			r.must(err)
			delete(keys, id)
		} else if !errors.Is(err, ojs.ErrQuarantined) {
			t.Errorf("%s: Release: %v", k.name, err)
		}
	}
	for id, key := range keys {
		r.must(eng.Quarantine().Delete(r.ctx, key))
		if err := eng.Quarantine().Delete(r.ctx, key); !errors.Is(err, ojs.ErrNotFound) ||
			errors.Is(err, ojs.ErrQuarantined) {
			t.Errorf("a second Delete: %v", err)
		}
		if err := eng.Quarantine().Release(r.ctx, key); !errors.Is(err, ojs.ErrNotFound) ||
			errors.Is(err, ojs.ErrQuarantined) {
			t.Errorf("Release after Delete: %v", err)
		}
		if _, err := eng.Get(r.ctx, id); !errors.Is(err, ojs.ErrNotFound) ||
			errors.Is(err, ojs.ErrQuarantined) {
			t.Errorf("Get after Delete: %v", err)
		}
		delete(keys, id)
		delete(bad, id)
		break
	}
	const mended = "state, attempt, version, wake, enqueued, started, next_retry, lease_until, progress, args, job, outcome"
	r.exec("UPDATE {quarantined_job} SET (" + mended + ") = (SELECT " + mended +
		" FROM {as_it_was} a WHERE a.seq = {quarantined_job}.seq)")
	for id, key := range keys {
		if err := eng.Quarantine().Release(r.ctx, key); err != nil {
			t.Errorf("%s: Release of the mended row: %v", bad[id].name, err)
			continue
		}
		job, err := eng.Get(r.ctx, id)
		r.must(err)
		if job.State != state {
			t.Errorf("%s: it is %s, and was %s", bad[id].name, job.State, state)
		}
	}
	if health := eng.Health(r.ctx); health.Quarantined != 0 {
		t.Errorf("Health: %+v", health)
	}
	stop = r.start(eng)
	for id, k := range bad {
		want := 1
		if state == ojs.StateActive || state == ojs.StateRetryable {
			want = 2
		}
		r.complete(eng, state, map[string]int{id: want}, "was spoilt: "+k.name)
	}
	r.must(stop())
}

// named works on jobs and a recurring entry with bad entries and a bad state of a queue
// beside them.
func (cfg Config) named(t *testing.T) {
	r := cfg.open(t)
	log := &lines{}
	eng := r.engine(log)
	ticked := make(chan struct{}, 10)
	eng.Handle("tick", func(context.Context, *ojs.Job[any]) error { ticked <- struct{}{}; return nil })
	// the order of those that are due is that of NextRun
	names := []string{"a bad one that is due", "another's name", "good", "none"}
	r.must(eng.Cron().Set(r.ctx, cron.Entry{Name: "good", Schedule: "@every 1h",
		Job: ojs.NewDraft("tick", any(1))}))
	entries, err := document.Of(r.store).Crons(r.ctx, storage.DocumentQuery{})
	r.must(err)
	entries[0].NextRun = r.now.Add(-time.Second)
	_, err = document.Of(r.store).SetCrons(r.ctx, entries)
	r.must(err)
	for name, document := range map[string]string{
		names[0]: `{"Name":7}`, names[1]: `{"Name":"other"}`, names[3]: "{",
	} {
		due := "1"
		if document == "{" {
			due = "NULL"
		}
		r.exec("INSERT INTO {document} (kind, name, version, due, data) VALUES ('cron', '%s', 1, %s, %s)",
			strings.ReplaceAll(name, "'", "''"), due, r.Bytes(document))
	}
	r.exec("INSERT INTO {queue_state} (queue, state) VALUES ('default', 'nonsense'), ('odd', '')")

	// Bad entries that are due keep nothing from running: maintenance sets them aside.
	stop := r.start(eng)
	attempts := map[string]int{r.job(ojs.StateAvailable): 1, r.job(ojs.StateScheduled): 1}
	attempts[r.job(ojs.StateAvailable, func(rec *storage.Record) { rec.Queue = "odd" })] = 1
	select {
	case <-ticked:
	case <-r.ctx.Done():
		t.Fatal("the good entry does not run")
	}
	r.complete(eng, ojs.StateAvailable, attempts, "is good")
	for _, due := range names[:2] {
		if n := log.count(slog.LevelWarn, due); n != 1 {
			t.Errorf("%s: %d lines before a call has listed the entries", due, n)
		}
	}
	list, err := eng.Cron().List(r.ctx)
	r.must(err)
	if len(list) != 1 || list[0].Name != "good" || list[0].Runs != 1 {
		t.Errorf("the entries are %+v", list)
	}
	queues, err := eng.Queues().List(r.ctx)
	r.must(err)
	for _, q := range queues {
		if q.State != ojs.QueueActive {
			t.Errorf("queue %q is %s", q.Name, q.State)
		}
	}

	// They are in the quarantine, and come back when they have been mended.
	keys := make(map[string]string)
	kinds := map[string]storage.Kind{
		names[0]: storage.KindCron, names[1]: storage.KindCron, names[3]: storage.KindCron,
		"default": storage.KindQueue, "odd": storage.KindQueue,
	}
	for q, err := range eng.Quarantine().List(r.ctx) {
		r.must(err)
		if kinds[q.Name] != q.Kind || q.Reason == "" || keys[q.Name] != "" {
			t.Errorf("in the quarantine: %+v", q)
		}
		keys[q.Name] = q.Key
	}
	for name, kind := range kinds {
		if keys[name] == "" {
			t.Fatalf("%s %q is not in the quarantine", kind, name)
		}
		if n := log.count(slog.LevelWarn, name); n != 1 {
			t.Errorf("%s %q: %d lines", kind, name, n)
		}
		if err := eng.Quarantine().Release(r.ctx, keys[name]); !errors.Is(err, ojs.ErrQuarantined) {
			t.Errorf("%s %q: Release: %v", kind, name, err)
		}
	}
	mended := entries[0]
	mended.Name, mended.NextRun = names[0], r.now.Add(time.Hour)
	data, err := rows.EncodeCron(&mended)
	r.must(err)
	r.exec("UPDATE {quarantine} SET body = %s WHERE n = %s", r.Bytes(string(data)), keys[names[0]])
	r.exec("UPDATE {quarantine} SET body = %s WHERE n = %s", r.Bytes("paused"), keys["odd"])
	for _, name := range []string{names[0], "odd"} {
		r.must(eng.Quarantine().Release(r.ctx, keys[name]))
		delete(keys, name)
	}
	for _, key := range keys {
		r.must(eng.Quarantine().Delete(r.ctx, key))
	}
	if list, err = eng.Cron().List(r.ctx); err != nil || len(list) != 2 || list[0].Name != names[0] {
		t.Errorf("after the release the entries are %+v, %v", list, err)
	}
	states, err := r.store.QueueStates(r.ctx)
	if err != nil || len(states) != 1 || states["odd"] != ojs.QueuePaused {
		t.Errorf("after the release the states of queues are %v, %v", states, err)
	}
	if health := eng.Health(r.ctx); health.Quarantined != 0 {
		t.Errorf("Health: %+v", health)
	}
	r.must(stop())
}

// engine makes an engine that can do the jobs.
func (r *rig) engine(log *lines) *engine.Engine[any] {
	r.Helper()
	eng, err := engine.New[any](r.store, engine.WithLogger(slog.New(log)))
	r.must(err)
	eng.Handle("work", func(context.Context, *ojs.Job[any]) error { return nil })
	var first sync.Once
	eng.Handle("hold", func(ctx context.Context, _ *ojs.Job[any]) error {
		first.Do(func() { close(r.held) })
		select {
		case <-r.release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return eng
}

// start has an engine run until stop is called.
func (r *rig) start(eng *engine.Engine[any]) (stop func() error) {
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// complete waits for jobs, which are to need as many attempts, 0 for any number. Pending
// ones it activates.
func (r *rig) complete(eng *engine.Engine[any], state ojs.State, attempts map[string]int, which string) {
	r.Helper()
	soon, cancel := wall.WithTimeout(r.ctx, 10*time.Second)
	defer cancel()
	for id, want := range attempts {
		if state == ojs.StatePending {
			if job, err := eng.Get(r.ctx, id); err == nil && job.State == state {
				r.must(eng.Jobs().Activate(r.ctx, id))
			}
		}
		job, err := eng.Wait(soon, id)
		if err != nil {
			r.Fatalf("a job that %s: %v", which, err)
		}
		if want > 0 && job.Attempt != want {
			r.Errorf("a job that %s took %d attempts, and needs %d", which, job.Attempt, want)
		}
	}
}

// quarantined wants these jobs, and nothing else, to be in the quarantine, and returns
// their keys.
func (r *rig) quarantined(eng *engine.Engine[any], bad map[string]row) map[string]string {
	r.Helper()
	keys := make(map[string]string)
	for q, err := range eng.Quarantine().List(r.ctx) {
		r.must(err)
		if _, is := bad[q.Name]; !is || q.Kind != storage.KindJob || q.Reason == "" || q.Type != "work" ||
			wall.Since(q.At).Abs() > time.Hour {
			r.Errorf("in the quarantine: %+v", q)
		}
		if keys[q.Name] != "" {
			r.Errorf("%s: it is in the quarantine twice", bad[q.Name].name)
		}
		keys[q.Name] = q.Key
	}
	for id, k := range bad {
		if keys[id] == "" {
			r.Errorf("%s: it is not in the quarantine", k.name)
		}
	}
	return keys
}

// lines are what an engine logs.
type lines struct {
	mu  sync.Mutex
	all []slog.Record
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r)
	return nil
}

// count returns how many lines of a level are about a record that was set aside.
func (l *lines) count(level slog.Level, name string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		line.Attrs(func(a slog.Attr) bool {
			if line.Level == level && strings.Contains(a.Value.String(), name) &&
				strings.Contains(line.Message, "quarantine") {
				n++
			}
			return true
		})
	}
	return n
}
