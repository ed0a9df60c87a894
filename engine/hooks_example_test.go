package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
)

// reporter stands for the client of a service such as Sentry.
type reporter struct{}

func (reporter) CaptureException(err error, tags map[string]string) {
	fmt.Println("reported:", err, tags["type"], tags["attempt"])
}

// A middleware reports every failed attempt with its error. Outside of Recover it gets a
// panic as an error, too. An answer such as Snooze is no failure, and is not reported.
func ExampleWithMiddleware_errorReporter() {
	var sentry reporter
	report := func(ctx context.Context, job *ojs.JobHeader, next handler.Next) error {
		err := next(ctx)
		var answer *ojs.SnoozeError
		if err != nil && !errors.As(err, &answer) {
			sentry.CaptureException(err, map[string]string{
				"job": job.ID, "type": job.Type, "attempt": fmt.Sprint(job.Attempt),
			})
		}
		return err
	}
	ctx, eng := begin(engine.WithMiddleware(report, handler.Recover))
	eng.Handle("bill", func(ctx context.Context, job *ojs.Job[any]) error {
		panic("no account")
	})
	enqueue(ctx, eng, "bill", nil, ojs.WithMaxAttempts(1))
	work(ctx, eng)
	// Output:
	// reported: panic: no account bill 1
}

// failures is an observer that reports each job that was given up: timeouts and lost
// leases included, which no middleware sees. It must not block the engine: a client that
// does belongs behind a channel, or behind Subscribe.
type failures struct{ to reporter }

func (f failures) EventTypes() []event.Type { return []event.Type{event.Discarded} }

func (f failures) Observe(ev *event.Event) {
	f.to.CaptureException(errors.New(ev.Failure.Message), map[string]string{
		"type": ev.Job.Type, "attempt": fmt.Sprint(ev.Failure.Attempt),
	})
}

func ExampleWithObserver_errorReporter() {
	ctx, eng := begin(engine.WithObserver(failures{}))
	eng.Handle("bill", func(ctx context.Context, job *ojs.Job[any]) error {
		return ojs.Permanent(errors.New("no account"))
	})
	enqueue(ctx, eng, "bill", nil)
	work(ctx, eng)
	// Output:
	// reported: no account bill 1
}

// A subscription calls a webhook for each completed or discarded job. The body is the
// event as JSON. For calls that must arrive, enqueue a job that makes them instead.
func ExampleEngine_Subscribe_webhook() {
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var got struct{ Type string }
		_ = json.Unmarshal(body, &got)
		fmt.Println("webhook:", got.Type)
	}))
	defer hook.Close()

	ctx, eng := begin()
	sub := eng.Subscribe(engine.EventFilter{Types: []event.Type{event.Completed, event.Discarded}})
	called := make(chan struct{})
	go func() {
		defer close(called)
		for ev := range sub.C() {
			body, err := json.Marshal(ev)
			if err != nil {
				log.Print(err)
				continue
			}
			answer, err := http.Post(hook.URL, "application/json", bytes.NewReader(body))
			if err != nil {
				log.Print(err)
				continue
			}
			_ = answer.Body.Close()
		}
	}()

	eng.Handle("bill", func(context.Context, *ojs.Job[any]) error { return nil })
	enqueue(ctx, eng, "bill", nil)
	work(ctx, eng)
	sub.Close()
	<-called
	// Output:
	// webhook: job.completed
}
