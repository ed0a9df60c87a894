package rows_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/policy/preset"
	"github.com/ojsengine/ojs/storage"
)

func must(t interface{ Fatal(...any) }, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// times are any that a job may have, those that a column does not hold among them.
var times = rapid.Custom(func(t *rapid.T) time.Time {
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		return time.Time{}
	case 1:
		return time.Unix(0, 0).UTC()
	case 2: // a year that RFC 3339 has
		return time.Date(rapid.IntRange(1, 9999).Draw(t, "year"), 3, 1, 0, 0, 0,
			rapid.IntRange(0, 999_999_999).Draw(t, "ns"), time.UTC)
	}
	return time.Unix(0, rapid.Int64().Draw(t, "unix")).UTC()
})

var raws = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage("null"),
	json.RawMessage(`{"a": 9007199254740993,  "b":"<\u0000>"}`), json.RawMessage(`[]`)})

var failures = rapid.Custom(func(t *rapid.T) ojs.Failure {
	return ojs.Failure{
		Attempt: rapid.Int().Draw(t, "attempt"), At: times.Draw(t, "at"),
		Type: rapid.String().Draw(t, "type"), Message: rapid.String().Draw(t, "message"),
		Code: ojs.CodeRetry, Reason: rapid.SampledFrom([]ojs.Reason{"", ojs.ReasonHandlerError}).Draw(t,
			"reason"),
		Details: rapid.SampledFrom([]map[string]any{nil,
			{"n": 1.5, "big": json.Number("9007199254740993")}}).Draw(t, "details"),
		Backtrace: rapid.SampledFrom([][]string{nil, {"a", "b"}}).Draw(t, "backtrace"),
	}
})

func records(t *rapid.T) storage.Record {
	var r storage.Record
	r.ID, r.Type, r.Queue, r.Worker = rapid.String().Draw(t, "id"), rapid.String().Draw(t, "type"),
		rapid.String().Draw(t, "queue"), rapid.String().Draw(t, "worker")
	r.State = rapid.SampledFrom(ojs.AllStates()).Draw(t, "state")
	r.Priority = int(rapid.Int32().Draw(t, "priority"))
	r.Attempt, r.MaxAttempts = rapid.IntRange(0, rows.MaxCount).Draw(t, "attempt"),
		rapid.IntRange(0, 5).Draw(t, "max")
	r.Version = uint64(rapid.Int64Range(1, rows.MaxCount).Draw(t, "version"))
	r.Progress, r.Fingerprint = rapid.Float64Range(0, 1).Draw(t, "progress"),
		rapid.String().Draw(t, "fingerprint")
	for _, at := range []*time.Time{
		&r.CreatedAt, &r.ScheduledAt, &r.ExpiresAt, &r.EnqueuedAt, &r.StartedAt, &r.NextRetryAt,
		&r.FinishedAt, &r.DeadLetteredAt, &r.LeaseUntil,
	} {
		*at = times.Draw(t, "time")
	}
	duration := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64().Draw(t, "ns"))
	})
	r.Timeout, r.Lease = duration.Draw(t, "timeout"), duration.Draw(t, "lease")
	if rapid.Bool().Draw(t, "total") {
		r.TotalTimeout = time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "total timeout"))
	}
	r.ResultTTL = rapid.SampledFrom([]time.Duration{0, time.Hour, ojs.KeepForever, ojs.NoResult}).Draw(t,
		"result ttl")
	args, err := ojs.NewArgs(raws.Draw(t, "args"))
	must(t, err)
	r.Args, r.Result, r.Checkpoint = args, raws.Draw(t, "result"), raws.Draw(t, "checkpoint")
	r.Retry = rapid.SampledFrom([]ojs.RetryPolicy{{}, policy.Default(),
		{MaxAttempts: ojs.NoRetry, NonRetryableErrors: []string{"a.*"}},
		preset.FullJitter(), preset.Sidekiq(),
		{Jitter: ojs.JitterFull, BackoffStrategy: "acme:unknown"}}).Draw(t, "retry")
	r.Meta = rapid.SampledFrom([]map[string]any{nil, {"n": json.Number("9007199254740993"), "s": "\x00<é>",
		"l": []any{nil, true, 0.1}}}).Draw(t, "meta")
	if rapid.Bool().Draw(t, "limited") {
		r.RateLimit = &ojs.RateLimit{Key: "k", Concurrency: 2, Rate: ojs.Rate{Limit: 1, Per: time.Second}}
	}
	if rapid.Bool().Draw(t, "unique") {
		r.Unique = &ojs.UniquePolicy{Keys: ojs.ByArgs, ArgsKeys: []string{"a"}, PeriodMonths: 1,
			States: []ojs.State{ojs.StateActive}, OnConflict: ojs.ConflictReplace}
	}
	if rapid.Bool().Draw(t, "extra") {
		r.Extra = map[string]json.RawMessage{"x": json.RawMessage(`{"a" :1}`), "y\"z": json.RawMessage(`"<"`)}
	}
	if rapid.Bool().Draw(t, "failed") {
		f := failures.Draw(t, "error")
		r.Error, r.Errors = &f, rapid.SliceOfN(failures, 1, 3).Draw(t, "errors")
	}
	return r
}

