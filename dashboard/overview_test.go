package dashboard

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// report stores what an engine would have reported of a minute: how many jobs of a type
// were enqueued, completed, failed, retried and discarded, and that each waited for 90 ms
// and ran for 2 s.
func report(t testing.TB, store storage.Storage, now, minute time.Time, jobType string, n [5]int) {
	t.Helper()
	data := fmt.Sprintf(`[{"q":"mail","t":%q,"n":[%d,%d,%d,%d,%d,0,0,0,0],"wait":[90000000,114,%d],`+
		`"run":[2000000000,151,%d]}]`, jobType, n[0], n[1], n[2], n[3], n[4], n[1]+n[2], n[1]+n[2])
	key := fmt.Sprintf("history/1m/%010d/%s", minute.Unix(), jobType)
	v := document.Value{Key: key, Data: []byte(data)}
	if err := document.Of(store).PutValues(t.Context(), now, []document.Value{v}); err != nil {
		t.Fatal(err)
	}
}

// reportNode stores what an engine that runs reports of itself.
func reportNode(t *testing.T, store storage.Storage, now time.Time) {
	t.Helper()
	v := document.Value{Key: stored.PrefixNode + "e", Data: []byte(`{"id":"e"}`)}
	if err := document.Of(store).PutValues(t.Context(), now, []document.Value{v}); err != nil {
		t.Fatal(err)
	}
}

