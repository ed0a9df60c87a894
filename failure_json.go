package ojs

import (
	"encoding/json"
	"fmt"
)

// failureJSON is one entry of "errors". The standard's documents call the time timestamp (OJS retry, section 10.1) and
// occurred_at (OJS errors, section 6.1): both are written, either is read.
type failureJSON struct {
	Attempt    int            `json:"attempt"`
	Type       string         `json:"type"`
	Message    string         `json:"message"`
	Code       Code           `json:"code,omitempty"`
	Reason     Reason         `json:"error_code,omitempty"`
	Timestamp  wireTime       `json:"timestamp,omitzero"`
	OccurredAt wireTime       `json:"occurred_at,omitzero"`
	Details    map[string]any `json:"details,omitempty"`
	Backtrace  []string       `json:"backtrace,omitempty"`
}

// MarshalJSON encodes the standard's error object.
func (f Failure) MarshalJSON() ([]byte, error) {
	return json.Marshal(failureJSON{
		Attempt: f.Attempt, Type: f.Type, Message: f.Message, Code: f.Code, Reason: f.Reason,
		Timestamp: wireTime(f.At), OccurredAt: wireTime(f.At), Details: f.Details, Backtrace: f.Backtrace,
	})
}

// UnmarshalJSON decodes the standard's error object. It refuses anything else with an *InvalidError and leaves f as it was.
func (f *Failure) UnmarshalJSON(b []byte) error {
	type object struct { // a name for encoding/json's errors
		failureJSON
		Timestamp  json.RawMessage `json:"timestamp"`
		OccurredAt json.RawMessage `json:"occurred_at"`
		Details    json.RawMessage `json:"details"`
	}
	var w object
	bad := func(field, reason string) error {
		return &InvalidError{Code: CodeErrorInvalid, Field: field, Reason: reason}
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return bad("error", err.Error())
	}
	if w.Attempt < 0 {
		return bad("error.attempt", fmt.Sprintf("%d is negative", w.Attempt))
	}
	out := Failure{
		Attempt: w.Attempt, Type: w.Type, Message: w.Message, Code: w.Code, Reason: w.Reason, Backtrace: w.Backtrace,
	}
	for _, m := range []member{{"occurred_at", w.OccurredAt}, {"timestamp", w.Timestamp}} { // of both, the latter
		if m.value == nil || isNull(m.value) {
			continue
		}
		if err := (*wireTime)(&out.At).decode(m.value); err != nil {
			return bad("error."+m.name, err.Error())
		}
	}
	if w.Details != nil && !isNull(w.Details) {
		details, err := decodeMeta(w.Details)
		if err != nil {
			return bad("error.details", clip(w.Details)+" is not an object")
		}
		out.Details = details
	}
	*f = out
	return nil
}

// MarshalJSON encodes the error object of a handler's answer. An error without a type has TypeError, one without a code
// CodeRetry.
func (e *Error) MarshalJSON() ([]byte, error) {
	if e == nil {
		return []byte("null"), nil
	}
	w := struct {
		Type    string         `json:"type"`
		Message string         `json:"message"`
		Code    Code           `json:"code"`
		Details map[string]any `json:"details,omitempty"`
	}{e.Type, e.Error(), e.Code, e.Details}
	if w.Type == "" {
		w.Type = TypeError
	}
	if w.Code == "" {
		w.Code = CodeRetry
	}
	return json.Marshal(w)
}

// UnmarshalJSON decodes the error object that a handler in another language returns (OJS retry, section 7.3): type and
// message are required, code is one of the four and RETRY by default, details are any object. It refuses anything else
// with an *InvalidError and leaves e as it was.
func (e *Error) UnmarshalJSON(b []byte) error {
	type object struct {
		Type    string          `json:"type"`
		Message *string         `json:"message"`
		Code    *Code           `json:"code"`
		Details json.RawMessage `json:"details"`
	}
	var w object
	bad := func(field, reason string) error {
		return &InvalidError{Code: CodeErrorInvalid, Field: field, Reason: reason}
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return bad("error", err.Error())
	}
	switch {
	case w.Type == "":
		return bad("error.type", "is missing")
	case w.Message == nil:
		return bad("error.message", "is missing")
	case w.Code != nil && !w.Code.Valid():
		return bad("error.code", fmt.Sprintf("%q is not one of RETRY, DISCARD, DEAD_LETTER, FAIL", *w.Code))
	}
	out := Error{Type: w.Type, Message: *w.Message, Code: CodeRetry}
	if w.Code != nil {
		out.Code = *w.Code
	}
	if w.Details != nil && !isNull(w.Details) {
		details, err := decodeMeta(w.Details)
		if err != nil {
			return bad("error.details", clip(w.Details)+" is not an object")
		}
		out.Details = details
	}
	*e = out
	return nil
}
