package ojsprometheus_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/operate"
	ojsprometheus "github.com/ojsengine/ojs/prometheus"
)

func TestUnwatched(t *testing.T) {
	c, reg := ojsprometheus.New(), prometheus.NewRegistry()
	reg.MustRegister(c)
	c.Watch(nil)
	same(t, only(samples(scrape(t, reg)), "ojs_storage", "ojs_workers", "ojs_queue"))
}

// Stats that fail cost the gauges and not the scrape.
func TestStatsFail(t *testing.T) {
	c, reg := ojsprometheus.New(), prometheus.NewRegistry()
	reg.MustRegister(c)
	var err error
	c.Watch(func(context.Context) (engine.Stats, error) {
		return engine.Stats{Running: true, Slots: 3, Queues: []operate.QueueStats{{Name: "q"}}}, err
	})
	c.Observe(&event.Event{Type: event.CronTriggered})
	err = errors.New("disk on fire")
	families := scrape(t, reg)
	same(t, samples(families), "ojs_cron_triggered_total 1")
	if got := value(families, "ojs_storage_up"); got != 0 {
		t.Errorf("ojs_storage_up is %v", got)
	}
	for _, name := range []string{"ojs_queue_depth", "ojs_queue_state", "ojs_workers_active",
		"ojs_workers_busy"} {
		if families[name] != nil {
			t.Errorf("there is %s", name)
		}
	}
	err = nil
	same(t, only(samples(scrape(t, reg)), "ojs_storage", "ojs_workers"),
		"ojs_storage_notifications_up 1", "ojs_storage_up 1",
		"ojs_workers_active 3")
}

func TestStatsTimeOut(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 5 * time.Second,
		2 * time.Second: 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := ojsprometheus.New(ojsprometheus.WithTimeout(timeout))
			c.Watch(func(ctx context.Context) (engine.Stats, error) {
				<-ctx.Done()
				return engine.Stats{}, ctx.Err()
			})
			reg := prometheus.NewRegistry()
			reg.MustRegister(c)
			start := time.Now()
			if _, err := reg.Gather(); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != want {
				t.Errorf("scraped in %v, want %v", took, want)
			}
		})
	}
}

func TestWithClock(t *testing.T) {
	virtual := clock.NewMock()
	c, reg := ojsprometheus.New(ojsprometheus.WithClock(virtual)), prometheus.NewRegistry()
	reg.MustRegister(c)
	c.Watch(func(ctx context.Context) (engine.Stats, error) {
		virtual.Add(4 * time.Second)
		if ctx.Err() != nil {
			t.Error("out of time after 4 s")
		}
		virtual.Add(time.Second)
		<-ctx.Done()
		return engine.Stats{}, ctx.Err()
	})
	if got := value(scrape(t, reg), "ojs_storage_up"); got != 0 {
		t.Errorf("ojs_storage_up is %v", got)
	}
}

// Of engines on one storage the workers add up, and the queues do not.
func TestEnginesOnOneStorage(t *testing.T) {
	c, reg := ojsprometheus.New(), prometheus.NewRegistry()
	reg.MustRegister(c)
	queues := []operate.QueueStats{{Name: "q", State: ojs.QueueActive,
		Counts: map[ojs.State]int{ojs.StateActive: 5}}}
	for _, s := range []engine.Stats{
		{Running: true, Slots: 4, Busy: 3, Stuck: 1},
		{Running: true, Slots: 4, Busy: 2, Notifications: errors.New("not listening")},
		{Slots: 4, Workers: []fetch.Stats{{State: fetch.Running}, {State: fetch.Quiet},
			{State: fetch.Terminate}}},
	} {
		s.Queues, s.Quarantined = queues, 2
		c.Watch(func(context.Context) (engine.Stats, error) { return s, nil })
	}
	same(t, samples(scrape(t, reg)), "ojs_queue_depth{queue=q,state=active} 5",
		"ojs_queue_state{queue=q,state=active} 1",
		"ojs_storage_quarantined 2", "ojs_storage_up 1", "ojs_workers_active 8", "ojs_workers_busy 5",
		"ojs_workers_fetching 1", "ojs_workers_stuck 1")
}
