package ojs_test

import (
	"encoding/json"
	"errors"
	"math"
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
			Meta: map[string]any{"trace_id": "t", "n": 1.0, "tags": []any{"a"},
				"big": json.Number("9007199254740993")},
			Errors: []ojs.Failure{{Attempt: 1, At: at, Type: "a.b", Message: "m", Code: ojs.CodeRetry,
				Reason:  ojs.ReasonHandlerError,
				Details: map[string]any{"k": "v"}, Backtrace: []string{"main.go:1"}}},
			CreatedAt: at, ScheduledAt: at.Add(time.Second),
		},
		Args: args, State: state, Retry: policy.Default(), Timeout: 90 * time.Second, TotalTimeout: time.Hour,
		EnqueueTTL: 30 * time.Minute, Lease: 1500 * time.Millisecond, ResultTTL: 36 * time.Hour,
		ExpiresAt: at.Add(time.Hour), EnqueuedAt: at, StartedAt: at,
		Error: &ojs.Failure{Attempt: 1, At: at, Type: "a.b", Message: "m"},
		Extra: map[string]json.RawMessage{"x_new": json.RawMessage(`{"deep":[1,2.50]}`),
			"schema": json.RawMessage(`"urn:x"`)},
		Dependencies: &ojs.Dependencies{Condition: ojs.AllEnded, Unfinished: 2, Failed: 1,
			Delay: 1500 * time.Millisecond, TTL: time.Hour},
	}
	j.Retry.NonRetryableErrors = []string{"auth.*"}
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
				"specversion": `"1.0"`, "id": `"` + jobID + `"`, "state": `"` + string(state) + `"`,
				"attempt": "2", "priority": "-3",
				"timeout": "90", "total_timeout": "3600", "visibility_timeout": "1.5", "result_ttl": "129600",
				"x_new": `{"deep":[1,2.50]}`,
				"dependencies": `{"condition":"all_ended","unfinished":2,"failed":1,` +
					`"delay":1.5,"ttl":3600}`,
				"created_at": `"2026-02-12T10:31:05.123456789Z"`,
				"args":       `[{"id":9007199254740993,"to":"a@b.c"}]`,
			} {
				if string(members[name]) != want {
					t.Errorf("%s is %s, want %s", name, members[name], want)
				}
			}
			for s, name := range map[ojs.State]string{"completed": "completed_at",
				"cancelled": "cancelled_at", "discarded": "discarded_at"} {
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
	t.Run("P0.10 an error names the field and the reason", func(t *testing.T) {
		for in, want := range map[string]string{
			`[]`:                              `ojs: invalid envelope: [] is not an object`,
			`{"type":"x","type":"y"}`:         `ojs: invalid envelope: member "type" occurs twice`,
			`{"type":"x","options":3}`:        `ojs: invalid options: 3 is not an object`,
			`{"type":"x","meta":{"a":1e999}}`: `ojs: invalid meta: number 1e999 is out of range`,
			`{"type":"x","meta":[1]}`:         `ojs: invalid meta: [1] is not an object`,
			`{"type":"x","timeout":"` + strings.Repeat("a", 100) + `"}`: `ojs: invalid timeout: "` +
				strings.Repeat("a", 63) + `... is not a number of seconds`,
			`{"type":"x","timeout":"` + strings.Repeat("a", 62) + `"}`: `ojs: invalid timeout: "` +
				strings.Repeat("a", 62) + `" is not a number of seconds`,
		} {
			if _, err := decode(in); err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
	t.Run("P0.1 empty meta is none", func(t *testing.T) {
		if j, err := decode(`{"type":"x","meta":{}}`); err != nil || j.Meta != nil {
			t.Errorf("%v, %v", j.Meta, err)
		}
	})
	t.Run("A157 integers, also those written as a fraction that is exact", func(t *testing.T) {
		for s, want := range map[string]int{
			"7": 7, "-7": -7, "7.0": 7, "7e2": 700, "9007199254740993": 9007199254740993,
			"9007199254740992.0": 1 << 53, "-9007199254740992.0": -1 << 53,
			"9007199254740993.0": 1<<53 + 1, "-9223372036854775808.0": math.MinInt64,
			"922337203685477580.7e1": math.MaxInt64, "-0": 0, "0.000": 0,
		} {
			if j, err := decode(`{"type":"x","priority":` + s + `}`); err != nil || j.Priority != want {
				t.Errorf("%s: %d, %v", s, j.Priority, err)
			}
		}
		for _, s := range []string{"7.5", "9223372036854775808.0", "-9223372036854775809.0", "1e30", "-1e30",
			"1e999", "99999999999999999999", `"7"`, "true", "[7]"} {
			if j, err := decode(`{"type":"x","priority":` + s + `}`); !errors.Is(err, ojs.ErrInvalid) {
				t.Errorf("%s: %d, %v", s, j.Priority, err)
			}
		}
	})
	t.Run("P1.4 result_ttl: seconds, 0 (not stored), -1 (forever)", func(t *testing.T) {
		for in, want := range map[string]time.Duration{
			"604800": 7 * 24 * time.Hour, "0.5": 500 * time.Millisecond, "0": ojs.NoResult,
			"-1": ojs.KeepForever, "-1.0": ojs.KeepForever, "null": 0,
		} {
			var job ojs.JobInfo
			if err := json.Unmarshal([]byte(`{"type":"x","result_ttl":`+in+`}`), &job); err != nil ||
				job.ResultTTL != want {
				t.Errorf("%s: %v, %v", in, job.ResultTTL, err)
			}
			draft, err := ojs.ParseDraft([]byte(`{"type":"x","options":{"result_ttl":` + in + `}}`))
			o := ojs.DefaultOptions()
			o.Apply(draft.Options()...)
			if err == nil {
				err = o.Validate()
			}
			if err != nil || o.ResultTTL != want {
				t.Errorf("draft %s: %v, %v", in, o.ResultTTL, err)
			}
			again, err := json.Marshal(job)
			var back ojs.JobInfo
			if err == nil {
				err = json.Unmarshal(again, &back)
			}
			if err != nil || back.ResultTTL != want {
				t.Errorf("%s becomes %s: %v", in, again, err)
			}
		}
		for _, bad := range []string{"-2", "-0.5", `"1"`, "true", "1e99"} {
			var invalid *ojs.InvalidError
			err := json.Unmarshal([]byte(`{"type":"x","result_ttl":`+bad+`}`), new(ojs.JobInfo))
			if !errors.As(err, &invalid) || invalid.Field != "result_ttl" {
				t.Errorf("%s: %v", bad, err)
			}
		}
	})
	t.Run("P0.5 seconds, whole or not", func(t *testing.T) {
		for s, want := range map[string]time.Duration{
			"1": time.Second, "0.000000001": 1, "1.5": 1500 * time.Millisecond, "1e3": 1000 * time.Second,
			"9223372036.854775807": 1<<63 - 1,
		} {
			j, err := decode(`{"type":"x","timeout":` + s + `}`)
			if err != nil || j.Timeout != want {
				t.Errorf("%s: %v, %v", s, j.Timeout, err)
			}
			b, err := json.Marshal(j)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := decode(string(b)); err != nil || again.Timeout != want {
				t.Errorf("%s comes back as %v, %v", b, again.Timeout, err)
			}
		}
	})
	t.Run("P0.1 an upper-case id", func(t *testing.T) {
		if j, err := decode(`{"type":"x","id":"` + strings.ToUpper(jobID) + `"}`); err != nil ||
			j.ID != jobID {
			t.Errorf("%s, %v", j.ID, err)
		}
	})
	t.Run("A013 A104 reading 19 options are hoisted", func(t *testing.T) {
		j, err := decode(`{"type":"x","options":{"queue":"q","priority":4,"retry":{"max_attempts":0},"delay_until":"2026-02-12T10:31:05+01:00","new":1,"state":"active"}}`)
		if err != nil || j.Queue != "q" || j.Priority != 4 || j.Retry.MaxAttempts != ojs.NoRetry ||
			j.MaxAttempts != 1 ||
			!j.ScheduledAt.Equal(time.Date(2026, 2, 12, 9, 31, 5, 0, time.UTC)) || j.State != "" {
			t.Errorf("%+v, %v", j, err)
		}
		var rest map[string]any
		if err := json.Unmarshal(j.Extra["options"], &rest); err != nil ||
			!reflect.DeepEqual(rest, map[string]any{"new": 1.0, "state": "active"}) {
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
		"P0.1 an id of no variant of RFC 9562's":  `{"type":"x","id":"019539a4-b68c-7def-c000-1a2b3c4d5e6f"}`,
		"P0.1 the nil id":                         `{"type":"x","id":"00000000-0000-0000-0000-000000000000"}`,
		"P0.4 a priority that float64 rounds":     `{"type":"x","priority":1.00000000000000000001}`,
		"P0.5 a timeout beyond all":               `{"type":"x","timeout":1e300}`,
		"A122 a bad policy":                       `{"type":"x","retry":{"max_attempts":-1}}`,
		"system-managed P0.2 no such state":       `{"type":"x","state":"dead"}`,
		"system-managed negative attempt":         `{"type":"x","attempt":-1}`,
		"system-managed errors no list":           `{"type":"x","errors":{}}`,
		"system-managed error's details":          `{"type":"x","error":{"details":[1]}}`,
		"system-managed created_at":               `{"type":"x","created_at":"2026-02-12"}`,
		"P0.1 specversion a number":               `{"specversion":1.0,"type":"x"}`,
		"P0.1 null type":                          `{"type":null}`,
		"P0.1 type of 256":                        `{"type":"` + strings.Repeat("a", 256) + `"}`,
		"P0.1 reading 56 queue of 129":            `{"type":"x","queue":"` + strings.Repeat("a", 129) + `"}`,
		"P0.1 empty queue":                        `{"type":"x","queue":""}`,
		"P0.1 args text":                          `{"type":"x","args":"[]"}`,
		"P0.1 args 1":                             `{"type":"x","args":1}`,
		"P0.5 a timeout just beyond all":          `{"type":"x","timeout":9.223372036854775808e9}`,
		"P0.5 timeout below a nanosecond":         `{"type":"x","timeout":1e-10}`,
		"a member twice":                          `{"type":"x","type":"y"}`,
		"no object":                               `[]`,
		"options no object":                       `{"type":"x","options":3}`,
	}
	for name, in := range bad {
		t.Run(name, func(t *testing.T) {
			j := ojs.JobInfo{State: ojs.StateActive}
			err := json.Unmarshal([]byte(in), &j)
			var invalid *ojs.InvalidError
			if !errors.As(err, &invalid) || invalid.Field == "" || invalid.Code == "" ||
				invalid.Reason == "" {
				t.Errorf("error %v", err)
			}
			if !reflect.DeepEqual(j, ojs.JobInfo{State: ojs.StateActive}) {
				t.Errorf("changed all the same: %+v", j)
			}
			_, err = ojs.ParseDraft([]byte(in))
			if system := strings.HasPrefix(name, "system-managed"); system != (err == nil) || !system &&
				!errors.As(err, &invalid) {
				t.Errorf("ParseDraft: %v", err)
			}
		})
	}
}

func FuzzEnvelopeJSON(f *testing.F) {
	for _, state := range ojs.AllStates() {
		b, err := json.Marshal(full(state))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"type":"x","errors":[{"timestamp":"9999-12-31T23:59:59-01:00"}],"created_at":"2026-02-12T10:31:05,5Z"}`))
	f.Add([]byte(`{"type":"x","options":{"delay_until":"2026-02-12T10:31:05+01:00","new":{"a":[1e5]}},"timeout":0.000000001,"result":null}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		_, draftErr := ojs.ParseDraft(in)
		if draftErr != nil && !errors.Is(draftErr, ojs.ErrInvalid) {
			t.Fatalf("ParseDraft: %v", draftErr)
		}
		if err := new(ojs.JobInfo).UnmarshalJSON(in); err == nil && !json.Valid(in) {
			t.Fatal("takes what is not JSON")
		}
		var j, again ojs.JobInfo
		if err := json.Unmarshal(in, &j); err != nil {
			if json.Valid(in) && !errors.Is(err, ojs.ErrInvalid) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if draftErr != nil && !strings.Contains(draftErr.Error(), "UUIDv7") {
			t.Fatalf("ParseDraft refuses what decodes: %v", draftErr)
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
