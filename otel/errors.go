package ojsotel

import (
	"context"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
)

// described is what a span says of an error.
type described struct {
	kind, message string
	cancelled     bool // the operation was only ended by its caller
}

// describe reads a program's error. Its methods may panic or call runtime.Goexit, and its
// chain may lead back to itself.
func describe(err error) (d described) {
	d = described{kind: ojs.ErrorTypeError, message: foreign.ErrorText(err)}
	left := 100
	foreign.Call(func() { d.walk(err, &left) })
	return d
}

// walk visits the chain in the order of errors.As. The first type that is found holds.
func (d *described) walk(err error, left *int) {
	for err != nil && *left > 0 {
		*left--
		kind := ""
		switch e := err.(type) {
		case *ojs.Error:
			kind = e.Type
		case interface{ ErrorType() string }:
			kind = e.ErrorType()
		}
		switch err {
		case ojs.ErrCancelled, context.Canceled:
			d.cancelled = true
		case ojs.ErrTimeout:
			kind = ojs.ErrorTypeTimeout
		}
		if d.kind == ojs.ErrorTypeError && kind != "" {
			d.kind = kind
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, wrapped := range e.Unwrap() {
				d.walk(wrapped, left)
			}
			return
		default:
			return
		}
	}
}
