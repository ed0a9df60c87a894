package ojs_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
)

// clientAttributes are the attributes that a client may set, with a value, and whether
// "options" may hold them.
var clientAttributes = map[string]struct {
	value     string
	inOptions bool
}{
	"id": {`"` + jobID + `"`, false}, "type": {`"y"`, false}, "args": {`[1]`, false},
	"queue": {`"q"`, true}, "meta": {`{"a":1}`, true}, "priority": {`7`, true}, "timeout": {`7`, true},
	"total_timeout":      {`7`, true},
	"visibility_timeout": {`7`, true}, "retry": {`{"max_attempts":7}`, true},
	"scheduled_at": {`"2026-02-12T10:31:05Z"`, true},
	"expires_at":   {`"2026-02-12T10:31:05Z"`, true}, "result_ttl": {`7`, true}, "enqueue_ttl": {`7`, true},
}

// systemAttributes are the attributes that only the system sets, with a value.
var systemAttributes = map[string]string{
	"state": `"discarded"`, "attempt": `7`, "created_at": `"2026-02-12T10:31:05Z"`,
	"enqueued_at": `"2026-02-12T10:31:05Z"`,
	"started_at":  `"2026-02-12T10:31:05Z"`, "next_retry_at": `"2026-02-12T10:31:05Z"`,
	"completed_at": `"2026-02-12T10:31:05Z"`,
	"cancelled_at": `"2026-02-12T10:31:05Z"`, "discarded_at": `"2026-02-12T10:31:05Z"`,
	"dead_lettered_at": `"2026-02-12T10:31:05Z"`,
	"error":            `{"type":"t","message":"m"}`, "errors": `[{"type":"t","message":"m"}]`, "result": `7`,
}

func TestEnvelopeAttributes(t *testing.T) {
	decode := func(t *testing.T, s string) (j ojs.JobInfo) {
		t.Helper()
		if err := json.Unmarshal([]byte(s), &j); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		return j
	}
	bare := decode(t, `{"type":"x"}`)
	for name, attr := range clientAttributes {
		typ := `"type":"x",`
		if name == "type" {
			typ = ""
		}
		top := `{` + typ + `"` + name + `":` + attr.value + `}`
		t.Run("P0.1 set "+name, func(t *testing.T) {
			if j := decode(t, top); reflect.DeepEqual(j, bare) || j.Extra != nil {
				t.Errorf("%s is not taken: %+v", name, j)
			}
		})
		if name != "type" {
			t.Run("P0.1 null is absent: "+name, func(t *testing.T) {
				if j := decode(t, `{"type":"x","`+name+`":null,"options":{"`+name+`":null}}`); name != "id" &&
					name != "args" && !reflect.DeepEqual(j, bare) {
					t.Errorf("%+v", j)
				}
			})
		}
		if !attr.inOptions {
			t.Run("reading 19 not in options: "+name, func(t *testing.T) {
				j := decode(t, `{"type":"x","options":{"`+name+`":`+attr.value+`}}`)
				if string(j.Extra["options"]) != `{"`+name+`":`+attr.value+`}` {
					t.Errorf("options left over: %s", j.Extra["options"])
				}
				if j.Extra = nil; !reflect.DeepEqual(j, bare) {
					t.Errorf("%+v", j)
				}
			})
			continue
		}
		t.Run("reading 19 in options: "+name, func(t *testing.T) {
			in := `{"type":"x","options":{"` + name + `":` + attr.value + `}}`
			if j := decode(t, in); !reflect.DeepEqual(j, decode(t, top)) {
				t.Errorf("%+v", j)
			}
		})
		t.Run("reading 19 not in both places: "+name, func(t *testing.T) {
			for _, in := range []string{
				`{"type":"x","` + name + `":` + attr.value + `,"options":{"` + name + `":` +
					attr.value + `}}`,
				`{"type":"x","options":{"` + name + `":` + attr.value + `},"` + name + `":` +
					attr.value + `}`,
			} {
				var invalid *ojs.InvalidError
				if err := json.Unmarshal([]byte(in), new(ojs.JobInfo)); !errors.As(err, &invalid) ||
					invalid.Field != name {
					t.Errorf("error %v", err)
				}
				if _, err := ojs.ParseDraft([]byte(in)); !errors.As(err, &invalid) || invalid.Field != name {
					t.Errorf("error %v", err)
				}
			}
		})
	}
	for name, value := range systemAttributes {
		t.Run("P0.1 believed of a stored job: "+name, func(t *testing.T) {
			in := `{"type":"x","` + name + `":` + value + `}`
			if s, is := strings.CutSuffix(name, "_at"); is && ojs.State(s).Terminal() {
				in = `{"type":"x","state":"` + s + `","` + name + `":` + value + `}`
				if decode(t, in).FinishedAt.IsZero() {
					t.Error("not finished")
				}
			}
			if j := decode(t, in); reflect.DeepEqual(j, bare) || j.Extra != nil {
				t.Errorf("%+v", j)
			}
		})
		t.Run("P0.1 null is absent: "+name, func(t *testing.T) {
			j := decode(t, `{"type":"x","`+name+`":null}`)
			if name == "result" { // null is a result like any other
				if string(j.Result) != "null" {
					t.Errorf("result %s", j.Result)
				}
				j.Result = nil
			}
			if !reflect.DeepEqual(j, bare) {
				t.Errorf("%+v", j)
			}
		})
	}
	t.Run("P0.1 unknown attributes are kept byte for byte", func(t *testing.T) {
		unknown := map[string]string{
			"x.unique": `{ "keys" : ["type"] }`, "x": `"\u0041\/<&>"`, "Type": `1.50`,
			"workflow_id": `18446744073709551617`, "": `[ 1e5 , -0 ]`,
		}
		in := `{"type":"x"`
		for name, value := range unknown {
			in += `,"` + name + `":` + value
		}
		j := decode(t, in+`}`)
		if len(j.Extra) != len(unknown) {
			t.Errorf("extra %s", j.Extra)
		}
		for name, value := range unknown {
			if string(j.Extra[name]) != value {
				t.Errorf("%q is %s, was %s", name, j.Extra[name], value)
			}
		}
		b, err := j.MarshalJSON() // json.Marshal would compact
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range unknown {
			if !strings.Contains(string(b), `"`+name+`":`+value) {
				t.Errorf("%s is not in %s", value, b)
			}
		}
	})
	t.Run("P0.1 what is no JSON does not encode", func(t *testing.T) {
		for _, j := range []ojs.JobInfo{
			{Result: json.RawMessage("{")},
			{Result: json.RawMessage("{"), Extra: map[string]json.RawMessage{"x": json.RawMessage("1")}},
			{Extra: map[string]json.RawMessage{"x": json.RawMessage("{")}},
			{Extra: map[string]json.RawMessage{"x": nil}},
			{Retry: ojs.RetryPolicy{Jitter: "maybe"}},
		} {
			if b, err := json.Marshal(j); err == nil {
				t.Errorf("%+v encodes to %s", j, b)
			}
		}
	})
	t.Run("P0.1 an unknown attribute replaces no known one", func(t *testing.T) {
		j := bare
		j.Extra = map[string]json.RawMessage{"state": json.RawMessage(`"active"`),
			"specversion": json.RawMessage(`"9"`), "type": json.RawMessage(`"y"`)}
		want, err := json.Marshal(bare)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := json.Marshal(j); err != nil || string(b) != string(want) {
			t.Errorf("%s, %v, want %s", b, err, want)
		}
	})
}

// Attributes that only the system sets are not taken from a caller.
