package ojs_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage/memory"
)

// The code of docs/guide.md, as it stands there.

type Charge struct{ Card string }

var sendEmail = ojs.Define[Email]("email.send", ojs.WithMaxAttempts(8))
var buildReport = ojs.Define[Report]("report.build", ojs.WithTimeout(10*time.Minute))

func send(context.Context, *ojs.Job[Email]) error   { return nil }
func build(context.Context, *ojs.Job[Report]) error { return nil }

type (
	GreetingV1 struct{ Name string }
	GreetingV2 struct{ First, Last string }
)

var (
	greet1 = ojs.Define[GreetingV1]("greet")
	greet2 = ojs.Define[GreetingV2]("greet", ojs.WithVersion("2.0"))
)

func greetOld(context.Context, *ojs.Job[GreetingV1]) error { return nil }
func greet(context.Context, *ojs.Job[GreetingV2]) error    { return nil }

var gateway paymentGateway

type paymentGateway struct{}

func (paymentGateway) IdempotencyKey(id string) string                    { return id }
func (paymentGateway) Charge(_ context.Context, card, _ string) (_ error) { return nil }

func charge(ctx context.Context, job *ojs.Job[Charge]) error {
	return gateway.Charge(ctx, job.Args.Card, gateway.IdempotencyKey(job.ID))
}

type Row struct{ Table string }

var storeRow = ojs.Define[Row]("row.store")

func insertAll(context.Context, []*ojs.Job[Row]) []error { return nil }

type Order struct{ ID string }

var (
	sendReceipt = ojs.Define[Order]("receipt.send")
	shipOrder   = ojs.Define[Order]("order.ship")
	report      = ojs.Define[Order]("order.report")
	apologize   = ojs.Define[Order]("order.apologize")
)

func book(context.Context, Order) error { return nil }

func order(ctx context.Context, job *ojs.Job[Order]) error {
	next := []ojs.Draft{sendReceipt.New(job.Args), shipOrder.New(job.Args, ojs.WithDelay(time.Hour))}
	if err := handler.Then(ctx, next...); err != nil {
		return err
	}
	return book(ctx, job.Args)
}

func TestGuideRuns(t *testing.T) {
	ctx := t.Context()
	eng, err := engine.New[any](memory.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("several types", func(t *testing.T) {
		eng.Register(handler.For(sendEmail, send), handler.For(buildReport, build))
		ticket, err := buildReport.Enqueue(ctx, eng, Report{Month: "2026-03"})
		if err != nil || ticket.State != ojs.StateAvailable {
			t.Error(ticket, err)
		}
	})
	t.Run("versions", func(t *testing.T) {
		eng.Register(
			handler.For(greet1, greetOld, handler.WithVersions("<2.0")),
			handler.For(greet2, greet, handler.WithVersions(">=2.0 <3.0")))
		if _, err := eng.EnqueueMany(ctx, greet1.New(GreetingV1{}), greet2.New(GreetingV2{})); err != nil {
			t.Error(err)
		}
	})
	t.Run("idempotent", func(t *testing.T) {
		eng.Register(handler.For(ojs.Define[Charge]("payment.charge"), charge))
	})
	t.Run("batch", func(t *testing.T) {
		eng.Register(handler.ForBatch(storeRow, func(ctx context.Context, jobs []*ojs.Job[Row]) []error {
			return insertAll(ctx, jobs) // nil, or one error for each job
		}, handler.WithBatch(100, 50*time.Millisecond),
			handler.BatchBy(func(r Row) string { return r.Table })))
	})
	t.Run("follow", func(t *testing.T) {
		eng.Register(handler.For(ojs.Define[Order]("order.book"), order))
	})
	t.Run("wait", func(t *testing.T) {
		o := Order{"1"}
		_, err := eng.EnqueueMany(ctx,
			sendReceipt.New(o, ojs.WithDraftName("receipt")),
			shipOrder.New(o, ojs.WithDraftName("ship"), ojs.WithDependsOn("receipt")),
			report.New(o, ojs.WithDependsOn("receipt", "ship")),
			apologize.New(o, ojs.WithDependsOn("receipt", "ship"), ojs.WithCondition(ojs.AnyFailed)),
		)
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("ordering key", func(t *testing.T) {
		_, err := buildReport.Enqueue(ctx, eng, Report{}, ojs.WithOrderingKey("account-7"))
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("retry", func(t *testing.T) {
		policy := ojs.RetryPolicy{MaxAttempts: 5, MaxInterval: time.Minute}
		job := buildReport.New(Report{}, ojs.WithRetry(policy))
		if _, err := eng.EnqueueMany(ctx, job); err != nil {
			t.Error(err)
		}
	})
	t.Run("unique", func(t *testing.T) {
		eng, err := engine.New[any](memory.New())
		if err != nil {
			t.Fatal(err)
		}
		args := map[string]any{"user_id": 1, "doc": 2}
		for range 3 {
			// at most once per hour and user
			eng.Enqueue(ctx, "user.sync", args, ojs.WithThrottle(time.Hour, "user_id"))
			// only the last one of a burst
			eng.Enqueue(ctx, "index", args, ojs.WithDebounce(2*time.Second, "doc"))
			// the same, but at most a minute after the first one
			eng.Enqueue(ctx, "search", args, ojs.WithDebounceMax(2*time.Second, time.Minute, "doc"))
			// one waits; any number may run
			eng.Enqueue(ctx, "user.sync", args, ojs.WithOneWaiting("user_id"))
			// safe to repeat
			eng.Enqueue(ctx, "payment.charge", args, ojs.WithIdempotencyKey("request-7f3a"))
		}
		stats, err := eng.Stats(ctx)
		waiting := stats.Total[ojs.StateAvailable] + stats.Total[ojs.StateScheduled]
		if waiting != 4 || err != nil { // the second of user.sync is a duplicate of the first
			t.Errorf("%d jobs wait: %v", waiting, err)
		}
	})
	t.Run("recurring", func(t *testing.T) {
		err := eng.Cron().Set(ctx, cron.Entry{
			Name: "nightly", Schedule: "0 3 * * *", TimeZone: "Europe/Berlin", Job: buildReport.New(Report{}),
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// Each block of code in docs/guide.md stands in this file, but for white space.
func TestGuideCompiles(t *testing.T) {
	text, err := os.ReadFile("docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("guide_test.go")
	if err != nil {
		t.Fatal(err)
	}
	oneLine := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	for _, block := range blocks {
		if !strings.Contains(oneLine(string(source)), oneLine(block[1])) {
			t.Errorf("nothing compiles\n%s", block[1])
		}
	}
	if len(blocks) < 5 {
		t.Errorf("found %d blocks", len(blocks))
	}
}
