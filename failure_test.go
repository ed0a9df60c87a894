package ojs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

func TestHandlerAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		f    func(error) error
		code ojs.Code
	}{
		"A086 Discard":    {ojs.Discard, "DISCARD"},
		"A087 DeadLetter": {ojs.DeadLetter, "DEAD_LETTER"},
		"A088 Permanent":  {ojs.Permanent, "FAIL"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tt.f(nil); err != nil {
				t.Errorf("of nil: %v", err)
			}
			err := tt.f(io.EOF)
			var e *ojs.Error
			if !errors.Is(err, io.EOF) || err.Error() != "EOF" || !errors.As(err, &e) || e.Code != tt.code {
				t.Errorf("%#v", err)
			}
		})
	}
	t.Run("reading 6 RetryAfter", func(t *testing.T) {
		for d, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, 0: 0,
			-time.Minute: 0} {
			if err := ojs.RetryAfter(d, nil); err != nil {
				t.Errorf("of nil: %v", err)
			}
			var e *ojs.RetryAfterError
			if err := ojs.RetryAfter(d, io.EOF); !errors.Is(err, io.EOF) || err.Error() != "EOF" ||
				!errors.As(err, &e) || e.After != want {
				t.Errorf("%#v", err)
			}
		}
	})
	t.Run("reading 6 Snooze", func(t *testing.T) {
		for d, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, 0: 0,
			-time.Minute: 0} {
			var e *ojs.SnoozeError
			if err := ojs.Snooze(d); !errors.As(err, &e) || e.For != want {
				t.Errorf("%#v", err)
			}
		}
	})
	t.Run("A072 Errorf", func(t *testing.T) {
		err := ojs.Errorf("a.b", "reading %s: %w", "x", io.EOF)
		var e *ojs.Error
		if !errors.Is(err, io.EOF) || !errors.As(err, &e) || e.Type != "a.b" || e.Code != "" ||
			err.Error() != "reading x: EOF" {
			t.Errorf("%#v", err)
		}
	})
	t.Run("A096 the codes", func(t *testing.T) {
		for c, want := range map[ojs.Code]bool{"RETRY": true, "DISCARD": true, "DEAD_LETTER": true,
			"FAIL": true, "": false, "retry": false, "ACK": false} {
			if c.Valid() != want {
				t.Errorf("%q is valid: %v", c, c.Valid())
			}
		}
	})
	t.Run("an incomplete error has a message and does not panic", func(t *testing.T) {
		for _, tt := range []struct {
			err interface {
				error
				Unwrap() error
			}
			want string
		}{
			{&ojs.Error{Type: "t", Message: "m", Err: io.EOF}, "m"},
			{&ojs.Error{Type: "t", Err: io.EOF}, "EOF"},
			{&ojs.Error{Type: "t"}, "t"},
			{&ojs.Error{}, "ojs: unspecified error"},
			{(*ojs.Error)(nil), "ojs: nil *Error"},
			{&ojs.RetryAfterError{}, "ojs: unspecified error"},
			{(*ojs.RetryAfterError)(nil), "ojs: nil *RetryAfterError"},
		} {
			if got := tt.err.Error(); got != tt.want {
				t.Errorf("%#v says %q, want %q", tt.err, got, tt.want)
			}
			if cause := tt.err.Unwrap(); cause != nil && cause != io.EOF {
				t.Errorf("%#v wraps %v", tt.err, cause)
			}
		}
	})
}

// A chain that leads back to itself has a message, too: without a bound it overflows the
// stack, which ends the process.
func TestErrorOfACycle(t *testing.T) {
	self := new(ojs.Error)
	self.Err = self
	typed := &ojs.Error{Type: "a.b"}
	typed.Err = &ojs.Error{Err: typed}
	named := &ojs.Error{Type: "a.b"}
	named.Err = &ojs.Error{Message: "m", Err: named}
	later := new(ojs.RetryAfterError)
	later.Err = &ojs.Error{Err: later}
	laterSelf := new(ojs.RetryAfterError)
	laterSelf.Err = laterSelf
	joined := &ojs.Error{Type: "a.b"}
	joined.Err = errors.Join(io.EOF, joined)
	laterJoined := new(ojs.RetryAfterError)
	laterJoined.Err = errors.Join(laterJoined)
	formatted := &ojs.Error{Type: "a.b"}
	formatted.Err = fmt.Errorf("x: %w", formatted)
	var long error = &ojs.Error{Message: "m"}
	for range 1_000_000 {
		long = &ojs.Error{Err: long}
	}
	short := error(&ojs.Error{Message: "m"})
	for range 10 {
		short = ojs.RetryAfter(time.Second, ojs.Discard(short))
	}
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"itself", self, "ojs: unspecified error"},
		{"two", typed, "a.b"},
		{"two, from the other", typed.Err, "a.b"},
		{"two, one with a message", named, "m"},
		{"RetryAfterError and Error", later, "ojs: unspecified error"},
		{"RetryAfterError itself", laterSelf, "ojs: unspecified error"},
		{"joined", joined, "a.b"},
		{"joined, from outside", ojs.Discard(joined), "EOF\na.b"},
		{"RetryAfterError joined", laterJoined, "ojs: unspecified error"},
		{"formatted", formatted, "a.b"},
		{"a million links", long, "ojs: unspecified error"},
		{"no cycle", short, "m"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.err.Error(); got != tt.want {
				t.Errorf("says %q, want %q", got, tt.want)
			}
		})
	}
}

