package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/workflow"
)

type Email struct {
	To      string `json:"to"`
	Subject string `json:"subject,omitempty"`
}

var SendEmail = ojs.Define[Email]("email.send", ojs.WithMaxAttempts(4))

// A chain of retries, to the second, in no time.
func ExampleNew() {
	t := newT() // in a test: its *testing.T
	defer t.end()

	eng := enginetest.New[Email](t)
	eng.Handle("email.send", func(_ context.Context, job *ojs.Job[Email]) error {
		fmt.Println(eng.Elapsed(), "attempt", job.Attempt)
		return errors.New("smtp down")
	})
	ticket := eng.MustEnqueue(SendEmail.New(Email{To: "a@b.c"}, ojs.WithRetry(ojs.RetryPolicy{
		Jitter: ojs.JitterOff, OnExhaustion: ojs.ExhaustionDeadLetter,
	})))
	eng.Advance(10 * time.Second)
	eng.RequireDeadLettered(ticket.ID)
	// Output:
	// 0s attempt 1
	// 1s attempt 2
	// 3s attempt 3
	// 7s attempt 4
}

// A handler that waits where no clock can see it, in a bubble.
func ExampleTest() {
	_ = func(t *testing.T) { // func TestTimeout(t *testing.T)
		enginetest.Test(t, func(t *testing.T, eng *enginetest.Engine[any]) {
			eng.Handle("report.build", func(ctx context.Context, _ *ojs.Job[any]) error {
				<-ctx.Done()
				return ctx.Err()
			})
			ticket := eng.MustEnqueue(ojs.NewDraft("report.build", nil, ojs.WithTimeout(time.Minute),
				ojs.WithMaxAttempts(1)))
			eng.Advance(time.Minute)
			job := eng.RequireState(ticket.ID, ojs.StateDiscarded)
			if job.Error.Type != policy.ErrorTypeTimeout {
				t.Error(job.Error)
			}
		})
	}
}

// The test that applications need most: that its code enqueues the right job.
func ExampleNewFake() {
	t := newT()
	defer t.end()
	signUp := func(ctx context.Context, q ojs.Enqueuer, address string) error {
		_, err := SendEmail.Enqueue(ctx, q, Email{address, "Welcome"}, ojs.WithDelay(5*time.Minute))
		return err
	}

	q := enginetest.NewFake[any](t)
	if err := signUp(context.Background(), q, "a@b.c"); err != nil {
		t.Fatalf("%v", err)
	}
	q.RequireEnqueued(ojs.NewDraft("email.send", map[string]any{"to": "a@b.c"}, ojs.WithDelay(5*time.Minute)))
	q.RefuteEnqueued(ojs.NewDraft("email.send", map[string]any{"to": "somebody@else"}))
	q.RefuteEnqueued(ojs.NewDraft("report.build", nil))
	fmt.Println(len(q.AllEnqueued()))
	// Output: 1
}

// Code that enqueues and goes on as if the job had run.
func ExampleNewInline() {
	t := newT()
	defer t.end()
	eng := enginetest.NewInline[Email](t)
	eng.Handle("email.send", func(_ context.Context, job *ojs.Job[Email]) error {
		if job.Args.To == "" {
			return errors.New("no address")
		}
		fmt.Println("sent to", job.Args.To)
		return nil
	})
	_, err := eng.Enqueue(context.Background(), "email.send", Email{To: "a@b.c"}, ojs.WithDelay(time.Hour))
	fmt.Println(err)
	_, err = eng.Enqueue(context.Background(), "email.send", Email{})
	fmt.Println(err)
	// Output:
	// sent to a@b.c
	// <nil>
	// no address
}

// One attempt by itself.
func ExampleEngine_Work() {
	t := newT()
	defer t.end()
	eng := enginetest.New[any](t)
	eng.Register(handler.For(SendEmail, func(context.Context, *ojs.Job[Email]) error {
		return ojs.Discard(errors.New("unsubscribed"))
	}))
	w := eng.Work(SendEmail.New(Email{To: "a@b.c"}))
	fmt.Println(w.Job.State, w.Err)
	// Output: discarded unsubscribed
}

// A dependency that is down, without taking it down.
func ExampleEngine_FailNext() {
	t := newT()
	defer t.end()
	eng := enginetest.New[Email](t)
	eng.Handle("email.send", func(context.Context, *ojs.Job[Email]) error { return nil })
	eng.FailNext("email.send", errors.New("connection refused"))
	ticket := eng.MustEnqueue(SendEmail.New(Email{To: "a@b.c"}))
	eng.Drain()
	fmt.Println(eng.RequireState(ticket.ID, ojs.StateRetryable).Error.Message)
	eng.Advance(time.Minute)
	fmt.Println(eng.RequireCompleted(ticket.ID).Attempt)

	eng.FailAll("email.send", ojs.DeadLetter(errors.New("gone for good")))
	ticket = eng.MustEnqueue(SendEmail.New(Email{To: "a@b.c"}))
	eng.Drain()
	eng.RequireDeadLettered(ticket.ID)
	// Output:
	// connection refused
	// 2
}

// A whole workflow at exact times: the delay of a step counts from when it may start.
func ExampleEngine_RequireWorkflow() {
	t := newT()
	defer t.end()
	eng := enginetest.New[Email](t)
	eng.Handle("email.send", func(ctx context.Context, job *ojs.Job[Email]) error {
		fmt.Println(eng.Elapsed(), job.Args.Subject)
		return handler.Sleep(ctx, time.Minute)
	})
	mail := func(step, subject string, opts ...ojs.Option) workflow.Part {
		return workflow.Step(step, SendEmail.New(Email{To: "a@b.c", Subject: subject}, opts...))
	}
	id := eng.MustStart(workflow.New("sign-up", workflow.Chain(
		mail("welcome", "Welcome"),
		mail("remind", "How is it going?", ojs.WithDelay(time.Hour)))))

	eng.Advance(time.Minute)
	eng.RequireStep(id, "welcome", ojs.StateCompleted)
	eng.RequireStep(id, "remind", ojs.StateScheduled)
	eng.Advance(time.Hour + time.Minute)
	s := eng.RequireWorkflow(id, workflow.StateCompleted)
	fmt.Println("took", s.FinishedAt.Sub(s.CreatedAt))
	// Output:
	// 0s Welcome
	// 1h1m0s How is it going?
	// took 1h2m0s
}

// A recurring job over three days, one of which has 23 hours.
func ExampleEngine_SetTime() {
	t := newT()
	defer t.end()
	eng := enginetest.New[any](t)
	eng.SetTime(time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC))
	err := eng.Cron().Set(context.Background(), cron.Entry{
		Name: "nightly", Schedule: "0 3 * * *", TimeZone: "Europe/Berlin",
		Job:     ojs.NewDraft("report.build", nil),
		Overlap: cron.OverlapAllow,
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	eng.Advance(72 * time.Hour)
	for _, job := range eng.RequireEnqueuedN(3, ojs.NewDraft("report.build", nil)) {
		fmt.Println(job.Meta["cron_triggered_at"])
	}
	// Output:
	// 2026-03-29T01:00:00.000Z
	// 2026-03-30T01:00:00.000Z
	// 2026-03-31T01:00:00.000Z
}

// exampleT stands for a *testing.T where there is none.
type exampleT struct {
	testing.TB
	cleanups []func()
}

func newT() *exampleT { return new(exampleT) }

func (t *exampleT) Helper()                           {}
func (t *exampleT) Output() io.Writer                 { return io.Discard }
func (t *exampleT) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (t *exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleT) end() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
}
