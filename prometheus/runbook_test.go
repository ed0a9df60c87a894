package ojsprometheus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// The calls of docs/operations.md.

func connect(store storage.Storage) error {
	collector := ojsprometheus.New()
	prometheus.MustRegister(collector)
	eng, err := engine.New[any](store, engine.WithObserver(collector))
	if err != nil {
		return err
	}
	collector.Watch(eng.Stats)
	collector.Declare("mail", "mail.send", "mail.digest")
	http.Handle("/metrics", promhttp.Handler())
	return nil
}

func healthEndpoint(eng *engine.Engine[any]) {
	http.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		h := eng.Health(r.Context())
		if h.Status == engine.Unhealthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(h)
	})
}

func look(ctx context.Context, eng *engine.Engine[any]) error {
	failing := inspect.Filter{Types: []string{"mail.*"}, States: []ojs.State{ojs.StateRetryable}}
	for job, err := range eng.Jobs().List(ctx, failing) {
		if err != nil {
			return err
		}
		fmt.Println(job.ID, job.Type, job.Attempt, job.Error.Type, job.Error.Message)
	}
	return nil
}

func lookAside(ctx context.Context, eng *engine.Engine[any]) error {
	for q, err := range eng.Quarantine().List(ctx) {
		if err != nil {
			return err
		}
		fmt.Println(q.Key, q.Kind, q.Name, q.Reason)
	}
	return nil
}

func meter(eng *engine.Engine[any]) {
	for _, m := range eng.Meter() {
		fmt.Println(m.Queue, m.Type, m.Failed, m.Wait.Quantile(0.99), m.Run.Quantile(0.95))
	}
}

func historyOfDay(ctx context.Context, eng *engine.Engine[any]) error {
	day, err := eng.History(ctx, time.Now().Add(-24*time.Hour), time.Now(), 0)
	if err != nil {
		return err
	}
	for _, b := range day {
		for _, m := range b.Meters {
			fmt.Println(b.Start, b.Width, m.Queue, m.Type, m.Completed, m.Failed, m.Run.Quantile(0.99))
		}
	}
	return nil
}

func pause(ctx context.Context, eng *engine.Engine[any]) error {
	_, err := eng.Queues().Pause(ctx, "mail")
	return err
}

func resume(ctx context.Context, eng *engine.Engine[any]) error {
	_, err := eng.Queues().Resume(ctx, "mail")
	return err
}

func apply(ctx context.Context, eng *engine.Engine[any]) error {
	retryDiscarded := operate.Bulk{Do: operate.RetryJobs(),
		On: inspect.Filter{Types: []string{"mail.send"}, States: []ojs.State{ojs.StateDiscarded}}}
	for p, err := range eng.Jobs().Apply(ctx, retryDiscarded) {
		if err != nil {
			return err
		}
		fmt.Println(p.ID, p.Err)
	}
	return nil
}

// applied does an operation on many to its end.
func applied(ctx context.Context, eng *engine.Engine[any], op operate.Bulk) (err error) {
	for _, err = range eng.Jobs().Apply(ctx, op) {
	}
	return err
}

func retry(ctx context.Context, eng *engine.Engine[any]) error {
	retryAtOnce := operate.Bulk{Do: operate.RetryJobs(),
		On: inspect.Filter{Types: []string{"mail.send"}, States: []ojs.State{ojs.StateRetryable}}}
	return applied(ctx, eng, retryAtOnce)
}

func cancel(ctx context.Context, eng *engine.Engine[any]) error {
	cancelWaiting := operate.Bulk{Do: operate.CancelJobs(),
		On: inspect.Filter{Queues: []string{"thumbnails"}, States: []ojs.State{ojs.StateAvailable}}}
	return applied(ctx, eng, cancelWaiting)
}

func replayDead(ctx context.Context, eng *engine.Engine[any]) error {
	replay := operate.Bulk{Do: operate.RetryJobs(), Every: 100 * time.Millisecond,
		On: inspect.Filter{Types: []string{"mail.send"}, DeadLettered: true}}
	return applied(ctx, eng, replay)
}

