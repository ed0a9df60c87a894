// Package fail lets the functions of a call fail without returning errors. A function
// panics with the error, and Caught returns the error where the call began. No failure
// leaves the package that it began in.
package fail

type failure struct{ error }

// With fails with an error.
func With(err error) { panic(failure{err}) }

// If fails with an error, unless that is nil.
func If(err error) {
	if err != nil {
		With(err)
	}
}

// Must returns the result of a function. If the function has returned an error, Must
// fails with it.
func Must[R any](r R, err error) R {
	If(err)
	return r
}

// Caught runs f, and returns the error with which f has failed. Other panics pass.
func Caught(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	f()
	return nil
}
