package ojs_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

var at = time.Date(2026, 2, 12, 10, 31, 5, 123456789, time.UTC)

const jobID = "019539a4-b68c-7def-8000-1a2b3c4d5e6f"

// full is a job with everything set.
func full(state ojs.State) ojs.JobInfo {
	args, err := ojs.NewArgs(map[string]any{"to": "a@b.c", "id": json.Number("9007199254740993")})
	if err != nil {
		panic(err)
	}
	j := ojs.JobInfo{
		JobHeader: ojs.JobHeader{
			ID: jobID, Type: "email.send", Queue: "mail", Priority: -3, Attempt: 2, MaxAttempts: 3,
			Meta: map[string]any{"trace_id": "t", "n": 1.0, "tags": []any{"a"}, "big": json.Number("9007199254740993")},
			Errors: []ojs.Failure{{Attempt: 1, At: at, Type: "a.b", Message: "m", Code: ojs.CodeRetry, Reason: ojs.ReasonHandlerError,
				Details: map[string]any{"k": "v"}, Backtrace: []string{"main.go:1"}}},
			CreatedAt: at, ScheduledAt: at.Add(time.Second),
		},
		Args: args, State: state, Retry: policy.Default(), Timeout: 90 * time.Second, TotalTimeout: time.Hour, Lease: 1500 * time.Millisecond,
		ExpiresAt: at.Add(time.Hour), EnqueuedAt: at, StartedAt: at,
		Error: &ojs.Failure{Attempt: 1, At: at, Type: "a.b", Message: "m"},
		Extra: map[string]json.RawMessage{"x_new": json.RawMessage(`{"deep":[1,2.50]}`), "schema": json.RawMessage(`"urn:x"`)},
	}
	switch state {
	case ojs.StateRetryable:
		j.NextRetryAt = at.Add(time.Minute)
	case ojs.StateCompleted:
		j.Error, j.Result = nil, json.RawMessage(`{"rows":3}`)
	case ojs.StateDiscarded:
		j.DeadLetteredAt = at.Add(time.Minute)
	}
	if state.Terminal() {
		j.FinishedAt = at.Add(time.Minute)
	}
	return j
}

func TestEnvelopeRoundTrip(t *testing.T) {
	for _, state := range ojs.AllStates() {
		t.Run("P0.1 "+string(state), func(t *testing.T) {
			in := full(state)
			b, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			var members map[string]json.RawMessage
			if err := json.Unmarshal(b, &members); err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{
				"specversion": `"1.0"`, "id": `"` + jobID + `"`, "state": `"` + string(state) + `"`, "attempt": "2", "priority": "-3",
				"timeout": "90", "total_timeout": "3600", "visibility_timeout": "1.5", "x_new": `{"deep":[1,2.50]}`,
				"created_at": `"2026-02-12T10:31:05.123456789Z"`, "args": `[{"id":9007199254740993,"to":"a@b.c"}]`,
			} {
				if string(members[name]) != want {
					t.Errorf("%s is %s, want %s", name, members[name], want)
				}
			}
			for s, name := range map[ojs.State]string{"completed": "completed_at", "cancelled": "cancelled_at", "discarded": "discarded_at"} {
				if _, has := members[name]; has != (s == state) {
					t.Errorf("%s is there: %v", name, has)
				}
			}
			if _, has := members["next_retry_at"]; has != (state == ojs.StateRetryable) {
				t.Errorf("A118: next_retry_at is there: %v", has)
			}
			var out ojs.JobInfo
			if err := json.Unmarshal(b, &out); err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := out.Args.Decode(&got); err != nil || got["to"] != "a@b.c" {
				t.Errorf("args %v, %v", got, err)
			}
			in.Args, out.Args = ojs.Args{}, ojs.Args{}
			if !reflect.DeepEqual(in, out) {
				t.Errorf("\n in %+v\nout %+v", in, out)
			}
		})
	}
}

