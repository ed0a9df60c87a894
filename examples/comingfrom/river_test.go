package comingfrom_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/policy/preset"
)

func Example_river() {
	ctx, eng := begin(engine.WithQueueConfig("default", engine.QueueConfig{Concurrency: 100}))

	// JobArgs with Kind and InsertOpts
	sendEmail := ojs.Define[Email]("email.send", ojs.WithRetry(preset.River()), ojs.WithTimeout(time.Minute))

	// Worker.Work; river.JobSnooze and river.JobCancel
	eng.Register(handler.For(sendEmail, func(ctx context.Context, job *ojs.Job[Email]) error {
		switch {
		case job.Args.To == "":
			return ojs.Discard(errors.New("no address"))
		case job.Args.User == 0:
			return ojs.Snooze(5 * time.Minute)
		}
		return nil
	}))

	// Insert with UniqueOpts{ByArgs: true, ByPeriod: time.Hour}
	once := ojs.WithUnique(ojs.UniquePolicy{
		Keys: ojs.ByArgs, Period: time.Hour, OnConflict: ojs.ConflictIgnore,
		States: []ojs.State{ojs.StateAvailable, ojs.StateActive, ojs.StatePending, ojs.StateRetryable,
			ojs.StateScheduled, ojs.StateCompleted},
	})
	ticket := must(sendEmail.Enqueue(ctx, eng, Email{To: "a@b.c", User: 1}, once))
	again := must(sendEmail.Enqueue(ctx, eng, Email{To: "a@b.c", User: 1}, once))

	work(ctx, eng)
	job := must(eng.Get(ctx, ticket.ID))
	fmt.Println(job.State, again.Deduplicated, job.MaxAttempts)
	// Output: completed true 25
}
