package ojs_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

func apply(opts ...ojs.Option) (ojs.Options, error) {
	o := ojs.DefaultOptions()
	o.Apply(opts...)
	return o, o.Validate()
}

// level applies options as those of a level of their own, such as the defaults of a job
// type.
func level(opts ...ojs.Option) ojs.Option { return func(o *ojs.Options) { o.Apply(opts...) } }

// timeout is a timeout that was given, which Options alone cannot say.
func timeout(o *ojs.Options, d time.Duration) {
	*o, _ = apply(ojs.WithTimeout(d))
	o.Timeout = d
}

func TestOptions(t *testing.T) {
	later := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name string
		opts []ojs.Option
		want func(o *ojs.Options)
	}{
		{"P0.6 the standard's", nil,
			func(o *ojs.Options) {
				o.Queue, o.Timeout, o.Lease = "default", 1800*time.Second, 1800*time.Second
			}},
		{"the later wins", []ojs.Option{ojs.WithQueue("a"), ojs.WithQueue("b")},
			func(o *ojs.Options) { o.Queue = "b" }},
		{"delay in place of an inherited time", []ojs.Option{level(ojs.WithScheduledAt(later)),
			ojs.WithDelay(time.Hour)}, func(o *ojs.Options) { o.Delay = time.Hour }},
		{"a time in place of an inherited delay", []ojs.Option{level(ojs.WithDelay(time.Hour)),
			ojs.WithScheduledAt(later)}, func(o *ojs.Options) { o.ScheduledAt = later }},
		{"a negative delay is none", []ojs.Option{ojs.WithDelay(-1)}, func(o *ojs.Options) {}},
		{"ttl in place of an inherited time", []ojs.Option{level(ojs.WithExpiresAt(later)),
			ojs.WithTTL(time.Hour)}, func(o *ojs.Options) { o.TTL = time.Hour }},
		{"a time in place of an inherited ttl", []ojs.Option{level(ojs.WithTTL(time.Hour)),
			ojs.WithExpiresAt(later)}, func(o *ojs.Options) { o.ExpiresAt = later }},
		{"A102 policies merge",
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 5, Jitter: ojs.JitterOff}),
				ojs.WithMaxAttempts(7)},
			func(o *ojs.Options) { o.Retry = ojs.RetryPolicy{MaxAttempts: 7, Jitter: ojs.JitterOff} }},
		{"A024 max attempts 0", []ojs.Option{ojs.WithMaxAttempts(0)},
			func(o *ojs.Options) { o.Retry.MaxAttempts = ojs.NoRetry }},
		{"meta adds up", []ojs.Option{ojs.WithMeta("a", 1), ojs.WithMeta("b", 2), ojs.WithMeta("a", 3)},
			func(o *ojs.Options) { o.Meta = map[string]any{"a": 3, "b": 2} }},
		{"tags add up", []ojs.Option{ojs.WithTags("a", "b"), ojs.WithTags("b", "c")},
			func(o *ojs.Options) { o.Meta = map[string]any{"tags": []string{"a", "b", "c"}} }},
		{"total timeout below the default timeout", []ojs.Option{ojs.WithTotalTimeout(time.Second)},
			func(o *ojs.Options) { o.TotalTimeout = time.Second }},
		{"id in lower case", []ojs.Option{ojs.WithID(strings.ToUpper(jobID))},
			func(o *ojs.Options) { o.ID = jobID }},
		{"P0.4 priority", []ojs.Option{ojs.WithPriority(10)},
			func(o *ojs.Options) { o.Priority = 10 }},
		{"P0.4 the lowest priority", []ojs.Option{ojs.WithPriority(math.MinInt32)},
			func(o *ojs.Options) { o.Priority = -1 << 31 }},
		{"P0.4 the highest priority", []ojs.Option{ojs.WithPriority(math.MaxInt32)},
			func(o *ojs.Options) { o.Priority = 1<<31 - 1 }},
		{"P0.5 timeout", []ojs.Option{ojs.WithTimeout(time.Millisecond)},
			func(o *ojs.Options) { timeout(o, time.Millisecond) }},
		{"P0.5 total timeout equal to timeout",
			[]ojs.Option{ojs.WithTotalTimeout(time.Minute), ojs.WithTimeout(time.Minute)},
			func(o *ojs.Options) { timeout(o, time.Minute); o.TotalTimeout = time.Minute }},
		{"P1.4 a time to keep the result", []ojs.Option{ojs.WithResultTTL(time.Hour)},
			func(o *ojs.Options) { o.ResultTTL = time.Hour }},
		{"P1.4 a result that is not stored", []ojs.Option{ojs.WithResultTTL(time.Hour), ojs.WithResultTTL(0)},
			func(o *ojs.Options) { o.ResultTTL = ojs.NoResult }},
		{"P1.4 a job that is kept forever", []ojs.Option{ojs.WithResultTTL(ojs.KeepForever)},
			func(o *ojs.Options) { o.ResultTTL = ojs.KeepForever }},
		{"P0.6 the shortest lease", []ojs.Option{ojs.WithLease(100 * time.Millisecond)},
			func(o *ojs.Options) { o.Lease = 100 * time.Millisecond }},
		{"P0.5 a zero time is at once", []ojs.Option{ojs.WithScheduledAt(time.Time{})},
			func(o *ojs.Options) {}},
		{"A102 the later wins field by field", []ojs.Option{
			ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 1, BackoffCoefficient: 2,
				MaxInterval: 3, Jitter: ojs.JitterOn,
				BackoffStrategy: ojs.BackoffNone, NonRetryableErrors: []string{"a"},
				OnExhaustion: ojs.ExhaustionDiscard}),
			ojs.WithRetry(ojs.RetryPolicy{MaxInterval: 9, NonRetryableErrors: []string{},
				OnExhaustion: ojs.ExhaustionDeadLetter}),
		}, func(o *ojs.Options) {
			o.Retry = ojs.RetryPolicy{MaxAttempts: 5, InitialInterval: 1, BackoffCoefficient: 2,
				MaxInterval: 9, Jitter: ojs.JitterOn,
				BackoffStrategy: ojs.BackoffNone, NonRetryableErrors: []string{},
				OnExhaustion: ojs.ExhaustionDeadLetter}
		}},
		{"A102 all of it inherits", []ojs.Option{ojs.WithRetry(policy.Default()),
			ojs.WithRetry(ojs.RetryPolicy{})}, func(o *ojs.Options) { o.Retry = policy.Default() }},
		{"P0.1 tags add to those of the wire form", []ojs.Option{ojs.WithMeta("tags", []any{"a", "b"}),
			ojs.WithTags("b", "c")},
			func(o *ojs.Options) { o.Meta = map[string]any{"tags": []string{"a", "b", "c"}} }},
		{"reading 22 a repeated error type counts once",
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: []string{"a", "b", "a",
				"c", "b"}})},
			func(o *ojs.Options) { o.Retry.NonRetryableErrors = []string{"a", "b", "c"} }},
		{"no tags are no meta", []ojs.Option{ojs.WithTags()}, func(o *ojs.Options) {}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := apply(tt.opts...)
			want := ojs.DefaultOptions()
			tt.want(&want)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
}

