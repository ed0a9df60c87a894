package policy

import (
	"math"
	"time"

	"github.com/ojsengine/ojs"
)

// builtin are the strategies of the presets. Their names are those of backoff.Builtin,
// and are stored with jobs: one may be added, none may change what it means.
var builtin = map[ojs.Backoff]BackoffFunc{
	"ojs:immediate": func(ojs.RetryPolicy, int, float64) time.Duration { return 0 },
	"ojs:ratchet":   doubled,
	"ojs:sidekiq":   quartic(10),
	"ojs:faktory":   quartic(30),
	"ojs:asynq":     quartic(30),
	"ojs:river":     river,
	"ojs:oban":      oban,
	"ojs:celery":    celery,
	"ojs:graphile":  graphile,
}

// quartic is count^4 + 15 + rand(width)*(count+1) seconds, where count is 0 for the first
// retry.
func quartic(width float64) BackoffFunc {
	return func(_ ojs.RetryPolicy, n int, r float64) time.Duration {
		count := int64(n - 1)
		if count > 1<<15 { // whose fourth power is beyond any duration, and within an int64
			return math.MaxInt64
		}
		return wholeSeconds(count*count*count*count + 15 + int64(r*width)*(count+1))
	}
}

// river is n^4 seconds, 10 % more or less.
func river(p ojs.RetryPolicy, n int, r float64) time.Duration {
	s := math.Pow(float64(n), 4)
	s += s * (r*2*0.1 - 0.1)
	return capped(s*float64(time.Second), p.MaxInterval)
}

// oban is 15 + 2^n seconds, and up to 10 % more. Beyond 20 attempts, n is the attempt's
// place among 20.
func oban(p ojs.RetryPolicy, n int, r float64) time.Duration {
	const most = 20
	if p.Runs() > most {
		n = int(math.Round(float64(n) / float64(p.Runs()) * most))
	}
	s := 15 + int64(1)<<min(n, 60)
	return wholeSeconds(s + int64(r*0.1*float64(s)))
}

// celery is a random whole number of seconds up to the interval times 2^(n-1), cap
// included.
func celery(p ojs.RetryPolicy, n int, r float64) time.Duration {
	factor, most := max(p.InitialInterval/time.Second, 1), p.MaxInterval/time.Second
	countdown := most
	if factor <= most>>(n-1) {
		countdown = factor << (n - 1)
	}
	return time.Duration(r*float64(countdown+1)) * time.Second
}

// graphile is e^min(n, 10) seconds, as an interval of PostgreSQL holds them.
func graphile(_ ojs.RetryPolicy, n int, _ float64) time.Duration {
	return time.Duration(math.Round(math.Exp(float64(min(n, 10)))*1e6)) * time.Microsecond
}

// doubled is the interval times 2^(n-1), with an exponent of 20 at the most, in integers.
func doubled(p ojs.RetryPolicy, n int, _ float64) time.Duration {
	exponent := min(n-1, 20)
	if p.InitialInterval > p.MaxInterval>>exponent {
		return p.MaxInterval
	}
	return p.InitialInterval << exponent
}

// wholeSeconds is the longest duration where s seconds are none.
func wholeSeconds(s int64) time.Duration {
	if s > math.MaxInt64/int64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s) * time.Second
}
