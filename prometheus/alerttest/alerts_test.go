package alerttest

import (
	"os"
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
)

// alerts are the rules of docs/alerts.yml, checked as promtool would.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	raw, err := os.ReadFile("../../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(raw, false)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var rules []rulefmt.Rule
	for _, g := range groups.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

// An hour of a healthy service: a job a second, one in fifty retried, half of the workers
// busy.
var healthy = []string{
	`ojs_job_started_total{queue="q",type="t"} 0+61x60`,
	`ojs_job_queue_time_seconds_count{queue="q",type="t"} 0+60x60`,
	`ojs_job_queue_time_seconds_bucket{queue="q",type="t",le="10"} 0+60x60`,
	`ojs_job_queue_time_seconds_bucket{queue="q",type="t",le="60"} 0+60x60`,
	`ojs_job_queue_time_seconds_bucket{queue="q",type="t",le="300"} 0+60x60`,
	`ojs_job_queue_time_seconds_bucket{queue="q",type="t",le="+Inf"} 0+60x60`,
	`retries_total{queue="q",type="t"} 0+1x60`,
	`retry_exhausted_total{queue="q",type="t"} 0x30 1x30`,
	`retry_latency_seconds_bucket{queue="q",type="t",le="10"} 0+1x60`,
	`retry_latency_seconds_bucket{queue="q",type="t",le="600"} 0+1x60`,
	`retry_latency_seconds_bucket{queue="q",type="t",le="1800"} 0+1x60`,
	`retry_latency_seconds_bucket{queue="q",type="t",le="+Inf"} 0+1x60`,
	`ojs_job_timeout_total{queue="q",type="t"} 0x55 1x5`,
	`ojs_job_stalled_total{queue="q",type="t"} 0x60`,
	`ojs_job_expired_total{queue="q",type="t"} 0x60`,
	`ojs_dead_letter_added_total{queue="q",type="t"} 7x60`,
	`ojs_dead_letter_pruned_total 3x60`,
	`ojs_queue_depth{queue="q",state="available"} 5x60`,
	`ojs_queue_state{queue="q",state="active"} 1x60`,
	`ojs_queue_state{queue="q",state="paused"} 0x60`,
	`ojs_queue_state{queue="q",state="draining"} 0x60`,
	`ojs_workers_active{instance="a"} 10x60`,
	`ojs_workers_busy{instance="a"} 5x60`,
	`ojs_workers_stuck{instance="a"} 0x60`,
	`ojs_workers_fetching{instance="a"} 0x60`,
	`ojs_storage_up{instance="a"} 1x60`,
	`ojs_storage_quarantined{instance="a"} 0x60`,
	`ojs_storage_notifications_up{instance="a"} 1x60`,
	`ojs_backpressure_warning_total{queue="q"} 0x60`,
	`ojs_backpressure_rejected_total{queue="q"} 2x60`,
	`ojs_backpressure_dropped_total{queue="q"} 1x60`,
	`ojs_cron_skipped_total{reason="overlap_skip"} 4x60`,
	`ojs_cron_skipped_total{reason="dst_skip"} 0+1x60`,
	`ojs_cron_skipped_total{reason="duplicate"} 0+1x60`,
}

