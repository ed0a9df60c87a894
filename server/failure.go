package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/policy"
)

// codeHandler is the code of a failure for which the worker gave none (F073).
const codeHandler = "handler_error"

// Details of a failure in which the server keeps what of the worker's error has no field
// in ojs.Failure. No answer has them among the details.
const (
	detailCode  = "ojs:code"      // error.code
	detailFinal = "ojs:final"     // error.retryable was false
	detailTrace = "ojs:backtrace" // error.backtrace
)

// A worker's backtrace is cut after so many frames, and so many bytes (P0.10).
const (
	maxFrames = 50
	maxTrace  = 10_000
)

// appendFailure writes the error of a job, or an element of its errors (F074).
func appendFailure(b []byte, f *ojs.Failure, inList bool) []byte {
	code, _ := f.Details[detailCode].(string)
	kind := f.Type
	if code == "" {
		code = kind
	}
	if code == "" || code == policy.ErrorTypeError {
		code = codeHandler
	}
	if kind == "" {
		kind = code
	}
	final, _ := f.Details[detailFinal].(bool)
	retryable := !final && f.Code != ojs.CodeDiscard && f.Code != ojs.CodeFail &&
		f.Code != ojs.CodeDeadLetter &&
		f.Reason != ojs.ReasonNonRetryable && f.Reason != ojs.ReasonExpired
	o := obj{"code", code, "type", kind, "message", f.Message, "retryable", retryable}
	details, trace := f.Details, f.Details[detailTrace]
	if details[detailCode] != nil || details[detailFinal] != nil || trace != nil {
		details = maps.Clone(details)
		delete(details, detailCode)
		delete(details, detailFinal)
		delete(details, detailTrace)
	}
	if inList {
		o = append(o, "attempt", f.Attempt, "occurred_at", f.At, "timestamp", f.At)
		o = o.opt("error_code", string(f.Reason))
		if details == nil {
			details = map[string]any{}
		}
	}
	if details != nil && (inList || len(details) > 0) {
		o = append(o, "details", raw(marshal(details)))
	}
	if trace == nil && len(f.Backtrace) > 0 {
		trace = f.Backtrace
	}
	if trace != nil {
		o = append(o, "backtrace", trace)
	}
	return appendValue(b, o)
}

// errorOf makes the error of a failed attempt of what a worker has sent (F072, F073).
func errorOf(in *input, retry ojs.RetryPolicy) (*ojs.Error, error) {
	e := &ojs.Error{Message: "the worker gave no message"}
	if len(in.object) == 0 {
		e.Type = codeHandler
		return e, nil
	}
	in.require("message")
	e.Message = in.text("message")
	code, kind := in.text("code"), in.text("type")
	details := in.get("details")
	until := in.get(bridge.DetailRateLimitUntil)
	final := in.has("retryable") && !in.flag("retryable")
	if details != nil && details[0] != '{' {
		in.fail("details", "is not an object", "object")
	}
	if in.err != nil {
		return nil, in.err
	}
	if details != nil {
		_ = json.Unmarshal(details, &e.Details) // it is an object
	}
	keep := func(name string, v any) {
		if e.Details == nil {
			e.Details = make(map[string]any)
		}
		e.Details[name] = v
	}
	if final = final && in.get("retryable") != nil; final {
		e.Code = ojs.CodeFail
		if retry.OnExhaustion == ojs.ExhaustionDeadLetter {
			e.Code = ojs.CodeDeadLetter
		}
		keep(detailFinal, true)
	}
	if c := ojs.Code(code); c.Valid() {
		if e.Code = c; c == ojs.CodeRetry { // which wins over retryable, as over the policy's list
			delete(e.Details, detailFinal)
		}
	}
	e.Type = kind
	if class, _ := e.Details["error_class"].(string); e.Type == "" {
		e.Type = class
	}
	if code == "" {
		code = codeHandler
	}
	if e.Type == "" {
		e.Type = code
	}
	if code != e.Type {
		keep(detailCode, code)
	}
	if trace := backtraceOf(in.get("backtrace")); len(trace) > 0 {
		keep(detailTrace, trace)
	}
	var text string
	if until != nil && e.Details[bridge.DetailRateLimitUntil] == nil && decodeText(until, &text) {
		keep(bridge.DetailRateLimitUntil, text)
	}
	// The engine refuses details that are too large as a whole: the worker's are left out
	// before. An escaped byte has six.
	if len(details) > jsonvalue.MaxDetails/8 && len(marshal(e.Details)) > jsonvalue.MaxDetails {
		maps.DeleteFunc(e.Details, func(name string, _ any) bool {
			return !strings.HasPrefix(name, "ojs:") && name != bridge.DetailRateLimitUntil
		})
		keep("details_error", fmt.Sprintf("more than %d bytes of JSON", jsonvalue.MaxDetails))
	}
	return e, nil
}

// backtraceOf reads the frames of a list or of a text with a frame a line. The first
// frames are kept. Of another form there are none.
func backtraceOf(v []byte) (frames []string) {
	var text string
	switch {
	case v == nil:
	case decodeText(v, &text):
		frames = strings.Split(text, "\n")
	case json.Unmarshal(v, &frames) != nil:
		return nil
	}
	left := maxTrace
	for i, frame := range frames {
		if left -= len(frame); left < 0 || i == maxFrames {
			return frames[:i]
		}
	}
	return frames
}
