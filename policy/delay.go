package policy

import (
	"math"
	"time"

	"github.com/ojsengine/ojs"
)

// Delay returns the wait between the n-th failure and the next attempt (OJS retry,
// sections 3 and 5 and appendix A): the strategy's delay, at most MaxInterval; then, with
// jitter, times 0.5+r, and again at most MaxInterval. With ojs.JitterFull it is a time
// from zero to the strategy's delay, both included. r is the random draw, in [0, 1). n
// counts from 1. Fields of p that are zero are the standard's. It never overflows: a
// delay that would is MaxInterval.
//
// The exponential strategy, with the same interval, coefficient and cap, replaces a
// qualified strategy whose function panics, or that this program has not registered.
func Delay(p ojs.RetryPolicy, n int, r float64) time.Duration {
	p = p.Inherit(Default())
	if !(r >= 0) {
		r = 0
	}
	r = min(r, math.Nextafter(1, 0))
	d := delay(p, max(n, 1), r)
	switch p.Jitter {
	case ojs.JitterOn:
		j := capped(float64(d)*(0.5+r), p.MaxInterval)
		if most := d + (d-1)/2; most >= d { // rounding could reach the open end of the interval
			j = min(j, most)
		}
		return j
	case ojs.JitterFull:
		return capped(r*(float64(d)+1), d)
	}
	return d
}

func delay(p ojs.RetryPolicy, n int, r float64) time.Duration {
	interval := p.InitialInterval
	switch p.BackoffStrategy {
	case ojs.BackoffNone:
		return min(interval, p.MaxInterval)
	case ojs.BackoffLinear:
		if time.Duration(n) > p.MaxInterval/max(interval, 1) {
			return p.MaxInterval
		}
		return interval * time.Duration(n)
	case ojs.BackoffPolynomial:
		return capped(float64(interval)*math.Pow(float64(n), p.BackoffCoefficient), p.MaxInterval)
	case ojs.BackoffExponential:
	default:
		if d, ok := custom(p, n, r); ok {
			return d
		}
	}
	return capped(float64(interval)*math.Pow(p.BackoffCoefficient, float64(n-1)), p.MaxInterval)
}

// capped converts nanoseconds to a Duration in [0, most]. Infinity and NaN, where the
// formula overflowed, are most.
func capped(ns float64, most time.Duration) time.Duration {
	if !(ns < float64(most)) {
		return most
	}
	return max(time.Duration(ns), 0)
}

// maxDelays bounds the list that Delays makes of a policy with very many attempts.
const maxDelays = 1000

// Delays lists the waits before attempts 2, 3, ... without jitter, at most the first
// 1000. A strategy with its own jitter is listed with the draw 0.
func Delays(p ojs.RetryPolicy) []time.Duration {
	p = p.Inherit(Default())
	p.Jitter = ojs.JitterOff
	ds := make([]time.Duration, 0, min(max(p.Runs()-1, 0), maxDelays))
	for n := range cap(ds) {
		ds = append(ds, Delay(p, n+1, 0))
	}
	return ds
}
