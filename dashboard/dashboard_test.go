package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// quiet keeps the log lines of provoked failures out of the output of tests.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// site is an engine with its pages, under a virtual clock.
type site struct {
	t     testing.TB
	clock *clock.Mock
	eng   *engine.Engine[any]
	pages *Handler
}

func newSite(t testing.TB, opts ...Option) *site {
	t.Helper()
	return newSiteOn(t, nil, opts...)
}

// newSiteOn is newSite of an engine with options of its own.
func newSiteOn(t testing.TB, own []engine.Option, opts ...Option) *site {
	t.Helper()
	return newSiteOver(t, memory.New(), own, opts...)
}

// newSiteOver is newSiteOn over a storage.
func newSiteOver(t testing.TB, store storage.Storage, own []engine.Option, opts ...Option) *site {
	t.Helper()
	cl := clock.NewMock()
	cl.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	own = append([]engine.Option{engine.WithClock(cl), engine.WithLogger(quiet)}, own...)
	eng, err := engine.New[any](store, own...)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := New(eng, append([]Option{WithClock(cl), WithLogger(quiet)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pages.Close(); err != nil {
			t.Error(err)
		}
	})
	return &site{t, cl, eng, pages}
}

func (s *site) enqueue(jobType string, args any, opts ...ojs.Option) string {
	s.t.Helper()
	ticket, err := s.eng.Enqueue(context.Background(), jobType, args, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return ticket.ID
}

// run has the engine run until it is idle.
func (s *site) run() {
	s.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.eng.Run(ctx) }()
	if err := s.eng.WaitIdle(context.Background()); err != nil {
		s.t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		s.t.Error(err)
	}
}

func (s *site) get(path string) *httptest.ResponseRecorder { return s.do("GET", path, "") }

func (s *site) do(method, path, form string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(form))
	r.Host = "localhost"
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.pages.ServeHTTP(w, r)
	return w
}

// The list of jobs says how many jobs it has looked at, and how many there are.
func TestListSaysHowFarItLooked(t *testing.T) {
	s := newSite(t)
	for range 3 {
		s.enqueue("t", nil)
	}
	s.has("/jobs/?q=args.x:1", "0 shown, 3 of 3 scanned")
	s.has("/jobs/", "3 shown, 3 of 3 scanned")
}

// The busiest types are those whose attempts took the most time.
func TestBusiestTypes(t *testing.T) {
	s := newSite(t)
	s.eng.Handle("quick", func(context.Context, *ojs.Job[any]) error { return nil })
	s.eng.Handle("slow", func(context.Context, *ojs.Job[any]) error {
		s.clock.Add(time.Second)
		return nil
	})
	for _, name := range []string{"quick", "slow", "quick", "quick"} {
		s.enqueue(name, nil)
		s.run() // alone: the slow one moves the clock
	}
	_, types, _ := strings.Cut(s.ok("/"), `data-live="types"`)
	if quick := strings.Index(types, ">quick<"); strings.Index(types, ">slow<") > quick || quick < 0 {
		t.Errorf("quick before slow in %s", types)
	}
}

