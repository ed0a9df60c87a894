package ojsprometheus_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/event"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/telemetry"
	"github.com/ojsengine/ojs/workflow"
)

func TestLostLeases(t *testing.T) {
	eng, _, reg := begin(t)
	eng.MustEnqueue(ojs.NewDraft("remote", any(nil), noJitter, ojs.WithLease(30*time.Second)))
	if _, err := eng.Worker("elsewhere", fetch.Config{}).Fetch(context.Background()); err != nil {
		t.Fatal(err)
	}
	same(t, only(samples(scrape(t, reg)), "ojs_workers"), "ojs_workers_active 4", "ojs_workers_fetching 1")
	eng.Advance(30 * time.Second)
	same(t, only(samples(scrape(t, reg)), "ojs_job_stalled", "ojs_job_failed", "ojs_job_duration"),
		"ojs_job_duration_seconds{queue=default,state=retryable,type=remote} 1 in 30s",
		"ojs_job_failed_total{queue=default,type=remote} 1",
		"ojs_job_stalled_total{queue=default,type=remote} 1")
	eng.Worker("elsewhere", fetch.Config{}).Quiet()
	same(t, only(samples(scrape(t, reg)), "ojs_workers"), "ojs_workers_active 4")
}

func TestBackpressure(t *testing.T) {
	eng, _, reg := begin(t,
		engine.WithQueueConfig("small", engine.QueueConfig{MaxDepth: 2}),
		engine.WithQueueConfig("newest",
			engine.QueueConfig{MaxDepth: 1, Overflow: engine.OverflowDropOldest}))
	for n := range 4 {
		_, err := eng.Enqueue(context.Background(), "nobody", nil, ojs.WithQueue("small"))
		if (n < 2) != (err == nil) || err != nil && !errors.Is(err, ojs.ErrQueueFull) {
			t.Fatal(err)
		}
	}
	for range 3 {
		eng.MustEnqueue(ojs.NewDraft("nobody", any(nil), ojs.WithQueue("newest")))
	}
	same(t, only(samples(scrape(t, reg)), "ojs_backpressure", "ojs_job_given_up", "ojs_job_expired",
		"ojs_queue_depth"),
		"ojs_backpressure_dropped_total{queue=newest} 2",
		"ojs_backpressure_rejected_total{queue=small} 2",
		"ojs_backpressure_warning_total{queue=newest} 1",
		"ojs_backpressure_warning_total{queue=small} 1",
		"ojs_job_given_up_total{queue=newest,reason=dropped,type=nobody} 2",
		"ojs_queue_depth{queue=newest,state=available} 1",
		"ojs_queue_depth{queue=newest,state=discarded} 2",
		"ojs_queue_depth{queue=small,state=available} 2")
}

func TestExpiredJobs(t *testing.T) {
	eng, _, reg := begin(t)
	for _, limit := range []ojs.Option{ojs.WithTTL(time.Second), ojs.WithEnqueueTTL(time.Second)} {
		eng.MustEnqueue(ojs.NewDraft("nobody", any(nil), limit))
	}
	eng.Advance(time.Second)
	same(t, only(samples(scrape(t, reg)), "ojs_job_given_up", "ojs_job_expired"),
		"ojs_job_expired_total{queue=default,type=nobody} 2",
		"ojs_job_given_up_total{queue=default,reason=expired,type=nobody} 2")
}

func TestCron(t *testing.T) {
	eng, _, reg := begin(t)
	entry := cron.Entry{Name: "private", Schedule: "@every 1m", Job: ojs.NewDraft("nobody", any(nil))}
	if err := eng.Cron().Set(context.Background(), entry); err != nil {
		t.Fatal(err)
	}
	eng.Advance(3*time.Minute + time.Second) // the first does not run: the others overlap it
	families := scrape(t, reg)
	same(t, only(samples(families), "ojs_cron"), "ojs_cron_skipped_total{reason=overlap_skip} 2",
		"ojs_cron_triggered_total 1")
	if got := value(families, "ojs_cron_skipped_total", "reason", "enqueue_failed"); got != 0 {
		t.Errorf("a reason that has not come is %v, want 0", got)
	}
}

