package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/remote"
	"github.com/ojsengine/ojs/server"
)

type order struct {
	N int `json:"n"`
}

var (
	charge  = ojs.Define[order]("order.charge")
	receipt = ojs.Define[order]("order.receipt")
)

var quick = ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Millisecond, Jitter: ojs.JitterOff})

// One program runs on an engine and on a worker: the type of what it is given is all that
// differs.
func TestOneLine(t *testing.T) {
	type face interface {
		ojs.Enqueuer
		Enqueue(ctx context.Context, jobType string, args string, opts ...ojs.Option) (ojs.Ticket, error)
		Handle(jobType string, f handler.Func[string], opts ...handler.Option)
		Register(handlers ...handler.Handler)
		Run(ctx context.Context) error
		Get(ctx context.Context, id string) (*ojs.JobInfo, error)
		Wait(ctx context.Context, id string) (*ojs.JobInfo, error)
		Cancel(ctx context.Context, id string) error
	}
	r := newRig(t)
	w := worker[string](r)
	var eng face = w
	eng.Handle("greet", handler.Returning(func(_ context.Context, job *ojs.Job[string]) (string, error) {
		return "hello, " + job.Args, nil
	}))
	eng.Register(handler.For(charge, func(ctx context.Context, job *ojs.Job[order]) error {
		if handler.Job(ctx).ID != job.ID || handler.Job(ctx).Attempt != 1 {
			return errors.New("another job")
		}
		return handler.SetResult(ctx, job.Args.N+1)
	}))
	runs(r, w)
	ctx := within(t)
	ticket, err := eng.Enqueue(ctx, "greet", "world", ojs.WithTags("a"), ojs.WithMeta("k", 1))
	if err != nil {
		t.Fatal(err)
	}
	var text string
	if err := ticket.Result(ctx, &text); err != nil || text != "hello, world" {
		t.Errorf("%q, %v", text, err)
	}
	job, err := eng.Get(ctx, ticket.ID)
	if err != nil || job.State != ojs.StateCompleted || job.Meta["k"] != 1.0 ||
		job.Timeout != ojs.DefaultTimeout ||
		job.Lease != ojs.DefaultLease || job.MaxAttempts != 3 || job.Extra != nil {
		t.Errorf("%+v, %v", job, err)
	}
	if tags, _ := job.Meta["tags"].([]any); len(tags) != 1 || tags[0] != "a" {
		t.Errorf("tags %v", job.Meta["tags"])
	}
	ticket, err = charge.Enqueue(ctx, eng, order{2})
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := ticket.Result(ctx, &n); err != nil || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
}