func TestInvalidOptions(t *testing.T) {
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	const option, retry = "validation.option_invalid", "validation.retry_policy_invalid"
	tests := []struct {
		name  string
		code  ojs.InvalidCode
		field string
		opts  []ojs.Option
	}{
		{"P0.1 queue", "validation.queue_invalid", "queue", []ojs.Option{ojs.WithQueue("A")}},
		{"P0.1 empty queue", "validation.queue_invalid", "queue", []ojs.Option{ojs.WithQueue("")}},
		{"P0.4 priority above an int32", option, "priority",
			[]ojs.Option{ojs.WithPriority(math.MaxInt32 + 1)}},
		{"P0.4 priority below an int32", option, "priority",
			[]ojs.Option{ojs.WithPriority(math.MinInt32 - 1)}},
		{"P0.5 no timeout", option, "timeout", []ojs.Option{ojs.WithTimeout(0)}},
		{"P0.5 total timeout below a timeout that is given", option, "total_timeout",
			[]ojs.Option{ojs.WithTimeout(ojs.DefaultTimeout), ojs.WithTotalTimeout(time.Minute)}},
		{"P0.5 the same, given later", option, "total_timeout",
			[]ojs.Option{ojs.WithTotalTimeout(time.Minute), ojs.WithTimeout(ojs.DefaultTimeout)}},
		{"P0.5 negative timeout", option, "timeout", []ojs.Option{ojs.WithTimeout(-1)}},
		{"P0.5 negative total timeout", option, "total_timeout", []ojs.Option{ojs.WithTotalTimeout(-1)}},
		{"P0.5 total timeout below timeout", option, "total_timeout",
			[]ojs.Option{ojs.WithTimeout(time.Minute), ojs.WithTotalTimeout(time.Minute - 1)}},
		{"P1.4 negative time to keep the result", option, "result_ttl",
			[]ojs.Option{ojs.WithResultTTL(-time.Second)}},
		{"P0.6 short lease", option, "visibility_timeout",
			[]ojs.Option{ojs.WithLease(100*time.Millisecond - 1)}},
		{"no ttl", option, "ttl", []ojs.Option{ojs.WithTTL(0)}},
		{"negative ttl", option, "ttl", []ojs.Option{ojs.WithTTL(-1)}},
		{"P0.1 scheduled in the year 10000", option, "scheduled_at",
			[]ojs.Option{ojs.WithScheduledAt(year(10_000))}},
		{"P0.1 scheduled in the year 0", option, "scheduled_at", []ojs.Option{ojs.WithScheduledAt(year(0))}},
		{"P0.1 expires in the year -1", option, "expires_at", []ojs.Option{ojs.WithExpiresAt(year(-1))}},
		{"A123 attempts", retry, "retry.max_attempts", []ojs.Option{ojs.WithMaxAttempts(-2)}},
		{"A123 attempts of a policy", retry, "retry.max_attempts",
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: -2})}},
		{"A125", retry, "retry.initial_interval",
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{InitialInterval: -1})}},
		{"A034", retry, "retry.backoff_coefficient",
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{BackoffCoefficient: 0.99})}},
		{"A034 negative", retry, "retry.backoff_coefficient",
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{BackoffCoefficient: -2})}},
		{"A034 NaN", retry, "retry.backoff_coefficient",
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{BackoffCoefficient: math.NaN()})}},
		{"A034 infinite", retry, "retry.backoff_coefficient",
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{BackoffCoefficient: math.Inf(1)})}},
		{"A127", retry, "retry.max_interval", []ojs.Option{ojs.WithRetry(ojs.RetryPolicy{MaxInterval: -1})}},
		{"A128", retry, "retry.max_interval",
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{InitialInterval: 2, MaxInterval: 1})}},
		{"A128 reading 17 once merged", retry, "retry.max_interval",
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{MaxInterval: 1}),
				ojs.WithRetry(ojs.RetryPolicy{InitialInterval: 2})}},
		{"A129", retry, "retry.jitter", []ojs.Option{ojs.WithRetry(ojs.RetryPolicy{Jitter: "x"})}},
		{"A043", retry, "retry.backoff_strategy",
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{BackoffStrategy: "x"})}},
		{"A131", retry, "retry.on_exhaustion",
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{OnExhaustion: "x"})}},
		{"A160", retry, "retry.non_retryable_errors",
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: []string{"a", ""}})}},
		{"nil", option, "option", []ojs.Option{nil}},
		{"a delay and a time", option, "scheduled_at",
			[]ojs.Option{ojs.WithDelay(1), ojs.WithScheduledAt(year(2030))}},
		{"a time and a delay", option, "scheduled_at",
			[]ojs.Option{ojs.WithScheduledAt(year(2030)), ojs.WithDelay(1)}},
		{"a debounce and a time", option, "scheduled_at",
			[]ojs.Option{ojs.WithDebounce(1), ojs.WithScheduledAt(year(2030))}},
		{"a ttl and a time", option, "expires_at",
			[]ojs.Option{ojs.WithTTL(time.Second), ojs.WithExpiresAt(year(2030))}},
		{"a time and a ttl", option, "expires_at",
			[]ojs.Option{ojs.WithExpiresAt(year(2030)), ojs.WithTTL(time.Second)}},
		{"two unique policies", option, "unique",
			[]ojs.Option{ojs.WithThrottle(1), ojs.WithIdempotencyKey("k")}},
		{"the same unique policy twice", option, "unique",
			[]ojs.Option{ojs.WithOneWaiting(), ojs.WithOneWaiting()}},
		{"a conflict after a level inside the call", option, "scheduled_at",
			[]ojs.Option{ojs.WithDelay(1), level(ojs.WithQueue("q")), ojs.WithScheduledAt(year(2030))}},
		{"P1.6 a rate limit without a bound", option, "rate_limit",
			[]ojs.Option{ojs.WithRateLimit(ojs.RateLimit{Key: "k"})}},
		{"a good one does not cover a bad one", option, "id",
			[]ojs.Option{ojs.WithID("7"), ojs.WithID(jobID)}},
		{"the first bad one is told", option, "id", []ojs.Option{ojs.WithID("7"), nil, ojs.WithTTL(-1)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := apply(tt.opts...)
			var invalid *ojs.InvalidError
			if !errors.As(err, &invalid) || invalid.Code != tt.code || invalid.Field != tt.field ||
				!strings.HasPrefix(err.Error(), "ojs: invalid "+tt.field+": ") {
				t.Errorf("%v, want %s on %s", err, tt.code, tt.field)
			}
		})
	}
}