// siteOn is a site on a storage.
func siteOn(t testing.TB, store storage.Storage, opts ...Option) *site {
	t.Helper()
	cl := clock.NewMock()
	cl.Set(time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC))
	eng, err := engine.New[any](store, engine.WithClock(cl), engine.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := New(eng, append([]Option{WithClock(cl), WithLogger(quiet), WithoutRunning()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pages.Close() })
	return &site{t, cl, eng, pages}
}

// The overview answers whether all is well, in a sentence.
func TestVerdict(t *testing.T) {
	store := memory.New()
	s := siteOn(t, store, WithAuthorizer(AllowAll))
	s.has("/", "No problem is known", "What to do first")
	s.enqueue("email.send", nil, ojs.WithQueue("mail"))
	s.has("/", "One thing needs attention", "Jobs wait, and no engine reports that it runs.")
	now := s.clock.Now()
	reportNode(t, store, now)
	for i := range 59 {
		minute := now.Truncate(time.Minute).Add(-time.Duration(i+1) * time.Minute)
		report(t, store, now, minute, "email.send", [5]int{30, 30, 0, 0, 0})
		report(t, store, now, minute.Add(-24*time.Hour), "email.send", [5]int{40, 40, 0, 0, 0})
	}
	s.clock.Add(10 * time.Second)
	body := s.has("/", "No problem is known", "30 jobs a minute in the last hour",
		"25 % less than in the same hour", "95 % of them waited less than")
	if strings.Contains(body, "What to do first") {
		t.Error("a storage in use is told what to do first")
	}
	// The engines have counted the discarded jobs. No listing counts them again.
	report(t, store, now, now.Truncate(time.Minute), "card.charge", [5]int{9000, 0, 8000, 1000, 6137})
	s.clock.Add(10 * time.Second)
	s.has("/", "One thing needs attention", ">6,137&#43;<", "8,000 of 8,000 attempts of the last hour failed",
		`href="./failures/?type=card.charge"`)
}

// Each thing that needs attention has the button that ends it, for readers who may.
func TestNoticesHaveActions(t *testing.T) {
	store, ctx := memory.New(), context.Background()
	s := siteOn(t, store, WithAuthorizer(AllowAll))
	reader := siteOn(t, store)
	reportNode(t, store, s.clock.Now())
	s.enqueue("t", nil, ojs.WithQueue("mail"))
	if _, err := s.eng.Queues().Pause(ctx, "mail"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.eng.Queues().PauseType(ctx, "t", "a bad deploy"); err != nil {
		t.Fatal(err)
	}
	queue := `action="./queues/mail/"><button class="act" name="do" value="resume" aria-label="Resume mail"`
	body := s.has("/", "2 things need attention", queue, `action="./types/t/"><button class="act"`,
		"a bad deploy")
	if n := strings.Count(body, `value="resume"`); n != 2 {
		t.Errorf("%d buttons", n)
	}
	if body := reader.has("/", "2 things need attention"); strings.Contains(body, `value="resume"`) {
		t.Error("a reader has a button")
	}
	for _, path := range []string{"/queues/mail/", "/types/t/"} {
		if w := s.do("POST", path, "do=resume"); w.Code != 303 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	s.has("/", "No problem is known")
}

// Many pauses are a few notices and the number of the others.
func TestManyPauses(t *testing.T) {
	s := siteOn(t, memory.New())
	for i := range 12 {
		if _, err := s.eng.Queues().PauseType(t.Context(), fmt.Sprintf("t%02d", i), ""); err != nil {
			t.Fatal(err)
		}
	}
	s.has("/", "12 things need attention", "t04", "7 more types are paused")
}

// countsCalls counts the calls of a storage that an overview makes.
type countsCalls struct {
	storage.Storage
	n atomic.Int64
}

func (c *countsCalls) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	c.n.Add(1)
	return c.Storage.List(ctx, q)
}

func (c *countsCalls) Counts(ctx context.Context) ([]storage.Count, error) {
	c.n.Add(1)
	return c.Storage.Counts(ctx)
}

// The navigation has the numbers that storages count. All pages share what one of them
// has read.
func TestNavigationCounts(t *testing.T) {
	store := &countsCalls{Storage: memory.New()}
	s := siteOn(t, store)
	s.enqueue("t", nil)
	s.enqueue("t", nil, ojs.WithQueue("mail"), ojs.WithDelay(time.Hour))
	for _, want := range []string{`data-live="count-jobs/">2<`,
		`data-live="count-due/">1<`, `data-live="count-queues/">2<`,
		`data-live="count-running/"></span></a>`} {
		s.has("/display/", want)
	}
	if strings.Contains(s.ok("/display/"), `data-live="count-failures/"`) {
		t.Error("the navigation counts discarded jobs, and the page of failures does not")
	}
	before := store.n.Load()
	for range 10 {
		s.ok("/display/")
	}
	if n := store.n.Load() - before; n > 0 {
		t.Errorf("%d calls for the numbers of ten pages", n)
	}
	if body := s.get("/nope/").Body.String(); strings.Contains(body, `data-live="count-jobs/">2`) {
		t.Error("a page that refuses has the numbers")
	}
	s.enqueue("t", nil)
	s.clock.Add(countsAge)
	s.has("/display/", `data-live="count-jobs/">3<`)
}

// Open overviews share what a tick has one of them read. A page that a person loads reads
// for itself.
func TestOpenOverviewsShareAReading(t *testing.T) {
	store := &countsCalls{Storage: memory.New()}
	s := siteOn(t, store)
	s.enqueue("t", nil)
	s.do("GET", "/", "", "X-Live", "1")
	before := store.n.Load()
	for range 10 {
		if w := s.do("GET", "/", "", "X-Live", "1"); w.Code != 200 {
			t.Fatal(w.Code)
		}
	}
	if n := store.n.Load() - before; n > 1 { // the health in the head of the page
		t.Errorf("%d calls for pages that could share", n)
	}
	s.enqueue("t", nil)
	s.has("/", `>Waiting</span><strong>2<`)
	s.clock.Add(2 * time.Second)
	s.enqueue("t", nil)
	if w := s.do("GET", "/", "", "X-Live", "1"); !strings.Contains(w.Body.String(), "<strong>3<") {
		t.Error("an open page shows what is two seconds old")
	}
}

// The trend of an open overview is as old as the history that pages share.
func TestOpenOverviewFollowsTheHistory(t *testing.T) {
	store := memory.New()
	s := siteOn(t, store)
	open := func() string { return s.do("GET", "/", "", "X-Live", "1").Body.String() }
	minute := s.clock.Now().Truncate(time.Minute).Add(-time.Minute)
	report(t, store, s.clock.Now(), minute, "a", [5]int{60, 60, 0, 0, 0})
	if body := open(); !strings.Contains(body, "1.0 jobs a minute in the last hour") {
		t.Errorf("no trend: %q", regexp.MustCompile(`[^>]*jobs? a minute[^<]*`).FindString(body))
	}
	report(t, store, s.clock.Now(), minute, "b", [5]int{120, 120, 0, 0, 0})
	s.clock.Add(historyAge)
	if body := open(); !strings.Contains(body, "3.1 jobs a minute in the last hour") {
		t.Errorf("no trend of now: %q", regexp.MustCompile(`[^>]*jobs? a minute[^<]*`).FindString(body))
	}
}

// The page of running jobs begins with jobs that take too long, and stops a type in one
// step: it pauses the type and cancels what runs of it.
func TestRunning(t *testing.T) {
	store, ctx := memory.New(), context.Background()
	s := siteOn(t, store, WithAuthorizer(AllowAll))
	minute := s.clock.Now().Truncate(time.Minute).Add(-time.Minute)
	report(t, store, s.clock.Now(), minute, "email.send", [5]int{30, 30, 0, 0, 0})
	ids := make(map[string]string)
	for name, opts := range map[string][]ojs.Option{"new.type": nil, "email.send": nil,
		"report.build": {ojs.WithTimeout(time.Minute)}} {
		for range 3 {
			ids[name] = s.enqueue(name, nil, append(opts, ojs.WithQueue(name))...)
		}
		c := storage.Claim{Queues: []string{name}, Max: 3, Worker: "w"}
		if recs, err := store.Claim(ctx, s.clock.Now(), c, nil); err != nil || len(recs) != 3 {
			t.Fatal(recs, err)
		}
	}
	s.clock.Add(2 * time.Minute)
	body := s.has("/running/", `Running <span class="count">9<`, "3 take too long", "past its timeout",
		"too long", "Pause the type and cancel its running jobs")
	_, rows, _ := strings.Cut(body, `data-live="rows"`)
	late, long, other := strings.Index(rows, "report.build"), strings.Index(rows, "email.send"),
		strings.Index(rows, "new.type")
	if late < 0 || late > long || long > other {
		t.Errorf("the order of the rows: %d, %d, %d", late, long, other)
	}
	w := s.do("POST", "/running/", "do=stop&type=report.build&reason=runs+away")
	if w.Code != 303 || !strings.Contains(w.Header().Get("Location"), "runs/1/") {
		t.Fatalf("%d to %s\n%s", w.Code, w.Header().Get("Location"), w.Body)
	}
	<-s.pages.runs.get(1).ended
	if got := s.state(ids["report.build"]); got != ojs.StateCancelled {
		t.Errorf("the job is %s", got)
	}
	if got := s.state(ids["email.send"]); got != ojs.StateActive {
		t.Errorf("a job of another type is %s", got)
	}
	pauses, err := s.eng.Queues().Pauses(ctx)
	if err != nil || len(pauses) != 1 || pauses[0].Type != "report.build" || pauses[0].Reason != "runs away" {
		t.Errorf("%+v, %v", pauses, err)
	}
	for form, code := range map[string]int{"do=stop": 404, "do=pause&type=t": 404,
		"do=stop&type=t&reason=" + strings.Repeat("x", 301): 409} {
		if w := s.do("POST", "/running/", form); w.Code != code {
			t.Errorf("%.30s: %d, want %d", form, w.Code, code)
		}
	}
	reader := siteOn(t, store)
	if body := reader.ok("/running/"); strings.Contains(body, `value="stop"`) {
		t.Error("a reader has a button")
	}
	if w := reader.do("POST", "/running/", "do=stop&type=email.send"); w.Code != 403 {
		t.Errorf("a reader stops a type: %d", w.Code)
	}
}

// The processor time of an overview with the reports of an hour and of the same hour of
// the day before, for a reader who loads it, and for an open page:
//
//	go test -run '^$' -bench Overview .
func BenchmarkOverview(b *testing.B) {
	for name, header := range map[string][]string{"loaded": nil, "open": {"X-Live", "1"}} {
		store := memory.New()
		s := siteOn(b, store)
		now := s.clock.Now()
		for i := range 60 {
			minute := now.Truncate(time.Minute).Add(-time.Duration(i) * time.Minute)
			for k := range 5 {
				of := fmt.Sprint("type.", k)
				report(b, store, now, minute, of, [5]int{30 + i, 29 + i, 1, 1, 0})
				report(b, store, now, minute.Add(-24*time.Hour), of, [5]int{40 + i, 41, 0, 0, 0})
			}
		}
		b.Run(name, func(b *testing.B) {
			size := 0
			var was, now syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &was)
			for b.Loop() {
				size = s.do("GET", "/", "", header...).Body.Len()
			}
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &now)
			spent := now.Utime.Nano() + now.Stime.Nano() - was.Utime.Nano() - was.Stime.Nano()
			b.ReportMetric(float64(spent)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(size), "bytes/page")
		})
	}
}