// The error of a handler decides on its job as it does in an engine.
func TestOutcomes(t *testing.T) {
	r := newRig(t)
	w := worker[any](r)
	c := r.dial()
	boom := ojs.Errorf("order.refused", "no")
	for name, test := range map[string]struct {
		returns func(n int) error // of attempt n
		opts    []ojs.Option
		state   ojs.State
		dead    bool
		attempt int
		failure string
		code    ojs.Code
	}{
		"retry": {func(n int) error { return map[bool]error{true: boom}[n < 3] }, nil,
			ojs.StateCompleted, false, 3, "", ""},
		"exhausted": {func(int) error { return boom }, nil, ojs.StateDiscarded, false, 3, "order.refused",
			ojs.CodeRetry},
		"plain": {func(int) error { return errors.New("x") }, []ojs.Option{ojs.WithMaxAttempts(1)},
			ojs.StateDiscarded, false, 1, "error", ojs.CodeRetry},
		"permanent": {func(int) error { return ojs.Permanent(boom) }, nil, ojs.StateDiscarded, false, 1,
			"order.refused", ojs.CodeFail},
		"discard": {func(int) error { return ojs.Discard(boom) }, nil, ojs.StateDiscarded, false, 1,
			"order.refused", ojs.CodeDiscard},
		"dead_letter": {func(int) error { return ojs.DeadLetter(boom) }, nil, ojs.StateDiscarded, true, 1,
			"order.refused", ojs.CodeDeadLetter},
		"panic": {func(int) error { panic("ouch") }, []ojs.Option{ojs.WithMaxAttempts(1)},
			ojs.StateDiscarded, false, 1, "panic", ojs.CodeRetry},
		"retry_after": {func(n int) error { return ojs.RetryAfter(0, map[bool]error{true: boom}[n < 2]) },
			[]ojs.Option{ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Minute,
				MaxInterval: time.Hour})}, ojs.StateCompleted, false, 2, "", ""},
	} {
		test.opts = append([]ojs.Option{quick}, test.opts...)
		var attempts atomic.Int64
		jobType := ojs.Define[order]("outcome." + name)
		w.Register(handler.For(jobType, func(context.Context, *ojs.Job[order]) error {
			return test.returns(int(attempts.Add(1)))
		}))
		t.Run(name, func(t *testing.T) {
			ctx := within(t)
			ticket, err := jobType.Enqueue(ctx, c, order{}, test.opts...)
			if err != nil {
				t.Fatal(err)
			}
			t.Parallel()
			job, err := ticket.Wait(ctx)
			if job == nil || job.State != test.state || job.DeadLettered() != test.dead ||
				job.Attempt != test.attempt {
				t.Fatalf("%+v, %v", job, err)
			}
			if test.failure == "" {
				return
			}
			if e := ended(err); e == nil || e.Last == nil || e.Last.Type != test.failure ||
				e.Last.Code != test.code {
				t.Errorf("%v: %+v", err, job.Error)
			}
		})
	}
	t.Run("args that do not decode are a dead letter", func(t *testing.T) {
		ctx := within(t)
		ticket, err := c.Enqueue(ctx, "outcome.retry", "no order")
		if err != nil {
			t.Fatal(err)
		}
		t.Parallel()
		_, err = ticket.Wait(ctx)
		if e := ended(err); e == nil || !e.DeadLettered || e.Last.Type != "args_invalid" {
			t.Errorf("%v", err)
		}
	})
	t.Run("a snooze spends no attempt", func(t *testing.T) {
		var n atomic.Int64
		w.Register(handler.For(ojs.Define[order]("outcome.snooze"), func(context.Context,
			*ojs.Job[order]) error {
			if n.Add(1) == 1 {
				return ojs.Snooze(time.Millisecond)
			}
			return nil
		}))
		t.Parallel()
		ctx := within(t)
		ticket, err := c.Enqueue(ctx, "outcome.snooze", order{}, ojs.WithMaxAttempts(1))
		if err != nil {
			t.Fatal(err)
		}
		if job, err := ticket.Wait(ctx); err != nil || job.Attempt != 1 || n.Load() != 2 {
			t.Errorf("%+v, %v", job, err)
		}
	})
	t.Run("a snooze lasts", func(t *testing.T) {
		w.Register(handler.For(ojs.Define[order]("outcome.later"),
			func(context.Context, *ojs.Job[order]) error { return ojs.Snooze(time.Hour) }))
		t.Parallel()
		ctx := within(t)
		ticket, err := c.Enqueue(ctx, "outcome.later", order{})
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the job waits", func() bool {
			job, err := c.Get(ctx, ticket.ID)
			return err == nil && job.State == ojs.StateRetryable && job.Attempt == 0 &&
				time.Until(job.NextRetryAt) > 50*time.Minute
		})
	})
	runs(r, w)
}

// F052, F068: the context of a job that is cancelled ends with the next heartbeat.
func TestCancelRunning(t *testing.T) {
	for _, how := range []string{"the worker's heartbeat", "handler.Heartbeat"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			mock := clock.NewMock()
			mock.Set(time.Now())
			w, c := worker[any](r, remote.WithClock(mock)), r.dial()
			started, cause := make(chan struct{}), make(chan error, 1)
			ask := make(chan struct{})
			w.Register(handler.For(charge, func(ctx context.Context, _ *ojs.Job[order]) error {
				close(started)
				if how == "handler.Heartbeat" {
					<-ask
					if err := handler.Heartbeat(ctx); !errors.Is(err, ojs.ErrCancelled) {
						t.Errorf("Heartbeat: %v", err)
					}
				}
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return errors.New("dropped")
			}))
			runs(r, w)
			ctx := within(t)
			ticket, err := charge.Enqueue(ctx, c, order{})
			if err != nil {
				t.Fatal(err)
			}
			<-started
			if err := c.Cancel(ctx, ticket.ID); err != nil {
				t.Fatal(err)
			}
			close(ask)
			until(t, "the handler ends", func() bool {
				mock.Add(20 * time.Millisecond) // not so fast that a call runs out of time under load
				return len(cause) == 1
			})
			if err := <-cause; err != ojs.ErrCancelled {
				t.Errorf("cause %v", err)
			}
			_, err = ticket.Wait(ctx)
			if e := ended(err); e == nil || e.State != ojs.StateCancelled {
				t.Errorf("%v", err)
			}
			if err := c.Cancel(ctx, ticket.ID); err != nil {
				t.Errorf("again: %v", err)
			}
			if n := r.calls("POST /workers/nack"); n != 0 {
				t.Errorf("%d answers for a job that was lost", n)
			}
		})
	}
}

