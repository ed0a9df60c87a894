package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/remote"
)

// Tests of calls that meet a slow network, a proxy, or an answer that does not decode.

func mockClock() *clock.Mock {
	mock := clock.NewMock()
	mock.Set(time.Now())
	return mock
}

// hold blocks until the client gives a request up.
func hold(req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body) // the server notices the end of the connection only then
	<-req.Context().Done()
}

func refuseWith(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	if code == "" {
		_, _ = w.Write([]byte("<html>a proxy</html>"))
		return
	}
	_, _ = fmt.Fprintf(w, `{"error":{"code":%q,"message":"m"}}`, code)
}

// F079: a heartbeat without an answer is repeated before the worker counts as dead.
func TestHeartbeatWithoutAnswer(t *testing.T) {
	r := newRig(t)
	mock := mockClock()
	var beats atomic.Int64
	entered, released := make(chan struct{}), make(chan struct{})
	r.intercepts(func(_ http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/heartbeat") || beats.Add(1) > 1 {
			return false
		}
		close(entered)
		hold(req)
		close(released)
		return true
	})
	w := worker[any](r, remote.WithClock(mock))
	w.Register(handler.For(charge, func(context.Context, *ojs.Job[order]) error { return nil }))
	runs(r, w)
	<-entered
	mock.Add(5 * time.Second)
	select {
	case <-released:
	case <-within(t).Done():
		t.Fatal("the heartbeat is not given up after 5 s")
	}
	until(t, "another heartbeat", func() bool { mock.Add(time.Second); return beats.Load() > 1 })
}

// F065: a worker renews a short lease before it ends.
func TestShortLease(t *testing.T) {
	r := newRig(t)
	mock := mockClock()
	w, c := worker[any](r, remote.WithClock(mock)), r.dial()
	started, goOn := make(chan struct{}), make(chan struct{})
	w.Register(handler.For(charge, func(context.Context, *ojs.Job[order]) error {
		close(started)
		<-goOn
		return nil
	}))
	runs(r, w)
	defer close(goOn)
	until(t, "the first heartbeat", func() bool { return r.calls("POST /workers/heartbeat") == 1 })
	if _, err := charge.Enqueue(within(t), c, order{}, ojs.WithLease(2*time.Second)); err != nil {
		t.Fatal(err)
	}
	<-started
	mock.Add(700 * time.Millisecond)
	until(t, "a heartbeat within a third of the lease", func() bool {
		return r.calls("POST /workers/heartbeat") > 1
	})
}