// ok gets a page that must be there.
func (s *site) ok(path string) string {
	s.t.Helper()
	w := s.get(path)
	if w.Code != http.StatusOK {
		s.t.Fatalf("GET %s: %d\n%s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// hostile are texts that a page must show and not obey.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`,
	`javascript:alert(1)`, `</pre></textarea><svg/onload=alert(1)>`, `{{.Root}}`,
	"\u2028\u202e\x00`${alert(1)}",
}

// full is a site with jobs in every state, whose fields are hostile where they can be.
func full(t testing.TB, opts ...Option) (s *site, ids map[string]string) {
	s = newSite(t, opts...)
	evil := strings.Join(hostile, " ")
	s.eng.Handle("fails.once", func(context.Context, *ojs.Job[any]) error {
		return &ojs.Error{Type: "evil.error", Message: evil, Details: map[string]any{evil: evil}}
	})
	s.eng.Handle("fails.dead", func(context.Context, *ojs.Job[any]) error {
		return ojs.DeadLetter(errors.New(evil))
	})
	s.eng.Handle("panics", func(context.Context, *ojs.Job[any]) error { panic(evil) })
	s.eng.Handle("works", func(context.Context, *ojs.Job[any]) error { return nil })
	args := map[string]any{"evil": hostile, evil: 1}
	with := []ojs.Option{ojs.WithMeta("evil", evil), ojs.WithTags(evil)}
	ids = map[string]string{
		"retryable": s.enqueue("fails.once", args, append(with, ojs.WithQueue("mail"))...),
		"dead":      s.enqueue("fails.dead", args, with...),
		"discarded": s.enqueue("panics", args, append(with, ojs.WithMaxAttempts(1))...),
		"limited": s.enqueue("works", args, append(with, ojs.WithRateLimit(ojs.RateLimit{Key: "mail:acme",
			Concurrency: ojs.NoneAtOnce}))...),
		"completed": s.enqueue("works", args, with...),
		"scheduled": s.enqueue("works", args, append(with, ojs.WithDelay(time.Hour))...),
		"pending":   s.enqueue("works", args, append(with, ojs.WithPending())...),
		"available": s.enqueue("no.handler", args, append(with, ojs.WithQueue("paused"))...),
	}
	if _, err := s.eng.Queues().Pause(context.Background(), "paused"); err != nil {
		t.Fatal(err)
	}
	entry := cron.Entry{Name: "nightly", Schedule: "0 3 * * *", TimeZone: "Europe/Berlin",
		Description: evil, Job: ojs.NewDraft("works", args, with...)}
	if err := s.eng.Cron().Set(context.Background(), entry); err != nil {
		t.Fatal(err)
	}
	step := func(name, jobType string) workflow.Part {
		return workflow.Step(name, ojs.NewDraft(jobType, args, with...))
	}
	chain := workflow.Chain(step("first", "works"), workflow.Group(step("left", "fails.dead"),
		step("right", "works")), step("last", "works"))
	record, err := s.eng.Workflows().Start(context.Background(), workflow.New(evil, chain))
	if err != nil {
		t.Fatal(err)
	}
	ids["workflow"] = record.ID
	s.run()
	return s, ids
}

// addresses are those of every page.
func addresses(ids map[string]string) []string {
	out := []string{"/", "/jobs/", "/jobs/?q=state:discarded", "/jobs/?by=error", "/jobs/?q=%3Cscript%3E:1",
		"/search/?q=%3Cscript%3E", "/running/",
		"/history/", "/history/?queue=%3Cscript%3E",
		"/queues/", "/queues/mail/", "/queues/paused/", "/types/", "/types/works/", "/failures/", "/dead/",
		"/due/", "/limits/", "/limits/?kind=type", "/limits/key/mail:acme/",
		"/cron/", "/cron/nightly/", "/workers/?stacks=1", "/workflows/",
		"/workflows/" + ids["workflow"] + "/", "/system/", "/display/", "/display/?bad=1"}
	for _, id := range ids {
		out = append(out, "/jobs/"+id+"/")
	}
	return out
}

// formsOf are the addresses of pages that only a site with an authorizer has.
func formsOf(ids map[string]string) (out []string) {
	out = append(out, "/cron/nightly/edit/", "/cron/new/edit/", "/queues/mail/purge/", "/enqueue/",
		"/act/?do=move&all=1&q=", "/act/?do=reschedule&all=1&q=", "/act/?do=prioritize&id="+ids["available"])
	for name, id := range ids {
		if name != "workflow" {
			out = append(out, "/jobs/"+id+"/edit/")
		}
	}
	return out
}

// badTag is a tag that no template has, once its quoted values are left out.
var (
	badTag  = regexp.MustCompile(`(?i)<script[^>]*>[^<]|<img|<svg/|<[a-z][^>]*\s(?:on[a-z]+|style)\s*=`)
	quoted  = regexp.MustCompile(`"[^"]*"`)
	absLink = regexp.MustCompile(`(?i)(?:href|src|action|formaction)="(?:/|[a-z]+:)`)
)

func TestPagesEscape(t *testing.T) {
	s, ids := full(t, WithTitle(hostile[0]), WithEnvironment("<b>x</b>"), WithAuthorizer(AllowAll))
	for _, path := range append(addresses(ids), formsOf(ids)...) {
		body := s.ok(path)
		for _, bad := range append(hostile[:5:5], "<b>x</b>", "ZgotmplZ") {
			if strings.Contains(body, bad) && bad != hostile[3] {
				t.Errorf("%s has %q", path, bad)
			}
		}
		if m := badTag.FindString(quoted.ReplaceAllString(body, `""`)); m != "" {
			t.Errorf("%s has the tag %q", path, m)
		}
		if m := absLink.FindString(body); m != "" {
			t.Errorf("%s has the link %q", path, m)
		}
		if !strings.HasSuffix(strings.TrimSpace(body), "</html>") {
			t.Errorf("%s ends early", path)
		}
	}
}

func TestEveryAnswerHasTheHeaders(t *testing.T) {
	s, ids := full(t)
	for _, path := range append(addresses(ids), "/nope/", "/jobs/x/", "/assets/"+assetVersion+"/style.css") {
		head := s.get(path).Header()
		for name, want := range map[string]string{"Content-Security-Policy": contentPolicy,
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"} {
			if head.Get(name) != want {
				t.Errorf("%s: %s is %q", path, name, head.Get(name))
			}
		}
	}
	if strings.Contains(contentPolicy, "unsafe") || strings.Contains(contentPolicy, "http") {
		t.Errorf("the policy is lax: %s", contentPolicy)
	}
}

func TestStatusOfAddresses(t *testing.T) {
	s, ids := full(t)
	for _, tc := range []struct {
		method, path string
		status       int
		location     string
	}{
		{"GET", "/", 200, ""},
		{"HEAD", "/jobs/", 200, ""},
		{"GET", "/jobs", 303, "./jobs/"},
		{"GET", "/jobs?q=state:active", 303, "./jobs/?q=state:active"},
		{"GET", "/queues/mail", 303, "./mail/"},
		{"GET", "/nope/", 404, ""},
		{"GET", "/jobs/00000000-0000-7000-8000-000000000000/", 404, ""},
		{"GET", "/jobs/" + ids["dead"] + "/raw/?part=args", 200, ""},
		{"GET", "/jobs/" + ids["dead"] + "/raw/?part=nope", 404, ""},
		{"GET", "/jobs/" + ids["dead"] + "/raw/", 200, ""},
		{"GET", "/queues/none/", 404, ""},
		{"GET", "/jobs/?at=nonsense", 303, "./?q="},
		{"GET", "//jobs/", 404, ""},
		{"GET", "/jobs/../queues/", 404, ""},
		{"GET", "/assets/" + assetVersion + "/style.css", 200, ""},
		{"GET", "/assets/" + assetVersion + "/nope.css", 404, ""},
		{"GET", "/assets/000000000000/style.css", 404, ""},
		{"DELETE", "/", 405, ""},
		{"GET", "/?set=display&zone=Europe%2FBerlin&lang=de&theme=dark", 303, "./display/"},
		{"GET", "/?set=display&zone=Nowhere", 303, "./display/?bad=1"},
	} {
		w := s.do(tc.method, tc.path, "")
		if w.Code != tc.status || w.Header().Get("Location") != tc.location {
			t.Errorf("%s %s: %d to %q, want %d to %q", tc.method, tc.path, w.Code, w.Header().Get("Location"),
				tc.status, tc.location)
		}
	}
}

// The pages work wherever they are mounted. Each case follows the links of the overview,
// and the links of the pages that they lead to.
func TestMounts(t *testing.T) {
	s, _ := full(t)
	for name, mount := range map[string]struct {
		handler http.Handler
		at      string
	}{
		"root":          {s.pages, "/"},
		"strip prefix":  {http.StripPrefix("/admin/jobs", s.pages), "/admin/jobs/"},
		"mux":           {mux("/ops/", s.pages), "/ops/"},
		"mux and strip": {mux("/jobs/", http.StripPrefix("/jobs", s.pages)), "/jobs/"},
		"mux at jobs":   {mux("/jobs/", s.pages), "/jobs/"},
		"two mux strips": {
			mux("/a/", http.StripPrefix("/a", mux("/b/", http.StripPrefix("/b", s.pages)))), "/a/b/"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(mount.handler)
			defer server.Close()
			crawl(t, server.URL+mount.at)
		})
	}
	t.Run("proxy takes the prefix away", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			path, ok := strings.CutPrefix(r.URL.Path, "/public/x")
			if !ok {
				t.Errorf("%s has left the prefix", r.URL.Path)
				return
			}
			inner := httptest.NewRequest(r.Method, path+queryOf(r), nil)
			inner.Host = r.Host
			s.pages.ServeHTTP(w, inner)
		}))
		defer server.Close()
		crawl(t, server.URL+"/public/x/")
	})
}