// A job whose lease runs out is run again. The result of the first handler is dropped.
func TestLostJob(t *testing.T) {
	r := newRig(t)
	mock := clock.NewMock() // no heartbeat renews the lease
	mock.Set(time.Now())
	w, c := worker[any](r, remote.WithClock(mock)), r.dial()
	var n atomic.Int64
	cause, release := make(chan error, 1), make(chan struct{})
	w.Register(handler.For(charge, func(ctx context.Context, job *ojs.Job[order]) error {
		if n.Add(1) > 1 {
			return handler.SetResult(ctx, job.Attempt)
		}
		<-ctx.Done()
		cause <- context.Cause(ctx)
		<-release
		return handler.SetResult(ctx, "late")
	}))
	stop := runs(r, w)
	ctx := within(t)
	ticket, err := charge.Enqueue(ctx, c, order{}, ojs.WithLease(100*time.Millisecond),
		ojs.WithMaxAttempts(100)) // under load the lease of another attempt may run out, too
	if err != nil {
		t.Fatal(err)
	}
	var attempt int
	if err := ticket.Result(ctx, &attempt); err != nil || attempt < 2 {
		t.Errorf("result of attempt %d, %v", attempt, err)
	}
	if err := <-cause; err != ojs.ErrLeaseLost {
		t.Errorf("cause %v", err)
	}
	close(release)
	go func() {
		for ctx.Err() == nil {
			mock.Add(time.Second)
		}
	}()
	if err := stop(); err != nil {
		t.Error(err)
	}
	job, err := c.Get(ctx, ticket.ID)
	if err != nil || string(job.Result) != strconv.Itoa(attempt) || len(job.Errors) != attempt-1 ||
		job.Errors[0].Type != "visibility_timeout" {
		t.Errorf("%+v, %v", job, err)
	}
}

// A server that is away for a while loses no job, and neither do its clients.
func TestServerRestarts(t *testing.T) {
	r := newRig(t)
	w, c := worker[any](r, remote.WithConcurrency(4)), r.dial()
	started, goOn := make(chan int, 10), make(chan struct{})
	w.Register(handler.For(charge, func(ctx context.Context, job *ojs.Job[order]) error {
		started <- job.Args.N
		<-goOn
		return handler.SetResult(ctx, job.Args.N)
	}))
	runs(r, w)
	ctx := within(t)
	var tickets []ojs.Ticket
	for n := range 6 {
		ticket, err := charge.Enqueue(ctx, c, order{n})
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, ticket)
	}
	for range 4 {
		<-started
	}
	waited := make(chan error, 1)
	go func() {
		_, err := tickets[0].Wait(ctx)
		waited <- err
	}()
	r.halt()
	close(goOn) // the outcomes meet no server
	until(t, "an outcome is sent", func() bool { return r.calls("POST /workers/ack") > 0 })
	r.start()
	for n, ticket := range tickets {
		var got int
		if err := ticket.Result(ctx, &got); err != nil || got != n {
			t.Errorf("job %d: %d, %v", n, got, err)
		}
	}
	if err := <-waited; err != nil {
		t.Errorf("the wait during the restart: %v", err)
	}
	if n := len(started); n != 2 {
		t.Errorf("%d more attempts, not 2: a job ran twice", n)
	}
}

// An enqueue whose answer is lost is repeated, and stores its jobs once.
func TestLostAnswers(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	for name, n := range map[string]int{"/jobs": 1, "/jobs/batch": 3} {
		var lost atomic.Bool
		r.loses(func(req *http.Request) bool {
			return req.Method == "POST" && req.URL.Path == "/ojs/v1"+name && !lost.Swap(true)
		})
		ctx := within(t)
		drafts := make([]ojs.Draft, n)
		for i := range drafts {
			drafts[i] = receipt.New(order{i}, ojs.WithQueue(fmt.Sprintf("q%d", n)))
		}
		tickets, err := c.EnqueueMany(ctx, drafts...)
		if err != nil || len(tickets) != n || tickets[0].Deduplicated ||
			tickets[0].State != ojs.StateAvailable {
			t.Errorf("%s: %+v, %v", name, tickets, err)
		}
		if got := r.count(fmt.Sprintf("q%d", n), ojs.StateAvailable); got != n {
			t.Errorf("%s: %d jobs are stored, not %d", name, got, n)
		}
	}
	t.Run("an ack", func(t *testing.T) {
		var lost atomic.Bool
		r.loses(func(req *http.Request) bool {
			return req.URL.Path == "/ojs/v1/workers/ack" &&
				!lost.Swap(true)
		})
		w := worker[any](r)
		w.Register(handler.For(charge, func(context.Context, *ojs.Job[order]) error { return nil }))
		runs(r, w)
		ctx := within(t)
		ticket, err := charge.Enqueue(ctx, c, order{})
		if err != nil {
			t.Fatal(err)
		}
		if job, err := ticket.Wait(ctx); err != nil || job.Attempt != 1 {
			t.Errorf("%+v, %v", job, err)
		}
		until(t, "the ack is repeated", func() bool { return r.calls("POST /workers/ack") == 2 })
	})
}

