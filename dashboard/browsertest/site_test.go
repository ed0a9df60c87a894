package browsertest

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/dashboard"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// site is an engine that works, with its pages under a path.
type site struct {
	t    *testing.T
	eng  *engine.Engine[any]
	root http.Handler
	url  string // of the overview

	failed, active, digest, workflow, album string // ids
}

type mail struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
}

func newSite(t *testing.T, opts ...dashboard.Option) *site {
	t.Helper()
	return newSiteOn(t, nil, opts...)
}

// served are the queues of an engine that serves no others.
func served() (own []engine.Option) {
	for _, name := range []string{"default", "mail", "billing", "reports", "search"} {
		own = append(own, engine.WithQueueConfig(name, engine.QueueConfig{}))
	}
	return own
}

// newSiteOn is newSite of an engine with options of its own.
func newSiteOn(t *testing.T, own []engine.Option, opts ...dashboard.Option) *site {
	t.Helper()
	store, now := memory.New(), time.Now()
	if err := document.Of(store).PutValues(context.Background(), now, past(now)); err != nil {
		t.Fatal(err)
	}
	eng, err := engine.New[any](store, append([]engine.Option{engine.WithName("shop"),
		engine.WithGracePeriod(0), engine.WithJobLogs(slog.LevelInfo),
		engine.WithReports(engine.Reports{Every: time.Second, Version: "v1.5.0"}),
		engine.WithLogger(slog.New(slog.DiscardHandler))}, own...)...)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := dashboard.New(eng, append([]dashboard.Option{dashboard.WithEnvironment("staging"),
		dashboard.WithLinks(func(job *ojs.JobInfo) []dashboard.Link {
			return []dashboard.Link{{Name: "Trace", URL: "https://traces.example.com/trace/" + job.ID},
				{Name: "Log lines", URL: "https://logs.example.com/?q=" + job.ID}}
		}), dashboard.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/jobs/", http.StripPrefix("/admin/jobs", pages))
	server := httptest.NewServer(mux)
	s := &site{t: t, eng: eng, root: pages, url: server.URL + "/admin/jobs/"}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	t.Cleanup(func() {
		if err := pages.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.fill(ctx)
	go func() { ended <- eng.Run(ctx) }()
	s.wait(func() bool {
		return s.state(s.failed) == ojs.StateDiscarded && s.state(s.active) == ojs.StateActive
	})
	return s
}

// past is two days of history, and a week by the hour, as another engine would have
// stored them: days that rise and fall, and ten minutes in which the invoices failed.
func past(now time.Time) (values []document.Value) {
	add := func(tier string, width time.Duration, n int) {
		for i := range n {
			start := now.Truncate(width).Add(-time.Duration(n-i) * width)
			ago := now.Sub(start)
			wave := func(seconds float64) float64 { return math.Sin(float64(start.Unix()) / seconds) }
			share := 1 + 0.4*wave(13750) + 0.08*wave(700) + 0.06*wave(90)
			share *= 1 - 0.05*math.Floor(ago.Hours()/24)
			var meters []string
			for k, of := range []struct {
				queue, jobType string
				minute         float64 // jobs
				wait, run      int     // buckets of the histograms
			}{{"mail", "email.send", 46, 88, 112}, {"images", "image.resize", 14, 96, 139},
				{"billing", "invoice.render", 9, 90, 126}, {"search", "page.fetch", 21, 92, 133}} {
				load := int(share * of.minute * width.Minutes())
				bad := load * ((i + k) % 6) / 60
				if k == 2 && ago > 34*time.Minute && ago < 44*time.Minute {
					bad = 4 * load
				}
				const text = `{"q":%q,"t":%q,"n":[%d,%d,%d,%d,0,0,0,0,0],"wait":[%d,%d,%d,%d,%d],` +
					`"run":[%d,%d,%d,%d,%d]}`
				few := 1 + load/20
				slow := (i / 9 % 5) * 2
				meters = append(meters, fmt.Sprintf(text, of.queue, of.jobType, load+bad+i%3, load, bad,
					bad*2/3, load*9e6, of.wait+slow, load, of.wait+16+slow, few, load*8e7, of.run, load,
					of.run+14+slow, few))
			}
			key := fmt.Sprintf("history/%s/%010d/web-1", tier, start.Unix())
			data := []byte("[" + strings.Join(meters, ",") + "]")
			values = append(values, document.Value{Key: key, Data: data})
		}
	}
	add("10s", 10*time.Second, 700)
	add("1m", time.Minute, 2850)
	add("1h", time.Hour, 8*24)
	return values
}

func (s *site) enqueue(jobType string, args any, opts ...ojs.Option) string {
	s.t.Helper()
	ticket, err := s.eng.Enqueue(context.Background(), jobType, args, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return ticket.ID
}

// fill makes jobs in every state, an entry and a workflow.
func (s *site) fill(ctx context.Context) {
	s.eng.Handle("email.send", func(ctx context.Context, job *ojs.Job[any]) error {
		handler.Logger(ctx).Info("connecting", "host", "smtp.example.com")
		if job.Meta["bad"] != nil {
			return ojs.Errorf("smtp.timeout", "dial tcp 10.0.0.7:25: i/o timeout")
		}
		return nil
	})
	s.eng.Handle("card.charge", func(context.Context, *ojs.Job[any]) error {
		panic("assignment to entry in nil map")
	})
	s.eng.Handle("report.build", func(ctx context.Context, _ *ojs.Job[any]) error {
		if err := handler.SaveCheckpoint(ctx, map[string]any{"row": 1200, "of": 4800}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	for _, name := range []string{"email.digest", "bank.export"} {
		s.eng.Handle(name, func(context.Context, *ojs.Job[any]) error { return nil })
	}
	hello := mail{"ada@example.com", "Your order has shipped and will arrive on Friday before noon"}
	billing := []ojs.Option{ojs.WithQueue("billing"), ojs.WithMaxAttempts(1)}
	dies := append(billing, ojs.WithRetry(ojs.RetryPolicy{OnExhaustion: ojs.ExhaustionDeadLetter}))
	for i := range 60 {
		s.enqueue("email.send", hello, ojs.WithQueue("mail"), ojs.WithTags("shop"), ojs.WithPriority(i%3))
	}
	for range 4 {
		s.enqueue("email.send", hello, ojs.WithQueue("mail"), ojs.WithMeta("bad", true))
		s.enqueue("card.charge", map[string]any{"order": 4711}, dies...)
	}
	s.failed = s.enqueue("card.charge", map[string]any{"order": 4712}, billing...)
	s.active = s.enqueue("report.build", map[string]any{"month": "2026-02"}, ojs.WithQueue("reports"))
	for i := range 12 {
		later := ojs.WithDelay(time.Duration(4*i+1) * time.Minute)
		s.digest = s.enqueue("email.digest", map[string]any{"n": i}, ojs.WithQueue("mail"), later)
		s.enqueue("search.index", map[string]any{"page": i}, ojs.WithQueue("search"))
	}
	for range 3 {
		bound := ojs.RateLimit{Key: "bank", Concurrency: 2, Rate: ojs.Rate{Limit: 100, Per: time.Minute}}
		s.enqueue("bank.export", nil, ojs.WithQueue("search"), ojs.WithRateLimit(bound))
	}
	_, err := s.eng.Queues().Pause(ctx, "search")
	s.must(err)
	s.must(s.eng.Cron().Set(ctx,
		cron.Entry{Name: "nightly-report", Schedule: "0 3 * * *", TimeZone: "Europe/Berlin",
			Description: "The report of the day before", Job: ojs.NewDraft("report.build", map[string]any{})},
		cron.Entry{Name: "digest", Schedule: "*/15 * * * *", Paused: true,
			Job: ojs.NewDraft("email.digest", nil)}))
	step := func(name, jobType string) workflow.Part {
		return workflow.Step(name, ojs.NewDraft(jobType, nil))
	}
	order := workflow.Chain(
		step("confirm", "email.send"),
		workflow.Group(step("invoice", "email.send"), step("charge", "card.charge"),
			step("pack", "no.handler")),
		step("ship", "email.send"))
	record, err := s.eng.Workflows().Start(ctx, workflow.New("order", order))
	s.must(err)
	s.workflow = record.ID
	s.eng.Handle("image.resize", func(context.Context, *ojs.Job[any]) error { return nil })
	var sizes []workflow.Part
	for i := range 8 {
		sizes = append(sizes, step(fmt.Sprintf("size-%d", 100*(i+1)), "image.resize"))
	}
	album := workflow.Chain(step("import", "image.resize"), workflow.Group(sizes...),
		step("publish", "email.send"), step("charge", "card.charge"))
	record, err = s.eng.Workflows().Start(ctx, workflow.New("album", album))
	s.must(err)
	s.album = record.ID
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// pages are the paths of all pages below the overview, by a name for pictures.
func (s *site) pages() map[string]string {
	var nodes []inspect.Node
	s.wait(func() bool { // the engine reports within a second
		var err error
		nodes, err = s.eng.Jobs().Nodes(context.Background())
		s.must(err)
		return len(nodes) > 0
	})
	done, err := http.PostForm(s.url+"act/", url.Values{"do": {"prioritize"}, "all": {"1"},
		"q": {"queue:search"}, "priority": {"1"}})
	s.must(err)
	s.must(done.Body.Close())
	return map[string]string{
		"node": "workers/" + nodes[0].ID + "/", "run": "runs/1/", "purge": "queues/search/purge/",
		"configure":    "queues/mail/configure/",
		"preview-move": "act/?do=move&all=1&q=queue:search", "job-waits": "jobs/" + s.digest + "/",
		"overview": "", "jobs": "jobs/", "jobs-discarded": "jobs/?q=state:discarded&by=error",
		"jobs-none": "jobs/?q=type:nothing", "jobs-bad": "jobs/?q=nokey:1",
		"job-failed": "jobs/" + s.failed + "/", "job-active": "jobs/" + s.active + "/?stack=1",
		"history": "history/?span=15m", "history-day": "history/?span=24h&with=day&with=week",
		"history-bad": "history/?from=x&scale=log", "album": "workflows/" + s.album + "/",
		"jobs-members": "jobs/?q=queue:mail&cols=to,subject", "history-none": "history/?queue=none",
		"edit": "jobs/" + s.digest + "/edit/", "enqueue": "enqueue/",
		"queues": "queues/", "queue": "queues/search/", "types": "types/", "type": "types/email.send/",
		"failures": "failures/", "failures-type": "failures/?type=card.charge",
		"search": "search/?q=email", "dead": "dead/", "due": "due/",
		"cron-edit": "cron/nightly-report/edit/", "crons": "cron/", "cron": "cron/nightly-report/",
		"workers": "workers/", "running": "running/", "limits": "limits/", "limit": "limits/key/bank/",
		"workflows": "workflows/", "workflows-failed": "workflows/?state=failed",
		"workflow": "workflows/" + s.workflow + "/",
		"system":   "system/", "display": "display/", "missing": "nope/",
		"preview": "act/?do=retry&all=1&q=state:discarded",
	}
}
