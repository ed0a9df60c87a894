package ojs_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
)

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
	j.ID, j.Result = "7", json.RawMessage(`"many"`)
	var wrong *json.UnmarshalTypeError
	if err := j.DecodeResult(new(int)); !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(),
		"ojs: result of job 7: decoding into *int: ") {
		t.Errorf("a result of another type: %v", err)
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
		c.Retry.NonRetryableErrors[0] = "changed"
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
