package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage/memory"
)

// begin makes an engine that has not been started.
func begin(opts ...engine.Option) (context.Context, *engine.Engine[any]) {
	eng, err := engine.New[any](memory.New(), append([]engine.Option{quiet}, opts...)...)
	if err != nil {
		log.Fatal(err)
	}
	return context.Background(), eng
}

// work runs an engine until it has nothing to do.
func work(ctx context.Context, eng *engine.Engine[any]) {
	run, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- eng.Run(run) }()
	if err := eng.WaitIdle(ctx); err != nil {
		log.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
}

func enqueue(
	ctx context.Context, eng *engine.Engine[any], jobType string, args any, opts ...ojs.Option,
) ojs.Ticket {
	ticket, err := eng.Enqueue(ctx, jobType, args, opts...)
	if err != nil {
		log.Fatal(err)
	}
	return ticket
}

// Find the failures of one kind, first how many there are of each, then the jobs.
func ExampleEngine_Jobs() {
	ctx, eng := begin()
	eng.Handle("email.send", func(_ context.Context, job *ojs.Job[any]) error {
		if job.Args == "a@example.com" {
			return ojs.DeadLetter(ojs.Errorf("smtp.refused", "mailbox %v is full", job.Args))
		}
		return nil
	})
	enqueue(ctx, eng, "email.send", "a@example.com", ojs.WithTags("vip"))
	enqueue(ctx, eng, "email.send", "b@example.com", ojs.WithTags("vip"))
	work(ctx, eng)

	f, err := inspect.Parse("state:discarded type:email.* error:mailbox tag:vip order:finished",
		time.Now())
	if err != nil {
		log.Fatal(err)
	}
	errors, err := eng.Jobs().Facets(ctx, f, inspect.FacetError, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(errors.Values, errors.Exact)
	page, err := eng.Jobs().Page(ctx, f, "", 20)
	if err != nil {
		log.Fatal(err)
	}
	for _, job := range page.Jobs {
		fmt.Println(job.Error.Message)
	}
	_, err = inspect.Parse("type:a b", time.Now())
	fmt.Println(err)
	// Output:
	// [{smtp.refused 1 false}] true
	// mailbox a@example.com is full
	// ojs: invalid filter, column 8: "b" is no term: write key:value, such as error:b
}

// Count the jobs that match, and say if there may be more.
func ExampleEngine_Jobs_count() {
	ctx, eng := begin()
	for i := range 5 {
		enqueue(ctx, eng, "report.build", i, ojs.WithPriority(i))
	}
	n, err := eng.Jobs().Count(ctx, inspect.Filter{Priority: &inspect.Range{Min: 3, Max: 9}}, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n.N, n.Exact, n.Looked)
	// Output: 2 true 5
}

// Break the waiting jobs of a queue down by type.
func ExampleEngine_Jobs_facets() {
	ctx, eng := begin()
	for _, jobType := range []string{"email.send", "report.build", "email.send"} {
		enqueue(ctx, eng, jobType, nil, ojs.WithQueue("mail"))
	}
	enqueue(ctx, eng, "email.send", nil)
	f := inspect.Filter{Queues: []string{"mail"}, States: []ojs.State{ojs.StateAvailable}}
	types, err := eng.Jobs().Facets(ctx, f, inspect.FacetType, 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range types.Values {
		fmt.Println(v.Value, v.N)
	}
	fmt.Println("exact:", types.Exact)
	// Output:
	// email.send 2
	// report.build 1
	// exact: true
}

// Ask why a job does not run.
func ExampleEngine_Jobs_explain() {
	ctx, eng := begin()
	eng.Handle("email.send", func(context.Context, *ojs.Job[any]) error { return nil })
	enqueue(ctx, eng, "email.send", "a@example.com")
	ticket := enqueue(ctx, eng, "email.send", "b@example.com")
	if _, err := eng.Queues().Pause(ctx, "default"); err != nil {
		log.Fatal(err)
	}
	why, err := eng.Jobs().Explain(ctx, ticket.ID)
	if err != nil {
		log.Fatal(err)
	}
	for _, reason := range why.Obstacles {
		fmt.Println(reason.Code, "-", reason.Text)
	}
	// Output:
	// paused - queue default is paused
	// not_running - this engine does not run, or is stopping
	// behind - jobs of queue default before it: 1
}

// See how long jobs of each queue and type wait and run, without a subscription.
func ExampleEngine_Meter() {
	ctx, eng := begin()
	eng.Handle("email.send", func(context.Context, *ojs.Job[any]) error { return nil })
	enqueue(ctx, eng, "email.send", "a@example.com")
	enqueue(ctx, eng, "email.send", "b@example.com")
	work(ctx, eng)

	for _, m := range eng.Meter() {
		fmt.Println(m.Queue, m.Type, m.Enqueued, m.Completed, m.Failed)
		fmt.Println(m.Wait.Quantile(0.99) < time.Minute, m.Run.Quantile(0.5) < time.Minute)
	}
	// Output:
	// default email.send 2 2 0
	// true true
}

// Look at the newest jobs first, page by page.
func ExampleEngine_Jobs_page() {
	ctx, eng := begin()
	for _, month := range []string{"2026-01", "2026-02", "2026-03"} {
		enqueue(ctx, eng, "report.build", month)
	}
	newest := inspect.Filter{Order: inspect.OrderNewest}
	first, err := eng.Jobs().Page(ctx, newest, "", 2)
	if err != nil {
		log.Fatal(err)
	}
	second, err := eng.Jobs().Page(ctx, newest, first.Next, 2)
	if err != nil {
		log.Fatal(err)
	}
	again, err := eng.Jobs().Page(ctx, newest, second.Prev, 2)
	if err != nil {
		log.Fatal(err)
	}
	for _, page := range []inspect.Page{first, second, again} {
		for _, job := range page.Jobs {
			fmt.Printf("%s.", job.Args.JSON())
		}
		fmt.Println()
	}
	// Output:
	// "2026-03"."2026-02".
	// "2026-01".
	// "2026-03"."2026-02".
}

// Look at the jobs of a type that have not run yet.
func ExampleEngine_Jobs_list() {
	ctx, eng := begin()
	enqueue(ctx, eng, "email.send", "a@example.com")
	enqueue(ctx, eng, "email.send", "b@example.com", ojs.WithDelay(time.Hour))
	enqueue(ctx, eng, "report.build", "2026-03")

	for job, err := range eng.Jobs().List(ctx, inspect.Filter{Types: []string{"email.*"}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.Type, job.State, job.Args)
	}
	// Output:
	// email.send available "a@example.com"
	// email.send scheduled "b@example.com"
}

// Cancel every waiting job of a queue.
func ExampleEngine_Jobs_cancel() {
	ctx, eng := begin()
	for n := range 3 {
		enqueue(ctx, eng, "thumbnail", n, ojs.WithQueue("images"))
	}
	var last operate.Progress
	for p, err := range eng.Jobs().Apply(ctx, operate.Bulk{
		Do: operate.CancelJobs(), On: inspect.Filter{Queues: []string{"images"}},
	}) {
		if err != nil {
			log.Fatal(err)
		}
		last = p
	}
	fmt.Println(last.Done, "cancelled,", last.Refused, "refused")
	// Output: 3 cancelled, 0 refused
}

// Keep a queue from delivering, and see what it has.
func ExampleEngine_Queues_pause() {
	ctx, eng := begin()
	if _, err := eng.Queues().Pause(ctx, "email"); err != nil {
		log.Fatal(err)
	}
	enqueue(ctx, eng, "email.send", "a@example.com", ojs.WithQueue("email"))
	queues, err := eng.Queues().List(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, q := range queues {
		fmt.Println(q.Name, q.State, q.Counts[ojs.StateAvailable])
	}
	// Output: email paused 1
}

// Three queues with shares of the work, a bound and a rate.
func ExampleWithQueueConfig() {
	ctx, eng := begin(
		engine.WithQueueConfig("web", engine.QueueConfig{Weight: 6}),
		engine.WithQueueConfig("mail",
			engine.QueueConfig{Weight: 3,
				RateLimit: ojs.RateLimit{Rate: ojs.Rate{Limit: 100, Per: time.Minute}}}),
		engine.WithQueueConfig("reports", engine.QueueConfig{Weight: 1, Concurrency: 2, MaxDepth: 1}),
	)
	enqueue(ctx, eng, "report.build", "2026-03", ojs.WithQueue("reports"))
	_, err := eng.Enqueue(ctx, "report.build", "2026-04", ojs.WithQueue("reports"))
	fmt.Println(errors.Is(err, ojs.ErrQueueFull))
	fmt.Println(err)
	// Output:
	// true
	// ojs: queue full: "reports" is at its maximum depth of 1
}

// Count jobs without looking at them.
func ExampleEngine_Stats() {
	ctx, eng := begin()
	eng.Handle("greet", func(context.Context, *ojs.Job[any]) error { return nil })
	enqueue(ctx, eng, "greet", "world")
	enqueue(ctx, eng, "greet", "moon", ojs.WithDelay(time.Hour))
	work(ctx, eng)
	stats, err := eng.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stats.Total[ojs.StateCompleted], stats.Total[ojs.StateScheduled])
	// Output: 1 1
}

// Replay what died of an outage, ten a second and on a queue of its own.
func ExampleEngine_Jobs_retry() {
	ctx, eng := begin()
	eng.Handle("email.send", func(_ context.Context, job *ojs.Job[any]) error {
		if job.Queue == "replay" {
			return nil
		}
		return ojs.DeadLetter(ojs.Errorf("smtp.down", "no answer"))
	})
	ticket := enqueue(ctx, eng, "email.send", "a@example.com")
	work(ctx, eng)

	for p, err := range eng.Jobs().Apply(ctx, operate.Bulk{
		Do:    operate.RetryJobs(ojs.WithQueue("replay")),
		On:    inspect.Filter{DeadLettered: true, ErrorTypes: []string{"smtp.*"}},
		Every: time.Second / 10,
	}) {
		if err != nil || p.Err != nil {
			log.Fatal(p.ID, err, p.Err)
		}
	}
	work(ctx, eng)
	job, err := ticket.Wait(ctx)
	fmt.Println(job.State, err)
	// Output: completed <nil>
}

// Replay dead letters of a mail server's outages after an hour each, at most three times
// a job.
func ExampleWithReplayRules() {
	eng, err := engine.New[string](memory.New(), engine.WithReplayRules(engine.ReplayRule{
		Name: "smtp-outage", Filter: inspect.Filter{ErrorTypes: []string{"smtp.*"}}, Delay: time.Hour,
		MaxReplays: 3,
	}))
	if err != nil {
		log.Fatal(err)
	}
	_ = eng // the rules apply while eng.Run works
}

// A handler that goes on where the attempt before it failed.
func ExampleEngine_checkpoint() {
	ctx, eng := begin()
	eng.Handle("import", func(ctx context.Context, job *ojs.Job[any]) error {
		row := 0
		if _, err := handler.LoadCheckpoint(ctx, &row); err != nil {
			return err
		}
		fmt.Println("attempt", job.Attempt, "from row", row)
		for ; row < 100; row++ {
			if row == 40 && job.Attempt == 1 {
				return errors.New("connection lost")
			}
			handler.Progress(ctx, float64(row)/100)
			if row%10 == 9 {
				if err := handler.SaveCheckpoint(ctx, row+1); err != nil {
					return err
				}
			}
		}
		return nil
	})
	ticket := enqueue(ctx, eng, "import", "users.csv",
		ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Millisecond}))
	run, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- eng.Run(run) }()
	job, err := ticket.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State, job.Progress)
	stop()
	<-ended
	// Output:
	// attempt 1 from row 0
	// attempt 2 from row 40
	// completed 1
}