func TestErrorJSON(t *testing.T) {
	t.Run("A094 A095 A096 A097 A098 the card_declined example", func(t *testing.T) {
		var e ojs.Error
		in := `{"type":"payment.card_declined","message":"Card was declined","code":"DISCARD","details":{}}`
		if err := json.Unmarshal([]byte(in), &e); err != nil || e.Type != "payment.card_declined" ||
			e.Code != ojs.CodeDiscard {
			t.Errorf("%+v, %v", e, err)
		}
	})
	t.Run("A096 every code", func(t *testing.T) {
		for _, code := range []ojs.Code{"RETRY", "DISCARD", "DEAD_LETTER", "FAIL"} {
			var e ojs.Error
			if err := json.Unmarshal([]byte(`{"type":"a","message":"m","code":"`+string(code)+
				`"}`), &e); err != nil || e.Code != code {
				t.Errorf("%+v, %v", e, err)
			}
		}
	})
	t.Run("A097 details as they are", func(t *testing.T) {
		var e ojs.Error
		want := map[string]any{"a": []any{1.0, nil}, "id": json.Number("9007199254740993")}
		const text = `{"type":"a","message":"m","details":{"a":[1,null],"id":9007199254740993}}`
		if err := json.Unmarshal([]byte(text), &e); err != nil || !reflect.DeepEqual(e.Details, want) {
			t.Errorf("%+v, %v", e, err)
		}
	})
	t.Run("L040 rate_limit_until beside the details or in them", func(t *testing.T) {
		const beside, in = `"rate_limit_until":"beside"`, `"details":{"rate_limit_until":"in"}`
		for members, want := range map[string]any{
			beside: "beside", in: "in", in + "," + beside: "in", beside + `,"details":{"a":1}`: "beside",
			`"rate_limit_until":5`: nil, `"rate_limit_until":null`: nil, `"code":"RETRY"`: nil,
		} {
			var e ojs.Error
			err := json.Unmarshal([]byte(`{"type":"t","message":"m",`+members+`}`), &e)
			if err != nil || e.Details["rate_limit_until"] != want {
				t.Errorf("%s: %v, %v", members, e.Details, err)
			}
		}
	})
	t.Run("A096 RETRY by default", func(t *testing.T) {
		var e ojs.Error
		if err := json.Unmarshal([]byte(`{"type":"a","message":"","details":null}`), &e); err != nil ||
			e.Code != ojs.CodeRetry {
			t.Errorf("%+v, %v", e, err)
		}
	})
	for name, in := range map[string]string{
		"A094 no type": `{"message":"m"}`, "A094 empty type": `{"type":"","message":"m"}`,
		"A095 no message":   `{"type":"t"}`,
		"A096 unknown code": `{"type":"t","message":"m","code":"MAYBE"}`,
		"A096 lower case":   `{"type":"t","message":"m","code":"retry"}`,
		"A096 empty code":   `{"type":"t","message":"m","code":""}`,
		"A095 message":      `{"type":"t","message":7}`,
		"A097 details":      `{"type":"t","message":"m","details":[1]}`, "no object": `"boom"`,
		"A094 type":                 `{"type":7,"message":"m"}`,
		"A094 type twice":           `{"type":"t","message":"m","type":"u"}`,
		"A096 code twice":           `{"type":"t","message":"m","code":"RETRY","code":"FAIL"}`,
		"A096 code in another case": `{"type":"t","message":"m","Code":"DISCARD"}`,
		"A094 type in another case": `{"TYPE":"t","message":"m"}`,
		"A095 null message":         `{"type":"t","message":null}`,
	} {
		t.Run(name, func(t *testing.T) {
			e := ojs.Error{Type: "before"}
			var invalid *ojs.InvalidError
			err := json.Unmarshal([]byte(in), &e)
			if !errors.As(err, &invalid) || invalid.Code != "validation.error_invalid" ||
				!strings.HasPrefix(invalid.Field, "error") {
				t.Errorf("error %v", err)
			}
			if !reflect.DeepEqual(e, ojs.Error{Type: "before"}) {
				t.Errorf("changed all the same: %+v", e)
			}
		})
	}
}

