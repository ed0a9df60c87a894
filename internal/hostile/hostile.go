// Package hostile tests storages in SQL databases with rows that do not decode, or cannot be true: each among good jobs, which all
// have to run as if it were not there.
package hostile

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
)

// Config is a database to test.
type Config struct {
	// Open makes an empty storage.
	Open func(tb testing.TB) storage.Storage
	// Exec runs a statement in the database of a storage, as a person would: {job}, {cron} and {queue_state} are its tables, and
	// {quarantined_job} and {quarantine} those of what was set aside.
	Exec func(tb testing.TB, s storage.Storage, sql string)
	// Bytes is the literal of a document.
	Bytes func(document string) string
	// Small says that states have 16 bits and priorities 32.
	Small bool
}

// A row is one that no program of ours has written.
type row struct {
	name string
	set  string               // SQL of what is wrong with it
	fits func(ojs.State) bool // nil: in any state
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
		{name: "version 0", set: "version = 0"},
		{name: "a negative version", set: "version = -" + hugest},
		{name: "no time to wake", set: "wake = NULL", fits: is(ojs.StateScheduled, ojs.StateRetryable, ojs.StateActive)},
		{name: "no end of the lease", set: "lease_until = NULL", fits: is(ojs.StateActive)},
		{name: "woken where nothing wakes", set: "wake = 1", fits: is(ojs.StatePending, ojs.StateCompleted)},
	}
	if !cfg.Small {
		list = append(list, row{name: "the hugest state", set: "state = " + hugest})
	}
	return list
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
		{name: "an empty job", set: "job = " + cfg.Bytes("{}")},
	}
}

// states are those in which the rows are when they are spoilt.
var states = []ojs.State{ojs.StatePending, ojs.StateScheduled, ojs.StateAvailable, ojs.StateActive, ojs.StateRetryable, ojs.StateCompleted}

// Run tests a storage.
func Run(t *testing.T, cfg Config) {
	for _, state := range states {
		t.Run("P2.1 "+string(state), func(t *testing.T) { cfg.run(t, state) })
	}
}

// a rig is a storage with good and bad jobs in it.
type rig struct {
	*testing.T
	Config
	store storage.Storage
	ctx   context.Context
	now   time.Time
	n     int
}

func (cfg Config) open(t *testing.T) *rig {
	r := &rig{T: t, Config: cfg, store: cfg.Open(t), now: time.Now().Truncate(time.Microsecond)}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
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

// job stores a job and brings it into a state, in which time does something to it at once.
func (r *rig) job(state ojs.State, change ...func(*storage.Record)) string {
	r.Helper()
	r.n++
	var rec storage.Record
	rec.ID = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", r.n)
	rec.Type, rec.Queue, rec.State = "work", "default", ojs.StateAvailable
	args, err := ojs.NewArgs(r.n)
	r.must(err)
	rec.Args, rec.CreatedAt, rec.EnqueuedAt = args, r.now, r.now
	rec.Lease, rec.Timeout, rec.MaxAttempts = time.Hour, time.Minute, 5
	rec.Retry = ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: time.Millisecond, BackoffCoefficient: 1, MaxInterval: time.Second}
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
	claimed, err := r.store.Claim(r.ctx, r.now.Add(-time.Hour-time.Second), storage.Claim{Queues: []string{rec.Queue}, Max: 1, Worker: "gone"}, nil)
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

// run works on good jobs with bad ones of a state among them.
func (cfg Config) run(t *testing.T, state ojs.State) {
	r := cfg.open(t)
	good := make(map[string]int) // the attempts that each has had
	add := func(s ojs.State) {
		id := r.job(s)
		good[id] = 0
		if s == ojs.StateActive || s == ojs.StateRetryable {
			good[id] = 1
		}
	}
	bad := make(map[string]row)
	add(state)
	add(ojs.StateAvailable)
	for _, k := range append(cfg.rows(), cfg.harmless()...) {
		if k.fits != nil && !k.fits(state) {
			continue
		}
		id := r.job(state)
		bad[id] = k
		add(state)
		add(ojs.StateAvailable)
	}
	for id, k := range bad {
		r.exec("UPDATE {job} SET %s WHERE id = '%s'", k.set, id)
	}

	eng, err := engine.New[any](r.store, engine.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	r.must(err)
	eng.Handle("work", func(context.Context, *ojs.Job[any]) error { return nil })
	ctx, stop := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	soon, cancel := context.WithTimeout(r.ctx, 10*time.Second)
	defer cancel()
	for id, attempts := range good {
		if state == ojs.StatePending {
			if job, err := eng.Get(r.ctx, id); err == nil && job.State == state {
				r.must(eng.Jobs().Activate(r.ctx, id))
			}
		}
		job, err := eng.Wait(soon, id)
		if err != nil {
			t.Errorf("a good job: %v", err)
			break
		}
		if job.Attempt > max(attempts+1, 1) {
			t.Errorf("a good job took %d attempts, and needs %d", job.Attempt, attempts+1)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
