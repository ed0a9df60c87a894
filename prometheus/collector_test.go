package ojsprometheus_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/handler"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
)

var errBoom = errors.New("boom")

var noJitter = ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Second, Jitter: ojs.JitterOff})

// begin makes an engine, a collector of it and a registry.
func begin(t *testing.T, opts ...engine.Option) (*enginetest.Engine[any], *ojsprometheus.Collector,
	*prometheus.Registry) {
	t.Helper()
	collector, reg := ojsprometheus.New(), prometheus.NewRegistry()
	reg.MustRegister(collector)
	eng := enginetest.New[any](t, append([]engine.Option{
		engine.WithObserver(collector), engine.WithConcurrency(4),
		engine.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	collector.Watch(eng.Stats)
	eng.Drain() // it runs
	return eng, collector, reg
}

// busy does everything that can be counted.
func busy(t *testing.T, eng *enginetest.Engine[any]) {
	ctx := context.Background()
	answer := func(jobType string, takes time.Duration, answers ...error) {
		eng.Handle(jobType, func(ctx context.Context, job *ojs.Job[any]) error {
			if err := handler.Sleep(ctx, takes); err != nil {
				return err
			}
			return answers[min(job.Attempt, len(answers))-1]
		})
	}
	put := func(jobType string, opts ...ojs.Option) string {
		return eng.MustEnqueue(ojs.NewDraft(jobType, any("secret"),
			append([]ojs.Option{noJitter}, opts...)...)).ID
	}
	answer("retries", 2*time.Second, errBoom, errBoom, nil)
	answer("fails", 0, ojs.Permanent(errBoom))
	answer("discards", 0, ojs.Discard(errBoom))
	answer("dies", 0, ojs.DeadLetter(errBoom))
	answer("exhausts", 0, errBoom)
	answer("refused", 0, ojs.Errorf("auth.denied", "no"))
	answer("slow", time.Minute, nil)
	eng.Handle("snoozes", func(_ context.Context, job *ojs.Job[any]) error {
		if job.CreatedAt.Add(time.Minute).After(eng.Now()) {
			return ojs.Snooze(time.Minute)
		}
		return nil
	})

	put("retries")
	put("fails")
	put("discards")
	dead := []string{put("dies"), put("dies")}
	put("exhausts", ojs.WithMaxAttempts(2), ojs.WithQueue("mail"),
		ojs.WithRetry(ojs.RetryPolicy{OnExhaustion: ojs.ExhaustionDeadLetter}))
	put("refused", ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: []string{"auth.*"}}))
	put("slow", ojs.WithTimeout(10*time.Second), ojs.WithMaxAttempts(1))
	put("snoozes")
	put("nobody", ojs.WithTTL(30*time.Second))
	cancelled := put("nobody", ojs.WithDelay(time.Hour))
	eng.Advance(5 * time.Minute)
	for _, err := range []error{
		eng.Cancel(ctx, cancelled), eng.DeadLetters().Retry(ctx, dead[0]),
		eng.DeadLetters().Delete(ctx, dead[1]),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	eng.Advance(time.Minute)
}

func TestMetricsOfARun(t *testing.T) {
	eng, _, reg := begin(t)
	busy(t, eng)
	families := scrape(t, reg)
	golden(t, "testdata/metrics.golden", samples(families))

	// The figures of the rules, from the same scrape.
	for _, tt := range []struct {
		rule, metric, queue, jobType string
		want                         float64
	}{
		{"D036 two retries", "retries_total", "default", "retries", 2},
		{"D036 the last attempt is not retried", "retries_total", "mail", "exhausts", 1},
		{"D037 exhausted", "retry_exhausted_total", "mail", "exhausts", 1},
		{"D037 FAIL is not exhausted", "retry_exhausted_total", "default", "fails", 0},
		{"D037 retried in time", "retry_exhausted_total", "default", "retries", 0},
		{"P1.10 FAIL is a failure", "ojs_job_failed_total", "default", "fails", 1},
		{"P1.10 FAIL is not discarded", "ojs_job_discarded_total", "default", "fails", 0},
		{"P1.10 DISCARD is discarded", "ojs_job_discarded_total", "default", "discards", 1},
		{"P1.10 DISCARD is no failure", "ojs_job_failed_total", "default", "discards", 0},
		{"P1.10 DEAD_LETTER is a failure", "ojs_job_failed_total", "default", "dies", 3},
		{"P1.10 every failed attempt counts", "ojs_job_failed_total", "default", "retries", 2},
		{"P1.10 a snooze is no failure", "ojs_job_failed_total", "default", "snoozes", 0},
		{"P1.10 a snooze is no retry", "ojs_job_retried_total", "default", "snoozes", 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if got := value(families, tt.metric, "queue", tt.queue, "type", tt.jobType); got != tt.want {
				t.Errorf("%s of %s is %v, want %v", tt.metric, tt.jobType, got, tt.want)
			}
		})
	}
	t.Run("D038 seconds of backoff", func(t *testing.T) {
		same(t, only(samples(families), "retry_latency"),
			"retry_latency_seconds{queue=default,type=retries} 2 in 3s",
			"retry_latency_seconds{queue=mail,type=exhausts} 1 in 1s")
	})
}

func TestBuckets(t *testing.T) {
	eng, _, reg := begin(t)
	busy(t, eng)
	families := scrape(t, reg)
	for name, want := range map[string][]float64{
		"ojs_job_duration_seconds": {.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30,
			60, 120, 300},
		"ojs_job_enqueue_duration_seconds": {.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30,
			60, 120, 300},
		"ojs_job_queue_time_seconds": {.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600},
		"retry_latency_seconds":      {.1, .5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 21600, 86400},
	} {
		var got []float64
		for _, b := range families[name].GetMetric()[0].GetHistogram().GetBucket() {
			if !math.IsInf(b.GetUpperBound(), 1) {
				got = append(got, b.GetUpperBound())
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("P1.10 buckets of %s: %v", name, got)
		}
	}
}

func TestLint(t *testing.T) {
	eng, collector, _ := begin(t)
	busy(t, eng)
	problems, err := testutil.CollectAndLint(collector)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	problems, err = testutil.CollectAndLint(ojsprometheus.New(ojsprometheus.WithRetryPrefix("ojs_")))
	if err != nil || len(problems) > 0 {
		t.Errorf("lint of prefixed names: %v, %v", problems, err)
	}
}

func TestNoArgsInLabels(t *testing.T) {
	eng, _, reg := begin(t)
	busy(t, eng)
	for _, line := range samples(scrape(t, reg)) {
		for _, private := range []string{"secret", "boom", "auth.denied", "0000-7"} {
			if strings.Contains(line, private) {
				t.Errorf("P1.10 a label says %q: %s", private, line)
			}
		}
	}
}
