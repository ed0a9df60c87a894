package handler

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/internal/foreign"
)

// Recover is the middleware that turns a panic further in into a *PanicError. Middlewares
// outside of it get that error. An engine also recovers panics outside of Recover.
func Recover(ctx context.Context, _ *ojs.JobHeader, next Next) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = NewPanicError(p)
		}
	}()
	return next(ctx)
}

// PanicError is a recovered panic.
type PanicError struct {
	Value     any
	Backtrace []string // innermost first, at most 50 frames
}

// NewPanicError makes the error of a panic. The deferred function that recovered value
// must call it.
func NewPanicError(value any) *PanicError {
	return &PanicError{Value: value, Backtrace: backtrace()}
}

// Error is "panic: " and the value, if that is a string, an error or a number, at most
// 10,000 bytes of it. Of other values it has the type.
func (e *PanicError) Error() string { return "panic: " + foreign.Text(e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

const maxFrames = 50

// backtrace lists the frames of a panic, the panicking one first, without the frames of
// the runtime before it and of the engine that called the attempt.
func backtrace() []string {
	pcs := make([]uintptr, 3*maxFrames)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)])
	var list []string
	for len(list) < maxFrames {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "engine.(*attempt).call") {
			break
		}
		if len(list) > 0 || !strings.HasPrefix(f.Function, "runtime.") {
			list = append(list, fmt.Sprintf("%s %s:%d", f.Function, f.File, f.Line))
		}
		if !more {
			break
		}
	}
	return list
}

// Timeout makes a middleware that ends the context further in, with the cause
// ojs.ErrTimeout, after d on the engine's clock. An error returned after that fails the
// attempt as its own timeout would. It bounds some handlers more tightly than their jobs'
// timeouts. The jobs' timeouts still hold, even for a handler that ignores its context.
func Timeout(d time.Duration) Middleware {
	return func(ctx context.Context, _ *ojs.JobHeader, next Next) error {
		a := attempt.From(ctx)
		if a == nil {
			return next(ctx)
		}
		inner, cancel := context.WithCancelCause(ctx)
		defer cancel(context.Canceled)
		stop := a.AfterFunc(d, func() { cancel(ojs.ErrTimeout) })
		defer stop()
		err := next(inner)
		if err != nil && ctx.Err() == nil && context.Cause(inner) == ojs.ErrTimeout {
			return &TimeoutError{Limit: d, Err: err}
		}
		return err
	}
}

// TimeoutError says that a Timeout has ended.
type TimeoutError struct {
	Limit time.Duration
	Err   error // returned after it
}

func (e *TimeoutError) Error() string { return fmt.Sprintf("ojs: timeout of %v: %v", e.Limit, e.Err) }

// Unwrap returns the error that came after the timeout.
func (e *TimeoutError) Unwrap() error { return e.Err }
