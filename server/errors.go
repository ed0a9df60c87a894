package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/fleet"
)

// The codes of the binding. Codes in upper case are those of their own texts (F159).
const (
	codePayload     = "invalid_payload"
	codeInvalid     = "invalid_request"
	codeValidation  = "validation_error"
	codeSchema      = "schema_validation"
	codeAnonymous   = "unauthenticated"
	codeDenied      = "permission_denied"
	codeNotFound    = "not_found"
	codeConflict    = "conflict"
	codeDuplicate   = "duplicate"
	codeTooLarge    = "payload_too_large"
	codeMetaTooBig  = "metadata_too_large"
	codeUnsupported = "unsupported"
	codeRateLimited = "rate_limited"
	codeQueueFull   = "QUEUE_FULL"
	codeQueuePaused = "queue_paused"
	codeBackend     = "backend_error"
)

// canonical has the words of the errors text for codes, where it has one (F159).
var canonical = map[string]string{
	codePayload: "INVALID_PAYLOAD", codeInvalid: "INVALID_PAYLOAD", codeSchema: "SCHEMA_VALIDATION_FAILED",
	codeNotFound: "NOT_FOUND", codeConflict: "INVALID_STATE_TRANSITION", codeDuplicate: "DUPLICATE_JOB",
	codeTooLarge: "PAYLOAD_TOO_LARGE", codeMetaTooBig: "METADATA_TOO_LARGE", codeRateLimited: "RATE_LIMITED",
	codeQueueFull: "QUEUE_FULL", codeQueuePaused: "QUEUE_PAUSED", codeBackend: "BACKEND_ERROR",
	codeValidation: "INVALID_RETRY_POLICY", codeAnonymous: "UNAUTHENTICATED", codeDenied: "PERMISSION_DENIED",
	codeUnsupported: "UNSUPPORTED_FEATURE",
}

// canonicalOf has the words of the errors text for a member that is not valid.
var canonicalOf = map[string]string{
	"type": "INVALID_JOB_TYPE", "args": "INVALID_ARGS", "meta": "INVALID_METADATA",
	"metadata": "INVALID_METADATA", "queue": "INVALID_QUEUE", "queues": "INVALID_QUEUE",
	"expression": "INVALID_CRON_EXPRESSION", "cron": "INVALID_CRON_EXPRESSION",
	"schedule": "INVALID_CRON_EXPRESSION",
}

// canonical is the word of the errors text for the refusal, "" if it has none.
func (r *refusal) canonical() string {
	for i := 0; r.code == codeInvalid && i+1 < len(r.details); i += 2 {
		if field, ok := r.details[i+1].(string); ok && r.details[i] == "field" {
			field = field[strings.LastIndexByte(field, '.')+1:]
			if word := canonicalOf[field]; word != "" {
				return word
			}
		}
	}
	switch {
	case r.code == codeBackend && r.status == http.StatusServiceUnavailable:
		return "BACKEND_UNAVAILABLE"
	case r.code == codeBackend && r.status == http.StatusGatewayTimeout:
		return "BACKEND_TIMEOUT"
	}
	return canonical[r.code]
}

// docsURL has the words about errors.
const docsURL = "https://github.com/ojsengine/ojs/blob/main/docs/server.md#errors"

// refusal is an answer that is an error (F020).
type refusal struct {
	status    int
	code      string
	message   string
	retryable bool
	details   obj
	kind      string        // the member "type"
	hint      string        // what to do
	members   obj           // further members of the error object
	header    [][2]string   // of the answer
	after     time.Duration // Retry-After; 0: a second, if the status has one
	cause     error         // for the server, not for the caller
}

func (r *refusal) Error() string { return "ojs: server: " + r.code + ": " + r.message }

func (r *refusal) Unwrap() error { return r.cause }

func refuse(status int, code, format string, a ...any) *refusal {
	return &refusal{status: status, code: code, message: fmt.Sprintf(format, a...)}
}

// with adds a detail.
func (r *refusal) with(name string, value any) *refusal {
	r.details = append(r.details, name, value)
	return r
}

// badPayload refuses a body that is no JSON object (F022).
func badPayload(message string) *refusal {
	return refuse(http.StatusBadRequest, codePayload, "%s", message)
}

// invalid refuses a member of the body, or a parameter (F022).
func invalid(field, reason string) *refusal {
	return refuse(http.StatusBadRequest, codeInvalid, "%s %s", field, reason).with("field", field)
}

