// Package workflow makes jobs that depend on one another: chains, groups, batches with
// callbacks, and graphs of named steps, nested in each other.
//
//	report := workflow.New("report", workflow.Chain(
//		workflow.Step("fetch", Fetch.New(FetchArgs{Day: day})),
//		workflow.Group(
//			workflow.Step("sales", Sum.New(SumArgs{Column: "sales"})),
//			workflow.Step("costs", Sum.New(SumArgs{Column: "costs"})),
//		),
//		workflow.Step("mail", Mail.New(MailArgs{To: "ann@example.org"})),
//	))
//	run, err := workflow.Start(ctx, eng, report)
//
// The steps are ordinary jobs with their own handlers, retries and timeouts. Start stores
// all of them in one call, all or none. A step that depends on others is pending until
// they have ended, and is not known to any engine's memory: the storage counts the ends
// of its dependencies in the step that ends them (ojs.WithDependsOn). So no engine has to
// be alive for a workflow to go on later, and each step and callback is enqueued exactly
// once, as rows of the storage. Handlers run at least once, as all handlers do.
//
// # Failure
//
// A step has failed when its job has ended in any state but completed: a step that waits
// for a retry has not. Steps that need a failed step are cancelled, directly or through
// others. The other steps go on. A workflow has ended when all its steps have.
//
// # Results
//
// A handler reads the result of an earlier step with Result, by the step's name. A step
// keeps its result until the retention of finished jobs deletes its job. Start keeps the
// steps for a day after their ends, unless the draft has an ojs.WithResultTTL.
//
// # How it is stored
//
// The record of a workflow is a job of type Type, whose id is the workflow's. It never
// runs. It completes when all steps have ended, and its args are the shape. Jobs of type
// JoinType stand between many steps and many others, and for the conditions of callbacks:
// they complete by themselves, too. Listings of jobs show both.
package workflow