func mux(pattern string, h http.Handler) http.Handler {
	m := http.NewServeMux()
	m.Handle(pattern, h)
	return m
}

var link = regexp.MustCompile(`(?:href|action)="([^"]*)"`)

// crawl follows links from a page on, each address once, two clicks far. The links stay
// below root. The first page is root, or a path below it.
func crawl(t *testing.T, root string, below ...string) {
	t.Helper()
	start := root + strings.Join(below, "")
	seen := map[string]bool{start: true}
	level := []string{start}
	for range 3 {
		var next []string
		for _, at := range level {
			resp, err := http.Get(at)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.Body.Close() != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusOK || !strings.HasPrefix(at, root) {
				t.Errorf("%s: %s", at, resp.Status)
			}
			if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
				continue
			}
			for _, m := range link.FindAllStringSubmatch(string(body), -1) {
				to, err := resp.Request.URL.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
				if err != nil {
					t.Fatal(err)
				}
				to.Fragment = ""
				if address := to.String(); !seen[address] && len(seen) < 150 {
					seen[address] = true
					next = append(next, address)
				}
			}
		}
		level = next
	}
	if len(seen) < 20 {
		t.Errorf("found %d pages only", len(seen))
	}
}

func TestReadOnlyHasNoPostForm(t *testing.T) {
	s, ids := full(t)
	for _, path := range addresses(ids) {
		own := `method="post"><input type="hidden" name="set"` // changes the reader's own cookie
		if body := strings.ReplaceAll(s.ok(path), own, ""); strings.Contains(body, `method="post"`) {
			t.Errorf("%s has a form that posts", path)
		}
	}
	for path, form := range map[string]string{"/jobs/" + ids["dead"] + "/": "do=delete",
		"/queues/mail/": "do=pause", "/act/": "do=delete&all=1&q="} {
		if w := s.do("POST", path, form); w.Code != http.StatusForbidden ||
			!strings.Contains(w.Body.String(), "WithAuthorizer") {
			t.Errorf("POST %s: %d\n%s", path, w.Code, w.Body)
		}
	}
}