// A worker of one's own takes a job, and the engine decides on what it answers.
func ExampleEngine_Worker() {
	ctx, eng := begin()
	ticket := enqueue(ctx, eng, "image.render", "scene.blend", ojs.WithQueue("gpu"))

	w := eng.Worker("gpu-1", fetch.Config{Queues: []string{"gpu"}})
	defer w.Close()
	d, err := w.Fetch(ctx) // waits for a job
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Job.Type, d.Job.Args)
	if err := d.Heartbeat(ctx); err != nil { // every so often, while it lasts
		log.Fatal(err)
	}
	if err := d.Ack(ctx, "scene.png"); err != nil {
		log.Fatal(err) // ojs.ErrLeaseLost: the worker has lost the job
	}
	var file string
	fmt.Println(ticket.Result(ctx, &file), file)
	// Output:
	// image.render "scene.blend"
	// <nil> scene.png
}

// A worker sends a heartbeat every 5 s, which renews its leases, and stops working on
// what it has lost.
func ExampleWorker_Heartbeat() {
	ctx, eng := begin()
	ticket := enqueue(ctx, eng, "image.render", "scene.blend")
	w := eng.Worker("gpu-1", fetch.Config{})
	defer w.Close()
	if _, err := w.Fetch(ctx); err != nil {
		log.Fatal(err)
	}
	if err := eng.Cancel(ctx, ticket.ID); err != nil {
		log.Fatal(err)
	}

	beat, err := w.Heartbeat(ctx)
	if err != nil {
		log.Fatal(err) // the storage's; the next heartbeat names what this one has not
	}
	for _, lost := range beat.Lost {
		fmt.Println(lost.ID == ticket.ID, lost.Cause)
	}
	fmt.Println(beat.State, len(beat.Held))
	// Output:
	// true ojs: cancelled
	// running 0
}

