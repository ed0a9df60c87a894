package ojs

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs/internal/bridge"
)

// failureJSON is one entry of "errors". The standard's documents call the time timestamp
// (OJS retry, section 10.1) and occurred_at (OJS errors, section 6.1): both are written,
// either is read.
type failureJSON struct {
	Attempt    int            `json:"attempt"`
	Type       string         `json:"type"`
	Message    string         `json:"message"`
	Code       Code           `json:"code,omitempty"`
	Reason     Reason         `json:"error_code,omitempty"`
	Timestamp  wireTime       `json:"timestamp,omitzero"`
	OccurredAt wireTime       `json:"occurred_at,omitzero"`
	Details    map[string]any `json:"details"` // {} if there are none: the standard wants them in each entry
	Backtrace  []string       `json:"backtrace,omitempty"`
}

// MarshalJSON encodes the standard's error object.
func (f Failure) MarshalJSON() ([]byte, error) {
	details := f.Details
	if details == nil {
		details = map[string]any{}
	}
	return json.Marshal(failureJSON{
		Attempt: f.Attempt, Type: f.Type, Message: f.Message, Code: f.Code, Reason: f.Reason,
		Timestamp: wireTime(f.At), OccurredAt: wireTime(f.At), Details: details, Backtrace: f.Backtrace,
	})
}

// UnmarshalJSON decodes the standard's error object. It refuses anything else with an
// *InvalidError and leaves f as it was. Unknown members are ignored, unless they differ
// from a known one only in case.
func (f *Failure) UnmarshalJSON(b []byte) error {
	var out Failure
	var occurred, timestamp time.Time
	err := decodeError(b, map[string]func(json.RawMessage) error{
		"attempt": func(v json.RawMessage) (err error) {
			if out.Attempt, err = decodeInt(v); err == nil && out.Attempt < 0 {
				err = fmt.Errorf("%d is negative", out.Attempt)
			}
			return err
		},
		"type":        func(v json.RawMessage) error { return decodeText(v, &out.Type) },
		"message":     func(v json.RawMessage) error { return decodeText(v, &out.Message) },
		"code":        func(v json.RawMessage) error { return decodeText(v, (*string)(&out.Code)) },
		"error_code":  func(v json.RawMessage) error { return decodeText(v, (*string)(&out.Reason)) },
		"timestamp":   func(v json.RawMessage) error { return (*wireTime)(&timestamp).decode(v) },
		"occurred_at": func(v json.RawMessage) error { return (*wireTime)(&occurred).decode(v) },
		"details":     func(v json.RawMessage) error { return decodeDetails(v, &out.Details) },
		"backtrace": func(v json.RawMessage) error {
			var frames []*string // pointers: a null entry is no string
			if json.Unmarshal(v, &frames) != nil || slices.Contains(frames, nil) {
				return fmt.Errorf("%s is not an array of strings", clip(v))
			}
			for _, frame := range frames {
				out.Backtrace = append(out.Backtrace, *frame)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	if out.At = timestamp; timestamp.IsZero() {
		out.At = occurred
	}
	*f = out
	return nil
}

// decodeError decodes the members of an error object that are known and not null.
func decodeError(b []byte, known map[string]func(json.RawMessage) error) error {
	bad := func(field, reason string) error {
		return &InvalidError{Code: InvalidCodeError, Field: field, Reason: reason}
	}
	members, err := decodeObject(b)
	if err != nil {
		return bad("error", err.Error())
	}
	for _, m := range members {
		decode := known[m.name]
		switch {
		case decode == nil && misspelt(m.name, known):
			return bad("error."+clip([]byte(m.name)), "is not in the case of its name")
		case decode == nil || isNull(m.value):
			continue
		}
		if err := decode(m.value); err != nil {
			return bad("error."+m.name, err.Error())
		}
	}
	return nil
}

func decodeText(v json.RawMessage, into *string) error {
	if json.Unmarshal(v, into) != nil {
		return fmt.Errorf("%s is not a string", clip(v))
	}
	return nil
}

func decodeDetails(v json.RawMessage, into *map[string]any) error {
	details, err := decodeMeta(v)
	if err != nil {
		return fmt.Errorf("%s is not an object", clip(v))
	}
	*into = details
	return nil
}

// MarshalJSON encodes the error object of a handler's answer. The default of the type is
// policy.ErrorTypeError, of the code CodeRetry.
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
		w.Type = "error"
	}
	if w.Code == "" {
		w.Code = CodeRetry
	}
	return json.Marshal(w)
}

// UnmarshalJSON decodes the error object that a handler in another language returns (OJS
// retry, section 7.3): type and message are required, code is one of the four and RETRY
// by default, details are any object. A text rate_limit_until joins the details, unless
// they have one (RateLimitedUntil). It refuses anything else with an *InvalidError
// and leaves e as it was. Other members are ignored, unless they differ from one of these
// only in case.
func (e *Error) UnmarshalJSON(b []byte) error {
	out := Error{Code: CodeRetry}
	message, until := false, ""
	err := decodeError(b, map[string]func(json.RawMessage) error{
		"type":    func(v json.RawMessage) error { return decodeText(v, &out.Type) },
		"message": func(v json.RawMessage) error { message = true; return decodeText(v, &out.Message) },
		"code": func(v json.RawMessage) error {
			if err := decodeText(v, (*string)(&out.Code)); err != nil || out.Code.Valid() {
				return err
			}
			return fmt.Errorf("%s is not one of RETRY, DISCARD, DEAD_LETTER, FAIL", clip(v))
		},
		"details": func(v json.RawMessage) error { return decodeDetails(v, &out.Details) },
		bridge.DetailRateLimitUntil: func(v json.RawMessage) error {
			_ = json.Unmarshal(v, &until) // what is no text blocks nothing, as in the details
			return nil
		},
	})
	if _, ok := out.Details[bridge.DetailRateLimitUntil]; until != "" && !ok {
		if out.Details == nil {
			out.Details = make(map[string]any, 1)
		}
		out.Details[bridge.DetailRateLimitUntil] = until
	}
	switch {
	case err != nil:
		return err
	case out.Type == "":
		return &InvalidError{Code: InvalidCodeError, Field: "error.type", Reason: "is missing"}
	case !message:
		return &InvalidError{Code: InvalidCodeError, Field: "error.message", Reason: "is missing"}
	}
	*e = out
	return nil
}