// The answer to a heartbeat ends the attempts that the heartbeat named, and no later one.
func TestLostAttemptOfTheBeat(t *testing.T) {
	r := newRig(t)
	mock := mockClock()
	w, c := worker[any](r, remote.WithClock(mock)), r.dial()
	held, answer := make(chan struct{}), make(chan struct{})
	var cut, answered atomic.Bool
	r.intercepts(func(rw http.ResponseWriter, req *http.Request) bool {
		switch {
		case req.Method == "GET": // the key may not read jobs
			refuseWith(rw, http.StatusForbidden, "permission_denied")
			return true
		case !strings.HasSuffix(req.URL.Path, "/heartbeat"):
			return false
		}
		var body struct {
			Jobs []string `json:"active_jobs"`
		}
		if json.NewDecoder(req.Body).Decode(&body) != nil || len(body.Jobs) == 0 || cut.Swap(true) {
			_, _ = rw.Write([]byte(`{"state":"running"}`))
			answered.Store(cut.Load() && len(body.Jobs) > 0)
			return true
		}
		close(held)
		<-answer
		_, _ = fmt.Fprintf(rw, `{"state":"running","jobs_lost":[%q]}`, body.Jobs[0])
		return true
	})
	second, goOn := make(chan struct{}), make(chan struct{})
	w.Register(handler.For(charge, func(ctx context.Context, job *ojs.Job[order]) error {
		if job.Attempt == 1 {
			<-held
			return ojs.RetryAfter(0, errors.New("again"))
		}
		close(second)
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return context.Cause(ctx)
	}))
	stop := runs(r, w)
	ticket, err := charge.Enqueue(within(t), c, order{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "a heartbeat for the first attempt", func() bool {
		mock.Add(time.Second)
		return cut.Load()
	})
	<-second
	close(answer)
	until(t, "the next heartbeat", func() bool { mock.Add(time.Second); return answered.Load() })
	close(goOn)
	until(t, "the second attempt has ended", func() bool {
		job, err := r.eng.Get(within(t), ticket.ID)
		return err == nil && job.State == ojs.StateCompleted && job.Attempt == 2
	})
	go func() { mock.Add(time.Minute) }()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A job that does not decode becomes a dead letter. The others of its fetch run.
func TestJobThatDoesNotDecode(t *testing.T) {
	r := newRig(t)
	w, c := worker[any](r), r.dial()
	ctx := within(t)
	tickets, err := c.EnqueueMany(ctx, charge.New(order{1}), charge.New(order{2}))
	if err != nil {
		t.Fatal(err)
	}
	r.intercepts(func(rw http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/fetch") {
			return false
		}
		rec := httptest.NewRecorder()
		(*r.front.Load()).ServeHTTP(rec, req)
		var body struct {
			Jobs []map[string]any `json:"jobs"`
		}
		_ = json.Unmarshal(rec.Body.Bytes(), &body)
		for _, j := range body.Jobs {
			if j["id"] == tickets[0].ID {
				j["created_at"] = "some day"
			}
		}
		_ = json.NewEncoder(rw).Encode(body)
		return true
	})
	w.Register(handler.For(charge, func(context.Context, *ojs.Job[order]) error { return nil }))
	runs(r, w)
	if job, err := tickets[1].Wait(ctx); err != nil || job.Attempt != 1 {
		t.Errorf("%+v, %v", job, err)
	}
	if _, err := tickets[0].Wait(ctx); ended(err) == nil || !ended(err).DeadLettered {
		t.Errorf("%v", err)
	}
}

// An answer that is a proxy's, or about the key, fails no attempt. A fetch that a proxy
// refuses does not end Run.
func TestAnswersOfProxies(t *testing.T) {
	for _, test := range []struct {
		status int
		code   string
	}{{400, ""}, {403, ""}, {404, ""}, {408, ""}, {500, ""}, {400, "NEW_CODE"}, {408, "timeout"}} {
		t.Run(fmt.Sprintf("%d %s", test.status, test.code), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w, c := worker[any](r), r.dial()
			var fetches, beats, acks atomic.Int64
			r.intercepts(func(rw http.ResponseWriter, req *http.Request) bool {
				n := map[string]*atomic.Int64{"/ojs/v1/workers/fetch": &fetches,
					"/ojs/v1/workers/heartbeat": &beats, "/ojs/v1/workers/ack": &acks}[req.URL.Path]
				if n == nil || n.Add(1) > 1 || n == &acks && test.status == 400 && test.code != "" {
					return false
				}
				refuseWith(rw, test.status, test.code)
				return true
			})
			w.Register(handler.For(charge, func(context.Context, *ojs.Job[order]) error { return nil }))
			runs(r, w)
			ctx := within(t)
			ticket, err := charge.Enqueue(ctx, c, order{}, ojs.WithMaxAttempts(1))
			if err != nil {
				t.Fatal(err)
			}
			if job, err := ticket.Wait(ctx); err != nil || job.Attempt != 1 {
				t.Errorf("%+v, %v", job, err)
			}
		})
	}
}