func TestForgedPostIsRefused(t *testing.T) {
	s, ids := full(t, WithAuthorizer(AllowAll))
	path := "/jobs/" + ids["dead"] + "/"
	w := s.do("POST", path, "do=delete", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "WithTrustedOrigins") {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	s.ok(path)
}

func TestAuthorizerDecidesOnReading(t *testing.T) {
	s := newSite(t, WithAuthorizer(func(r *http.Request, a Action) error {
		if a.Do == Read && r.Header.Get("User") == "" {
			return errors.New("log in first")
		}
		return nil
	}))
	if w := s.get("/"); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "log in first") {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	if w := s.do("GET", "/", "", "User", "ada"); w.Code != http.StatusOK {
		t.Errorf("%d", w.Code)
	}
}

func TestRedaction(t *testing.T) {
	hide := func(_ *ojs.JobInfo, part Part, in []byte) []byte {
		switch part {
		case PartMeta, PartDetails:
			return []byte(`{"hidden": true}`)
		case PartMessage:
			return []byte("not JSON")
		}
		return []byte(`"hidden"`)
	}
	s, ids := full(t, WithRedact(hide))
	for _, id := range ids {
		at := "/jobs/" + id + "/"
		for _, path := range []string{at, at + "raw/", at + "raw/?part=args", "/jobs/", "/failures/", "/"} {
			if body := s.ok(path); strings.Contains(body, "alert") {
				t.Errorf("%s shows a secret:\n%s", path, body)
			}
		}
	}
}

func TestJobPage(t *testing.T) {
	s, ids := full(t)
	for name, want := range map[string][]string{
		"retryable": {"retryable", "Why it does not run", "attempt 2 due", "Attempts that may follow"},
		"dead":      {"discarded", "dead letter", "<h2>Attempts</h2>", "attempt 1 failed"},
		"discarded": {"Stack", "panic"},
		"available": {"is paused", "no handler"},
		"pending":   {"Why it does not run"},
		"scheduled": {"in 1h"},
		"completed": {"completed"},
	} {
		body := s.ok("/jobs/" + ids[name] + "/")
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("%s job: no %q", name, text)
			}
		}
	}
}

