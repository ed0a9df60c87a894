// Package simulation tests the engine by random programs on a storage that fails, under
// virtual time.
//
// A seed stands for a program. These parts of it are random:
//
//   - One to four engines on one storage, each as in a process of its own: its
//     concurrency, grace period, job types, queues with weights, limits and depths,
//     retention. Engines join, stop, run again, and crash: from then on their calls do
//     not arrive.
//   - What all engines of a run share: a codec, the logs of attempts, a storage that
//     stores outcomes and claims in one call. If it does, engines may claim jobs ahead:
//     the clock of the run is then after the birth of the program, and bursts of quick
//     jobs come.
//   - Jobs with priorities, delays, deadlines, timeouts, leases, retry policies, unique
//     policies, rate limits of one engine and of all, versions, ordering keys and
//     fairness keys, alone and in batches, from within handlers, and by handler.Then.
//   - Handlers that succeed at once or later, fail with each response code, panic, call
//     Goexit, snooze, save checkpoints, wait for the end of their contexts, go on after
//     it for a part of the grace period, or hang beyond it. Some have a
//     handler.WithSlots, take a range of versions, or run in batches. A middleware
//     panics before or after them.
//   - Remote workers that acknowledge, fail, release, renew, are late, or vanish.
//   - Operators who cancel, reprioritize, reschedule, activate, retry, replay, delete,
//     pause, drain and resume; recurring entries.
//   - Storms, in which a call of the storage fails before its work, or after it, so that
//     its answer is lost, or takes long. In some, only the calls that store outcomes
//     fail. Some engines hear notices of others late, twice, or not at all. In a third of
//     the programs nothing fails, so that everything has to be exact.
//
// After the program the faults cease, what keeps jobs from running is undone, and
// everything left has to run to its end.
//
// # What is checked
//
// A ledger before the storage does one call at a time, keeps a copy of every job, and
// checks each call and each answer against the copies. Whenever something was due, and
// between the ops, all goroutines wait, and a look at everything follows. The invariants:
//
//  1. Every accepted job is stored, and ends.
//  2. No attempt is more than the policy allows, and none is retried after its last.
//  3. Nothing is promoted, retried or expired before its time; backoff, RetryAfter and
//     Snooze wait as long as they say.
//  4. Nothing happens after its time: what is due is promoted, expired or reaped at that
//     nanosecond, a job that is available while an engine that serves it has a free slot,
//     also of its limits, has begun, and a handler's context ends with its timeout. No
//     worker waits for a job that is available, and no job for a turn that is free. Where
//     a fault may have made an engine late this is not asked for 45 s. Engines that claim
//     ahead have 50 ms to begin.
//  5. A claim takes an available job, a handler begins once for each claim, and a lease
//     is handed on after it has run out. It does not run out while its holder lives and
//     could renew it, even if the outcome of the attempt cannot be stored. Only a claim
//     whose handler has not begun is taken back.
//  6. Changes and renewals apply to the version that they name, and are refused for any
//     other.
//  7. Each engine that lives tells each transition that it made exactly once, those of a
//     job in order; at most once if it did not get the answer.
//  8. A unique job is not stored while an equal one counts.
//  9. Of one queue the highest priority is claimed first, and the job that has been
//     available longest.
//  10. A bounded queue is not filled beyond its depth.
//  11. The context of a handler ends at the moment at which its job is cancelled,
//     replaced or lost.
//  12. Counts and listings are those of the ledger.
//  13. A wait is answered when the job ends, and not before.
//  14. Run returns nil, or ErrStuck if a handler ignores its context, and leaves no job
//     held. No goroutine is left. No handler begins after the end of its Run, or after
//     the grace period of its stop.
//  15. No engine starts more than limits of keys, queues and handlers allow, nor do all
//     of them together. No batch is too large.
//  16. A paused queue delivers nothing, a draining one accepts nothing.
//  17. No handler begins after its job's deadline.
//  18. Retention and deletion remove only what they may.
//  19. The stored outcome of an attempt follows from what its handler did: state,
//     attempts
//     spent, error history, dead letter. An attempt is given back if it was snoozed,
//     released or interrupted by a stop, and for no other reason.
//  20. A run of a recurring entry is made once.
//  21. Answers are true: an enqueue that was refused has stored nothing and had a reason,
//     a cancel that succeeded has cancelled.
//  22. A stored job has the version, ordering key and fairness that its draft asks for.
//     With a codec, args, results and logs are stored encoded.
//  23. Engines and handlers get the versions that they take.
//  24. A job of an ordering key is claimed after all earlier ones of the key have ended.
//  25. With an outcome are stored its own result, log line and jobs of handler.Then, and
//     no others. An attempt reads the latest checkpoint.
//  26. The counters of each engine are those of its events.
//
// # A seed again
//
//	go test ./internal/test/simulation -run TestSimulation/seed=123 -seed 123 -seeds 1
//
// Flags -seed and -seeds choose others. A failure prints the invariant, the program, and
// the history of the job across all engines.
//
// A run is in a testing/synctest bubble, with the bubble's clock. The program, the
// scripts of the handlers, and the chances of faults are the same for the same seed.
// Which of several goroutines comes first at the same nanosecond is up to the scheduler,
// and may change which call a fault meets and which job an operator finds; so a seed that
// fails may need several runs (-count).
//
// # Planted bugs
//
// TestPlantedStorages runs the programs on broken storages, and TestPlanted, which
// -planted asks for, on engines with a bug that go test -overlay builds into them. Each
// bug has to be found within 500 seeds. A bug whose code has changed fails
// TestPlantedPatchesApply.
package simulation
