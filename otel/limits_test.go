package ojsotel_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// Rule L051.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memory.New(), engine.WithConcurrency(2))
		if _, err := r.WatchLimits(nil); err == nil {
			t.Error("no list is watched")
		}
		stop, err := r.WatchLimits(r.Limits().List)
		if err != nil {
			t.Fatal(err)
		}
		r.Handle("call", func(context.Context, *ojs.Job[any]) error {
			pace.Virtual(10 * time.Second)
			return nil
		})
		figures := func() (lines []string) {
			for line := range strings.Lines(r.figures()) {
				if strings.HasPrefix(line, "ojs.rate_limit.") {
					lines = append(lines, strings.TrimSpace(line))
				}
			}
			return lines
		}
		want := func(lines ...string) {
			t.Helper()
			if got := strings.Join(figures(), "\n"); got != strings.Join(lines, "\n") {
				t.Errorf("got\n%s", got)
			}
		}
		r.during(func(ctx context.Context) {
			for range 3 {
				r.enqueue(ctx, "call", ojs.WithRateLimit(ojs.RateLimit{Key: "api", Concurrency: 1}))
			}
			pace.Virtual(time.Second)
			synctest.Wait()
			want("ojs.rate_limit.active{key=api} 1 {job}",
				"ojs.rate_limit.exceeded_total{key=api,strategy=concurrency} 1 {time}",
				"ojs.rate_limit.waiting{key=api} 2 {job}")
			pace.Virtual(time.Minute)
			synctest.Wait()
		})
		want("ojs.rate_limit.exceeded_total{key=api,strategy=concurrency} 2 {time}",
			"ojs.rate_limit.wait_duration{key=api} 2 times, 30 in all, 13 buckets to 3600 s")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Rule L051: keys come from clients, so the label has a bound.
func TestKeysAreBounded(t *testing.T) {
	r := newRig(t, memory.New())
	const bound, more = 100, 3
	for i := range bound + more {
		r.Observe(&event.Event{Type: event.LimitExceeded, Limit: &event.Limit{
			Key: fmt.Sprint("k", i), Strategy: storage.LimitedByRate,
		}})
	}
	stop, err := r.WatchLimits(func(context.Context, operate.LimitQuery) ([]operate.Limit, error) {
		return []operate.Limit{
			{LimitName: operate.LimitOfKey("k1"), Active: 3, Waiting: 4},
			{LimitName: operate.LimitOfKey("x"), Active: 1}, {LimitName: operate.LimitOfKey("y"), Active: 5},
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	figures := r.figures()
	for _, want := range []string{
		"active{key=k1} 3 {job}", "active{key=other} 6 {job}", "waiting{key=k1} 4 {job}",
	} {
		if !strings.Contains(figures, "ojs.rate_limit."+want) {
			t.Errorf("want %s in\n%s", want, figures)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(figures, "ojs.rate_limit.exceeded_total{"); n != bound+1 {
		t.Errorf("%d keys have a counter, want %d and the rest", n, bound)
	}
	rest := fmt.Sprintf("ojs.rate_limit.exceeded_total{key=other,strategy=rate} %d {time}", more)
	if !strings.Contains(figures, rest) {
		t.Errorf("want %s in\n%s", rest, figures)
	}
}