// A job's page has what its attempts have logged, the latest first.
func TestJobPageHasLogs(t *testing.T) {
	secret := func(_ *ojs.JobInfo, part Part, in []byte) []byte {
		if part == PartLog && strings.Contains(string(in), "secret") {
			return []byte(`{"msg": "kept"}`)
		}
		return in
	}
	s := newSiteOn(t, []engine.Option{engine.WithJobLogs(slog.LevelInfo)}, WithRedact(secret))
	s.eng.Handle("x", func(ctx context.Context, job *ojs.Job[any]) error {
		log := handler.Logger(ctx)
		log.Debug("too fine")
		log.Info("<b>begun</b>", "order", 7, "a", "<i>")
		log.Warn("the secret word")
		return nil
	})
	id := s.enqueue("x", nil)
	silent := s.enqueue("y", nil)
	s.eng.Handle("y", func(context.Context, *ojs.Job[any]) error { return nil })
	s.run()
	body := s.ok("/jobs/" + id + "/")
	for _, want := range []string{
		"<h2>Logs</h2>", "12:00:00.000 INFO &lt;b&gt;begun&lt;/b&gt; a=", "order=7\n", " kept\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	for _, not := range []string{"too fine", "secret", "<b>begun", "<i>", "cannot be read"} {
		if strings.Contains(body, not) {
			t.Errorf("%q in\n%s", not, body)
		}
	}
	if body := s.ok("/jobs/" + silent + "/"); strings.Contains(body, "<h2>Logs</h2>") {
		t.Errorf("a job without logs shows some:\n%s", body)
	}
}

// Numbers are shown as they are stored, and a large payload is cut on the server.
func TestPayloads(t *testing.T) {
	s := newSite(t)
	exact := s.enqueue("a", json.RawMessage(`{"n":12345678901234567890.10}`))
	if body := s.ok("/jobs/" + exact + "/"); !strings.Contains(body, "12345678901234567890.10") {
		t.Error("the number is not exact")
	}
	large := s.enqueue("a", map[string]any{"text": strings.Repeat("ä", 400_000)})
	body := s.ok("/jobs/" + large + "/")
	if len(body) > 64<<10 || !strings.Contains(body, "the page shows the beginning") {
		t.Errorf("a page of %d bytes", len(body))
	}
	if n := s.get("/jobs/" + large + "/raw/?part=args").Body.Len(); n < 800_000 {
		t.Errorf("a download of %d bytes", n)
	}
	if n := len(s.ok("/jobs/")); n > 32<<10 {
		t.Errorf("a list of %d bytes", n)
	}
}

func TestCutAt(t *testing.T) {
	for _, tc := range []struct {
		in   string
		n    int
		want string
	}{{"abc", 5, "abc"}, {"abc", 2, "ab"}, {"aä", 2, "a"}, {"ää", 3, "ä"}, {"", 0, ""}, {"\x80\x80", 1, ""}} {
		if got := string(cutAt([]byte(tc.in), tc.n)); got != tc.want {
			t.Errorf("cutAt(%q, %d) is %q, want %q", tc.in, tc.n, got, tc.want)
		}
	}
}

// The list pages forth and back over all jobs, each once.
func TestJobsPages(t *testing.T) {
	s := newSite(t)
	const n = 2*pageSize + 7
	for i := range n {
		s.enqueue("t", i)
	}
	forth := walk(s, "next")
	if len(forth) != n {
		t.Errorf("%d jobs forth, want %d", len(forth), n)
	}
}

var row = regexp.MustCompile(`href="\.\./jobs/([0-9a-f-]{36})/"`)

func walk(s *site, rel string) map[string]bool {
	seen := make(map[string]bool)
	next := regexp.MustCompile(`rel="` + rel + `" href="\./([^"]*)"`)
	for path := "/jobs/"; ; {
		body := s.ok(path)
		for _, m := range row.FindAllStringSubmatch(body, -1) {
			if seen[m[1]] {
				s.t.Errorf("job %s comes twice", m[1])
			}
			seen[m[1]] = true
		}
		m := next.FindStringSubmatch(body)
		if m == nil {
			if !strings.Contains(body, `rel="prev"`) {
				s.t.Error("the last page has no way back")
			}
			return seen
		}
		path = "/jobs/" + strings.ReplaceAll(m[1], "&amp;", "&")
	}
}

func TestFilterLineErrorsAreShown(t *testing.T) {
	s := newSite(t)
	body := s.ok("/jobs/?q=nokey:1")
	if !strings.Contains(body, "is no key") || !strings.Contains(body, `value="nokey:1"`) {
		t.Error(body)
	}
}

