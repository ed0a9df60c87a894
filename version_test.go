package ojs_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
)

func TestVersion(t *testing.T) {
	wire := func(members string) string {
		return `{"specversion":"1.0","type":"email.send","args":[],` + members + `}`
	}
	t.Run("V001 answered as sent", func(t *testing.T) {
		for sent, want := range map[string]string{`"2.1"`: "2.1", `"2.0"`: "2.0", `2`: "2", `0`: "0"} {
			var job ojs.JobInfo
			err := json.Unmarshal([]byte(wire(`"version":`+sent)), &job)
			if err != nil || job.TypeVersion != want {
				t.Errorf("%s: %q, %v", sent, job.TypeVersion, err)
			}
			raw, err := json.Marshal(job)
			if err != nil || !strings.Contains(string(raw), `"version":`+sent+`,`) {
				t.Errorf("%s: %s, %v", sent, raw, err)
			}
			d, err := ojs.ParseDraft([]byte(wire(`"version":` + sent)))
			if err != nil {
				t.Error(err)
			}
			var o ojs.Options
			if o.Apply(d.Options()...); o.TypeVersion != want {
				t.Errorf("draft of %s: %q", sent, o.TypeVersion)
			}
		}
	})
	t.Run("V001 others are refused", func(t *testing.T) {
		for _, bad := range []string{`"2"`, `"v2.0"`, `"2.01"`, `2.5`, `-1`, `true`, `[]`, `"2.0.0"`, `""`} {
			var job ojs.JobInfo
			if err := json.Unmarshal([]byte(wire(`"version":`+bad)), &job); err == nil {
				t.Errorf("%s is %q", bad, job.TypeVersion)
			}
			if _, err := ojs.ParseDraft([]byte(wire(`"version":` + bad))); err == nil {
				t.Errorf("a draft of %s", bad)
			}
		}
		for _, bad := range []string{"", "1.2.3", "01.0", "x"} {
			o := ojs.DefaultOptions()
			if o.Apply(ojs.WithVersion(bad)); o.Validate() == nil {
				t.Errorf("WithVersion(%q) is accepted", bad)
			}
		}
	})
	t.Run("V002 a suffix of the type, which the field overrides", func(t *testing.T) {
		for text, want := range map[string]string{
			`{"type":"a.b@2.0","args":[]}`:                 "2.0",
			`{"type":"a.b@2.0","version":"3.0","args":[]}`: "3.0",
			`{"version":"3.0","type":"a.b@2.0","args":[]}`: "3.0",
		} {
			var job ojs.JobInfo
			err := json.Unmarshal([]byte(text), &job)
			if err != nil || job.Type != "a.b" || job.TypeVersion != want {
				t.Errorf("%s: %q %q, %v", text, job.Type, job.TypeVersion, err)
			}
			d, err := ojs.ParseDraft([]byte(text))
			if err != nil || d.Type() != "a.b" {
				t.Errorf("%s: %q, %v", text, d.Type(), err)
			}
		}
		for _, bad := range []string{"a@", "a@x", "A@2.0", "@2.0", "a@2.0@3.0"} {
			var job ojs.JobInfo
			if err := json.Unmarshal([]byte(`{"type":"`+bad+`","args":[]}`), &job); err == nil {
				t.Errorf("%q is accepted", bad)
			}
		}
	})
	t.Run("V008 version is a dimension", func(t *testing.T) {
		var p ojs.UniquePolicy
		err := json.Unmarshal([]byte(`{"keys":["type","version"]}`), &p)
		if err != nil || p.Keys != ojs.ByType|ojs.ByVersion {
			t.Errorf("%v, %v", p.Keys, err)
		}
		for text, want := range map[string]ojs.UniqueKeys{
			`"version":"2.0","unique":{}`:                ojs.ByType | ojs.ByVersion,
			`"unique":{"keys":null},"version":"2.0"`:     ojs.ByType | ojs.ByVersion,
			`"unique":{"keys":["args"]},"version":"2.0"`: ojs.ByType | ojs.ByArgs,
			`"unique":{}`: ojs.ByType,
		} {
			var job ojs.JobInfo
			if err := json.Unmarshal([]byte(wire(text)), &job); err != nil || job.Unique.Keys != want {
				t.Errorf("%s: %+v, %v", text, job.Unique, err)
			}
		}
		if raw, err := json.Marshal(p); err != nil || !strings.Contains(string(raw), `["type","version"]`) {
			t.Errorf("%s, %v", raw, err)
		}
	})
}