// A middleware measures every attempt, another one takes the tenant from the job's meta
// into the context.
func ExampleWithMiddleware() {
	type tenant struct{}
	ctx, eng := begin(
		engine.WithEnqueueHook(func(ctx context.Context, job *ojs.Job[any]) error {
			job.Meta["tenant_id"] = ctx.Value(tenant{})
			return nil
		}),
		engine.WithMiddleware(
			func(ctx context.Context, job *ojs.JobHeader, next handler.Next) error {
				err := next(ctx)
				fmt.Println(job.Type, "attempt", job.Attempt, err)
				return err
			},
			func(ctx context.Context, job *ojs.JobHeader, next handler.Next) error {
				return next(context.WithValue(ctx, tenant{}, job.Meta["tenant_id"]))
			},
		),
	)
	eng.Handle("bill", func(ctx context.Context, job *ojs.Job[any]) error {
		fmt.Println("for", ctx.Value(tenant{}))
		return nil
	})
	enqueue(context.WithValue(ctx, tenant{}, "acme"), eng, "bill", nil)
	work(ctx, eng)
	// Output:
	// for acme
	// bill attempt 1 <nil>
}

// Lines as JSON, from the enqueue on.
func ExampleWithLogger() {
	names := func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.MessageKey ||
			len(groups) == 1 && (a.Key == "job_type" || a.Key == "state") {
			return a
		}
		return slog.Attr{} // times and ids, which differ each time
	}
	ctx, eng := begin(
		engine.WithLogger(slog.New(slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: names}))))
	eng.Handle("greet", func(context.Context, *ojs.Job[any]) error { return nil })
	enqueue(ctx, eng, "greet", "world")
	work(ctx, eng)
	// Output:
	// {"msg":"job enqueued","ojs":{"job_type":"greet","state":"available"}}
	// {"msg":"job completed","ojs":{"job_type":"greet","state":"completed"}}
}

