package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

type mailOf struct {
	Customer int `json:"customer"`
}

// L011: a key comes resolved with the job. A limit by a member is written once, with the
// job type, and makes the key of each job at its enqueue.
func TestLimitsByMember(t *testing.T) {
	once := ojs.RateLimit{Key: "mail", Rate: ojs.Rate{Limit: 1, Per: time.Minute}}
	sendMail := ojs.Define[mailOf]("mail.send", ojs.WithRateLimitBy("args.customer", once))
	key := func(b *rig, opts ...ojs.Option) string {
		ticket, err := sendMail.Enqueue(b.ctx, b, mailOf{7}, opts...)
		if err != nil {
			b.t.Fatal(err)
		}
		if l := b.job(ticket.ID).RateLimit; l != nil {
			return l.Key
		}
		return ""
	}
	t.Run("each value has the limit by itself", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			var got []string
			b.Register(handler.For(sendMail, func(_ context.Context, job *ojs.Job[mailOf]) error {
				got = append(got, fmt.Sprint(job.Args.Customer, " at ", b.elapsed()))
				return nil
			}))
			for _, customer := range []int{1, 1, 1, 2, 3} {
				if _, err := sendMail.Enqueue(b.ctx, b, mailOf{customer}); err != nil {
					t.Fatal(err)
				}
			}
			b.run()
			b.advance(time.Hour)
			want := []string{"1 at 0s", "2 at 0s", "3 at 0s", "1 at 1m0s", "1 at 2m0s"}
			if !slices.Equal(got, want) {
				t.Errorf("ran %v, want %v", got, want)
			}
		}, engine.WithConcurrency(1))
	})
	t.Run("options of the call", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			for _, tt := range []struct {
				opts []ojs.Option
				want string
			}{
				{nil, "mail:7"},
				{[]ojs.Option{ojs.WithPriority(1)}, "mail:7"},
				{[]ojs.Option{ojs.WithRateLimit(once)}, "mail"},
				{[]ojs.Option{
					ojs.WithRateLimitBy("meta.tenant", once), ojs.WithMeta("tenant", "acme"),
				}, "mail:acme"},
			} {
				if got := key(b, tt.opts...); got != tt.want {
					t.Errorf("the key is %q, want %q", got, tt.want)
				}
			}
		})
	})
	t.Run("what hooks have changed counts", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			if got := key(b); got != "mail:9" {
				t.Errorf("the key is %q", got)
			}
		}, engine.WithEnqueueHook(func(_ context.Context, job *ojs.Job[any]) error {
			job.Args = mailOf{9}
			return nil
		}))
	})
	t.Run("encoded args", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			ticket, err := sendMail.Enqueue(b.ctx, b, mailOf{7})
			if err != nil {
				t.Fatal(err)
			}
			job := b.job(ticket.ID)
			if !codec.IsEncoded(job.Args, job.Meta) || job.RateLimit.Key != "mail:7" {
				t.Errorf("args %s, key %q", job.Args, job.RateLimit.Key)
			}
			again := ojs.NewDraft("mail.send", job.Args, append(sendMail.Defaults(),
				func(o *ojs.Options) { o.Meta = job.Meta })...)
			_, err = b.EnqueueMany(b.ctx, again)
			wantInvalid(t, err, "rate_limit_by")
		}, engine.WithCodec(codec.AES256GCM(testRing("k1"))))
	})
	t.Run("a recurring job", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			e := cron.Entry{Name: "e", Schedule: "@hourly", Job: sendMail.New(mailOf{7})}
			err := b.Cron().Set(b.ctx, e)
			if err != nil {
				t.Fatal(err)
			}
			b.run()
			b.advance(time.Hour)
			n := 0
			for job, err := range b.Jobs().List(b.ctx, inspect.Filter{}) {
				if err != nil || job.RateLimit == nil || job.RateLimit.Key != "mail:7" {
					t.Errorf("%+v, %v", job.RateLimit, err)
				}
				n++
			}
			if n != 1 {
				t.Errorf("%d runs have a job", n)
			}
		})
	})
	t.Run("a dead letter keeps its key", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.Register(handler.For(sendMail, func(context.Context, *ojs.Job[mailOf]) error {
				return ojs.DeadLetter(errBoom)
			}))
			ticket, err := sendMail.Enqueue(b.ctx, b, mailOf{7})
			if err != nil {
				t.Fatal(err)
			}
			b.run()
			b.advance(time.Second)
			err = b.DeadLetters().Retry(b.ctx, ticket.ID, ojs.WithRateLimitBy("args.customer", once))
			wantInvalid(t, err, "rate_limit_by")
			if err = b.DeadLetters().Retry(b.ctx, ticket.ID); err != nil {
				t.Fatal(err)
			}
			if got := b.job(ticket.ID).RateLimit.Key; got != "mail:7" {
				t.Errorf("the key is %q", got)
			}
		})
	})
}

