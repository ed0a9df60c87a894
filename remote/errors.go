package remote

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
)

// Error is an answer of the server that refuses a call. It unwraps to the error that an
// engine would have returned: errors.Is(err, ojs.ErrNotFound) and errors.As with an
// *ojs.DuplicateError hold for it as for an engine's.
type Error struct {
	Status    int    // of HTTP
	Code      string // of the binding, such as "not_found"
	Message   string
	Retryable bool
	RequestID string // names the call in the server's log
	// RetryAfter is how long the server asks to wait before another try; 0: it does not
	// say.
	RetryAfter time.Duration
	Err        error // of the library; nil: it has none for the code
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("ojs: the server answers %d %s: %s", e.Status, e.Code, e.Message)
}

// Unwrap returns the error of the library.
func (e *Error) Unwrap() error { return e.Err }

// codeUnknown is the code of an answer that is not the binding's, but a proxy's.
const codeUnknown = "unknown"

// details are the members of error.details that the client reads.
type details struct {
	JobID            string    `json:"job_id"`
	ResourceID       string    `json:"resource_id"`
	CurrentState     ojs.State `json:"current_state"`
	ExpectedState    any       `json:"expected_state"`
	ExistingJobID    string    `json:"existing_job_id"`
	ExistingState    ojs.State `json:"existing_state"`
	UniqueKey        string    `json:"unique_key"`
	Field            string    `json:"field"`
	Type             string    `json:"type"`
	Validation       string    `json:"validation"`
	Queue            string    `json:"queue"`
	ValidationErrors []struct {
		Path    string `json:"path"`
		Message string `json:"message"`
	} `json:"validation_errors"`
}

// errorOf reads the error of an answer.
func errorOf(resp *http.Response, body []byte) error {
	var w struct {
		Error struct {
			Code      string          `json:"code"`
			Message   string          `json:"message"`
			Retryable bool            `json:"retryable"`
			RequestID string          `json:"request_id"`
			Queue     string          `json:"queue"`
			Bound     int             `json:"bound"`
			Details   json.RawMessage `json:"details"`
		} `json:"error"`
	}
	e := &Error{Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header)}
	if json.Unmarshal(body, &w) != nil || w.Error.Code == "" { // a proxy's answer, say
		e.Code, e.Message = codeUnknown, http.StatusText(resp.StatusCode)
		e.Retryable = resp.StatusCode == http.StatusRequestTimeout ||
			resp.StatusCode == http.StatusTooManyRequests ||
			resp.StatusCode == http.StatusBadGateway ||
			resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusGatewayTimeout
		return e
	}
	e.Code, e.Message, e.Retryable, e.RequestID = w.Error.Code, w.Error.Message, w.Error.Retryable,
		w.Error.RequestID
	var d details
	_ = json.Unmarshal(w.Error.Details, &d) // what does not decode stays empty
	if d.Queue == "" {
		d.Queue = w.Error.Queue
	}
	e.Err = libraryError(e, &d, w.Error.Bound)
	return e
}

// libraryError is what an engine returns in the case of an answer, nil if it has nothing
// for it.
func libraryError(e *Error, d *details, bound int) error {
	switch e.Code {
	case "not_found":
		return fmt.Errorf("%w: %s", ojs.ErrNotFound, e.Message)
	case "RESULT_PRUNED":
		return &ojs.PrunedError{ID: cmp.Or(d.JobID, d.ResourceID)}
	case "duplicate", "DUPLICATE_JOB":
		return &ojs.DuplicateError{ID: cmp.Or(d.ExistingJobID, d.JobID), State: d.ExistingState,
			Fingerprint: d.UniqueKey}
	case "conflict":
		to, _ := d.ExpectedState.(string)
		return &ojs.TransitionError{ID: cmp.Or(d.JobID, d.ResourceID), From: d.CurrentState,
			To: ojs.State(to), Allowed: e.Message}
	case "QUEUE_FULL":
		return &ojs.QueueError{Queue: d.Queue, MaxDepth: bound, Err: ojs.ErrQueueFull}
	case "queue_paused":
		return &ojs.QueueError{Queue: d.Queue, Err: ojs.ErrQueueDraining}
	case "unsupported":
		return fmt.Errorf("%w: %s", ojs.ErrUnsupported, e.Message)
	case "invalid_request", "invalid_payload", "validation_error", "schema_validation", "invalid_workflow":
		return invalidError(e, d, ojs.InvalidCodeEnvelope)
	case "payload_too_large", "BATCH_SIZE_EXCEEDED":
		return invalidError(e, d, ojs.InvalidCodeTooLarge)
	case "metadata_too_large":
		return invalidError(e, d, ojs.InvalidCodeMetaTooLarge)
	}
	return nil
}

func invalidError(e *Error, d *details, code ojs.InvalidCode) error {
	for _, kind := range []string{d.Type, d.Validation} {
		if strings.HasPrefix(kind, "validation.") {
			code = ojs.InvalidCode(kind)
		}
	}
	reason := e.Message
	for i, v := range d.ValidationErrors {
		if i == 3 {
			reason += "; ..."
			break
		}
		reason += "; " + v.Path + " " + v.Message
	}
	return &ojs.InvalidError{Code: code, Field: cmp.Or(d.Field, "request"), Reason: reason}
}