// privateDefaults gives the packages' default registry and mux back after the test as
// they were.
func privateDefaults(t *testing.T) {
	reg, gatherer, mux := prometheus.DefaultRegisterer, prometheus.DefaultGatherer, http.DefaultServeMux
	t.Cleanup(func() {
		prometheus.DefaultRegisterer, prometheus.DefaultGatherer, http.DefaultServeMux = reg, gatherer, mux
	})
	own := prometheus.NewRegistry()
	prometheus.DefaultRegisterer, prometheus.DefaultGatherer, http.DefaultServeMux = own, own,
		http.NewServeMux()
}

// The calls do what the document says.
func TestRunbook(t *testing.T) {
	eng := enginetest.New[any](t)
	eng.Drain() // it runs
	privateDefaults(t)
	if err := connect(memory.New()); err != nil {
		t.Fatal(err)
	}
	healthEndpoint(eng.Engine)
	for path, want := range map[string]string{
		"/healthz": `"status":"healthy"`,
		"/metrics": `ojs_job_failed_total{queue="mail",type="mail.digest"} 0`,
	} {
		page := httptest.NewRecorder()
		http.DefaultServeMux.ServeHTTP(page, httptest.NewRequest("GET", path, nil))
		if page.Code != http.StatusOK || !strings.Contains(page.Body.String(), want) {
			t.Errorf("%s: %d %s", path, page.Code, page.Body)
		}
	}

	ctx := context.Background()
	broken := true
	eng.Handle("mail.send", func(context.Context, *ojs.Job[any]) error {
		if broken {
			return errBoom
		}
		return nil
	})
	put := func(queue string, p ojs.RetryPolicy) string {
		p.Jitter = ojs.JitterOff
		return eng.MustEnqueue(ojs.NewDraft("mail.send", any(nil), ojs.WithQueue(queue), ojs.WithRetry(p))).ID
	}
	waits := put("default", ojs.RetryPolicy{InitialInterval: time.Hour, MaxInterval: time.Hour})
	ended := put("default", ojs.RetryPolicy{MaxAttempts: 1})
	dead := put("default", ojs.RetryPolicy{MaxAttempts: 1, OnExhaustion: ojs.ExhaustionDeadLetter})
	eng.Drain()
	meter(eng.Engine)
	if err := lookAside(ctx, eng.Engine); err != nil { // memory has none
		t.Fatal(err)
	}
	if err := look(ctx, eng.Engine); err != nil {
		t.Error(err)
	}
	if err := historyOfDay(ctx, eng.Engine); err != nil { // without WithReports there is none
		t.Error(err)
	}

	broken = false
	for _, tt := range []struct {
		name, id string
		do       func(context.Context, *engine.Engine[any]) error
	}{
		{"OJSRetryDelayLong", waits, retry}, {"D045 OJSDeadLettersGrowing", dead, replayDead},
		{"OJSJobsExhausted", ended, apply},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.do(ctx, eng.Engine); err != nil {
				t.Fatal(err)
			}
			eng.Drain()
			eng.RequireCompleted(tt.id)
		})
	}

	if err := pause(ctx, eng.Engine); err != nil {
		t.Error(err)
	}
	held, unwanted := put("mail", ojs.RetryPolicy{}),
		eng.MustEnqueue(ojs.NewDraft("nobody", any(nil), ojs.WithQueue("thumbnails"))).ID
	eng.Drain()
	eng.RequireState(held, ojs.StateAvailable)
	if err := resume(ctx, eng.Engine); err != nil {
		t.Error(err)
	}
	if err := cancel(ctx, eng.Engine); err != nil {
		t.Error(err)
	}
	eng.Drain()
	eng.RequireCompleted(held)
	eng.RequireState(unwanted, ojs.StateCancelled)
}