func TestWorkflows(t *testing.T) {
	eng, _, reg := begin(t)
	eng.Handle("step", func(_ context.Context, job *ojs.Job[any]) error {
		if job.Args == "fails" {
			return ojs.Discard(errors.New("out of paper"))
		}
		return nil
	})
	chain := func(second string) *workflow.Workflow {
		return workflow.New("report", workflow.Chain(workflow.Step("", ojs.NewDraft("step", any(""))),
			workflow.Step("", ojs.NewDraft("step", any(second), ojs.WithDelay(time.Minute)))))
	}
	eng.MustStart(chain(""))
	eng.MustStart(chain("fails"))
	cancelled := eng.MustStart(workflow.New("", workflow.Step("", ojs.NewDraft("nobody", any("")))))
	if err := eng.Workflows().Cancel(context.Background(), cancelled); err != nil {
		t.Fatal(err)
	}
	eng.Advance(time.Hour)
	same(t, only(samples(scrape(t, reg)), "ojs_workflow"),
		"ojs_workflow_created_total{workflow=report} 2", "ojs_workflow_created_total{workflow=} 1",
		"ojs_workflow_duration_seconds{state=cancelled,workflow=} 1 in 0s",
		"ojs_workflow_duration_seconds{state=completed,workflow=report} 1 in 60s",
		"ojs_workflow_duration_seconds{state=failed,workflow=report} 1 in 60s",
		"ojs_workflow_ended_total{state=cancelled,workflow=} 1",
		"ojs_workflow_ended_total{state=completed,workflow=report} 1",
		"ojs_workflow_ended_total{state=failed,workflow=report} 1",
		"ojs_workflow_step_ended_total{state=completed,workflow=report} 3",
		"ojs_workflow_step_ended_total{state=failed,workflow=report} 1")
}

func TestQueueStates(t *testing.T) {
	eng, _, reg := begin(t)
	ctx := context.Background()
	if _, err := eng.Queues().Pause(ctx, "mail"); err != nil {
		t.Fatal(err)
	}
	if _, err := eng.Queues().Drain(ctx, "old"); err != nil {
		t.Fatal(err)
	}
	families := scrape(t, reg)
	same(t, only(samples(families), "ojs_queue_state"),
		"ojs_queue_state{queue=mail,state=paused} 1", "ojs_queue_state{queue=old,state=draining} 1")
	if got := value(families, "ojs_queue_depth", "queue", "mail", "state", "available"); got != 0 {
		t.Errorf("depth of an empty queue is %v, want 0", got)
	}
}

// Events that no engine sends neither panic nor make series.
func TestOddEvents(t *testing.T) {
	c, reg := ojsprometheus.New(), prometheus.NewRegistry()
	reg.MustRegister(c)
	job := &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "bad\xff", Queue: "q\xfe"}, State: "odd"}
	for _, ev := range []event.Event{
		{Type: event.Enqueued}, {Type: "unheard.of"}, {Type: event.DeadLetterPruned, Pruned: -1},
		{Type: event.DeadLetterPruned, Pruned: 3},
		{Type: event.CronSkipped, Reason: "text of an error"},
		{Type: event.Discarded, Job: job, Reason: "text of an error"},
		{Type: event.Failed, Job: job}, {Type: event.Dropped, Queue: "q\xfe"},
		{Type: event.Rejected},
	} {
		c.Observe(&ev)
	}
	same(t, samples(scrape(t, reg)),
		"ojs_backpressure_dropped_total{queue=q\uFFFD} 1", "ojs_backpressure_rejected_total{queue=} 1",
		"ojs_cron_skipped_total{reason=other} 1", "ojs_dead_letter_pruned_total 3",
		"ojs_job_failed_total{queue=q\uFFFD,type=bad\uFFFD} 1",
		"ojs_job_given_up_total{queue=q\uFFFD,reason=other,type=bad\uFFFD} 1")
}

