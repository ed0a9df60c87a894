// Package policy computes what the policies of package ojs mean: which retry policy is in force, how long to wait, what
// becomes of an ended attempt, how a duration is written. Everything in it is pure: no clock, no goroutine, no I/O, no
// random source; time and random draws are arguments. The one thing that it remembers is the strategies that RegisterBackoff
// adds. Engines, adapters and tests call it; programs need the presets, and seldom the rest.
//
// # Presets
//
// FullJitter, Sidekiq and the like are the retry policies of other systems, for ojs.WithRetry. Each is a whole policy, except
// that NonRetryableErrors inherits, and each call returns a value of the caller's own, whose fields it may change: MaxAttempts
// above all.
//
// What the standard's fields cannot say is a strategy with a qualified name, "ojs:sidekiq". It draws its own jitter, so Jitter is
// off; it ignores InitialInterval and BackoffCoefficient unless its preset says otherwise: they are for programs that do not know
// it. MaxInterval holds for every strategy, and for the delays of handlers and hooks.
//
// OnExhaustion is dead_letter where the system keeps jobs that have used up their retries apart for a person, and otherwise
// discard. A discarded job can be run again, too (engine.Jobs.Retry), as long as it is retained.
package policy
