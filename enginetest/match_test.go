package enginetest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/enginetest"
)

// A job is like a draft if it has the values that the draft's own options set, even if
// they set a default.
func TestLikeInOptions(t *testing.T) {
	past, future := enginetest.Start.Add(-time.Hour), enginetest.Start.Add(time.Hour)
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	limit := ojs.RateLimit{Key: "k", Concurrency: 2, Rate: ojs.Rate{Limit: 1, Per: time.Second}}
	unique := ojs.UniquePolicy{ArgsKeys: []string{"id"}, States: []ojs.State{ojs.StateActive},
		Period: time.Minute}
	type opts = []ojs.Option
	notPending := func(o *ojs.Options) { o.Pending = false }
	notRetried := func(types ...string) opts {
		return opts{ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: append([]string{}, types...)})}
	}
	digits := ojs.WithMeta("n", json.Number("0.12345678901234567890")) // more than a job keeps
	for name, tt := range map[string]struct {
		job, draft opts
		like       bool
	}{
		"priority 0":                  {opts{}, opts{ojs.WithPriority(0)}, true},
		"priority 5, not 0":           {opts{ojs.WithPriority(5)}, opts{ojs.WithPriority(0)}, false},
		"priority not wanted":         {opts{ojs.WithPriority(5)}, nil, true},
		"priority of a sentinel":      {opts{}, opts{ojs.WithPriority(1)}, false},
		"at once":                     {opts{}, opts{ojs.WithDelay(0)}, true},
		"at once since it has passed": {opts{ojs.WithScheduledAt(past)}, opts{ojs.WithDelay(0)}, true},
		"in an hour, not at once":     {opts{ojs.WithDelay(time.Hour)}, opts{ojs.WithDelay(0)}, false},
		"at a time, not at once":      {opts{ojs.WithScheduledAt(future)}, opts{ojs.WithDelay(-1)}, false},
		"at no time": {opts{ojs.WithScheduledAt(future)},
			opts{ojs.WithScheduledAt(time.Time{})}, false},
		"a delay and a time": {opts{ojs.WithScheduledAt(future)},
			opts{ojs.WithDelay(time.Hour)}, true},
		"a time and a delay": {opts{ojs.WithDelay(time.Hour)},
			opts{ojs.WithScheduledAt(future)}, true},
		"a TTL and its time": {opts{ojs.WithTTL(time.Hour)}, opts{ojs.WithExpiresAt(future)}, true},
		"a time and its TTL": {opts{ojs.WithExpiresAt(future)}, opts{ojs.WithTTL(time.Hour)}, true},
		"another TTL":        {opts{ojs.WithTTL(time.Minute)}, opts{ojs.WithTTL(time.Hour)}, false},
		"no TTL":             {opts{}, opts{ojs.WithTTL(time.Hour)}, false},
		"expires, not never": {opts{ojs.WithTTL(time.Hour)},
			opts{ojs.WithExpiresAt(time.Time{})}, false},
		"never expires":    {opts{}, opts{ojs.WithExpiresAt(time.Time{})}, true},
		"no total timeout": {opts{}, opts{ojs.WithTotalTimeout(0)}, true},
		"a total timeout": {opts{ojs.WithTotalTimeout(time.Hour)},
			opts{ojs.WithTotalTimeout(0)}, false},
		"an enqueue TTL": {opts{ojs.WithEnqueueTTL(time.Hour)},
			opts{ojs.WithEnqueueTTL(time.Hour)}, true},
		"another enqueue TTL": {opts{ojs.WithEnqueueTTL(time.Minute)},
			opts{ojs.WithEnqueueTTL(time.Hour)}, false},
		"no enqueue TTL": {opts{}, opts{ojs.WithEnqueueTTL(time.Hour)}, false},
		"the default timeout": {opts{ojs.WithTimeout(time.Second)},
			opts{ojs.WithTimeout(ojs.DefaultTimeout)}, false},
		"a result TTL": {opts{ojs.WithResultTTL(time.Hour)}, opts{ojs.WithResultTTL(0)}, false},
		"the same result TTL": {opts{ojs.WithResultTTL(time.Hour)},
			opts{ojs.WithResultTTL(time.Hour)}, true},
		"the default lease": {opts{ojs.WithLease(time.Second)},
			opts{ojs.WithLease(ojs.DefaultLease)}, false},
		"the default queue": {opts{ojs.WithQueue("low")},
			opts{ojs.WithQueue(ojs.DefaultQueue)}, false},
		"every error is retried":     {notRetried("x"), notRetried(), false},
		"every error, as by default": {opts{}, notRetried(), true},
		"retries": {opts{ojs.WithMaxAttempts(7)},
			opts{ojs.WithRetry(ojs.RetryPolicy{Jitter: ojs.JitterOn})}, true},
		"a single attempt": {opts{ojs.WithMaxAttempts(7)}, opts{ojs.WithMaxAttempts(0)}, false},
		"its id":           {opts{ojs.WithID(id)}, opts{ojs.WithID(strings.ToUpper(id))}, true},
		"another id":       {opts{}, opts{ojs.WithID(id)}, false},
		"rate limit":       {opts{ojs.WithRateLimit(limit)}, opts{ojs.WithRateLimit(limit)}, true},
		"a rate limit by a member": {opts{ojs.WithRateLimitBy("args.id", limit)},
			opts{ojs.WithRateLimitBy("args.id", limit)}, true},
		"the key of a member": {opts{ojs.WithRateLimitBy("args.id", limit)},
			opts{ojs.WithRateLimit(limit)}, false},
		"no rate limit":         {opts{}, opts{ojs.WithRateLimit(limit)}, false},
		"unique":                {opts{ojs.WithUnique(unique)}, opts{ojs.WithUnique(unique)}, true},
		"not unique":            {opts{}, opts{ojs.WithUnique(unique)}, false},
		"unique in another way": {opts{ojs.WithUnique(unique)}, opts{ojs.WithOneWaiting("id")}, false},
		"pending":               {opts{ojs.WithPending()}, opts{ojs.WithPending()}, true},
		"not pending":           {opts{ojs.WithPending()}, opts{notPending}, false},
		"a tag":                 {opts{ojs.WithTags("a")}, opts{ojs.WithTags("a")}, true},
		"exact meta": {opts{ojs.WithMeta("n", int64(9007199254740993))},
			opts{ojs.WithMeta("n", int64(9007199254740992))}, false},
		"the same exact meta": {opts{ojs.WithMeta("n", int64(9007199254740993))},
			opts{ojs.WithMeta("n", uint64(9007199254740993))}, true},
		"meta as a job keeps it": {opts{digits}, opts{digits}, true},
	} {
		t.Run(name, func(t *testing.T) {
			eng := enginetest.NewFake[any](t)
			eng.MustEnqueue(ojs.NewDraft("x", map[string]int{"id": 1}, tt.job...))
			if d := ojs.NewDraft("x", nil, tt.draft...); tt.like {
				eng.RequireEnqueued(d)
			} else {
				eng.RefuteEnqueued(d)
			}
		})
	}
}