func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := records(t)
		c, err := rows.Encode(&want)
		must(t, err)
		got, err := rows.Decode(&c)
		must(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("\ngot  %+v\nwant %+v", got, want)
		}
	})
}

// A job that asks for nothing has no documents: they would cost as much as the rest of
// it.
func TestPlainJobHasNoDocuments(t *testing.T) {
	var r storage.Record
	r.ID, r.Type, r.Queue, r.State = "id", "type", "queue", ojs.StateAvailable
	r.Retry, r.MaxAttempts, r.Timeout, r.Lease, r.CreatedAt = policy.Default(), 3, ojs.DefaultTimeout,
		ojs.DefaultLease, time.Now()
	c, err := rows.Encode(&r)
	must(t, err)
	if c.Job != nil || c.Outcome != nil || c.Args != nil {
		t.Errorf("%s %s %s", c.Job, c.Outcome, c.Args)
	}
}

// A statement may change a column whose time stood in a document: the column goes first
// then.
func TestColumnsGoBeforeFarTimes(t *testing.T) {
	var r storage.Record
	r.State, r.Version = ojs.StateRetryable, 1
	r.NextRetryAt = time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)
	c, err := rows.Encode(&r)
	must(t, err)
	for _, at := range []time.Time{{}, time.Unix(5, 0).UTC()} {
		c.NextRetry = rows.Nanos(at)
		if got, err := rows.Decode(&c); err != nil || !got.NextRetryAt.Equal(at) {
			t.Errorf("%v, %v, not %v", got.NextRetryAt, err, at)
		}
	}
}

func TestStoredCodes(t *testing.T) {
	want := map[int]ojs.State{
		1: ojs.StatePending, 2: ojs.StateScheduled, 3: ojs.StateAvailable, 4: ojs.StateActive,
		5: ojs.StateRetryable, 6: ojs.StateCompleted, 7: ojs.StateCancelled, 8: ojs.StateDiscarded,
	}
	for code := range 10 {
		if got := rows.State(code); got != want[code] {
			t.Errorf("code %d is %q, and has been stored as %q", code, got, want[code])
		}
	}
	for _, s := range ojs.AllStates() {
		if rows.State(rows.Code(s)) != s || rows.Terminal(rows.Code(s)) != s.Terminal() {
			t.Errorf("%s", s)
		}
	}
	if rows.Code("unknown") != 0 || rows.State(-1) != "" {
		t.Error("an unknown state has a code")
	}
	if _, err := rows.Encode(&storage.Record{}); err == nil {
		t.Error("a record without a state was encoded")
	}
}

