package ojs_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/jsonvalue"
)

func TestParseDraftLimits(t *testing.T) {
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, tt := range map[string]struct {
		in    string
		field string
	}{
		"at the size": {`{"type":"x","args":["` + strings.Repeat("x", jsonvalue.MaxEnvelope-24) + `"]}`, ""},
		"over it": {`{"type":"x","args":["` + strings.Repeat("x", jsonvalue.MaxEnvelope-23) + `"]}`,
			"envelope"},
		"at the depth": {`{"type":"x","args":[` + nest(jsonvalue.MaxDepth) + `]}`, ""},
		"too deep":     {`{"type":"x","args":[` + nest(jsonvalue.MaxDepth+1) + `]}`, "envelope"},
		"far too deep": {`{"type":"x","args":` + nest(100_000) + `}`, "envelope"},
	} {
		_, err := ojs.ParseDraft([]byte(tt.in))
		var inv *ojs.InvalidError
		if tt.field == "" && err != nil || tt.field != "" &&
			(!errors.As(err, &inv) || inv.Field != tt.field) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestErrorJSONRoundTrip(t *testing.T) {
	for _, e := range []*ojs.Error{
		{Type: "a.b", Message: "m", Code: ojs.CodeDiscard, Details: map[string]any{"k": 1.0}},
		{Type: "a", Message: "", Code: ojs.CodeRetry},
	} {
		raw, err := json.Marshal(e)
		var again ojs.Error
		if err == nil {
			err = json.Unmarshal(raw, &again)
		}
		want := *e
		want.Message = e.Error()
		if err != nil || !reflect.DeepEqual(again, want) {
			t.Errorf("A 7.3: %s, %v: %+v", raw, err, again)
		}
	}
	raw, err := json.Marshal(&ojs.Error{Err: errors.New("cause")})
	if err != nil || string(raw) != `{"type":"error","message":"cause","code":"RETRY"}` {
		t.Errorf("%s, %v", raw, err)
	}
	if raw, err := json.Marshal((*ojs.Error)(nil)); err != nil || string(raw) != "null" {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestHistoryThatIsNoneIsRefused(t *testing.T) {
	for _, errs := range []string{`[null]`, `[{"attempt":-1,"type":"a","message":"b"}]`, `7`} {
		var job ojs.JobInfo
		if err := json.Unmarshal([]byte(`{"type":"x","errors":`+errs+`}`), &job); !errors.Is(err,
			ojs.ErrInvalid) {
			t.Errorf("errors %s: %v", errs, err)
		}
	}
}