func TestFailureJSON(t *testing.T) {
	t.Run("A119 A120 the example round-trips", func(t *testing.T) {
		in := `{"attempt":2,"type":"external.api_timeout","message":"Request timed out","code":"RETRY","timestamp":"2026-02-12T10:31:05Z",` +
			`"details":{"endpoint":"/v1/charge","timeout_ms":30000}}`
		var f, again ojs.Failure
		if err := json.Unmarshal([]byte(in), &f); err != nil {
			t.Fatal(err)
		}
		want := ojs.Failure{Attempt: 2, At: time.Date(2026, 2, 12, 10, 31, 5, 0, time.UTC),
			Type: "external.api_timeout", Message: "Request timed out",
			Code: ojs.CodeRetry, Details: map[string]any{"endpoint": "/v1/charge", "timeout_ms": 30000.0}}
		if !reflect.DeepEqual(f, want) {
			t.Errorf("%+v", f)
		}
		out, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &again); err != nil || !reflect.DeepEqual(again, f) {
			t.Errorf("%s, %v", out, err)
		}
		var members map[string]any
		if err := json.Unmarshal(out, &members); err != nil ||
			members["occurred_at"] != members["timestamp"] || members["timestamp"] == nil {
			t.Errorf("reading 14: %s", out)
		}
	})
	t.Run("A119 every entry has details", func(t *testing.T) {
		for _, in := range []string{`{"attempt":1,"details":{}}`, `{"attempt":1,"details":null}`,
			`{"attempt":1}`} {
			var f ojs.Failure
			if err := json.Unmarshal([]byte(in), &f); err != nil {
				t.Fatal(err)
			}
			out, err := json.Marshal(f)
			var members map[string]json.RawMessage
			if err == nil {
				err = json.Unmarshal(out, &members)
			}
			if err != nil || string(members["details"]) != "{}" {
				t.Errorf("%s is written as %s, %v", in, out, err)
			}
		}
	})
	t.Run("a member that no version of ours knows is ignored", func(t *testing.T) {
		var f ojs.Failure
		var e ojs.Error
		in := []byte(`{"type":"t","message":"m","severity":["high"]}`)
		if err := errors.Join(json.Unmarshal(in, &f), json.Unmarshal(in, &e)); err != nil || f.Type != "t" ||
			e.Message != "m" {
			t.Errorf("%+v, %+v, %v", f, e, err)
		}
	})
	t.Run("reading 14 occurred_at alone", func(t *testing.T) {
		var f ojs.Failure
		err := json.Unmarshal([]byte(`{"occurred_at":"2026-02-12T11:31:05+01:00","details":null}`), &f)
		if err != nil || f.At.Hour() != 10 {
			t.Errorf("%+v, %v", f, err)
		}
	})
	t.Run("A119 everything comes back", func(t *testing.T) {
		for _, want := range []ojs.Failure{full(ojs.StateActive).Errors[0], {},
			{Attempt: 7, At: at.In(time.FixedZone("", 3600)).UTC()}} {
			var got ojs.Failure
			b, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s is %+v, %v; want %+v", b, got, err, want)
			}
		}
	})
	for name, tt := range map[string]struct{ in, field string }{
		"no object":               {`"boom"`, "error"},
		"A119 attempt":            {`{"attempt":"1"}`, "error.attempt"},
		"A119 negative attempt":   {`{"attempt":-1}`, "error.attempt"},
		"A119 attempt twice":      {`{"attempt":1,"attempt":2}`, "error"},
		"A119 type in upper case": {`{"Type":"t"}`, "error.Type"},
		"A119 type":               {`{"type":7}`, "error.type"},
		"backtrace":               {`{"backtrace":["a",7]}`, "error.backtrace"},
		"backtrace with a null":   {`{"backtrace":["a",null]}`, "error.backtrace"},
		"A119 timestamp":          {`{"timestamp":"yesterday"}`, "error.timestamp"},
		"reading 14 occurred_at": {`{"timestamp":"2026-02-12T10:31:05Z","occurred_at":7}`,
			"error.occurred_at"},
		"A119 details":             {`{"details":[1]}`, "error.details"},
		"A119 a number in details": {`{"details":{"n":1e999}}`, "error.details"},
	} {
		t.Run(name+" refused", func(t *testing.T) {
			f := ojs.Failure{Type: "before"}
			var invalid *ojs.InvalidError
			if err := json.Unmarshal([]byte(tt.in), &f); !errors.As(err, &invalid) ||
				invalid.Code != "validation.error_invalid" || invalid.Field != tt.field {
				t.Errorf("error %v", err)
			}
			if !reflect.DeepEqual(f, ojs.Failure{Type: "before"}) {
				t.Errorf("changed all the same: %+v", f)
			}
		})
	}
}
