package foreign

import (
	"errors"
	"reflect"
)

// MaxChain bounds the errors that Walk visits.
const MaxChain = 100

// Walk calls visit with an error and the errors that it wraps, in the order of errors.As,
// until visit returns false. It leaves out nil pointers and visits at most MaxChain
// errors. If a method of an error panics or calls runtime.Goexit, the walk ends.
//
// Walk reports whether it came to every end, and to no nil pointer: errors.Is and
// errors.As return for such an error.
func Walk(err error, visit func(error) (more bool)) (whole bool) {
	w := walk{left: MaxChain, visit: visit, whole: true}
	for w.left > 0 && (reflect.TypeOf(err) == plainError || reflect.TypeOf(err) == wrappedError) {
		if w.left--; !visit(err) {
			return false
		}
		if err = errors.Unwrap(err); err == nil {
			return true
		}
	}
	stop := Call(func() { w.from(err) })
	return stop == nil && w.whole
}

type walk struct {
	left  int
	visit func(error) bool
	whole bool
}

func (w *walk) from(err error) (more bool) {
	for err != nil {
		if IsNil(err) {
			w.whole = false
			return true
		}
		if w.left--; w.left < 0 || !w.visit(err) {
			w.whole = false
			return false
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, wrapped := range e.Unwrap() {
				if !w.from(wrapped) {
					return false
				}
			}
			return true
		default:
			return true
		}
	}
	return true
}

// IsNil reports whether an error is a nil of a type, such as a nil pointer.
func IsNil(err error) bool {
	v := reflect.ValueOf(err)
	switch v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return v.IsNil()
	}
	return false
}

// Is is errors.Is by Walk. The target is comparable.
func Is(err, target error) (found bool) {
	Walk(err, func(e error) bool {
		if found = e == target; !found {
			is, ok := e.(interface{ Is(error) bool })
			found = ok && is.Is(target)
		}
		return !found
	})
	return found
}

// As is errors.As by Walk.
func As[T any](err error, target *T) (found bool) {
	Walk(err, func(e error) bool {
		if t, ok := e.(T); ok {
			*target, found = t, true
		} else if as, ok := e.(interface{ As(any) bool }); ok {
			found = as.As(target)
		}
		return !found
	})
	return found
}

// Ending is an error itself if Walk comes to its end, so that errors.Is and errors.As
// return. Otherwise it is an error with the text only.
func Ending(err error) error {
	if err == nil || Walk(err, func(error) bool { return true }) {
		return err
	}
	return errors.New(ErrorText(err))
}
