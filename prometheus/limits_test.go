package ojsprometheus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/operate"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
	"github.com/ojsengine/ojs/storage"
)

// Rule L051: gauges, a counter and a histogram by key.
func TestLimits(t *testing.T) {
	eng, collector, reg := begin(t)
	collector.WatchLimits(eng.Limits().List)
	eng.Handle("call", func(ctx context.Context, _ *ojs.Job[any]) error {
		return handler.Sleep(ctx, 10*time.Second)
	})
	limits := []ojs.RateLimit{
		{Key: "api", Concurrency: 1}, {Key: "api", Concurrency: 1}, {Key: "api", Concurrency: 1},
		{Key: "mail", Rate: ojs.Rate{Limit: 1, Per: time.Minute}},
		{Key: "mail", Rate: ojs.Rate{Limit: 1, Per: time.Minute}},
		{Key: "log", Concurrency: 1, OnLimit: ojs.OnLimitDrop},
		{Key: "log", Concurrency: 1, OnLimit: ojs.OnLimitDrop},
	}
	for _, l := range limits {
		eng.MustEnqueue(ojs.NewDraft("call", any(nil), ojs.WithRateLimit(l)))
	}
	eng.Advance(time.Second)
	same(t, only(samples(scrape(t, reg)), "ojs_rate_limit", "ojs_job_given_up", "ojs_backpressure"),
		"ojs_job_given_up_total{queue=default,reason=rate_limited,type=call} 1",
		"ojs_rate_limit_active{key=api} 1", "ojs_rate_limit_active{key=log} 1",
		"ojs_rate_limit_active{key=mail} 1",
		"ojs_rate_limit_exceeded_total{key=api,strategy=concurrency} 1",
		"ojs_rate_limit_exceeded_total{key=mail,strategy=rate} 1",
		"ojs_rate_limit_waiting{key=api} 2", "ojs_rate_limit_waiting{key=mail} 1")
	eng.Advance(time.Hour)
	same(t, only(samples(scrape(t, reg)), "ojs_rate_limit"),
		"ojs_rate_limit_exceeded_total{key=api,strategy=concurrency} 2",
		"ojs_rate_limit_exceeded_total{key=mail,strategy=rate} 1",
		"ojs_rate_limit_wait_duration_seconds{key=api} 2 in 30s",
		"ojs_rate_limit_wait_duration_seconds{key=mail} 1 in 60s")
}

// Rule L051: keys come from clients, so the label has a bound. A list that fails costs
// its gauges only.
func TestKeysAreBounded(t *testing.T) {
	for most, want := range map[int]int{2: 2, 0: 100} {
		c, reg := ojsprometheus.New(ojsprometheus.WithMaxKeys(most)), prometheus.NewRegistry()
		reg.MustRegister(c)
		for i := range want + 3 {
			c.Observe(&event.Event{Type: event.LimitExceeded, Limit: &event.Limit{
				Key: fmt.Sprint("k", i), Strategy: storage.LimitedByRate,
			}})
		}
		var err error
		c.WatchLimits(func(context.Context, operate.LimitQuery) ([]operate.Limit, error) {
			return []operate.Limit{
				{LimitName: operate.LimitOfKey("k1"), Active: 3, Waiting: 4},
				{LimitName: operate.LimitOfKey("x"), Active: 1},
				{LimitName: operate.LimitOfKey("y"), Active: 5},
			}, err
		})
		families := scrape(t, reg)
		if n := len(families["ojs_rate_limit_exceeded_total"].Metric); n != want+1 {
			t.Errorf("%d keys have a counter, want %d and the rest", n, want)
		}
		got := value(families, "ojs_rate_limit_exceeded_total", "key", "other", "strategy", "rate")
		if got != 3 {
			t.Errorf("the rest is %v, want 3", got)
		}
		same(t, only(samples(families), "ojs_rate_limit_active", "ojs_rate_limit_waiting"),
			"ojs_rate_limit_active{key=k1} 3", "ojs_rate_limit_active{key=other} 6",
			"ojs_rate_limit_waiting{key=k1} 4")
		err = errors.New("disk on fire")
		same(t, only(samples(scrape(t, reg)), "ojs_rate_limit_active", "ojs_rate_limit_waiting"))
	}
}
