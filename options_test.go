package ojs_test

import (
	"context"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

func apply(opts ...ojs.Option) (ojs.Options, error) {
	o := ojs.DefaultOptions()
	o.Apply(opts...)
	return o, o.Validate()
}

func TestOptions(t *testing.T) {
	later := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name string
		opts []ojs.Option
		want func(o *ojs.Options)
	}{
		{"P0.6 the standard's", nil, func(o *ojs.Options) { o.Queue, o.Timeout, o.Lease = "default", 1800*time.Second, 1800*time.Second }},
		{"the later wins", []ojs.Option{ojs.WithQueue("a"), ojs.WithQueue("b")}, func(o *ojs.Options) { o.Queue = "b" }},
		{"delay in place of a time", []ojs.Option{ojs.WithScheduledAt(later), ojs.WithDelay(time.Hour)}, func(o *ojs.Options) { o.Delay = time.Hour }},
		{"a time in place of delay", []ojs.Option{ojs.WithDelay(time.Hour), ojs.WithScheduledAt(later)}, func(o *ojs.Options) { o.ScheduledAt = later }},
		{"a negative delay is none", []ojs.Option{ojs.WithDelay(-1)}, func(o *ojs.Options) {}},
		{"ttl in place of a time", []ojs.Option{ojs.WithExpiresAt(later), ojs.WithTTL(time.Hour)}, func(o *ojs.Options) { o.TTL = time.Hour }},
		{"a time in place of ttl", []ojs.Option{ojs.WithTTL(time.Hour), ojs.WithExpiresAt(later)}, func(o *ojs.Options) { o.ExpiresAt = later }},
		{"A102 policies merge", []ojs.Option{ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 5, Jitter: ojs.JitterOff}), ojs.WithMaxAttempts(7)},
			func(o *ojs.Options) { o.Retry = ojs.RetryPolicy{MaxAttempts: 7, Jitter: ojs.JitterOff} }},
		{"A024 max attempts 0", []ojs.Option{ojs.WithMaxAttempts(0)}, func(o *ojs.Options) { o.Retry.MaxAttempts = ojs.NoRetry }},
		{"meta adds up", []ojs.Option{ojs.WithMeta("a", 1), ojs.WithMeta("b", 2), ojs.WithMeta("a", 3)}, func(o *ojs.Options) { o.Meta = map[string]any{"a": 3, "b": 2} }},
		{"tags add up", []ojs.Option{ojs.WithTags("a", "b"), ojs.WithTags("b", "c")}, func(o *ojs.Options) { o.Meta = map[string]any{"tags": []string{"a", "b", "c"}} }},
		{"total timeout below the default timeout", []ojs.Option{ojs.WithTotalTimeout(time.Second)}, func(o *ojs.Options) { o.TotalTimeout = time.Second }},
		{"id in lower case", []ojs.Option{ojs.WithID(strings.ToUpper(jobID))}, func(o *ojs.Options) { o.ID = jobID }},
		{"priority", []ojs.Option{ojs.WithPriority(ojs.PriorityHigh)}, func(o *ojs.Options) { o.Priority = 10 }},
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
	for field, opt := range map[string]ojs.Option{
		"queue": ojs.WithQueue("A"), "priority": ojs.WithPriority(1 << 40), "timeout": ojs.WithTimeout(0), "visibility_timeout": ojs.WithLease(time.Microsecond),
		"total_timeout": ojs.WithTotalTimeout(-1), "ttl": ojs.WithTTL(-1), "id": ojs.WithID("{" + jobID + "}"), "option": nil,
		"scheduled_at": ojs.WithScheduledAt(time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)), "expires_at": ojs.WithExpiresAt(time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)),
		"retry.max_attempts": ojs.WithMaxAttempts(-1), "retry.jitter": ojs.WithRetry(ojs.RetryPolicy{Jitter: "x"}),
	} {
		_, err := apply(opt)
		var invalid *ojs.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := apply(ojs.WithTimeout(time.Minute), ojs.WithTotalTimeout(time.Second)); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("P0.5 total_timeout below timeout: %v", err)
	}
}

func TestDefinePanics(t *testing.T) {
	for name, define := range map[string]func(){
		"name":    func() { ojs.Define[int]("Bad") },
		"default": func() { ojs.Define[int]("x", ojs.WithTimeout(-1)) },
		"nil":     func() { ojs.Define[int]("x", nil) },
	} {
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !errors.Is(err, ojs.ErrInvalid) {
					t.Errorf("%s: %v", name, err)
				}
			}()
			define()
		}()
	}
}

type recorder struct{ drafts []ojs.Draft }

func (r *recorder) EnqueueMany(_ context.Context, drafts ...ojs.Draft) ([]ojs.Ticket, error) {
	r.drafts = append(r.drafts, drafts...)
	return make([]ojs.Ticket, len(drafts)), nil
}

func TestDraft(t *testing.T) {
	typ := ojs.Define[point]("point.draw", ojs.WithQueue("q"))
	r := new(recorder)
	if _, err := typ.Enqueue(t.Context(), r, point{1, 2}, ojs.WithPriority(3)); err != nil {
		t.Fatal(err)
	}
	d := r.drafts[0]
	if d.Type() != "point.draw" || d.Args() != (point{1, 2}) || len(d.Defaults()) != 1 || len(d.Options()) != 1 || typ.Name() != d.Type() {
		t.Errorf("%+v", d)
	}
	if _, err := (ojs.Ticket{ID: "7"}).Wait(t.Context()); !errors.Is(err, ojs.ErrUnsupported) {
		t.Errorf("a ticket without a waiter: %v", err)
	}
	if err := (ojs.Ticket{ID: "7"}).Result(t.Context(), new(int)); !errors.Is(err, ojs.ErrUnsupported) {
		t.Errorf("a ticket without a waiter: %v", err)
	}
}

func FuzzNames(f *testing.F) {
	jobType, queue := regexp.MustCompile(`\A[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*\z`), regexp.MustCompile(`\A[a-z0-9][a-z0-9\-\.]*\z`)
	for _, s := range []string{"", "a", "email.send", "a.", ".a", "a..b", "a.1", "1", "_a", "a_", "A", "a-b", "a\n", "é", strings.Repeat("a", 128), strings.Repeat("a", 129), strings.Repeat("a", 255), strings.Repeat("a", 256)} {
		f.Add(s)
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