// Defaults of the type and options of the engine are in the job, and the draft does not
// ask for them.
func TestLikeBesideDefaults(t *testing.T) {
	eng := enginetest.NewFake[any](t)
	slow := ojs.Define[any]("slow", ojs.WithPriority(5), ojs.WithDelay(time.Hour))
	eng.MustEnqueue(slow.New(nil))
	eng.RequireEnqueued(ojs.NewDraft("slow", nil, ojs.WithPriority(5)))
	eng.RequireEnqueued(slow.New(nil))
	eng.RefuteEnqueued(slow.New(nil, ojs.WithPriority(0)))
	eng.RefuteEnqueued(slow.New(nil, ojs.WithDelay(0)))
}

// Numbers are compared by their value, and exactly.
func TestLikeInArgs(t *testing.T) {
	for _, tt := range []struct {
		job, draft string
		like       bool
	}{
		{`{"id":9007199254740993}`, `{"id":9007199254740993}`, true},
		{`{"id":9007199254740993}`, `{"id":9007199254740992}`, false},
		{`{"id":18446744073709551617}`, `{"id":18446744073709551616}`, false},
		{`[9007199254740993]`, `[9007199254740992]`, false},
		{`9007199254740993`, `9007199254740992`, false},
		{`[{"a":[{"b":9007199254740993}]}]`, `[{"a":[{"b":9007199254740992}]}]`, false},
		{`{"n":1}`, `{"n":1.0}`, true},
		{`{"n":1}`, `{"n":10e-1}`, true},
		{`{"n":100}`, `{"n":1E+2}`, true},
		{`{"n":100}`, `{"n":1e1}`, false},
		{`{"n":0.10}`, `{"n":1e-1}`, true},
		{`{"n":0.10}`, `{"n":0.11}`, false},
		{`{"n":0}`, `{"n":-0.0e7}`, true},
		{`{"n":1}`, `{"n":-1}`, false},
		{`{"n":-10.5}`, `{"n":-1.05e1}`, true},
		{`{"n":1e400}`, `{"n":10e399}`, true},
		{`{"n":1e400}`, `{"n":1e401}`, false},
		{`{"n":1e99999999999999999999}`, `{"n":0.1e100000000000000000000}`, true},
		{`{"n":1}`, `{"n":"1"}`, false},
		{`{"n":1}`, `{"n":null}`, false},
		{`[{"a":1,"b":2}]`, `{"a":1}`, true}, // the wire form of the args {"a":1,"b":2}
		{`{"l":[{"a":1}]}`, `{"l":{"a":1}}`, false},
		{`{"l":[{"a":1,"b":2}]}`, `{"l":[{"a":1}]}`, false},
	} {
		t.Run(fmt.Sprint(tt.job, " like ", tt.draft), func(t *testing.T) {
			eng := enginetest.NewFake[any](t)
			eng.MustEnqueue(ojs.NewDraft("x", json.RawMessage(tt.job)))
			if d := ojs.NewDraft("x", json.RawMessage(tt.draft)); tt.like {
				eng.RequireEnqueued(d)
			} else {
				eng.RefuteEnqueued(d)
			}
		})
	}
}

