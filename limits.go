package ojs

import "github.com/ojsengine/ojs/internal/jsonvalue"

// Limits of what is stored, in bytes of its JSON (OJS payload limits). Input that exceeds
// one is refused with an *InvalidError.
const (
	MaxEnvelope   = 1 << 20  // a job as it is enqueued
	MaxMeta       = 64 << 10 // its meta
	MaxResult     = 1 << 20
	MaxCheckpoint = 1 << 20
	// the details of an error; "details_error" with their size replaces larger ones
	MaxDetails = 64 << 10

	// the nesting of args, meta, results and checkpoints; a scalar is 0 deep, a list of
	// scalars 1
	MaxDepth = jsonvalue.MaxDepth
)

// LimitStrategy is a bound of a key that holds jobs back.
type LimitStrategy string

// The bounds of a key.
const (
	LimitedByConcurrency LimitStrategy = "concurrency" // RateLimit.Concurrency
	LimitedByRate        LimitStrategy = "rate"        // RateLimit.Rate
	LimitedByThrottle    LimitStrategy = "throttle"    // RateLimit.Throttle
	LimitedByBlock       LimitStrategy = "block"       // RateLimitedUntil, or a call that blocks the key
)
