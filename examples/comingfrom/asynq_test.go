package comingfrom_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/policy/preset"
)

func Example_asynq() {
	// asynq.Config{Concurrency: 20, Queues: map[string]int{"critical": 6, "default": 3}}
	ctx, eng := begin(
		engine.WithConcurrency(20),
		engine.WithQueueConfig("critical", engine.QueueConfig{Weight: 6}),
		engine.WithQueueConfig("default", engine.QueueConfig{Weight: 3}),
		engine.WithDefaults(ojs.WithRetry(preset.Asynq())),
	)

	// mux.HandleFunc; asynq.SkipRetry; ResultWriter
	eng.Handle("email.send", func(ctx context.Context, job *ojs.Job[any]) error {
		if job.Args.(map[string]any)["to"] == "" {
			return ojs.DeadLetter(errors.New("no address"))
		}
		return handler.SetResult(ctx, "sent")
	})

	// client.Enqueue(task, asynq.MaxRetry(5), asynq.Queue("critical"),
	// asynq.Unique(time.Hour))
	ticket, err := eng.Enqueue(ctx, "email.send", Email{To: ""},
		ojs.WithMaxAttempts(6), ojs.WithQueue("critical"),
		ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByQueue | ojs.ByArgs, Period: time.Hour}))

	check(err)
	_, err = eng.Enqueue(ctx, "email.send", Email{To: ""}, ojs.WithQueue("critical"),
		ojs.WithUnique(ojs.UniquePolicy{Keys: ojs.ByQueue | ojs.ByArgs, Period: time.Hour}))
	fmt.Println(errors.Is(err, ojs.ErrDuplicate))
	work(ctx, eng)

	// Inspector.ListArchivedTasks, Inspector.RunTask
	for job, err := range eng.DeadLetters().List(ctx, inspect.Filter{Queues: []string{"critical"}}) {
		check(err)
		fmt.Println(job.ID == ticket.ID, job.Attempt, "of", job.MaxAttempts, job.Error.Message)
		check(eng.DeadLetters().Retry(ctx, job.ID))
	}
	// Output:
	// true
	// true 1 of 6 no address
}