// L035: the handler of a type sets its limit over all engines, as a queue's configuration
// does. Run stores it, and so does a registration later.
func TestLimitsOfHandlers(t *testing.T) {
	bounds := func(b *rig, name string) ojs.RateLimit {
		l, err := b.Limits().Get(b.ctx, operate.LimitOfType(name))
		if err != nil {
			b.t.Fatal(name, err)
		}
		return l.Bounds
	}
	inBubble(t, func(b *rig) {
		rate := ojs.RateLimit{Throttle: ojs.Rate{Limit: 1, Per: time.Minute}}
		b.Handle("x", func(context.Context, *ojs.Job[any]) error {
			b.ran()
			return nil
		}, handler.WithGlobalRateLimit(rate))
		for range 3 {
			b.enqueue("x")
		}
		b.run()
		b.Handle("y", nothing, handler.WithGlobalConcurrency(3))
		if l := bounds(b, "x"); l != rate {
			t.Errorf("x has %+v", l)
		}
		if l := bounds(b, "y"); l != (ojs.RateLimit{Concurrency: 3}) {
			t.Errorf("y has %+v", l)
		}
		b.advance(time.Hour)
		if got, want := b.times(), seconds(0, 60, 120); !slices.Equal(got, want) {
			t.Errorf("started at %v, want %v", got, want)
		}
	})
	for name, option := range map[string]func(){
		"a negative bound": func() { handler.WithGlobalConcurrency(-1) },
		"no bound":         func() { handler.WithGlobalRateLimit(ojs.RateLimit{}) },
		"a key":            func() { handler.WithGlobalRateLimit(ojs.RateLimit{Key: "k", Concurrency: 1}) },
		"a bound that is none": func() {
			handler.WithGlobalRateLimit(ojs.RateLimit{Rate: ojs.Rate{Limit: -1}})
		},
	} {
		if recovered(option) == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// L035: the configuration of a queue sets its limit over all engines.
func TestLimitsOfQueues(t *testing.T) {
	rate := ojs.RateLimit{Rate: ojs.Rate{Limit: 1, Per: 10 * time.Second}}
	inBubble(t, func(b *rig) {
		b.handle("x", nothing)
		for range 3 {
			b.enqueue("x", ojs.WithQueue("q"))
		}
		b.run()
		b.advance(time.Minute)
		if got, want := b.times(), seconds(0, 10, 20); !slices.Equal(got, want) {
			t.Errorf("started at %v, want %v", got, want)
		}
		l, err := b.Limits().Get(b.ctx, operate.LimitOfQueue("q"))
		want := ojs.RateLimit{Concurrency: 3, Rate: rate.Rate}
		if err != nil || l.Bounds != want {
			t.Errorf("the queue has %+v, %v, want %+v", l.Bounds, err, want)
		}
	}, engine.WithQueueConfig("q", engine.QueueConfig{GlobalConcurrency: 3, GlobalRateLimit: rate}))
}

// setsSlowly is a storage that takes a second to set the first limit.
type setsSlowly struct {
	*memory.Storage
	set atomic.Bool
}

func (s *setsSlowly) SetLimit(
	ctx context.Context, now time.Time, name storage.LimitName, bounds ojs.RateLimit, until time.Time,
) error {
	if !s.set.Swap(true) {
		pace.Virtual(time.Second)
	}
	return s.Storage.SetLimit(ctx, now, name, bounds, until)
}

// L035: no job of a type starts before the limit of a handler that is registered during
// Run is stored.
func TestLimitsOfLateHandlers(t *testing.T) {
	inBubbleOn(t, &setsSlowly{Storage: memory.New()}, func(b *rig) {
		b.handle("x", func(ctx context.Context, _ *ojs.Job[any]) error { return nil })
		b.run()
		for range 3 {
			b.enqueue("y")
		}
		registered := make(chan struct{})
		go func() {
			defer close(registered)
			b.Handle("y", func(ctx context.Context, _ *ojs.Job[any]) error {
				b.ran()
				return handler.Sleep(ctx, time.Minute)
			}, handler.WithGlobalConcurrency(1))
		}()
		b.advance(time.Second / 2)
		b.enqueue("x") // its claim finds what it may
		b.advance(time.Hour)
		<-registered
		if got, want := b.times(), seconds(0.5, 1, 61, 121); !slices.Equal(got, want) {
			t.Errorf("started at %v, want %v", got, want)
		}
	})
}

// recovered returns what f panics with.
func recovered(f func()) (why any) {
	defer func() { why = recover() }()
	f()
	return nil
}
