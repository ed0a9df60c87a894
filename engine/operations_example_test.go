package engine_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
)

// The calls of docs/operations.md, section "Find a failure among many jobs".

func findFailure(ctx context.Context, eng *engine.Engine[any]) error {
	f, err := inspect.Parse("state:discarded finished.since:1h", time.Now())
	if err != nil {
		return err
	}
	errs, err := eng.Jobs().Facets(ctx, f, inspect.FacetError, 0)
	if err != nil {
		return err
	}
	fmt.Println(errs.Values, errs.Exact) // [{smtp.refused 7 false} {disk.full 2 false}] true

	failures, err := eng.Jobs().Failures(ctx, f, 0)
	if err != nil {
		return err
	}
	for _, g := range failures.Groups {
		fmt.Println(g.N, g.Type, g.Message) // 7 email.send mailbox # is full
	}
	return nil
}

func findJobs(ctx context.Context, eng *engine.Engine[any]) (inspect.Filter, error) {
	f, err := inspect.Parse("state:discarded type:email.* errortype:smtp.refused tag:vip order:finished",
		time.Now())
	if err != nil {
		return f, err
	}
	page, err := eng.Jobs().Page(ctx, f, "", 20)
	if err != nil {
		return f, err
	}
	for _, job := range page.Jobs {
		fmt.Println(job.Type, job.Args, job.Error.Message)
	}
	fmt.Println(page.Looked, page.Next == "") // how far it looked, and whether that is all
	return f, nil
}

func lookAtJob(ctx context.Context, eng *engine.Engine[any], id string) error {
	why, err := eng.Jobs().Explain(ctx, id)
	if err != nil {
		return err
	}
	for _, reason := range why.Obstacles {
		fmt.Println(reason.Text)
	}
	life, err := eng.Jobs().Timeline(ctx, id)
	if err != nil {
		return err
	}
	for _, a := range life.Attempts {
		fmt.Println("attempt", a.N, a.Outcome)
	}
	return nil
}

func retryFound(ctx context.Context, eng *engine.Engine[any], f inspect.Filter) error {
	op := operate.Bulk{Do: operate.RetryJobs(), On: f, Limit: 10, Every: 100 * time.Millisecond}
	first, err := eng.Jobs().Preview(ctx, op, 5)
	if err != nil {
		return err
	}
	fmt.Println(first.N, "jobs, exactly:", first.Exact, "- of these a sample of", len(first.Sample))

	for p, err := range eng.Jobs().Apply(ojs.WithActor(ctx, "ann"), op) {
		if err != nil {
			return err
		}
		if p.Err != nil {
			fmt.Println(p.ID, p.Err) // break stops it
		}
		fmt.Println(p.Done, "done,", p.Refused, "refused")
	}
	return nil
}

// Mails fail while a mailbox is full. They are found among other failures, looked at, and
// retried when there is room.
func Example_findFailure() {
	ctx, eng := begin(engine.WithConcurrency(1)) // so that the jobs end in order
	full := true
	eng.Handle("email.send", func(_ context.Context, job *ojs.Job[any]) error {
		if full {
			return ojs.Permanent(ojs.Errorf("smtp.refused", "mailbox %v is full", job.Args))
		}
		return nil
	})
	eng.Handle("report.build", func(context.Context, *ojs.Job[any]) error {
		return ojs.Permanent(ojs.Errorf("disk.full", "no space"))
	})
	for user := range 5 {
		enqueue(ctx, eng, "email.send", user)
	}
	var vip ojs.Ticket
	for user := range 2 {
		enqueue(ctx, eng, "report.build", user)
		vip = enqueue(ctx, eng, "email.send", 42, ojs.WithTags("vip"))
	}
	work(ctx, eng)

	if err := findFailure(ctx, eng); err != nil {
		log.Fatal(err)
	}
	f, err := findJobs(ctx, eng)
	if err != nil {
		log.Fatal(err)
	}
	full = false
	if err := retryFound(ctx, eng, f); err != nil {
		log.Fatal(err)
	}
	if err := lookAtJob(ctx, eng, vip.ID); err != nil {
		log.Fatal(err)
	}
	work(ctx, eng)
	job, err := vip.Wait(ctx)
	fmt.Println(job.State, err)
	if err := pauseQueue(ctx, eng); err != nil {
		log.Fatal(err)
	}
	// Output:
	// [{smtp.refused 7 false} {disk.full 2 false}] true
	// 7 email.send mailbox # is full
	// 2 report.build no space
	// email.send 42 mailbox 42 is full
	// email.send 42 mailbox 42 is full
	// 7 true
	// 2 jobs, exactly: true - of these a sample of 2
	// 1 done, 0 refused
	// 2 done, 0 refused
	// this engine does not run, or is stopping
	// attempt 1 failed
	// completed <nil>
	// is the name right?
}

func pauseQueue(ctx context.Context, eng *engine.Engine[any]) error {
	known, err := eng.Queues().Pause(ctx, "mail")
	if err == nil && !known {
		fmt.Println("is the name right?")
	}
	return err
}
