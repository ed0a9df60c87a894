// Package policy applies the policies of package ojs: the retry policy in force, the
// delay before a retry, the decision on an ended attempt, the text of a duration. It is
// pure: no clock, no goroutine, no I/O, no random source; time and random draws are
// arguments. Its only state is the strategies that RegisterBackoff adds. Engines,
// adapters and tests call it. Programs need the presets, and seldom the rest.
//
// # Presets
//
// FullJitter, Sidekiq and the like are the retry policies of other systems, for
// ojs.WithRetry. Each is a whole policy, except that NonRetryableErrors inherits, and
// each call returns a new value, whose fields you may change, such as MaxAttempts.
//
// A formula that the standard's fields cannot express is a strategy with a qualified
// name, such as "ojs:sidekiq". It draws its own jitter, so Jitter is off. Unless its
// preset says otherwise, it ignores InitialInterval and BackoffCoefficient, which are for
// programs that do not know it. MaxInterval holds for every strategy, and for the delays
// of handlers and hooks.
//
// OnExhaustion is dead_letter if the system keeps jobs without retries left apart for a
// person, and otherwise discard. A discarded job can be run again, too
// (operate.Jobs.Retry), as long as it is retained.
package policy