// A wire that makes up types and queues gets one series for all of them.
func TestManyPairs(t *testing.T) {
	c, reg := ojsprometheus.New(ojsprometheus.WithMaxPairs(3)), prometheus.NewRegistry()
	reg.MustRegister(c)
	eng := enginetest.New[any](t, engine.WithObserver(c))
	c.Watch(eng.Stats)
	c.Declare("default", "known", "known too")
	for n := range 100 {
		eng.MustEnqueue(ojs.NewDraft(fmt.Sprintf("made.up%d", n), any(nil),
			ojs.WithQueue(fmt.Sprintf("made.up%d", n))))
		c.Observe(&event.Event{Type: event.Rejected, Queue: fmt.Sprintf("made.up%d", n)})
	}
	eng.MustEnqueue(ojs.NewDraft("known", any(nil)))
	same(t, only(samples(scrape(t, reg)), "ojs_job_enqueued", "ojs_backpressure", "ojs_queue"),
		"ojs_backpressure_rejected_total{queue=made.up0} 1",
		"ojs_backpressure_rejected_total{queue=made.up1} 1",
		"ojs_backpressure_rejected_total{queue=other} 98",
		"ojs_job_enqueued_total{queue=default,type=known} 1",
		"ojs_job_enqueued_total{queue=made.up0,type=made.up0} 1",
		"ojs_job_enqueued_total{queue=other,type=other} 99",
		"ojs_queue_depth{queue=default,state=available} 1",
		"ojs_queue_depth{queue=made.up0,state=available} 1",
		"ojs_queue_depth{queue=made.up1,state=available} 1",
		"ojs_queue_depth{queue=other,state=available} 98",
		"ojs_queue_state{queue=default,state=active} 1",
		"ojs_queue_state{queue=made.up0,state=active} 1",
		"ojs_queue_state{queue=made.up1,state=active} 1")
}

// The pairs beyond those of the Meter and the pairs beyond those of the collector are one
// series, wherever both stand in the order of names.
func TestOtherOfTheMeter(t *testing.T) {
	c, reg := ojsprometheus.New(ojsprometheus.WithMaxPairs(3)), prometheus.NewRegistry()
	reg.MustRegister(c)
	c.ReadMeter(func() []telemetry.Meter {
		return []telemetry.Meter{
			{Queue: "a", Type: "t", Started: 1},
			{Queue: telemetry.MeterOther, Type: telemetry.MeterOther, Started: 10},
			{Queue: "p", Type: "t", Started: 1}, {Queue: "q", Type: "t", Started: 1},
			{Queue: "r", Type: "t", Started: 1},
		}
	})
	same(t, only(samples(scrape(t, reg)), "ojs_job_started"),
		"ojs_job_started_total{queue=a,type=t} 1",
		"ojs_job_started_total{queue=other,type=other} 11",
		"ojs_job_started_total{queue=p,type=t} 1",
		"ojs_job_started_total{queue=q,type=t} 1")
}

// Names that are made up leave nothing behind, either.
func TestMadeUpNamesTakeNoMemory(t *testing.T) {
	c := ojsprometheus.New(ojsprometheus.WithMaxPairs(10))
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	for n := range 100_000 {
		name := fmt.Sprint("made.up", n)
		c.Observe(&event.Event{Type: event.Rejected, Queue: name})
		c.Observe(&event.Event{Type: event.Stalled, Queue: name,
			Job: &ojs.JobInfo{JobHeader: ojs.JobHeader{Queue: name, Type: name}}})
	}
	if grown := heap() - before; grown > 2<<20 {
		t.Errorf("grew by %d bytes", grown)
	}
	runtime.KeepAlive(c)
}

func TestDeclare(t *testing.T) {
	c, reg := ojsprometheus.New(), prometheus.NewRegistry()
	reg.MustRegister(c)
	c.Declare("mail", "send")
	families := scrape(t, reg)
	for _, name := range []string{"ojs_job_failed_total", "retry_exhausted_total",
		"ojs_dead_letter_added_total"} {
		if got := value(families, name, "queue", "mail", "type", "send"); got != 0 {
			t.Errorf("%s is %v, want 0", name, got)
		}
	}
	if got := value(families, "ojs_backpressure_rejected_total", "queue", "mail"); got != 0 {
		t.Errorf("rejected is %v, want 0", got)
	}
}

func TestRetryPrefix(t *testing.T) {
	c, reg := ojsprometheus.New(ojsprometheus.WithRetryPrefix("ojs_")), prometheus.NewRegistry()
	reg.MustRegister(c)
	job := &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "t", Queue: "q"}}
	c.Observe(&event.Event{Type: event.Retrying, Job: job, Wait: time.Second})
	c.Observe(&event.Event{Type: event.Discarded, Job: job, Reason: "exhausted"})
	same(t, only(samples(scrape(t, reg)), "ojs_retr", "retr"), "ojs_retries_total{queue=q,type=t} 1",
		"ojs_retry_exhausted_total{queue=q,type=t} 1", "ojs_retry_latency_seconds{queue=q,type=t} 1 in 1s")
	bad := ojsprometheus.New(ojsprometheus.WithRetryPrefix("\xff"))
	bad.Declare("q", "t")
	if err := prometheus.NewRegistry().Register(bad); err == nil {
		t.Error("registered a metric without a valid name")
	}
}