// Columns that no program has written do not decode, and the error names the column.
func TestRowsThatAreNone(t *testing.T) {
	var r storage.Record
	r.ID, r.State, r.Version, r.Attempt, r.LeaseUntil = "id", ojs.StateActive, 2, 1, time.Unix(9, 0)
	for name, spoil := range map[string]func(*rows.Columns){
		"state":                func(c *rows.Columns) { c.State = 9 },
		"attempt":              func(c *rows.Columns) { c.Attempt = math.MaxInt64 },
		"attempt: -1":          func(c *rows.Columns) { c.Attempt = -1 },
		"version":              func(c *rows.Columns) { c.Version = math.MaxInt64 },
		"version: 0":           func(c *rows.Columns) { c.Version = 0 },
		"progress":             func(c *rows.Columns) { c.Progress = math.Inf(1) },
		"progress: NaN":        func(c *rows.Columns) { c.Progress = math.NaN() },
		"wake: is set, though": func(c *rows.Columns) { c.LeaseUntil = rows.None },
		"wake":                 func(c *rows.Columns) { c.Wake = rows.None },
		"wake: is set":         func(c *rows.Columns) { c.State = rows.Completed },
		"args":                 func(c *rows.Columns) { c.Args = []byte("{") },
		"job":                  func(c *rows.Columns) { c.Job = []byte("{") },
		"outcome":              func(c *rows.Columns) { c.Outcome = []byte("{") },
	} {
		c, err := rows.Encode(&r)
		must(t, err)
		spoil(&c)
		if _, err := rows.Decode(&c); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := errors.New(strings.Repeat("x", 1000) + "\x00\xff")
	if got := rows.Reason(long); len(got) > 510 || !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
	if got := rows.Reason(errors.New("a\x00\xffb")); got != "a\uFFFD\uFFFDb" {
		t.Errorf("%q", got)
	}
}

func TestSettles(t *testing.T) {
	for _, to := range []int{rows.Scheduled, rows.Completed} {
		for _, from := range []int{math.MinInt64, -1, 0, 9, math.MaxInt64} {
			if rows.Settles(from, to) {
				t.Errorf("from %d to %d", from, to)
			}
		}
	}
	if !rows.Settles(rows.Active, rows.Completed) || rows.Settles(rows.Completed, rows.Active) {
		t.Error("the transition table")
	}
}

// A caller that changes its memory after a call changes no row.
func TestEncodeCopies(t *testing.T) {
	var r storage.Record
	r.State, r.Checkpoint = ojs.StateActive, json.RawMessage(`"mine"`)
	c, err := rows.Encode(&r)
	must(t, err)
	copy(r.Checkpoint, `"your"`)
	if string(c.Checkpoint) != `"mine"` {
		t.Errorf("%s", c.Checkpoint)
	}
}

func TestCron(t *testing.T) {
	args, err := ojs.NewArgs(map[string]any{"a": 1})
	must(t, err)
	want := storage.Cron{
		Name: "n", Description: "d", Schedule: "@daily", TimeZone: "Europe/Paris", Overlap: "skip",
		Paused: true, Type: "t", Args: args,
		CreatedAt: time.Unix(1, 0).UTC(), LastRun: time.Unix(2, 0).UTC(), NextRun: time.Unix(3, 5).UTC(),
		Runs: 7, LastJobID: "id",
		Options: ojs.Options{
			Queue: "q", Priority: 3, Delay: time.Second, TTL: time.Minute, Timeout: time.Hour,
			Retry: ojs.RetryPolicy{MaxAttempts: 2},
			Meta:  map[string]any{"m": true}, RateLimit: &ojs.RateLimit{Key: "k"},
			Unique: &ojs.UniquePolicy{Key: "u"},
			Extra:  map[string]json.RawMessage{"x": json.RawMessage(`{ "raw": "<" }`)},
		},
	}
	b, err := rows.EncodeCron(&want)
	must(t, err)
	got, err := rows.DecodeCron(&storage.Document{Name: "n", Version: 7, Data: b})
	must(t, err)
	want.Version = 7
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\ngot  %+v\nwant %+v", got, want)
	}
	for _, broken := range []storage.Document{
		{Name: "n", Version: 7, Data: []byte("{")}, {Name: "other", Version: 7, Data: b},
		{Name: "n", Data: b}, {Name: "n", Version: math.MaxInt64, Data: b},
	} {
		if err := rows.CheckDocument(storage.KindCron, &broken); err == nil {
			t.Errorf("a broken entry was decoded: %+v", broken)
		}
	}
}

// Raw JSON may hold bytes that are not UTF-8, in recurring jobs, too.
func TestCronBytes(t *testing.T) {
	args, err := ojs.NewArgs(json.RawMessage("[\"\xff\"]"))
	must(t, err)
	want := storage.Cron{
		Name: "n", Type: "t", Args: args,
		Options: ojs.Options{Extra: map[string]json.RawMessage{"x": json.RawMessage("\"\xfe\"")}},
	}
	b, err := rows.EncodeCron(&want)
	must(t, err)
	got, err := rows.DecodeCron(&storage.Document{Name: "n", Version: 7, Data: b})
	must(t, err)
	want.Version = 7
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\ngot  %+v\nwant %+v", got, want)
	}
	for _, broken := range []string{`{"Args":[]}`, `{"Args":["","?"]}`, `{"Args":1}`} {
		if got, err := rows.DecodeCron(&storage.Document{Version: 1, Data: []byte(broken)}); err == nil {
			t.Errorf("%s was decoded: %q", broken, got.Args.String())
		}
	}
}

// A record that comes back from the quarantine is told of when it comes due, also an
// active one that has neither a lease nor a start.
func TestRestoredLease(t *testing.T) {
	for name, start := range map[string]time.Time{"no start": {}, "a start": time.Unix(9, 0).UTC()} {
		t.Run(name, func(t *testing.T) {
			rec := storage.Record{JobInfo: ojs.JobInfo{State: ojs.StateActive, StartedAt: start}, Version: 1}
			rec.ID, rec.Type, rec.Lease = "a", "b", time.Minute
			c, err := rows.Encode(&rec)
			must(t, err)
			back, err := rows.Restore(&c)
			must(t, err)
			c, err = rows.Encode(&back)
			must(t, err)
			var n storage.Notice
			rows.Note(&n, &c)
			if back.LeaseUntil.IsZero() || !n.Due.Equal(back.LeaseUntil) {
				t.Errorf("lease until %v, told of %v", back.LeaseUntil, n.Due)
			}
		})
	}
}