func (r *refusal) expected(what string) *refusal {
	r.details = r.details.opt("expected", what)
	return r
}

func (r *refusal) received(what string) *refusal {
	r.details = r.details.opt("received", what)
	return r
}

// notFound refuses a thing that there is not (F026).
func notFound(kind, id string) *refusal {
	r := refuse(http.StatusNotFound, codeNotFound, "%s %q is not found", strings.ReplaceAll(kind, "_", " "),
		clip(id))
	r.hint = "check the " + strings.ReplaceAll(kind, "_", " ") + "'s id, and whether retention has deleted it"
	return r.with("resource_type", kind).with("resource_id", id)
}

// conflict refuses what the state of a job forbids (F027).
func conflict(id string, state ojs.State, expected string, format string, a ...any) *refusal {
	r := refuse(http.StatusConflict, codeConflict, format, a...)
	r.with("job_id", id).with("current_state", string(state))
	r.details = r.details.opt("expected_state", expected)
	return r
}

// unsupported refuses what the server does not offer (F029).
func unsupported(format string, a ...any) *refusal {
	return refuse(http.StatusUnprocessableEntity, codeUnsupported, format, a...)
}

// tooLarge refuses a request with more bytes than are allowed (F028).
func tooLarge(code, field string, actual, most int64) *refusal {
	r := refuse(http.StatusRequestEntityTooLarge, code, "%s has %d bytes; allowed are %d", field, actual,
		most)
	return r.with("actual_bytes", actual).with("max_bytes", most).with("field", field)
}

// unavailable refuses what the storage, or the end of the server, does not allow now
// (F031). The cause is not told: it may have a host or a password.
func unavailable(status int, message string, cause error) *refusal {
	r := refuse(status, codeBackend, "%s", message)
	r.retryable, r.cause = true, cause
	return r
}

// refusalOf says what an error of a route is for the caller.
func (c *call) refusalOf(err error) *refusal {
	var (
		own       *refusal
		bad       *ojs.InvalidError
		duplicate *ojs.DuplicateError
		wrong     *ojs.TransitionError
		queue     *ojs.QueueError
		missing   *ojs.DependencyError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &bad):
		return c.refusalOfInvalid(bad)
	case errors.As(err, &duplicate):
		r := refuse(http.StatusConflict, codeDuplicate, "an equal job exists: %s is %s", duplicate.ID,
			duplicate.State)
		// The names of F027, and those of the text on unique jobs (C043).
		r.with("existing_job_id", duplicate.ID)
		r.with("existing_state", string(duplicate.State)).with("existing_job_state", string(duplicate.State))
		r.details = r.details.opt("unique_key", duplicate.Fingerprint)
		r.details = r.details.opt("uniqueness_key", duplicate.Fingerprint)
		r.cause = duplicate
		return r
	case errors.As(err, &wrong):
		what := wrong.Allowed
		if what == "" {
			what = "the state does not allow it"
		}
		return conflict(wrong.ID, wrong.From, "", "job %s is %s: %s", wrong.ID, wrong.From, what)
	case errors.Is(err, ojs.ErrQueueFull) && errors.As(err, &queue):
		return c.queueFull(queue)
	case errors.Is(err, ojs.ErrQueueDraining) && errors.As(err, &queue):
		r := refuse(http.StatusUnprocessableEntity, codeQueuePaused, "queue %s is draining: it takes no jobs",
			queue.Queue)
		r.retryable = true
		return r.with("queue", queue.Queue)
	case errors.As(err, &missing):
		return invalid("depends_on", "names a job that is not stored")
	case errors.Is(err, ojs.ErrNotFound), errors.Is(err, ojs.ErrPruned):
		return notFound(c.kind, c.name)
	case errors.Is(err, fleet.ErrCells):
		return unsupported("the keys of the jobs are in different cells: make a request for each")
	case errors.Is(err, fleet.ErrMoving):
		return unavailable(http.StatusServiceUnavailable, "the key moves to another cell: try again", err)
	case errors.Is(err, ojs.ErrUnsupported):
		return unsupported("the storage or this server does not offer that")
	case errors.Is(err, ojs.ErrClosed):
		return unavailable(http.StatusServiceUnavailable, "the storage is closed", err)
	case errors.Is(err, context.DeadlineExceeded):
		return unavailable(http.StatusGatewayTimeout, "the storage has not answered in time", err)
	case errors.Is(err, context.Canceled):
		return unavailable(http.StatusServiceUnavailable, "the request has ended", err)
	case errors.Is(err, ojs.ErrDropped):
		return unsupported("an enqueue hook of the server has dropped the job")
	}
	return unavailable(http.StatusServiceUnavailable, "the storage has failed", err)
}

