package ojsotel

import (
	"context"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
)

// described is what a span says of an error.
type described struct {
	kind, message string
	cancelled     bool // the operation was only ended by its caller
}

// describe reads a program's error. Its methods may panic or call runtime.Goexit, and its
// chain may lead back to itself.
func describe(err error) (d described) {
	d = described{kind: policy.ErrorTypeError, message: foreign.ErrorText(err)}
	foreign.Walk(err, d.read)
	return d
}

// read reads one error of the chain. The first type that is found holds.
func (d *described) read(err error) bool {
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
		kind = policy.ErrorTypeTimeout
	}
	if d.kind == policy.ErrorTypeError && kind != "" {
		d.kind = kind
	}
	return true
}