func TestEnvelopeDecoding(t *testing.T) {
	decode := func(s string) (ojs.JobInfo, error) {
		var j ojs.JobInfo
		err := json.Unmarshal([]byte(s), &j)
		return j, err
	}
	t.Run("P0.1 the least", func(t *testing.T) {
		j, err := decode(`{"type":"x"}`)
		if err != nil || j.Queue != "default" || j.Type != "x" || j.Args.String() != "null" {
			t.Errorf("%+v, %v", j, err)
		}
	})
	t.Run("P0.1 null is absent", func(t *testing.T) {
		j, err := decode(`{"type":"x","queue":null,"args":null,"meta":null,"retry":null,"scheduled_at":null,"state":null,"x_other":null}`)
		if err != nil || j.Queue != "default" || len(j.Extra) != 0 {
			t.Errorf("%+v, %v", j, err)
		}
	})
	t.Run("P0.1 an upper-case id", func(t *testing.T) {
		if j, err := decode(`{"type":"x","id":"` + strings.ToUpper(jobID) + `"}`); err != nil || j.ID != jobID {
			t.Errorf("%s, %v", j.ID, err)
		}
	})
	t.Run("A013 A104 reading 19 options are hoisted", func(t *testing.T) {
		j, err := decode(`{"type":"x","options":{"queue":"q","priority":4,"retry":{"max_attempts":0},"delay_until":"2026-02-12T10:31:05+01:00","new":1,"state":"active"}}`)
		if err != nil || j.Queue != "q" || j.Priority != 4 || j.Retry.MaxAttempts != ojs.NoRetry || j.MaxAttempts != 1 ||
			!j.ScheduledAt.Equal(time.Date(2026, 2, 12, 9, 31, 5, 0, time.UTC)) || j.State != "" {
			t.Errorf("%+v, %v", j, err)
		}
		var rest map[string]any
		if err := json.Unmarshal(j.Extra["options"], &rest); err != nil || !reflect.DeepEqual(rest, map[string]any{"new": 1.0, "state": "active"}) {
			t.Errorf("the rest: %v, %v", rest, err)
		}
	})
	bad := map[string]string{
		"reading 19 set in both places":           `{"type":"x","queue":"a","options":{"queue":"b"}}`,
		"reading 19 the other order":              `{"type":"x","options":{"retry":{}},"retry":{}}`,
		"reading 19 scheduled_at and delay_until": `{"type":"x","scheduled_at":"2026-02-12T10:31:05Z","options":{"delay_until":"2026-02-12T10:31:05Z"}}`,
		"P0.1 specversion":                        `{"specversion":"2.0","type":"x"}`,
		"P0.1 no type":                            `{"args":[]}`,
		"P0.1 type name":                          `{"type":"Email Send"}`,
		"P0.1 queue name":                         `{"type":"x","queue":"Main"}`,
		"P0.1 args no array":                      `{"type":"x","args":{"a":1}}`,
		"P0.1 meta no object":                     `{"type":"x","meta":[1]}`,
		"P0.1 a meta number out of range":         `{"type":"x","meta":{"a":1e999}}`,
		"P0.1 time without a zone":                `{"type":"x","scheduled_at":"2026-02-12T10:31:05"}`,
		"P0.1 time as a number":                   `{"type":"x","scheduled_at":1770892265}`,
		"P0.1 id":                                 `{"type":"x","id":"7"}`,
		"P0.1 id in braces":                       `{"type":"x","id":"{` + jobID + `}"}`,
		"P0.1 priority":                           `{"type":"x","priority":"high"}`,
		"P0.1 fraction of a priority":             `{"type":"x","priority":1.5}`,
		"P0.5 timeout 0":                          `{"type":"x","timeout":0}`,
		"P0.5 negative timeout":                   `{"type":"x","timeout":-1}`,
		"P0.5 timeout as text":                    `{"type":"x","timeout":"PT1S"}`,
		"P0.5 a timeout beyond all":               `{"type":"x","timeout":1e300}`,
		"A122 a bad policy":                       `{"type":"x","retry":{"max_attempts":-1}}`,
		"P0.2 no such state":                      `{"type":"x","state":"dead"}`,
		"negative attempt":                        `{"type":"x","attempt":-1}`,
		"errors no list":                          `{"type":"x","errors":{}}`,
		"an error's details no object":            `{"type":"x","error":{"details":[1]}}`,
		"a member twice":                          `{"type":"x","type":"y"}`,
		"no object":                               `[]`,
		"options no object":                       `{"type":"x","options":3}`,
	}
	for name, in := range bad {
		t.Run(name, func(t *testing.T) {
			j := ojs.JobInfo{State: ojs.StateActive}
			err := json.Unmarshal([]byte(in), &j)
			var invalid *ojs.InvalidError
			if !errors.As(err, &invalid) || invalid.Field == "" || invalid.Code == "" || invalid.Reason == "" {
				t.Errorf("error %v", err)
			}
			if !reflect.DeepEqual(j, ojs.JobInfo{State: ojs.StateActive}) {
				t.Errorf("changed all the same: %+v", j)
			}
			if _, err := ojs.ParseDraft([]byte(in)); err == nil && !strings.Contains(name, "state") && !strings.Contains(name, "attempt") && !strings.Contains(name, "error") {
				t.Error("ParseDraft takes it")
			}
		})
	}
}