// Keep what has completed for an hour, and no more than a thousand finished jobs.
func ExampleWithRetention() {
	ctx, eng := begin(engine.WithRetention(engine.Retention{Completed: time.Hour, MaxFinished: 1000}))
	fmt.Println(eng.Health(ctx).Backend)
	// Output: memory
}

// The error for an invalid job names the field, and nothing is stored.
func ExampleEngine_Enqueue_invalid() {
	ctx, eng := begin()
	_, err := eng.Enqueue(ctx, "upload", make([]byte, jsonvalue.MaxEnvelope))
	var invalid *ojs.InvalidError
	if errors.As(err, &invalid) {
		fmt.Println(invalid.Code, invalid.Field)
	}
	// Output: validation.payload_too_large envelope
}

// At most one digest a user and day, even if the first has ended.
func ExampleEngine_Enqueue_throttle() {
	type Digest struct {
		UserID int `json:"user_id"`
		Items  int `json:"items"`
	}
	ctx, eng := begin()
	for items := range 3 {
		ticket := enqueue(ctx, eng, "digest.send", Digest{42, items},
			ojs.WithThrottle(24*time.Hour, "user_id"))
		fmt.Println(ticket.Deduplicated)
	}
	// Output:
	// false
	// true
	// true
}

// Index a document when it has not changed for a while, with the last of its changes.
func ExampleEngine_Enqueue_debounce() {
	type Change struct {
		Doc  string `json:"doc"`
		Text string `json:"text"`
	}
	ctx, eng := begin()
	for _, text := range []string{"a", "ab", "abc"} {
		enqueue(ctx, eng, "index", Change{"readme", text}, ojs.WithDebounce(2*time.Second, "doc"))
	}
	for job, err := range eng.Jobs().List(ctx, inspect.Filter{States: []ojs.State{ojs.StateScheduled}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.Args)
	}
	// Output: {"doc":"readme","text":"abc"}
}