// An outcome that a key may not send waits for the next key.
func TestOutcomeWithRefusedKey(t *testing.T) {
	r := newRig(t)
	w, c := worker[any](r), r.dial()
	var acks atomic.Int64
	r.intercepts(func(rw http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path != "/ojs/v1/workers/ack" || acks.Add(1) > 1 {
			return false
		}
		refuseWith(rw, http.StatusUnauthorized, "unauthenticated")
		return true
	})
	w.Register(handler.For(charge, func(context.Context, *ojs.Job[order]) error { return nil }))
	runs(r, w)
	ctx := within(t)
	ticket, err := charge.Enqueue(ctx, c, order{}, ojs.WithMaxAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	if job, err := ticket.Wait(ctx); err != nil || job.Attempt != 1 {
		t.Errorf("%+v, %v", job, err)
	}
}

// A worker fetches no more jobs of a type than its handler has slots.
func TestFullHandler(t *testing.T) {
	r := newRig(t)
	w, c := worker[any](r), r.dial()
	started, goOn := make(chan struct{}, 10), make(chan struct{})
	w.Register(
		handler.For(charge, func(context.Context, *ojs.Job[order]) error {
			started <- struct{}{}
			<-goOn
			return nil
		}, handler.WithSlots(1)),
		handler.For(receipt, func(context.Context, *ojs.Job[order]) error { return nil }))
	ctx := within(t)
	tickets, err := c.EnqueueMany(ctx, charge.New(order{}), charge.New(order{}), charge.New(order{}))
	if err != nil {
		t.Fatal(err)
	}
	runs(r, w)
	<-started
	other, err := receipt.Enqueue(ctx, c, order{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Wait(ctx); err != nil { // another type is not blocked
		t.Error(err)
	}
	if n := r.count("default", ojs.StateActive); n != 1 {
		t.Errorf("%d jobs are active, not 1", n)
	}
	close(goOn)
	for _, ticket := range tickets {
		if job, err := ticket.Wait(ctx); err != nil || job.Attempt != 1 {
			t.Errorf("%+v, %v", job, err)
		}
	}
	if n := r.calls("POST /workers/nack"); n != 0 {
		t.Errorf("%d jobs were given back", n)
	}
}

// A job that a server without the Extension hands out for a full handler is given back.
func TestJobForFullHandler(t *testing.T) {
	r := newRig(t)
	w, c := worker[any](r), r.dial()
	r.intercepts(func(_ http.ResponseWriter, req *http.Request) bool {
		if strings.HasSuffix(req.URL.Path, "/fetch") {
			var body map[string]any
			_ = json.NewDecoder(req.Body).Decode(&body)
			delete(body, "types")
			delete(body, "handlers")
			body["count"] = 10
			b, _ := json.Marshal(body)
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(string(b))), int64(len(b))
		}
		return false
	})
	started, goOn := make(chan struct{}, 10), make(chan struct{})
	w.Register(handler.For(charge, func(context.Context, *ojs.Job[order]) error {
		started <- struct{}{}
		<-goOn
		return nil
	}, handler.WithSlots(1)),
		handler.For(receipt, func(context.Context, *ojs.Job[order]) error { return nil }))
	ctx := within(t)
	ticket, err := charge.Enqueue(ctx, c, order{})
	if err != nil {
		t.Fatal(err)
	}
	runs(r, w)
	<-started
	second, err := charge.Enqueue(ctx, c, order{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the job is given back", func() bool { return r.calls("POST /workers/nack") > 0 })
	close(goOn)
	for _, ticket := range []ojs.Ticket{ticket, second} {
		if job, err := ticket.Wait(ctx); err != nil || job.Attempt != 1 {
			t.Errorf("%+v, %v", job, err)
		}
	}
}

// A key that may enqueue gets tickets after a lost answer, although it may not read jobs.
func TestLostAnswerWithoutReading(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	r.intercepts(func(rw http.ResponseWriter, req *http.Request) bool {
		if req.Method == "GET" {
			refuseWith(rw, http.StatusForbidden, "permission_denied")
		}
		return req.Method == "GET"
	})
	var lost atomic.Bool
	r.loses(func(req *http.Request) bool { return req.Method == "POST" && !lost.Swap(true) })
	tickets, err := c.EnqueueMany(within(t), charge.New(order{}), charge.New(order{}, ojs.WithPending()),
		charge.New(order{}, ojs.WithDelay(time.Hour)))
	if err != nil || len(tickets) != 3 {
		t.Fatalf("%+v, %v", tickets, err)
	}
	for i, state := range []ojs.State{ojs.StateAvailable, ojs.StatePending, ojs.StateScheduled} {
		job, err := r.eng.Get(within(t), tickets[i].ID)
		if err != nil || tickets[i].State != state || job.State != state {
			t.Errorf("ticket %d: %+v, %+v, %v", i, tickets[i], job, err)
		}
	}
}

// Invariant 1: an operator's call whose answer is lost is not repeated.
func TestOperatorsCallOnce(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	r.loses(func(*http.Request) bool { return true })
	const id = "0197f000-0000-7000-8000-000000000001"
	ctx := within(t)
	for line, call := range map[string]func() error{
		"POST /admin/jobs/" + id + "/retry":  func() error { return c.Jobs().Retry(ctx, id) },
		"POST /jobs/bulk/delete":             func() error { return c.Jobs().Delete(ctx, id) },
		"POST /jobs/bulk/cancel":             func() error { return c.Jobs().CancelWaiting(ctx, id) },
		"PATCH /jobs/" + id:                  func() error { return c.Jobs().SetPriority(ctx, id, 1) },
		"POST /dead-letter/" + id + "/retry": func() error { return c.DeadLetters().Retry(ctx, id) },
		"DELETE /dead-letter/" + id:          func() error { return c.DeadLetters().Delete(ctx, id) },
		"POST /queues/default/pause":         func() error { return c.Queues().Pause(ctx, "default") },
		"PATCH /cron/x":                      func() error { return c.Cron().Pause(ctx, "x") },
		"DELETE /workflows/" + id:            func() error { return c.Workflows().Cancel(ctx, id) },
	} {
		if err := call(); err == nil || r.calls(line) != 1 {
			t.Errorf("%s: %d calls, %v", line, r.calls(line), err)
		}
	}
}

type hookOf time.Duration

func (hookOf) ShouldRetry(*ojs.JobInfo, error) bool { return true }

func (d hookOf) Delay(*ojs.JobInfo, error) time.Duration { return time.Duration(d) }

// The delay of handler.WithRetryHook is that of the retry.
func TestRetryHookDelay(t *testing.T) {
	r := newRig(t)
	w, c := worker[any](r), r.dial()
	w.Register(handler.For(charge, func(_ context.Context, job *ojs.Job[order]) error {
		if job.Attempt == 1 {
			return errors.New("again")
		}
		return nil
	}, handler.WithRetryHook(hookOf(time.Millisecond))))
	runs(r, w)
	ctx := within(t)
	ticket, err := charge.Enqueue(ctx, c, order{},
		ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Hour, MaxInterval: time.Hour}))
	if err != nil {
		t.Fatal(err)
	}
	if job, err := ticket.Wait(ctx); err != nil || job.Attempt != 2 {
		t.Errorf("%+v, %v", job, err)
	}
}

// A delay that the wire has no words for is not cut short (A104).
func TestDelaysOfMicroseconds(t *testing.T) {
	r := newRig(t)
	w, c := worker[any](r), r.dial()
	w.Register(handler.For(charge, func(_ context.Context, job *ojs.Job[order]) error {
		if job.Attempt == 1 {
			return ojs.RetryAfter(1500*time.Microsecond, errors.New("again"))
		}
		return nil
	}))
	delays := make(chan float64, 1)
	r.intercepts(func(_ http.ResponseWriter, req *http.Request) bool {
		if strings.HasSuffix(req.URL.Path, "/workers/nack") {
			raw, _ := io.ReadAll(req.Body)
			req.Body = io.NopCloser(bytes.NewReader(raw))
			var body struct {
				After float64 `json:"retry_after_ms"`
			}
			_ = json.Unmarshal(raw, &body)
			delays <- body.After
		}
		return false
	})
	runs(r, w)
	ctx := within(t)
	ticket, err := charge.Enqueue(ctx, c, order{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ticket.Wait(ctx); err != nil {
		t.Error(err)
	}
	if after := <-delays; after != 2 {
		t.Errorf("asked for %v ms", after)
	}
}

// panics is a retry hook that has no opinion.
type panics struct{}

func (panics) ShouldRetry(*ojs.JobInfo, error) bool    { panic("no") }
func (panics) Delay(*ojs.JobInfo, error) time.Duration { panic("no") }

// A retry hook that panics leaves the retry to the policy.
func TestRetryHookPanics(t *testing.T) {
	r := newRig(t)
	w, c := worker[any](r), r.dial()
	w.Register(handler.For(charge, func(_ context.Context, job *ojs.Job[order]) error {
		if job.Attempt == 1 {
			return errors.New("again")
		}
		return nil
	}, handler.WithRetryHook(panics{})))
	runs(r, w)
	ctx := within(t)
	ticket, err := charge.Enqueue(ctx, c, order{},
		ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Millisecond, MaxInterval: time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	if job, err := ticket.Wait(ctx); err != nil || job.Attempt != 2 {
		t.Errorf("%+v, %v", job, err)
	}
}

// A server that does not wait is not asked without a pause.
func TestEarlyTimeoutOfWait(t *testing.T) {
	r := newRig(t)
	mock := mockClock()
	c := r.dial(remote.WithClock(mock))
	ticket, err := charge.Enqueue(within(t), c, order{})
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	r.intercepts(func(rw http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/result") {
			return false
		}
		if asked.Add(1) > 3 {
			refuseWith(rw, http.StatusBadRequest, "invalid_request")
		} else {
			refuseWith(rw, http.StatusRequestTimeout, "timeout")
		}
		return true
	})
	begun := mock.Now()
	done := make(chan error, 1)
	go func() { done <- second(ticket.Wait(within(t))) }()
	until(t, "the wait ends", func() bool { mock.Add(10 * time.Millisecond); return len(done) == 1 })
	if took := mock.Now().Sub(begun); took < 700*time.Millisecond {
		t.Errorf("3 repetitions within %v", took)
	}
}

// A stop gives the jobs of all stuck handlers back at once.
func TestStuckJobsGoBackTogether(t *testing.T) {
	r := newRig(t)
	mock := mockClock()
	w, c := worker[any](r, remote.WithClock(mock)), r.dial()
	var nacks atomic.Int64
	both := make(chan struct{})
	r.intercepts(func(_ http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/nack") {
			return false
		}
		if nacks.Add(1) == 2 {
			close(both)
		}
		<-both
		return false
	})
	started, leave := make(chan struct{}, 2), make(chan struct{})
	w.Register(handler.For(charge, func(context.Context, *ojs.Job[order]) error {
		started <- struct{}{}
		<-leave
		return nil
	}))
	stop := runs(r, w)
	for range 2 {
		if _, err := charge.Enqueue(within(t), c, order{}); err != nil {
			t.Fatal(err)
		}
		<-started
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	until(t, "the first nack", func() bool { mock.Add(time.Second); return nacks.Load() > 0 })
	until(t, "the second nack while the first waits", func() bool { return nacks.Load() == 2 })
	until(t, "the jobs are back", func() bool { return r.count("default", ojs.StateAvailable) == 2 })
	close(leave)
	until(t, "the stop", func() bool { mock.Add(time.Second); return len(stopped) == 1 })
	if err := <-stopped; !errors.Is(err, remote.ErrStuck) {
		t.Errorf("%v is not ErrStuck", err)
	}
}

// A call that asks for the manifest does not block another one.
func TestManifestDoesNotBlock(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	asked := make(chan struct{}, 1)
	goOn := make(chan struct{})
	r.intercepts(func(_ http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path == "/ojs/manifest" {
			select {
			case asked <- struct{}{}: // the first
				<-goOn
			default:
			}
		}
		return false
	})
	enqueue := func() error {
		return second(charge.Enqueue(within(t), c, order{}, ojs.WithOrderingKey("k")))
	}
	first := make(chan error, 1)
	go func() { first <- enqueue() }()
	until(t, "the first call", func() bool { return len(asked) == 1 })
	other := make(chan error, 1)
	go func() { other <- enqueue() }()
	select {
	case err := <-other:
		if err != nil {
			t.Error(err)
		}
	case <-within(t).Done():
		t.Error("the second call waits for the first")
	}
	close(goOn)
	if err := <-first; err != nil {
		t.Error(err)
	}
}
