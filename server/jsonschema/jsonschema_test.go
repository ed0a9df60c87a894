package jsonschema_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/server/jsonschema"
)

func TestCheck(t *testing.T) {
	schema := json.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
		"required":["to","items"],"additionalProperties":false,"properties":{
		"to":{"type":"string","pattern":"@"},
		"items":{"type":"array","prefixItems":[{"type":"integer"}],"items":{"$ref":"#/$defs/item"}}},
		"$defs":{"item":{"type":"object","required":["id"],"properties":{"id":{"enum":["a","b"]}}}}}`)
	s, err := jsonschema.New().Compile("https://example.org/mail", schema)
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string][]string{
		`{"to":"a@b","items":[1,{"id":"a"}]}`:         nil,
		`{"items":[]}`:                                {"$"},
		`{"to":7,"items":["x"]}`:                      {"$.items[0]", "$.to"},
		`{"to":"a@b","items":[1,{},{"id":"secret"}]}`: {"$.items[1]", "$.items[2].id"},
		`{"to":"secret","items":[],"secret":1}`:       {"$", "$.to"},
		`[]`:                                          {"$"},
	} {
		var got []string
		for _, f := range s.Check(json.RawMessage(value)) {
			got = append(got, f.Path)
			if f.Message == "" || !strings.HasPrefix(f.SchemaPath, "#/") {
				t.Errorf("F024 %s: %+v", value, f)
			}
			if strings.Contains(f.Message, "secret") && !strings.Contains(f.Message, "propert") {
				t.Errorf("F021 %s: the message quotes a value: %s", value, f.Message)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("F024 %s: %q, not %q", value, got, want)
		}
	}
}

func TestCompile(t *testing.T) {
	for _, schema := range []string{`{"type":"odd"}`, `{"properties":7}`, `7`, `{`,
		`{"$ref":"https://example.org/other"}`,
		`{"$ref":"file:///etc/passwd"}`, `{"pattern":"("}`} {
		if _, err := jsonschema.New().Compile("urn:x", json.RawMessage(schema)); err == nil {
			t.Errorf("F093: %s is taken", schema)
		}
	}
	if _, err := jsonschema.New().Compile("urn:x", json.RawMessage(`true`)); err != nil {
		t.Errorf("F093: %v", err)
	}
}

var _ server.SchemaCompiler = jsonschema.Compiler{}