func TestWithID(t *testing.T) {
	for id, ok := range map[string]bool{
		jobID:                                  true,
		strings.ToUpper(jobID):                 true,
		"":                                     false,
		"7":                                    false,
		"{" + jobID + "}":                      false,
		"urn:uuid:" + jobID:                    false,
		strings.ReplaceAll(jobID, "-", ""):     false,
		jobID + "\n":                           false,
		" " + jobID[1:]:                        false,
		"019539a4-b68c-4def-8000-1a2b3c4d5e6f": false, // version 4
		"00000000-0000-0000-0000-000000000000": false,
		"019539a4-b68c-7def-0000-1a2b3c4d5e6f": false, // version 7 of a variant outside RFC 9562
		"019539a4-b68c-7def-7fff-1a2b3c4d5e6f": false,
		"019539a4-b68c-7def-c000-1a2b3c4d5e6f": false,
		"019539a4-b68c-7def-e000-1a2b3c4d5e6f": false,
		strings.Repeat("g", 36):                false,
	} {
		t.Run("P0.1 "+id, func(t *testing.T) {
			o, err := apply(ojs.WithID(id))
			var invalid *ojs.InvalidError
			if ok && (err != nil || o.ID != jobID) || !ok &&
				(!errors.As(err, &invalid) || invalid.Field != "id" || o.ID != "") {
				t.Errorf("id %q, %v", o.ID, err)
			}
		})
	}
}