// Index a document that changes all the time once a minute at least.
func ExampleEngine_Enqueue_debounceMax() {
	type Change struct {
		Doc  string `json:"doc"`
		Text string `json:"text"`
	}
	clk := clock.NewMock()
	ctx, eng := begin(engine.WithClock(clk))
	debounce := ojs.WithDebounceMax(10*time.Second, time.Minute, "doc")
	first := enqueue(ctx, eng, "index", Change{"readme", "0"}, debounce)
	for i := range 11 {
		clk.Add(5 * time.Second)
		enqueue(ctx, eng, "index", Change{"readme", fmt.Sprint(i + 1)}, debounce)
	}
	job, err := eng.Get(ctx, first.ID)
	check(err)
	fmt.Println(job.Args, "runs", job.ScheduledAt.Sub(job.CreatedAt), "after the first change")
	// Output: {"doc":"readme","text":"11"} runs 1m0s after the first change
}

// One running and one waiting: a sync that waits will see what has changed since the
// running one began.
func ExampleEngine_Enqueue_oneWaiting() {
	ctx, eng := begin()
	first := enqueue(ctx, eng, "sync", "user 42", ojs.WithOneWaiting())
	w := eng.Worker("w", fetch.Config{})
	if _, err := w.Fetch(ctx); err != nil { // the first one runs
		log.Fatal(err)
	}
	second := enqueue(ctx, eng, "sync", "user 42", ojs.WithOneWaiting())
	third := enqueue(ctx, eng, "sync", "user 42", ojs.WithOneWaiting())
	fmt.Println(second.ID == first.ID, third.ID == second.ID, third.Deduplicated)
	// Output: false true true
}

// An enqueue that may be repeated, as a web request is.
func ExampleEngine_Enqueue_idempotencyKey() {
	ctx, eng := begin()
	first := enqueue(ctx, eng, "payment.charge", 1999, ojs.WithIdempotencyKey("request-7f3a"))
	again := enqueue(ctx, eng, "payment.charge", 1999, ojs.WithIdempotencyKey("request-7f3a"))
	fmt.Println(again.ID == first.ID, again.Deduplicated)
	// Output: true true
}

