package ojs_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
)

// Attributes that only the system sets are not taken from a caller.
func TestParseDraft(t *testing.T) {
	j := full(ojs.StateDiscarded)
	b, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	d, err := ojs.ParseDraft(b)
	if err != nil {
		t.Fatal(err)
	}
	o := ojs.DefaultOptions()
	o.Apply(d.Options()...)
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	want := ojs.DefaultOptions()
	want.ID, want.Queue, want.Priority, want.Meta, want.Extra = jobID, "mail", -3, j.Meta, j.Extra
	ojs.WithTimeout(j.Timeout)(&want)
	want.TotalTimeout, want.EnqueueTTL, want.Lease, want.Retry = j.TotalTimeout, j.EnqueueTTL,
		j.Lease, j.Retry
	want.ScheduledAt, want.ExpiresAt, want.ResultTTL = j.ScheduledAt, j.ExpiresAt, j.ResultTTL
	if !reflect.DeepEqual(o, want) {
		t.Errorf("P0.1 system-managed attributes ignored, the others kept:\n got %+v\nwant %+v", o, want)
	}
	if args, ok := d.Args().(ojs.Args); !ok || d.Type() != "email.send" || !strings.Contains(args.String(),
		"9007199254740993") {
		t.Errorf("type %s, args %v", d.Type(), d.Args())
	}
	for bad, want := range map[string]string{
		``:                          `ojs: invalid envelope: is not JSON`,
		`{`:                         `ojs: invalid envelope: is not JSON`,
		`{"type":"x"} {}`:           `ojs: invalid envelope: is not JSON`,
		`null`:                      `ojs: invalid envelope: null is not an object`,
		`[]`:                        `ojs: invalid envelope: [] is not an object`,
		`{"state":"a","state":"b"}`: `ojs: invalid envelope: member "state" occurs twice`,
	} {
		if d, err := ojs.ParseDraft([]byte(bad)); err == nil || err.Error() != want ||
			!reflect.DeepEqual(d, ojs.Draft{}) {
			t.Errorf("%q: %v, want %s", bad, err, want)
		}
	}
	t.Run("P0.1 a caller sets no system-managed attribute, wherever it stands", func(t *testing.T) {
		options := make(map[string]json.RawMessage)
		in := `{"type":"x","x_kept":1`
		for name, value := range systemAttributes {
			in += `,"` + name + `":` + value
			options[name] = json.RawMessage(value)
		}
		inner, err := json.Marshal(options)
		if err != nil {
			t.Fatal(err)
		}
		d, err := ojs.ParseDraft([]byte(in + `,"options":` + string(inner) + `}`))
		if err != nil {
			t.Fatal(err)
		}
		got, want := ojs.DefaultOptions(), ojs.DefaultOptions()
		got.Apply(d.Options()...)
		// Unknown members of options are kept.
		if want.Extra = got.Extra; len(got.Extra) != 2 || string(got.Extra["x_kept"]) != "1" {
			t.Errorf("unknown attributes %s", got.Extra)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("options %+v", got)
		}
	})
	t.Run("P0.1 what a caller leaves out is left to the defaults", func(t *testing.T) {
		d, err := ojs.ParseDraft([]byte(`{"type":"x","queue":null,"retry":null,"options":{"priority":null}}`))
		if err != nil || len(d.Options()) != 0 || d.Defaults() != nil {
			t.Errorf("%d options, %v", len(d.Options()), err)
		}
	})
	t.Run("P0.1 an upper-case id", func(t *testing.T) {
		d, err := ojs.ParseDraft([]byte(`{"type":"x","id":"` + strings.ToUpper(jobID) + `"}`))
		var o ojs.Options
		if o.Apply(d.Options()...); err != nil || o.ID != jobID {
			t.Errorf("id %q, %v", o.ID, err)
		}
	})
	t.Run("P0.1 a wrong system-managed attribute is ignored, too", func(t *testing.T) {
		const text = `{"type":"x","state":7,"attempt":"many","errors":1,"created_at":"yesterday"}`
		if _, err := ojs.ParseDraft([]byte(text)); err != nil {
			t.Error(err)
		}
	})
	t.Run("an id that is no UUIDv7", func(t *testing.T) {
		_, err := ojs.ParseDraft([]byte(`{"type":"x","id":"9b2f5a6e-3f0a-4d3c-9d4e-1c2b3a4d5e6f"}`))
		if !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("error %v", err)
		}
	})
}

