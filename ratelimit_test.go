package ojs_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

// L011: what a limit may be.
func TestRateLimitJSON(t *testing.T) {
	for in, want := range map[string]ojs.RateLimit{
		`{"key":"api:1","concurrency":5}`: {Key: "api:1",
			Concurrency: 5},
		`{"key":"A-b_c.d","rate":{"limit":10,"period":"PT1M"}}`: {Key: "A-b_c.d",
			Rate: ojs.Rate{Limit: 10, Per: time.Minute}},
		`{"key":"k","throttle":{"limit":1,"period":"PT0.5S"},"on_limit":"wait"}`: {Key: "k",
			Throttle: ojs.Rate{Limit: 1, Per: 500 * time.Millisecond}, OnLimit: ojs.OnLimitWait},
		`{"key":"k","concurrency":0,"on_limit":"drop","local":true}`: {Key: "k",
			Concurrency: ojs.NoneAtOnce, OnLimit: ojs.OnLimitDrop},
		`{"key":"k","concurrency":null,"rate":null,"throttle":null,"on_limit":null}`: {Key: "k"},
	} {
		var l ojs.RateLimit
		if err := json.Unmarshal([]byte(in), &l); err != nil || l != want {
			t.Errorf("P1.5 %s: %+v, %v", in, l, err)
			continue
		}
		raw, err := json.Marshal(l)
		var again ojs.RateLimit
		if err != nil || json.Unmarshal(raw, &again) != nil || again != want {
			t.Errorf("%s comes back as %+v, %v", raw, again, err)
		}
	}
	for in, field := range map[string]string{
		`{}`:                            "rate_limit.key",
		`{"key":""}`:                    "rate_limit.key",
		`{"key":"-a"}`:                  "rate_limit.key",
		`{"key":"a b"}`:                 "rate_limit.key",
		`{"key":1}`:                     "rate_limit.key",
		`{"key":"a","concurrency":-1}`:  "rate_limit.concurrency",
		`{"key":"a","concurrency":1.5}`: "rate_limit.concurrency",
		`{"key":"a","rate":{"limit":0,"period":"PT1S"}}`:       "rate_limit.rate",
		`{"key":"a","rate":{"limit":1}}`:                       "rate_limit.rate",
		`{"key":"a","rate":{"limit":1,"period":"1s"}}`:         "rate_limit.rate",
		`{"key":"a","rate":{"limit":1,"period":"PT1S","x":1}}`: "rate_limit.rate",
		`{"key":"a","throttle":7}`:                             "rate_limit.throttle",
		`{"key":"a","on_limit":"hold"}`:                        "rate_limit.on_limit",
		`{"key":"a","burst":1}`:                                "rate_limit.burst",
		`{"key":"a","key":"b"}`:                                "rate_limit",
		`[]`:                                                   "rate_limit",
		`{"key":"` + strings.Repeat("k", 256) + `"}`:           "rate_limit.key",
	} {
		l := ojs.RateLimit{Key: "before"}
		err := json.Unmarshal([]byte(in), &l)
		var inv *ojs.InvalidError
		if !errors.As(err, &inv) || inv.Field != field || l.Key != "before" {
			t.Errorf("P1.5 %.60s: %v, want %s refused; %+v", in, err, field, l)
		}
	}
}

// L012: other forms of a rate.
func TestRateLimitForms(t *testing.T) {
	rate := func(key string, n int, per time.Duration) ojs.RateLimit {
		return ojs.RateLimit{Key: key, Rate: ojs.Rate{Limit: n, Per: per}}
	}
	for in, want := range map[string]ojs.RateLimit{
		`{"key":"k","max_per_second":5}`:          rate("k", 5, time.Second),
		`{"key":"k","rate":5,"period":"minute"}`:  rate("k", 5, time.Minute),
		`{"period":"hour","rate":5,"key":"k"}`:    rate("k", 5, time.Hour),
		`{"key":"k","rate":1,"period":"day"}`:     rate("k", 1, 24*time.Hour),
		`{"key":"k","limit":7,"period":"PT10S"}`:  rate("k", 7, 10*time.Second),
		`{"key":"k","limit":7,"period":"second"}`: rate("k", 7, time.Second),
		`{"max_per_second":5}`:                    rate("queue:mail", 5, time.Second),
		`{"max_per_second":5,"concurrency":2,"key":"k"}`: {
			Key: "k", Concurrency: 2, Rate: ojs.Rate{Limit: 5, Per: time.Second},
		},
	} {
		d, err := ojs.ParseDraft([]byte(`{"type":"x","rate_limit":` + in + `,"queue":"mail"}`))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		o := ojs.DefaultOptions()
		if o.Apply(d.Options()...); o.Validate() != nil || *o.RateLimit != want {
			t.Errorf("%s: %+v, %v", in, o.RateLimit, o.Validate())
		}
	}
	for in, field := range map[string]string{
		`{"key":"k","rate":5}`:                                              "rate_limit.rate",
		`{"key":"k","rate":0,"period":"minute"}`:                            "rate_limit.rate",
		`{"key":"k","rate":1.5,"period":"minute"}`:                          "rate_limit.rate",
		`{"key":"k","rate":5,"period":"week"}`:                              "rate_limit.period",
		`{"key":"k","rate":5,"period":"PT0S"}`:                              "rate_limit.period",
		`{"key":"k","period":"minute"}`:                                     "rate_limit.period",
		`{"key":"k","limit":5}`:                                             "rate_limit.limit",
		`{"key":"k","max_per_second":5,"period":"minute"}`:                  "rate_limit.period",
		`{"key":"k","max_per_second":5,"limit":5}`:                          "rate_limit.limit",
		`{"key":"k","max_per_second":-1}`:                                   "rate_limit.max_per_second",
		`{"key":"k","max_per_second":5,"rate":{"limit":1,"period":"PT1S"}}`: "rate_limit.rate",
		`{"rate":5,"period":"minute"}`:                                      "rate_limit.key",
	} {
		_, err := ojs.ParseDraft([]byte(`{"type":"x","rate_limit":` + in + `}`))
		var inv *ojs.InvalidError
		if !errors.As(err, &inv) || inv.Field != field {
			t.Errorf("%s: %v, want %s refused", in, err, field)
		}
	}
}