func TestDefinePanics(t *testing.T) {
	for name, define := range map[string]func(){
		"P0.1 name":    func() { ojs.Define[int]("Bad") },
		"A122 default": func() { ojs.Define[int]("x", ojs.WithTimeout(-1)) },
		"A128 default": func() {
			ojs.Define[int]("x", ojs.WithRetry(ojs.RetryPolicy{InitialInterval: 2, MaxInterval: 1}))
		},
		"nil": func() { ojs.Define[int]("x", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if err, ok := recover().(error); !ok || !errors.Is(err, ojs.ErrInvalid) {
					t.Errorf("panics with %v", err)
				}
			}()
			define()
		})
	}
}

type recorder struct {
	drafts []ojs.Draft
	err    error
}

func (r *recorder) EnqueueMany(_ context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error) {
	if r.err != nil {
		return nil, r.err
	}
	r.drafts = append(r.drafts, drafts...)
	return make([]ojs.Ticket, len(drafts)), nil
}

func TestOptionsShareNothing(t *testing.T) {
	tags := []string{"a", "b"}
	withTags := ojs.WithTags(tags...)
	tags[0] = "changed"
	first, err := apply(withTags)
	if err != nil {
		t.Fatal(err)
	}
	first.Apply(ojs.WithTags("c"), ojs.WithMeta("k", 1))
	second, err := apply(withTags, ojs.WithTags("d"))
	if want := map[string]any{"tags": []string{"a", "b", "d"}}; err != nil ||
		!reflect.DeepEqual(second.Meta, want) {
		t.Errorf("%v, %v", second.Meta, err)
	}

	types := []string{"a", "b"}
	withRetry := ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: types})
	types[0] = "changed"
	keys, meta, states := []string{"a"}, []string{"m"}, []ojs.State{ojs.StateActive}
	withUnique := ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByArgs | ojs.ByMeta, ArgsKeys: keys,
		MetaKeys: meta, States: states})
	keys[0], meta[0], states[0] = "changed", "changed", "changed"
	third, err := apply(withRetry, withUnique)
	if err != nil || third.Retry.NonRetryableErrors[0] != "a" || third.Unique.ArgsKeys[0] != "a" ||
		third.Unique.MetaKeys[0] != "m" || third.Unique.States[0] != ojs.StateActive {
		t.Errorf("%+v, %+v, %v", third.Retry, third.Unique, err)
	}
	third.Retry.NonRetryableErrors[1], third.Unique.ArgsKeys[0] = "changed", "changed"
	if again, err := apply(withRetry, withUnique); err != nil || again.Retry.NonRetryableErrors[1] != "b" ||
		again.Unique.ArgsKeys[0] != "a" {
		t.Errorf("what one job changes shows in the next: %+v, %+v, %v", again.Retry, again.Unique, err)
	}

	own := []ojs.Option{ojs.WithQueue("a")}
	drafts := []ojs.Draft{ojs.Define[int]("x").New(1, own...), ojs.NewDraft("x", 1, own...)}
	own[0] = ojs.WithQueue("b")
	for _, d := range drafts {
		if o, err := apply(d.Options()...); err != nil || o.Queue != "a" {
			t.Errorf("a draft keeps the caller's list of options: %q, %v", o.Queue, err)
		}
	}
}

