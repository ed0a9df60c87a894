package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/telemetry"
	"github.com/ojsengine/ojs/workflow"
)

// noon is when the verbs of tests run.
var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// shop fills a storage with the jobs of a web shop, the same on each storage.
type shop struct {
	t     testing.TB
	st    storage.Storage
	clock *clock.Mock
	eng   *engine.Engine[any]

	meters telemetry.Meters // of failures
}

func newShop(t testing.TB, st storage.Storage) *shop {
	t.Helper()
	s := &shop{t: t, st: st, clock: clock.NewMock()}
	s.clock.Set(noon)
	s.meters.CountFailures = true
	eng, err := engine.New[any](st, engine.WithClock(s.clock), engine.WithRand(rand.New(rand.NewPCG(1, 1))),
		engine.WithoutReports(), engine.WithLogger(slog.New(slog.DiscardHandler)))
	s.must(err)
	s.eng = eng
	return s
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// at sets the clock to some time before noon.
func (s *shop) at(before time.Duration) *shop {
	s.clock.Set(noon.Add(-before))
	return s
}

func (s *shop) enqueue(jobType string, args any, opts ...ojs.Option) string {
	s.t.Helper()
	ticket, err := s.eng.Enqueue(context.Background(), jobType, args, opts...)
	s.must(err)
	return ticket.ID
}

// claim has a worker take the next job of a type.
func (s *shop) claim(worker, jobType string) storage.Record {
	s.t.Helper()
	recs, err := s.st.Claim(context.Background(), s.clock.Now(),
		storage.Claim{Max: 1, Types: []string{jobType},
			Worker: worker}, nil)
	s.must(err)
	if len(recs) != 1 {
		s.t.Fatalf("no job of type %s", jobType)
	}
	return recs[0]
}

// end ends an attempt after some time. A message makes it fail: in the state given.
func (s *shop) end(rec storage.Record, after time.Duration, to ojs.State, errorType, message string) {
	s.t.Helper()
	s.clock.Set(s.clock.Now().Add(after))
	now := s.clock.Now()
	rec = ended(rec, now, to, errorType, message)
	settled, err := s.st.Settle(context.Background(), now,
		[]storage.Change{{Record: rec, AttemptFieldsOnly: true}}, nil)
	s.must(err)
	s.must(settled[0].Err)
	s.meters.Ended(1, func(int) (telemetry.Attempt, bool) {
		return telemetry.Attempt{Job: &rec, Completed: to == ojs.StateCompleted}, true
	})
}

// ended is the record of an attempt that has ended in a state.
func ended(rec storage.Record, now time.Time, to ojs.State, errorType, message string) storage.Record {
	rec.State, rec.LeaseUntil = to, time.Time{}
	if to != ojs.StateCompleted {
		f := ojs.Failure{Attempt: rec.Attempt, At: now, Type: errorType, Message: message,
			StartedAt: rec.StartedAt,
			Worker:    rec.Worker}
		rec.Error, rec.Errors = &f, append(rec.Errors, f)
	}
	switch to {
	case ojs.StateRetryable:
		rec.NextRetryAt = now.Add(8 * time.Minute)
	case ojs.StateDiscarded:
		rec.FinishedAt, rec.DeadLetteredAt = now, now
	case ojs.StateCompleted:
		rec.FinishedAt, rec.Progress, rec.Error = now, 1, nil
	}
	return rec
}

// report stores the failures that an engine has counted.
func (s *shop) report(worker, version string) {
	s.t.Helper()
	ctx, now := context.Background(), s.clock.Now()
	var values []document.Value
	s.must(new(telemetry.FailureRecorder).Record(ctx, &s.meters, s.st, now, worker, version,
		stored.Into(&values)))
	s.must(document.Of(s.st).PutValues(ctx, now, values))
}

// node stores what an engine reports.
func (s *shop) node(n inspect.Node) {
	s.t.Helper()
	put := func(key string, value any) {
		data, err := json.Marshal(value)
		s.must(err)
		s.must(document.Of(s.st).PutValues(context.Background(), s.clock.Now(),
			[]document.Value{{Key: key, Data: data}}))
	}
	put(stored.PrefixNode+n.ID, n)
	put(stored.PrefixAlive+n.ID, stored.Alive{ID: n.ID, Seen: n.Seen, Every: 5 * time.Second,
		DeadAfter: 30 * time.Second})
}

// fill has the shop at noon: something of everything.
func (s *shop) fill() {
	ctx := context.Background()
	const web = "shop-1:4711:a3f9"
	mail := ojs.WithQueue("mail")
	for i, to := range []string{"ada", "bob", "cleo"} {
		s.at(time.Duration(180-i)*time.Minute).enqueue("email.send",
			map[string]any{"to": to + "@example.com"}, mail)
		s.end(s.claim(web, "email.send"), 1200*time.Millisecond, ojs.StateCompleted, "", "")
	}
	s.at(90*time.Minute).order("order-1001", "")
	for i, box := range []string{"17", "23"} {
		s.at(time.Duration(60-10*i)*time.Minute).enqueue("email.send",
			map[string]any{"to": "box" + box + "@example.com"}, mail)
		s.end(s.claim(web, "email.send"), 3*time.Second, ojs.StateDiscarded, "smtp.refused",
			"550 mailbox "+box+" is full")
	}
	s.at(20*time.Minute).order("order-1002", "card.declined")
	s.at(5*time.Minute).enqueue("email.send", map[string]any{"to": "dora@example.com"}, mail)
	s.end(s.claim(web, "email.send"), 30*time.Second, ojs.StateRetryable, "timeout",
		"the server took more than 30s")
	s.at(4*time.Minute).enqueue("video.transcode", map[string]any{"file": "猫の動画.mp4"}, ojs.WithQueue("media"))
	s.end(s.claim(web, "video.transcode"), time.Second, ojs.StateDiscarded, "codec.unknown",
		"動画の形式がわかりません: 猫の動画.mp4")
	s.at(150*time.Second).enqueue("video.transcode", map[string]any{"file": "dog.mp4"},
		ojs.WithQueue("media"),
		ojs.WithLease(10*time.Minute))
	s.claim(web, "video.transcode")
	s.at(2*time.Minute).enqueue("email.send", map[string]any{"to": "emil@example.com"}, mail)
	s.at(time.Minute).enqueue("email.send", map[string]any{"to": "fay@example.com"}, mail,
		ojs.WithPriority(10))
	s.at(time.Minute).enqueue("reporting.quarterly.consolidated_statement.build",
		map[string]any{"quarter": "2026Q3"},
		ojs.WithQueue("reporting.low-priority.overnight-batch"))
	s.at(30*time.Second).enqueue("invoice.remind", map[string]any{"invoice": 4711}, ojs.WithQueue("billing"),
		ojs.WithScheduledAt(noon.Add(48*time.Hour)))
	s.must(s.eng.Cron().Set(ctx,
		cron.Entry{Name: "digest.daily", Description: "The digest of the day", Schedule: "0 7 * * *",
			TimeZone: "Europe/Berlin", Job: ojs.NewDraft("email.digest", nil, mail)},
		cron.Entry{Name: "carts.expire", Schedule: "@every 15m", Job: ojs.NewDraft("cart.expire", nil),
			Paused: true}))
	s.history(web)
	s.at(0)
	limits := operate.Open(s.st, s.clock, nil).Limits()
	s.must(limits.Set(ctx, operate.LimitOfQueue("mail"), ojs.RateLimit{Concurrency: 5}, time.Time{}))
	s.must(limits.Set(ctx, operate.LimitOfKey("stripe"),
		ojs.RateLimit{Rate: ojs.Rate{Limit: 100, Per: time.Minute}}, time.Time{}))
	s.report(web, "v1.4.0")
	cells, err := fleet.New[any](fleet.Config{Serve: []string{},
		Cells: []fleet.Cell{{Name: "eu-1", Store: s.st}, {Name: "eu-2", Store: memory.New()}}},
		engine.WithClock(s.clock), engine.WithoutReports(), engine.WithLogger(slog.New(slog.DiscardHandler)))
	s.must(err)
	_, err = cells.Map(ctx)
	s.must(err)
	s.node(inspect.Node{ID: web, Host: "shop-1", PID: 4711, Version: "v1.4.0", Go: "go1.26",
		Started: noon.Add(-26 * time.Hour),
		Seen:    noon.Add(-3 * time.Second), Queues: []string{"default", "mail", "media", "billing"},
		Types: []string{"email.send", "email.digest", "video.transcode", "order.charge", "order.ship",
			"order.mail"}, Slots: 10, Busy: 1})
}

// history is what an engine has counted.
func (s *shop) history(worker string) {
	s.t.Helper()
	var r telemetry.Recorder
	for i, before := range []time.Duration{25 * time.Hour, 50 * time.Minute, 20 * time.Minute,
		19 * time.Minute} {
		n := uint64(i + 1)
		mail := telemetry.Meter{Queue: "mail", Type: "email.send", Enqueued: 1200 * n, Started: 1190 * n,
			Completed: 1180 * n, Failed: 4 * n, Discarded: n - 1}
		for j := range n {
			mail.Wait.Observe(40 * time.Millisecond)
			mail.Run.Observe(time.Duration(j+1) * time.Second)
		}
		video := telemetry.Meter{Queue: "media", Type: "video.transcode", Started: n, Cancelled: n}
		s.at(before)
		var values []document.Value
		r.Record([]telemetry.Meter{mail, video}, s.clock.Now(), worker, stored.Into(&values))
		s.must(document.Of(s.st).PutValues(context.Background(), s.clock.Now(), values))
	}
}

// order is a workflow that charges, and then ships and mails. An error type makes the
// charge fail.
func (s *shop) order(name, errorType string) {
	s.t.Helper()
	draft := func(jobType string) ojs.Draft { return ojs.NewDraft(jobType, map[string]any{"order": name}) }
	_, err := s.eng.Workflows().Start(context.Background(), workflow.New(name, workflow.Chain(
		workflow.Step("charge", draft("order.charge")),
		workflow.Group(workflow.Step("ship", draft("order.ship")),
			workflow.Step("mail", draft("order.mail"))),
	)))
	s.must(err)
	const web = "shop-1:4711:a3f9"
	if errorType != "" {
		s.end(s.claim(web, "order.charge"), 900*time.Millisecond, ojs.StateDiscarded, errorType,
			"the card was declined")
		return
	}
	for _, jobType := range []string{"order.charge", "order.ship", "order.mail"} {
		s.end(s.claim(web, jobType), 900*time.Millisecond, ojs.StateCompleted, "", "")
	}
}