// refusalOfInvalid answers bad input. The message names the field. Reasons that may
// repeat a value of args or meta are left out (F021).
func (c *call) refusalOfInvalid(bad *ojs.InvalidError) *refusal {
	field := bad.Field
	switch bad.Code {
	case ojs.InvalidCodeRetry:
		r := refuse(http.StatusUnprocessableEntity, codeValidation, "%s: %s", field, bad.Reason)
		r.kind = codeValidation
		return r.with("type", string(bad.Code)).with("field", field)
	case ojs.InvalidCodeTooLarge, ojs.InvalidCodeResultTooLarge, ojs.InvalidCodeMetaTooLarge:
		code := codeTooLarge
		if bad.Code == ojs.InvalidCodeMetaTooLarge {
			code = codeMetaTooBig
		}
		r := refuse(http.StatusRequestEntityTooLarge, code, "%s %s", field, bad.Reason)
		switch n := numbers.FindAllString(bad.Reason, -1); {
		case len(n) == 2:
			r.with("actual_bytes", raw(n[0])).with("max_bytes", raw(n[1]))
		case len(n) == 1 && strings.Contains(bad.Reason, "bytes"): // not counted to the end
			sent := c.body.get(field)
			if sent == nil {
				sent = c.sent
			}
			r.with("actual_bytes", len(sent)).with("max_bytes", raw(n[0]))
		}
		return r.with("field", field)
	case ojs.InvalidCodeArgs, ojs.InvalidCodeMeta:
		return invalid(field, "is not valid: "+withoutValues(bad.Reason))
	}
	return invalid(field, bad.Reason)
}

// numbers are those of a reason: how many bytes there are, and how many may be.
var numbers = regexp.MustCompile(`[1-9][0-9]*`)

// withoutValues cuts what a reason quotes.
func withoutValues(reason string) string {
	if i := strings.IndexAny(reason, "\"{["); i >= 0 {
		return strings.TrimSpace(reason[:i]) + "..."
	}
	return reason
}

// queueFull refuses jobs for which a queue has no room (F030). Several may be too many
// for a queue that is not full.
func (c *call) queueFull(e *ojs.QueueError) *refusal {
	conf, _ := c.s.config(c.ctx, e.Queue)
	strategy := "reject"
	switch {
	case conf.bound.Blocks:
		strategy = "block"
	case conf.bound.DropOldest:
		strategy = "drop_oldest"
	}
	if c.depths == nil && !c.s.isFront() { // which does not know the cell
		c.depths, _ = c.s.depths(c.ctx)
	}
	depth, known := c.depths[e.Queue]
	if !known {
		depth = e.MaxDepth
	}
	r := refuse(http.StatusTooManyRequests, codeQueueFull,
		"queue %s has no room: its depth is %d and its bound is %d", e.Queue, depth, e.MaxDepth)
	r.retryable = true
	r.members = obj{"queue", e.Queue, "depth", depth, "bound", e.MaxDepth, "strategy", strategy}
	r.header = [][2]string{{"X-OJS-Queue-Depth", strconv.Itoa(depth)},
		{"X-OJS-Queue-Bound", strconv.Itoa(e.MaxDepth)}}
	return r.with("queue", e.Queue)
}

// appendTo writes the body of the answer.
func (r *refusal) appendTo(b []byte, requestID string) []byte {
	e := obj{"code", r.code, "message", r.message, "retryable", r.retryable, "request_id", requestID}
	e = e.opt("type", r.kind).opt("canonical_code", r.canonical()).opt("details", r.details).opt("hint",
		r.hint)
	e = append(e, "docs_url", docsURL, "doc_url", docsURL)
	return appendValue(b, obj{"error", append(e, r.members...)})
}

// retryAfter is the header of a refusal in whole seconds; "": it has none (F032).
func (r *refusal) retryAfter() string {
	if r.after == 0 && r.status != http.StatusTooManyRequests && r.status != http.StatusServiceUnavailable {
		return ""
	}
	return strconv.FormatInt(int64(max(1, (r.after+time.Second-1)/time.Second)), 10)
}