func TestDraft(t *testing.T) {
	typ := ojs.Define[point]("point.draw", ojs.WithQueue("q"))
	r := new(recorder)
	if _, err := typ.Enqueue(t.Context(), r, point{1, 2}, ojs.WithPriority(3)); err != nil {
		t.Fatal(err)
	}
	d := r.drafts[0]
	if d.Type() != "point.draw" || d.Args() != (point{1, 2}) || len(d.Defaults()) != 1 ||
		len(d.Options()) != 1 || typ.Name() != d.Type() {
		t.Errorf("%+v", d)
	}
	if named := ojs.NewDraft("point.draw", 7); named.Type() != "point.draw" || named.Args() != 7 ||
		named.Defaults() != nil || named.Options() != nil {
		t.Errorf("%+v", named)
	}
	typ.Defaults()[0] = nil
	if typ.Defaults()[0] == nil {
		t.Error("a job type's defaults can be changed")
	}
	if _, err := typ.Enqueue(t.Context(), &recorder{err: ojs.ErrClosed}, point{}); err != ojs.ErrClosed {
		t.Errorf("error %v", err)
	}
	if _, err := (ojs.Ticket{ID: "7"}).Wait(t.Context()); !errors.Is(err, ojs.ErrUnsupported) {
		t.Errorf("a ticket without a waiter: %v", err)
	}
	if err := (ojs.Ticket{ID: "7"}).Result(t.Context(), new(int)); !errors.Is(err, ojs.ErrUnsupported) {
		t.Errorf("a ticket without a waiter: %v", err)
	}
}

func FuzzNames(f *testing.F) {
	jobType, queue := regexp.MustCompile(`\A[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)*\z`),
		regexp.MustCompile(`\A[a-z0-9][a-z0-9\-\.]*\z`)
	for _, s := range []string{"", "a", "email.send", "a.", ".a", "a..b", "a.1", "1", "_a", "a_", "A", "a-b",
		"a\n", "é", strings.Repeat("a", 128), strings.Repeat("a", 129), strings.Repeat("a", 255),
		strings.Repeat("a", 256)} {
		f.Add(s)
	}
	for c := range 128 { // every character, first, inside, after a dot, and last
		f.Add(string(rune(c)))
		f.Add(string(rune(c)) + "a")
		f.Add("a." + string(rune(c)))
		f.Add("a" + string(rune(c)) + "a")
	}
	f.Fuzz(func(t *testing.T, s string) {
		if want := len(s) <= 255 && jobType.MatchString(s); want != (ojs.ValidateType(s) == nil) {
			t.Errorf("P0.1 type %q: %v", s, ojs.ValidateType(s))
		}
		if want := len(s) <= 128 && queue.MatchString(s); want != (ojs.ValidateQueue(s) == nil) {
			t.Errorf("P0.1 queue %q: %v", s, ojs.ValidateQueue(s))
		}
	})
}
