// Package outcome says what a handler's error, or the end of its context, makes of an
// attempt. Engines and remote workers run handlers by it.
package outcome

import (
	"fmt"
	"reflect"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
)

// Exited is the error of a handler that calls runtime.Goexit.
var Exited = &ojs.Error{Type: policy.ErrorTypeGoexit, Message: "ojs: the handler called runtime.Goexit"}

// EndedBy is the outcome of an attempt whose context ended with a cause before the
// handler returned.
func EndedBy(cause error, o policy.Outcome) policy.Outcome {
	if o.Kind == policy.Returned && o.Err == nil ||
		o.Kind != policy.Returned && o.Kind != policy.Interrupted {
		return o
	}
	switch cause {
	case ojs.ErrTimeout:
		o.Kind = policy.TimedOut
	case ojs.ErrShutdown:
		o.Kind = policy.Interrupted
	}
	return o
}

// Of is what an error of a handler says. Middlewares may have wrapped what the engine
// has to know. decoded reports whether the caller has decoded the args, which are of a
// type.
func Of(err error, decoded bool, args reflect.Type) policy.Outcome {
	o := policy.Outcome{Kind: policy.Returned, Err: err}
	foreign.Walk(err, func(e error) bool {
		switch e := e.(type) {
		case *handler.UndecodableError:
			if o = (policy.Outcome{Kind: policy.Undecodable, Err: e.Err}); decoded {
				o = unfit(args)
			}
		case *handler.PanicError:
			o = Panicked(e)
		case *handler.TimeoutError:
			o = policy.Outcome{Kind: policy.TimedOut, Err: e.Err, Limit: e.Limit}
		default:
			return true
		}
		return false
	})
	return o
}

// panicError is what a handler panicked with, as an error.
type panicError string

func (e panicError) Error() string { return string(e) }

func (panicError) ErrorType() string { return policy.ErrorTypePanic }

// Panicked is the outcome of a panic.
func Panicked(p *handler.PanicError) policy.Outcome {
	// The panic's value may be an error with a response code; a panic is no answer, so it
	// is left out of the chain.
	return policy.Outcome{Kind: policy.Panicked, Err: panicError(p.Error()), Backtrace: p.Backtrace}
}

// unfit is the outcome of an attempt whose decoded args do not fit its handler. The error
// of the decoding may quote them.
func unfit(args reflect.Type) policy.Outcome {
	err := fmt.Errorf(
		"ojs: the args do not fit the handler's %v; the reason is left out, since it may quote them",
		args)
	return policy.Outcome{Kind: policy.Undecodable, Err: err}
}
