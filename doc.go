// Package ojs is the vocabulary of a job engine with the semantics of Open Job Spec: job
// types, jobs, states, errors, policies and options. Package engine runs the jobs, and
// package event tells what happens to them.
//
//	eng, err := engine.New[Email](memory.New())
//	eng.Handle("email.send", func(ctx context.Context, job *ojs.Job[Email]) error {
//		return send(ctx, job.Args)
//	})
//	go eng.Run(ctx)
//	ticket, err := eng.Enqueue(ctx, "email.send", Email{To: "a@b.c"}, ojs.WithDelay(5*time.Minute))
//	job, err := ticket.Wait(ctx)
//
// A program with several job types declares each once and uses an Engine[any]:
//
//	var SendEmail = ojs.Define[Email]("email.send", ojs.WithMaxAttempts(8))
//	var BuildReport = ojs.Define[Report]("report.build", ojs.WithTimeout(10*time.Minute))
//
//	eng.Register(handler.For(SendEmail, send), handler.For(BuildReport, build))
//	ticket, err := BuildReport.Enqueue(ctx, eng, Report{Month: "2026-03"})
//
// # Delivery
//
// A job runs at least once: after a crash, a lost lease or a failed write of its outcome
// it runs again, even if it had its effect. Make the effect idempotent, with the job's ID
// as the key:
//
//	func charge(ctx context.Context, job *ojs.Job[Charge]) error {
//		return gateway.Charge(ctx, job.Args.Card, gateway.IdempotencyKey(job.ID))
//	}
//
// # What a handler returns
//
// nil completes the job. A plain error, a panic and a timeout are failed attempts, and
// the job's RetryPolicy decides. Discard, DeadLetter and Permanent end the job,
// RetryAfter chooses the delay, Snooze runs it later without spending the attempt.
package ojs
