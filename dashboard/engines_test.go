package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

// several is a dashboard of the engine of a full site, named shop, and of another one,
// named mail, which has one job.
func several(t *testing.T, opts ...Option) (pages *Handler, job string) {
	t.Helper()
	s, _ := full(t)
	mail, err := engine.New[any](memory.New(), engine.WithLogger(quiet), engine.WithClock(s.clock))
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := mail.Enqueue(context.Background(), "only.mail", nil, ojs.WithQueue("outbox"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err = NewMany([]Named{{"shop", s.eng}, {"mail", mail}},
		append([]Option{WithClock(s.clock), WithLogger(quiet)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pages.Close(); err != nil {
			t.Error(err)
		}
	})
	return pages, ticket.ID
}

func TestSeveralEngines(t *testing.T) {
	pages, job := several(t, WithAuthorizer(AllowAll))
	s := &site{t: t, pages: pages}
	for path, wants := range map[string][]string{
		"/": {`href="./" aria-current="true">shop<`, `href="./engines/mail/">mail<`,
			"<title>Overview · shop · "},
		"/queues/": {`href="../queues/" aria-current="true">shop<`, `href="../engines/mail/queues/">mail<`,
			">paused</a>"},
		"/queues/paused/": {`href="../../engines/mail/queues/">mail<`},
		"/engines/mail/": {`href="./../../">shop<`,
			`href="./../../engines/mail/" aria-current="true">mail<`},
		"/engines/mail/queues/": {`href="../../../queues/">shop<`, ">outbox</a>", "<title>Queues · mail · "},
		"/engines/mail/jobs/" + job + "/": {"only.mail", `href="../../../../jobs/">shop<`,
			`href="../../../../assets/`},
		"/engines/mail/act/?do=cancel&all=1&q=": {`href="../../../">shop<`},
	} {
		body := s.ok(path)
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s has no %s:\n%s", path, want, body)
			}
		}
	}
	if body := s.ok("/engines/mail/queues/"); strings.Contains(body, ">paused</a>") {
		t.Error("the queues of mail are those of shop")
	}
	for _, tc := range []struct {
		method, path string
		status       int
		location     string
	}{
		{"GET", "/engines/mail", 303, "./mail/"},
		{"GET", "/engines/mail/jobs", 303, "./jobs/"},
		{"GET", "/engines/", 404, ""},
		{"GET", "/engines/shop/", 404, ""},
		{"GET", "/engines/other/", 404, ""},
		{"GET", "/engines/mail/engines/mail/", 404, ""},
		{"GET", "/jobs/" + job + "/", 404, ""},
		{"GET", "/?set=display&lang=de&engine=mail", 303, "./engines/mail/display/"},
		{"GET", "/?set=display&zone=Nowhere&engine=mail", 303, "./engines/mail/display/?bad=1"},
		{"GET", "/?set=display&engine=other", 303, "./display/"},
		{"POST", "/engines/mail/jobs/" + job + "/", 303, "./?did=cancel"},
	} {
		form := ""
		if tc.method == "POST" {
			form = "do=cancel"
		}
		w := s.do(tc.method, tc.path, form)
		if w.Code != tc.status || w.Header().Get("Location") != tc.location {
			t.Errorf("%s %s: %d to %q, want %d to %q", tc.method, tc.path, w.Code, w.Header().Get("Location"),
				tc.status, tc.location)
		}
	}
	if body := s.ok("/engines/mail/jobs/" + job + "/"); !strings.Contains(body, `class="state cancelled"`) {
		t.Errorf("the job of mail is not cancelled:\n%s", body)
	}
}

// The links of all engines hold wherever the dashboard is mounted.
func TestSeveralEnginesAreMounted(t *testing.T) {
	pages, _ := several(t)
	for at, handler := range map[string]http.Handler{"/": pages, "/ops/": mux("/ops/", pages),
		"/jobs/": mux("/jobs/", http.StripPrefix("/jobs", pages))} {
		server := httptest.NewServer(handler)
		crawl(t, server.URL+at)
		crawl(t, server.URL+at, "engines/mail/")
		server.Close()
	}
}

// An authorizer is told which engine a request is about. The menu has only the engines
// that the request may look at.
func TestAuthorizerDecidesOnEngines(t *testing.T) {
	var mu sync.Mutex
	var asked []Action
	pages, job := several(t, WithAuthorizer(func(_ *http.Request, a Action) error {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, a)
		if a.Engine == "mail" {
			return errors.New("mail is for others")
		}
		return nil
	}))
	s := &site{t: t, pages: pages}
	if body := s.ok("/"); strings.Contains(body, "engines/mail/") {
		t.Error("the menu has an engine that the request may not look at")
	}
	for _, path := range []string{"/engines/mail/", "/engines/mail/live/"} {
		if w := s.get(path); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := s.do("POST", "/engines/mail/jobs/"+job+"/", "do=cancel"); w.Code != http.StatusForbidden {
		t.Errorf("POST: %d", w.Code)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, a := range asked {
		if a.Engine != "shop" && a.Engine != "mail" {
			t.Errorf("asked about the engine %q", a.Engine)
		}
	}
}

func TestEnginesAreChecked(t *testing.T) {
	eng, err := engine.New[any](memory.New())
	if err != nil {
		t.Fatal(err)
	}
	for _, engines := range [][]Named{nil, {{"", eng}}, {{"a/b", eng}}, {{"..", eng}}, {{"a", nil}},
		{{"a", eng}, {"a", eng}}, {{strings.Repeat("x", 61), eng}}} {
		if _, err := NewMany(engines); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%v: %v", engines, err)
		}
	}
	if _, err := NewMany([]Named{{"a", eng}}, WithTitle("")); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("a bad option: %v", err)
	}
}
