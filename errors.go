package ojs

import (
	"errors"
	"fmt"
)

// What callers of an engine test for with errors.Is.
var (
	ErrInvalid     = errors.New("ojs: invalid")           // bad input, nothing was stored; also *InvalidError
	ErrDuplicate   = errors.New("ojs: duplicate")         // the job is already there; also *DuplicateError
	ErrTransition  = errors.New("ojs: not in this state") // the job's state forbids it; also *TransitionError
	ErrNotFound    = errors.New("ojs: not found")         // no such job
	ErrPruned      = errors.New("ojs: pruned")            // the job has ended, and was deleted with its outcome; also *PrunedError
	ErrClosed      = errors.New("ojs: closed")            // the storage has been closed
	ErrUnsupported = errors.New("ojs: unsupported")       // this storage or ticket cannot do that

	ErrQueueFull     = errors.New("ojs: queue full")     // it has as many jobs as it may have; also *QueueError
	ErrQueueDraining = errors.New("ojs: queue draining") // it accepts no more jobs; also *QueueError

	ErrQuarantined = errors.New("ojs: quarantined") // the stored record does not decode; also *QuarantinedError

	// ErrDropped is what an enqueue hook returns to leave a job out, and what a single enqueue of it then returns.
	ErrDropped = errors.New("ojs: dropped")
)

// Causes of a handler's ended context, as context.Cause(ctx) gives them.
var (
	ErrCancelled = errors.New("ojs: cancelled")  // somebody cancelled the job
	ErrTimeout   = errors.New("ojs: timeout")    // the attempt, or the job as a whole, has used up its time
	ErrLeaseLost = errors.New("ojs: lease lost") // the job is no longer this attempt's
	ErrReplaced  = errors.New("ojs: replaced")   // a unique job took this one's place
	ErrShutdown  = errors.New("ojs: shutdown")   // the engine stops and the grace period is over
)

// InvalidError refuses input: nothing was stored or changed. errors.Is(err, ErrInvalid) holds for it.
type InvalidError struct {
	Code   string // stable and dotted, e.g. "validation.retry_policy_invalid"
	Field  string // what is wrong, e.g. "retry.max_interval"
	Reason string // why, for a person
}

// Codes of InvalidError.
const (
	CodeTypeInvalid     = "validation.job_type_invalid"
	CodeQueueInvalid    = "validation.queue_invalid"
	CodeArgsInvalid     = "validation.args_invalid"
	CodeMetaInvalid     = "validation.metadata_invalid"
	CodeRetryInvalid    = "validation.retry_policy_invalid"  // OJS retry, section 11.1
	CodeUniqueInvalid   = "validation.unique_policy_invalid" // OJS unique jobs, section 2.2
	CodeOptionInvalid   = "validation.option_invalid"
	CodeEnvelopeInvalid = "validation.envelope_invalid"
	CodeErrorInvalid    = "validation.error_invalid"

	CodeTooLarge       = "validation.payload_too_large"
	CodeMetaTooLarge   = "validation.metadata_too_large"
	CodeResultTooLarge = "validation.result_too_large"
)

func (e *InvalidError) Error() string {
	return fmt.Sprintf("ojs: invalid %s: %s", e.Field, e.Reason)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// DuplicateError refuses a job because an equal one exists. errors.Is(err, ErrDuplicate) holds for it.
type DuplicateError struct {
	ID          string // of the existing job, of several the newest; or of a job of the same batch, none of which is stored then
	State       State  // its state
	Fingerprint string // that both share; "": they have the same id
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("ojs: duplicate: job %s is %s", e.ID, e.State)
}

// Is makes errors.Is(err, ErrDuplicate) true.
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicate }

// PrunedError is a lookup of a job that has ended and was deleted since, by retention or by hand: its outcome is gone.
// errors.Is(err, ErrPruned) holds for it, and errors.Is(err, ErrNotFound) does not. Tickets always tell a deleted job from one that
// never existed. For other ids an engine knows the 65,536 jobs that it deleted last; for earlier ones, and those that other
// processes deleted, the error is ErrNotFound.
type PrunedError struct{ ID string }

func (e *PrunedError) Error() string {
	return fmt.Sprintf("ojs: pruned: job %s has ended and was deleted with its outcome; ojs.WithResultTTL keeps a job for longer, engine.WithRetention all of them", e.ID)
}

// Is makes errors.Is(err, ErrPruned) true.
func (e *PrunedError) Is(target error) bool { return target == ErrPruned }

// TransitionError refuses a change that the transition table or the call does not allow. errors.Is(err, ErrTransition)
// holds for it.
type TransitionError struct {
	ID       string
	From, To State  // To is what the job should have become: a state, or "deleted" or "reprioritized"
	Allowed  string // what the call allows, for a person: "only a dead letter can be replayed"; "": what the table does
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

// QuarantinedError says that a record is in the quarantine of its storage, because it does not decode. errors.Is(err,
// ErrQuarantined) holds for it, and errors.Is(err, ErrNotFound): there is no such job until somebody mends and releases the record.
type QuarantinedError struct {
	Key    string // names it in the quarantine
	ID     string // of the job; of other records, their name
	Reason string // why it does not decode, for a person
}

func (e *QuarantinedError) Error() string {
	return fmt.Sprintf("ojs: quarantined: the record of %s (quarantine key %s) does not decode: %s", e.ID, e.Key, e.Reason)
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