// No job is like a draft that cannot be enqueued, and a test that looks for one is
// mistaken.
func TestLikeWhatIsInvalid(t *testing.T) {
	for name, d := range map[string]ojs.Draft{
		`invalid id: "7" is no UUIDv7`: ojs.NewDraft("x", nil, ojs.WithID("7")),
		"invalid option: is nil":       ojs.NewDraft("x", nil, nil),
		"invalid unique.keys": ojs.NewDraft("x", nil,
			ojs.WithUnique(ojs.UniquePolicy{Keys: 1 << 7})),
	} {
		got := failure(t, func(tb testing.TB) {
			eng := enginetest.NewFake[any](tb)
			eng.MustEnqueue(ojs.NewDraft("x", nil))
			eng.RequireEnqueued(d)
		})
		if !strings.Contains(got, "draft of x: ojs: ") || !strings.Contains(got, name) {
			t.Errorf("the failure does not say %q:\n%s", name, got)
		}
	}
}

// A failure says all that is wanted, and of each job all that differs.
func TestFailureSaysAllDifferences(t *testing.T) {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	like := []ojs.Option{
		ojs.WithID(id), ojs.WithQueue("high"), ojs.WithDelay(time.Hour), ojs.WithPriority(1),
		ojs.WithMeta("tenant", "t2"),
		ojs.WithTTL(2 * time.Hour), ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 1}),
		ojs.WithIdempotencyKey("i"),
	}
	got := failure(t, func(tb testing.TB) {
		eng := enginetest.NewFake[any](tb)
		eng.MustEnqueue(ojs.NewDraft("x", map[string]any{"to": "a", "n": 1}, ojs.WithQueue("low"),
			ojs.WithScheduledAt(enginetest.Start.Add(1)),
			ojs.WithMeta("tenant", "t1"), ojs.WithTimeout(time.Second),
			ojs.WithRateLimit(ojs.RateLimit{Key: "slow", Concurrency: 3})))
		eng.MustEnqueue(ojs.NewDraft("y", map[string]any{"to": "b"}, like...))
		eng.RequireEnqueued(ojs.NewDraft("x", map[string]any{"to": "b"}, like...))
	})
	for _, want := range []string{
		`type x, args {"to":"b"}, id ` + id +
			`, queue high, priority 1, meta {"tenant":"t2"}, delay 1h0m0s, TTL 2h0m0s`,
		"TTL 2h0m0s, rate limit {Key:k Concurrency:1 ",
		", unique {Keys:0 ArgsKeys:[] MetaKeys:[] Key:i Period:24h0m0s ", " OnConflict:ignore MaxWait:0s}\n",
		`<- args {"n":1,"to":"a"}, id `, `, queue low, priority 0, meta {"tenant":"t1"}, delay 1ns, TTL none`,
		"TTL none, rate limit {Key:slow Concurrency:3 ", ", unique none\n",
		"scheduled 2000-01-01 00:00:00.000000001",
		" <- type y\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the failure does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}