func TestDisplay(t *testing.T) {
	s, _ := full(t)
	with := func(header, value string) string {
		return s.do("GET", "/jobs/", "", header, value).Body.String()
	}
	body := with("Cookie", "ojs_theme=dark; ojs_lang=de; ojs_zone=Asia/Tokyo")
	for _, want := range []string{`lang="de"`, `data-theme="dark"`, "Warteschlange", "JST"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	if body := with("Accept-Language", "fr;q=1, de-AT;q=0.8"); !strings.Contains(body, `lang="de"`) {
		t.Error("Accept-Language is not heard")
	}
	body = with("Cookie", "ojs_theme=x; ojs_lang=../; ojs_zone=/etc/passwd")
	if !strings.Contains(body, `lang="en">`) {
		t.Error("bad cookies are not left out")
	}
	for query, want := range map[string][]string{"theme=dark": {"ojs_theme=dark"},
		"theme=&lang=de&zone=UTC": {"ojs_lang=de", "ojs_theme=", "ojs_zone=UTC"}} {
		var set []string
		for _, line := range s.get("/?set=display&" + query).Header()["Set-Cookie"] {
			cookie, _, _ := strings.Cut(line, ";")
			set = append(set, cookie)
		}
		if slices.Sort(set); !slices.Equal(set, want) {
			t.Errorf("%s sets %v, want %v", query, set, want)
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 999: "999ns", 1500: "1.5µs",
		123 * time.Millisecond: "123ms", 9500 * time.Millisecond: "9.5s", 59 * time.Second: "59s",
		61 * time.Second: "1m 1s", 2 * time.Hour: "2h",
		25 * time.Hour: "1d 1h", -time.Second: "-1s"} {
		if got := short(d); got != want {
			t.Errorf("short(%d) is %s, want %s", d, got, want)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	eng, err := engine.New[any](memory.New())
	if err != nil {
		t.Fatal(err)
	}
	for i, opt := range []Option{WithTitle(""), WithTitle(strings.Repeat("x", 61)),
		WithEnvironment(strings.Repeat("x", 31)),
		WithAuthorizer(nil), WithActor(nil), WithRedact(nil), WithClock(nil), WithLogger(nil),
		WithTrustedOrigins("example.com"), WithTrustedOrigins("https://example.com/path")} {
		if _, err := New(eng, opt); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("option %d: %v", i, err)
		}
	}
}

func TestClosed(t *testing.T) {
	s := newSite(t)
	if err := s.pages.Close(); err != nil {
		t.Fatal(err)
	}
	if w := s.get("/"); w.Code != http.StatusServiceUnavailable {
		t.Error(w.Code)
	}
}

// The time of a page does not grow with the jobs:
//
//	go test -run '^$' -bench Pages .
func BenchmarkPages(b *testing.B) {
	for _, n := range []int{1_000, 1_000_000} {
		s := newSite(b)
		drafts := make([]ojs.Draft, 0, 1000)
		for i := range n {
			queue := ojs.WithQueue([]string{"a", "b", "c"}[i%3])
			drafts = append(drafts, ojs.NewDraft("email.send", map[string]any{"n": i}, queue))
			if len(drafts) == cap(drafts) {
				if _, err := s.eng.EnqueueMany(context.Background(), drafts...); err != nil {
					b.Fatal(err)
				}
				drafts = drafts[:0]
			}
		}
		for _, path := range []string{"/", "/jobs/", "/jobs/?q=state:available+args.n:7", "/jobs/?by=type",
			"/queues/", "/queues/a/"} {
			b.Run(fmt.Sprintf("%d%s", n, path), func(b *testing.B) {
				for b.Loop() {
					s.ok(path)
				}
			})
		}
	}
}

// The head of a page has the health of a second ago at most, and none for a request that
// may not read.
func TestHealthInTheHead(t *testing.T) {
	s := newSite(t, WithAuthorizer(func(r *http.Request, a Action) error {
		if r.Header.Get("User") == "stranger" {
			return errors.New("log in first")
		}
		return nil
	}))
	has := func(health string) {
		t.Helper()
		want := `href="../system/" title="Health: ` + health + `">`
		if body := s.ok("/queues/"); !strings.Contains(body, want) {
			t.Errorf("the page has no %s:\n%s", want, body)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- s.eng.Run(ctx) }()
	for s.eng.Health(ctx).Status != engine.Healthy {
		runtime.Gosched()
	}
	has("healthy")
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	has("healthy") // as seen before
	s.clock.Add(time.Second)
	has("unhealthy; the engine does not run")
	w := s.do("GET", "/queues/", "", "User", "stranger")
	if strings.Contains(w.Body.String(), "Health") {
		t.Error("a request that may not read sees the health")
	}
}