func TestRateLimitTravels(t *testing.T) {
	d, err := ojs.ParseDraft([]byte(`{"type":"x","rate_limit":{"key":"k","concurrency":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	o := ojs.DefaultOptions()
	o.Apply(d.Options()...)
	if want := (&ojs.RateLimit{Key: "k", Concurrency: 2}); !reflect.DeepEqual(o.RateLimit, want) {
		t.Errorf("%+v", o.RateLimit)
	}
	job := ojs.JobInfo{JobHeader: ojs.JobHeader{ID: jobID, Type: "x", Queue: "default"},
		State: ojs.StateActive, RateLimit: o.RateLimit, Progress: 0.5}
	raw, err := json.Marshal(job)
	var again ojs.JobInfo
	if err != nil || json.Unmarshal(raw, &again) != nil || again.Progress != 0.5 ||
		!reflect.DeepEqual(again.RateLimit, job.RateLimit) {
		t.Errorf("%s, %v: %+v", raw, err, again)
	}
	if c := job.Clone(); c.RateLimit == job.RateLimit {
		t.Error("a clone shares the limit")
	}
	if _, err := ojs.ParseDraft([]byte(`{"type":"x","rate_limit":{"key":"!"}}`)); !errors.Is(err,
		ojs.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if err := json.Unmarshal([]byte(strings.Replace(string(raw), "0.5", "1.5", 1)), &again); !errors.Is(err,
		ojs.ErrInvalid) {
		t.Errorf("progress 1.5: %v", err)
	}
}

func TestRateLimitKey(t *testing.T) {
	long := strings.Repeat("k", 250)
	seen := make(map[string]string)
	for _, tt := range []struct {
		text string
		want string // "": a hash
	}{
		{"user-7", "mail:user-7"},
		{"", "mail:"},
		{long, "mail:" + long},
		{"a@example.com", "mail::08168cd80dfd534ab0f10af10f1303fe00af2d43ab5c1432360d137f8197e17a"},
		{"b@example.com", ""},
		{long + "k", ""},
		{"größe", ""},
		{"a b", ""},
		{":a", ""},
		{":08168cd80dfd534ab0f10af10f1303fe00af2d43ab5c1432360d137f8197e17a", ""},
	} {
		t.Run("P1.6 "+tt.text[:min(len(tt.text), 20)], func(t *testing.T) {
			key := ojs.RateLimitKey("mail", tt.text)
			if tt.want != "" && key != tt.want || tt.want == "" && len(key) != len("mail::")+64 {
				t.Errorf("key %s, want %s", key, tt.want)
			}
			if _, err := apply(ojs.WithRateLimit(ojs.RateLimit{Key: key, Concurrency: 1})); err != nil {
				t.Error(err)
			}
			if other, twice := seen[key]; twice {
				t.Errorf("has the key of %q", other)
			}
			seen[key] = tt.text
		})
	}
}

func TestWithRateLimitBy(t *testing.T) {
	limit := func(key string) ojs.RateLimit { return ojs.RateLimit{Key: key, Concurrency: 1} }
	for _, tt := range []struct {
		member string
		l      ojs.RateLimit
		field  string // that is refused; "": none
	}{
		{"args.id", limit("mail"), ""},
		{"meta.tenant.größe", limit(strings.Repeat("k", 189)), ""},
		{"args.id", limit(strings.Repeat("k", 190)), "rate_limit.key"},
		{"args.id", limit("a:b"), "rate_limit.key"},
		{"args.id", limit(""), "rate_limit.key"},
		{"args.id", ojs.RateLimit{Key: "k"}, "rate_limit"},
		{"args", limit("k"), "rate_limit_by"},
		{"args.", limit("k"), "rate_limit_by"},
		{"args..id", limit("k"), "rate_limit_by"},
		{"id", limit("k"), "rate_limit_by"},
		{"result.id", limit("k"), "rate_limit_by"},
		{"args.\xff", limit("k"), "rate_limit_by"},
		{"", limit("k"), "rate_limit_by"},
	} {
		o := ojs.DefaultOptions()
		o.Apply(ojs.WithRateLimitBy(tt.member, tt.l))
		err := o.Validate()
		var inv *ojs.InvalidError
		if tt.field == "" && (err != nil || o.RateLimitBy != tt.member) ||
			tt.field != "" && (!errors.As(err, &inv) || inv.Field != tt.field) {
			t.Errorf("%q of %+v: %v, want %q refused", tt.member, tt.l, err, tt.field)
		}
	}
}
