package ojs

import (
	"errors"
	"fmt"
)

// Errors that callers of an engine test for with errors.Is.
var (
	ErrInvalid    = errors.New("ojs: invalid")           // bad input, nothing was stored; also *InvalidError
	ErrDuplicate  = errors.New("ojs: duplicate")         // an equal job exists; also *DuplicateError
	ErrTransition = errors.New("ojs: not in this state") // the job's state forbids it; also *TransitionError
	ErrNotFound   = errors.New("ojs: not found")         // no such job
	// the job has ended and was deleted; also *PrunedError
	ErrPruned      = errors.New("ojs: pruned")
	ErrClosed      = errors.New("ojs: closed")      // the storage has been closed
	ErrUnsupported = errors.New("ojs: unsupported") // this storage or ticket lacks the ability

	// the queue has its maximum of jobs; also *QueueError
	ErrQueueFull     = errors.New("ojs: queue full")
	ErrQueueDraining = errors.New("ojs: queue draining") // the queue accepts no jobs; also *QueueError

	// a job that another is to wait for is not stored; also *DependencyError
	ErrDependency = errors.New("ojs: unknown dependency")

	// the stored record does not decode; also *QuarantinedError
	ErrQuarantined = errors.New("ojs: quarantined")

	// ErrDropped is returned by an enqueue hook to leave a job out, and then by a single
	// enqueue of that job.
	ErrDropped = errors.New("ojs: dropped")
)

// Causes of a handler's ended context, as context.Cause(ctx) gives them.
var (
	ErrCancelled = errors.New("ojs: cancelled")  // a call cancelled the job
	ErrTimeout   = errors.New("ojs: timeout")    // the timeout or the total timeout has passed
	ErrLeaseLost = errors.New("ojs: lease lost") // this attempt does not hold the job
	ErrReplaced  = errors.New("ojs: replaced")   // a unique job replaced this one
	ErrShutdown  = errors.New("ojs: shutdown")   // the engine stops and the grace period is over
)

// InvalidError refuses input: nothing was stored or changed. errors.Is(err, ErrInvalid)
// holds for it.
type InvalidError struct {
	Code   InvalidCode
	Field  string // what is wrong, e.g. "retry.max_interval"
	Reason string // why, for a person
}

// InvalidCode says what kind of input an InvalidError refuses. It is stable and dotted.
type InvalidCode string

// The codes of an InvalidError.
const (
	InvalidCodeType     InvalidCode = "validation.job_type_invalid"
	InvalidCodeQueue    InvalidCode = "validation.queue_invalid"
	InvalidCodeArgs     InvalidCode = "validation.args_invalid"
	InvalidCodeMeta     InvalidCode = "validation.metadata_invalid"
	InvalidCodeRetry    InvalidCode = "validation.retry_policy_invalid"  // OJS retry, section 11.1
	InvalidCodeUnique   InvalidCode = "validation.unique_policy_invalid" // OJS unique jobs, section 2.2
	InvalidCodeOption   InvalidCode = "validation.option_invalid"
	InvalidCodeEnvelope InvalidCode = "validation.envelope_invalid"
	InvalidCodeError    InvalidCode = "validation.error_invalid"

	InvalidCodeTooLarge       InvalidCode = "validation.payload_too_large"
	InvalidCodeMetaTooLarge   InvalidCode = "validation.metadata_too_large"
	InvalidCodeResultTooLarge InvalidCode = "validation.result_too_large"
)

func (e *InvalidError) Error() string {
	return fmt.Sprintf("ojs: invalid %s: %s", e.Field, e.Reason)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// DuplicateError refuses a job because an equal one exists. errors.Is(err, ErrDuplicate)
// holds for it.
type DuplicateError struct {
	// the newest equal job, or an equal job of the same batch; in that case none of the
	// batch is stored
	ID          string
	State       State  // its state
	Fingerprint string // of both jobs; "": they have the same id
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("ojs: duplicate: job %s is %s", e.ID, e.State)
}

// Is makes errors.Is(err, ErrDuplicate) true.
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicate }

// PrunedError refuses a lookup of a job that has ended and was deleted, by retention or
// by a call. errors.Is(err, ErrPruned) holds for it, and errors.Is(err, ErrNotFound) does
// not. Tickets always distinguish a deleted job from one that never existed. For other
// ids, an engine knows the 65,536 jobs that it deleted last. For earlier ones, and for
// jobs that other processes deleted, the error is ErrNotFound.
type PrunedError struct{ ID string }

