package server

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// The splitter of bodies agrees with encoding/json on the members of every object, and
// refuses everything else.
func FuzzParseBody(f *testing.F) {
	for _, s := range []string{`{}`, ` {"a":1, "b":[{"c":"}"}],"d":"\"" } `, `{"a":1,"a":2}`, `[1]`, `{"a":}`,
		`{"\u0061":null}`,
		`{"a":-1.5e3,"b":true,"c":{"d":[]}}`, "", "{", `{"a":"\ud800"}`, `{"":{"":{}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseBody(b, 40)
		var want map[string]json.RawMessage
		valid := json.Unmarshal(b, &want) == nil && want != nil
		if err != nil {
			if _, ok := err.(*refusal); !ok {
				t.Fatalf("the error %v is no refusal", err)
			}
			return
		}
		if !valid || len(want) != len(got) {
			t.Fatalf("%q: %d members, want %d", b, len(got), len(want))
		}
		for _, m := range got {
			var x, y any
			if json.Unmarshal(m.value, &x) != nil || json.Unmarshal(want[m.name], &y) != nil ||
				!reflect.DeepEqual(x, y) {
				t.Fatalf("%q: %s is %s, want %s", b, m.name, m.value, want[m.name])
			}
			if m.value[0] == '[' {
				elements(m.value)
			}
			var compacted bytes.Buffer
			if _ = json.Compact(&compacted, m.value); string(compact(m.value)) != compacted.String() {
				t.Fatalf("%q is compacted to %q, want %q", m.value, compact(m.value), &compacted)
			}
		}
	})
}

// No body of a job makes draftOf panic, or fail otherwise than by a refusal of the
// request.
func FuzzDraft(f *testing.F) {
	for _, s := range []string{`{"type":"a","args":[]}`,
		`{"type":"a@2.0","args":[{"k":1}],"options":{"retry":{"backoff":"linear"},
		"unique":{"key":["k"],"period_ms":5},"rate_limit":{"max_per_second":1},"scheduled_at":"+PT1S","tags":["x"]}}`,
		`{"type":"a","args":[],"timeout":"PT1S","meta":{"tags":1},"options":{"metadata":{}}}`} {
		f.Add([]byte(s))
	}
	s := &Server{conf: defaults()}
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := parseBody(b, 40)
		if err != nil {
			return
		}
		_, _, err = s.draftOf(&input{object: body})
		if err == nil {
			return
		}
		if r := new(call).refusalOf(err); r.status >= 500 {
			t.Fatalf("%q: %v", b, err)
		}
	})
}

// No error of a worker makes errorOf panic.
func FuzzFailure(f *testing.F) {
	f.Add([]byte(`{"message":"m","code":"E","details":{"error_class":"x"},"retryable":false,"rate_limit_until":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := parseBody(b, 40)
		if err != nil {
			return
		}
		e, err := errorOf(&input{object: body}, defaultRetry)
		if (e == nil) == (err == nil) {
			t.Fatalf("%q: %v, %v", b, e, err)
		}
	})
}
