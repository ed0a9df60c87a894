package server_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage/memory"
)

// openAPI is the document that the server serves.
var openAPI = sync.OnceValue(func() (doc map[string]any) {
	srv, err := server.NewWithoutEngine(memory.New(), clock.New())
	if err != nil {
		panic(err)
	}
	w := httptest.NewRecorder()
	srv.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/ojs/v1/openapi.json", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		panic(err)
	}
	return doc
})

// checkAnswer holds an answer to the OpenAPI document: its path, its status and its
// schema.
func checkAnswer(method, path string, status int, body any) error {
	paths := openAPI()["paths"].(map[string]any)
	schema := map[string]any{"$ref": "#/components/schemas/Error"}
	if item := findPath(paths, path); item != nil {
		if method == "HEAD" {
			method = "GET"
		}
		operation, ok := item[strings.ToLower(method)].(map[string]any)
		if !ok && status < 400 {
			return fmt.Errorf("no %s", method)
		}
		if ok {
			answers := operation["responses"].(map[string]any)
			answer, ok := answers[fmt.Sprint(status)].(map[string]any)
			switch {
			case !ok && status < 400:
				if answers["2XX"] != nil {
					return nil
				}
				return fmt.Errorf("no status %d", status)
			case ok:
				content := answer["content"].(map[string]any)["application/openjobspec+json"]
				schema = content.(map[string]any)["schema"].(map[string]any)
			}
		}
	} else if status != 404 && status != 401 && status != 403 {
		return fmt.Errorf("no path")
	}
	return validate("body", schema, body)
}

// findPath finds the path of a request, the one with the fewest parameters.
func findPath(paths map[string]any, path string) (found map[string]any) {
	most := -1
	for template, item := range paths {
		a, b := strings.Split(template, "/"), strings.Split(path, "/")
		if len(a) != len(b) {
			continue
		}
		same := 0
		for i := range a {
			switch {
			case a[i] == b[i]:
				same++
			case !strings.HasPrefix(a[i], "{"):
				same = -1 << 20
			}
		}
		if same > most {
			most, found = same, item.(map[string]any)
		}
	}
	return found
}

// validate checks a value against the part of JSON schema that the document uses.
func validate(at string, schema map[string]any, v any) error {
	if name, ok := schema["$ref"].(string); ok {
		schemas := openAPI()["components"].(map[string]any)["schemas"].(map[string]any)
		target, ok := schemas[strings.TrimPrefix(name, "#/components/schemas/")].(map[string]any)
		if !ok {
			return fmt.Errorf("%s: no schema %s", at, name)
		}
		return validate(at, target, v)
	}
	if choices, ok := schema["anyOf"].([]any); ok {
		var last error
		for _, one := range choices {
			if last = validate(at, one.(map[string]any), v); last == nil {
				return nil
			}
		}
		return last
	}
	all, _ := schema["allOf"].([]any)
	for _, one := range all {
		if err := validate(at, one.(map[string]any), v); err != nil {
			return err
		}
	}
	if list, ok := schema["enum"].([]any); ok && !slices.Contains(list, v) {
		return fmt.Errorf("%s: %v is none of %v", at, v, list)
	}
	kinds := map[string]bool{"": true}
	switch v := v.(type) {
	case map[string]any:
		kinds["object"] = true
	case []any:
		kinds["array"] = true
	case string:
		kinds["string"] = true
	case bool:
		kinds["boolean"] = true
	case float64:
		kinds["number"], kinds["integer"] = true, v == math.Trunc(v)
	case nil:
		kinds["null"] = true
	}
	kind, _ := schema["type"].(string)
	if !kinds[kind] {
		return fmt.Errorf("%s: %v is no %s", at, v, kind)
	}
	if schema["format"] == "date-time" {
		if _, err := time.Parse(time.RFC3339, v.(string)); err != nil {
			return fmt.Errorf("%s: %v", at, err)
		}
	}
	if items, ok := schema["items"].(map[string]any); ok {
		for i, e := range v.([]any) {
			if err := validate(fmt.Sprintf("%s[%d]", at, i), items, e); err != nil {
				return err
			}
		}
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, there := object[name.(string)]; !there {
			return fmt.Errorf("%s: no %s", at, name)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, value := range object {
		known, ok := properties[name].(map[string]any)
		if !ok {
			switch other := schema["additionalProperties"].(type) {
			case bool:
				if !other {
					return fmt.Errorf("%s: %s is not described", at, name)
				}
				continue
			case map[string]any:
				known = other
			default:
				continue
			}
		}
		if err := validate(at+"."+name, known, value); err != nil {
			return err
		}
	}
	return nil
}

// The document has each schema that it names, and each that it has is named.
func TestOpenAPI(t *testing.T) {
	text, err := json.Marshal(openAPI())
	if err != nil {
		t.Fatal(err)
	}
	for name := range openAPI()["components"].(map[string]any)["schemas"].(map[string]any) {
		if !strings.Contains(string(text), `"#/components/schemas/`+name+`"`) {
			t.Errorf("no answer has the schema %s", name)
		}
	}
	seen := make(map[any]bool)
	for path, item := range openAPI()["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			o := operation.(map[string]any)
			if id := o["operationId"]; seen[id] {
				t.Errorf("%s %s: operationId %v is not the only one", method, path, id)
			} else {
				seen[id] = true
			}
		}
	}
	r := newRig(t)
	r.want("openapi", r.do("GET /openapi.json"), 200, "openapi", "3.1.0")
}