// A policy in full: one invoice an order, and the second one is told about the first.
func ExampleEngine_Enqueue_unique() {
	type Order struct {
		ID string `json:"order_id"`
	}
	once := ojs.WithUnique(ojs.UniquePolicy{
		Keys:       ojs.ByQueue | ojs.ByArgs,
		ArgsKeys:   []string{"order_id"},
		Period:     24 * time.Hour,
		States:     ojs.AllStates(),
		OnConflict: ojs.ConflictReject,
	})
	ctx, eng := begin()
	first := enqueue(ctx, eng, "invoice.generate", Order{"o-17"}, once)
	_, err := eng.Enqueue(ctx, "invoice.generate", Order{"o-17"}, once)
	var dup *ojs.DuplicateError
	if errors.As(err, &dup) {
		fmt.Println(dup.ID == first.ID, dup.State)
	}
	// Output: true available
}

// A program that lists its recurring jobs in its code makes the storage agree with the
// list at its start.
func ExampleEngine_Cron_sync() {
	ctx := context.Background()
	eng, err := engine.New[string](memory.New())
	if err != nil {
		panic(err)
	}
	report := ojs.Define[string]("report.build")
	nightly := cron.Entry{Name: "reports.nightly", Schedule: "0 3 * * *", TimeZone: "Europe/Berlin",
		Job: report.New("day")}
	weekly := cron.Entry{Name: "reports.weekly", Schedule: "0 4 * * MON", TimeZone: "Europe/Berlin",
		Job: report.New("week")}

	if _, err := eng.Cron().Sync(ctx, "reports.", nightly, weekly); err != nil {
		panic(err)
	}
	removed, err := eng.Cron().Sync(ctx, "reports.", nightly) // the next version of the program
	fmt.Println(removed, err)
	// Output:
	// [reports.weekly] <nil>
}

// Cancel what a customer has queued: look first, then do it, a hundred at most, with a
// pause between two.
func ExampleEngine_Jobs_apply() {
	ctx, eng := begin()
	for i := range 3 {
		enqueue(ctx, eng, "report.build", i, ojs.WithMeta("tenant", "acme"))
	}
	enqueue(ctx, eng, "report.build", 3, ojs.WithMeta("tenant", "other"))
	op := operate.Bulk{
		Do:    operate.CancelJobs(),
		On:    inspect.Filter{Members: []inspect.Member{{Path: "meta.tenant", Value: "acme"}}},
		Limit: 100, Every: time.Millisecond,
	}
	first, err := eng.Jobs().Preview(ctx, op, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(op.Do, first.N, "jobs, the first with args", first.Sample[0].Args)

	for p, err := range eng.Jobs().Apply(ctx, op) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("done", p.Done, "refused", p.Refused) // break stops it
	}
	// Output:
	// cancel 3 jobs, the first with args 0
	// done 1 refused 0
	// done 2 refused 0
	// done 3 refused 0
}

// Mend the args of a job that waits.
func ExampleEngine_Jobs_edit() {
	ctx, eng := begin()
	ticket := enqueue(ctx, eng, "email.send", "a@exmaple.com", ojs.WithDelay(time.Hour))
	err := eng.Jobs().Edit(ctx, ticket.ID, operate.Edit{
		Args: "a@example.com", Meta: map[string]any{"ticket": "OPS-7"},
	})
	if err != nil {
		log.Fatal(err)
	}
	job, err := eng.Get(ctx, ticket.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Args, job.Meta)
	// Output: "a@example.com" map[ticket:OPS-7]
}

// Run again, with other args, a job that has completed.
func ExampleEngine_Jobs_copy() {
	ctx, eng := begin()
	eng.Handle("report.build", func(_ context.Context, job *ojs.Job[any]) error {
		fmt.Println("built", job.Args)
		return nil
	})
	ticket := enqueue(ctx, eng, "report.build", "2026-01")
	work(ctx, eng)
	if _, err := eng.Jobs().Copy(ctx, ticket.ID, "2026-02"); err != nil {
		log.Fatal(err)
	}
	work(ctx, eng)
	// Output:
	// built 2026-01
	// built 2026-02
}