// A stop lets handlers finish, ends the contexts of the rest, and gives their jobs back.
func TestStop(t *testing.T) {
	t.Run("handlers that finish", func(t *testing.T) {
		r := newRig(t)
		w, c := worker[any](r), r.dial()
		started, goOn := make(chan struct{}), make(chan struct{})
		w.Register(handler.For(charge, func(ctx context.Context, _ *ojs.Job[order]) error {
			close(started)
			<-goOn
			return ctx.Err()
		}))
		stop := runs(r, w)
		ctx := within(t)
		ticket, err := charge.Enqueue(ctx, c, order{})
		if err != nil {
			t.Fatal(err)
		}
		<-started
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		until(t, "no fetch is left", func() bool { return r.calls("POST /workers/heartbeat") >= 2 })
		if _, err := charge.Enqueue(ctx, c, order{}); err != nil {
			t.Fatal(err)
		}
		close(goOn)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if job, err := ticket.Wait(ctx); err != nil || job.State != ojs.StateCompleted {
			t.Errorf("%+v, %v", job, err)
		}
		if n := r.calls("POST /workers/deregister"); n != 1 {
			t.Errorf("deregistered %d times", n)
		}
	})
	t.Run("handlers that do not", func(t *testing.T) {
		r := newRig(t)
		mock := clock.NewMock()
		mock.Set(time.Now())
		w, c := worker[any](r, remote.WithClock(mock)), r.dial()
		started, ended, leave := make(chan struct{}, 2), make(chan struct{}, 2), make(chan struct{})
		w.Register(handler.For(charge, func(ctx context.Context, job *ojs.Job[order]) error {
			started <- struct{}{}
			<-ctx.Done()
			ended <- struct{}{}
			if context.Cause(ctx) != ojs.ErrShutdown {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			if job.Args.N == 1 {
				<-leave
			}
			return ctx.Err()
		}))
		stop := runs(r, w)
		ctx := within(t)
		var ids []string
		for n := range 2 {
			ticket, err := charge.Enqueue(ctx, c, order{n}, ojs.WithMaxAttempts(1))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, ticket.ID)
			<-started
		}
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		moves := func() { // in small steps, and not past a request, whose time it is, too
			if r.open.Load() == 0 {
				mock.Add(100 * time.Millisecond)
			}
		}
		back := func(id string) {
			until(t, "the job is back", func() bool {
				job, err := c.Get(ctx, id)
				return err == nil && job.State == ojs.StateAvailable && job.Attempt == 0
			})
		}
		until(t, "the end of the grace period", func() bool { moves(); return len(ended) == 2 })
		back(ids[0])
		until(t, "the stop", func() bool { moves(); return len(stopped) == 1 })
		if err := <-stopped; !errors.Is(err, remote.ErrStuck) {
			t.Errorf("%v is not ErrStuck", err)
		}
		close(leave)
		back(ids[1])
	})
	t.Run("a second Run", func(t *testing.T) {
		r := newRig(t)
		w := worker[any](r)
		w.Register(handler.For(charge, func(context.Context, *ojs.Job[order]) error { return nil }))
		stop := runs(r, w)
		until(t, "it runs", func() bool { return r.calls("POST /workers/fetch") > 0 })
		if err := w.Run(context.Background()); err != remote.ErrRunning {
			t.Errorf("%v is not ErrRunning", err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		stop = runs(r, w) // again
		until(t, "it runs", func() bool { return r.calls("POST /workers/fetch") > 1 })
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a key that is refused ends Run", func(t *testing.T) {
		r := newRig(t)
		r.halt()
		r.serverOpts = []server.Option{server.WithAuthenticator(refuseAll{})}
		r.start()
		w := worker[any](r, remote.WithKey("wrong"))
		w.Register(handler.For(charge, func(context.Context, *ojs.Job[order]) error { return nil }))
		var refused *remote.Error
		if err := w.Run(within(t)); !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized {
			t.Errorf("%v", err)
		}
	})
}

type refuseAll struct{}

func (refuseAll) Authenticate(*http.Request) (*server.Principal, error) { return nil, errors.New("no") }

// The functions of package handler work in a remote attempt.
func TestAttemptAPI(t *testing.T) {
	r := newRig(t)
	w, c := worker[any](r), r.dial()
	checkpoint := ojs.Define[order]("job.checkpoint")
	batched := ojs.Define[order]("job.batched")
	w.Register(
		handler.For(checkpoint, func(ctx context.Context, job *ojs.Job[order]) error {
			var at int
			found, err := handler.LoadCheckpoint(ctx, &at)
			switch {
			case err != nil:
				return ojs.Permanent(err)
			case !found:
				handler.Progress(ctx, 0.5)
				if err := handler.SaveCheckpoint(ctx, 7); err != nil {
					return ojs.Permanent(err)
				}
				return errors.New("again")
			}
			if err := handler.Sleep(ctx, time.Millisecond); err != nil {
				return err
			}
			if err := handler.Heartbeat(ctx); err != nil {
				return err
			}
			return handler.SetResult(ctx, at)
		}),
		handler.For(charge, func(ctx context.Context, job *ojs.Job[order]) error {
			if err := handler.Complete(ctx); !errors.Is(err, ojs.ErrUnsupported) {
				return ojs.Permanent(fmt.Errorf("Complete: %w", err))
			}
			if _, err := receipt.Enqueue(ctx, handler.Enqueuer(ctx), order{8},
				ojs.WithQueue("beside")); err != nil {
				return err
			}
			return handler.Then(ctx, receipt.New(order{9}, ojs.WithQueue("then"), ojs.WithDelay(time.Hour)))
		}),
		handler.ForBatch(batched, func(ctx context.Context, jobs []*ojs.Job[order]) []error {
			return []error{nil, nil, ojs.Permanent(handler.SetResult(ctx, len(jobs)))}
		}, handler.WithBatch(3, time.Hour)),
	)
	runs(r, w)
	ctx := within(t)
	ticket, err := checkpoint.Enqueue(ctx, c, order{}, quick)
	if err != nil {
		t.Fatal(err)
	}
	var at int
	if err := ticket.Result(ctx, &at); err != nil || at != 7 {
		t.Errorf("checkpoint %d, %v", at, err)
	}
	if ticket, err = charge.Enqueue(ctx, c, order{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ticket.Wait(ctx); err != nil {
		t.Error(err)
	}
	if r.count("then", ojs.StateScheduled) != 1 || r.count("beside", ojs.StateAvailable) != 1 {
		t.Error("the jobs of Then or of the Enqueuer are not there")
	}
	tickets, err := c.EnqueueMany(ctx, batched.New(order{1}), batched.New(order{2}), batched.New(order{3}))
	if err != nil {
		t.Fatal(err)
	}
	for _, ticket := range tickets {
		var n int
		if err := ticket.Result(ctx, &n); err != nil || n != 3 {
			t.Errorf("batch of %d, %v", n, err)
		}
	}
}

// A worker takes the types and versions of its handlers alone.
func TestTypes(t *testing.T) {
	r := newRig(t)
	w, c := worker[any](r), r.dial()
	done := func(context.Context, *ojs.Job[order]) error { return nil }
	w.Register(handler.For(charge, done, handler.WithVersions(">=2.0 <3.0")), handler.For(receipt, done))
	ctx := within(t)
	drafts := []ojs.Draft{charge.New(order{}, ojs.WithVersion("1.0")), ojs.NewDraft("order.other", nil),
		charge.New(order{}, ojs.WithVersion("2.5")), receipt.New(order{}, ojs.WithVersion("9.0"))}
	tickets, err := c.EnqueueMany(ctx, drafts...)
	if err != nil {
		t.Fatal(err)
	}
	runs(r, w)
	for i, ticket := range tickets {
		if i < 2 {
			continue
		}
		if _, err := ticket.Wait(ctx); err != nil {
			t.Error(err)
		}
	}
	for _, ticket := range tickets[:2] {
		if job, err := c.Get(ctx, ticket.ID); err != nil || job.State != ojs.StateAvailable {
			t.Errorf("%+v, %v", job, err)
		}
	}
}
