package codec

import (
	"errors"
	"fmt"

	"github.com/ojsengine/ojs/internal/foreign"
)

// The types of the errors of this package. They are the error types of attempts whose
// payload cannot be decoded.
const (
	// ErrorTypeDecodeFailed: the payload is damaged, was changed, or is of an encoding
	// that this program does not know. No retry helps: the job becomes a dead letter.
	ErrorTypeDecodeFailed = "codec.decode_failed"
	// ErrorTypeKeyNotFound: the key is not there, or its source has failed. The attempt
	// is retried, since keys may arrive later. If no attempt is left, the job becomes a
	// dead letter.
	ErrorTypeKeyNotFound = "codec.key_not_found"
	// ErrorTypeEncodeFailed: a payload could not be encoded, and nothing was stored.
	ErrorTypeEncodeFailed = "codec.encode_failed"
)

// ErrKeyNotFound is what Keys.Key returns if it has no key with the id.
var ErrKeyNotFound = errors.New("ojs: codec: key not found")

// Error says that a payload could not be encoded or decoded. Its text has no part of the
// payload and of no key.
type Error struct {
	Type string // one of the ErrorType constants
	Err  error
}

func (e *Error) Error() string { return "ojs: " + e.Type + ": " + foreign.ErrorText(e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrorType gives a failed attempt its error type.
func (e *Error) ErrorType() string { return e.Type }

// DoNotRetry reports whether no later attempt can decode the payload.
func (e *Error) DoNotRetry() bool { return e.Type == ErrorTypeDecodeFailed }

func failed(format string, a ...any) error {
	return &Error{ErrorTypeDecodeFailed, fmt.Errorf(format, a...)}
}

// typed is an error as an *Error: itself if it wraps one.
func typed(errorType string, err error) error {
	var e *Error
	if foreign.As(err, &e) {
		return e
	}
	return &Error{errorType, foreign.Ending(err)}
}