// Meta that takes part in a fingerprint has each name once, and texts that are Unicode
// (fingerprint, section 2). Other meta is taken as encoding/json reads it.
func TestParseDraftOfAmbiguousMeta(t *testing.T) {
	for _, meta := range []string{
		`{"k":{"a":1,"a":2}}`, `{"k":1,"k":2}`, `{"k":"\ud800"}`, `{"k":{"\udc00":1}}`,
	} {
		for unique, refused := range map[string]bool{
			`{"keys":["meta"],"meta_keys":["k"]}`: true,
			`{"keys":["args"],"meta_keys":["k"]}`: false,
			`{}`:                                  false,
		} {
			for _, at := range []string{`"meta":` + meta, `"options":{"meta":` + meta + `}`} {
				_, err := ojs.ParseDraft([]byte(`{"type":"x","args":[],"unique":` + unique + `,` + at + `}`))
				var invalid *ojs.InvalidError
				if errors.As(err, &invalid) != refused || refused && (invalid.Field != "meta" ||
					invalid.Code != ojs.InvalidCodeUnique) {
					t.Errorf("C026 unique by %s of %s: %v", unique, at, err)
				}
			}
		}
	}
}

// A draft with an unknown strategy is refused; a stored job with one is read.
func TestUnknownStrategy(t *testing.T) {
	const (
		unknown = `{"backoff_strategy":"acme:unknown"}`
		preset  = `{"max_attempts":3,"jitter":"full","backoff_strategy":"ojs:unknown"}`
	)
	with := func(member string) []byte { return []byte(`{"type":"x","args":[],` + member + `}`) }
	for name, in := range map[string][]byte{
		"retry":                with(`"retry":` + unknown),
		"an unknown preset":    with(`"retry":` + preset),
		"retry within options": with(`"options":{"retry":` + unknown + `}`),
	} {
		t.Run("A043 reading 46 refused by ParseDraft: "+name, func(t *testing.T) {
			d, err := ojs.ParseDraft(in)
			var invalid *ojs.InvalidError
			if !errors.As(err, &invalid) || invalid.Code != ojs.InvalidCodeRetry ||
				invalid.Field != "retry.backoff_strategy" ||
				!strings.HasSuffix(invalid.Reason, ` is not registered in this program`) ||
				!reflect.DeepEqual(d, ojs.Draft{}) {
				t.Errorf("%v, %v", d, err)
			}
		})
	}
	t.Run("reading 46 presets are known without package policy", func(t *testing.T) {
		for _, strategy := range []string{"ojs:asynq", "ojs:celery", "ojs:faktory", "ojs:graphile",
			"ojs:immediate", "ojs:oban", "ojs:ratchet", "ojs:river", "ojs:sidekiq"} {
			d, err := ojs.ParseDraft(with(`"retry":{"jitter":false,"backoff_strategy":"` + strategy + `"}`))
			if err != nil {
				t.Fatal(err)
			}
			o := ojs.DefaultOptions()
			o.Apply(d.Options()...)
			if err := o.Validate(); err != nil || o.Retry.BackoffStrategy != ojs.Backoff(strategy) ||
				o.Retry.Jitter != ojs.JitterOff {
				t.Errorf("%+v, %v", o.Retry, err)
			}
		}
	})
	t.Run("reading 46 a reader of jobs believes what is stored, and writes it back", func(t *testing.T) {
		j := full(ojs.StateRetryable)
		j.Retry = ojs.RetryPolicy{MaxAttempts: 9, Jitter: ojs.JitterFull, BackoffStrategy: "acme:unknown",
			NonRetryableErrors: []string{}}
		b, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		var got ojs.JobInfo
		if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got.Retry, j.Retry) {
			t.Errorf("%s: %+v, %v", b, got.Retry, err)
		}
	})
}
