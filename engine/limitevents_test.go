package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/operate"
)

// TestLimitEvents covers rule L050, under virtual time: a key is told as exceeded once
// however many jobs wait and however many claims meet them.
func TestLimitEvents(t *testing.T) {
	const s = time.Second
	// sleeps has jobs run for 10 s.
	sleeps := func(b *rig) {
		b.handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
			pace.Virtual(10 * s)
			return nil
		})
	}
	key := func(l ojs.RateLimit) ojs.Option { return ojs.WithRateLimit(l) }
	one := ojs.RateLimit{Key: "k", Concurrency: 1}
	for name, test := range map[string]struct {
		do   func(b *rig)
		want []string // each with the seconds at which it was published
	}{
		"concurrency": {func(b *rig) {
			sleeps(b)
			for i := range 3 {
				b.enqueue("x", key(one), ojs.WithMeta("n", fmt.Sprint(i)))
			}
			b.run()
			b.advance(s)
			for range 3 { // claims that meet no job of the key
				b.enqueue("x")
			}
			b.advance(time.Minute)
		}, []string{
			"0 exceeded k concurrency 1 1",
			"10 released k concurrency after 10s", "10 exceeded k concurrency 1 1",
			"20 released k concurrency after 20s",
		}},
		"the wait of a job that came later": {func(b *rig) {
			sleeps(b)
			b.run()
			b.enqueue("x", key(one))
			b.advance(s)
			b.enqueue("x", key(one))
			b.advance(3 * s)
			b.enqueue("x", key(one))
			b.advance(time.Minute)
		}, []string{
			"1 exceeded k concurrency 1 1",
			"10 released k concurrency after 9s", "10 exceeded k concurrency 1 1",
			"20 released k concurrency after 16s",
		}},
		"rate, throttle and block": {func(b *rig) {
			b.handle("x", nothing)
			b.run()
			for range 2 {
				b.enqueue("x", key(ojs.RateLimit{Key: "r", Rate: ojs.Rate{Limit: 1, Per: 5 * s}}))
			}
			b.advance(s)
			for range 2 {
				b.enqueue("x", key(ojs.RateLimit{Key: "t", Throttle: ojs.Rate{Limit: 2, Per: 4 * s}}))
			}
			b.advance(s)
			if err := b.Limits().Block(b.ctx, operate.LimitOfKey("b"), time.Now().Add(8*s)); err != nil {
				b.t.Fatal(err)
			}
			b.enqueue("x", key(ojs.RateLimit{Key: "b", Concurrency: 9}))
			b.advance(time.Minute)
		}, []string{
			"0 exceeded r rate 1 1", "1 exceeded t throttle 2 0", "2 adjusted b blocked until 10s",
			"2 exceeded b block 0 0", "3 released t throttle after 2s", "5 released r rate after 5s",
			"10 released b block after 8s",
		}},
		"a retry, which has no wait, and an error that blocks until now": {func(b *rig) {
			b.handle("x", func(_ context.Context, job *ojs.Job[any]) error {
				if job.Attempt == 1 {
					return ojs.RetryAfter(s, ojs.RateLimitedUntil(time.Now(), errBoom))
				}
				return nil
			})
			b.run()
			b.enqueue("x", key(ojs.RateLimit{Key: "r", Rate: ojs.Rate{Limit: 1, Per: 5 * s}}))
			b.advance(time.Minute)
		}, []string{"1 exceeded r rate 1 1", "5 released r rate after 0s"}},
		"nobody waits": {func(b *rig) {
			sleeps(b)
			b.run()
			b.enqueue("x", key(one))
			b.enqueue("x")
			b.advance(time.Minute)
		}, nil},
		"one key with two bounds": {func(b *rig) {
			sleeps(b)
			two := ojs.RateLimit{Key: "k", Concurrency: 1, Throttle: ojs.Rate{Limit: 1, Per: s}}
			for _, l := range []ojs.RateLimit{one, one, two} {
				b.enqueue("x", key(l))
			}
			b.run()
			b.advance(9 * s)
		}, []string{"0 exceeded k concurrency 1 1"}},
		"drop": {func(b *rig) {
			b.handle("x", nothing)
			b.run()
			l := ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: s}, OnLimit: ojs.OnLimitDrop}
			b.enqueue("x", key(l))
			b.enqueue("x", key(l))
			b.advance(s)
		}, []string{"0 dropped k x"}},
		"bounds and blocks of a key": {func(b *rig) {
			k := operate.LimitOfKey("k")
			b.handle("x", func(context.Context, *ojs.Job[any]) error {
				return ojs.RateLimitedUntil(time.Now().Add(5*s), ojs.Errorf("a.b", "later"))
			})
			b.run()
			for _, err := range []error{
				b.Limits().Set(b.ctx, k, ojs.RateLimit{Concurrency: 2}, time.Time{}),
				b.Limits().Clear(b.ctx, k),
				b.Limits().Block(b.ctx, k, time.Time{}),
				b.Limits().Set(b.ctx, operate.LimitOfQueue("q"), ojs.RateLimit{Concurrency: 2}, time.Time{}),
			} {
				if err != nil {
					b.t.Fatal(err)
				}
			}
			b.enqueue("x", key(one), ojs.WithRetry(ojs.RetryPolicy{MaxAttempts: 1}))
			b.advance(s)
		}, []string{
			"0 adjusted k set", "0 adjusted k cleared", "0 adjusted k unblocked",
			"0 adjusted k handler until 5s",
		}},
	} {
		t.Run("L050 "+name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.t = t
				begin := time.Now()
				sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"rate_limit.*"}})
				test.do(b)
				sub.Close()
				var got []string
				for ev := range sub.C() {
					l := ev.Limit
					if ev.Type == event.LimitReleased && b.job(l.JobID).RateLimit.Key != l.Key {
						t.Errorf("released %s is job %q", l.Key, l.JobID)
					}
					at := ev.Time.Sub(begin).Seconds()
					got = append(got, fmt.Sprintf("%v %s", at, limitText(&ev, begin)))
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("\n got %q\nwant %q", got, test.want)
				}
			}, engine.WithConcurrency(3))
		})
	}
}

func limitText(ev *event.Event, begin time.Time) string {
	l := ev.Limit
	switch ev.Type {
	case event.LimitExceeded:
		return fmt.Sprintf("exceeded %s %s %d %d", l.Key, l.Strategy, l.Bound, l.Current)
	case event.LimitReleased:
		return fmt.Sprintf("released %s %s after %v", l.Key, l.Strategy, ev.Wait)
	case event.LimitDropped:
		if ev.Job == nil || ev.Job.ID != l.JobID {
			return "dropped without its job"
		}
		return fmt.Sprintf("dropped %s %s", l.Key, l.JobType)
	}
	text := fmt.Sprintf("adjusted %s %s", l.Key, ev.Reason)
	if !ev.Until.IsZero() {
		text += fmt.Sprint(" until ", ev.Until.Sub(begin))
	}
	return text
}