// troubles are what each alert is for: series that another service has beside those of a
// healthy one, or (instead) in their place.
var troubles = map[string]struct {
	rule    string
	instead bool
	series  []string
}{
	"OJSRetryRateHigh": {rule: "D039 D043", series: []string{
		`retries_total{queue="bad",type="t"} 0+7x60`,
		`ojs_job_queue_time_seconds_count{queue="bad",type="t"} 0+60x60`,
		`retries_total{queue="few",type="t"} 0x55 1x5`,
		`ojs_job_queue_time_seconds_count{queue="few",type="t"} 0x50 1x10`, // too few to say
	}},
	"OJSJobsExhausted": {rule: "D040",
		series: []string{`retry_exhausted_total{queue="bad",type="t"} 0+1x60`}},
	"OJSRetryDelayLong": {rule: "D041", series: []string{
		`retry_latency_seconds_bucket{queue="bad",type="t",le="600"} 0+1x60`,
		`retry_latency_seconds_bucket{queue="bad",type="t",le="1800"} 0+2x60`,
		`retry_latency_seconds_bucket{queue="bad",type="t",le="+Inf"} 0+2x60`,
	}},
	"OJSQueueWaitLong": {series: []string{
		`ojs_job_queue_time_seconds_bucket{queue="bad",type="t",le="60"} 0+9x60`,
		`ojs_job_queue_time_seconds_bucket{queue="bad",type="t",le="300"} 0+10x60`,
		`ojs_job_queue_time_seconds_bucket{queue="bad",type="t",le="+Inf"} 0+10x60`,
	}},
	"OJSQueueGrowing": {series: []string{
		`ojs_queue_depth{queue="bad",state="available"} 1000+10x60`,
		`ojs_job_started_total{queue="bad",type="t"} 0+60x60`,
		`ojs_queue_depth{queue="shrinking",state="available"} 5000-10x60`,
		`ojs_job_started_total{queue="shrinking",type="t"} 0+60x60`,
	}},
	"OJSQueueStuck": {series: []string{
		`ojs_queue_depth{queue="bad",state="available"} 1x60`,
		`ojs_job_started_total{queue="bad",type="t"} 9x60`,
		`ojs_queue_depth{queue="empty",state="available"} 0x60`,
	}},
	"OJSQueueClosed": {series: []string{
		`ojs_queue_state{queue="bad",state="paused"} 1x60`,
		`ojs_queue_depth{queue="bad",state="available"} 1x60`, // not stuck
	}},
	"OJSNoWorkers": {instead: true,
		series: []string{`ojs_workers_active 0x60`, `ojs_workers_fetching 0x60`}},
	"OJSWorkersBusy": {instead: true, series: []string{`ojs_workers_active 10x60`, `ojs_workers_busy 10x60`,
		`ojs_workers_fetching 0x60`}},
	"OJSHandlersStuck": {series: []string{`ojs_workers_stuck{instance="bad"} 1x60`}},
	"OJSTimeouts": {series: []string{
		`ojs_job_timeout_total{queue="bad",type="t"} 0+6x60`,
		`ojs_job_started_total{queue="bad",type="t"} 0+60x60`,
	}},
	"OJSLeasesLost": {series: []string{`ojs_job_stalled_total{queue="bad",type="t"} 0x55 1x5`}},
	"OJSDeadLettersGrowing": {rule: "D045",
		series: []string{`ojs_dead_letter_added_total{queue="bad",type="t"} 0x30 1x30`}},
	"OJSDeadLettersPruned": {instead: true, series: []string{`ojs_dead_letter_pruned_total 0x30 9x30`,
		`ojs_workers_active 1x60`}},
	"OJSJobsExpired":    {series: []string{`ojs_job_expired_total{queue="bad",type="t"} 0x55 3x5`}},
	"OJSStorageFailing": {series: []string{`ojs_storage_up{instance="bad"} 1x55 0x5`}},
	"OJSNotificationsFailing": {
		series: []string{`ojs_storage_notifications_up{instance="bad"} 1x50 0x10`}},
	"OJSRecordsQuarantined": {rule: "P2.1",
		series: []string{`ojs_storage_quarantined{instance="bad"} 0x50 1x10`}},
	"OJSBackpressure": {series: []string{
		`ojs_backpressure_rejected_total{queue="bad"} 0x55 1x5`,
		`ojs_backpressure_dropped_total{queue="bad"} 0x60`,
	}},
	"OJSQueueNearlyFull": {series: []string{`ojs_backpressure_warning_total{queue="bad"} 0x55 1x5`}},
	"OJSCronSkipped":     {series: []string{`ojs_cron_skipped_total{reason="enqueue_failed"} 0x55 1x5`}},
}

// Each alert fires in the trouble that it is for, and only there.
func TestAlertsFire(t *testing.T) {
	rules := alerts(t)
	if len(rules) != len(troubles) {
		t.Errorf("%d alerts for %d troubles", len(rules), len(troubles))
	}
	for name, trouble := range troubles {
		t.Run(trouble.rule+" "+name, func(t *testing.T) {
			series := trouble.series
			if !trouble.instead {
				series = append(series[:len(series):len(series)], healthy...)
			}
			h := past(t, series...)
			for _, rule := range rules {
				want := 0
				if rule.Alert == name {
					want = 1
				}
				if fired := h.ask(t, rule.Expr); len(fired) != want {
					t.Errorf("%s fires %d times, want %d: %v", rule.Alert, len(fired), want, fired)
				}
			}
		})
	}
}

func TestAlertsAreQuiet(t *testing.T) {
	h := past(t, healthy...)
	for _, rule := range alerts(t) {
		if fired := h.ask(t, rule.Expr); len(fired) > 0 {
			t.Errorf("%s fires: %v", rule.Alert, fired)
		}
	}
}

// A process that is gone has no series, and still no engine runs.
func TestNoWorkersWithoutProcess(t *testing.T) {
	for _, rule := range alerts(t) {
		want := 0
		if rule.Alert == "OJSNoWorkers" {
			want = 1
		}
		if fired := past(t).ask(t, rule.Expr); len(fired) != want {
			t.Errorf("%s fires %d times without any series", rule.Alert, len(fired))
		}
	}
}