// One collector sums up engines that share a storage; engines of their own have
// collectors of their own, told apart by a label.
func TestTwoEngines(t *testing.T) {
	reg := prometheus.NewRegistry()
	for i, name := range []string{"mail", "reports"} {
		c := ojsprometheus.New()
		prometheus.WrapRegistererWith(prometheus.Labels{"engine": name}, reg).MustRegister(c)
		eng := enginetest.New[any](t, engine.WithObserver(c), engine.WithConcurrency(i+1))
		c.Watch(eng.Stats)
		for range i + 1 {
			eng.MustEnqueue(ojs.NewDraft("nobody", any(nil)))
		}
		eng.Drain() // it runs
	}
	same(t, only(samples(scrape(t, reg)), "ojs_job_enqueued", "ojs_queue_depth", "ojs_workers"),
		"ojs_job_enqueued_total{engine=mail,queue=default,type=nobody} 1",
		"ojs_job_enqueued_total{engine=reports,queue=default,type=nobody} 2",
		"ojs_queue_depth{engine=mail,queue=default,state=available} 1",
		"ojs_queue_depth{engine=reports,queue=default,state=available} 2",
		"ojs_workers_active{engine=mail} 1",
		"ojs_workers_active{engine=reports} 2")
}

// Engines and scrapes may use a collector at once.
func TestConcurrently(t *testing.T) {
	c, reg := ojsprometheus.New(ojsprometheus.WithMaxPairs(5)), prometheus.NewRegistry()
	reg.MustRegister(c)
	c.Watch(func(context.Context) (engine.Stats, error) { return engine.Stats{}, nil })
	c.ReadMeter(func() []telemetry.Meter { return []telemetry.Meter{{Queue: "q", Type: "t1", Completed: 1}} })
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for n := range 1000 {
				job := &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: fmt.Sprint("t", n%10), Queue: "q"},
					State: ojs.StateRetryable}
				for _, what := range []event.Type{event.Failed, event.Retrying, event.Stalled,
					event.Rejected} {
					c.Observe(&event.Event{Type: what, Job: job, Queue: "q"})
				}
			}
		})
	}
	for range 10 {
		if _, err := reg.Gather(); err != nil {
			t.Error(err)
		}
	}
	group.Wait()
	total, retries := 0.0, uint64(0)
	families := scrape(t, reg)
	for _, m := range families["ojs_job_failed_total"].GetMetric() {
		total += m.GetCounter().GetValue()
	}
	for _, m := range families["retry_latency_seconds"].GetMetric() {
		retries += m.GetHistogram().GetSampleCount()
	}
	if pairs := len(families["ojs_job_completed_total"].GetMetric()); total != 4000 || retries != 4000 ||
		pairs != 6 {
		t.Errorf("counted %v failures and %v retries in %d pairs", total, retries, pairs)
	}
}

// The counts of an engine stay when the engine is gone, and do not keep it in memory.
func TestStoppedEngines(t *testing.T) {
	c, reg := ojsprometheus.New(), prometheus.NewRegistry()
	reg.MustRegister(c)
	gone := make([]weak.Pointer[engine.Engine[string]], 3)
	for i := range gone {
		eng, err := engine.New[string](memory.New(), engine.WithObserver(c))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := eng.Enqueue(t.Context(), "mail", "x"); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- eng.Run(ctx) }()
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		gone[i] = weak.Make(eng)
	}
	for tries := 0; slices.ContainsFunc(gone, func(p weak.Pointer[engine.Engine[string]]) bool {
		return p.Value() != nil
	}); tries++ {
		if tries == 100 {
			t.Fatal("the collector keeps engines that have stopped")
		}
		runtime.GC()
		runtime.Gosched()
	}
	same(t, only(samples(scrape(t, reg)), "ojs_job_enqueued_total"),
		"ojs_job_enqueued_total{queue=default,type=mail} 3")
}