// Whatever only the system sets is not taken from a caller.
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
	want.Timeout, want.TotalTimeout, want.Lease, want.Retry = j.Timeout, j.TotalTimeout, j.Lease, j.Retry
	want.ScheduledAt, want.ExpiresAt = j.ScheduledAt, j.ExpiresAt
	if !reflect.DeepEqual(o, want) {
		t.Errorf("P0.1 system-managed attributes ignored, the others kept:\n got %+v\nwant %+v", o, want)
	}
	if args, ok := d.Args().(ojs.Args); !ok || d.Type() != "email.send" || !strings.Contains(args.String(), "9007199254740993") {
		t.Errorf("type %s, args %v", d.Type(), d.Args())
	}
	for _, bad := range []string{"", "{", "null", "[]", `{"type":"x"} {}`} {
		if _, err := ojs.ParseDraft([]byte(bad)); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	t.Run("P0.1 a wrong system-managed attribute is ignored, too", func(t *testing.T) {
		if _, err := ojs.ParseDraft([]byte(`{"type":"x","state":7,"attempt":"many","errors":1,"created_at":"yesterday"}`)); err != nil {
			t.Error(err)
		}
	})
	t.Run("an id that is no UUIDv7", func(t *testing.T) {
		if _, err := ojs.ParseDraft([]byte(`{"type":"x","id":"9b2f5a6e-3f0a-4d3c-9d4e-1c2b3a4d5e6f"}`)); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("error %v", err)
		}
	})
}

func FuzzEnvelopeJSON(f *testing.F) {
	for _, state := range ojs.AllStates() {
		b, err := json.Marshal(full(state))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"type":"x","options":{"delay_until":"2026-02-12T10:31:05+01:00","new":{"a":[1e5]}},"timeout":0.000000001,"result":null}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		_, draftErr := ojs.ParseDraft(in)
		if draftErr != nil && !errors.Is(draftErr, ojs.ErrInvalid) {
			t.Fatalf("ParseDraft: %v", draftErr)
		}
		var j, again ojs.JobInfo
		if err := json.Unmarshal(in, &j); err != nil {
			return
		}
		out, err := json.Marshal(j)
		if err != nil {
			t.Fatalf("%+v does not encode: %v", j, err)
		}
		if err := json.Unmarshal(out, &again); err != nil {
			t.Fatalf("%s does not decode: %v", out, err)
		}
		second, err := json.Marshal(again)
		if err != nil || string(second) != string(out) {
			t.Fatalf("not stable:\n%s\n%s\n%v", out, second, err)
		}
	})
}

func TestDecodeArgsOfAJob(t *testing.T) {
	greet := ojs.Define[string]("greet")
	var j ojs.JobInfo
	if err := json.Unmarshal([]byte(`{"type":"greet","args":["world"]}`), &j); err != nil {
		t.Fatal(err)
	}
	if got, err := greet.Decode(&j); err != nil || got != "world" {
		t.Errorf("%q, %v", got, err)
	}
	j.Type = "other"
	if _, err := greet.Decode(&j); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("another type: %v", err)
	}
	if err := j.DecodeResult(new(int)); err == nil {
		t.Error("a result from nowhere")
	}
}

func TestCloneSharesNothing(t *testing.T) {
	for _, state := range ojs.AllStates() {
		j, want := full(state), full(state)
		c := j.Clone()
		if !reflect.DeepEqual(*c, want) {
			t.Fatalf("%+v", c)
		}
		c.Meta["tags"].([]any)[0] = "changed"
		c.Meta["new"] = 1
		c.Errors[0].Details["k"] = "changed"
		c.Errors[0].Backtrace[0] = "changed"
		c.Extra["x_new"][0] = 'x'
		c.Extra["more"] = nil
		if c.Error != nil {
			c.Error.Message = "changed"
		}
		if c.Result != nil {
			c.Result[0] = 'x'
		}
		if !reflect.DeepEqual(j, want) {
			t.Errorf("%s: the original has changed: %+v", state, j)
		}
	}
}