// See the life of a job: what failed, who retried it, and what is to come.
func ExampleEngine_Jobs_timeline() {
	ctx, eng := begin()
	runs := 0
	eng.Handle("report.build", func(context.Context, *ojs.Job[any]) error {
		if runs++; runs == 1 {
			return ojs.Permanent(errors.New("no disk"))
		}
		return nil
	})
	ticket := enqueue(ctx, eng, "report.build", "2026-01")
	work(ctx, eng)
	if err := eng.Jobs().Retry(ojs.WithActor(ctx, "ann"), ticket.ID); err != nil {
		log.Fatal(err)
	}
	work(ctx, eng)

	life, err := eng.Jobs().Timeline(ctx, ticket.ID)
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range life.Attempts {
		fmt.Println("attempt", a.N, a.Outcome, a.Duration(time.Now()) < time.Minute)
	}
	for _, n := range life.Notes {
		fmt.Println(n.What, "by", n.By)
	}
	fmt.Println("to come:", len(life.Next))
	// Output:
	// attempt 1 failed true
	// attempt 1 completed true
	// retried by ann
	// to come: 0
}

// Keep what handlers log with the job, and read it after an attempt has failed.
func ExampleEngine_Jobs_logs() {
	ctx, eng := begin(engine.WithJobLogs(slog.LevelInfo))
	eng.Handle("report.build", func(ctx context.Context, job *ojs.Job[any]) error {
		handler.Logger(ctx).Info("reading", "month", job.Args)
		return ojs.Permanent(errors.New("no disk"))
	})
	ticket := enqueue(ctx, eng, "report.build", "2026-01")
	work(ctx, eng)

	logs, err := eng.Jobs().Logs(ctx, ticket.ID)
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range logs {
		for _, raw := range l.Lines {
			var line struct{ Level, Msg, Month string }
			if err := json.Unmarshal(raw, &line); err != nil {
				log.Fatal(err)
			}
			fmt.Println("attempt", l.Attempt, line.Level, line.Msg, line.Month)
		}
	}
	// Output: attempt 1 INFO reading 2026-01
}

// Group failures by what they have in common, and retry a group with a pause between two
// jobs.
func ExampleEngine_Jobs_failures() {
	ctx, eng := begin()
	down := true
	eng.Handle("email.send", func(_ context.Context, job *ojs.Job[any]) error {
		if down {
			return ojs.DeadLetter(ojs.Errorf("smtp.refused", "mailbox %q: code %d", job.Args, 550))
		}
		return nil
	})
	enqueue(ctx, eng, "email.send", "a@example.com")
	enqueue(ctx, eng, "email.send", "b@example.com")
	work(ctx, eng)

	failures, err := eng.Jobs().Failures(ctx, inspect.Filter{}, 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range failures.Groups {
		fmt.Println(g.N, g.Type, g.ErrorType, g.Message)
		down = false
		again := operate.Bulk{
			Do: operate.RetryJobs(), On: inspect.Filter{Failure: g.Key}, Every: time.Millisecond,
		}
		for p, err := range eng.Jobs().Apply(ctx, again) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println("retried", p.Done)
		}
	}
	// Output:
	// 2 email.send smtp.refused mailbox #: code #
	// retried 1
	// retried 2
}

// Give a queue less of a running engine.
func ExampleEngine_ConfigureQueue() {
	ctx, eng := begin(
		engine.WithQueueConfig("mail", engine.QueueConfig{}),
		engine.WithQueueConfig("reports", engine.QueueConfig{Concurrency: 5, MaxDepth: 1000}),
	)
	was := eng.Describe().Configs["reports"]
	to := was
	to.Concurrency = 1
	if err := eng.ConfigureQueue(ctx, "reports", to); err != nil {
		log.Fatal(err)
	}
	fmt.Println("reports had", was.Concurrency, "and has", to.Concurrency)
	// Output: reports had 5 and has 1
}

