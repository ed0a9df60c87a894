package server

import (
	"encoding/json"
	"maps"

	"github.com/ojsengine/ojs/internal/bridge"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

// codeHandler is the code of a failure for which the worker gave none (F073).
const codeHandler = "handler_error"

// Details of a failure in which the server keeps what of the worker's error has no field
// in ojs.Failure. No answer has them among the details.
const (
	detailCode  = "ojs:code"  // error.code
	detailFinal = "ojs:final" // error.retryable was false
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
	details := f.Details
	if details[detailCode] != nil || details[detailFinal] != nil {
		details = maps.Clone(details)
		delete(details, detailCode)
		delete(details, detailFinal)
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
	if len(f.Backtrace) > 0 {
		o = append(o, "backtrace", f.Backtrace)
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
	var text string
	if until != nil && e.Details[bridge.DetailRateLimitUntil] == nil && decodeText(until, &text) {
		keep(bridge.DetailRateLimitUntil, text)
	}
	return e, nil
}