// One page at a time reads numbers that are too old. The others have the old ones
// meanwhile.
func TestOldNumbersMeanwhile(t *testing.T) {
	store := &slowCounts{Storage: memory.New(), begun: make(chan int, 9), end: make(chan int)}
	s := siteOn(t, store)
	close(store.end)
	first := s.pages.recentStats(t.Context(), s.clock.Now())
	<-store.begun
	store.end = make(chan int)
	s.clock.Add(countsAge)
	s.enqueue("t", nil)
	read := make(chan *engine.Stats)
	go func() { read <- s.pages.recentStats(t.Context(), s.clock.Now()) }()
	<-store.begun
	for range 3 {
		if now := s.pages.recentStats(t.Context(), s.clock.Now()); now.Total[ojs.StateAvailable] != 0 {
			t.Error("there are new numbers before they are read")
		}
	}
	close(store.end)
	if now := <-read; first.Total[ojs.StateAvailable] != 0 || now.Total[ojs.StateAvailable] != 1 {
		t.Errorf("%v, then %v", first.Total, now.Total)
	}
	if n := len(store.begun); n > 0 {
		t.Errorf("%d more reads", n)
	}
}

// slowCounts is a storage whose counts end when the test says.
type slowCounts struct {
	storage.Storage
	begun, end chan int
}

func (c *slowCounts) Counts(ctx context.Context) ([]storage.Count, error) {
	c.begun <- 1
	<-c.end
	return c.Storage.Counts(ctx)
}

// Open overviews share the pictures of their charts too, for each zone.
func TestOverviewsSharePictures(t *testing.T) {
	c := bars("x")
	c.add("a", "", 1)
	c.drawn = new(drawings)
	p := &page{display: display{Lang: "en", Zone: time.UTC}, Root: "./"}
	first := p.Plot(c)
	c.Series[0].Values[0] = 2
	if p.Plot(c) != first {
		t.Error("the picture is drawn again")
	}
	other := *p
	other.Zone = time.FixedZone("x", 3600)
	if other.Plot(c) == first {
		t.Error("a reader in another zone has the same picture")
	}
}
