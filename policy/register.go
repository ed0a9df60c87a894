package policy

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/backoff"
	"github.com/ojsengine/ojs/internal/foreign"
)

// BackoffFunc computes the delay before a retry. p is the policy in force, with every
// field set; n counts the failures so far, from 1; r is the random draw, in [0, 1). The
// result is cut to MaxInterval; zero and negative results are no delay. Then p.Jitter is
// applied, with the same draw: a strategy with its own jitter needs ojs.JitterOff.
//
// It must be pure: the same result for the same arguments, and p unchanged. It is called
// concurrently, for each failure, so it must be quick. If it panics or calls
// runtime.Goexit, the exponential strategy silently replaces it.
type BackoffFunc func(p ojs.RetryPolicy, n int, r float64) time.Duration

// RegisterBackoff makes a strategy known to this program under a qualified name, such as
// "acme:fibonacci", for use as RetryPolicy.BackoffStrategy; see ojs.Backoff for the form
// of names. Every program on a storage should register the strategies of all of them; see
// Delay for programs that do not.
//
// It is meant for init functions, and panics if the name lacks that form, is registered
// already, or is of the vendor "ojs", or if f is nil. It is safe for concurrent use.
func RegisterBackoff(name string, f BackoffFunc) {
	if f == nil {
		panic("ojs: RegisterBackoff: the function of " + name + " is nil")
	}
	if err := backoff.Register(name, f); err != nil {
		panic("ojs: RegisterBackoff: " + err.Error())
	}
}

// custom computes the delay of a strategy by its qualified name. It reports false if the
// program does not know the name, or if the function does not return.
func custom(p ojs.RetryPolicy, n int, r float64) (d time.Duration, ok bool) {
	if f := builtin[p.BackoffStrategy]; f != nil {
		return min(max(f(p, n, r), 0), p.MaxInterval), true
	}
	f, known := registered(p.BackoffStrategy)
	if !known {
		return 0, false
	}
	if stop := foreign.Call(func() { d = f(p, n, r) }); stop != nil {
		return 0, false
	}
	return min(max(d, 0), p.MaxInterval), true
}

func registered(name ojs.Backoff) (BackoffFunc, bool) {
	f, _ := backoff.Lookup(string(name))
	g, ok := f.(BackoffFunc)
	return g, ok
}
