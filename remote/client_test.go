package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/remote"
	"github.com/ojsengine/ojs/workflow"
)

// The server's errors are the library's.
func TestErrors(t *testing.T) {
	r := newRig(t, engine.WithQueueConfig("small", engine.QueueConfig{MaxDepth: 1}),
		engine.WithQueueConfig("default", engine.QueueConfig{}))
	c := r.dial()
	ctx := within(t)
	enqueue := func(opts ...ojs.Option) (ojs.Ticket, error) {
		return charge.Enqueue(ctx, c, order{},
			opts...)
	}
	unique, err := enqueue(ojs.WithUnique(ojs.UniquePolicy{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a duplicate", func(t *testing.T) {
		_, err := enqueue(ojs.WithUnique(ojs.UniquePolicy{}))
		var dup *ojs.DuplicateError
		if !errors.Is(err, ojs.ErrDuplicate) || !errors.As(err, &dup) || dup.ID != unique.ID ||
			dup.State != ojs.StateAvailable || dup.Fingerprint == "" {
			t.Errorf("%v", err)
		}
		ticket, err := enqueue(ojs.WithUnique(ojs.UniquePolicy{OnConflict: ojs.ConflictIgnore}))
		if err != nil || !ticket.Deduplicated || ticket.ID != unique.ID {
			t.Errorf("%+v, %v", ticket, err)
		}
	})
	t.Run("V008 versions are different jobs", func(t *testing.T) {
		policy := ojs.WithUnique(ojs.UniquePolicy{})
		for version, twice := range map[string]bool{"1.0": false, "2.0": false, "": true} {
			opts := []ojs.Option{policy}
			if version != "" {
				opts = append(opts, ojs.WithVersion(version))
			}
			if _, err := enqueue(opts...); errors.Is(err, ojs.ErrDuplicate) != twice {
				t.Errorf("version %q: %v", version, err)
			}
		}
	})
	t.Run("C026 a text that is not Unicode has no fingerprint", func(t *testing.T) {
		_, byArgs := c.EnqueueMany(ctx, ojs.NewDraft("text", "\xff", ojs.WithUnique(ojs.UniquePolicy{
			Keys: ojs.ByArgs})))
		_, byMeta := c.EnqueueMany(ctx, ojs.NewDraft("text", "", ojs.WithMeta("k", "\xff"),
			ojs.WithUnique(ojs.UniquePolicy{MetaKeys: []string{"k"}})))
		for _, err := range []error{byArgs, byMeta} {
			if !errors.Is(err, ojs.ErrInvalid) {
				t.Errorf("%v", err)
			}
		}
	})
	t.Run("an id that is stored", func(t *testing.T) {
		_, err := enqueue(ojs.WithID(unique.ID))
		var dup *ojs.DuplicateError
		if !errors.As(err, &dup) || dup.ID != unique.ID {
			t.Errorf("%v", err)
		}
	})
	t.Run("not found", func(t *testing.T) {
		const id = "0197f000-0000-7000-8000-000000000001"
		for name, err := range map[string]error{
			"Get":    second(c.Get(ctx, id)),
			"Wait":   second(c.Wait(ctx, id)),
			"Cancel": c.Cancel(ctx, id),
		} {
			var e *remote.Error
			if !errors.Is(err, ojs.ErrNotFound) || !errors.As(err, &e) || e.Status != 404 ||
				e.RequestID == "" {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("a full queue", func(t *testing.T) {
		if _, err := enqueue(ojs.WithQueue("small")); err != nil {
			t.Fatal(err)
		}
		before := r.calls("POST /jobs")
		_, err := enqueue(ojs.WithQueue("small"))
		var full *ojs.QueueError
		if !errors.Is(err, ojs.ErrQueueFull) || !errors.As(err, &full) || full.Queue != "small" ||
			full.MaxDepth != 1 {
			t.Errorf("%v", err)
		}
		if n := r.calls("POST /jobs") - before; n != 1 {
			t.Errorf("%d requests, not 1", n)
		}
	})
	t.Run("a draining queue", func(t *testing.T) {
		if _, err := r.eng.Queues().Drain(ctx, "drained"); err != nil {
			t.Fatal(err)
		}
		_, err := enqueue(ojs.WithQueue("drained"))
		var queue *ojs.QueueError
		if !errors.Is(err, ojs.ErrQueueDraining) || !errors.As(err, &queue) || queue.Queue != "drained" {
			t.Errorf("%v", err)
		}
	})
	t.Run("the wrong state", func(t *testing.T) {
		err := c.Jobs().Activate(ctx, unique.ID)
		var wrong *ojs.TransitionError
		if !errors.Is(err, ojs.ErrTransition) || !errors.As(err, &wrong) || wrong.ID != unique.ID ||
			wrong.From != ojs.StateAvailable {
			t.Errorf("%v", err)
		}
	})
	t.Run("bad input", func(t *testing.T) {
		for field, opts := range map[string][]ojs.Option{
			"priority": {ojs.WithPriority(1000)}, // the binding takes less than the library
			"timeout":  {ojs.WithTimeout(-1)},
		} {
			_, err := enqueue(opts...)
			var bad *ojs.InvalidError
			if !errors.Is(err, ojs.ErrInvalid) || !errors.As(err, &bad) {
				t.Errorf("%s: %v", field, err)
			}
		}
		if _, err := c.Enqueue(ctx, "No Type", nil); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%v", err)
		}
	})
	t.Run("no such option of Dial", func(t *testing.T) {
		for _, url := range []string{"", "localhost:8080", "ftp://h", "http://user:secret@h",
			"http://h?x=1"} {
			if _, err := remote.Dial(url); !errors.Is(err, ojs.ErrInvalid) {
				t.Errorf("%q: %v", url, err)
			}
		}
		for _, opt := range []remote.Option{nil, remote.WithClock(nil), remote.WithLogger(nil),
			remote.WithHTTPClient(nil)} {
			if _, err := remote.Dial("http://h", opt); !errors.Is(err, ojs.ErrInvalid) {
				t.Errorf("%v", err)
			}
		}
		for _, opt := range []remote.WorkerOption{nil, remote.WithConcurrency(0), remote.WithGracePeriod(-1),
			remote.WithQueues(), remote.WithQueues("No Queue"), remote.WithMiddleware(nil)} {
			if _, err := remote.New[any]("http://h", opt); !errors.Is(err, ojs.ErrInvalid) {
				t.Errorf("%v", err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// A call is repeated while the server asks for that, with the pause that it asks for.
func TestRepeats(t *testing.T) {
	var n atomic.Int64
	status, code := 503, "backend_error"
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) > 2 {
			_, _ = w.Write([]byte(`{"job":{"specversion":"1.0","id":"0197f000-0000-7000-8000-000000000001","type":"a","args":[],"state":"available"}}`))
			return
		}
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"error":{"code":"` + code + `","message":"m","retryable":true}}`))
	}))
	defer ts.Close()
	mock := clock.NewMock()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	c, err := remote.Dial(ts.URL, remote.WithHTTPClient(client), remote.WithClock(mock))
	if err != nil {
		t.Fatal(err)
	}
	for _, code = range []string{"backend_error", "rate_limited"} {
		n.Store(0)
		ctx := within(t)
		done := make(chan error, 1)
		begun := mock.Now()
		go func() { done <- second(c.Get(ctx, "0197f000-0000-7000-8000-000000000001")) }()
		until(t, "the third try", func() bool { mock.Add(time.Second); return len(done) == 1 })
		if err := <-done; err != nil {
			t.Errorf("%s: %v", code, err)
		}
		if took := mock.Now().Sub(begun); n.Load() != 3 || took < 14*time.Second {
			t.Errorf("%s: %d tries within %v", code, n.Load(), took)
		}
	}
	t.Run("an answer that is none of the binding's", func(t *testing.T) {
		status, code = 502, ""
		n.Store(-100)
		ctx := within(t)
		done := make(chan error, 1)
		go func() { done <- second(c.Get(ctx, "x")) }()
		until(t, "the last try", func() bool { mock.Add(time.Second); return len(done) == 1 })
		var e *remote.Error
		if err := <-done; !errors.As(err, &e) || e.Status != 502 || e.Err != nil {
			t.Errorf("%v", err)
		}
	})
}

// workflow.Start takes a client, and steps read the results of others.
func TestWorkflows(t *testing.T) {
	r := newRig(t)
	w := worker[any](r)
	sum := ojs.Define[order]("order.sum")
	w.Register(
		handler.For(charge, func(ctx context.Context, job *ojs.Job[order]) error {
			if job.Args.N < 0 {
				return ojs.Permanent(errors.New("no"))
			}
			return handler.SetResult(ctx, job.Args.N)
		}),
		handler.For(sum, func(ctx context.Context, _ *ojs.Job[order]) error {
			a, err := workflow.Result[int](ctx, "a")
			if err != nil {
				return ojs.Permanent(err)
			}
			b, err := workflow.Result[int](ctx, "b")
			if err != nil {
				return ojs.Permanent(err)
			}
			return handler.SetResult(ctx, a+b)
		}))
	runs(r, w)
	ctx := within(t)
	wf := workflow.New("report", workflow.Chain(
		workflow.Group(workflow.Step("a", charge.New(order{2})), workflow.Step("b", charge.New(order{3}))),
		workflow.Step("sum", sum.New(order{}))))
	ticket, err := w.Workflows().Start(ctx, wf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ticket.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	s, err := w.Workflows().Get(ctx, ticket.ID)
	if err != nil || s.State != workflow.StateCompleted || s.Step("sum").Job == nil ||
		string(s.Step("sum").Job.Result) != "5" {
		t.Errorf("%+v, %v", s, err)
	}
	ticket, err = workflow.Start(ctx, w, workflow.New("", workflow.Chain(
		workflow.Step("a", charge.New(order{-1})), workflow.Step("b", charge.New(order{1})))), "")
	if err != nil {
		t.Fatal(err)
	}
	var ended *workflow.EndedError
	if s, err := w.Workflows().Wait(ctx, ticket.ID); !errors.As(err, &ended) ||
		ended.State != workflow.StateFailed ||
		ended.Step != "a" || s == nil {
		t.Errorf("%v", err)
	}
}

// A server that does not have the extension gets no member that it would ignore.
func TestForeignServer(t *testing.T) {
	var enqueued atomic.Int64
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ojs/manifest" {
			_, _ = w.Write([]byte(`{"ojs_version":"1.0","extensions":[]}`))
			return
		}
		enqueued.Add(1)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"job":{"specversion":"1.0","id":"0197f000-0000-7000-8000-000000000001","type":"a","args":[],"state":"available","timeout_ms":5}}`))
	}))
	defer ts.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	c, err := remote.Dial(ts.URL+"/", remote.WithHTTPClient(client))
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	for name, opt := range map[string]ojs.Option{
		"ojs:batch": ojs.WithOrderingKey("k"), "enqueue_ttl": ojs.WithEnqueueTTL(time.Minute),
		"total_timeout": ojs.WithTotalTimeout(time.Hour), "fairness": ojs.WithFairnessKey("k", 1),
		"result_ttl": ojs.WithResultTTL(0), "idempotency_key": ojs.WithIdempotencyKey("k"),
	} {
		if _, err := c.Enqueue(ctx, "a", nil, opt); !errors.Is(err, ojs.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := enqueued.Load(); n != 0 {
		t.Errorf("%d jobs were sent", n)
	}
	if _, err := c.Enqueue(ctx, "a", nil, ojs.WithDelay(time.Minute), ojs.WithTTL(time.Hour),
		ojs.WithRateLimitBy("args.x", ojs.RateLimit{Key: "k", Concurrency: 1})); err != nil {
		t.Error(err)
	}
}

// Other clients name the timeouts of a job as the core does.
func TestTimeoutsOfOtherClients(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	for sent, want := range map[string]time.Duration{
		"300": 5 * time.Minute, "2.5": 2500 * time.Millisecond, `"PT5M"`: 5 * time.Minute,
	} {
		body := `{"type":"a","args":[],"timeout":` + sent + `,"visibility_timeout":` + sent + `}`
		resp, err := r.http.Post(r.url+"/ojs/v1/jobs", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var made struct{ ID string }
		err = json.NewDecoder(resp.Body).Decode(&made)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		job, err := c.Get(within(t), made.ID)
		if err != nil || job.Timeout != want || job.Lease != want || job.Extra != nil {
			t.Errorf("%s: %+v, %v", sent, job, err)
		}
	}
}