func (e *PrunedError) Error() string {
	return fmt.Sprintf("ojs: pruned: job %s has ended and was deleted with its outcome; ojs.WithResultTTL keeps a job for longer, engine.WithRetention all of them", e.ID)
}

// Is makes errors.Is(err, ErrPruned) true.
func (e *PrunedError) Is(target error) bool { return target == ErrPruned }

// TransitionError refuses a change that the transition table or the call does not allow.
// errors.Is(err, ErrTransition) holds for it.
type TransitionError struct {
	ID       string
	From, To State // To is the refused state, or "deleted" or "reprioritized"
	// the rule of the call, for a person: "only a dead letter can be replayed"; "": the
	// table
	Allowed string
}

func (e *TransitionError) Error() string {
	if e.Allowed != "" {
		return fmt.Sprintf("ojs: not in this state: job %s is %s; %s", e.ID, e.From, e.Allowed)
	}
	verb := "become"
	if !e.To.Valid() {
		verb = "be"
	}
	return fmt.Sprintf("ojs: not in this state: job %s is %s and cannot %s %s", e.ID, e.From, verb, e.To)
}

// Is makes errors.Is(err, ErrTransition) true.
func (e *TransitionError) Is(target error) bool { return target == ErrTransition }

// QueueError refuses a job because of the state of its queue. Nothing was stored.
type QueueError struct {
	Queue    string
	MaxDepth int   // of a full queue
	Err      error // ErrQueueFull or ErrQueueDraining
}

func (e *QueueError) Error() string {
	if e.Err == ErrQueueFull {
		return fmt.Sprintf("%v: %q is at its maximum depth of %d", e.Err, e.Queue, e.MaxDepth)
	}
	return fmt.Sprintf("%v: %q takes no more jobs until it is resumed", e.Err, e.Queue)
}

// Unwrap returns ErrQueueFull or ErrQueueDraining.
func (e *QueueError) Unwrap() error { return e.Err }

// DependencyError refuses a job that is to wait for a job that is not stored: there was
// none with this id, or it was deleted, or it is a job of the same batch that is not
// stored because an equal one exists. Nothing was stored. errors.Is(err, ErrDependency)
// holds for it.
type DependencyError struct {
	ID         string // the job that is refused
	Dependency string // the job that is not stored
}

func (e *DependencyError) Error() string {
	return fmt.Sprintf("ojs: unknown dependency: job %s cannot wait for job %q, which is not stored; enqueue that one before it or with it, and keep it with ojs.WithResultTTL", e.ID, e.Dependency)
}

// Is makes errors.Is(err, ErrDependency) true.
func (e *DependencyError) Is(target error) bool { return target == ErrDependency }

// QuarantinedError refuses a call on a record in the quarantine of its storage: the
// record does not decode. errors.Is(err, ErrQuarantined) and errors.Is(err, ErrNotFound)
// hold for it: there is no such job until the record is mended and released.
type QuarantinedError struct {
	Key    string // the name of the record in the quarantine
	ID     string // the id of a job, the name of another record
	Reason string // why it does not decode, for a person
}

func (e *QuarantinedError) Error() string {
	return fmt.Sprintf("ojs: quarantined: the record of %s (quarantine key %s) does not decode: %s", e.ID,
		e.Key, e.Reason)
}

// Is makes errors.Is(err, ErrQuarantined) and errors.Is(err, ErrNotFound) true.
func (e *QuarantinedError) Is(target error) bool {
	return target == ErrQuarantined || target == ErrNotFound
}

// EndedError is Ticket.Wait's error for a job that has ended but not completed.
type EndedError struct {
	ID           string
	State        State // cancelled or discarded
	DeadLettered bool
	Last         *Failure // the last failed attempt; nil if no attempt failed
}

func (e *EndedError) Error() string {
	how := string(e.State)
	if e.DeadLettered {
		how += ", dead-lettered"
	}
	if e.Last == nil {
		return fmt.Sprintf("ojs: job %s ended: %s", e.ID, how)
	}
	return fmt.Sprintf("ojs: job %s ended: %s: %s: %s", e.ID, how, e.Last.Type, e.Last.Message)
}