// A queue is served while there is something to import.
func ExampleEngine_AddQueue() {
	eng, err := engine.New[string](memory.New(), engine.WithQueueConfig("default", engine.QueueConfig{}))
	if err != nil {
		log.Fatal(err)
	}
	eng.Handle("import", func(_ context.Context, job *ojs.Job[string]) error {
		fmt.Println("imported", job.Args)
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go eng.Run(ctx)
	ticket, err := eng.Enqueue(ctx, "import", "users.csv", ojs.WithQueue("imports"))
	if err != nil {
		log.Fatal(err)
	}

	if err := eng.AddQueue(ctx, "imports", engine.QueueConfig{Concurrency: 2}); err != nil {
		log.Fatal(err)
	}
	if _, err := ticket.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	if err := eng.RemoveQueue(ctx, "imports"); err != nil {
		log.Fatal(err)
	}
	// Output: imported users.csv
}

// Pause a type whose handler is broken, in all processes.
func ExampleEngine_Queues_pauseType() {
	ctx, eng := begin()
	eng.Handle("email.send", func(context.Context, *ojs.Job[any]) error { return nil })
	if _, err := eng.Queues().PauseType(ojs.WithActor(ctx, "ann"), "email.send", "bad release"); err != nil {
		log.Fatal(err)
	}
	ticket := enqueue(ctx, eng, "email.send", "a@example.com")
	work(ctx, eng)
	pauses, err := eng.Queues().Pauses(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range pauses {
		job, err := eng.Get(ctx, ticket.ID)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(p.Type, "is paused by", p.By, "-", p.Reason, "- the job is", job.State)
	}
	// Output: email.send is paused by ann - bad release - the job is available
}

// Stop everything for maintenance, in all processes. A queue that was paused before stays
// paused after it.
func ExampleEngine_Queues_pauseAll() {
	ctx, eng := begin()
	eng.Handle("email.send", func(context.Context, *ojs.Job[any]) error { return nil })
	if err := eng.Queues().PauseAll(ctx, "upgrade"); err != nil {
		log.Fatal(err)
	}
	ticket := enqueue(ctx, eng, "email.send", "a@example.com")
	work(ctx, eng)
	job, err := eng.Get(ctx, ticket.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.State)

	if err := eng.Queues().ResumeAll(ctx); err != nil {
		log.Fatal(err)
	}
	work(ctx, eng)
	job, err = ticket.Wait(ctx)
	fmt.Println(job.State, err)
	// Output:
	// available
	// completed <nil>
}

// See which processes work on the storage, and tell one to take no more jobs.
func ExampleEngine_Workers() {
	ctx, eng := begin(engine.WithReports(engine.Reports{Version: "v1.4.0"}))
	eng.Handle("email.send", func(context.Context, *ojs.Job[any]) error { return nil })
	run, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- eng.Run(run) }()

	var nodes []inspect.Node
	for len(nodes) == 0 { // until it has reported
		var err error
		if nodes, err = eng.Jobs().Nodes(ctx); err != nil {
			log.Fatal(err)
		}
	}
	for _, n := range nodes {
		fmt.Println(n.Version, n.Types, n.Busy, "of", n.Slots)
		if err := eng.Workers().Quiet(ctx, n.ID); err != nil { // it obeys with its next report
			log.Fatal(err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output: v1.4.0 [email.send] 0 of 10
}

// See what all processes have done in the last hours, without a metrics server.
func ExampleEngine_History() {
	ctx, eng := begin(engine.WithReports(engine.Reports{}))
	eng.Handle("email.send", func(context.Context, *ojs.Job[any]) error { return nil })
	enqueue(ctx, eng, "email.send", "a@example.com")
	work(ctx, eng)

	day, err := eng.History(ctx, time.Now().Add(-24*time.Hour), time.Now(), 0)
	if err != nil {
		log.Fatal(err)
	}
	completed := make(map[string]uint64) // of all minutes
	for _, bucket := range day {
		for _, m := range bucket.Meters {
			completed[m.Queue+" "+m.Type] += m.Completed
		}
	}
	fmt.Println(day[0].Width, completed)
	// Output: 1m0s map[default email.send:1]
}
