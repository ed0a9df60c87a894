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

func TestErrors(t *testing.T) {
	last := &ojs.Failure{Type: "a.b", Message: "broke"}
	for _, tt := range []struct {
		err  error
		is   error
		says []string
	}{
		{&ojs.InvalidError{Code: "c", Field: "queue", Reason: "is odd"}, ojs.ErrInvalid, []string{"queue", "is odd"}},
		{&ojs.DuplicateError{ID: "7", State: "active"}, ojs.ErrDuplicate, []string{"7", "active"}},
		{&ojs.TransitionError{ID: "7", From: "completed", To: "active"}, ojs.ErrTransition, []string{"7", "completed", "active"}},
		{&ojs.EndedError{ID: "7", State: "cancelled"}, nil, []string{"7", "cancelled"}},
		{&ojs.EndedError{ID: "7", State: "discarded", DeadLettered: true, Last: last}, nil, []string{"7", "discarded", "dead-lettered", "a.b", "broke"}},
	} {
		wrapped := fmt.Errorf("x: %w", tt.err)
		if tt.is != nil && !errors.Is(wrapped, tt.is) {
			t.Errorf("%v is not %v", tt.err, tt.is)
		}
		for _, other := range []error{ojs.ErrInvalid, ojs.ErrDuplicate, ojs.ErrTransition, ojs.ErrNotFound} {
			if other != tt.is && errors.Is(wrapped, other) {
				t.Errorf("%v is %v", tt.err, other)
			}
		}
		for _, s := range append(tt.says, "ojs: ") {
			if !strings.Contains(tt.err.Error(), s) {
				t.Errorf("%q does not say %q", tt.err, s)
			}
		}
	}
	for _, err := range []error{ojs.ErrInvalid, ojs.ErrDuplicate, ojs.ErrTransition, ojs.ErrNotFound, ojs.ErrClosed, ojs.ErrUnsupported,
		ojs.ErrCancelled, ojs.ErrTimeout, ojs.ErrLeaseLost, ojs.ErrShutdown} {
		if !strings.HasPrefix(err.Error(), "ojs: ") {
			t.Errorf("message %q", err)
		}
	}
}

func TestHandlerErrors(t *testing.T) {
	for name, f := range map[string]func(error) error{
		"Discard": ojs.Discard, "DeadLetter": ojs.DeadLetter, "Permanent": ojs.Permanent,
		"RetryAfter": func(err error) error { return ojs.RetryAfter(time.Second, err) },
	} {
		if err := f(nil); err != nil {
			t.Errorf("%s(nil) is %v", name, err)
		}
		if err := f(io.EOF); !errors.Is(err, io.EOF) || err.Error() != "EOF" {
			t.Errorf("%s(EOF) is %v", name, err)
		}
	}
	err := ojs.Errorf("a.b", "reading %s: %w", "x", io.EOF)
	var e *ojs.Error
	if !errors.Is(err, io.EOF) || !errors.As(err, &e) || e.Type != "a.b" || err.Error() != "reading x: EOF" {
		t.Errorf("Errorf: %v", err)
	}
	for _, tt := range []struct {
		err  *ojs.Error
		want string
	}{
		{&ojs.Error{Type: "t", Message: "m", Err: io.EOF}, "m"}, {&ojs.Error{Type: "t", Err: io.EOF}, "EOF"}, {&ojs.Error{Type: "t"}, "t"},
		{&ojs.Error{}, "ojs: unspecified error"}, {nil, "ojs: nil *Error"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
		_ = tt.err.Unwrap()
	}
	var s *ojs.SnoozeError
	if !errors.As(ojs.Snooze(-time.Second), &s) || s.For != 0 || !strings.HasPrefix(s.Error(), "ojs: ") {
		t.Errorf("Snooze: %v", s)
	}
}

func TestErrorJSON(t *testing.T) {
	t.Run("A094 A095 A096 A097 A098 the card_declined example", func(t *testing.T) {
		var e ojs.Error
		in := `{"type":"payment.card_declined","message":"Card was declined","code":"DISCARD","details":{}}`
		if err := json.Unmarshal([]byte(in), &e); err != nil || e.Type != "payment.card_declined" || e.Code != ojs.CodeDiscard {
			t.Errorf("%+v, %v", e, err)
		}
	})
	t.Run("A096 RETRY by default", func(t *testing.T) {
		var e ojs.Error
		if err := json.Unmarshal([]byte(`{"type":"a","message":"","details":null}`), &e); err != nil || e.Code != ojs.CodeRetry {
			t.Errorf("%+v, %v", e, err)
		}
	})
	for name, in := range map[string]string{
		"A094 no type": `{"message":"m"}`, "A094 empty type": `{"type":"","message":"m"}`, "A095 no message": `{"type":"t"}`,
		"A096 unknown code": `{"type":"t","message":"m","code":"MAYBE"}`, "A096 lower case": `{"type":"t","message":"m","code":"retry"}`,
		"A097 details": `{"type":"t","message":"m","details":[1]}`, "no object": `"boom"`,
	} {
		t.Run(name, func(t *testing.T) {
			e := ojs.Error{Type: "before"}
			if err := json.Unmarshal([]byte(in), &e); !errors.Is(err, ojs.ErrInvalid) || e.Type != "before" {
				t.Errorf("%+v, %v", e, err)
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
		want := ojs.Failure{Attempt: 2, At: time.Date(2026, 2, 12, 10, 31, 5, 0, time.UTC), Type: "external.api_timeout", Message: "Request timed out",
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
		if err := json.Unmarshal(out, &members); err != nil || members["occurred_at"] != members["timestamp"] || members["timestamp"] == nil {
			t.Errorf("reading 14: %s", out)
		}
	})
	t.Run("reading 14 occurred_at alone", func(t *testing.T) {
		var f ojs.Failure
		if err := json.Unmarshal([]byte(`{"occurred_at":"2026-02-12T11:31:05+01:00","details":null}`), &f); err != nil || f.At.Hour() != 10 {
			t.Errorf("%+v, %v", f, err)
		}
	})
}
